r"""LIKE, and functions of regular expressions.

Expressions are those of Python, with the classes of ASCII that Java has: `\d` is `[0-9]`. What only Java has, such as
`\p{IsGreek}`, is an error when the text is read. Replacements have Java's form: `$1` is the first group.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from streamrt.operators.expression import Expression
from streamrt.sql.expressions.calls import Call, ScalarFunction, define_special
from streamrt.sql.expressions.coercion import BOOLEAN, INT, STRING
from streamrt.sql.expressions.nodes import Constant, Split, StrictNode, call_function, fold_constants, load, split_null
from streamrt.sql.expressions.typed import TypedExpression
from streamrt.topology import InlinedCode

__all__ = ["FUNCTIONS", "bind_like"]


@dataclass(frozen=True)
class Like(StrictNode):
    """`a LIKE 'b%'`, with a constant pattern."""

    operand: TypedExpression
    pattern: str
    escape: str = "\\"
    any_case: bool = False

    @property
    def dtype(self) -> pa.DataType:
        return BOOLEAN

    @property
    def nullable(self) -> bool:
        return self.operand.nullable

    def parts(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def split(self, code: InlinedCode) -> Split:
        return split_null(code, (self.operand,), lambda operands: self._test(code, operands[0]))

    def _test(self, code: InlinedCode, operand: ast.expr) -> ast.expr:
        literal = self.pattern.strip("%")
        if self.any_case or "_" in literal or "%" in literal or self.escape in self.pattern:
            match = call_function(code, _compile_like(self.pattern, self.escape, self.any_case).fullmatch, operand)
            return ast.Compare(match, [ast.IsNot()], [ast.Constant(None)])
        name = load(code.name_object(literal))
        first, last = self.pattern[:1] == "%", self.pattern[-1:] == "%"
        if first and last:
            return ast.Compare(name, [ast.In()], [operand])
        if not first and not last:
            return ast.Compare(operand, [ast.Eq()], [name])
        return ast.Call(ast.Attribute(operand, "endswith" if first else "startswith", ast.Load()), [name], [])

    def __str__(self) -> str:
        escape = "" if self.escape == "\\" else f" ESCAPE '{self.escape}'"
        pattern = self.pattern.replace("'", "''")
        return f"({self.operand} {'ILIKE' if self.any_case else 'LIKE'} '{pattern}'{escape})"


def bind_like(call: Call, escape: str = "\\", *, any_case: bool = False) -> TypedExpression:
    """Return the node of LIKE, or of ILIKE.

    Raises:
        SQLAnalysisError: if an operand is not a text, or the pattern ends within an escape.
    """
    operand, pattern = call.cast(0, STRING), call.cast(1, STRING)
    if not isinstance(pattern, Constant):
        return call.make(_like, [operand, pattern], BOOLEAN, options=(escape, any_case))
    if pattern.value is None:
        return Constant(None, BOOLEAN)
    try:
        _compile_like(pattern.value, escape, any_case)
    except ValueError as error:
        raise call.error(str(error), 1) from None
    return fold_constants(Like(operand, pattern.value, escape, any_case))


def _like(escape: str, any_case: bool, text: str, pattern: str) -> bool:
    return _compile_like(pattern, escape, any_case).fullmatch(text) is not None


@lru_cache(maxsize=1_000)
def _compile_like(pattern: str, escape: str, any_case: bool) -> re.Pattern[str]:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("%", "_", escape):
                raise ValueError("in a pattern of LIKE, the escape character stands before %, _, or itself")
            parts.append(re.escape(following))
        else:
            parts.append(".*" if character == "%" else "." if character == "_" else re.escape(character))
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if any_case else 0))


@lru_cache(maxsize=1_000)
def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        raise ValueError("the text is not a regular expression that Python knows") from None


def _check_pattern(call: Call, number: int = 1) -> None:
    argument = call.arguments[number]
    if isinstance(argument, Constant) and isinstance(argument.value, str):
        try:
            _compile(argument.value)
        except ValueError as error:
            raise call.error(f"{call.name}(): {error}", number) from None


def _define(
    name: str,
    signature: str,
    dtype: pa.DataType,
    function: Callable[..., Any],
    summary: str,
    *,
    aliases: tuple[str, ...] = (),
) -> ScalarFunction:
    def bind(call: Call) -> TypedExpression:
        _check_pattern(call)
        arguments = [call.cast(number, INT if number in numbers else STRING) for number in range(len(call.arguments))]
        return call.make(function, arguments, dtype)

    made = define_special(name, signature, _WORDS[dtype], bind, summary, aliases=aliases)
    numbers = [number for number, parameter in enumerate(made.parameters) if parameter.kind == "INT"]
    return made


_TEXTS: Final = pa.list_(pa.field("item", STRING, nullable=False))
_WORDS: Final = {BOOLEAN: "BOOLEAN", STRING: "STRING", INT: "INT", _TEXTS: "ARRAY"}


def _matches(text: str, pattern: str) -> bool:
    return _compile(pattern).search(text) is not None


def _extract(text: str, pattern: str, group: int = 1) -> str:
    compiled = _compile(pattern)
    _check_group(compiled, group)
    match = compiled.search(text)
    return "" if match is None else match[group] or ""


def _extract_all(text: str, pattern: str, group: int = 1) -> list[str]:
    compiled = _compile(pattern)
    _check_group(compiled, group)
    return [match[group] or "" for match in compiled.finditer(text)]


def _check_group(pattern: re.Pattern[str], group: int) -> None:
    if not 0 <= group <= pattern.groups:
        raise ValueError(f"the expression has the groups 0 to {pattern.groups}, and another number is asked for")


def _replace(text: str, pattern: str, replacement: str, start: int = 1) -> str:
    if start < 1:
        raise ValueError("regexp_replace(): a position is 1 or more")
    compiled = _compile(pattern)
    expand = _compile_replacement(replacement, compiled.groups)
    return text[: start - 1] + compiled.sub(expand, text[start - 1 :])


@lru_cache(maxsize=1_000)
def _compile_replacement(replacement: str, groups: int) -> Callable[[re.Match[str]], str]:
    parts: list[str | int] = []
    characters = list(replacement)
    place = 0
    while place < len(characters):
        character = characters[place]
        place += 1
        if character == "\\" and place < len(characters):
            parts.append(characters[place])
            place += 1
        elif character == "$":
            number, place = _read_group(characters, place, groups)
            parts.append(number)
        else:
            parts.append(character)
    if not any(isinstance(part, int) for part in parts):
        text = "".join(map(str, parts))
        return lambda match: text
    return lambda match: "".join(match[part] or "" if isinstance(part, int) else part for part in parts)


def _read_group(characters: list[str], place: int, groups: int) -> tuple[int, int]:
    """Read as many digits as there are groups for, as Java does."""
    if place >= len(characters) or characters[place] not in "0123456789" or int(characters[place]) > groups:
        raise ValueError("in a replacement, $ stands before the number of a group; write \\$ for itself")
    number, place = int(characters[place]), place + 1
    while place < len(characters) and characters[place] in "0123456789":
        longer = number * 10 + int(characters[place])
        if longer > groups:
            break
        number, place = longer, place + 1
    return number, place


def _count(text: str, pattern: str) -> int:
    return sum(1 for _ in _compile(pattern).finditer(text))


def _split(text: str, pattern: str, limit: int = -1) -> list[str]:
    if not pattern:
        characters = list(text) or [""]
        return characters[:limit] if limit > 0 else characters
    parts: list[str] = []
    begin = 0
    for match in _compile(pattern).finditer(text):
        if limit > 0 and len(parts) == limit - 1:
            break
        if not match.end():
            continue
        parts.append(text[begin : match.start()])
        begin = match.end()
    return [*parts, text[begin:]]


FUNCTIONS: Final[tuple[ScalarFunction, ...]] = (
    define_special(
        "like", "text STRING, pattern STRING", "BOOLEAN", bind_like, "whether a pattern with % and _ matches"
    ),
    define_special(
        "ilike",
        "text STRING, pattern STRING",
        "BOOLEAN",
        lambda call: bind_like(call, any_case=True),
        "as like, in upper or lower case",
    ),
    _define(
        "rlike",
        "text STRING, pattern STRING",
        BOOLEAN,
        _matches,
        "whether a regular expression is found",
        aliases=("regexp", "regexp_like"),
    ),
    _define(
        "regexp_extract",
        "text STRING, pattern STRING[, group INT]",
        STRING,
        _extract,
        "group of the first match; empty without one",
    ),
    _define(
        "regexp_extract_all", "text STRING, pattern STRING[, group INT]", _TEXTS, _extract_all, "group of each match"
    ),
    _define(
        "regexp_replace",
        "text STRING, pattern STRING, replacement STRING[, start INT]",
        STRING,
        _replace,
        "text with matches replaced; $1 is a group",
    ),
    _define("regexp_count", "text STRING, pattern STRING", INT, _count, "number of matches"),
    _define("split", "text STRING, pattern STRING[, limit INT]", _TEXTS, _split, "parts between matches"),
)
