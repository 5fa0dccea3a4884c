"""Functions of numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from streamrt.sql.expressions.arithmetic import WIDE, raise_overflow, round_decimal, round_to_float, zero_of
from streamrt.sql.expressions.calls import Call, define_special, define_strict
from streamrt.sql.expressions.coercion import (
    BIGINT,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    STRING,
    bound_decimal,
    describe_type,
    is_integral,
    is_numeric,
)
from streamrt.sql.expressions.nodes import ColumnReference
from streamrt.sql.expressions.operators import bind_arithmetic, prepare_numbers
from streamrt.sql.expressions.typed import TypedExpression

__all__ = ["FUNCTIONS"]


def _number(call: Call, number: int = 0) -> TypedExpression:
    """Return an argument that is a number; strings and NULL become DOUBLE."""
    argument = call.arguments[number]
    if argument.dtype in (STRING, NULL):
        return call.cast(number, DOUBLE)
    if not is_numeric(argument.dtype):
        raise call.misfit(number, "a number")
    return argument


# abs, sign, ceil, floor, round.


def _bind_abs(call: Call) -> TypedExpression:
    argument = _number(call)
    dtype = argument.dtype
    if is_integral(dtype):
        return call.make(_abs_integer, [argument], dtype, options=(dtype.bit_width, describe_type(dtype)))
    return call.make(WIDE.abs if types.is_decimal128(dtype) else abs, [argument], dtype)


def _abs_integer(bits: int, word: str, number: int) -> int:
    return abs(number) if abs(number) >> (bits - 1) == 0 else raise_overflow("abs()", word)


def _sign(number: float) -> float:
    # The sign of -0.0 is -0.0, and that of NaN is NaN.
    return float((number > 0) - (number < 0)) if number < 0 or number > 0 else number


def _bind_integral(floor: bool) -> Callable[[Call], TypedExpression]:
    rounding = ROUND_FLOOR if floor else ROUND_CEILING
    function = _floor if floor else _ceil

    def bind(call: Call) -> TypedExpression:
        argument = _number(call)
        dtype = argument.dtype
        if types.is_decimal128(dtype):
            result = bound_decimal(dtype.precision - dtype.scale + 1, 0)
            return call.make(_round_to_integral, [argument], result, options=(rounding,))
        if is_integral(dtype):
            return call.cast(0, BIGINT)
        return call.make(function, [argument], BIGINT)

    return bind


def _round_to_integral(rounding: str, number: Decimal) -> Decimal:
    rounded = number.quantize(Decimal(1), rounding, WIDE)
    return rounded if rounded else rounded.copy_abs()


def _floor(number: float) -> int:
    return _fit_bigint(number, math.floor)


def _ceil(number: float) -> int:
    return _fit_bigint(number, math.ceil)


def _fit_bigint(number: float, make: Callable[[float], int]) -> int:
    # Java converts what a BIGINT cannot hold to its bounds, and NaN to 0.
    if number != number:
        return 0
    if math.isinf(number):
        return _BIGGEST if number > 0 else ~_BIGGEST
    return max(min(make(number), _BIGGEST), ~_BIGGEST)


_BIGGEST: Final = (1 << 63) - 1


def _bind_round(rounding: str) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        argument = _number(call)
        places = call.constant(1, INT, "the number of digits") if len(call.arguments) > 1 else 0
        dtype = argument.dtype
        if types.is_decimal128(dtype):
            return _bind_round_decimal(call, argument, places, rounding)
        if is_integral(dtype):
            if places >= 0:
                return argument
            options: tuple[Any, ...] = (places, rounding, dtype.bit_width, describe_type(dtype))
            return call.make(_round_integer, [argument], dtype, options=options)
        return call.make(_round_float, [argument], dtype, options=(places, rounding, bool(dtype == FLOAT)))

    return bind


def _bind_round_decimal(call: Call, argument: TypedExpression, places: int, rounding: str) -> TypedExpression:
    precision, scale = argument.dtype.precision, argument.dtype.scale
    before = precision - scale + 1
    if places < 0:
        # Rounding may add a digit, and needs as many as it rounds off.
        dtype = bound_decimal(max(before, -places + 1), 0)
    else:
        kept = min(scale, places)
        dtype = pa.decimal128(min(before + kept, 38), kept)
    return call.make(_round_decimal, [argument], dtype, options=(places, rounding, dtype.precision, dtype.scale))


def _round_decimal(places: int, rounding: str, precision: int, scale: int, number: Decimal) -> Decimal:
    rounded = number.quantize(Decimal(1).scaleb(-min(places, scale)), rounding, WIDE) if places < 0 else number
    if places >= 0:
        rounded = number.quantize(zero_of(scale), rounding, WIDE)
    return round_decimal(rounded, precision, scale, "round()")


def _round_integer(places: int, rounding: str, bits: int, word: str, number: int) -> int:
    rounded = int(Decimal(number).quantize(Decimal(1).scaleb(-places), rounding, WIDE))
    return rounded if -(1 << (bits - 1)) <= rounded < 1 << (bits - 1) else raise_overflow("round()", word)


def _round_float(places: int, rounding: str, single: bool, number: float) -> float:
    if not math.isfinite(number):
        return number
    exact = Decimal(number) if single else Decimal(repr(number))
    if places <= 400 and exact.as_tuple().exponent < -places:  # type: ignore[operator]  # it is finite
        rounded = float(exact.quantize(Decimal(1).scaleb(-places), rounding, _LONG))
        number = round_to_float(rounded) if single else rounded
    # Java's BigDecimal has no negative zero.
    return number if number else 0.0


_LONG: Final = WIDE.copy()
_LONG.prec = 800


# Remainders and divisions.


def _bind_operator(symbol: str) -> Callable[[Call], TypedExpression]:
    return lambda call: bind_arithmetic(symbol, call.arguments[0], call.arguments[1], call.node)


def _bind_pmod(call: Call) -> TypedExpression:
    left, right, dtype = prepare_numbers("%", call.arguments[0], call.arguments[1], call.node)
    if types.is_decimal128(dtype):
        return call.make(_positive_decimal, [left, right], dtype)
    if is_integral(dtype):
        return call.make(_positive_integer, [left, right], dtype, options=(max(32, dtype.bit_width),))
    return call.make(_positive_float, [left, right], dtype)


def _positive_integer(bits: int, a: int, b: int) -> int:
    if not b:
        raise ZeroDivisionError(_NO_REMAINDER)
    # Java's remainder has the sign of the dividend.
    rest = abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))
    if rest >= 0:
        return rest
    # Java's sum may pass the lowest integer, and goes on at the highest one.
    rest = (rest + b + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return rest % abs(b) if rest >= 0 else -(-rest % abs(b))


def _positive_float(a: float, b: float) -> float:
    if not b:
        raise ZeroDivisionError(_NO_REMAINDER)
    if math.isinf(a) or a != a or b != b:
        return math.nan
    rest = math.fmod(a, b)
    return math.fmod(rest + b, b) if rest < 0 else rest


def _positive_decimal(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise ZeroDivisionError(_NO_REMAINDER)
    rest = WIDE.remainder(a, b)
    if rest < 0:
        rest = WIDE.remainder(WIDE.add(rest, b), b)
    return rest if rest else rest.copy_abs()


_NO_REMAINDER: Final = "a division by zero has no remainder; write pmod(a, nullif(b, 0))"


@dataclass(frozen=True)
class _TryArithmetic:
    """An operation on two values that is NULL where it fails."""

    symbol: str
    left: pa.DataType
    right: pa.DataType

    def __call__(self, a: Any, b: Any) -> Any:
        run = _compiled(self)
        try:
            return run({"a": a, "b": b}, None, 0, None)
        except ArithmeticError:
            return None


def _compiled(operation: _TryArithmetic) -> Callable[..., Any]:
    run = _COMPILED.get(operation)
    if run is None:
        operands = (ColumnReference("a", operation.left, False), ColumnReference("b", operation.right, False))
        run = _COMPILED[operation] = bind_arithmetic(operation.symbol, *operands, None).compile()
    return run


_COMPILED: dict[_TryArithmetic, Callable[..., Any]] = {}


def _bind_try(symbol: str) -> Callable[[Call], TypedExpression]:
    def bind(call: Call) -> TypedExpression:
        whole = bind_arithmetic(symbol, call.arguments[0], call.arguments[1], call.node)
        function = _TryArithmetic(symbol, call.arguments[0].dtype, call.arguments[1].dtype)
        return call.make(function, call.arguments, whole.dtype, may_be_null=True)

    return bind


# Logarithms, powers, angles.


def _log(number: float, log: Callable[[float], float], lowest: float = 0.0) -> float | None:
    if number <= lowest:
        return None
    return log(number)


def _ln(number: float) -> float | None:
    return _log(number, math.log)


def _log10(number: float) -> float | None:
    return _log(number, math.log10)


def _log2(number: float) -> float | None:
    return _log(number, math.log2)


def _log1p(number: float) -> float | None:
    return _log(number, math.log1p, -1.0)


def _log_of(base: float, number: float | None = None) -> float | None:
    if number is None:
        return _ln(base)
    if base <= 0 or number <= 0:
        return None
    divisor, dividend = math.log(base), math.log(number)
    if not divisor:
        return math.nan if not dividend or dividend != dividend else math.copysign(math.inf, dividend)
    return dividend / divisor


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _expm1(number: float) -> float:
    try:
        return math.expm1(number)
    except OverflowError:
        return math.inf


def _power(base: float, exponent: float) -> float:
    if (base in (1.0, -1.0) and not math.isfinite(exponent)) or (base != base and exponent) or exponent != exponent:
        return math.nan
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        # Zero to a negative power is infinite; a negative number to a power with a fraction is none.
        if base == 0:
            return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
        return math.nan


def _sqrt(number: float) -> float:
    return math.sqrt(number) if number >= 0 else math.nan


def _cbrt(number: float) -> float:
    if not math.isfinite(number) or not number:
        return number
    fraction, exponent = math.frexp(number)
    power, rest = divmod(exponent, 3)
    scaled = math.ldexp(fraction, rest)
    root = math.copysign(abs(scaled) ** (1 / 3), number)
    # One step of Newton's method: the power is not exact.
    return math.ldexp(root - (root * root * root - scaled) / (3 * root * root), power)


class _Total:
    """A function of floats that is NaN where Python's raises ValueError, and infinite where it overflows."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self._function = function

    def __call__(self, number: float) -> float:
        try:
            return self._function(number)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Total) and other._function == self._function

    def __hash__(self) -> int:
        return hash(self._function)


