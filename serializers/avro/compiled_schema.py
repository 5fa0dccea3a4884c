"""Avro schemas, checked before fastavro reads values with them.

fastavro's reader is written in C and trusts its input. Three things must not reach it:

- **Depth.** The reader is recursive, and a few thousand levels crash the process. A schema must not be nested deeper
  than `MAX_TYPE_DEPTH`; for a recursive schema, the depth of each value is checked.
- **Values that take no bytes.** `null`, empty records and fixed types of size 0 take no bytes, so an array of them can
  claim fifty million items in five bytes. If the items of an array may take no bytes, or contain many such values, the
  number of values is checked.
- **Large decimals.** Converting a megabyte to a decimal number takes minutes.

`check` walks over the bytes of a value and refuses it before fastavro reads it. Only schemas that need the check have
one.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from streamrt.errors import ConfigurationError
from streamrt.extras import install_command
from streamrt.serializers.avro.defaults import convert_defaults

MAX_TYPE_DEPTH = 64
"""Maximum nesting depth of the types of a schema."""
MAX_VALUE_DEPTH = 150
"""Maximum nesting depth of the values of a recursive schema."""

_MAX_JSON_DEPTH = 250
_MAX_JSON_NODES = 400_000
_MAX_FREE_VALUES = 100_000
_FREE_VALUES_PER_ITEM = 8
_VALUES_WITHOUT_BYTES = 1000
_MAX_DECIMAL_BYTES = 4096
_MAX_FIXED = 2**31 - 1
_INTERNAL = ("__fastavro_parsed", "__named_schemas")
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}

Check = Callable[[bytes], None]


class InvalidAvroSchemaError(ValueError):
    """The schema is invalid, or values cannot be read safely with it. It never leaves this package."""


@dataclass(frozen=True)
class AvroSchema:
    """A compiled schema, ready for fastavro.

    Attributes:
        parsed: the schema in the form that fastavro's functions accept.
        named: the named types, by full name.
        name: full name of the type of values; the type itself if it has no name; None for a union.
        recursive: whether a type contains itself.
        check: refuses bytes that must not reach fastavro's reader; None if no check is needed.
        unfit_defaults: the fields whose defaults do not fit their types; they count as fields without a default.
        shares_defaults: whether defaults are lists or dicts, which values would share.
    """

    parsed: Any
    named: dict[str, Any] = field(repr=False)
    name: str | None
    recursive: bool
    check: Check | None
    unfit_defaults: tuple[str, ...] = ()
    shares_defaults: bool = False

    @property
    def has_columns(self) -> bool:
        """Whether values are records with fields, none of which contains such a record."""
        record = isinstance(self.parsed, dict) and self.parsed["type"] == "record"
        return record and bool(self.parsed["fields"]) and not self.recursive

    @property
    def is_bytes(self) -> bool:
        """Whether values are bytes, which Confluent's serializers write without a length."""
        return isinstance(self.parsed, dict) and self.parsed["type"] == "bytes"


