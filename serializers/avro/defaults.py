"""Defaults of Avro fields as the Python values that fastavro reads and writes.

In a schema, defaults are JSON: bytes are text of the characters U+0000 to U+00FF, dates are numbers of days, and a record may
leave fields out that have defaults of their own. fastavro takes this JSON for the value.
"""

import decimal
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

__all__ = ["convert_defaults"]

_MAX_DEPTH: Final = 64


def convert_defaults(named: Mapping[str, Any], fastavro: Any) -> tuple[list[str], bool]:
    """Replace the defaults of all records, in place, by Python values.

    A default that does not fit its type is removed: the field then has none.

    Args:
        named: the named types that fastavro has parsed.
        fastavro: the package.

    Returns:
        The fields whose defaults do not fit, and whether there are defaults that a reader of values could change.
    """
    defaults = _Defaults(named, fastavro)
    # First all, then replace: a default may refer to those of other records.
    converted: list[tuple[dict[str, Any], str, Any]] = []
    unfit: list[str] = []
    for name, record in named.items():
        for field in record.get("fields", ()) if isinstance(record, dict) else ():
            if "default" not in field:
                continue
            try:
                converted.append((field, name, defaults.value(field["type"], field["default"])))
            except Exception:  # noqa: BLE001 - fastavro may raise anything for a value that does not fit
                unfit.append(f"{name}.{field['name']}")
                converted.append((field, name, _UNFIT))
    for field, _, value in converted:
        if value is _UNFIT:
            del field["default"]
        else:
            field["default"] = value
    return unfit, any(isinstance(value, dict | list) for _, _, value in converted)


_UNFIT: Final = object()


class _Defaults:
    def __init__(self, named: Mapping[str, Any], fastavro: Any) -> None:
        self._named = named
        self._fastavro = fastavro

    def value(self, schema: Any, default: Any, depth: int = 0) -> Any:
        """Return the value of a default.

        Raises:
            ValueError: if it does not fit; fastavro may raise other errors.
        """
        if depth > _MAX_DEPTH:
            raise ValueError("the default contains itself")
        if isinstance(schema, list):
            return self._of_union(schema, default, depth)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if not isinstance(kind, str) or (kind in self._named and "name" not in schema):
            return self.value(kind, default, depth + 1)
        if kind in ("record", "error"):
            return self._of_record(schema, default, depth)
        if kind == "array":
            if not isinstance(default, list):
                raise ValueError("an array needs a list")
            return [self.value(schema["items"], item, depth + 1) for item in default]
        if kind == "map":
            return {key: self.value(schema["values"], item, depth + 1) for key, item in default.items()}
        if kind in ("bytes", "fixed"):
            return _of_bytes(schema, default)
        return self._of_leaf(schema, kind, default)

    def _of_union(self, schema: list[Any], default: Any, depth: int) -> Any:
        # The first branch, says Avro 1.11; any branch, says Avro 1.12.
        for branch in schema:
            try:
                return self.value(branch, default, depth + 1)
            except Exception:  # noqa: BLE001, S112 - another branch may fit
                continue
        raise ValueError("no branch of the union fits")

    def _of_record(self, schema: Mapping[str, Any], default: Any, depth: int) -> dict[str, Any]:
        names = {field["name"] for field in schema["fields"]}
        if not isinstance(default, Mapping) or not names.issuperset(default):
            raise ValueError("the record has no such fields")
        # A field without a value and a default is a KeyError.
        return {
            field["name"]: self.value(
                field["type"], default[field["name"]] if field["name"] in default else field["default"], depth + 1
            )
            for field in schema["fields"]
        }

    def _of_leaf(self, schema: Mapping[str, Any], kind: str, default: Any) -> Any:
        if kind in ("float", "double"):
            if isinstance(default, bool):
                raise ValueError("a boolean is not a number")
            # NaN and infinities are text in JSON.
            return float(default)
        wanted: Any = {"null": type(None), "boolean": bool, "int": int, "long": int}.get(kind, str)
        if not isinstance(default, wanted) or (isinstance(default, bool) and kind != "boolean"):
            raise ValueError(f"a {kind} needs another type")
        if kind == "enum" and default not in schema["symbols"]:
            raise ValueError("the enum has no such symbol")
        if kind == "enum" or "logicalType" not in schema:
            return default
        # fastavro knows what its reader makes of a number or text.
        data = BytesIO()
        self._fastavro.schemaless_writer(data, schema, default)
        data.seek(0)
        return self._fastavro.schemaless_reader(data, schema)


def _of_bytes(schema: Mapping[str, Any], default: Any) -> Any:
    data = default.encode("latin-1")
    if schema["type"] == "fixed" and len(data) != schema["size"]:
        raise ValueError("the size is another one")
    if schema.get("logicalType") != "decimal":
        return data
    # Not by the context of the thread, which may round.
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((int(unscaled < 0), digits, -schema.get("scale", 0)))
