"""Compares what servers have stored with profiles that wlprof rendered of the same runs."""

import pathlib

import pprof_rules

SAMPLE_TYPE = "cpu/nanoseconds"


def runs(arguments):
    """Yields the service and the sums of each run, of arguments such as `SERVICE=FILE.pb.gz`."""
    for argument in arguments:
        service, path = argument.split("=", 1)
        _, profile = pprof_rules.decoded(pathlib.Path(path).read_bytes())
        yield service, pprof_rules.report(profile)


def differences(stored, rendered):
    """Yields a line for each sum of CPU time that is not equal. Zeros are nothing."""
    total = rendered["total"][SAMPLE_TYPE]
    if total == 0:
        yield "the run has no CPU time"
    if stored["total"].get(SAMPLE_TYPE) != total:
        yield f"{stored['total'].get(SAMPLE_TYPE)} ns in all, and {total} in the run"
    for by in ("functions", "leaves"):
        found, expected = stored[by].get(SAMPLE_TYPE, {}), rendered[by][SAMPLE_TYPE]
        for name in sorted({*found, *expected}):
            if found.get(name, 0) != expected.get(name, 0):
                yield f"{name} by {by}: {found.get(name, 0)} ns, and {expected.get(name, 0)} in the run"
