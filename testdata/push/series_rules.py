"""Checks requests of Pyroscope and Parca: profiles of pprof in series, which have labels."""

import re

from google.protobuf.message import DecodeError

import pprof_rules
from messages import PushRequest, WriteRawRequest
from unknown_fields import unknown_fields

# Pyroscope replaces dots by underscores.
PYROSCOPE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.]*")
PARCA_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
MAX_LABEL_NAMES = 30
MAX_NAME = 1024
MAX_VALUE = 2048


def read_pyroscope(data, _):
    """The profiles of a Push request, what breaks rules, and what makes the server refuse it."""
    try:
        request = PushRequest.FromString(data)
    except DecodeError:
        return [], ["the request does not parse"], ["a broken request"]
    profiles, violations, refusals = [], list(unknown_fields(request)), []
    if not request.series:
        violations.append("no series")
    for series in request.series:
        pairs = [(label.name, label.value) for label in series.labels]
        wrong = list(broken_labels(pairs, ["__name__", "service_name"], PYROSCOPE_NAME))
        if len(pairs) > MAX_LABEL_NAMES:
            wrong.append(f"{len(pairs)} labels of a series, of {MAX_LABEL_NAMES} at most")
        if any(len(name.encode()) > MAX_NAME or len(value.encode()) > MAX_VALUE for name, value in pairs):
            wrong.append("a label of a series is too long")
        violations += wrong
        refusals += wrong
        if not series.samples:
            violations.append("a series without a profile")
        for sample in series.samples:
            profile, wrong, refused = pprof_rules.read(sample.raw_profile, sequential=False)
            violations += wrong
            refusals += refused
            profiles.append({"id": sample.ID, "labels": dict(pairs)} | profile)
    return profiles, violations, refusals


def read_parca(data, _):
    """The profiles of a WriteRaw request, what breaks rules, and what makes the server refuse it."""
    try:
        request = WriteRawRequest.FromString(data)
    except DecodeError:
        return [], ["the request does not parse"], ["a broken request"]
    profiles, violations = [], list(unknown_fields(request))
    if not request.normalized:
        violations.append("the addresses are not said to be normalized")
    if not request.series:
        violations.append("no series")
    refusals = []
    for series in request.series:
        pairs = [(label.name, label.value) for label in series.labels.labels]
        wrong = list(broken_labels(pairs, ["__name__"], PARCA_NAME))
        violations += wrong
        refusals += wrong
        if not series.samples:
            violations.append("a series without a profile")
        for sample in series.samples:
            profile, wrong, refused = pprof_rules.read(sample.raw_profile, sequential=True)
            violations += wrong
            refusals += [each for each in refused if each == "a broken profile"]
            profiles.append({"id": "", "labels": dict(pairs)} | profile)
    return profiles, violations, refusals


def broken_labels(pairs, needed, pattern):
    """Yields what is wrong with the labels of a series."""
    names = [name for name, _ in pairs]
    for name in needed:
        if not dict(pairs).get(name):
            yield f"a series without {name}"
    if len(set(names)) != len(names):
        yield "a label of a series comes twice"
    for name, value in pairs:
        if not pattern.fullmatch(name):
            yield f"a wrong name of a label: {name!r}"
        if not value:
            yield f"the label {name} is empty"
