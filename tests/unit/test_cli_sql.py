"""`streamrt sql`: statements from the command line, files and pipes, and the prompt."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from streamrt.cli.tables.sql_output import SQLFormat
from streamrt.cli.tables.sql_prompt import SQLPrompt, complete_words
from streamrt.cli.tables.sql_targets import CatalogTarget, QueryOptions
from streamrt.errors import ConfigurationError
from streamrt.sql.queries.splitting import split_statements
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.command_line import streamrt


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMRT_CATALOG_DIR", str(tmp_path / "catalog"))
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    return tmp_path


def test_fe096_a_command_prints_a_table() -> None:
    done = streamrt("sql", "-c", "SELECT * FROM VALUES (1, 'a'), (2, NULL) AS v(n, s)")
    assert (done.code, done.err) == (0, "2 rows\n")
    assert done.out == "+---+------+\n| n | s    |\n+---+------+\n| 1 | a    |\n| 2 | NULL |\n+---+------+\n"


def test_formats_and_files(directory: Path) -> None:
    query = "SELECT * FROM VALUES (1, 'a'), (2, NULL) AS v(n, s)"
    assert streamrt("sql", "-c", query, "--format", "csv").out == "n,s\n1,a\n2,\n"
    assert streamrt("sql", "-c", query, "--format", "json").lines == [{"n": 1, "s": "a"}, {"n": 2, "s": None}]
    done = streamrt("sql", "-c", query, "--format", "parquet", "--output", directory / "out")
    assert (done.code, done.err) == (0, "2 rows\n")
    assert parquet.read_table(directory / "out.parquet").num_rows == 2
    assert streamrt("sql", "-c", query, "--format", "json", "-o", directory / "rows", "--limit", 1).code == 0
    assert json.loads((directory / "rows").read_text()) == {"n": 1, "s": "a"}


def test_statements_come_from_files_and_pipes(directory: Path) -> None:
    file = directory / "statements.sql"
    file.write_text("CREATE DATABASE shop; -- a comment; with a semicolon\nSELECT ';' AS x;\n")
    done = streamrt("sql", "-f", file, "--format", "csv")
    assert (done.out, done.err) == ("x\n;\n", "CREATE DATABASE shop\n")
    assert streamrt("sql", "--format", "csv", stdin="SELECT 1 AS a; SELECT 2 AS a").out == "a\n1\na\n2\n"


def test_errors_end_it_with_a_sentence(directory: Path) -> None:
    assert streamrt("sql", "-c", "SELEC 1").sentence.startswith("streamrt: line 1, column 1: at 'SELEC'")
    failed = streamrt("sql", "-c", "SELECT 1 AS a;\nSELECT 1 / 0 AS b;\nSELECT 3 AS c", "--format", "csv")
    assert (failed.code, failed.out) == (1, "a\n1\nb\n")
    assert "the statement in line 2 failed" in failed.err
    assert "division by zero" in failed.sentence
    assert "no statement" in streamrt("sql", "-c", " ; ").sentence
    assert "cannot be read" in streamrt("sql", "-f", directory / "none.sql").sentence
    assert streamrt("sql", "-c", "SELECT 1", "-f", "x").code == 2
    assert streamrt("sql", "-c", "SELECT 1 AS a", "--format", "parquet").code == 2
    assert streamrt("sql", "-c", "SELECT 1 AS a", "--token-file", directory / "token").code == 2
    assert "several" in streamrt("sql", "-c", "SELECT 1 AS a; SELECT 2 AS a", "-o", directory / "x").sentence


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop.orders", "id INT NOT NULL, amount DOUBLE, PRIMARY KEY (id)", num_partitions=1)
        yield catalog


class Session:
    """Lines that someone types; exceptions are keys."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []

    def prompt(self, text: str) -> str:
        self.prompts.append(text)
        line = self._lines.pop(0) if self._lines else EOFError
        if not isinstance(line, str):
            raise line
        return line


def ask(catalog: Catalog, *lines: Any) -> Session:
    session = Session(*lines)
    SQLPrompt(CatalogTarget(catalog, QueryOptions()), SQLFormat.table, session).run()
    return session


def test_the_prompt_takes_several_lines_until_a_semicolon(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    session = ask(
        catalog, "INSERT INTO shop.orders", "VALUES (1, 2.5);", "SELECT id", "", "FROM shop.orders; \\q", "\\q", "x"
    )
    assert session.prompts == ["sql> ", "...> ", "sql> ", "...> ", "...> ", "...> "] or session.prompts[:5] == [
        *("sql> ", "...> ", "sql> ", "...> ", "...> ")
    ]
    shown = capsys.readouterr()
    assert "INSERT shop.orders: 1 row" in shown.err
    assert "| 1  |" in shown.out


def test_errors_and_keys_do_not_end_the_prompt(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    ask(catalog, "SELECT nothing;", "SELECT (", KeyboardInterrupt, "SELECT 7 AS seven;", "quit", "SELECT 8 AS eight;")
    shown = capsys.readouterr()
    assert "there is no column 'nothing'" in shown.err
    assert "seven" in shown.out
    assert "eight" not in shown.out


def test_the_prompt_describes_tables(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    ask(catalog, "\\d", "\\d shop.orders", "\\d nowhere", "help")
    shown = capsys.readouterr()
    for part in ("shop.orders", "primary-key", "system.tables", "amount", "DOUBLE", "not null", "end with a semicolon"):
        assert part in shown.out
    assert "nowhere" in shown.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM sho", ("shop.orders", "table")),
        ("SELECT * FROM system.ta", ("system.tables", "table")),
        ("SELECT * FROM shop.orders WHERE am", ("amount", "column")),
        ("SELECT sum(am", None),
        ("SELECT sum(o.am", None),
        ("SELECT * FROM shop.orders o WHERE o.am", ("o.amount", "column")),
        ("sel", ("SELECT", "keyword")),
        ("SELECT ", None),
    ],
)
def test_words_are_completed(catalog: Catalog, text: str, expected: tuple[str, str] | None) -> None:
    found = list(complete_words(CatalogTarget(catalog, QueryOptions()), text))
    assert (expected in found) if expected is not None else not [each for each in found if each[1] == "column"]


def test_semicolons_in_quotes_separate_nothing() -> None:
    split = split_statements("SELECT ';' ;\n/* ; */ SELECT `a;b` ; SELECT 'open")
    assert split.statements == ()
    assert split.rest.endswith("'open")
    split = split_statements("SELECT ';' ;\n/* ; */ SELECT `a;b` ; x")
    assert split.statements == (("SELECT ';'", 1), ("SELECT `a;b`", 2))
    assert split.rest == "x"


def test_without_prompt_toolkit_the_extra_is_named(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    with pytest.raises(ConfigurationError, match=r"needs prompt-toolkit: run pip install .*\[sql\]"):
        SQLPrompt(CatalogTarget(catalog, QueryOptions()), SQLFormat.table)
