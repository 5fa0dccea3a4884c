"""Descriptors of Protobuf files as the text of .proto files, which all registries accept.

Only unambiguous content is written: files with extensions, groups, editions or custom options have no text here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

_INDENT = "  "
_LAST_FIELD = 536_870_911
_LAST_ENUM = 2**31 - 1


class NoTextError(ValueError):
    """A file uses features that are not written as text here. It never leaves this package."""


def proto_text(serialized: bytes) -> str:
    """Return the text of a .proto file.

    Args:
        serialized: its `FileDescriptorProto`.

    Raises:
        NoTextError: if the file uses extensions, groups, editions or custom options.

    Example:
        >>> from google.protobuf.empty_pb2 import DESCRIPTOR
        >>> print(proto_text(DESCRIPTOR.serialized_pb).splitlines()[0])
        syntax = "proto3";
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(serialized)
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3") or file.extension:
        raise NoTextError(f"{file.name} has extensions, or the syntax {syntax}")
    lines = [f'syntax = "{syntax}";']
    if file.package:
        lines.append(f"package {file.package};")
    for number, name in enumerate(file.dependency):
        kind = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
        lines.append(f"import {kind}{_quote_text(name)};")
    lines += [f"option {name} = {value};" for name, value in _write_options(file.options)]
    for enum in file.enum_type:
        lines += _write_enum(enum)
    for message in file.message_type:
        lines += _write_message(message, syntax)
    for service in file.service:
        lines += _write_service(service)
    return "\n".join(lines) + "\n"


def _write_message(message: Any, syntax: str) -> Iterator[str]:
    if message.extension or message.extension_range:
        raise NoTextError(f"{message.name} has extensions")
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    body = [f"option {name} = {value};" for name, value in _write_options(message.options)]
    body += _write_reserved(
        ((one.start, one.end - 1) for one in message.reserved_range), message.reserved_name, _LAST_FIELD
    )
    for enum in message.enum_type:
        body += _write_enum(enum)
    # Nested types keep the order of the descriptor: values written with them refer to their positions. The types of
    # maps are written where their fields are.
    waiting = list(message.nested_type)

    def types_before(entry: str | None) -> Iterator[str]:
        while waiting and waiting[0].name != entry:
            nested = waiting.pop(0)
            if nested.name not in entries:
                yield from _write_message(nested, syntax)

    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    written: set[int] = set()
    for field in message.field:
        made = field.type_name.rpartition(".")[2]
        if made in entries:
            body += types_before(made)
        if not field.HasField("oneof_index") or field.oneof_index in synthetic:
            body.append(_write_field(field, syntax, entries, in_oneof=False))
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            oneof = message.oneof_decl[field.oneof_index]
            parts = [f"option {name} = {value};" for name, value in _write_options(oneof.options)]
            members = [
                one for one in message.field if one.HasField("oneof_index") and one.oneof_index == field.oneof_index
            ]
            parts += [_write_field(one, syntax, entries, in_oneof=True) for one in members]
            body += _write_block(f"oneof {oneof.name}", parts)
    body += types_before(None)
    return _write_block(f"message {message.name}", body)


def _write_field(field: Any, syntax: str, entries: dict[str, Any], *, in_oneof: bool) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == field.LABEL_REPEATED else None
    label = ""
    if entry is not None:
        kind = f"map<{_write_type(entry.field[0])}, {_write_type(entry.field[1])}>"
    else:
        kind = _write_type(field)
        if field.label == field.LABEL_REPEATED:
            label = "repeated "
        elif field.label == field.LABEL_REQUIRED:
            label = "required "
        elif field.proto3_optional or (syntax == "proto2" and not in_oneof):
            label = "optional "
    options = list(_write_options(field.options))
    if field.HasField("default_value"):
        text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        value = field.default_value
        # Bytes are already escaped.
        options.insert(
            0, ("default", _quote_text(value) if field.type == field.TYPE_STRING else f'"{value}"' if text else value)
        )
    if field.HasField("json_name") and field.json_name != _camel_case(field.name):
        options.append(("json_name", _quote_text(field.json_name)))
    shown = ", ".join(f"{name} = {value}" for name, value in options)
    return f"{label}{kind} {field.name} = {field.number}{f' [{shown}]' if shown else ''};"


def _write_type(field: Any) -> str:
    if field.type == field.TYPE_GROUP:
        raise NoTextError(f"{field.name} is a group")
    if field.type_name:
        return str(field.type_name)
    names = field.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number
    return str(names[field.type].name).removeprefix("TYPE_").lower()


def _write_enum(enum: Any) -> Iterator[str]:
    body = [f"option {name} = {value};" for name, value in _write_options(enum.options)]
    body += _write_reserved(((one.start, one.end) for one in enum.reserved_range), enum.reserved_name, _LAST_ENUM)
    for value in enum.value:
        shown = ", ".join(f"{name} = {option}" for name, option in _write_options(value.options))
        body.append(f"{value.name} = {value.number}{f' [{shown}]' if shown else ''};")
    return _write_block(f"enum {enum.name}", body)


def _write_service(service: Any) -> Iterator[str]:
    body = [f"option {name} = {value};" for name, value in _write_options(service.options)]
    for method in service.method:
        taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        options = [f"option {name} = {value};" for name, value in _write_options(method.options)]
        head = f"rpc {method.name} ({taken}) returns ({given})"
        body += _write_block(head, options) if options else [f"{head};"]
    return _write_block(f"service {service.name}", body)


def _write_reserved(ranges: Iterable[tuple[int, int]], names: Iterable[str], last: int) -> Iterator[str]:
    for first, end in ranges:
        shown = f"{first}" if first == end else f"{first} to {'max' if end >= last else end}"
        yield f"reserved {shown};"
    quoted = ", ".join(_quote_text(name) for name in names)
    if quoted:
        yield f"reserved {quoted};"


def _write_options(options: Any) -> Iterator[tuple[str, str]]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    if len(UnknownFieldSet(options)):
        raise NoTextError("it has custom options")
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None:
            raise NoTextError(f"there is the option {field.full_name}")
        if field.name == "map_entry":
            continue
        for one in value if field.is_repeated else [value]:
            yield field.name, _option_value(field, one)


def _option_value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    return _quote_text(value) if isinstance(value, str) else str(value)


def _write_block(head: str, body: Iterable[str]) -> Iterator[str]:
    yield f"{head} {{"
    yield from (f"{_INDENT}{line}" for line in body)
    yield "}"


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if " " <= char != "\x7f" else f"\\{ord(char):03o}" for char in escaped) + '"'


def _camel_case(name: str) -> str:
    parts = name.split("_")
    return parts[0] + "".join(part[:1].upper() + part[1:] for part in parts[1:])
