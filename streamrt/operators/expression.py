"""Column expressions, such as `sdf["a"] + 1 > sdf["b"]`.

An expression is a tree of frozen nodes. It becomes one line of the code of its operator, however large the tree is. The
semantics are those of Python's operators: `&` and `|` become `and` and `or` (short-circuit, the result is an operand), `~`
becomes `not`. All user input, including column names, enters the generated code as variables, never as text.
"""

import abc
import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from streamrt.errors import ColumnTypeError, MissingColumnError
from streamrt.operators.functions import function_name, with_state
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.topology import GENERATED_FILE, InlinedCode, OperatorContext

Evaluator = Callable[[Any, Any, int, "Headers | None"], Any]
_ARITHMETIC: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "**": ast.Pow,
}
_LOGIC: dict[str, type[ast.boolop]] = {"and": ast.And, "or": ast.Or}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "in": ast.In,
    "is": ast.Is,
    "is not": ast.IsNot,
}
_PREFIXES: dict[str, type[ast.unaryop]] = {"-": ast.USub, "not": ast.Not}
_EVALUATE = """
try:
    result = {evaluation}
except {failures} as error:
    better = {explain}(error, value)
    if better is None:
        raise
    raise better from error
"""
_EVALUATOR = """
def run(value, key, timestamp, headers{parameters}):
{lines}
    return result
"""
_FAILURES = (KeyError, TypeError, IndexError)
_PLAIN_TYPES = frozenset((str, bytes, int, float, bool, type(None)))


class Expression(abc.ABC):
    """A value computed from a record."""

    @abc.abstractmethod
    def code(self, code: InlinedCode) -> ast.expr:
        """Return a syntax tree that uses value, key, timestamp, headers and the names in `code`."""

    def parts(self) -> tuple["Expression", ...]:
        """Return the sub-expressions, in the order of evaluation."""
        return ()

    def stores(self) -> tuple[StoreSpec, ...]:
        """Return the stores of the stateful functions in this expression."""
        return tuple(dict.fromkeys(store for part in self.parts() for store in part.stores()))

    def is_plain(self) -> bool:
        """Return whether only Python's operators see the value, and no functions or objects of users."""
        return all(part.is_plain() for part in self.parts())

    def compile(self, context: OperatorContext | None = None, parameters: Sequence[str] = ()) -> Evaluator:
        """Return the function that evaluates this expression for a record.

        The function raises `MissingColumnError` or `ColumnTypeError` if a column cannot be read.

        Args:
            context: gives state to stateful functions; not needed without them.
            parameters: further names that the code of this expression uses, whose values the function takes last.
        """
        code = InlinedCode(context)
        self.add_evaluation(code)
        further = "".join(f", {name}" for name in parameters)
        run: Evaluator = code.define(_EVALUATOR.format(lines=code.indent_lines(1), parameters=further))["run"]
        return run

    def add_evaluation(self, code: InlinedCode) -> None:
        """Add the lines that bind `result` to this expression of a record."""
        code.is_plain = code.is_plain and self.is_plain()
        evaluation = ast.unparse(self.code(code))
        failures, explain = code.name_object(_FAILURES), code.name_object(self._explain_error)
        code.add_lines(_EVALUATE.format(evaluation=evaluation, failures=failures, explain=explain))

    def _explain_error(self, error: Exception, value: Any) -> Exception | None:
        if not _raised_in_expression(error.__traceback__):
            return None
        for column in self._columns():
            better = column.fault(error, value)
            if better is not None:
                return better
        return None

    def _columns(self) -> Iterator["Column"]:
        for part in self.parts():
            yield from part._columns()


@dataclass(frozen=True)
class Column(Expression):
    """A column of the value, or with `parent` an item of another expression."""

    name: Any
    parent: Expression | None = None

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        parent = _load_name("value") if self.parent is None else self.parent.code(code)
        return ast.Subscript(parent, _name_item(code, self.name), ast.Load())

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return () if self.parent is None else (self.parent,)

    def _columns(self) -> Iterator["Column"]:
        yield from super()._columns()
        yield self

    def fault(self, error: Exception, value: Any) -> Exception | None:
        """Return a clearer error if this column could not be read."""
        path = self._find_path()
        if path is None:
            return None
        for name in path[:-1]:
            try:
                value = value[name]
            except (KeyError, TypeError, IndexError):
                return None
        try:
            value[path[-1]]
        except KeyError as again:
            if isinstance(error, KeyError) and again.args == error.args:
                return MissingColumnError(path[-1], tuple(value) if hasattr(value, "keys") else ())
        except (TypeError, IndexError) as again:
            # Compare the messages: the error may come from another operator, before this column was read.
            if type(again) is type(error) and again.args == error.args:
                return ColumnTypeError(f"cannot read column {self}: {without_columns(value, nested=len(path) > 1)}")
        return None

    def _find_path(self) -> list[Any] | None:
        if self.parent is None:
            return [self.name]
        above = self.parent._find_path() if isinstance(self.parent, Column) else None
        return None if above is None else [*above, self.name]

    def __str__(self) -> str:
        return str(self.name) if self.parent is None else f"{self.parent}.{self.name}"


