"""Messages that no package on PyPI has as a wheel, declared by their field numbers: pprof's, Pyroscope's, Parca's and gRPC's error details."""

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory

# Each line declares a message: its fields with number, type and name. `*` stands for a repeated field.
PPROF = """
ValueType: 1 int64 type, 2 int64 unit
Label: 1 int64 key, 2 int64 str, 3 int64 num, 4 int64 num_unit
Sample: 1 *uint64 location_id, 2 *int64 value, 3 *Label label
Mapping: 1 uint64 id, 2 uint64 memory_start, 3 uint64 memory_limit, 4 uint64 file_offset, 5 int64 filename, 6 int64 build_id, \
7 bool has_functions, 8 bool has_filenames, 9 bool has_line_numbers, 10 bool has_inline_frames
Line: 1 uint64 function_id, 2 int64 line, 3 int64 column
Location: 1 uint64 id, 2 uint64 mapping_id, 3 uint64 address, 4 *Line line, 5 bool is_folded
Function: 1 uint64 id, 2 int64 name, 3 int64 system_name, 4 int64 filename, 5 int64 start_line
Profile: 1 *ValueType sample_type, 2 *Sample sample, 3 *Mapping mapping, 4 *Location location, 5 *Function function, \
6 *string string_table, 7 int64 drop_frames, 8 int64 keep_frames, 9 int64 time_nanos, 10 int64 duration_nanos, 11 ValueType period_type, \
12 int64 period, 13 *int64 comment, 14 int64 default_sample_type, 15 int64 doc_url
"""
PYROSCOPE = """
LabelPair: 1 string name, 2 string value
RawSample: 1 bytes raw_profile, 2 string ID
RawProfileSeries: 1 *LabelPair labels, 2 *RawSample samples
PushRequest: 1 *RawProfileSeries series
"""
PARCA = """
Label: 1 string name, 2 string value
LabelSet: 1 *Label labels
RawSample: 1 bytes raw_profile
RawProfileSeries: 1 LabelSet labels, 2 *RawSample samples
WriteRawRequest: 1 string tenant, 2 *RawProfileSeries series, 3 bool normalized
"""
ERROR_DETAILS = """
Status: 1 int32 code, 2 string message, 3 *google.protobuf.Any details
RetryInfo: 1 google.protobuf.Duration retry_delay
"""


def declare(package, text):
    """Classes of the messages of a text, by name."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    for line in text.strip().splitlines():
        name, fields = line.split(": ")
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            number, kind, field_name = field.split(" ")
            repeated, kind = kind.startswith("*"), kind.removeprefix("*")
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            added = message.field.add(name=field_name, number=int(number), label=label)
            if kind[0].isupper() or "." in kind:
                added.type, added.type_name = types.TYPE_MESSAGE, f".{kind}" if "." in kind else f".{package}.{kind}"
            else:
                added.type = getattr(types, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names(text)}


def names(text):
    return [line.split(": ")[0] for line in text.strip().splitlines()]


Profile = declare("perftools.profiles", PPROF)["Profile"]
PushRequest = declare("push.v1", PYROSCOPE)["PushRequest"]
WriteRawRequest = declare("parca.profilestore.v1alpha1", PARCA)["WriteRawRequest"]
Status, RetryInfo = declare("google.rpc", ERROR_DETAILS).values()
