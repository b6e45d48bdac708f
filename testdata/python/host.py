"""A host that asks nothing of Wasmtime but to run a module, again and again: host.py [--dir=FOLDER::PATH ...] GUEST [ARGUMENTS].

The guest has each FOLDER as its PATH.
"""

import sys

import wasmtime

arguments = sys.argv[1:]
folders = []
while arguments[0].startswith("--dir="):
    folders.append(arguments.pop(0).removeprefix("--dir=").split("::"))
engine = wasmtime.Engine()
module = wasmtime.Module.from_file(engine, arguments[0])
linker = wasmtime.Linker(engine)
linker.define_wasi()
while True:
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.argv = arguments
    for folder, path in folders:
        wasi.preopen_dir(folder, path)
    store.set_wasi(wasi)
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap:
        pass
