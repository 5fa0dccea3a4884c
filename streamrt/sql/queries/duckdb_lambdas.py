"""Functions of Spark that take lambdas, in DuckDB's SQL.

DuckDB's own functions count from 1, and a state that they make of a list has the type of its items. So a place is written
as one from 0, and a list becomes one of structs that have room for a state and an item.
"""

import functools
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import BOOLEAN, INT, common_key, describe_type, make_nullable
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.lambdas import check_parameter_count
from streamrt.sql.queries.duckdb_casts import convert_implicitly, with_name
from streamrt.sql.queries.duckdb_engine import require_duckdb
from streamrt.sql.queries.duckdb_functions import require_list, require_map
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type, without_negative_zero
from streamrt.sql.queries.translation import PARAMETER, Translation, takes_lambdas

__all__: list[str] = []


def _type(dtype: pa.DataType) -> str:
    """Return the name of a type in DuckDB, which has no lists of NULL: those are of strings."""
    return duckdb_type(dtype).replace(duckdb_type(pa.null()), "VARCHAR")


def _typed(value: TypedText) -> str:
    """Return a value that has a type in DuckDB."""
    return f"CAST({value.sql} AS VARCHAR)" if value.dtype == pa.null() else value.sql


def _require_type(value: TypedText, dtype: pa.DataType, node: exp.Lambda, call: exp.Anonymous) -> str:
    """Return the result of a lambda, which must have a type, or be NULL."""
    if value.dtype != pa.null() and make_nullable(value.dtype) != make_nullable(dtype):
        wanted, found = describe_type(make_nullable(dtype)), describe_type(value.dtype)
        raise make_analysis_error(
            f"the lambda of {call.name.lower()}() must give {wanted}, and this is {found}: cast it", node.this
        )
    return f"CAST({value.sql} AS {_type(dtype)})"


def _over_struct(c: Translation, node: exp.Lambda, parts: Sequence[tuple[str, pa.DataType]]) -> tuple[str, TypedText]:
    """Return the one parameter that a lambda has in DuckDB, a struct, and its body.

    Args:
        c: translates the lambda.
        node: the lambda in the text, whose parameters stand for parts of the struct.
        parts: names or numbers of these parts, as `struct_extract` takes them, and their types.
    """

    def make(names: Sequence[str]) -> list[TypedText]:
        return [TypedText(f"struct_extract({names[0]}, {part})", dtype) for part, dtype in parts]

    (name,), body = c.translate_lambda(node, 1, make)
    return name, body


# Lists.


def _over_items(c: Translation, call: exp.Anonymous, array: TypedText) -> tuple[str, TypedText]:
    """Return the parameters of a lambda over the items of a list, and perhaps their places, and its body."""
    (node,) = call.expressions[1:]
    check_parameter_count(node, call.name.lower(), 1, 2)

    def make(names: Sequence[str]) -> list[TypedText]:
        places = [TypedText(f"CAST({name} - 1 AS INTEGER)", INT) for name in names[1:]]
        return [TypedText(names[0], array.dtype.value_type), *places]

    names, body = c.translate_lambda(node, len(node.expressions), make)
    return ", ".join(names), body


@takes_lambdas("transform")
def _transform(c: Translation, node: exp.Anonymous) -> TypedText:
    array = require_list(c, node.expressions[0], "transform()")
    names, body = _over_items(c, node, array)
    return TypedText(f"list_transform({array.sql}, lambda {names}: {_typed(body)})", pa.list_(body.dtype))


@takes_lambdas("filter")
def _filter(c: Translation, node: exp.Anonymous) -> TypedText:
    array = require_list(c, node.expressions[0], "filter()")
    names, body = _over_items(c, node, array)
    test = _require_type(body, BOOLEAN, node.expressions[1], node)
    return TypedText(f"list_filter({array.sql}, lambda {names}: {test})", array.dtype)


