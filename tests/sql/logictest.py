"""SQLite's sqllogictest: its queries as views, compared with DuckDB and with the answers that come with them.

The files are those of `net.hydromatic:sql-logic-test`, which is fetched from Maven for the run. What differs between SQLite's
SQL and Spark's is written down otherwise: integers are BIGINT, `/` between them is DIV, and a division by zero is NULL.
"""

import hashlib
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from streamrt.jvm.jars import Jar, provide_jars
from streamrt.schema import Schema
from tests.sql.suites import Query, Suite
from tests.sql.worlds import Change, Row

__all__ = ["SHARES", "file_names", "make_suite"]

SHARES = {"select[123].test": 1, "random/aggregates/.*": 500, "random/groupby/.*": 500}
"""Files, and of how many of their queries one is run: the random ones have 10,000 each."""

_JAR = Jar(
    "net.hydromatic",
    "sql-logic-test",
    "0.3",
    111522053,
    "801efc1904e802795a20ce30559025c0b5a7a21840114722717c0466089c13f0",
)
_ENGINE = "sqlite"
_TYPES = {"INT": "BIGINT", "TEXT": "STRING", "VARCHAR": "STRING", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE"}


class Answer(NamedTuple):
    """What the suite says of a query: types of its columns (I, R, T), how rows are sorted, and lines of values."""

    types: str
    sort: str
    lines: tuple[str, ...]


@dataclass
class _Script:
    tables: dict[str, Schema] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)


def file_names(pattern: str = "") -> list[str]:
    """Return the names of the files of the suite that match a regular expression, such as `random/aggregates/.*`."""
    with _open_archive() as archive:
        names = [name.removeprefix("test/") for name in archive.namelist() if name.endswith(".test")]
    return sorted(name for name in names if re.fullmatch(pattern or ".*", name))


def make_suite(name: str, chunks: int = 2, keep: slice = slice(None)) -> Suite:
    """Return the queries of a file.

    Args:
        name: name of the file, such as `select1.test`.
        chunks: in how many chunks the rows come.
        keep: which of the queries to keep.
    """
    with _open_archive() as archive:
        text = archive.read(f"test/{name}").decode()
    script = _read_script(text)
    size = max(1, -(-len(script.changes) // chunks))
    parts = [script.changes[start : start + size] for start in range(0, len(script.changes), size)]
    return Suite(name, script.tables, script.queries[keep], parts)


def _open_archive() -> zipfile.ZipFile:
    (path,) = provide_jars([_JAR])
    return zipfile.ZipFile(path)


def _read_script(text: str) -> _Script:
    script = _Script()
    for number, record in enumerate(re.split(r"\n\s*\n", text.replace("\r", ""))):
        lines = [line for line in record.strip().split("\n") if line and not line.startswith("#")]
        while lines and lines[0].split()[0] in ("skipif", "onlyif"):
            word, engine = lines.pop(0).split()[:2]
            if (word == "skipif") == (engine == _ENGINE):
                lines = []
        if not lines:
            continue
        head, *rest = lines
        words = head.split()
        if words[0] == "statement" and words[1] == "ok":
            _run_statement(script, "\n".join(rest))
        elif words[0] == "query":
            script.queries.append(_read_query(f"{number}", words, rest))
    return script


def _read_query(name: str, words: Sequence[str], lines: list[str]) -> Query:
    split = lines.index("----") if "----" in lines else len(lines)
    sql, answer = (
        "\n".join(lines[:split]),
        Answer(words[1], words[2] if len(words) > 2 else "nosort", (*lines[split + 1 :],)),
    )
    order = re.search(r"\s+ORDER BY\s+([\d,\s]+)$", sql, re.IGNORECASE)
    ordinals = [int(number) - 1 for number in order[1].split(",")] if order else []
    sql = re.sub(r"\s+ORDER BY\s[^()]*$", "", sql, flags=re.IGNORECASE)
    sql = _translate_divisions(sql)
    columns = tuple(f"c{number}" for number in range(len(words[1])))
    return Query(name, sql, columns, partial(check_answer, answer, ordinals))


def _translate_divisions(sql: str) -> str:
    """Return a query whose divisions are those of Spark for integers, and NULL by zero."""
    sql, count = re.subn(r"(?<![/*])/(?![/*])", " DIV ", sql)
    if not count:
        return sql
    tree = sqlglot.parse_one(sql, dialect="spark")
    for node in tree.find_all(exp.IntDiv):
        node.set("expression", exp.Nullif(this=node.expression, expression=exp.Literal.number(0)))
    return tree.sql(dialect="spark")


def check_answer(answer: Answer, ordinals: Sequence[int], rows: Sequence[Row]) -> str | None:
    """Return how the last rows of a view differ from the answer of the suite, or None.

    An answer whose order is given by anything but the numbers of all columns is not compared.
    """
    values = [[_format(kind, value) for kind, value in zip(answer.types, row, strict=True)] for row in rows]
    if answer.sort == "nosort":
        if not ordinals and len(rows) > 1:
            return None
        pairs = sorted(zip(rows, values, strict=True), key=lambda pair: [_sort_key(pair[0][i]) for i in ordinals])
        if len({tuple(_sort_key(row[i]) for i in ordinals) for row in rows}) < len({*map(tuple, values)}):
            return None
        values = [line for _, line in pairs]
    elif answer.sort == "rowsort":
        values.sort()
    lines = [value for row in values for value in row]
    if answer.sort == "valuesort":
        lines.sort()
    expected = [*answer.lines]
    summary = re.fullmatch(r"(\d+) values hashing to (\w+)", expected[0]) if len(expected) == 1 else None
    if summary is None:
        return None if lines == expected else f"the suite has {expected[:6]}, and the view {lines[:6]}"
    digest = hashlib.md5("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    if (len(lines), digest) == (int(summary[1]), summary[2]):
        return None
    return f"the suite has {summary[1]} values that hash to {summary[2]}, and the view {len(lines)}: {lines[:6]}"


def _sort_key(value: Any) -> Any:
    return (value is not None, 0 if value is None else value)


def _format(kind: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        value = int(value)
    if kind == "I":
        return str(int(value))
    if kind == "R":
        return f"{Decimal(value).quantize(Decimal('0.001'), ROUND_HALF_UP)}"
    return str(value) or "(empty)"


def _run_statement(script: _Script, text: str) -> None:
    if re.match(r"CREATE\s+(UNIQUE\s+)?INDEX", text, re.IGNORECASE):
        return
    tree = sqlglot.parse_one(text, dialect="sqlite")
    if isinstance(tree, exp.Create) and tree.kind == "TABLE":
        definition = tree.this
        columns = {column.name: _TYPES[column.kind.this.name] for column in definition.find_all(exp.ColumnDef)}
        script.tables[definition.this.name] = Schema(columns)
    elif isinstance(tree, exp.Insert) and isinstance(tree.expression, exp.Values):
        script.changes.extend(_read_rows(script, tree))
    else:
        raise ValueError(f"the suite has another statement: {text}")


def _read_rows(script: _Script, tree: exp.Insert) -> Iterator[Change]:
    target = tree.this
    named = isinstance(target, exp.Schema)
    table = target.this.name if named else target.name
    names = [column.name for column in target.expressions] if named else script.tables[table].names
    for row in tree.expression.expressions:
        values = [_read_value(value) for value in row.expressions]
        yield Change(table, None, dict(zip(names, values, strict=True)), len(script.changes))


def _read_value(node: exp.Expression) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Neg):
        return -_read_value(node.this)
    text = node.name
    return text if node.is_string else int(text) if re.fullmatch(r"-?\d+", text) else float(text)
