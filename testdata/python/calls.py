"""Runs the script named first, with the other arguments as its own, and prints every call between functions that happened
in it: the caller, the line of the call, and the callee. For a profiler's stacks to be compared with.
"""
import sys

script = sys.argv[1]
calls = set()


def note(frame, event, argument):
    # All callers, since a generator that an exception is thrown through is a caller that was not called.
    while event == "call" and frame.f_back is not None:
        caller = frame.f_back
        calls.add((caller.f_code.co_qualname, caller.f_lineno, frame.f_code.co_qualname))
        frame = caller


with open(script) as file:
    code = compile(file.read(), script, "exec")
sys.argv = sys.argv[1:]
sys.setprofile(note)
try:
    exec(code, {"__name__": "__main__"})
finally:
    sys.setprofile(None)
for call in sorted(calls):
    print("@", *call, sep="\t")