def _fold(
    c: Translation, array: TypedText, start: TypedText, node: exp.Lambda, step: Callable[[str, TypedText], str]
) -> str:
    """Return a struct with the state that a start and all items make, or NULL without a list.

    Args:
        c: translates the lambda.
        array: the list.
        start: the first state.
        node: a lambda of the state and an item, or of an item.
        step: returns the next state, for a state and what the lambda makes of it.
    """
    item = array.dtype.value_type

    def make(names: Sequence[str]) -> list[TypedText]:
        both = [
            TypedText(f"struct_extract({names[0]}, 'state')", start.dtype),
            TypedText(f"struct_extract({names[1]}, 'item')", item),
        ]
        return both[-len(node.expressions) :]

    (state, each), body = c.translate_lambda(node, 2, make)
    if _uses_outer_names(node, body.sql, state) and not _reduces_with_outer_names():
        raise make_refusal(
            "DuckDB before 2.0 computes this lambda wrongly, because it uses more than its own parameters: upgrade DuckDB, "
            "which needs Python 3.11",
            node,
        )
    merged = step(f"struct_extract({state}, 'state')", body)
    no_state, no_item = f"CAST(NULL AS {_type(start.dtype)})", f"CAST(NULL AS {_type(item)})"
    items = f"list_transform({array.sql}, lambda {each}: struct_pack(state := {no_state}, item := {each}))"
    first = f"struct_pack(state := CAST({start.sql} AS {_type(start.dtype)}), item := {no_item})"
    return f"list_reduce({items}, lambda {state}, {each}: struct_pack(state := {merged}, item := {no_item}), {first})"


def _uses_outer_names(node: exp.Lambda, body: str, first: str) -> bool:
    """Return whether a lambda uses columns, or parameters of enclosing lambdas.

    Args:
        node: the lambda.
        body: its body in DuckDB's SQL.
        first: the name of its first parameter there. Those of enclosing lambdas have lower numbers.
    """
    own = int(first.removeprefix(PARAMETER))
    numbers = re.findall(rf"\b{PARAMETER}(\d+)\b", body)
    return node.this.find(exp.Column) is not None or any(int(number) < own for number in numbers)


@functools.cache
def _reduces_with_outer_names() -> bool:
    """Return whether `list_reduce` of this DuckDB gives each row its own values of columns and outer parameters."""
    return int(require_duckdb().__version__.split(".")[0]) >= 2


@takes_lambdas("exists", "forall")
def _exists(c: Translation, node: exp.Anonymous) -> TypedText:
    name = node.name.lower()
    array, test = require_list(c, node.expressions[0], f"{name}()"), node.expressions[1]
    check_parameter_count(test, name, 1, 1)

    def step(state: str, body: TypedText) -> str:
        passed = _require_type(body, BOOLEAN, test, node)
        # Items behind the one that decides are not looked at.
        if name == "exists":
            return f"CASE WHEN {state} THEN TRUE ELSE ({state} OR {passed}) END"
        return f"CASE WHEN NOT {state} THEN FALSE ELSE ({state} AND {passed}) END"

    start = TypedText("FALSE" if name == "exists" else "TRUE", BOOLEAN)
    return TypedText(f"struct_extract({_fold(c, array, start, test, step)}, 'state')", BOOLEAN)


@takes_lambdas("aggregate", "reduce")
def _aggregate(c: Translation, node: exp.Anonymous) -> TypedText:
    name = node.name.lower()
    array, start = require_list(c, node.expressions[0], f"{name}()"), c.scalar(node.expressions[1])
    merge, *ends = node.expressions[2:]
    check_parameter_count(merge, name, 2, 2)
    folded = _fold(c, array, start, merge, lambda _, body: _require_type(body, start.dtype, merge, node))
    if not ends:
        return TypedText(f"struct_extract({folded}, 'state')", start.dtype)
    check_parameter_count(ends[0], name, 1, 1)
    last, body = _over_struct(c, ends[0], [("'state'", start.dtype)])
    made = f"CASE WHEN {last} IS NULL THEN NULL ELSE {_typed(body)} END"
    return TypedText(f"list_transform([{folded}], lambda {last}: {made})[1]", body.dtype)


def _of_both(one: TypedText, other: TypedText, make: Callable[[str, str], str]) -> str:
    """Return an expression of two values, each of which is written once; NULL if one of them is."""

    def write(name: str) -> str:
        a, b = f"struct_extract({name}, 'a')", f"struct_extract({name}, 'b')"
        return f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL ELSE {make(a, b)} END"

    return with_name(f"struct_pack(a := {one.sql}, b := {other.sql})", write)


