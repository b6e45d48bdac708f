"""Proves that waiting is told apart in Python guests, and where it is. `nap` sleeps, `take` reads standard input to its end,
`compute` works; the script says "ready" first, and at last how long each took by its own clock, in nanoseconds."""
import os
import time


def nap():
    time.sleep(0.6)  # sleeps


def take():
    read = 0
    while True:
        got = os.read(0, 64)  # reads
        if not got:
            return read
        read += len(got)


def compute():
    total = 0
    for number in range(2_000_000):
        total = (total * 31 + number) % 1_000_003
    return total


print("ready", flush=True)
began = time.monotonic_ns()
size = take()
taken = time.monotonic_ns()
checksum = compute()
computed = time.monotonic_ns()
nap()
napped = time.monotonic_ns()
print(f"take {taken - began}\ncompute {computed - taken}\nnap {napped - computed}")
print("waits", size, checksum)
