"""Fields that a message does not have: a sender of another version wrote them."""

from google.protobuf.unknown_fields import UnknownFieldSet


def unknown_fields(message):
    """Yields a line for each field of `message`, and of those within it, that its type does not declare."""
    for field in UnknownFieldSet(message):
        yield f"unknown field {field.field_number} of {message.DESCRIPTOR.full_name}"
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in value if field.is_repeated else [value]:
            yield from unknown_fields(each)
