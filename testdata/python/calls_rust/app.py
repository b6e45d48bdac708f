"""Calls a library that is another component, in Rust, and prints its own stacks of those calls: `FUNCTION:LINE`, the outermost first."""

import traceback

from wit_world import exports
from wit_world.imports import sums

STACKS = set()


def call(rounds):
    stack, value = traceback.extract_stack(), sums.sum(rounds)
    STACKS.add(" ".join(f"{frame.name}:{frame.lineno}" for frame in stack))
    return value


def by_recursion(depth, rounds):
    return call(rounds) if depth == 0 else by_recursion(depth - 1, rounds)


def by_generator(rounds):
    yield call(rounds)


def by_sort(rounds):
    return sorted([rounds] * 2, key=call)


class Run(exports.Run):
    def run(self) -> None:
        for _ in range(50):
            by_recursion(3, 20)
            list(by_generator(20))
            by_sort(20)
        print("\n".join(sorted(STACKS)))
