"""What Grafana's Alloy and Parca check of the profiles that they scrape."""

import pprof_rules

# Alloy's table of what it has seen has room for so many values of a sample: with more the profile is refused.
MAX_DELTA_VALUES = 4
SUBTRACTED = ("alloc_objects/count", "alloc_space/bytes")


def broken_answer(status, content_type, body):
    """Yields what is wrong with an answer, whatever profile it is."""
    if status != 200:
        yield f"status {status}: {body[:200].decode(errors='replace')}"
        return
    if not content_type.startswith("application/octet-stream"):
        yield f"the content type {content_type}"
    if len(body) <= 2:
        yield "an empty answer"
    elif not body.startswith(b"\x1f\x8b") and body[0] & 7 >= 6:
        yield "neither gzip nor protobuf"
    if body.lstrip()[:1] in (b"<", b"{", b"["):
        yield "text"


def read(body):
    """What is in a profile, and what breaks the scrapers' rules. Parca checks ids, Pyroscope limits."""
    report, violations, _ = pprof_rules.read(body, sequential=True)
    if report and not report["sample_types"]:
        violations = [*violations, "no sample type"]
    return report, violations


def identities(profile):
    """Yields each sample with what Alloy knows it by: the addresses of its stack, and its labels."""
    texts = profile.string_table
    addresses = {location.id: location.address for location in profile.location}
    for sample in profile.sample:
        labels = sorted((texts[each.key], texts[each.str], each.num, texts[each.num_unit]) for each in sample.label)
        yield sample, (tuple(addresses[place] for place in sample.location_id), tuple(labels))


def lines_of(profile, sample):
    """A sample's stack as it is shown."""
    texts = profile.string_table
    names = {function.id: (texts[function.name], texts[function.filename]) for function in profile.function}
    lines = {each.id: [(*names[line.function_id], line.line) for line in each.line] for each in profile.location}
    return tuple(line for place in sample.location_id for line in lines[place])


def broken_delta(before, after):
    """Yields what goes wrong when Alloy subtracts a profile of memory from the next one."""
    kinds = pprof_rules.sample_types(after)
    if len(kinds) > MAX_DELTA_VALUES:
        yield f"Alloy has room for {MAX_DELTA_VALUES} values of a sample, of {len(kinds)}"
    places = [kinds.index(kind) for kind in SUBTRACTED]
    sums, shown = [{}, {}], {}
    for profile, of_profile in zip((before, after), sums):
        for sample, identity in identities(profile):
            if shown.setdefault(identity, lines_of(profile, sample)) != lines_of(profile, sample):
                yield "two stacks have the same addresses and labels, so that Alloy takes them for one"
            values = of_profile.setdefault(identity, [0] * len(places))
            for number, place in enumerate(places):
                values[number] += sample.value[place]
    for identity, values in sums[0].items():
        differences = [new - old for new, old in zip(sums[1].get(identity, [0] * len(places)), values)]
        if min(differences) < 0:
            yield f"allocations become fewer by {differences} at {shown[identity][:3]}"
