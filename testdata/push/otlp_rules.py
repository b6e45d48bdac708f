"""Checks OTLP requests by the rules of its conformance checker: shapes, zero elements, duplicates, orphans, times and ids."""

import hashlib
import itertools

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2

from sums import Sums
from unknown_fields import unknown_fields

TABLES = {
    "mapping": profiles_pb2.Mapping(),
    "location": profiles_pb2.Location(),
    "function": profiles_pb2.Function(),
    "link": profiles_pb2.Link(),
    "string": "",
    "attribute": profiles_pb2.KeyValueAndUnit(),
    "stack": profiles_pb2.Stack(),
}
# Links have zero bytes, or nothing.
ZERO_LINK = profiles_pb2.Link(trace_id=bytes(16), span_id=bytes(8))


def read(data, seen):
    """The profiles of an Export request, what breaks rules, and what makes servers refuse it. `seen` has contents by profile id."""
    try:
        request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(data)
    except DecodeError:
        return [], ["the request does not parse"], ["a broken request"]
    violations = list(unknown_fields(request))
    tables = {name: list(getattr(request.dictionary, f"{name}_table")) for name in TABLES}
    unsound = list(broken_references(request, tables))
    violations += unsound + list(broken_tables(request, tables))
    if unsound:
        return [], violations, ["a broken request"]
    profiles, ids = [], set()
    for resource_profiles in request.resource_profiles:
        violations += broken_resource(resource_profiles)
        for scope_profiles in resource_profiles.scope_profiles:
            violations += broken_scope(scope_profiles)
            for profile in scope_profiles.profiles:
                violations += broken_profile(profile, tables)
                digest = hashlib.sha256(profile.SerializeToString(deterministic=True)).hexdigest()
                identity = profile.profile_id.hex()
                # Contents mean something with their dictionary only.
                digest += hashlib.sha256(request.dictionary.SerializeToString(deterministic=True)).hexdigest()
                if len(profile.profile_id) != 16 or not any(profile.profile_id):
                    violations.append("a profile id is not 16 bytes, or zero")
                elif identity in ids or seen.get(identity, digest) != digest:
                    violations.append(f"the profile id {identity} comes again with other contents")
                ids.add(identity)
                profiles.append({
                    "id": identity,
                    "digest": digest,
                    "labels": {},
                    "resource": plain_attributes(resource_profiles.resource.attributes),
                    "scope": scope_profiles.scope.name,
                } | report(profile, tables))
    if not profiles:
        violations.append("no profile")
    return profiles, violations, []


def each_profile(request):
    for resource_profiles in request.resource_profiles:
        for scope_profiles in resource_profiles.scope_profiles:
            yield from scope_profiles.profiles


def references(request, tables):
    """Yields every index into a table, with the table's name."""
    for profile in each_profile(request):
        for kind in (profile.sample_type, profile.period_type):
            yield from (("string", kind.type_strindex), ("string", kind.unit_strindex))
        yield from (("attribute", index) for index in profile.attribute_indices)
        for sample in profile.samples:
            yield from (("stack", sample.stack_index), ("link", sample.link_index))
            yield from (("attribute", index) for index in sample.attribute_indices)
    for stack in tables["stack"]:
        yield from (("location", index) for index in stack.location_indices)
    for location in tables["location"]:
        yield "mapping", location.mapping_index
        yield from (("attribute", index) for index in location.attribute_indices)
        yield from (("function", line.function_index) for line in location.lines)
    for function in tables["function"]:
        for index in (function.name_strindex, function.system_name_strindex, function.filename_strindex):
            yield "string", index
    for mapping in tables["mapping"]:
        yield "string", mapping.filename_strindex
        yield from (("attribute", index) for index in mapping.attribute_indices)
    for attribute in tables["attribute"]:
        yield from (("string", attribute.key_strindex), ("string", attribute.unit_strindex))


def broken_references(request, tables):
    for table, index in set(references(request, tables)):
        if not 0 <= index < len(tables[table]):
            yield f"the {table} {index} of {len(tables[table])}"


def broken_tables(request, tables):
    """Yields tables without a zero element first, and what is in a table twice or for nothing."""
    used = set(references(request, tables))
    for name, zero in TABLES.items():
        table = tables[name]
        if not table or table[0] != zero and not (name == "link" and table[0] == ZERO_LINK):
            yield f"the first {name} is not the zero value"
        keys = [each if name == "string" else each.SerializeToString(deterministic=True) for each in table]
        if len(set(keys)) != len(keys):
            yield f"a {name} is in its table twice"
        orphans = [index for index in range(1, len(table)) if (name, index) not in used]
        if orphans:
            yield f"{len(orphans)} of the table of {name}s are used nowhere, such as {str(table[orphans[0]])!r}"
    for name in ("mapping", "location"):
        for each in tables[name]:
            yield from broken_set(each.attribute_indices, tables)
    keys = [key_of(attribute, tables) for attribute in tables["attribute"]]
    if any(not key for key in keys[1:]):
        yield "an attribute without a name"
    for attribute in tables["attribute"]:
        if attribute.value.WhichOneof("value") == "string_value_strindex":
            yield "an attribute refers to a string that servers do not look up"
    for mapping in tables["mapping"][1:]:
        names = [keys[index] for index in mapping.attribute_indices if index < len(keys)]
        if not any(name.startswith("process.executable.build_id.") for name in names):
            yield "a mapping without a build id"


