"""Functions of lists and maps that take lambdas."""

from collections.abc import Callable
from dataclasses import replace
from functools import cmp_to_key
from itertools import starmap, zip_longest
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.calls import Call, ScalarFunction, define_special
from streamrt.sql.expressions.casts import cast_to
from streamrt.sql.expressions.coercion import BOOLEAN, INT, NULL, STRING, common_key, describe_type, make_nullable
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.functions.collections import require_comparable_list, sort_nulls_last
from streamrt.sql.expressions.lambdas import Lambda
from streamrt.sql.expressions.nested import make_dict
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS"]

_INDEX: Final = pa.field("index", INT, nullable=False)


def _bind_condition(call: Call, fields: list[pa.Field], *, least: int | None = None) -> Lambda:
    made = call.lambdas[0].bind(fields, least=least)
    return replace(made, body=_require_type(call, made, BOOLEAN).body)


def _require_type(call: Call, made: Lambda, dtype: pa.DataType) -> Lambda:
    """Return a lambda whose results have a type, or are the literal NULL, which has any."""
    if made.dtype == NULL:
        return replace(made, body=cast_to(made.body, dtype))
    if make_nullable(made.dtype) != make_nullable(dtype):
        hint = "" if dtype == NULL else f"; cast it: CAST({made.body} AS {describe_type(dtype)})"
        raise make_analysis_error(
            f"the lambda of {call.name}() must give {describe_type(dtype)}, and {made.body} is "
            f"{describe_type(made.dtype)}{hint}",
            call.lambdas[0].node.this,
        )
    return made


# Lists.


def _bind_transform(call: Call) -> TypedExpression:
    array = call.require_list()
    made = call.lambdas[0].bind([array.dtype.value_field, _INDEX], least=1)
    function = _transform if len(made.parameters) == 1 else _transform_by_index
    dtype = pa.list_(pa.field("item", made.dtype, nullable=made.body.nullable))
    return call.make(function, [array, made], dtype)


def _transform(values: list[Any], function: Callable[[Any], Any]) -> list[Any]:
    return list(map(function, values))


def _transform_by_index(values: list[Any], function: Callable[[Any, int], Any]) -> list[Any]:
    return list(map(function, values, range(len(values))))


def _bind_filter(call: Call) -> TypedExpression:
    array = call.require_list()
    made = replace(_bind_condition(call, [array.dtype.value_field, _INDEX], least=1), is_condition=True)
    function = _filter if len(made.parameters) == 1 else _filter_by_index
    return call.make(function, [array, made], array.dtype)


def _filter(values: list[Any], test: Callable[[Any], Any]) -> list[Any]:
    return list(filter(test, values))


