"""Right messages of each protocol, for `check_receiver.py` to break."""

import gzip
import time

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

from messages import Profile, PushRequest, WriteRawRequest


def pprof():
    """Two stacks of a guest: 30 and 10 nanoseconds."""
    profile = Profile(time_nanos=time.time_ns(), duration_nanos=10**9, period=10)
    profile.string_table.extend(["", "samples", "count", "cpu", "nanoseconds", "main", "work", "request", "GET /"])
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=4)
    profile.period_type.type, profile.period_type.unit = 3, 4
    profile.mapping.add(id=1, has_functions=True)
    for number in (1, 2):
        profile.function.add(id=number, name=4 + number, system_name=4 + number)
        profile.location.add(id=number, mapping_id=1, address=number).line.add(function_id=number, line=number)
    profile.sample.add(location_id=[2, 1], value=[3, 30]).label.add(key=7, str=8)
    profile.sample.add(location_id=[1], value=[1, 10])
    return profile


def pyroscope(profile=None):
    request = PushRequest()
    series = request.series.add()
    series.labels.add(name="__name__", value="process_cpu")
    series.labels.add(name="service_name", value="guest")
    series.samples.add(raw_profile=gzip.compress((profile or pprof()).SerializeToString()), ID="1")
    return request


def parca(profile=None):
    request = WriteRawRequest(normalized=True)
    series = request.series.add()
    series.labels.labels.add(name="__name__", value="process_cpu")
    series.samples.add(raw_profile=gzip.compress((profile or pprof()).SerializeToString()))
    return request


def otlp():
    request = profiles_service_pb2.ExportProfilesServiceRequest()
    tables = request.dictionary
    tables.string_table.extend(["", "cpu", "nanoseconds", "main", "work", "request", "process.executable.build_id.htlhash"])
    tables.attribute_table.add()
    tables.attribute_table.add(key_strindex=5).value.string_value = "GET /"
    tables.attribute_table.add(key_strindex=6).value.string_value = "00112233"
    tables.mapping_table.add()
    tables.mapping_table.add(attribute_indices=[2])
    tables.function_table.add()
    tables.location_table.add()
    for number in (1, 2):
        tables.function_table.add(name_strindex=2 + number)
        tables.location_table.add(mapping_index=1, address=number).lines.add(function_index=number, line=number)
    tables.link_table.add()
    tables.link_table.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    tables.stack_table.add()
    tables.stack_table.add(location_indices=[2, 1])
    tables.stack_table.add(location_indices=[1])
    resource_profiles = request.resource_profiles.add()
    resource_profiles.resource.attributes.add(key="service.name").value.string_value = "guest"
    scope_profiles = resource_profiles.scope_profiles.add()
    scope_profiles.scope.name = "wlprof"
    profile = scope_profiles.profiles.add(
        time_unix_nano=time.time_ns(), duration_nano=10**9, period=10, profile_id=time.time_ns().to_bytes(16, "big")
    )
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 1, 2
    profile.period_type.type_strindex, profile.period_type.unit_strindex = 1, 2
    profile.samples.add(stack_index=1, values=[30], attribute_indices=[1], link_index=1)
    profile.samples.add(stack_index=2, values=[10])
    return request
