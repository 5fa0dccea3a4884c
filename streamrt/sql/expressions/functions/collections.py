"""Functions of lists, maps and structs."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.calls import Call, ScalarFunction, define_special
from streamrt.sql.expressions.casts import cast_to, unify
from streamrt.sql.expressions.coercion import BOOLEAN, INT, STRING, all_comparable, common_type, is_integral
from streamrt.sql.expressions.comparing import order_key
from streamrt.sql.expressions.functions.json_paths import find_json
from streamrt.sql.expressions.nested import make_dict
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS", "bind_concat_arrays", "require_comparable_list", "sort_nulls_last"]


def require_comparable_list(call: Call) -> TypedExpression:
    """Return the first argument, which must be an ARRAY of values that have an order.

    Raises:
        SQLAnalysisError: if it is not.
    """
    argument = call.require_list()
    if not all_comparable([argument.dtype]):
        raise call.error(f"{call.name}() cannot compare MAPs", 0)
    return argument


def _list_and_item(call: Call) -> tuple[TypedExpression, TypedExpression]:
    """Return a list and what it is searched for, as values of one type."""
    array = require_comparable_list(call)
    item = call.arguments[1]
    common = common_type(array.dtype.value_type, item.dtype)
    if common is None or (common != array.dtype.value_type and common != item.dtype):
        raise call.misfit(1, "a value of the type of items")
    if common != array.dtype.value_type:
        array = cast_to(array, pa.list_(pa.field("item", common, nullable=array.dtype.value_field.nullable)))
    return array, call.cast(1, common)


# Sizes and items.


def _bind_size(call: Call) -> TypedExpression:
    argument = call.arguments[0]
    if not types.is_list(argument.dtype) and not types.is_map(argument.dtype):
        raise call.misfit(0, "an ARRAY or a MAP")
    return call.make(len, [argument], INT)


def _bind_element_at(safe: bool) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        container = call.arguments[0]
        if types.is_map(container.dtype):
            return call.make(
                dict.get,
                [container, call.cast(1, container.dtype.key_type)],
                container.dtype.item_type,
                may_be_null=True,
            )
        array = call.require_list()
        if not is_integral(call.arguments[1].dtype):
            raise call.misfit(1, "the number of an item")
        function = _try_element_at if safe else _element_at
        may_be_null = safe or array.dtype.value_field.nullable
        return call.make(function, [array, call.cast(1, INT)], array.dtype.value_type, may_be_null=may_be_null)

    return bind


def _element_at(values: list[Any], number: int) -> Any:
    if not number:
        raise ValueError("element_at(): the number of an item is not 0; 1 is the first, and -1 the last one")
    place = number - 1 if number > 0 else len(values) + number
    if not 0 <= place < len(values):
        raise ValueError(
            "element_at(): the ARRAY has no item of this number; try_element_at(a, number) gives NULL for it"
        )
    return values[place]


def _try_element_at(values: list[Any], number: int) -> Any:
    if not number:
        raise ValueError("try_element_at(): the number of an item is not 0; 1 is the first, and -1 the last one")
    place = number - 1 if number > 0 else len(values) + number
    return values[place] if 0 <= place < len(values) else None


def _bind_get(call: Call) -> TypedExpression:
    array = call.require_list()
    return call.make(_get, [array, call.cast(1, INT)], array.dtype.value_type, may_be_null=True)


def _get(values: list[Any], index: int) -> Any:
    return values[index] if 0 <= index < len(values) else None


# Searching lists.


def _bind_contains(call: Call) -> TypedExpression:
    array, item = _list_and_item(call)
    return call.make(_contains, [array, item], BOOLEAN, may_be_null=array.dtype.value_field.nullable)


def _contains(values: list[Any], item: Any) -> bool | None:
    if _find(values, item) >= 0:
        return True
    return None if None in values else False


def _find(values: list[Any], item: Any) -> int:
    key = order_key(item)
    return next((place for place, value in enumerate(values) if value is not None and order_key(value) == key), -1)


def _bind_position(call: Call) -> TypedExpression:
    return call.make(_position, list(_list_and_item(call)), pa.int64())


def _position(values: list[Any], item: Any) -> int:
    return _find(values, item) + 1


def _bind_remove(call: Call) -> TypedExpression:
    array, item = _list_and_item(call)
    return call.make(_remove, [array, item], array.dtype)


def _remove(values: list[Any], item: Any) -> list[Any]:
    key = order_key(item)
    return [value for value in values if value is None or order_key(value) != key]


# Lists of lists' items.


def _bind_list_function(function: Callable[[list[Any]], list[Any]]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        array = require_comparable_list(call)
        return call.make(function, [array], array.dtype)

    return bind


def _distinct(values: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(order_key(value), value)
    return list(found.values())


def _bind_extreme(choose: Callable[..., Any]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        array = require_comparable_list(call)
        return call.make(choose, [array], array.dtype.value_type, may_be_null=True)

    return bind


def _highest(values: list[Any]) -> Any:
    return max((value for value in values if value is not None), key=order_key, default=None)


def _lowest(values: list[Any]) -> Any:
    return min((value for value in values if value is not None), key=order_key, default=None)


def _bind_sort(call: Call) -> TypedExpression:
    array = require_comparable_list(call)
    arguments = [array, *(call.cast(number, BOOLEAN) for number in range(1, len(call.arguments)))]
    return call.make(_sort, arguments, array.dtype)


def _sort(values: list[Any], ascending: bool = True) -> list[Any]:
    return sorted(values, key=order_key, reverse=not ascending)


def sort_nulls_last(values: list[Any]) -> list[Any]:
    """Return values in order, NULL last."""
    return sorted(values, key=lambda value: (value is None, order_key(value)))


def _bind_join(call: Call) -> TypedExpression:
    array = call.require_list()
    if array.dtype.value_type != STRING:
        raise call.misfit(0, "an ARRAY of STRING")
    return call.make(_join, [array, *(call.cast(number, STRING) for number in range(1, len(call.arguments)))], STRING)


def _join(values: list[Any], separator: str, instead: str | None = None) -> str:
    if instead is None:
        return separator.join(value for value in values if value is not None)
    return separator.join(instead if value is None else value for value in values)


def _bind_slice(call: Call) -> TypedExpression:
    array = call.require_list()
    return call.make(_slice, [array, call.cast(1, INT), call.cast(2, INT)], array.dtype)


def _slice(values: list[Any], start: int, length: int) -> list[Any]:
    if not start:
        raise ValueError("slice(): the number of an item is not 0; 1 is the first, and -1 the last one")
    if length < 0:
        raise ValueError("slice(): a length is not negative")
    first = start - 1 if start > 0 else len(values) + start
    return values[first : first + length] if 0 <= first < len(values) else []


def bind_concat_arrays(call: Call) -> TypedExpression:
    """Return the node of `concat` of lists."""
    arrays, dtype = unify(call.arguments, call.nodes, "concat()")
    return call.make(_concat, arrays, dtype)


def _concat(*arrays: list[Any]) -> list[Any]:
    return [item for array in arrays for item in array]


def _bind_flatten(call: Call) -> TypedExpression:
    array = call.require_list()
    inner = array.dtype.value_type
    if not types.is_list(inner):
        raise call.misfit(0, "an ARRAY of ARRAYs")
    return call.make(_flatten, [array], inner, may_be_null=array.dtype.value_field.nullable)


def _flatten(arrays: list[Any]) -> list[Any] | None:
    return None if None in arrays else _concat(*arrays)


def _bind_set_operation(function: Callable[..., Any]) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        arrays, dtype = unify([call.require_list(), call.require_list(1)], call.nodes, f"{call.name}()")
        if not all_comparable([dtype]):
            raise call.error(f"{call.name}() cannot compare MAPs")
        result = BOOLEAN if function is _overlap else dtype
        return call.make(function, arrays, result, may_be_null=function is _overlap)

    return bind


def _union(a: list[Any], b: list[Any]) -> list[Any]:
    return _distinct([*a, *b])


def _intersect(a: list[Any], b: list[Any]) -> list[Any]:
    keys = set(map(order_key, b))
    return _distinct([value for value in a if order_key(value) in keys])


def _except(a: list[Any], b: list[Any]) -> list[Any]:
    keys = set(map(order_key, b))
    return _distinct([value for value in a if order_key(value) not in keys])


def _overlap(a: list[Any], b: list[Any]) -> bool | None:
    keys = {order_key(value) for value in b if value is not None}
    if any(value is not None and order_key(value) in keys for value in a):
        return True
    return None if a and b and (None in a or None in b) else False


# Maps and JSON.


def _bind_keys(call: Call) -> TypedExpression:
    made = call.require_map()
    return call.make(list, [made], pa.list_(pa.field("item", made.dtype.key_type, nullable=False)))


def _bind_values(call: Call) -> TypedExpression:
    made = call.require_map()
    item = pa.field("item", made.dtype.item_type, nullable=made.dtype.item_field.nullable)
    return call.make(_values, [made], pa.list_(item))


def _values(value: dict[Any, Any]) -> list[Any]:
    return list(value.values())


def _bind_contains_key(call: Call) -> TypedExpression:
    return call.make(_contains_key, [call.require_map(), call.cast(1, call.arguments[0].dtype.key_type)], BOOLEAN)


def _contains_key(value: dict[Any, Any], key: Any) -> bool:
    return key in value


def _bind_map_from_arrays(call: Call) -> TypedExpression:
    keys, values = call.require_list(), call.require_list(1)
    if types.is_nested(keys.dtype.value_type):
        raise call.error("keys of maps are not lists, structs or maps", 0)
    item = pa.field("value", values.dtype.value_type, nullable=values.dtype.value_field.nullable)
    return call.make(_map_from_arrays, [keys, values], pa.map_(keys.dtype.value_type, item))


def _map_from_arrays(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise ValueError("map_from_arrays(): both lists have the same number of items")
    return make_dict(keys, values)


def _bind_get_json(call: Call) -> TypedExpression:
    return call.make(find_json, [call.cast(0, STRING), call.cast(1, STRING)], STRING, may_be_null=True)


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_special(
        "size",
        "value ANY",
        "INT",
        _bind_size,
        "number of items of an ARRAY or MAP",
        aliases=("cardinality", "array_size"),
    ),
    define_special(
        "element_at",
        "value ANY, key ANY",
        "type of items",
        _bind_element_at(False),
        "item of an ARRAY, from 1; value of a MAP, or NULL",
    ),
    define_special(
        "try_element_at",
        "value ANY, key ANY",
        "type of items",
        _bind_element_at(True),
        "as element_at, NULL without the item",
    ),
    define_special("get", "array ARRAY, index INT", "type of items", _bind_get, "item of an ARRAY, from 0, or NULL"),
    define_special(
        "array_contains", "array ARRAY, item ANY", "BOOLEAN", _bind_contains, "whether an item is in a list"
    ),
    define_special(
        "array_position", "array ARRAY, item ANY", "BIGINT", _bind_position, "place of an item, from 1; 0 without it"
    ),
    define_special("array_remove", "array ARRAY, item ANY", "ARRAY", _bind_remove, "list without an item"),
    define_special(
        "array_distinct", "array ARRAY", "ARRAY", _bind_list_function(_distinct), "list with each item once"
    ),
    define_special("array_max", "array ARRAY", "type of items", _bind_extreme(_highest), "highest item"),
    define_special("array_min", "array ARRAY", "type of items", _bind_extreme(_lowest), "lowest item"),
    define_special(
        "sort_array", "array ARRAY[, ascending BOOLEAN]", "ARRAY", _bind_sort, "items in order, NULL lowest"
    ),
    define_special(
        "array_join", "array ARRAY, separator STRING[, instead STRING]", "STRING", _bind_join, "strings joined"
    ),
    define_special("slice", "array ARRAY, start INT, length INT", "ARRAY", _bind_slice, "part of a list"),
    define_special("flatten", "arrays ARRAY", "ARRAY", _bind_flatten, "items of lists in a list"),
    define_special(
        "array_union", "a ARRAY, b ARRAY", "ARRAY", _bind_set_operation(_union), "items of either, each once"
    ),
    define_special(
        "array_intersect", "a ARRAY, b ARRAY", "ARRAY", _bind_set_operation(_intersect), "items of both, each once"
    ),
    define_special(
        "array_except", "a ARRAY, b ARRAY", "ARRAY", _bind_set_operation(_except), "items of a only, each once"
    ),
    define_special(
        "arrays_overlap", "a ARRAY, b ARRAY", "BOOLEAN", _bind_set_operation(_overlap), "whether an item is in both"
    ),
    define_special("map_keys", "map MAP", "ARRAY", _bind_keys, "keys of a map"),
    define_special("map_values", "map MAP", "ARRAY", _bind_values, "values of a map"),
    define_special("map_contains_key", "map MAP, key ANY", "BOOLEAN", _bind_contains_key, "whether a map has a key"),
    define_special(
        "map_from_arrays", "keys ARRAY, values ARRAY", "MAP", _bind_map_from_arrays, "map of keys and values"
    ),
    define_special(
        "get_json_object",
        "text STRING, path STRING",
        "STRING",
        _bind_get_json,
        "part of a JSON text, such as `$.a[0].b`",
    ),
)
