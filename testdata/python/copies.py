"""Spends nearly all of its time copying memory, in host code. Prints a checksum."""
import sys


def copy(data):
    return bytes(data)


def work(rounds):
    data = bytearray(6_000_000)
    return sum(len(copy(data)) for _ in range(rounds))


print(work(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