def load_fastavro() -> Any:
    """Import fastavro.

    Raises:
        ConfigurationError: if it is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise ConfigurationError(f"Avro needs the package fastavro: run {install_command('avro')}") from error
    return fastavro


def load_schema(schema: Any) -> Any:
    """Return a schema as lists, dicts and strings, without fastavro's additions.

    Args:
        schema: such objects, JSON, or the name of a primitive type.

    Raises:
        InvalidAvroSchemaError: if it is none of these, or too large.
    """
    if isinstance(schema, str) and schema.strip()[:1] in ("{", "[", '"'):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise InvalidAvroSchemaError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict | list | str):
        raise InvalidAvroSchemaError(f"it is a {type(schema).__name__}, not a dict, a list or a string")
    left = _MAX_JSON_NODES
    root: list[Any] = [None]
    # The third item says where the copy goes. A recursive function would reach Python's recursion limit.
    waiting: list[tuple[Any, int, Any, Any]] = [(schema, 0, root, 0)]
    while waiting:
        item, depth, parent, position = waiting.pop()
        left -= 1 + (len(item) if isinstance(item, dict | list) else 0)
        if depth > _MAX_JSON_DEPTH or left < 0:
            raise InvalidAvroSchemaError("it is too large" if left < 0 else "it is nested too deeply")
        if isinstance(item, dict):
            kept = [key for key in item if key not in _INTERNAL]
            parent[position] = dict.fromkeys(kept)
            waiting += [(item[key], depth + 1, parent[position], key) for key in kept]
        elif isinstance(item, list):
            parent[position] = [None] * len(item)
            waiting += [(value, depth + 1, parent[position], index) for index, value in enumerate(item)]
        else:
            parent[position] = item
    return root[0]


def compile_schema(schema: Any, definitions: Iterable[Any] = ()) -> AvroSchema:
    """Prepare a schema for reading and writing.

    Args:
        schema: the result of `load_schema`.
        definitions: the results of `load_schema` for the schemas that it refers to; referenced ones come first.

    Raises:
        InvalidAvroSchemaError: if it is not a valid schema, or values cannot be read with it safely.
        ConfigurationError: if fastavro is not installed.
    """
    fastavro = load_fastavro()
    parse = fastavro.parse_schema
    named: dict[str, Any] = {}
    try:
        for definition in definitions:
            parse(definition, named)
        parsed = _with_hint(parse(schema, named), named)
    except Exception as error:
        # fastavro raises any error for an invalid schema, such as KeyError.
        raise InvalidAvroSchemaError(f"{type(error).__name__}: {error}") from error
    unfit, shares_defaults = convert_defaults(named, fastavro)
    analysis = _Analysis(named)
    whole = analysis.visit(parsed, 0)
    if whole.free > _MAX_FREE_VALUES:
        raise InvalidAvroSchemaError(f"one value has {whole.free} parts that take no bytes")
    risky = analysis.recursive or analysis.amplifies

    def check(data: bytes) -> None:
        if risky or len(data) > _MAX_DECIMAL_BYTES:
            _Walk(named, data, whole.free).run(parsed)

    return AvroSchema(
        parsed,
        named,
        _name_of(parsed),
        analysis.recursive,
        check if risky or analysis.decimals else None,
        tuple(unfit),
        shares_defaults,
    )


def check_value_depth(value: Any) -> None:
    """Refuse a value whose nesting would crash the process in fastavro's recursive writer.

    Raises:
        ValueError: if it is nested too deeply.
    """
    level = [value]
    for _ in range(MAX_VALUE_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
        if not below:
            return
        level = below
    raise ValueError(f"the value is nested deeper than {MAX_VALUE_DEPTH} levels")


def _with_hint(parsed: Any, named: dict[str, Any]) -> Any:
    """Return a parsed schema in a form that fastavro does not parse for each value."""
    hint = {"__fastavro_parsed": True, "__named_schemas": named}
    if isinstance(parsed, dict):
        return {**parsed, **hint}
    if isinstance(parsed, list):
        return [_with_hint(branch, named) for branch in parsed]
    return {**named[parsed], **hint} if parsed in named else {"type": parsed, **hint}


def _name_of(parsed: Any) -> str | None:
    if isinstance(parsed, list):
        return None
    name: str = parsed.get("name") or parsed["type"]
    return name


@dataclass(frozen=True)
class _Size:
    """Size of the values of a type.

    Attributes:
        least: minimum number of bytes of a value.
        free: maximum number of parts of a value that take no bytes, if arrays and maps are empty.
        depth: nesting depth of the types.
    """

    least: int
    free: int
    depth: int


class _Analysis:
    """Determines whether the bytes of a schema's values need a check before they are read."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.recursive = False
        self.amplifies = False
        self.decimals = False
        self._named = named
        self._done: dict[str, _Size] = {}
        self._open: set[str] = set()

    def visit(self, schema: Any, depth: int) -> _Size:
        size = self._visit_schema(schema, depth)
        if depth > MAX_TYPE_DEPTH or size.depth > MAX_TYPE_DEPTH:
            raise InvalidAvroSchemaError(f"its types are nested deeper than {MAX_TYPE_DEPTH} levels")
        return size

    def _visit_schema(self, schema: Any, depth: int) -> _Size:
        if depth > MAX_TYPE_DEPTH:
            return _Size(0, 0, depth)
        if isinstance(schema, list):
            branches = [self.visit(branch, depth + 1) for branch in schema]
            if not branches:
                return _Size(1, 0, 1)
            return _Size(
                1 + min(one.least for one in branches),
                max(one.free for one in branches),
                1 + max(one.depth for one in branches),
            )
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _primitive_size(schema)
            return self._named_type(schema, self._named[schema], depth)
        kind = schema["type"]
        if kind in ("array", "map"):
            item = self.visit(schema["items" if kind == "array" else "values"], depth + 1)
            least = item.least + (kind == "map")
            if least == 0 or item.free > _FREE_VALUES_PER_ITEM:
                self.amplifies = True
            return _Size(1, 0, 1 + item.depth)
        if schema.get("logicalType") == "decimal" and kind == "bytes":
            self.decimals = True
        if kind in ("record", "error", "fixed", "enum"):
            return self._named_type(schema["name"], schema, depth)
        return _primitive_size(kind)

    def _named_type(self, name: str, schema: Any, depth: int) -> _Size:
        if name in self._open:
            self.recursive = True
            # The size of a recursive type is counted at its outermost occurrence.
            return _Size(1, 0, 1)
        done = self._done.get(name)
        if done is None:
            self._open.add(name)
            done = self._done[name] = self._measure_schema(schema, depth)
            self._open.remove(name)
        return done

    def _measure_schema(self, schema: Any, depth: int) -> _Size:
        kind = schema["type"]
        if kind == "enum":
            return _Size(1, 0, 1)
        if kind == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED:
                raise InvalidAvroSchemaError(f"the size of {schema['name']} is {size!r}")
            if schema.get("logicalType") == "decimal" and size > _MAX_DECIMAL_BYTES:
                raise InvalidAvroSchemaError(f"decimals of {size} bytes are not supported")
            return _Size(size, int(size == 0), 1)
        fields = [self.visit(one["type"], depth + 1) for one in schema["fields"]]
        return _Size(
            sum(one.least for one in fields),
            1 + sum(one.free for one in fields),
            1 + max((one.depth for one in fields), default=0),
        )