def _atan2(y: float, x: float) -> float:
    # Spark knows no -0.0 here.
    return math.atan2(y + 0.0, x + 0.0)


def _pi() -> float:
    return math.pi


def _e() -> float:
    return math.e


def _sinh(number: float) -> float:
    try:
        return math.sinh(number)
    except OverflowError:
        return math.copysign(math.inf, number)


_FLOATS: Final = (
    ("sqrt", _sqrt, "square root; NaN below 0"),
    ("cbrt", _cbrt, "cube root"),
    ("exp", _exp, "e to a power"),
    ("expm1", _expm1, "e to a power, less 1"),
    ("sin", _Total(math.sin), "sine of an angle in radians"),
    ("cos", _Total(math.cos), "cosine"),
    ("tan", _Total(math.tan), "tangent"),
    ("asin", _Total(math.asin), "arc sine"),
    ("acos", _Total(math.acos), "arc cosine"),
    ("atan", math.atan, "arc tangent"),
    ("sinh", _sinh, "hyperbolic sine"),
    ("cosh", _Total(math.cosh), "hyperbolic cosine"),
    ("tanh", math.tanh, "hyperbolic tangent"),
    ("degrees", math.degrees, "radians as degrees"),
    ("radians", math.radians, "degrees as radians"),
)

