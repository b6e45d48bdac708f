"""Compares what the file exporter of an OpenTelemetry collector has written with what wlprof renders of the same runs.

    read_collector.py FILE SERVICE=RENDERED.pb.gz...

The file has a line of JSON for each message. It fails unless the CPU time of each service is equal, function by function.
"""

import json
import pathlib
import sys

from stored import differences, runs
from sums import Sums


def number(message, name):
    """A number or an index. Zero is left out, and numbers of 64 bits are texts."""
    return int(message.get(name, 0))


def text(message, key, reference, strings):
    """A text that stands in the message itself or in the dictionary."""
    return message.get(key) or strings[number(message, reference)]


def service_of(resource, strings):
    for attribute in resource.get("attributes", []):
        if text(attribute, "key", "keyStrindex", strings) == "service.name":
            return text(attribute.get("value", {}), "stringValue", "stringValueStrindex", strings)
    return ""


def samples(profile, dictionary):
    """Yields the functions of each sample's stack, the leaf first, and the sample's sum."""
    strings = dictionary["stringTable"]
    for sample in profile.get("samples", []):
        stack = dictionary["stackTable"][number(sample, "stackIndex")]
        locations = [dictionary["locationTable"][int(index)] for index in stack.get("locationIndices", [])]
        lines = [line for location in locations for line in location.get("lines", [])]
        functions = [dictionary["functionTable"][number(line, "functionIndex")] for line in lines]
        values, times = sample.get("values", []), sample.get("timestampsUnixNano", [])
        yield [strings[number(each, "nameStrindex")] for each in functions], sum(map(int, values)) if values else len(times)


def type_of(profile, strings):
    kind = profile["sampleType"]
    return f"{strings[number(kind, 'typeStrindex')]}/{strings[number(kind, 'unitStrindex')]}"


def stored(lines):
    """The sums of each service, in the form of those of a pprof profile, and its number of profiles."""
    parts, counts = {}, {}
    for line in filter(str.strip, lines):
        message = json.loads(line)
        dictionary = message["dictionary"]
        strings = dictionary["stringTable"]
        for resource in message.get("resourceProfiles", []):
            service = service_of(resource.get("resource", {}), strings)
            for profile in (each for scope in resource.get("scopeProfiles", []) for each in scope.get("profiles", [])):
                counts[service] = counts.get(service, 0) + 1
                kind = type_of(profile, strings)
                sums = parts.setdefault(service, {}).setdefault(kind, Sums([kind]))
                for functions, value in samples(profile, dictionary):
                    sums.add(functions, [value], {})
    reports = {service: [sums.report() for sums in kinds.values()] for service, kinds in parts.items()}
    joined = lambda each, by: {kind: sums for report in each for kind, sums in report[by].items()}
    return {
        service: {by: joined(each, by) for by in ("total", "functions", "leaves")} | {"profiles": counts[service]}
        for service, each in reports.items()
    }


def main(path, arguments):
    services = stored(pathlib.Path(path).read_text().splitlines())
    failed = False
    for service, rendered in runs(arguments):
        found = services.get(service, {"total": {}, "functions": {}, "leaves": {}, "profiles": 0})
        different = list(differences(found, rendered))
        failed = failed or bool(different)
        what = "\n  ".join(different) or "the CPU time of each function is the run's"
        print(f"{service}: {found['profiles']} profiles; {what}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
