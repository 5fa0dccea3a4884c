"""`streamrt sql --url`: a running application answers, as a catalogue does."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from streamrt.cli.tables.sql_output import SQLFormat
from streamrt.cli.tables.sql_prompt import SQLPrompt, complete_words
from streamrt.cli.tables.sql_targets import ApplicationTarget, CatalogTarget, QueryOptions, SQLTarget
from streamrt.control import Client, TokenRights
from streamrt.errors import ControlRefusedError
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.command_line import Outcome, streamrt
from tests.support import wait_until
from tests.unit.played import Played, played

TOKEN, LIMITED = "canary-token-78", "canary-limited-78"
LONG = "SELECT sum(a.id * b.id * c.id) AS n FROM shop.many a, shop.many b, shop.many c"
"""Takes minutes."""


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as made:
        made.create_database("shop")
        made.create_table("shop.many", "id INT, text STRING", num_partitions=1).append([[n, "x"] for n in range(3_000)])
        columns = "id INT NOT NULL, amount DECIMAL(5, 2), PRIMARY KEY (id)"
        made.create_table("shop.orders", columns, num_partitions=1, comment="all of them").upsert([[1, "2.50"]])
        yield made


@pytest.fixture(scope="module")
def app(catalog: Catalog) -> Iterator[Played]:
    rights = [TokenRights("limited", LIMITED, read=["shop.orders"])]
    with played(
        control_token=TOKEN, control_sql="write", control_rights=rights, control_sql_timeout=50, catalog=catalog
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_CONTROL_TOKEN", TOKEN)
    # It is there for other commands.
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "unused.invalid:9092")


def ask(app: Played, *arguments: Any) -> Outcome:
    return streamrt("sql", "--url", str(app.location), *arguments)


QUERY = "SELECT o.id, o.amount, l.topic, l.lag FROM shop.orders o, system.lag l WHERE l.topic = 'orders'"
ROW = {"id": 1, "amount": "2.50", "topic": "orders", "lag": 0}


def test_each_format_is_that_of_a_catalogue(app: Played, tmp_path: Path) -> None:
    done = ask(app, "-c", QUERY)
    assert (done.code, done.err) == (0, "1 row\n")
    assert "| 1  | 2.50   | orders | 0   |" in done.out
    assert ask(app, "-c", QUERY, "--format", "json").lines == [ROW]
    assert ask(app, "-c", QUERY, "--format", "csv").out == "id,amount,topic,lag\n1,2.50,orders,0\n"
    assert ask(app, "-c", QUERY, "--format", "parquet", "-o", tmp_path / "rows").err == "1 row\n"
    assert parquet.read_table(tmp_path / "rows.parquet").schema.names == list(ROW)
    assert ask(app, "-c", "SELECT id FROM shop.many", "-n", 2, "--format", "csv").out == "id\n0\n1\n"
    assert json.loads(ask(app, "-c", QUERY, "--format", "json", "-o", tmp_path / "x").out or "{}") == {}


def test_statements_change_rows_and_tables(app: Played, catalog: Catalog) -> None:
    statements = "CREATE TABLE shop.made (a INT) WITH ('partitions' = '1'); INSERT INTO shop.made VALUES (1), (2);"
    done = ask(app, "-c", f"{statements} SELECT sum(a) AS s FROM shop.made", "--format", "csv")
    assert (done.out, done.err) == ("s\n3\n", "CREATE TABLE shop.made\nINSERT shop.made: 2 rows\n")
    assert ask(app, "-c", "DROP TABLE shop.made").code == 0
    assert "shop.made" not in catalog.tables()


def test_errors_are_those_of_a_catalogue(app: Played, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (
        "line 1, column 8: there is no column 'nothing'" in ask(app, "-c", "SELECT nothing FROM shop.orders").sentence
    )
    assert "division by zero" in ask(app, "-c", "SELECT 1 / (id - id) AS x FROM shop.orders").sentence
    assert "did not end in 0.2 s" in ask(app, "-c", LONG, "--timeout", 0.2).sentence
    assert "timeout may be 50 at most over HTTP" in ask(app, "-c", "SELECT 1 AS a", "--timeout", 51).sentence
    assert "reads more than 5 bytes" in ask(app, "-c", "SELECT * FROM shop.many", "--max-scan-bytes", 5).sentence
    (tmp_path / "token").write_text(f"{LIMITED}\n")
    refused = ask(app, "--token-file", tmp_path / "token", "-c", "SELECT * FROM shop.many")
    assert "this token may not read 'shop.many'" in refused.sentence
    monkeypatch.delenv("STREAMRT_CONTROL_TOKEN")
    assert "needs a token" in ask(app, "-c", "SELECT 1 AS a").sentence
    assert "no application answers" in streamrt("sql", "--url", "http://127.0.0.1:9", "-c", "SELECT 1 AS a").sentence


@pytest.mark.parametrize(
    "option",
    [
        ("--broker", "localhost:9092"),
        ("--config", "x.properties"),
        ("--catalog", "x"),
        ("--engine", "spark"),
        ("--engine", "duckdb"),
    ],
)
def test_options_without_effect_are_refused(app: Played, option: tuple[str, str]) -> None:
    done = ask(app, *option, "-c", "SELECT 1 AS a")
    assert (done.code, "it has no effect with --url" in " ".join(done.err.replace("│", " ").split())) == (2, True)


def test_the_engine_is_refused_in_a_body(app: Played) -> None:
    with Client(str(app.location)) as client:
        for path in ("/query", "/execute"):
            body = {"sql": "SELECT 1 AS a", "engine": "spark"}
            answer = client._connection.send("POST", path, {}, 5.0, body=body)
            assert (answer.status_code, "the body has 'engine'" in answer.json()["message"]) == (400, True)


class Session:
    """Lines that someone types."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def prompt(self, text: str) -> str:
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