def _filter_by_index(values: list[Any], test: Callable[[Any, int], Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if test(value, index)]


def _bind_quantifier(function: Callable[..., Any]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        array = call.require_list()
        made = _bind_condition(call, [array.dtype.value_field])
        return call.make(function, [array, made], BOOLEAN, may_be_null=made.body.nullable)

    return bind


def _exists(values: list[Any], test: Callable[[Any], Any]) -> bool | None:
    found: bool | None = False
    for value in values:
        passed = test(value)
        if passed:
            return True
        if passed is None:
            found = None
    return found


def _forall(values: list[Any], test: Callable[[Any], Any]) -> bool | None:
    found: bool | None = True
    for value in values:
        passed = test(value)
        if passed is None:
            found = None
        elif not passed:
            return False
    return found


def _bind_aggregate(call: Call) -> TypedExpression:
    array, start = call.require_list(), call.arguments[1]
    # What is merged may be NULL where the start is not.
    dtype = make_nullable(start.dtype)
    state = pa.field("state", dtype)
    merge = _require_type(call, call.lambdas[0].bind([state, array.dtype.value_field]), dtype)
    ends = [each.bind([state]) for each in call.lambdas[1:]]
    dtype, nullable = (ends[0].dtype, ends[0].body.nullable) if ends else (dtype, True)
    return call.make(
        _aggregate, [array, start, merge, *ends], dtype, may_be_null=array.nullable or nullable, strict=False
    )


def _aggregate(
    values: list[Any] | None,
    state: Any,
    merge: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any] | None = None,
) -> Any:
    if values is None:
        return None
    for value in values:
        state = merge(state, value)
    return state if finish is None else finish(state)


def _bind_zip_with(call: Call) -> TypedExpression:
    arrays = [call.require_list(), call.require_list(1)]
    made = call.lambdas[0].bind([array.dtype.value_field.with_nullable(True) for array in arrays])
    return call.make(_zip_with, [*arrays, made], pa.list_(pa.field("item", made.dtype, nullable=made.body.nullable)))


def _zip_with(a: list[Any], b: list[Any], function: Callable[[Any, Any], Any]) -> list[Any]:
    return list(starmap(function, zip_longest(a, b)))


def _bind_array_sort(call: Call) -> TypedExpression:
    if not call.lambdas:
        array = require_comparable_list(call)
        return call.make(sort_nulls_last, [array], array.dtype)
    array = call.require_list()
    item = array.dtype.value_field
    made = _require_type(call, call.lambdas[0].bind([item, item]), INT)
    return call.make(_sort_by, [array, made], array.dtype)


def _sort_by(values: list[Any], compare: Callable[[Any, Any], Any]) -> list[Any]:
    def require_order(one: Any, other: Any) -> int:
        order: int | None = compare(one, other)
        if order is None:
            raise ValueError("array_sort(): the lambda gives NULL for two items: give an INT, such as 0, in this case")
        return order

    return sorted(values, key=cmp_to_key(require_order))


# Maps.


def _bind_map_filter(call: Call) -> TypedExpression:
    made = call.require_map()
    test = replace(_bind_condition(call, [made.dtype.key_field, made.dtype.item_field]), is_condition=True)
    return call.make(_map_filter, [made, test], made.dtype)


def _map_filter(entries: dict[Any, Any], test: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    return {key: value for key, value in entries.items() if test(key, value)}


def _bind_transform_keys(call: Call) -> TypedExpression:
    made = call.require_map()
    function = call.lambdas[0].bind([made.dtype.key_field, made.dtype.item_field])
    if types.is_nested(function.dtype):
        raise call.error("keys of maps are not lists, structs or maps", 1)
    # Arrow has no keys of the type of NULL.
    key_type = STRING if function.dtype == NULL else function.dtype
    return call.make(_transform_keys, [made, function], pa.map_(key_type, made.dtype.item_field))


def _transform_keys(entries: dict[Any, Any], function: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    return make_dict(list(starmap(function, entries.items())), entries.values())


def _bind_transform_values(call: Call) -> TypedExpression:
    made = call.require_map()
    function = call.lambdas[0].bind([made.dtype.key_field, made.dtype.item_field])
    item = pa.field("value", function.dtype, nullable=function.body.nullable)
    return call.make(_transform_values, [made, function], pa.map_(made.dtype.key_type, item))


def _transform_values(entries: dict[Any, Any], function: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    return {key: function(key, value) for key, value in entries.items()}


def _bind_map_zip_with(call: Call) -> TypedExpression:
    one, other = call.require_map(), call.require_map(1)
    key_type = common_key(one.dtype.key_type, other.dtype.key_type)
    if key_type is None:
        raise call.misfit(1, f"a MAP with keys of {describe_type(one.dtype.key_type)}")
    maps = [cast_to(each, pa.map_(key_type, each.dtype.item_field)) for each in (one, other)]
    values = [each.dtype.item_field.with_nullable(True) for each in (one, other)]
    made = call.lambdas[0].bind([pa.field("key", key_type, nullable=False), *values])
    item = pa.field("value", made.dtype, nullable=made.body.nullable)
    return call.make(_map_zip_with, [*maps, made], pa.map_(key_type, item))


def _map_zip_with(a: dict[Any, Any], b: dict[Any, Any], function: Callable[[Any, Any, Any], Any]) -> dict[Any, Any]:
    return {key: function(key, a.get(key), b.get(key)) for key in {**a, **b}}


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_special(
        "transform",
        "array ARRAY, function LAMBDA",
        "ARRAY",
        _bind_transform,
        "results of `x -> ...` for all items, or of `(x, i) -> ...` with their places from 0",
    ),
    define_special(
        "filter",
        "array ARRAY, condition LAMBDA",
        "ARRAY",
        _bind_filter,
        "items for which `x -> ...` is TRUE, or `(x, i) -> ...` with their places from 0",
    ),
    define_special(
        "exists",
        "array ARRAY, condition LAMBDA",
        "BOOLEAN",
        _bind_quantifier(_exists),
        "whether a condition is TRUE for an item; NULL if it is not, and NULL for one",
    ),
    define_special(
        "forall",
        "array ARRAY, condition LAMBDA",
        "BOOLEAN",
        _bind_quantifier(_forall),
        "whether a condition is TRUE for all items; NULL if it is FALSE for none, and NULL for one",
    ),
    define_special(
        "aggregate",
        "array ARRAY, start ANY, merge LAMBDA[, finish LAMBDA]",
        "as start, or as finish",
        _bind_aggregate,
        "state that `(state, x) -> ...` makes of a start and all items, or `state -> ...` of the last one",
        aliases=("reduce",),
    ),
    define_special(
        "zip_with",
        "a ARRAY, b ARRAY, function LAMBDA",
        "ARRAY",
        _bind_zip_with,
        "results of `(x, y) -> ...` for items at the same place; those of the shorter list are NULL",
    ),
    define_special(
        "array_sort",
        "array ARRAY[, order LAMBDA]",
        "ARRAY",
        _bind_array_sort,
        "items in order, NULL last; or in that of `(x, y) -> ...`, below 0 if x comes first, above 0 if y does",
    ),
    define_special(
        "map_filter",
        "map MAP, condition LAMBDA",
        "MAP",
        _bind_map_filter,
        "entries for which `(key, value) -> ...` is TRUE",
    ),
    define_special(
        "transform_keys",
        "map MAP, function LAMBDA",
        "MAP",
        _bind_transform_keys,
        "map with `(key, value) -> ...` as keys",
    ),
    define_special(
        "transform_values",
        "map MAP, function LAMBDA",
        "MAP",
        _bind_transform_values,
        "map with `(key, value) -> ...` as values",
    ),
    define_special(
        "map_zip_with",
        "a MAP, b MAP, function LAMBDA",
        "MAP",
        _bind_map_zip_with,
        "map of all keys, with `(key, value_of_a, value_of_b) -> ...` as values; one that is not there is NULL",
    ),
)