def key_of(attribute, tables):
    index = attribute.key_strindex
    return tables["string"][index] if 0 <= index < len(tables["string"]) else ""


def broken_set(indices, tables):
    """Yields attributes of one name in the same set."""
    attributes = [tables["attribute"][index] for index in indices if 0 <= index < len(tables["attribute"])]
    names = [key_of(attribute, tables) for attribute in attributes]
    if len(set(names)) != len(names):
        yield "an attribute comes twice in a set"


def broken_resource(resource_profiles):
    if not resource_profiles.HasField("resource"):
        yield "no resource"
    attributes = resource_profiles.resource.attributes
    yield from broken_plain(attributes)
    if not plain_attributes(attributes).get("service.name"):
        yield "no service.name"


def broken_scope(scope_profiles):
    if not scope_profiles.HasField("scope") or not scope_profiles.scope.name:
        yield "no scope, or one without a name"
    yield from broken_plain(scope_profiles.scope.attributes)


def broken_plain(attributes):
    """Yields attributes that refer to strings, which Pyroscope and Parca do not look up."""
    for attribute in attributes:
        if attribute.key_strindex or not attribute.key or attribute.value.WhichOneof("value") == "string_value_strindex":
            yield "an attribute of a resource or scope refers to a string"
    if len({attribute.key for attribute in attributes}) != len(attributes):
        yield "an attribute of a resource or scope comes twice"


def broken_profile(profile, tables):
    """Yields what is wrong with a profile and its samples."""
    if not profile.time_unix_nano:
        yield "a profile without a time"
    if not tables["string"][profile.sample_type.type_strindex]:
        yield "a profile without a sample type"
    yield from broken_set(profile.attribute_indices, tables)
    shapes, seen = set(), set()
    end = profile.time_unix_nano + profile.duration_nano
    for sample in profile.samples:
        values, times = len(sample.values), len(sample.timestamps_unix_nano)
        shapes.add("times" if times and not values else "a value each" if times == values and times else "sums")
        if not (times and not values or times and times == values or values == 1 and not times):
            yield f"a sample of {values} values and {times} times"
        if any(not profile.time_unix_nano <= time <= end for time in sample.timestamps_unix_nano):
            yield "a sample's time is outside its profile's"
        identity = sample.stack_index, tuple(sorted(sample.attribute_indices)), sample.link_index
        if identity in seen:
            yield "two samples of one stack, set of attributes and link"
        seen.add(identity)
        yield from broken_set(sample.attribute_indices, tables)
        link = tables["link"][sample.link_index]
        if sample.link_index and (len(link.trace_id) != 16 or len(link.span_id) != 8):
            yield "a link's ids are not of 16 and 8 bytes"
    if len(shapes) > 1:
        yield f"samples of one profile are {' and '.join(sorted(shapes))}"


def value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind) if kind in ("string_value", "int_value", "bool_value", "double_value") else str(value)


def plain_attributes(attributes):
    return {attribute.key: value_of(attribute.value) for attribute in attributes}


def report(profile, tables):
    """What is printed of a profile whose references are sound."""
    texts = tables["string"]
    name = lambda kind: f"{texts[kind.type_strindex]}/{texts[kind.unit_strindex]}"
    sums, links = Sums([name(profile.sample_type)]), []
    for sample in profile.samples:
        locations = (tables["location"][index] for index in tables["stack"][sample.stack_index].location_indices)
        lines = itertools.chain.from_iterable(location.lines for location in locations)
        stack = [texts[tables["function"][line.function_index].name_strindex] for line in lines]
        attributes = [tables["attribute"][index] for index in sample.attribute_indices]
        labels = {texts[each.key_strindex]: value_of(each.value) for each in attributes}
        value = sum(sample.values) if sample.values else len(sample.timestamps_unix_nano)
        span = None
        if sample.link_index:
            link = tables["link"][sample.link_index]
            span = [link.trace_id.hex(), link.span_id.hex()]
            links.append(span)
        sums.add(stack, [value], labels, span)
    return {
        "time_nanos": profile.time_unix_nano,
        "duration_nanos": profile.duration_nano,
        "period_type": name(profile.period_type),
        "period": profile.period,
        "links": links,
    } | sums.report()
