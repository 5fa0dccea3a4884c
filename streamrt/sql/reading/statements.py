"""Statements of a program, one after the other.

Heads of views are followed by hand: `CREATE [OR REPLACE] [LOCAL | MATERIALIZED] VIEW [IF NOT EXISTS] name [(columns)]
[COMMENT 'text'] [WITH (option = value, ...)] AS query`. Statements of the catalogue (`CREATE TABLE`, ...) are left
as they are: `Catalog.execute` reads them. All others are trees of sqlglot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from streamrt.errors import SQLNotSupportedError, SQLSyntaxError
from streamrt.sql.reading.dialect import parse_tokens, read_tokens, syntax_error_at

__all__ = ["Statement", "ViewKind", "parse_query", "parse_statements"]

ViewKind = Literal["view", "local view", "materialized view"]


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        kind: "query" (SELECT, VALUES, set operations, WITH), one of the kinds of views, "insert", "catalog" (statements
            that `Catalog.execute` reads), or "other" (UPDATE, DELETE, SHOW, ...).
        text: its text, without semicolon.
        line: line of its first word, from 1.
        column: column of its first word, from 1.
        tree: the query of a query or view, or the whole of other statements; None of those of the catalogue.
        name: name of the view.
        columns: names of its columns, if they are listed.
        comment: what is said of it.
        options: those of WITH.
        replaces: whether it is CREATE OR REPLACE.
        ignores: whether it is CREATE ... IF NOT EXISTS.
    """

    kind: Literal["query", "view", "local view", "materialized view", "insert", "catalog", "other"]
    text: str
    line: int
    column: int
    tree: exp.Expr | None = None
    name: str | None = None
    columns: tuple[str, ...] = ()
    comment: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    replaces: bool = False
    ignores: bool = False


def parse_statements(text: str) -> list[Statement]:
    """Return the statements of a text, which are separated by semicolons.

    Args:
        text: the text.

    Raises:
        SQLSyntaxError: if it cannot be read; it says where.

    Example:
        >>> [statement.kind for statement in parse_statements("CREATE VIEW v AS SELECT 1 AS a; SELECT a FROM v")]
        ['view', 'query']
    """
    statements = []
    words: list[Token] = []
    for token in read_tokens(text):
        if token.token_type != TokenType.SEMICOLON:
            words.append(token)
        elif words:
            statements.append(_read_statement(words, text))
            words = []
    if words:
        statements.append(_read_statement(words, text))
    return statements


def parse_query(text: str) -> exp.Expr:
    """Return the tree of a text that is one query.

    Args:
        text: the text.

    Raises:
        SQLSyntaxError: if it cannot be read, or is something else.

    Example:
        >>> parse_query("SELECT 1 AS a").named_selects
        ['a']
    """
    statements = parse_statements(text)
    if not statements:
        raise SQLSyntaxError("the text has no statement")
    first = statements[0]
    if first.kind != "query" or first.tree is None:
        raise SQLNotSupportedError("a query was expected: SELECT ..., or WITH ... SELECT ...", first.line, first.column)
    if len(statements) > 1:
        second = statements[1]
        raise SQLSyntaxError("one query was expected, and a second statement begins here", second.line, second.column)
    return first.tree


def _read_statement(tokens: list[Token], text: str) -> Statement:
    words = _Words(tokens, text)
    line = text.count("\n", 0, tokens[0].start) + 1
    column = tokens[0].start - text.rfind("\n", 0, tokens[0].start)
    own = text[tokens[0].start : tokens[-1].end + 1]
    if words.peek("CREATE"):
        view = _read_view(words, own, line, column)
        if view is not None:
            return view
        return Statement("catalog", own, line, column)
    if words.peek("ALTER") or words.peek("DROP"):
        return Statement("catalog", own, line, column)
    tree = parse_tokens(tokens, text)
    if isinstance(tree, exp.Query | exp.Values):
        return Statement("query", own, line, column, tree)
    return Statement("insert" if isinstance(tree, exp.Insert) else "other", own, line, column, tree)


