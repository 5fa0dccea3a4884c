"""Scalar functions of Spark in DuckDB's SQL: numbers, conditions, lists, maps and structs."""

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import STRING, TIMESTAMP_LTZ, bound_decimal, describe_type, is_numeric
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import cast_text, convert_implicitly, raise_unless, with_name
from streamrt.sql.queries.duckdb_operators import compare, compute, unify
from streamrt.sql.queries.duckdb_types import TypedText, duckdb_type, quote
from streamrt.sql.queries.translation import Translation, as_double, as_integer, literal_integer, named, translates

__all__ = ["pick_field", "require_list", "require_map"]

_LARGEST = 9223372036854775807
_EXACT_DOUBLE = 4503599627370496
"""From here on, doubles have no fraction."""


def _number(c: Translation, node: exp.Expr) -> TypedText:
    value = c.scalar(node)
    if value.dtype == STRING:
        return convert_implicitly(value, pa.float64())
    if value.dtype == pa.null():
        return convert_implicitly(value, pa.float64())
    if not is_numeric(value.dtype):
        raise make_analysis_error(f"a number was expected, and this is a {describe_type(value.dtype)}", node)
    return value


@translates(exp.Abs)
def _abs(c: Translation, node: exp.Abs) -> TypedText:
    value = _number(c, node.this)
    return TypedText(f"abs({value.sql})", value.dtype)


@translates(exp.Neg)
def _negate(c: Translation, node: exp.Neg) -> TypedText:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        # The least BIGINT is a literal of its own, and Spark reads a negative number as one.
        negative = c.scalar(exp.Literal(this=f"-{node.this.name}", is_string=False))
        return TypedText(f"({negative.sql})", negative.dtype, negative.literal)
    value = c.scalar(node.this)
    if not is_numeric(value.dtype):
        value = _number(c, node.this)
    return TypedText(f"(-{value.sql})", value.dtype)


@translates(exp.Ceil, exp.Floor)
def _ceil(c: Translation, node: exp.Ceil | exp.Floor) -> TypedText:
    word = "ceil" if isinstance(node, exp.Ceil) else "floor"
    if node.args.get("decimals") is not None:
        raise make_refusal(f"{word}() has one argument in a query", node)
    value = _number(c, node.this)
    if pa.types.is_decimal(value.dtype):
        dtype = bound_decimal(value.dtype.precision - value.dtype.scale + 1, 0)
        return TypedText(f"CAST({word}({value.sql}) AS {duckdb_type(dtype)})", dtype)
    if not pa.types.is_floating(value.dtype):
        return TypedText(f"CAST({value.sql} AS BIGINT)", pa.int64())

    # Java casts NaN to 0, and numbers that are too large to the largest.
    def make(name: str) -> str:
        bounds = f"WHEN {name} >= {_LARGEST} THEN {_LARGEST} WHEN {name} < -{_LARGEST} THEN (-{_LARGEST} - 1)"
        return f"CASE WHEN isnan({name}) THEN 0 {bounds} ELSE CAST({word}({name}) AS BIGINT) END"

    return TypedText(f"CAST({with_name(value.sql, make)} AS BIGINT)", pa.int64())


@translates(exp.Round)
def _round(c: Translation, node: exp.Round) -> TypedText:
    value = _number(c, node.this)
    digits = node.args.get("decimals")
    places = 0 if digits is None else literal_integer(c.scalar(digits), digits, "the number of digits of round()")
    if not 0 <= places <= 15 or node.args.get("truncate") is not None:
        raise make_refusal("round() takes 0 to 15 digits behind the point in a query", node)
    if pa.types.is_integer(value.dtype):
        return value
    if pa.types.is_decimal(value.dtype):
        scale = min(places, value.dtype.scale)
        dtype = bound_decimal(value.dtype.precision - value.dtype.scale + 1 + scale, scale)
        return TypedText(f"CAST(round({value.sql}, {scale}) AS {duckdb_type(dtype)})", dtype)
    word = duckdb_type(value.dtype)

    def make(name: str) -> str:
        rounded = f"CAST(CAST(CAST({name} AS VARCHAR) AS DECIMAL(38, {places})) AS {word})"
        return f"CASE WHEN isfinite({name}) AND abs({name}) < {_EXACT_DOUBLE} THEN {rounded} ELSE {name} END"

    return TypedText(with_name(value.sql, make), value.dtype)


