"""A host whose memory is full of forgeries, beside a guest that runs: forging_host.py GUEST [ARGUMENTS].

There are more compiled images than anybody reads, damaged ones, and some that say that they are huge. Threads run the code of forged
images: the frames of one lead back into themselves, those of another are too many, and those of a third are on no stack.
"""

import ctypes
import random
import struct
import sys
import threading

import wasmtime

PAGE = 4096
COPIES = 10_100
DAMAGED = 300
CALLS = 100_000
NONE, READ, WRITE, EXECUTE = 0, 1, 2, 4
PRIVATE, ANONYMOUS, NO_RESERVE = 0x2, 0x20, 0x4000

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def memory(length):
    address = libc.mmap(None, length, READ | WRITE, PRIVATE | ANONYMOUS | NO_RESERVE, -1, 0)
    assert address not in (None, ctypes.c_void_p(-1).value)
    return address


def text_of(image):
    """Where the machine code of an image is: the section that can be executed."""
    (table,) = struct.unpack_from("<Q", image, 40)
    (sections,) = struct.unpack_from("<H", image, 60)
    for at in range(table, table + 64 * sections, 64):
        flags, _, offset, size = struct.unpack_from("<4Q", image, at + 8)
        if flags & 4:
            return offset, -(-size // PAGE) * PAGE
    raise ValueError("no code")


def put(image, text, room=0):
    """Maps an image as Wasmtime does, and gives the address of its code."""
    address = memory(max(len(image), text[0] + text[1], room) + PAGE)
    ctypes.memmove(address, bytes(image), len(image))
    assert libc.mprotect(address + text[0], text[1], READ | EXECUTE) == 0
    return address + text[0]


engine = wasmtime.Engine()
body = "local.get 0" + " local.get 0 i32.mul" * 20
small = wasmtime.Module(engine, f'(module (func (export "f") (param i32) (result i32) {body}))')
image = bytearray(small.serialize())
text = text_of(image)
for _ in range(COPIES):
    put(image, text)
chance = random.Random(1)
for _ in range(DAMAGED):
    damaged = bytearray(image)
    for _ in range(chance.randrange(1, 30)):
        at = chance.choice([chance.randrange(8, len(damaged)), chance.randrange(8, 64), len(damaged) - chance.randrange(1, 512)])
        damaged[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    put(damaged, text)
for length, room in [(1 << 30, 1 << 30), (1 << 29, 1 << 29), (1 << 62, 0), (0, 0)]:
    # Where the table of sections is, which ends an image.
    huge = bytearray(image)
    struct.pack_into("<Q", huge, 40, length)
    put(huge, text, room)

def run(machine_code):
    """Runs it for ever on a thread of its own, as the code of an image. Gives where that is."""
    forged = bytearray(image)
    forged[text[0] : text[0] + len(machine_code)] = machine_code
    code = put(forged, text)
    threading.Thread(target=ctypes.CFUNCTYPE(None)(code), daemon=True).start()
    return code


# push rbp; mov rbp, rsp; call next; next: push rbp; mov rbp, rsp; mov [rbp], rbp; here: jmp here
run(b"\x55\x48\x89\xe5\xe8\x00\x00\x00\x00\x55\x48\x89\xe5\x48\x89\x6d\x00\xeb\xfe")
# mov ecx, CALLS; f: push rbp; mov rbp, rsp; dec ecx; jz here; call f; here: jmp here
run(b"\xb9" + struct.pack("<I", CALLS) + b"\x55\x48\x89\xe5\xff\xc9\x74\x05\xe8\xf3\xff\xff\xff\xeb\xfe")
# mov rbp, frames; here: jmp here. Each frame there says that the next is above it, and that the same code called.
frames = memory(16 * CALLS + 32)
code = run(b"\x48\xbd" + struct.pack("<Q", frames) + b"\xeb\xfe")
rows = (ctypes.c_uint64 * (2 * CALLS)).from_address(frames)
rows[0::2] = range(frames + 16, frames + 16 * (CALLS + 1), 16)
rows[1::2] = [code + 10] * CALLS

module = wasmtime.Module.from_file(engine, sys.argv[1])
linker = wasmtime.Linker(engine)
linker.define_wasi()
while True:
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.argv = sys.argv[1:]
    store.set_wasi(wasi)
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap:
        pass
