"""Fields of structs, items of lists and maps, and what makes them."""

import ast
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from streamrt.common.suggestions import suggest_name
from streamrt.operators.expression import Expression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.casts import cast_silently, unify
from streamrt.sql.expressions.coercion import describe_type, is_integral
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nodes import (
    Node,
    Split,
    StrictNode,
    code_of,
    fold_constants,
    load,
    split_null,
)
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["Field", "bind_item", "make_array", "make_map", "make_struct", "select_field"]


@dataclass(frozen=True)
class Field(StrictNode):
    """A field of a struct."""

    struct: TypedExpression
    name: str
    type: pa.DataType
    may_be_null: bool = True

    @property
    def is_total(self) -> bool:  # type: ignore[override]  # it depends on the field  # noqa: D102
        return not self.may_be_null

    def split(self, code: InlinedCode) -> Split:  # noqa: D102
        name = load(code.name_object(self.name))
        return split_null(code, (self.struct,), lambda operands: ast.Subscript(operands[0], name, ast.Load()))

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.struct,)

    def __str__(self) -> str:
        return f"{self.struct}.{self.name}"


@dataclass(frozen=True)
class _Struct(Node):
    """A new struct."""

    names: tuple[str, ...]
    values: tuple[TypedExpression, ...]
    type: pa.DataType

    @property
    def nullable(self) -> bool:
        return False

    def code(self, code: InlinedCode) -> ast.expr:
        keys: list[ast.expr | None] = [load(code.name_object(name)) for name in self.names]
        return ast.Dict(keys, [code_of(value, code) for value in self.values])

    def parts(self) -> tuple[Expression, ...]:
        return self.values

    def __str__(self) -> str:
        pairs = (f"'{name}', {value}" for name, value in zip(self.names, self.values, strict=True))
        return f"named_struct({', '.join(pairs)})"


@dataclass(frozen=True)
class _Array(Node):
    """A new list."""

    values: tuple[TypedExpression, ...]
    type: pa.DataType

    @property
    def nullable(self) -> bool:
        return False

    def code(self, code: InlinedCode) -> ast.expr:
        return ast.List([code_of(value, code) for value in self.values], ast.Load())

    def parts(self) -> tuple[Expression, ...]:
        return self.values

    def __str__(self) -> str:
        return f"array({', '.join(map(str, self.values))})"


def select_field(struct: TypedExpression, name: str, node: exp.Expr | None) -> TypedExpression:
    """Return a field of a struct, or of each struct in a list. Names are the same in any case.

    Raises:
        SQLAnalysisError: if there is no such field.
    """
    dtype = struct.dtype
    in_list = types.is_list(dtype) and types.is_struct(dtype.value_type)
    fields = dtype.value_type if in_list else dtype
    if not types.is_struct(fields):
        raise make_analysis_error(f"{struct} is {describe_type(dtype)}, which has no field {name!r}", node)
    names = [field.name for field in fields]
    matches = [known for known in names if known == name] or [known for known in names if known.lower() == name.lower()]
    if len(matches) != 1:
        reason = "has several fields" if matches else "has no field"
        raise make_analysis_error(f"{struct} {reason} {name!r}{suggest_name(name, names, 0.7)}", node)
    field = fields.field(matches[0])
    if in_list:
        item = pa.field("item", field.type, nullable=field.nullable or dtype.value_field.nullable)
        return FunctionCall("field_of_each", _select_each, (struct,), pa.list_(item), options=(field.name,))
    return fold_constants(Field(struct, field.name, field.type, field.nullable or struct.nullable))


def _select_each(name: str, values: list[Any]) -> list[Any]:
    return [None if value is None else value[name] for value in values]


def bind_item(container: TypedExpression, index: TypedExpression, node: exp.Expr) -> TypedExpression:
    """Return `container[index]`: an item of a list, from 0, which must exist; or a value of a map, NULL without its key.

    Raises:
        SQLAnalysisError: if the container has no items, or the index another type.
    """
    dtype = container.dtype
    if types.is_list(dtype):
        if not is_integral(index.dtype):
            raise make_analysis_error(
                f"the index of a list is an integer, and {index} is {describe_type(index.dtype)}", node
            )
        call = FunctionCall("[]", _item_at, (container, index), dtype.value_type, dtype.value_field.nullable)
        return fold_constants(call)
    if types.is_map(dtype):
        key = cast_silently(index, dtype.key_type, node, "the key of a map")
        return fold_constants(FunctionCall("[]", dict.get, (container, key), dtype.item_type, True))
    if types.is_struct(dtype):
        raise make_analysis_error(f"{container} is a STRUCT: select a field with a dot", node)
    raise make_analysis_error(f"{container} is {describe_type(dtype)}, which has no items", node)


def _item_at(values: list[Any], index: int) -> Any:
    if not 0 <= index < len(values):
        raise ValueError(
            "an index is outside of its ARRAY; get(a, index) and try_element_at(a, number) give NULL for it"
        )
    return values[index]


def make_array(values: list[TypedExpression], nodes: list[exp.Expr]) -> TypedExpression:
    """Return a new list of values, which get the type that they have in common."""
    items, dtype = unify(values, nodes, "array()")
    field = pa.field("item", dtype, nullable=not items or any(item.nullable for item in items))
    return fold_constants(_Array(tuple(items), pa.list_(field)))


def make_struct(names: list[str], values: list[TypedExpression], node: exp.Expr) -> TypedExpression:
    """Return a new struct.

    Raises:
        SQLAnalysisError: if it has a name twice, or no field.
    """
    if not names or len(set(names)) < len(names):
        raise make_analysis_error("a STRUCT has at least one field, and each name once", node)
    fields = [pa.field(name, value.dtype, nullable=value.nullable) for name, value in zip(names, values, strict=True)]
    return fold_constants(_Struct(tuple(names), tuple(values), pa.struct(fields)))


def make_map(
    keys: list[TypedExpression], values: list[TypedExpression], key_nodes: list[exp.Expr], nodes: list[exp.Expr]
) -> TypedExpression:
    """Return a new map of keys and values, each of which get the type that they have in common.

    Raises:
        SQLAnalysisError: if keys are lists, structs or maps, which Python's dicts cannot have.
    """
    names, key_type = unify(keys, key_nodes, "map()")
    items, dtype = unify(values, nodes, "map()")
    if types.is_nested(key_type):
        raise make_analysis_error("keys of maps are not lists, structs or maps", key_nodes[0])
    # Arrow has no keys of the type of NULL.
    key_type = pa.string() if key_type == pa.null() else key_type
    field = pa.field("value", dtype, nullable=not items or any(item.nullable for item in items))
    half = len(names)
    call = FunctionCall("map", _make_dict, (*names, *items), pa.map_(key_type, field), options=(half,), strict=False)
    return fold_constants(call)


def _make_dict(count: int, *items: Any) -> dict[Any, Any]:
    return make_dict(items[:count], items[count:])


def make_dict(keys: Any, values: Any) -> dict[Any, Any]:
    """Return a map.

    Raises:
        ValueError: if a key is NULL, or there twice.
    """
    made = {
        (0.0 if key == 0 and isinstance(key, float) else key): value for key, value in zip(keys, values, strict=True)
    }
    if None in made:
        raise ValueError("a key of a MAP is not NULL")
    if len(made) < len(keys):
        raise ValueError("a MAP has each key once")
    return made
