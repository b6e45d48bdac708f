"""Prints the sums of pprof files as the receiver prints those of profiles that it is sent: read_pprof.py FILE..."""

import json
import pathlib
import sys

import pprof_rules

for path in sys.argv[1:]:
    _, profile = pprof_rules.decoded(pathlib.Path(path).read_bytes())
    print(json.dumps(pprof_rules.report(profile)))
