"""Checks `read_collector.py` and `read_parca.py` without their servers: check_stored.py WLPROF GUEST ARGUMENTS...

It runs a guest that pushes to a server of this program's own, and writes the messages as JSON with PyPI's classes, as a collector does.
"""

import base64
import contextlib
import gzip
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

import pprof_rules
import read_collector
import read_parca

SERVICE = "fleet"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.pprof = [], b""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
        self.reply(b"")

    def do_GET(self):
        """Answers as Parca's `query.proto` says."""
        kind = dict(name="process_cpu", sampleType="cpu", sampleUnit="nanoseconds", periodType="cpu", periodUnit="nanoseconds", delta=True)
        answer = {"types": [kind]}
        if not self.path.startswith("/api/profiles/types?"):
            assert "process_cpu%3Acpu%3Ananoseconds%3Acpu%3Ananoseconds%3Adelta%7Bservice_name%3D%22fleet%22%7D" in self.path
            answer = {"pprof": base64.b64encode(self.server.pprof).decode(), "total": "0"}
        self.reply(json.dumps(answer).encode())

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def said_by(main, *arguments):
    """Whether a comparison failed, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        failed = main(*arguments)
    return failed, out.getvalue()


def check(folder, wlprof, guest):
    server, silent = Server(), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    recording, rendered, exported = folder / "x.wlprof", folder / "x.pb.gz", folder / "profiles.json"
    push = ["--push", f"otlp+http://{server.address}", "--push-interval=1s", f"--push-resource=service.name={SERVICE}"]
    subprocess.run([wlprof, *push, "-o", recording, *guest], check=True, **silent)
    subprocess.run([wlprof, "render", "--format", "pprof", "-o", rendered, recording], check=True, **silent)
    requests = [profiles_service_pb2.ExportProfilesServiceRequest.FromString(body) for body in server.bodies]
    run = [f"{SERVICE}={rendered}"]

    def collector():
        exported.write_text("".join(MessageToJson(request, indent=None) + "\n" for request in requests))
        return said_by(read_collector.main, exported, run)

    failed, said = collector()
    assert not failed and said.endswith("the CPU time of each function is the run's\n"), said
    # A nanosecond too many, a function that is another one, and a service that has nothing, are found.
    kinds = requests[0].dictionary.string_table
    profiles = requests[0].resource_profiles[0].scope_profiles[0].profiles
    profile = next(each for each in profiles if kinds[each.sample_type.type_strindex] == "cpu")
    profile.samples[0].values[0] += 1
    failed, said = collector()
    assert failed and "by functions" in said and "by leaves" in said and "ns in all" in said, said
    profile.samples[0].values[0] -= 1
    stack = requests[0].dictionary.stack_table[profile.samples[0].stack_index]
    place = requests[0].dictionary.location_table[stack.location_indices[0]].lines[0].function_index
    function = requests[0].dictionary.function_table[place]
    name, function.name_strindex = function.name_strindex, 0
    failed, said = collector()
    assert failed and "by leaves" in said and "ns in all" not in said, said
    function.name_strindex = name
    run = [f"other={rendered}"]
    failed, said = collector()
    assert failed and said.startswith("other: 0 profiles; None ns in all"), said

    run = [f"{SERVICE}={rendered}"]
    server.pprof = rendered.read_bytes()
    failed, said = said_by(read_parca.main, server.address, run)
    assert not failed, said
    _, profile = pprof_rules.decoded(server.pprof)
    for sample in profile.sample:
        for place in range(len(sample.value)):
            sample.value[place] += 1
    server.pprof, read_parca.LONGEST_WAIT = gzip.compress(profile.SerializeToString()), 0
    failed, said = said_by(read_parca.main, server.address, run)
    assert failed and "ns in all" in said, said
    return len(requests)


with tempfile.TemporaryDirectory() as folder:
    count = check(pathlib.Path(folder), sys.argv[1], sys.argv[2:])
print(f"{count} messages are compared rightly")
