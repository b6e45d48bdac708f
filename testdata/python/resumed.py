"""Functions that are resumed: generators, coroutines, asynchronous iteration, and what they are mixed with. For stacks at
instants between two frames. Prints a checksum.
"""
import binascii
import functools
import sys


def letters(text):
    for letter in text:
        yield ord(letter)


def delegated(text, depth):
    if depth:
        return (yield from delegated(text, depth - 1))
    total = 0
    for value in letters(text):
        total += value
        yield total
    return total


class Tree:
    def __init__(self, depth):
        self.depth = depth
        self.children = [Tree(depth - 1) for _ in range(2)] if depth else []

    def __iter__(self):
        for child in self.children:
            yield from child
        yield self.depth

    def price(self, name):
        return sum(ord(letter) for letter in name)


def echo():
    sent = 0
    while True:
        try:
            sent = yield sent + 1
        except LookupError as error:
            sent = error.args[0]


def relay():
    return (yield from echo())


def conversation(count):
    talk = relay()
    total = next(talk)
    for k in range(count):
        total += talk.send(k)
        total += talk.throw(LookupError(k))
    talk.close()
    return total


class Pause:
    def __init__(self, count):
        self.count = count

    def __await__(self):
        for k in range(self.count):
            yield k
        return self.count


async def paused(count):
    return await Pause(count)


async def nested(depth):
    return await nested(depth - 1) if depth else await paused(5)


async def counted(count):
    for k in range(count):
        if k % 8 == 0:
            await paused(2)
        yield k


class Entered:
    async def __aenter__(self):
        return await paused(1)

    async def __aexit__(self, *_):
        await paused(1)


async def gathered(count):
    total = 0
    async for k in counted(count):
        total += k
    async with Entered() as more:
        total += more
    return total + sum([k async for k in counted(count)]) + await nested(6)


def drive(coroutine):
    steps = 0
    try:
        while True:
            coroutine.send(None)
            steps += 1
    except StopIteration as stop:
        return stop.value + steps


def failing(count):
    for k in range(count):
        if k % 5 == 4:
            raise LookupError(k)
        yield k


def caught(count):
    total = 0
    for _ in range(count):
        try:
            for k in failing(9):
                total += k
        except LookupError as error:
            total += error.args[0]
    return total


class Last:
    def __init__(self, total):
        self.total = total

    def __del__(self):
        self.total.append(sum(k for k in range(3)))


def dropped(count):
    total = []
    for _ in range(count):
        Last(total)
    return sum(total)


def holding(total):
    """Frees what it holds while it returns."""
    last = Last(total)
    return len(total)


def held(total):
    last = Last(total)
    yield len(total)


def released(count):
    total = []
    for _ in range(count):
        sum(held(total))
        [value for value in held(total)]
        holding(total)
    return len(total)


def passed(depth):
    """An exception passes them all."""
    return (yield from passed(depth - 1)) if depth else (yield depth)


def interrupted(count):
    total = 0
    for k in range(count):
        waiting = passed(k % 4)
        next(waiting)
        try:
            waiting.throw(LookupError(k))
        except LookupError as error:
            total += error.args[0]
    return total


async def forever(depth):
    """Does some work when it is cancelled."""
    try:
        await (forever(depth - 1) if depth else Pause(9))
    except LookupError as error:
        sum(letters("cancelled"))
        raise LookupError(*error.args, sum([k async for k in counted(2)]))


def cancelled(count):
    total = 0
    for k in range(count):
        task = forever(k % 5)
        task.send(None)
        error = LookupError(k)
        try:
            while True:
                task.throw(error) if error else task.send(None)
                error = None
        except LookupError as error:
            total += len(error.args)
    return total


def deep(depth):
    """The stack of frames goes on in other pieces of memory."""
    if depth:
        return deep(depth - 1)
    return sum(value for value in letters("deep" * 5)) + caught(1)


def callbacks(names):
    tree = Tree(0)
    cheapest = min(names, key=tree.price)
    total = functools.reduce(lambda sum, name: sum + len([c for c in letters(name)]), names, 0)
    return total + len(cheapest) + len({c: k for k, c in enumerate(letters(cheapest))})


def play(round):
    results = [sum(letters("letters" * 9)), sum(delegated("delegated", 5)), sum(Tree(5)), conversation(25)]
    results += [drive(gathered(40)), caught(12), dropped(12), deep(150 + round % 50)]
    results += [released(6), interrupted(12), cancelled(10)]
    results.append(callbacks([str(k) * 9 for k in range(40)]))
    results.append(sum(k * value for k, value in enumerate(x for x in letters("nested") for _ in range(3))))
    return results


def main(rounds):
    checksum = 0
    for round in range(rounds):
        checksum = binascii.crc32(str(play(round)).encode(), checksum)
    print(f"{rounds} rounds, checksum {checksum:08x}")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