def _read_view(words: "_Words", own: str, line: int, column: int) -> Statement | None:
    words.take("CREATE")
    replaces = words.take("OR") and words.need("REPLACE")
    kind: ViewKind = "view"
    if words.take("LOCAL"):
        kind = "local view"
        words.require("VIEW")
    elif words.take("MATERIALIZED"):
        kind = "materialized view"
        words.require("VIEW")
    if not words.take("VIEW"):
        return None
    ignores = words.take("IF") and words.need("NOT", "EXISTS")
    if ignores and replaces:
        raise words.refused("OR REPLACE and IF NOT EXISTS exclude each other")
    name = words.name()
    columns = _read_names(words) if words.peek("(") else ()
    comment = words.text() if words.take("COMMENT") else None
    options = _read_options(words) if words.take("WITH") else {}
    words.need("AS")
    if words.is_at_end():
        raise words.refused("the query of the view is missing")
    tree = parse_tokens(words.rest(), words.text_of_all)
    if not isinstance(tree, exp.Query | exp.Values):
        raise words.refused("a query was expected: SELECT ..., or WITH ... SELECT ...")
    return Statement(kind, own, line, column, tree, name, columns, comment, options, bool(replaces), bool(ignores))


def _read_names(words: "_Words") -> tuple[str, ...]:
    words.need("(")
    names = [words.identifier()]
    while words.take(","):
        names.append(words.identifier())
    words.need(")")
    return tuple(names)


def _read_options(words: "_Words") -> dict[str, str]:
    words.need("(")
    options: dict[str, str] = {}
    while True:
        name = words.option_name()
        if name in options:
            raise words.refused(f"the option {name!r} is there twice")
        words.need("=")
        options[name] = words.option_value()
        if not words.take(","):
            break
    words.need(")")
    return options


class _Words:
    """The words of a statement, one after the other."""

    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self._tokens = list(tokens)
        self.text_of_all = text
        self._at = 0

    def peek(self, word: str) -> bool:
        """Return whether a word is next."""
        return not self.is_at_end() and self._tokens[self._at].text.upper() == word and not self._is_quoted()

    def take(self, word: str) -> bool:
        """Step over a word if it is next."""
        found = self.peek(word)
        self._at += found
        return found

    def need(self, *words: str) -> bool:
        """Step over words, which must be next."""
        for word in words:
            if not self.take(word):
                raise self.refused(f"{word} was expected")
        return True

    def require(self, word: str) -> None:
        """Refuse anything but a word as the next one, and stay before it."""
        if not self.peek(word):
            raise self.refused(f"{word} was expected")

    def name(self) -> str:
        """Step over a name with dots in it, and return it."""
        parts = [self.identifier()]
        while self.take("."):
            parts.append(self.identifier())
        return ".".join(parts)

    def identifier(self) -> str:
        """Step over a name of one part, and return it."""
        text = "" if self.is_at_end() else self._tokens[self._at].text
        kind = None if self.is_at_end() else self._tokens[self._at].token_type
        is_name = kind == TokenType.IDENTIFIER or text.replace("_", "a").isalnum()
        if not text or not is_name or kind in (TokenType.STRING, TokenType.NUMBER):
            raise self.refused("a name was expected; put ` around names with other characters")
        self._at += 1
        return text

    def text(self) -> str:
        """Step over a text in quotes, and return it."""
        if self.is_at_end() or self._tokens[self._at].token_type != TokenType.STRING:
            raise self.refused("a text in quotes was expected")
        self._at += 1
        return self._tokens[self._at - 1].text

    def option_name(self) -> str:
        """Step over the name of an option, with or without quotes, and return it."""
        is_text = not self.is_at_end() and self._tokens[self._at].token_type == TokenType.STRING
        return (self.text() if is_text else self.name()).lower()

    def option_value(self) -> str:
        """Step over a text in quotes, a number, or TRUE or FALSE, and return it as a text."""
        plain = (TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE)
        if not self.is_at_end() and self._tokens[self._at].token_type in plain:
            self._at += 1
            return self._tokens[self._at - 1].text.lower()
        return self.text()

    def rest(self) -> list[Token]:
        """Return the words that are left."""
        return self._tokens[self._at :]

    def is_at_end(self) -> bool:
        """Return whether no word is left."""
        return self._at >= len(self._tokens)

    def refused(self, reason: str) -> SQLSyntaxError:
        """Return the error for the next word."""
        at_end = self.is_at_end()
        token = self._tokens[-1 if at_end else self._at]
        return syntax_error_at(self.text_of_all, token, f"{reason} after this" if at_end else reason)

    def _is_quoted(self) -> bool:
        return self._tokens[self._at].token_type in (TokenType.IDENTIFIER, TokenType.STRING)
