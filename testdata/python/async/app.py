"""Works and waits in tasks of WASI 0.3, several at a time.

As a command it runs the script that its first argument names, as the program for WASI 0.2 does, or without one some tasks. To requests of
HTTP it answers /work/N after N rounds of work with a wait after each; there is no other path.
"""

import asyncio
import functools
import runpy
import sys

# What scripts import has to be here when the component is made: its library is not there when it runs.
import binascii
import collections
import contextlib
import gc
import itertools
import json
import os
import pkgutil
import re
import string
import time
import traceback
import types
import weakref

import wit_world
from componentize_py_async_support import spawn
from componentize_py_types import Ok
from wit_world import exports
from wit_world.imports import environment, monotonic_clock
from wit_world.imports.types import Fields, Response


def one_round(value):
    return sum(value * step % 7 for step in range(1000))


def in_alpha(value):
    return one_round(value)


def in_beta(value):
    return one_round(value)


async def rest(milliseconds):
    await monotonic_clock.wait_for(milliseconds * 1_000_000)


async def turns(work, rounds):
    value = 1
    for _ in range(rounds):
        value = work(value)
        await rest(5)
    return value


async def alpha(rounds):
    return await turns(in_alpha, rounds)


async def beta(rounds):
    return await turns(in_beta, rounds)


TASKS = {"alpha": alpha, "beta": beta}


async def answer(path):
    _, name, *rounds = path.split("/")
    if name in TASKS and rounds:
        return 200, f"{await TASKS[name](int(rounds[0]))}\n"
    return 404, f"there is no {path}\n"


class Run(exports.Run):
    async def run(self) -> None:
        arguments = environment.get_arguments()[1:]
        if arguments:
            # What scripts import is not left beside them.
            sys.dont_write_bytecode = True
            sys.argv = arguments
            sys.path.insert(0, ".")
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            print(await asyncio.gather(alpha(40), beta(60)))


class Handler(exports.Handler):
    async def handle(self, request):
        status, text = await answer(request.get_path_with_query() or "/")
        no_trailers = wit_world.result_option_types_fields_types_error_code_future(lambda: Ok(None))[1]
        writer, body = wit_world.byte_stream()

        async def write():
            with writer:
                await writer.write_all(text.encode())

        response, _ = Response.new(Fields(), body, no_trailers)
        response.set_status_code(status)
        spawn(write())
        return response
