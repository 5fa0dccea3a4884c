"""The dialect: Spark's, and what it lacks.

`window(at, '1 hour')` anywhere, also after a join, where it begins no WINDOW clause; `TABLE(TUMBLE(TABLE bids, ...))`;
`:name` for parameters, and `{frame}` for frames.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from streamrt.errors import SQLSyntaxError
from streamrt.schema.quiet import quiet_sqlglot
from streamrt.sql.expressions.positions import position_of
from streamrt.sql.reading.lambdas import mark_parameters

__all__ = ["StreamSQL", "parse_tokens", "read_tokens", "syntax_error_at"]

LONGEST_TEXT = 200_000
"""Characters in a program."""

DEEPEST_NODE = 150
"""Levels of a tree. What is computed of a tree calls itself for each level, and Python allows 1,000 of them."""

_KEPT_FUNCTIONS = """
    any_value approx_count_distinct array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set corr count
    count_if covar_pop covar_samp first first_value group_concat grouping grouping_id kurtosis last last_value max max_by
    median min min_by mode regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness stddev stddev_pop stddev_samp sum var_pop var_samp variance
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    explode explode_outer inline posexplode posexplode_outer stack unnest
    array coalesce ifnull map map_from_arrays named_struct nullif nvl nvl2 struct
""".upper().split()
_PLAIN_FUNCTIONS = ("CEIL", "CHAR", "CHR", "CONVERT", "DECODE", "FLOOR", "INITCAP", "NORMALIZE")
_WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_BRACKETS = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_MOST_BRACKETS = 60


class StreamSQL(Spark):
    """Spark's dialect, with what StreamRT adds to it; `read_tokens` prepares its words.

    Scalar functions are `exp.Anonymous`: their names and arguments as they are written, where sqlglot has another form for
    many of them. Aggregates, functions of windows and of rows, constructors, and conditions keep their nodes.
    """

    class Tokenizer(Spark.Tokenizer):
        """Reads two quotes within a text as one."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']

    class Parser(SparkParser):
        """Reads CAST as one that fails, as in ANSI mode, and leaves scalar functions as they are written."""

        STRICT_CAST = True
        FUNCTIONS: ClassVar = {
            **{name: SparkParser.FUNCTIONS[name] for name in _KEPT_FUNCTIONS},
            "EVERY": exp.LogicalAnd.from_arg_list,
            "SOME": exp.LogicalOr.from_arg_list,
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name not in _PLAIN_FUNCTIONS
        }
        # TRANSFORM (...) USING of Hive runs programs.
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name != "TRANSFORM"
        }


def read_tokens(text: str) -> list[Token]:
    """Return the words of a text.

    Args:
        text: the text.

    Raises:
        SQLSyntaxError: if a quote or a comment has no end, or the text is too long.
    """
    if len(text) > LONGEST_TEXT:
        raise SQLSyntaxError(f"a text of SQL has at most {LONGEST_TEXT:,} characters, and this one has {len(text):,}")
    try:
        with quiet_sqlglot():
            tokens = sqlglot.tokenize(text, dialect=StreamSQL)
    except TokenError as error:
        raise _unfinished(text, error) from None
    return _prepare(tokens, text)


def _unfinished(text: str, error: TokenError) -> SQLSyntaxError:
    """Return the error for a text whose words cannot be told apart."""
    place = re.search(r"from (\d+):(\d+)", str(error))
    line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, 1)
    return SQLSyntaxError("a quote or a comment that begins here has no end", line, column)


def _prepare(tokens: Sequence[Token], text: str) -> list[Token]:
    prepared: list[Token] = []
    depth = 0
    for number, token in enumerate(tokens):
        depth += _BRACKETS.get(token.token_type, 0)
        if depth > _MOST_BRACKETS:
            raise syntax_error_at(text, token, f"parentheses are nested more than {_MOST_BRACKETS} deep")
        if token.token_type == TokenType.WINDOW and not _begins_clause(tokens, number):
            token = _renamed(token, TokenType.VAR)
        if token.text.upper() == "SESSION" and _opens(tokens, number + 1):
            token = _renamed(token, TokenType.VAR)
        if token.token_type == TokenType.TABLE and _is_argument(tokens, number):
            continue
        prepared.append(token)
    return prepared


def _opens(tokens: Sequence[Token], number: int) -> bool:
    """Return whether a token is a parenthesis that opens."""
    return number < len(tokens) and tokens[number].token_type == TokenType.L_PAREN


def _begins_clause(tokens: Sequence[Token], number: int) -> bool:
    """Return whether WINDOW begins the clause that names windows: `WINDOW w AS (...)`."""
    return number + 2 < len(tokens) and tokens[number + 2].token_type == TokenType.ALIAS


