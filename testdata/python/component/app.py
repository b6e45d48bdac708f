"""Runs the script that its first argument names, as `python` does. The script's folder has to be shown to it as `.`."""

# What scripts import has to be here when the component is made: its library is not there when it runs.
import binascii
import collections
import contextlib
import functools
import gc
import itertools
import json
import os
import pkgutil
import re
import runpy
import string
import sys
import time
import traceback
import types
import weakref

try:
    from wit_world import exports
    from wit_world.imports import environment
except ImportError:  # Older releases name what they generate after the world.
    from program import exports
    from program.imports import environment


class Run(exports.Run):
    def run(self) -> None:
        # What scripts import is not left beside them.
        sys.dont_write_bytecode = True
        sys.argv = environment.get_arguments()[1:]
        sys.path.insert(0, ".")
        runpy.run_path(sys.argv[0], run_name="__main__")
