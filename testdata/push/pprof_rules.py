"""Decodes profiles of pprof, and checks what Pyroscope and Parca check of them."""

import gzip
import time
import zlib

from google.protobuf.message import DecodeError

from messages import Profile
from sums import Sums
from unknown_fields import unknown_fields

MAX_BYTES = 4 << 20
MAX_SAMPLES = 16_000
MAX_LABELS = 100
MAX_DEPTH = 1000
MAX_TEXT = 65_535
OLDEST_SECONDS = 3600
NEWEST_SECONDS = 600


def decoded(data):
    """The uncompressed bytes of a profile and the profile, which is None if it is none."""
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return data, Profile.FromString(data)
    except (DecodeError, OSError, EOFError, zlib.error):
        return data, None


def read(data, sequential):
    """What is in a profile as it was sent, what breaks the servers' rules, and what makes a server refuse it.

    With `sequential`, ids have to count from 1, as Parca demands.
    """
    raw, profile = decoded(data)
    if profile is None:
        return {}, ["the pprof profile does not parse"], ["a broken profile"]
    violations = list(unknown_fields(profile)) + list(broken_references(profile, sequential))
    if violations:
        return {}, violations, ["a broken profile"]
    refusals = list(broken_limits(raw, profile))
    return report(profile), refusals, refusals


def broken_references(profile, sequential):
    """Yields what points nowhere, or twice at the same."""
    texts = profile.string_table
    if not texts or texts[0] != "":
        yield "the first string is not the empty one"
        return
    for what in ("mapping", "location", "function"):
        ids = [each.id for each in getattr(profile, what)]
        if 0 in ids or len(set(ids)) != len(ids):
            yield f"an id of a {what} is zero or not unique"
        if sequential and ids != list(range(1, len(ids) + 1)):
            yield f"ids of {what}s do not count from 1"
    known = {what: {each.id for each in getattr(profile, what)} for what in ("mapping", "location", "function")}
    for sample in profile.sample:
        if len(sample.value) != len(profile.sample_type):
            yield "a sample has not a value for each sample type"
        if not set(sample.location_id) <= known["location"]:
            yield "a sample has a location that there is none of"
        for label in sample.label:
            if label.str and (label.num or label.num_unit):
                yield "a label is a text and a number"
    for location in profile.location:
        if location.mapping_id and location.mapping_id not in known["mapping"]:
            yield "a location has a mapping that there is none of"
        if any(line.function_id not in known["function"] for line in location.line):
            yield "a line has a function that there is none of"
    if any(not 0 <= place < len(texts) for place in string_references(profile)):
        yield "a string that there is none of"


def string_references(profile):
    """Yields every index into the table of strings."""
    for each in [*profile.sample_type, profile.period_type]:
        yield from (each.type, each.unit)
    for sample in profile.sample:
        for label in sample.label:
            yield from (label.key, label.str, label.num_unit)
    for mapping in profile.mapping:
        yield from (mapping.filename, mapping.build_id)
    for function in profile.function:
        yield from (function.name, function.system_name, function.filename)
    yield from (*profile.comment, profile.default_sample_type, profile.drop_frames, profile.keep_frames, profile.doc_url)


def broken_limits(raw, profile):
    """Yields the limits of Pyroscope that a profile exceeds."""
    if len(raw) > MAX_BYTES:
        yield f"a profile of {len(raw)} bytes, of {MAX_BYTES} at most"
    if len(profile.sample) > MAX_SAMPLES:
        yield f"{len(profile.sample)} samples, of {MAX_SAMPLES} at most"
    if any(len(sample.label) > MAX_LABELS for sample in profile.sample):
        yield f"a sample has more than {MAX_LABELS} labels"
    if any(len(sample.location_id) > MAX_DEPTH for sample in profile.sample):
        yield f"a stack is deeper than {MAX_DEPTH}"
    if any(len(text.encode()) > MAX_TEXT for text in profile.string_table):
        yield f"a name is longer than {MAX_TEXT} bytes"
    if any("-" in kind for kind in sample_types(profile)):
        yield "a sample type with a hyphen"
    age = time.time() - profile.time_nanos / 1e9
    if not -NEWEST_SECONDS < age < OLDEST_SECONDS:
        yield f"a profile is {age:.0f} s old"
    if profile.duration_nanos < 0:
        yield "a negative duration"


def sample_types(profile):
    texts = profile.string_table
    return [f"{texts[kind.type]}/{texts[kind.unit]}" for kind in profile.sample_type]


def report(profile):
    """What is printed of a profile whose references are sound."""
    texts = profile.string_table
    names = {function.id: texts[function.name] for function in profile.function}
    functions = {location.id: [names[line.function_id] for line in location.line] for location in profile.location}
    sums = Sums(sample_types(profile))
    for sample in profile.sample:
        stack = [name for location in sample.location_id for name in functions[location]]
        labels = {texts[label.key]: texts[label.str] if label.str else label.num for label in sample.label}
        sums.add(stack, sample.value, labels)
    period_type = f"{texts[profile.period_type.type]}/{texts[profile.period_type.unit]}"
    return {
        "time_nanos": profile.time_nanos,
        "duration_nanos": profile.duration_nanos,
        "period_type": period_type,
        "period": profile.period,
    } | sums.report()
