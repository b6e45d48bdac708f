"""A host that ends: ending_host.py GUEST [ARGUMENTS].

It says "ready", runs the guest again and again until its input ends, and once more after that. It ends with the code 7.
"""

import sys
import threading

import wasmtime

engine = wasmtime.Engine()
module = wasmtime.Module.from_file(engine, sys.argv[1])
linker = wasmtime.Linker(engine)
linker.define_wasi()
has_ended = threading.Event()


def read():
    sys.stdin.read()
    has_ended.set()


threading.Thread(target=read, daemon=True).start()
print("ready", flush=True)
is_last = False
while not is_last:
    is_last = has_ended.is_set()
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.argv = sys.argv[1:]
    wasi.inherit_stdout()
    store.set_wasi(wasi)
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap:
        pass
sys.exit(7)