def _is_argument(tokens: Sequence[Token], number: int) -> bool:
    """Return whether TABLE stands before the first argument of a function of windows: `TUMBLE(TABLE bids, ...)`."""
    before = number - 1
    while before >= 1 and tokens[before].token_type in (TokenType.FARROW, TokenType.VAR):
        before -= 1  # DATA => TABLE bids
    if before < 1 or tokens[before].token_type != TokenType.L_PAREN:
        return False
    return tokens[before - 1].text.upper() in _WINDOW_FUNCTIONS


def _renamed(token: Token, kind: TokenType) -> Token:
    return Token(
        kind,
        token.text,
        line=token.line,
        col=token.col,
        start=token.start,
        end=token.end,
        comments=token.comments,
    )


def parse_tokens(tokens: list[Token], text: str) -> exp.Expr:
    """Return the tree of the words of one statement.

    Args:
        tokens: the words; at least one.
        text: the text that they are from.

    Raises:
        SQLSyntaxError: if they make no statement.
    """
    try:
        with quiet_sqlglot():
            trees = StreamSQL().parser().parse(tokens, text)
            tree = trees[0]
            if len(trees) != 1 or tree is None:
                raise syntax_error_at(text, tokens[0], "one statement was expected")
    except ParseError as error:
        raise _from_sqlglot(text, error, tokens) from None
    except SqlglotError as error:
        raise syntax_error_at(text, tokens[0], str(error)) from None
    except IndexError:
        # Of functions that sqlglot builds, such as map().
        raise syntax_error_at(text, tokens[0], "a function of this statement has too few arguments") from None
    except RecursionError:
        raise syntax_error_at(text, tokens[0], "expressions of this statement are nested too deeply") from None
    _require_shallow(tree)
    _make_queries(tree)
    _flatten_joins(tree)
    mark_parameters(tree)
    return tree


def _flatten_joins(tree: exp.Expr) -> None:
    """Let FROM (a JOIN b) JOIN c be FROM a JOIN b JOIN c."""
    for source in list(tree.find_all(exp.From)):
        inner = source.this
        while isinstance(inner, exp.Subquery) and not inner.alias and isinstance(inner.this, exp.Table | exp.Subquery):
            inner = inner.this
        joins = inner.args.get("joins") or []
        if joins and inner is not source.this and source.parent is not None:
            inner.set("joins", None)
            source.set("this", inner)
            source.parent.set("joins", [*joins, *(source.parent.args.get("joins") or [])])


def _make_queries(tree: exp.Expr) -> None:
    """Let IN (VALUES ...) be IN (SELECT * FROM VALUES ...)."""
    for node in list(tree.find_all(exp.In)):
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Values):
            rows = exp.Select(expressions=[exp.Star()], from_=exp.From(this=node.expressions[0]))
            node.set("expressions", None)
            node.set("query", exp.Subquery(this=rows))


def _from_sqlglot(text: str, error: ParseError, tokens: Sequence[Token]) -> SQLSyntaxError:
    details = error.errors[0] if error.errors else {}
    line, column = details.get("line"), details.get("col")
    highlight = details.get("highlight") or ""
    reason = str(details.get("description") or str(error).partition("\n")[0]).rstrip(".")
    if line is None or column is None:
        return syntax_error_at(text, tokens[0], reason)
    shown = f"at {highlight[:60]!r}: " if highlight else ""
    return SQLSyntaxError(f"{shown}{_reword(reason)}", int(line), max(1, int(column) - len(highlight) + 1))


def _reword(reason: str) -> str:
    if reason.startswith("Expecting "):
        return f"{reason.removeprefix('Expecting ')} was expected"
    if reason.startswith("Required keyword"):
        return "something is missing before"
    if reason.startswith("Invalid expression"):
        return "this cannot stand here"
    return reason[:1].lower() + reason[1:]


def syntax_error_at(text: str, token: Token, reason: str) -> SQLSyntaxError:
    """Return the error for a word of a text."""
    line = text.count("\n", 0, token.start) + 1
    column = token.start - text.rfind("\n", 0, token.start)
    shown = text[token.start : token.end + 1][:60]
    return SQLSyntaxError(f"at {shown!r}: {reason}", line, column)


def _require_shallow(tree: exp.Expr) -> None:
    level: list[exp.Expr] = [tree]
    for _ in range(DEEPEST_NODE):
        level = [inner for node in level for inner in node.iter_expressions()]
        if not level:
            return
    line, column = position_of(level[0])
    raise SQLSyntaxError(
        f"expressions are nested more than {DEEPEST_NODE} deep here: use IN (...) in place of many ORs, or WITH",
        line,
        column,
    )