@dataclass(frozen=True)
class Literal(Expression):
    """A constant."""

    constant: Any

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return _name_item(code, self.constant)

    def is_plain(self) -> bool:  # noqa: D102
        return type(self.constant) in _PLAIN_TYPES

    def __str__(self) -> str:
        return repr(self.constant)


@dataclass(frozen=True)
class Binary(Expression):
    """Two expressions combined by one of Python's infix operators."""

    symbol: str
    left: Expression
    right: Expression

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        left, right = self.left.code(code), self.right.code(code)
        if self.symbol in _ARITHMETIC:
            return ast.BinOp(left, _ARITHMETIC[self.symbol](), right)
        if self.symbol in _LOGIC:
            return ast.BoolOp(_LOGIC[self.symbol](), [left, right])
        return ast.Compare(left, [_COMPARISONS[self.symbol]()], [right])

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.left, self.right

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


@dataclass(frozen=True)
class Unary(Expression):
    """One of Python's prefix operators, applied to an expression."""

    symbol: str
    operand: Expression

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return ast.UnaryOp(_PREFIXES[self.symbol](), self.operand.code(code))

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.operand,)

    def __str__(self) -> str:
        return f"({self.symbol} {self.operand})"


@dataclass(frozen=True)
class Call(Expression):
    """A function, applied to the results of other expressions."""

    function: Callable[..., Any]
    arguments: tuple[Expression, ...]

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return ast.Call(_name_item(code, self.function), [argument.code(code) for argument in self.arguments], [])

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return self.arguments

    def is_plain(self) -> bool:  # noqa: D102
        return False

    def __str__(self) -> str:
        return f"{function_name(self.function)}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Input(Expression):
    """The value itself, or one of key, timestamp and headers."""

    name: str = "value"

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        return _load_name(self.name)

    def __str__(self) -> str:
        return self.name


METADATA = (Input("key"), Input("timestamp"), Input("headers"))


@dataclass(frozen=True)
class StatefulCall(Expression):
    """A function of the result of another expression, with `metadata` of key, timestamp and headers, and of a `State`."""

    function: Callable[..., Any]
    argument: Expression
    metadata: bool
    store: StoreSpec

    def code(self, code: InlinedCode) -> ast.expr:  # noqa: D102
        if code.context is None:
            raise ValueError(f"an expression with state in store {self.store.name!r} is compiled without a context")
        call = with_state(self.function, self.metadata, code.context.state(self.store))
        return ast.Call(_name_item(code, call), [each.code(code) for each in (self.argument, *METADATA)], [])

    def parts(self) -> tuple[Expression, ...]:  # noqa: D102
        return (self.argument, *METADATA) if self.metadata else (self.argument,)

    def is_plain(self) -> bool:  # noqa: D102
        return False

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (*super().stores(), self.store)

    def __str__(self) -> str:
        return f"{function_name(self.function)}({', '.join(map(str, self.parts()))}, state)"


def without_columns(value: Any, *, nested: bool = False) -> str:
    """Return the type of a value without columns, for errors.

    Args:
        value: the value.
        nested: whether it is itself a column of a value.

    Example:
        >>> without_columns(5)
        'the value is of type int'
    """
    text = f"the value is of type {type(value).__name__}"
    if value is None and not nested:
        text += (
            ", as that of a tombstone; drop such records, for example with sdf.filter(lambda value: value is not None)"
        )
    return text


def has_columns(value: Any, *columns: Any) -> bool:
    """Return whether the value has all of these columns.

    Raises:
        ColumnTypeError: if the value is not a container.
    """
    for column in columns:
        try:
            if column not in value:
                return False
        except TypeError as error:
            raise ColumnTypeError(f"cannot look for column {column!r}: {without_columns(value)}") from error
    return True


def _load_name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _name_item(code: InlinedCode, item: Any) -> ast.expr:
    return _load_name(code.name_object(item))


def _raised_in_expression(traceback: TracebackType | None) -> bool:
    """Return whether the innermost frame is generated code, so that errors inside users' functions stay unchanged."""
    filename = ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        traceback = traceback.tb_next
    return filename == GENERATED_FILE
