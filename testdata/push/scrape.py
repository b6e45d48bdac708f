"""Asks `wlprof --listen` as Alloy and Parca do, and prints a line of JSON: scrape.py ADDRESS SECONDS OPTION...

Options are `wall`, where the scraper is set up to ask for it, and `memory`, where the guest's memory is profiled. Of each answer it prints
what breaks the scrapers' rules, how long it took, and what its profile is. It fails only by itself.
"""

import concurrent.futures
import http.client
import json
import sys
import time

import pprof_rules
import scraper_rules

# What each asks for by default is the same.
BY_DEFAULT = ["allocs", "block", "goroutine", "mutex"]
TYPES = {
    "profile": ["samples/count", "cpu/nanoseconds"],
    "wall": ["samples/count", "wall/nanoseconds"],
    "allocs": ["alloc_objects/count", "alloc_space/bytes"],
    "block": ["contentions/count", "delay/nanoseconds"],
    "mutex": ["contentions/count", "delay/nanoseconds"],
    "goroutine": ["goroutine/count"],
}
# How long Parca waits beyond a window. Alloy waits longer: 10 s.
MARGIN = 3
ALLOWED = 10


def ask(address, name, seconds):
    """An answer, judged. `seconds` is the length of its window, or None."""
    path = f"/debug/pprof/{name}" + (f"?seconds={seconds}" if seconds else "")
    # A busy machine makes it late, which is another matter than no answer.
    connection = http.client.HTTPConnection(address, timeout=600)
    begin = time.monotonic()
    connection.request("GET", path, headers={"User-Agent": "Alloy/v1.0", "Accept-Encoding": "identity"})
    answer = connection.getresponse()
    body = answer.read()
    took = time.monotonic() - begin
    violations = list(scraper_rules.broken_answer(answer.status, answer.headers.get("content-type", ""), body))
    report = {}
    if not violations:
        report, violations = scraper_rules.read(body)
        if report and not set(TYPES[name]) <= set(report["sample_types"]):
            violations = [*violations, f"the sample types {report['sample_types']}"]
    judged = {
        "path": path,
        "violations": [f"{path}: {each}" for each in violations],
        "seconds": took,
        "is_late": took > (seconds + MARGIN if seconds else ALLOWED),
        "rows": report.get("rows", 0),
        "total": report.get("total", {}),
    }
    return judged, body


def main(address, seconds, *options):
    windows = ["profile"] + ["wall"] * ("wall" in options)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, address, name, int(seconds)) for name in windows]
        asked += [pool.submit(ask, address, name, None) for name in BY_DEFAULT]
        answers = {name: each.result() for name, each in zip(windows + BY_DEFAULT, asked)}
    judged = [each for each, _ in answers.values()]
    if "memory" in options:
        again, body = ask(address, "allocs", None)
        profiles = [pprof_rules.decoded(each)[1] for each in (answers["allocs"][1], body)]
        if not judged[len(windows)]["violations"] + again["violations"]:
            again["violations"] = sorted(set(scraper_rules.broken_delta(*profiles)))
        judged.append(again)
    print(json.dumps(judged))


main(*sys.argv[1:])