@takes_lambdas("zip_with")
def _zip_with(c: Translation, node: exp.Anonymous) -> TypedText:
    one, other = (require_list(c, each, "zip_with()") for each in node.expressions[:2])
    function = node.expressions[2]
    check_parameter_count(function, "zip_with", 2, 2)
    pair, body = _over_struct(c, function, [("1", one.dtype.value_type), ("2", other.dtype.value_type)])
    made = _of_both(one, other, lambda a, b: f"list_transform(list_zip({a}, {b}), lambda {pair}: {_typed(body)})")
    return TypedText(made, pa.list_(body.dtype))


@takes_lambdas("array_sort")
def _array_sort(c: Translation, node: exp.Anonymous) -> TypedText:
    raise make_refusal("array_sort() with a lambda is not there in a query, because DuckDB has no such order", node)


# Maps.


def _over_entries(c: Translation, call: exp.Anonymous) -> tuple[TypedText, str, str, TypedText]:
    """Return a map, its entries, and the parameter and the body of a lambda of their keys and values."""
    name = call.name.lower()
    map_, function = require_map(c.scalar(call.expressions[0]), call, f"{name}()"), call.expressions[1]
    check_parameter_count(function, name, 2, 2)
    entry, body = _over_struct(c, function, [("'key'", map_.dtype.key_type), ("'value'", map_.dtype.item_type)])
    return map_, f"map_entries({map_.sql})", entry, body


def _make_map(entries: str, entry: str, key: str, value: str) -> str:
    """Return a map of a key and a value for each of a list of entries."""
    return f"map_from_entries(list_transform({entries}, lambda {entry}: struct_pack(key := {key}, value := {value})))"


@takes_lambdas("map_filter")
def _map_filter(c: Translation, node: exp.Anonymous) -> TypedText:
    map_, entries, entry, body = _over_entries(c, node)
    test = _require_type(body, BOOLEAN, node.expressions[1], node)
    return TypedText(f"map_from_entries(list_filter({entries}, lambda {entry}: {test}))", map_.dtype)


@takes_lambdas("transform_keys")
def _transform_keys(c: Translation, node: exp.Anonymous) -> TypedText:
    map_, entries, entry, body = _over_entries(c, node)
    if pa.types.is_nested(body.dtype):
        raise make_analysis_error("keys of maps are not lists, structs or maps", node.expressions[1])
    # Arrow has no keys of the type of NULL.
    key = TypedText(_typed(body), pa.string() if body.dtype == pa.null() else body.dtype)
    text = _make_map(entries, entry, without_negative_zero(key), f"struct_extract({entry}, 'value')")
    return TypedText(text, pa.map_(key.dtype, map_.dtype.item_type))


@takes_lambdas("transform_values")
def _transform_values(c: Translation, node: exp.Anonymous) -> TypedText:
    map_, entries, entry, body = _over_entries(c, node)
    text = _make_map(entries, entry, f"struct_extract({entry}, 'key')", _typed(body))
    return TypedText(text, pa.map_(map_.dtype.key_type, body.dtype))


@takes_lambdas("map_zip_with")
def _map_zip_with(c: Translation, node: exp.Anonymous) -> TypedText:
    maps = [require_map(c.scalar(each), each, "map_zip_with()") for each in node.expressions[:2]]
    function = node.expressions[2]
    check_parameter_count(function, "map_zip_with", 3, 3)
    key_type = common_key(*(each.dtype.key_type for each in maps))
    if key_type is None:
        words = " and ".join(describe_type(each.dtype.key_type) for each in maps)
        raise make_analysis_error(f"the maps of map_zip_with() have keys of types that do not fit: {words}", node)
    a, b = (convert_implicitly(each, pa.map_(key_type, each.dtype.item_type)) for each in maps)
    entry, body = _over_struct(
        c, function, [("'key'", key_type), ("'one'", a.dtype.item_type), ("'other'", b.dtype.item_type)]
    )

    def make(one: str, other: str) -> str:
        further = f"list_filter(map_keys({other}), lambda __k: NOT list_contains(map_keys({one}), __k))"
        values = f"struct_pack(key := __k, one := {one}[__k], other := {other}[__k])"
        entries = f"list_transform(list_concat(map_keys({one}), {further}), lambda __k: {values})"
        return _make_map(entries, entry, f"struct_extract({entry}, 'key')", _typed(body))

    return TypedText(_of_both(a, b, make), pa.map_(key_type, body.dtype))
