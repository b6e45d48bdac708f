"""Asks Parca for the CPU time of services, and compares it with what wlprof renders of the same runs.

    read_parca.py ADDRESS SERVICE=RENDERED.pb.gz...

It fails unless Parca has the profile type and the CPU time of each service is equal, function by function.
The paths are those of Parca 0.28's `query.proto`.
"""

import base64
import datetime
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pprof_rules
from stored import SAMPLE_TYPE, differences, runs

# Parca answers queries of a profile soon after it has taken it, but not at once.
LONGEST_WAIT = 30


def get(address, path, **query):
    url = f"http://{address}/api{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def cpu_type(address):
    """The selector of profiles of CPU time, by the types that Parca lists."""
    for kind in get(address, "/profiles/types").get("types", []):
        name, types = kind["name"], (kind["sampleType"], kind["sampleUnit"])
        if name == "process_cpu" and "/".join(types) == SAMPLE_TYPE:
            parts = [name, *types, kind["periodType"], kind["periodUnit"]]
            return ":".join(parts + ["delta"] * bool(kind.get("delta")))
    raise LookupError(f"Parca lists no profile type process_cpu with {SAMPLE_TYPE}")


def stored(address, service):
    """The sums of a service over the last hour."""
    now = datetime.datetime.now(datetime.timezone.utc)
    times = {"merge.start": now - datetime.timedelta(hours=1), "merge.end": now + datetime.timedelta(minutes=1)}
    answer = get(
        address,
        "/profiles/query",
        mode="MODE_MERGE",
        reportType="REPORT_TYPE_PPROF",
        **{"merge.query": f'{cpu_type(address)}{{service_name="{service}"}}'},
        **{name: moment.strftime("%Y-%m-%dT%H:%M:%SZ") for name, moment in times.items()},
    )
    _, profile = pprof_rules.decoded(base64.b64decode(answer["pprof"]))
    if profile is None:
        raise LookupError("Parca answers with a profile that does not parse")
    return pprof_rules.report(profile)


def compared(address, service, rendered):
    """What is different, when it is equal or at the end of the wait."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            different = list(differences(stored(address, service), rendered))
        except urllib.error.HTTPError as error:
            different = [f"{error}: {error.read(1000).decode(errors='replace')}"]
        except LookupError as error:
            different = [str(error)]
        if not different or time.monotonic() > end:
            return different
        time.sleep(0.5)


def main(address, arguments):
    failed = False
    for service, rendered in runs(arguments):
        different = compared(address, service, rendered)
        failed = failed or bool(different)
        print(f"{service}: " + ("\n  ".join(different) or "the CPU time of each function is the run's"))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