_DOUBLES: dict[type[exp.Expr], str] = {
    exp.Exp: "exp({})",
    exp.Cbrt: "cbrt({})",
    exp.Degrees: "degrees({})",
    exp.Radians: "radians({})",
    exp.Sin: "sin({})",
    exp.Cos: "cos({})",
    exp.Tan: "tan({})",
    exp.Atan: "atan({})",
    exp.Sign: "CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END",
    # DuckDB raises where Spark gives NaN or NULL.
    exp.Sqrt: "CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END",
    exp.Ln: "CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END",
}


def _double_function(c: Translation, node: exp.Func) -> TypedText:
    value = as_double(c.scalar(node.this), node.this)
    return TypedText(_DOUBLES[type(node)].format(value.sql), pa.float64())


translates(*_DOUBLES)(_double_function)


@translates(exp.Log)
def _log(c: Translation, node: exp.Log) -> TypedText:
    given = node.args.get("expression")
    if given is None:
        raise make_analysis_error("a logarithm needs a number", node)
    base, value = node.this, as_double(c.scalar(given), given)
    if base.name == "10":
        made = f"log10({value.sql})"
    elif base.name == "2":
        made = f"log2({value.sql})"
    else:
        raise make_refusal("log() takes the bases 2 and 10 in a query: divide ln() by ln()", node)
    return TypedText(f"CASE WHEN {value.sql} <= 0 THEN NULL ELSE {made} END", pa.float64())


@translates(exp.Pow)
def _power(c: Translation, node: exp.Pow) -> TypedText:
    base, exponent = (as_double(c.scalar(each), each) for each in (node.this, node.expression))
    return TypedText(f"pow({base.sql}, {exponent.sql})", pa.float64())


@translates(exp.Pi)
def _pi(c: Translation, node: exp.Pi) -> TypedText:
    return TypedText("pi()", pa.float64())