FUNCTIONS: Final = (
    define_special("abs", "number NUMBER", "type of the number", _bind_abs, "number without its sign"),
    define_strict("sign", "number DOUBLE", "DOUBLE", _sign, "-1, 0 or 1", aliases=("signum",)),
    define_special(
        "ceil",
        "number NUMBER",
        "BIGINT, or DECIMAL",
        _bind_integral(False),
        "lowest integer not below",
        aliases=("ceiling",),
    ),
    define_special("floor", "number NUMBER", "BIGINT, or DECIMAL", _bind_integral(True), "highest integer not above"),
    define_special(
        "round", "number NUMBER[, digits INT]", "as the number", _bind_round(ROUND_HALF_UP), "number with fewer digits"
    ),
    define_special(
        "bround",
        "number NUMBER[, digits INT]",
        "as the number",
        _bind_round(ROUND_HALF_EVEN),
        "as round, halves to even",
    ),
    define_special("mod", "a NUMBER, b NUMBER", "as a % b", _bind_operator("%"), "remainder, with the sign of a"),
    define_special("pmod", "a NUMBER, b NUMBER", "as a % b", _bind_pmod, "remainder that is not negative"),
    define_special("try_add", "a NUMBER, b NUMBER", "as a + b", _bind_try("+"), "a + b, or NULL if it fails"),
    define_special("try_subtract", "a NUMBER, b NUMBER", "as a - b", _bind_try("-"), "a - b, or NULL if it fails"),
    define_special("try_multiply", "a NUMBER, b NUMBER", "as a * b", _bind_try("*"), "a * b, or NULL if it fails"),
    define_special("try_divide", "a NUMBER, b NUMBER", "as a / b", _bind_try("/"), "a / b, or NULL if it fails"),
    define_special("try_mod", "a NUMBER, b NUMBER", "as a % b", _bind_try("%"), "a % b, or NULL if it fails"),
    define_strict("ln", "number DOUBLE", "DOUBLE", _ln, "natural logarithm; NULL up to 0", may_be_null=True),
    define_strict("log10", "number DOUBLE", "DOUBLE", _log10, "logarithm to base 10; NULL up to 0", may_be_null=True),
    define_strict("log2", "number DOUBLE", "DOUBLE", _log2, "logarithm to base 2; NULL up to 0", may_be_null=True),
    define_strict("log1p", "number DOUBLE", "DOUBLE", _log1p, "ln(number + 1); NULL up to -1", may_be_null=True),
    define_strict(
        "log",
        "base DOUBLE[, number DOUBLE]",
        "DOUBLE",
        _log_of,
        "logarithm to a base; of one argument, ln",
        may_be_null=True,
    ),
    define_strict("power", "base DOUBLE, exponent DOUBLE", "DOUBLE", _power, "power", aliases=("pow",)),
    *(define_strict(name, "number DOUBLE", "DOUBLE", function, summary) for name, function, summary in _FLOATS),
    define_strict("atan2", "y DOUBLE, x DOUBLE", "DOUBLE", _atan2, "angle of a point"),
    define_strict("pi", "", "DOUBLE", _pi, "3.14159..."),
    define_strict("e", "", "DOUBLE", _e, "2.71828..."),
)
