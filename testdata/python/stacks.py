"""Prints its own stack in one host call at many moments, for a profiler's view of that call to be compared with.

A stack begins with `@ NAME` and has a line for each frame, innermost first: qualified name, file, first line, line and
column, with tabs between. The column of the innermost frame is that of another call and so left out.
"""
import functools
import gc
import itertools
import json
import os
import re
import runpy
import sys
import weakref

COUNT = 0


def stack(frame, name):
    lines = [f"@ {name}"]
    column = ""
    while frame is not None:
        code = frame.f_code
        position = (code.co_qualname, code.co_filename, code.co_firstlineno, frame.f_lineno, column)
        lines.append("\t".join(map(str, position)))
        frame = frame.f_back
        if frame is not None:
            units = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
            column = next(units)[2]
    return "\n".join(lines + [""]).encode("utf-8", "backslashreplace")


def checkpoint(name):
    global COUNT
    COUNT += 1
    os.write(1, stack(sys._getframe(), name))
    return COUNT


def recursion(depth):
    if depth == 0:
        return checkpoint("recursion")
    return recursion(depth - 1) + 1


def generator(depth):
    if depth:
        yield from generator(depth - 1)
    yield checkpoint(f"generator {depth}")


async def coroutine(depth):
    if depth:
        await coroutine(depth - 1)
    return checkpoint(f"coroutine {depth}")


class Awaitable:
    def __await__(self):
        checkpoint("__await__")
        yield


class Context:
    async def __aenter__(self):
        checkpoint("__aenter__")
        await Awaitable()

    async def __aexit__(self, *failure):
        checkpoint("__aexit__")


async def asynchronous_generator():
    checkpoint("asynchronous generator")
    yield 1
    await Awaitable()
    checkpoint("asynchronous generator resumed")
    yield 2


async def asynchronous():
    async with Context():
        async for value in asynchronous_generator():
            checkpoint(f"async for {value}")
    return [value async for value in asynchronous_generator()]


def drive(awaitable):
    try:
        while True:
            awaitable.send(None)
    except StopIteration as stop:
        return stop.value


def decorator(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)

    return wrapper


@decorator
@functools.lru_cache(maxsize=None)
def decorated(value):
    return checkpoint("decorated") + value


class Meta(type):
    def __new__(meta, name, bases, namespace):
        checkpoint("metaclass")
        return super().__new__(meta, name, bases, namespace)

    def __call__(cls, *arguments):
        checkpoint("metaclass call")
        return super().__call__(*arguments)


class Thing(metaclass=Meta):
    checkpoint("class body")

    def __init__(self, value):
        checkpoint("__init__")
        self.value = value

    def __getattr__(self, name):
        return checkpoint(f"__getattr__ {name}")

    def __lt__(self, other):
        checkpoint("__lt__")
        return self.value < other.value

    def __hash__(self):
        checkpoint("__hash__")
        return 7

    def __format__(self, specification):
        checkpoint("__format__")
        return specification

    @property
    def doubled(self):
        return checkpoint("property") * 2

    @classmethod
    def made(cls):
        return (lambda: checkpoint("classmethod, lambda"))()

    class Inner:
        @staticmethod
        def method():
            def nested():
                return checkpoint("nested")

            return nested()


class Dying:
    def __del__(self):
        checkpoint("__del__")


def callbacks():
    sorted([3, 1, 2], key=lambda value: checkpoint("sort key") and value)
    list(map(lambda value: checkpoint("map") + value, [1]))
    re.sub("b+", lambda match: str(checkpoint("re.sub")), "abbc")
    json.loads('{"a": {}}', object_hook=lambda pairs: checkpoint("json hook"))
    json.dumps(Thing, default=lambda value: checkpoint("json default"))
    functools.reduce(lambda a, b: checkpoint("reduce") + b, [1, 2])
    functools.partial(checkpoint, "partial")()
    max([1, 2], key=lambda value: checkpoint("max") * value)
    any(checkpoint("generator expression") < 0 for _ in range(2))
    [checkpoint("list comprehension") for _ in range(1)]
    {checkpoint("dict comprehension"): [checkpoint("nested comprehension") for _ in range(1)] for _ in range(1)}
    next(iter(lambda: checkpoint("iter sentinel"), 0))


def objects():
    thing = Thing(1)
    thing.missing
    thing.doubled
    Thing.made()
    Thing.Inner.method()
    thing < Thing(2)
    {thing: 1}
    f"{thing:>3}"
    sorted([thing, Thing(0)])
    Dying()
    watched = Thing(3)
    reference = weakref.ref(watched, lambda _: checkpoint("weakref callback"))
    del watched
    assert reference() is None
    cycle = Dying()
    cycle.itself = cycle
    del cycle
    gc.collect()
    gc.callbacks.append(lambda phase, _: checkpoint(f"gc callback {phase}"))
    gc.collect()
    gc.callbacks.clear()


def exceptions(depth=3):
    try:
        if depth:
            exceptions(depth - 1)
        else:
            raise ValueError("at the bottom")
    except ValueError as error:
        checkpoint(f"except {depth}")
        if depth == 3:
            return len(error.args)
        raise
    finally:
        checkpoint(f"finally {depth}")


def compiled():
    exec("checkpoint('exec')")
    eval("[checkpoint('eval'), 1]")
    source = "def made(n):\n    return (n and made(n - 1)) or checkpoint('made up')\n\n\nmade(2)\n"
    for name in ["<made>", "dossier/été.py", "目录/文件.py", "𐐷/𐐷.py"]:
        exec(compile(source, name, "exec"), {"checkpoint": checkpoint})
    # The same addresses again and again, with other contents.
    for number in range(3):
        exec(compile("\n" * number + f"checkpoint('exec {number}')", f"<exec {number}>", "exec"))


def chain(length):
    """As many different functions."""
    source = "".join(f"def link{k}(n):\n    return link{k + 1}(n) + {k}\n" for k in range(length))
    scope = {f"link{length}": checkpoint}
    exec(compile(source, "<chain>", "exec"), scope)
    scope["link0"]("chain")


def été(n):
    return checkpoint("latin-1") + n


def функция(n):
    return été(n) + checkpoint("ucs-2")


def 𐐷𐐷(n):
    class Ünï:
        def 方法(self):
            return функция(n) + checkpoint("ucs-4")

    return Ünï().方法()


def positions(a, b):
    # Lines that go back and columns that need more than a byte.
    result = [a, b, (a
                     + b), checkpoint("first of several lines"),
              (lambda: (
                  checkpoint("lambda over lines")))(),
              a]
    result.append(                                                                                                                                                     checkpoint("far right"))
    assert [a,
            checkpoint("in an assertion")], "never"
    return result


# Far from the line before it, so that the difference does not fit into one byte.

































































def far():
    checkpoint("far")


































































    checkpoint("farther")


def tracing():
    def tracer(frame, event, argument):
        if frame.f_code is far.__code__ and event == "line":
            sys.settrace(None)
            checkpoint("trace function")
        return tracer

    sys.settrace(tracer)
    far()
    sys.settrace(None)
    far()


def modules():
    sys.modules["stacks"] = sys.modules["__main__"]
    import imported
    runpy.run_module("imported", run_name="again")
    imported.function()


def main():
    recursion(3)
    recursion(150)
    list(generator(2))
    drive(coroutine(2))
    drive(asynchronous())
    decorated(1)
    callbacks()
    objects()
    exceptions()
    compiled()
    chain(27)
    𐐷𐐷(1)
    positions(1, 2)
    tracing()
    modules()
    checkpoint("end")


main()