@named("mod", 2, 2)
def _mod(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    one, other = node.expressions
    return compute(exp.Mod(this=one.copy(), expression=other.copy()), values[0], values[1])


@named("equal_null", 2, 2)
def _equal_null(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    one, other = node.expressions
    return compare(exp.NullSafeEQ(this=one.copy(), expression=other.copy()), values[0], values[1])


@translates(exp.Grouping)
def _grouping(c: Translation, node: exp.Grouping) -> TypedText:
    if len(node.expressions) != 1:
        raise make_analysis_error("grouping() has one argument: a key of GROUP BY", node)
    return TypedText(f"CAST(grouping({c.scalar(node.expressions[0]).sql}) AS TINYINT)", pa.int8())


@translates(exp.GroupingId)
def _grouping_id(c: Translation, node: exp.GroupingId) -> TypedText:
    if not node.expressions:
        raise make_refusal("grouping_id() names keys of GROUP BY in a query", node)
    keys = ", ".join(c.scalar(each).sql for each in node.expressions)
    return TypedText(f"CAST(grouping({keys}) AS BIGINT)", pa.int64())


@named("pmod", 2, 2)
def _pmod(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    one, other = node.expressions
    rest = exp.Mod(this=one.copy(), expression=other.copy())
    inner = compute(rest, values[0], values[1])
    fitted = convert_implicitly(values[1], inner.dtype)
    made = with_name(
        inner.sql, lambda name: f"CASE WHEN {name} < 0 THEN ({name} + {fitted.sql}) % {fitted.sql} ELSE {name} END"
    )
    return TypedText(f"CAST({made} AS {duckdb_type(inner.dtype)})", inner.dtype)


@translates(exp.Greatest, exp.Least)
def _greatest(c: Translation, node: exp.Greatest | exp.Least) -> TypedText:
    word = "greatest" if isinstance(node, exp.Greatest) else "least"
    values, dtype = unify(
        [c.scalar(each) for each in [node.this, *node.expressions]], node, f"the arguments of {word}()"
    )
    return TypedText(f"{word}({', '.join(each.sql for each in values)})", dtype)


@translates(exp.Coalesce)
def _coalesce(c: Translation, node: exp.Coalesce) -> TypedText:
    values, dtype = unify(
        [c.scalar(each) for each in [node.this, *node.expressions]], node, "the arguments of coalesce()"
    )
    return TypedText(f"coalesce({', '.join(each.sql for each in values)})", dtype)


@translates(exp.Nullif)
def _nullif(c: Translation, node: exp.Nullif) -> TypedText:
    first = c.scalar(node.this)
    values, _ = unify([first, c.scalar(node.expression)], node, "the arguments of nullif()")
    return TypedText(f"CASE WHEN {values[0].sql} = {values[1].sql} THEN NULL ELSE {first.sql} END", first.dtype)


@translates(exp.Nvl2)
def _nvl2(c: Translation, node: exp.Nvl2) -> TypedText:
    value = c.scalar(node.this)
    branches = [c.scalar(node.args["true"]), c.scalar(node.args["false"])]
    (yes, no), dtype = unify(branches, node, "the values of nvl2()")
    return TypedText(f"CASE WHEN {value.sql} IS NOT NULL THEN {yes.sql} ELSE {no.sql} END", dtype)


@named("isnull", 1, 1)
def _isnull(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return TypedText(f"({values[0].sql} IS NULL)", pa.bool_())


@named("isnotnull", 1, 1)
def _isnotnull(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return TypedText(f"({values[0].sql} IS NOT NULL)", pa.bool_())


@translates(exp.IsNan)
def _isnan(c: Translation, node: exp.IsNan) -> TypedText:
    value = as_double(c.scalar(node.this), node.this)
    return TypedText(f"coalesce(isnan({value.sql}), FALSE)", pa.bool_())


@translates(exp.Nanvl)
def _nanvl(c: Translation, node: exp.Nanvl) -> TypedText:
    one, other = (as_double(c.scalar(each), each) for each in (node.this, node.expression))
    return TypedText(f"CASE WHEN isnan({one.sql}) THEN {other.sql} ELSE {one.sql} END", pa.float64())


@translates(exp.SafeDivide)
def _try_divide(c: Translation, node: exp.SafeDivide) -> TypedText:
    left, right = c.scalar(node.this), c.scalar(node.expression)
    divided = compute(exp.Div(this=node.this.copy(), expression=node.expression.copy()), left, right)
    return TypedText(f"CASE WHEN {right.sql} = 0 THEN NULL ELSE {divided.sql} END", divided.dtype)


for _name, _target in (
    *(("bigint", pa.int64()), ("smallint", pa.int16()), ("tinyint", pa.int8()), ("double", pa.float64())),
    *(("float", pa.float32()), ("boolean", pa.bool_()), ("int", pa.int32()), ("string", pa.string())),
):

    def _cast_by_name(
        c: Translation, node: exp.Anonymous, values: list[TypedText], target: pa.DataType = _target
    ) -> TypedText:
        return cast_text(values[0], target)

    named(_name, 1, 1)(_cast_by_name)


# Lists, maps and structs.


@translates(exp.Array)
def _array(c: Translation, node: exp.Array) -> TypedText:
    values, inner = unify([c.scalar(each) for each in node.expressions], node, "the elements of array()")
    made = f"[{', '.join(each.sql for each in values)}]"
    # DuckDB has no lists of NULL: those of a result are strings.
    return TypedText(f"CAST({made} AS VARCHAR[])" if inner == pa.null() else made, pa.list_(inner))


@translates(exp.VarMap)
def _map(c: Translation, node: exp.VarMap) -> TypedText:
    keys, values = (c.scalar(node.args.get(name) or exp.Array()) for name in ("keys", "values"))
    # Arrow has no keys of the type of NULL.
    key_type = pa.string() if keys.dtype.value_type == pa.null() else keys.dtype.value_type
    return TypedText(f"map({keys.sql}, {values.sql})", pa.map_(key_type, values.dtype.value_type))


@translates(exp.Struct)
def _struct(c: Translation, node: exp.Struct) -> TypedText:
    fields, parts = [], []
    for number, each in enumerate(node.expressions):
        if isinstance(each, exp.PropertyEQ):
            name, value = each.this.name, c.scalar(each.expression)
        else:
            name, value = f"col{number + 1}", c.scalar(each)
        parts.append(f"{quote(name)} := {value.sql}")
        fields.append(pa.field(name, value.dtype))
    return TypedText(f"struct_pack({', '.join(parts)})", pa.struct(fields))


@translates(exp.ArraySize)
def _size(c: Translation, node: exp.ArraySize) -> TypedText:
    value = c.scalar(node.this)
    if pa.types.is_map(value.dtype):
        return TypedText(f"CAST(cardinality({value.sql}) AS INTEGER)", pa.int32())
    if not pa.types.is_list(value.dtype):
        raise make_analysis_error(f"size() takes an ARRAY or a MAP, and this is a {describe_type(value.dtype)}", node)
    return TypedText(f"CAST(len({value.sql}) AS INTEGER)", pa.int32())


@named("cardinality", 1, 1)
def _cardinality(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return _size(c, exp.ArraySize(this=node.expressions[0]))


def require_list(c: Translation, node: exp.Expr, word: str) -> TypedText:
    """Return an argument that must be an ARRAY.

    Args:
        c: translates it.
        node: the argument.
        word: the call, for the error.
    """
    value = c.scalar(node)
    if not pa.types.is_list(value.dtype):
        raise make_analysis_error(f"{word} takes an ARRAY, and this is a {describe_type(value.dtype)}", node)
    return value


@translates(exp.ArrayContains)
def _array_contains(c: Translation, node: exp.ArrayContains) -> TypedText:
    value = require_list(c, node.this, "array_contains()")
    wanted = c.scalar(node.expression)
    (_, fitted), _dtype = unify(
        [TypedText("", value.dtype.value_type), wanted], node, "the arguments of array_contains()"
    )
    if fitted.dtype != value.dtype.value_type:
        raise make_refusal(
            f"array_contains() takes an element of the type {describe_type(value.dtype.value_type)}: cast it", node
        )

    # A list with NULL that does not contain the value contains it perhaps.
    def make(name: str) -> str:
        unknown = f"list_count({name}) < len({name})"
        found = f"WHEN list_contains({name}, {fitted.sql}) THEN TRUE"
        return f"CASE {found} WHEN {unknown} OR {fitted.sql} IS NULL THEN NULL ELSE FALSE END"

    made = with_name(value.sql, lambda name: f"CASE WHEN {name} IS NULL THEN NULL ELSE {make(name)} END")
    return TypedText(made, pa.bool_())


@translates(exp.ArrayDistinct)
def _array_distinct(c: Translation, node: exp.ArrayDistinct) -> TypedText:
    raise make_refusal("array_distinct() keeps the order in Spark, and not in DuckDB: use it in app.sql", node)


@translates(exp.ArraySort)
def _sort_array(c: Translation, node: exp.ArraySort) -> TypedText:
    value = require_list(c, node.this, "sort_array()")
    if node.args.get("expression") is not None:
        raise make_refusal("sort_array() and array_sort() have one argument in a query", node)
    nulls = "FIRST" if node.args.get("nulls_first") in (True, exp.true()) else "LAST"
    return TypedText(f"list_sort({value.sql}, 'ASC', 'NULLS {nulls}')", value.dtype)


@translates(exp.ArrayMax, exp.ArrayMin)
def _array_max(c: Translation, node: exp.ArrayMax | exp.ArrayMin) -> TypedText:
    word = "max" if isinstance(node, exp.ArrayMax) else "min"
    value = require_list(c, node.this, f"array_{word}()")
    return TypedText(f"list_{word}({value.sql})", value.dtype.value_type)


@translates(exp.ArrayToString)
def _array_join(c: Translation, node: exp.ArrayToString) -> TypedText:
    value = require_list(c, node.this, "array_join()")
    if value.dtype.value_type != STRING or node.args.get("null") is not None:
        raise make_refusal("array_join() takes an ARRAY<STRING> and a separator in a query", node)
    separator = c.scalar(node.expression)
    return TypedText(f"array_to_string({value.sql}, {separator.sql})", pa.string())


@translates(exp.MapKeys)
def _map_keys(c: Translation, node: exp.MapKeys) -> TypedText:
    value = require_map(c.scalar(node.this), node, "map_keys()")
    return TypedText(f"map_keys({value.sql})", pa.list_(value.dtype.key_type))


@named("map_values", 1, 1)
def _map_values(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    value = require_map(values[0], node, "map_values()")
    return TypedText(f"map_values({value.sql})", pa.list_(value.dtype.item_type))


def require_map(value: TypedText, node: exp.Expr, word: str) -> TypedText:
    """Return an argument that must be a MAP.

    Args:
        value: the argument.
        node: where it is.
        word: the call, for the error.
    """
    if not pa.types.is_map(value.dtype):
        raise make_analysis_error(f"{word} takes a MAP, and this is a {describe_type(value.dtype)}", node)
    return value


@translates(exp.Bracket)
def _bracket(c: Translation, node: exp.Bracket) -> TypedText:
    value, (place,) = c.scalar(node.this), node.expressions
    if pa.types.is_map(value.dtype):
        key = convert_implicitly(c.scalar(place), value.dtype.key_type)
        return TypedText(f"{value.sql}[{key.sql}]", value.dtype.item_type)
    if not pa.types.is_list(value.dtype):
        raise make_analysis_error(f"[] takes an ARRAY or a MAP, and this is a {describe_type(value.dtype)}", node)
    index = as_integer(c.scalar(place), place)
    is_element_at = node.args.get("offset") == 1
    least = (
        f"({index.sql} <> 0 AND abs({index.sql}) <= len({{}}))"
        if is_element_at
        else f"({index.sql} >= 0 AND {index.sql} < len({{}}))"
    )
    shown = index.sql if is_element_at else f"{index.sql} + 1"
    made = with_name(
        value.sql,
        lambda name: raise_unless(
            least.format(name), f"{name}[{shown}]", "an index is outside of its ARRAY: use try_element_at()"
        ),
    )
    return TypedText(made, value.dtype.value_type)


@named("try_element_at", 2, 2)
def _try_element_at(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    value, place = values
    if pa.types.is_map(value.dtype):
        return TypedText(f"{value.sql}[{convert_implicitly(place, value.dtype.key_type).sql}]", value.dtype.item_type)
    if not pa.types.is_list(value.dtype):
        raise make_analysis_error(
            f"try_element_at() takes an ARRAY or a MAP, and this is a {describe_type(value.dtype)}", node
        )
    return TypedText(f"{value.sql}[{as_integer(place, node).sql}]", value.dtype.value_type)


@translates(exp.Dot)
def _dot(c: Translation, node: exp.Dot) -> TypedText:
    value, name = c.scalar(node.this), node.expression.name
    return pick_field(value, name, node)


def pick_field(value: TypedText, name: str, node: exp.Expr) -> TypedText:
    """Return a field of a struct."""
    if not pa.types.is_struct(value.dtype):
        raise make_analysis_error(
            f"{name!r} is not a field: what is before the dot is a {describe_type(value.dtype)}", node
        )
    for field in value.dtype:
        if field.name.lower() == name.lower():
            return TypedText(f"struct_extract({value.sql}, '{field.name.replace(chr(39), chr(39) * 2)}')", field.type)
    fields = ", ".join(field.name for field in value.dtype)
    raise make_analysis_error(f"there is no field {name!r}; the fields are {fields}", node)


@translates(exp.CurrentTimestamp)
def _now(c: Translation, node: exp.Expr) -> TypedText:
    return TypedText("CAST(current_localtimestamp() AS TIMESTAMP)", TIMESTAMP_LTZ)


@named("now", 0, 0)
def _named_now(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return _now(c, node)


@translates(exp.CurrentDate)
def _today(c: Translation, node: exp.Expr) -> TypedText:
    return TypedText("CAST(current_localtimestamp() AS DATE)", pa.date32())
