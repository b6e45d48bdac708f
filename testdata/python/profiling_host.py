"""A host that profiles its own guest by a library: profiling_host.py LIBRARY SAMPLES GUEST [ARGUMENTS].

The library is wlprof-inside's example from_c. The guest is run again and again until there are so many samples of it.
"""

import ctypes
import sys
import threading
import time

import wasmtime

library, samples, *arguments = sys.argv[1:]
profile = ctypes.CDLL(library)
for function in [profile.wlprof_inside_start, profile.wlprof_inside_samples, profile.wlprof_inside_save]:
    function.restype = ctypes.c_longlong
engine = wasmtime.Engine()
module = wasmtime.Module.from_file(engine, arguments[0])
linker = wasmtime.Linker(engine)
linker.define_wasi()


def run():
    while True:
        store = wasmtime.Store(engine)
        wasi = wasmtime.WasiConfig()
        wasi.argv = arguments
        store.set_wasi(wasi)
        try:
            linker.instantiate(store, module).exports(store)["_start"](store)
        except wasmtime.ExitTrap:
            pass


threading.Thread(target=run, daemon=True).start()
if profile.wlprof_inside_start() != 0:
    sys.exit("there is no profile")
while profile.wlprof_inside_samples() < int(samples):
    time.sleep(0.1)
failed = profile.wlprof_inside_save()
# The guest does not end.
sys.stdout.flush()
ctypes.CDLL(None)._exit(1 if failed else 0)
