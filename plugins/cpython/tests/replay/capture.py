"""Captures `stacks.py` at each of its host calls: `capture.py PYTHON.wasm LIBRARY SCRIPTS FOLDER`.

PYTHON.wasm is the module without custom sections (its code is that of the original), LIBRARY what it needs at
/usr/local/lib, SCRIPTS the folder that has stacks.py. Writes what the example `record` reads. Needs the package wasmtime,
a release whose backtraces are not cut short (30).
"""
import bisect
import pathlib
import re
import struct
import sys

import wasmtime


def leb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return value, at


def code(module):
    """The number of imported functions, where the code section's payload is, and where in it each body starts."""
    imports, bodies, start, at = 0, [], 0, 8
    while at < len(module):
        section = module[at]
        size, begin = leb(module, at + 1)
        at = begin + size
        if section == 2:
            count, begin = leb(module, begin)
            for _ in range(count):
                for _ in range(2):
                    size, begin = leb(module, begin)
                    begin += size
                assert module[begin] == 0, "something else than a function is imported"
                imports += 1
                _, begin = leb(module, begin + 1)
        elif section == 10:
            start = begin
            count, begin = leb(module, begin)
            for _ in range(count):
                size, begin = leb(module, begin)
                bodies.append(begin - start)
                begin += size
    return imports, start, bodies


class Stop(Exception):
    pass


class Guest:
    def __init__(self, path, library, scripts):
        self.library, self.scripts = library, scripts
        binary = pathlib.Path(path).read_bytes()
        self.imports, self.start, self.bodies = code(binary)
        config = wasmtime.Config()
        config.cache = True
        self.engine = wasmtime.Engine(config)
        self.module = wasmtime.Module(self.engine, binary)

    def run(self, stop):
        """Runs until host call `stop`: what was printed there, memory, and the wasm stack."""
        store = wasmtime.Store(self.engine)
        linker = wasmtime.Linker(self.engine)
        linker.define_wasi()
        linker.allow_shadowing = True
        wasi = wasmtime.WasiConfig()
        wasi.argv = ["python.wasm", "stacks.py"]
        wasi.env = [("PYTHONDONTWRITEBYTECODE", "1")]
        wasi.preopen_dir(self.library, "/usr/local/lib")
        wasi.preopen_dir(self.scripts, ".")
        wasi.inherit_stderr()
        store.set_wasi(wasi)
        seen, found = 0, None

        def fd_write(caller, descriptor, vectors, count, written):
            nonlocal seen, found
            memory = caller["memory"]
            text = b""
            for index in range(count):
                place = vectors + 8 * index
                address, length = struct.unpack("<II", memory.read(caller, place, place + 8))
                text += bytes(memory.read(caller, address, address + length))
            if text.startswith(b"@ "):
                seen += 1
                if seen == stop + 1:
                    found = text, bytes(memory.read(caller, 0, memory.data_len(caller)))
                    raise Stop
            elif descriptor == 2:
                sys.stderr.write(text.decode())
            memory.write(caller, struct.pack("<I", len(text)), written)
            return 0

        i32 = wasmtime.ValType.i32()
        kind = wasmtime.FuncType([i32] * 4, [i32])
        linker.define_func("wasi_snapshot_preview1", "fd_write", kind, fd_write, access_caller=True)
        instance = linker.instantiate(store, self.module)
        frames = []
        try:
            instance.exports(store)["_start"](store)
        except (Stop, wasmtime.Trap, wasmtime.WasmtimeError, wasmtime.ExitTrap) as error:
            for match in re.finditer(r"^\s*\d+:\s+0x([0-9a-f]+) - ", str(error), re.M):
                offset = int(match.group(1), 16) - self.start
                frames.append((self.imports + bisect.bisect_right(self.bodies, offset) - 1, offset))
        return found, frames


def main():
    path, library, scripts, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    guest = Guest(path, library, scripts)
    number = 0
    while True:
        found, frames = guest.run(number)
        if found is None:
            break
        text, memory = found
        (folder / f"{number}.memory").write_bytes(memory)
        (folder / f"{number}.stack").write_bytes(text)
        (folder / f"{number}.wasm").write_text("".join(f"{function} {offset}\n" for function, offset in frames))
        number += 1
    print(f"{number} captures")


# The exception of a host function would replace the engine's, which has the stack.
wasmtime._func.maybe_raise_last_exn = lambda: None
main()