def _primitive_size(name: str) -> _Size:
    return _Size(0, 1, 1) if name == "null" else _Size(_WIDTHS.get(name, 1), 0, 1)


class _Walk:
    """Walks over the bytes of one value: checks its depth and its number of values."""

    def __init__(self, named: dict[str, Any], data: bytes, free: int) -> None:
        self._named = named
        self._data = data
        self._at = 0
        # Each value takes a byte, except the few that the schema allows without, and a share for those in arrays.
        self._left = _VALUES_WITHOUT_BYTES + free + (1 + _FREE_VALUES_PER_ITEM) * len(data)

    def run(self, schema: Any) -> None:
        """Walk over the value.

        Raises:
            ValueError: if the value must not be read.
        """
        self._walk_value(schema, 0)

    def _walk_value(self, schema: Any, depth: int) -> None:
        if depth > MAX_VALUE_DEPTH:
            raise ValueError(f"the value is nested deeper than {MAX_VALUE_DEPTH} levels")
        self._count_items(1)
        if isinstance(schema, list):
            index = self._read_long()
            if not 0 <= index < len(schema):
                raise ValueError(f"the union has no branch {index}")
            self._walk_value(schema[index], depth + 1)
            return
        logical = None
        if isinstance(schema, dict):
            kind, logical = schema["type"], schema.get("logicalType")
        elif schema in _PRIMITIVES:
            kind = schema
        else:
            schema = self._named[schema]
            kind, logical = schema["type"], schema.get("logicalType")
        if kind in ("record", "error"):
            for one in schema["fields"]:
                self._walk_value(one["type"], depth + 1)
        elif kind == "array":
            self._walk_items(schema["items"], False, depth)
        elif kind == "map":
            self._walk_items(schema["values"], True, depth)
        elif kind in ("int", "long", "enum"):
            self._read_long()
        elif kind in ("bytes", "string"):
            length = self._read_long()
            if logical == "decimal" and length > _MAX_DECIMAL_BYTES:
                raise ValueError(f"a decimal of {length} bytes is too long")
            self._skip_bytes(length)
        elif kind == "fixed":
            self._skip_bytes(schema["size"])
        else:
            self._skip_bytes(_WIDTHS.get(kind, 0))

    def _walk_items(self, item: Any, keyed: bool, depth: int) -> None:
        count = self._read_long()
        while count:
            if count < 0:
                count = -count
                self._read_long()
            self._left -= count
            if self._left < 0:
                raise ValueError(f"it has {count} items in {len(self._data)} bytes")
            self._left += count
            for _ in range(count):
                if keyed:
                    self._skip_bytes(self._read_long())
                self._walk_value(item, depth + 1)
            count = self._read_long()

    def _count_items(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise ValueError(f"it has too many values for {len(self._data)} bytes")

    def _skip_bytes(self, length: int) -> None:
        self._at += length
        if length < 0 or self._at > len(self._data):
            raise ValueError("the bytes end too early" if length >= 0 else f"a length is {length}")

    def _read_long(self) -> int:
        result = shift = 0
        data, at = self._data, self._at
        while True:
            if at >= len(data):
                raise ValueError("the bytes end too early")
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            # This reader and fastavro's must never differ, and longer numbers would overflow there.
            if shift > 63:
                raise ValueError("a number is longer than 64 bits")
        self._at = at
        if result >> 64:
            raise ValueError("a number is longer than 64 bits")
        return (result >> 1) ^ -(result & 1)