def test_the_prompt_and_completion_know_the_tables(
    app: Played, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    def show(target: SQLTarget) -> tuple[str, str]:
        SQLPrompt(target, SQLFormat.table, Session("\\d", "\\d SHOP.orders", "\\d nowhere", "SELECT 1 AS a;")).run()
        shown = capsys.readouterr()
        return shown.out, shown.err

    with Client(str(app.location)) as client:
        target = ApplicationTarget(client, QueryOptions())
        out, err = show(CatalogTarget(catalog, QueryOptions()))
        there, there_err = show(target)
        kept = [line for line in there.splitlines() if not line.startswith(("system.lag", "system.offsets"))]
        assert (kept, there_err) == (out.splitlines(), err)
        assert ("amount", "column") in list(complete_words(target, "SELECT * FROM shop.orders WHERE am"))
        assert ("system.lag", "table") in list(complete_words(target, "SELECT * FROM system.l"))
    with Client(str(app.location), LIMITED) as client:
        limited = ApplicationTarget(client, QueryOptions())
        assert [each.name for each in limited.tables()] == ["shop.orders"]
        with pytest.raises(ControlRefusedError):
            limited.query("SELECT * FROM system.lag")


def test_ctrl_c_ends_the_query_in_the_application(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(str(app.location)) as client:
        result = client.query(LONG, timeout=50)
        names: list[str] = []
        stream = client._connection.stream

        def interrupted(path: str, body: Any, *others: Any) -> Any:
            names.append(body["id"])
            # As a key that is pressed while the answer is awaited.
            threading.Thread(target=press, args=(body["id"],)).start()
            return stream(path, body, *others)

        def press(name: str) -> None:
            wait_until(lambda: client._connection.send("GET", f"/queries/{name}", {}, 5.0).status_code == 200)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.get_ident()
        monkeypatch.setattr(client._connection, "stream", interrupted)
        with pytest.raises(KeyboardInterrupt):
            result.one()

        def status() -> Any:
            return client._connection.send("GET", f"/queries/{names[0]}", {}, 5.0).json()["status"]

        wait_until(lambda: status() == "cancelled", 20)
