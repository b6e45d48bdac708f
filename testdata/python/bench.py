"""A bit of everything that Python programs do, for as many rounds as the argument says. Prints a checksum."""
import binascii
import collections
import contextlib
import functools
import itertools
import json
import re
import string
import sys


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __lt__(self, other):
        return self.length < other.length

    @property
    def length(self):
        return self.x * self.x + self.y * self.y


class Lazy:
    def __getattr__(self, name):
        value = sum(map(ord, name))
        setattr(self, name, value)
        return value


def sieve():
    composites = collections.defaultdict(list)
    for n in itertools.count(2):
        if n not in composites:
            yield n
            composites[n * n].append(n)
        else:
            for prime in composites.pop(n):
                composites[n + prime].append(prime)


async def pause(n):
    class Once:
        def __await__(self):
            yield n
            return n

    return await Once()


async def total(n):
    return sum([await pause(k) for k in range(n)])


def drive(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stop:
        return stop.value


@contextlib.contextmanager
def collecting(target):
    found = []
    yield found
    target.extend(found)


def risky(n):
    if n % 7 == 0:
        raise LookupError(n)
    return n


def calm(n):
    try:
        return risky(n)
    except LookupError as error:
        return -error.args[0]
    finally:
        n += 1


@functools.lru_cache(maxsize=64)
def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


def cycles(count):
    for _ in range(count):
        node = {"name": "node"}
        node["self"] = [node]


def texts(count):
    words = [string.ascii_lowercase[k % 19: k % 19 + k % 7] for k in range(count)]
    text = " ".join(words)
    replaced = re.sub(r"[aeiou]\w", lambda match: match.group().upper(), text)
    return len(re.findall(r"\b\w{3,5}\b", replaced)) + len(replaced.split())


def made(round):
    scope = {}
    exec(f"def f(x):\n    y = x * {round}\n    return [y for _ in range(3)]", scope)
    return sum(scope["f"](3))


def play(round):
    results = [fibonacci(11), ackermann(2, round % 5), texts(60), made(round)]
    vectors = sorted((Vector(k * 7919 % 101, k) for k in range(60)), reverse=True)
    results.append(functools.reduce(Vector.__add__, vectors).length)
    results.extend(itertools.islice(sieve(), 40))
    results.append(drive(total(12)))
    with collecting(results) as found:
        found.extend(map(calm, range(30)))
    lazy = Lazy()
    results.append(sum(getattr(lazy, name) for name in ("abc", "def", "abc")))
    record = {"name": "n" * (round % 9), "values": results, "nested": [{"k": k, "v": [k] * 3} for k in range(10)]}
    encoded = json.dumps(record, sort_keys=True, indent=1)
    assert json.loads(encoded)["values"] == results
    results.append(pow(3, 4000 + round) % 1000003)
    results.append(int(str(7 ** 300 + round)[-9:]))
    cycles(50)
    lookup = {str(k): k for k in sorted(range(80), key=lambda k: (k * 31) % 17)}
    results.append(sum(lookup[str(k)] for k in range(80)))
    return binascii.crc32(encoded.encode(), sum(results))


def main(rounds):
    checksum = 0
    for round in range(rounds):
        checksum = binascii.crc32(str(play(round)).encode(), checksum)
    print(f"{rounds} rounds, checksum {checksum:08x}")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
