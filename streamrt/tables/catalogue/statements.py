"""`Catalog.execute`: statements that create, change and drop tables and databases.

```
CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name [(columns)] [COMMENT 'text'] [WITH ('option' = 'value', ...)]
ALTER TABLE name ADD COLUMN[S] (columns) | DROP COLUMN[S] (names) | ALTER COLUMN name TYPE type | COMMENT 'text'
DROP TABLE [IF EXISTS] name
ALTER MATERIALIZED VIEW name SWAP WITH name
CREATE DATABASE [IF NOT EXISTS] name [COMMENT 'text']
DROP DATABASE [IF EXISTS] name [CASCADE | RESTRICT]
```

sqlglot reads the words; the statements are few enough to be followed by hand, so that whatever else is refused where it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamrt.arguments import checked, type_name
from streamrt.errors import ArgumentValueError, SchemaError, TableExistsError
from streamrt.kafka.completion_token import Offsets
from streamrt.schema.quiet import quiet_sqlglot
from streamrt.tables.catalogue.repeated_tables import require_same_table
from streamrt.tables.descriptions.connectors import CONNECTORS, Connector
from streamrt.tables.descriptions.info import DatabaseInfo, TableInfo
from streamrt.tables.descriptions.rule_texts import parse_merge, parse_switch, parse_ttl
from streamrt.tables.descriptions.variables import from_text
from streamrt.tables.table import Table

__all__ = ["Execution", "changes_rows", "execute"]

_LONGEST = 100_000
_STATEMENTS = (
    "CREATE, ALTER and DROP TABLE, CREATE and DROP DATABASE, ALTER MATERIALIZED VIEW, INSERT, UPDATE and DELETE"
)
_OPTIONS = (
    *("changelog", "connection", "connector", "deletes", "format", "key", "key.format", "maintained", "merge"),
    *("partitions", "replicas", "time", "topic", "ttl"),
)
_COUNT = re.compile("[1-9][0-9]{0,5}")
_PREFIXES = ("config.", "connector.", "format.", "property.")


@dataclass(frozen=True)
class Execution:
    """The result of a statement.

    Attributes:
        statement: such as "CREATE TABLE" or "INSERT".
        name: name of the table or of the database.
        changed: whether it has changed anything: not if it is IF [NOT] EXISTS, and there was nothing to do.
        info: what is known of the table after CREATE or ALTER, or None.
        rows: number of rows that INSERT, UPDATE or DELETE has written.
        token: completion token of these rows, or None if there are none.
    """

    statement: str
    name: str
    changed: bool
    info: TableInfo | None = None
    rows: int = 0
    token: Offsets | None = None


class StatementTarget(Protocol):
    """The target of statements; a `Catalog` is one, and says what each method does."""

    @property
    def create_table(self) -> Callable[..., Table]:
        """Creates a table."""

    @property
    def alter_table(self) -> Callable[..., TableInfo]:
        """Changes a table."""

    @property
    def drop_table(self) -> Callable[..., None]:
        """Drops a table."""

    @property
    def swap_views(self) -> Callable[..., TableInfo]:
        """Exchanges the tables of two materialized views."""

    @property
    def create_database(self) -> Callable[..., DatabaseInfo]:
        """Creates a database."""

    @property
    def drop_database(self) -> Callable[..., None]:
        """Drops a database."""

    def load(self, name: str) -> TableInfo:
        """Return what is known of a table."""

    def databases(self) -> list[str]:
        """Return the names of databases."""

    def __contains__(self, name: object) -> bool: ...


def execute(
    catalog: StatementTarget, sql: str, args: Mapping[str, Any] | None = None, *, repeats: bool = False
) -> Execution:
    """Do what one statement says; see `Catalog.execute`.

    Args:
        catalog: its target.
        sql: the statement.
        args: values of its parameters.
        repeats: whether it may have run before, as a part of a program: a database that exists, and a table that is as
            CREATE TABLE says, are then left as they are.

    Raises:
        SchemaError: if it cannot be read; the message has line and column.
        TableExistsError: if there is a table of its name, which differs if `repeats`.
        ArgumentValueError: if a value is for no parameter.
    """
    words = _Words(sql, args)
    if words.take("CREATE"):
        is_replacing = words.take("OR") and words.need("REPLACE")
        if words.take("TABLE"):
            return _create_table(catalog, words, is_replacing, repeats)
        if not is_replacing and (words.take("DATABASE") or words.take("SCHEMA")):
            return _create_database(catalog, words, repeats)
    elif words.take("ALTER"):
        if words.take("TABLE"):
            return _alter_table(catalog, words)
        if words.take("MATERIALIZED"):
            return _swap_views(catalog, words, repeats)
    elif words.take("DROP"):
        if words.take("TABLE"):
            return _drop_table(catalog, words)
        if words.take("DATABASE") or words.take("SCHEMA"):
            return _drop_database(catalog, words)
    raise words.refused(f"a catalogue executes {_STATEMENTS}")


def changes_rows(sql: str) -> bool:
    """Return whether a statement changes rows, which is not for `execute` here: INSERT, UPDATE or DELETE."""
    return isinstance(sql, str) and any(map(_Words(sql).peek, ("INSERT", "UPDATE", "DELETE")))


class _Words:
    """The words of a statement, one after the other.

    Args:
        sql: the statement.
        args: values of parameters by name.
    """

    def __init__(self, sql: str, args: Mapping[str, Any] | None = None) -> None:
        checked("execute(args=...)", args, Mapping, "a mapping", optional=True, show=type_name)
        self._sql = sql
        self._args = dict(args or {})
        self._used: set[str] = set()
        self._tokens = _tokens(sql)
        self._at = 0

    def peek(self, word: str) -> bool:
        """Return whether a word is next."""
        return (
            self._at < len(self._tokens)
            and self._token_text(self._at).upper() == word
            and not self._is_quoted(self._at)
        )

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

    def name(self) -> str:
        """Step over a name with dots in it, and return it."""
        parts = [self._read_identifier()]
        while self.take("."):
            parts.append(self._read_identifier())
        return ".".join(parts)

    def identifier(self) -> str:
        """Step over a name of one part, and return it."""
        return self._read_identifier()

    def text(self) -> str:
        """Step over a text in quotes, or a parameter, and return it."""
        return self._read_parameter((str,)) if self.peek(":") else self.quoted()

    def quoted(self) -> str:
        """Step over a text in quotes, and return it."""
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type.name != "STRING":
            raise self.refused("a text in quotes was expected")
        self._at += 1
        return str(self._tokens[self._at - 1].text)

    def value(self) -> str:
        """Step over a text in quotes, a number or a parameter, and return it as a text."""
        if self.peek(":"):
            return self._read_parameter((str, int))
        if self._at < len(self._tokens) and self._tokens[self._at].token_type.name == "NUMBER":
            self._at += 1
            return str(self._tokens[self._at - 1].text)
        return self.text()

    def inside(self) -> tuple[str, int]:
        """Step over parentheses; return what is in between, and where it begins."""
        opening = self._at
        self.need("(")
        depth = 1
        while depth:
            if self._at >= len(self._tokens):
                self._at = opening
                raise self.refused("this parenthesis has no end")
            depth += self.peek("(") - self.peek(")")
            self._at += 1
        start = self._tokens[opening].end + 1
        return self._sql[start : self._tokens[self._at - 1].start], opening

    def rest(self) -> tuple[str, int]:
        """Step over all that is left up to a semicolon; return it, and where it begins."""
        beginning = self._at
        while self._at < len(self._tokens) and not self.peek(";"):
            self._at += 1
        if self._at == beginning:
            raise self.refused("more was expected")
        return self._sql[self._tokens[beginning].start : self._tokens[self._at - 1].end + 1], beginning

    def end(self) -> None:
        """Refuse anything that is left."""
        self.take(";")
        if self._at < len(self._tokens):
            raise self.refused("the statement should end before")
        unused = [name for name in self._args if name not in self._used]
        if unused:
            raise ArgumentValueError(
                f"execute(args=...) has {unused[0]!r}, and the statement no parameter :{unused[0]}; comments and values of "
                "options may be parameters"
            )

    @property
    def at(self) -> int:
        """Number of the next word."""
        return self._at

    def refused(self, reason: str, at: int | None = None) -> SchemaError:
        """Return the error for a word: by default the next one."""
        number = self._at if at is None else at
        if number >= len(self._tokens):
            start, shown = len(self._sql.rstrip()), "the end"
        else:
            start = self._tokens[number].start
            shown = repr(self._sql[start : self._tokens[number].end + 1][:60])
        line = self._sql.count("\n", 0, start) + 1
        column = start - self._sql.rfind("\n", 0, start)
        return SchemaError(f"line {line}, column {column}, at {shown}: {reason}")

    def _read_parameter(self, kinds: tuple[type, ...]) -> str:
        place = self._at
        self.need(":")
        name = self._read_identifier()
        if name not in self._args:
            raise self.refused(f"execute(args=...) has no value for the parameter :{name}", place)
        value = self._args[name]
        if type(value) not in kinds:
            words = " or ".join({str: "a text", int: "an integer"}[kind] for kind in kinds)
            raise self.refused(f"the parameter :{name} must be {words}, got {type(value).__name__}", place)
        self._used.add(name)
        return str(value)

    def _read_identifier(self) -> str:
        text = self._token_text(self._at) if self._at < len(self._tokens) else ""
        is_name = self._is_quoted(self._at) or text.replace("_", "a").isalnum()
        if not text or not is_name or self._tokens[self._at].token_type.name in ("STRING", "NUMBER"):
            raise self.refused("a name was expected; put ` around names with other characters")
        self._at += 1
        return text

    def _token_text(self, number: int) -> str:
        return str(self._tokens[number].text)

    def _is_quoted(self, number: int) -> bool:
        if number >= len(self._tokens):
            return False
        token = self._tokens[number]
        return self._sql[token.start : token.start + 1] in ("`", "'", '"')


def _create_table(catalog: StatementTarget, words: _Words, is_replacing: bool, repeats: bool) -> Execution:
    ignores = words.take("IF") and words.need("NOT", "EXISTS")
    if ignores and is_replacing:
        raise words.refused("OR REPLACE and IF NOT EXISTS exclude each other")
    name = words.name()
    schema, place = words.inside() if words.peek("(") else (None, words.at)
    comment = words.text() if words.take("COMMENT") else None
    arguments = _read_options(words) if words.take("WITH") else {}
    words.end()
    existed = name in catalog
    if_exists: Any = "replace" if is_replacing else "ignore" if ignores else "error"
    try:
        table = catalog.create_table(name, schema, comment=comment, if_exists=if_exists, **arguments)
    except SchemaError as error:
        if schema is None:
            raise
        raise words.refused(str(error), place) from None
    except TableExistsError:
        if not repeats:
            raise
        wanted = catalog.create_table(
            name, schema, comment=comment, if_exists="replace", dry_run=True, **arguments
        ).info
        found = catalog.load(name)
        require_same_table(wanted, found)
        return Execution("CREATE TABLE", found.name, changed=False, info=found)
    return Execution("CREATE TABLE", table.name, not (existed and ignores), table.info)


def _alter_table(catalog: StatementTarget, words: _Words) -> Execution:
    name = words.name()
    change: dict[str, Any] = {}
    place = words.at
    if words.take("ADD"):
        in_parentheses = words.take("COLUMNS") or (words.take("COLUMN") and words.peek("(")) or words.peek("(")
        change["add"], place = words.inside() if in_parentheses else words.rest()
    elif words.take("DROP"):
        several = words.take("COLUMNS") or not words.need("COLUMN")
        change["drop"] = _read_names(words) if several or words.peek("(") else [words.identifier()]
    elif words.take("ALTER") or words.take("CHANGE"):
        words.need("COLUMN")
        column = words.identifier()
        words.need("TYPE")
        change["widen"] = {column: words.rest()[0]}
    elif words.take("COMMENT"):
        change["comment"] = words.text()
    else:
        raise words.refused(
            "ADD COLUMNS (...), DROP COLUMNS (...), ALTER COLUMN ... TYPE ... or COMMENT '...' was expected"
        )
    words.end()
    before = catalog.load(name).version
    try:
        info = catalog.alter_table(name, **change)
    except SchemaError as error:
        raise type(error)(str(words.refused(str(error), place))) from None
    return Execution("ALTER TABLE", info.name, info.version != before, info)


def _swap_views(catalog: StatementTarget, words: _Words, repeats: bool) -> Execution:
    words.need("VIEW")
    name = words.name()
    place = words.at
    words.need("SWAP", "WITH")
    other = words.name()
    words.end()
    if repeats:
        raise words.refused(
            "a program runs at each start, and would swap the views again: run this statement once, by `streamrt sql`",
            place,
        )
    info = catalog.swap_views(name, other)
    return Execution("ALTER MATERIALIZED VIEW", info.name, changed=True, info=info)


def _drop_table(catalog: StatementTarget, words: _Words) -> Execution:
    ignores = words.take("IF") and words.need("EXISTS")
    name = words.name()
    words.end()
    existed = name in catalog
    catalog.drop_table(name, missing="ignore" if ignores else "error")
    return Execution("DROP TABLE", name, existed)


def _create_database(catalog: StatementTarget, words: _Words, repeats: bool) -> Execution:
    ignores = words.take("IF") and words.need("NOT", "EXISTS")
    name = words.identifier()
    comment = words.text() if words.take("COMMENT") else None
    words.end()
    existed = name in catalog.databases()
    catalog.create_database(name, comment=comment, if_exists="ignore" if ignores or repeats else "error")
    return Execution("CREATE DATABASE", name, not existed)


def _drop_database(catalog: StatementTarget, words: _Words) -> Execution:
    ignores = words.take("IF") and words.need("EXISTS")
    name = words.identifier()
    cascade = words.take("CASCADE")
    if not cascade:
        words.take("RESTRICT")
    words.end()
    existed = name in catalog.databases()
    catalog.drop_database(name, cascade=cascade, missing="ignore" if ignores else "error")
    return Execution("DROP DATABASE", name, existed)


def _read_names(words: _Words) -> Sequence[str]:
    words.need("(")
    names = [words.identifier()]
    while words.take(","):
        names.append(words.identifier())
    words.need(")")
    return names


def _read_options(words: _Words) -> dict[str, Any]:
    """Return the arguments of `create_table` for the options of WITH."""
    words.need("(")
    given: dict[str, str] = {}
    while True:
        place = words.at
        name = words.quoted()
        if name not in _OPTIONS and not name.startswith(_PREFIXES):
            prefixes = ", ".join(f"{prefix}..." for prefix in _PREFIXES)
            raise words.refused(f"there is no option {name!r}; there are {', '.join(_OPTIONS)}, {prefixes}", place)
        if name in given:
            raise words.refused(f"the option {name!r} is there twice", place)
        words.need("=")
        value_at = words.at
        given[name] = words.value()
        if name in ("partitions", "replicas") and not _COUNT.fullmatch(given[name]):
            raise words.refused(f"the option {name!r} must be a number of 1 or more", value_at)
        if not words.take(","):
            break
    words.need(")")
    arguments: dict[str, Any] = {
        name: given[name] for name in ("connection", "deletes", "format", "time", "topic") if name in given
    }
    for option in ("changelog", "maintained"):
        if option in given:
            arguments[option] = parse_switch(f"the option {option!r}", given[option])
    for option, parse in (("merge", parse_merge), ("ttl", parse_ttl)):
        if option in given:
            arguments[option] = parse(given[option])
    for option, argument in (("partitions", "num_partitions"), ("replicas", "replication_factor")):
        if option in given:
            arguments[argument] = int(given[option])
    if "key" in given:
        arguments["key"] = [name.strip() for name in given["key"].split(",")]
    if "key.format" in given:
        arguments["key_format"] = given["key.format"]
    for prefix, argument in (("config.", "config"), ("format.", "format_options"), ("property.", "properties")):
        arguments[argument] = _with_prefix(given, prefix)
    arguments["format_options"] = {name: from_text(text) for name, text in arguments["format_options"].items()}
    settings = _with_prefix(given, "connector.")
    if "connector" in given:
        arguments["connector"] = _read_connector(words, given["connector"], settings)
    elif settings:
        raise words.refused("there are settings of a connector, and no 'connector' = '...'")
    return arguments


def _with_prefix(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def _read_connector(words: _Words, word: str, settings: Mapping[str, str]) -> Connector:
    if word not in CONNECTORS:
        raise words.refused(f"there is no connector {word!r}; there are {', '.join(CONNECTORS)}")
    return CONNECTORS[word].from_texts(settings)


def _tokens(sql: str) -> Sequence[Any]:
    import sqlglot

    if not isinstance(sql, str) or len(sql) > _LONGEST:
        raise SchemaError(f"a statement must be a text of at most {_LONGEST} characters")
    try:
        with quiet_sqlglot():
            tokens: Sequence[Any] = sqlglot.tokenize(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise SchemaError("the statement cannot be read: a quote or a comment in it has no end") from None
    return tokens
