"""Statements of users, which sinks for SQL databases run for each record."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sql.sql_names import is_internal
from streamrt.connectors.sql.sql_rows import STATEMENT, Place, Row, TableRows
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError

__all__ = ["Parameters", "Statement"]

Parameters = Callable[[SinkItem], Mapping[str, Any]]
"""Returns the parameters of a statement for an item, by name."""

_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE")
# A word and a colon before it make it no parameter: `'10:30'`, `x::int`, `a[1:n]`.
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | (?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`) | (?P<refused>--|/\*|\#(?!>)|\$|;|'|"|`)
    | (?<![\w:]):(?P<parameter>[A-Za-z_][A-Za-z_0-9]*) | (?P<word>\w+)""",
    re.VERBOSE,
)
_REFUSED = {
    "--": "comments are not allowed in it",
    "/*": "comments are not allowed in it",
    "#": "comments are not allowed in it",
    "$": "dollar quotes and numbered parameters are not allowed in it: parameters are written :name",
    ";": "it must be one statement, without a semicolon",
}


class Statement:
    """One statement that changes rows, with parameters such as `:sku`.

    Args:
        text: the statement.
        parameters: returns the parameters for an item; None means that they are the fields of its value.
        sink: name of the class of the sink, for errors.
        position_table: the table of positions, which it must not name.

    Raises:
        ConfigurationError: if the text is not a statement that a sink can run.

    Example:
        >>> statement = Statement("UPDATE stock SET n = n - :n WHERE sku = :sku", None, "SQLiteSink", None)
        >>> statement.names, statement.render(lambda name: "?")
        (('n', 'sku'), 'UPDATE stock SET n = n - ? WHERE sku = ?')
    """

    def __init__(self, text: str, parameters: Parameters | None, sink: str, position_table: str | None) -> None:
        checked_type(sink, "statement", text, str, "a string")
        if parameters is not None and not callable(parameters):
            raise ArgumentTypeError(
                f"{sink}(parameters=...) must be a function of the item, got {type(parameters).__name__}"
            )
        self._parameters = parameters
        # Pieces of text, and behind each of them but the last one the name of a parameter.
        self._texts: list[str] = []
        names: list[str] = []
        words: list[str] = []
        start = 0
        for token in _TOKEN.finditer(text.strip()):
            fault = _find_fault(token, position_table)
            if fault is not None:
                raise ArgumentValueError(f"{sink}(statement=...): {fault}")
            if token["word"]:
                words.append(token["word"].upper())
            if token["parameter"]:
                names.append(token["parameter"])
                self._texts.append(text.strip()[start : token.start()])
                start = token.end()
        self._texts.append(text.strip()[start:])
        if not words or words[0] not in (*_CHANGES, "WITH") or not set(words).intersection(_CHANGES):
            raise ArgumentValueError(
                f"{sink}(statement=...) must be an {', '.join(_CHANGES[:-1])} or {_CHANGES[-1]}, perhaps behind WITH: a sink "
                "commits it together with the positions of the group"
            )
        self._order = tuple(names)
        self.names = tuple(dict.fromkeys(names))

    @property
    def words(self) -> frozenset[str]:
        """All words and quoted names outside of string literals, in lower case."""
        found = (_TOKEN.finditer(text) for text in self._texts)
        return frozenset(
            (token["word"] or token["name"][1:-1]).lower()
            for tokens in found
            for token in tokens
            if token["word"] or token["name"]
        )

    def render(self, mark: Callable[[str], str], escape: Callable[[str], str] = str) -> str:
        """Return the statement with marks for its parameters.

        Args:
            mark: returns the mark of a parameter.
            escape: changes the parts between the parameters.
        """
        marks = [*map(mark, self._order), ""]
        return "".join(escape(text) + each for text, each in zip(self._texts, marks, strict=True))

    def numbered(self) -> str:
        """Return the statement with parameters such as `$1`, in the order of `names`."""
        return self.render(lambda name: f"${self.names.index(name) + 1}")

    def rows(self, batches: Sequence[SinkBatch]) -> TableRows:
        """Return the parameters of all items.

        Raises:
            SinkError: if an item lacks one.
        """
        rows = TableRows(STATEMENT, ())
        for batch in batches:
            for item in batch:
                place = Place(batch, item)
                rows.append(self._make_row(item, place), place)
        return rows

    def _make_row(self, item: SinkItem, place: Place) -> Row:
        value = item.value
        if self._parameters is not None:
            try:
                value = self._parameters(item)
            except Exception as error:
                # Its text may quote the value.
                raise SinkError(f"parameters= failed for {place}: {type(error).__name__}", place.record) from error
        if not isinstance(value, Mapping):
            what = "the value of" if self._parameters is None else "the result of parameters= for"
            raise SinkError(
                f"{what} {place} is of type {type(value).__name__}: parameters of a statement are fields of a dict",
                place.record,
            )
        lacking = next((name for name in self.names if name not in value), None)
        if lacking is not None:
            raise SinkError(f"{place} has no field {lacking!r}, a parameter of the statement", place.record)
        return {name: value[name] for name in self.names}


def _find_fault(token: "re.Match[str]", position_table: str | None) -> str | None:
    """Return why a token cannot be in a statement."""
    if token["refused"]:
        return _REFUSED.get(token["refused"], "it has a quote without an end")
    if "\\" in (token["text"] or token["name"] or ""):
        # Databases differ in what it means.
        return "a text in it has a backslash: make the text a parameter"
    name = token["word"] or (token["name"] or "")[1:-1]
    if name and is_internal(name, position_table):
        return f"it names {name!r}, a table in which the sink keeps something of its own"
    return None
