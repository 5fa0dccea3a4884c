"""SQL over HTTP: queries and statements by the control server, and its client."""

import datetime as dt
import hashlib
import io
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from streamrt.control import Client, sql_routes, sql_runs
from streamrt.control.sql_bodies import parse_body, show_argument
from streamrt.errors import (
    ApplicationStateError,
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    ControlRefusedError,
    ControlUnavailableError,
    InvalidOperationError,
    QueryError,
    QueryTimeoutError,
    ResultTooLargeError,
    SchemaError,
    SQLAnalysisError,
    SQLNotSupportedError,
    SQLSyntaxError,
    TableNotFoundError,
)
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import wait_until
from tests.unit.played import Played, played

TOKEN = "canary-token-77"
NDJSON, TABLE = "application/x-ndjson", "text/plain"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
ALL = "SELECT id, name FROM shop.customers ORDER BY id"
MANY = 30_000
LONG = "SELECT sum(a.id * b.id * c.id) AS n FROM shop.many a, shop.many b, shop.many c"
"""Takes minutes."""


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as made:
        made.create_database("shop")
        many = made.create_table("shop.many", "id INT, text STRING", num_partitions=1)
        # Texts that no format makes short.
        texts = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(MANY)]
        many.append(pa.table({"id": pa.array(range(MANY), pa.int32()), "text": texts}))
        yield made


@pytest.fixture
def customers(catalog: Catalog) -> Catalog:
    table = catalog.create_table(
        "shop.customers", "id INT, name STRING, city STRING, PRIMARY KEY (id)", num_partitions=2, if_exists="replace"
    )
    table.upsert([[1, "Ann", "Rome"], [2, "Bob", None]])
    return catalog


@pytest.fixture
def app(customers: Catalog) -> Iterator[Played]:
    with played(control_token=TOKEN, control_sql="write", catalog=customers) as started:
        yield started
        slots = slots_of(started)
        wait_until(lambda: slots._value == sql_runs.QUERIES_AT_ONCE)


@pytest.fixture
def client(app: Played) -> Iterator[Client]:
    with Client(str(app.location), TOKEN) as made:
        yield made


@pytest.fixture
def http(app: Played) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=str(app.location), headers=headers, trust_env=False, verify=False, timeout=60) as made:
        yield made


def slots_of(app: Played) -> threading.Semaphore:
    assert app._server is not None
    return app._server._routes._sql._runs._slots


def ask(http: httpx.Client, sql: str, accept: str = NDJSON, **more: Any) -> httpx.Response:
    return http.post("/query", json={"sql": sql, **more}, headers={"Accept": accept})


# -- Queries -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("FE-138")
def test_fe138_a_query_answers_in_the_format_of_the_caller(http: httpx.Client) -> None:
    expected = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]
    answer = http.post("/query", json={"sql": ALL})
    assert (answer.status_code, answer.headers["content-type"]) == (200, NDJSON)
    assert [json.loads(line) for line in answer.text.splitlines()] == expected
    assert (
        ask(http, ALL, TABLE).text
        == "+----+------+\n| id | name |\n+----+------+\n| 1  | Ann  |\n| 2  | Bob  |\n+----+------+\n"
    )
    assert parquet.read_table(io.BytesIO(ask(http, ALL, PARQUET).content)).to_pylist() == expected
    assert pa.ipc.open_stream(ask(http, ALL, f"{TABLE};q=0.1, {ARROW}").content).read_all().to_pylist() == expected
    assert ask(http, ALL, limit=1).text == '{"id":1,"name":"Ann"}\n'
    assert ask(http, ALL, limit=0).text == ""
    assert ask(http, "SELECT 1 AS one", "*/*").headers["content-type"] == NDJSON


@pytest.mark.parametrize("accept", [NDJSON, PARQUET, ARROW])
def test_large_answers_leave_in_parts(http: httpx.Client, accept: str) -> None:
    with http.stream("POST", "/query", json={"sql": "SELECT * FROM shop.many"}, headers={"Accept": accept}) as answer:
        assert answer.headers["transfer-encoding"] == "chunked"
        body = answer.read()
    if accept == NDJSON:
        assert [json.loads(line)["id"] for line in body.splitlines()] == list(range(MANY))
        return
    read = parquet.read_table(io.BytesIO(body)) if accept == PARQUET else pa.ipc.open_stream(body).read_all()
    assert read.column("id").to_pylist() == list(range(MANY))
    found = http.get(f"/queries/{answer.headers['query-id']}").json()
    assert (found["rows"], found["tables"], found["error"]) == (MANY, ["shop.many"], None)


def test_the_client_has_the_results_of_the_application(app: Played, client: Client) -> None:
    sql = "SELECT id, name, CAST(id AS DECIMAL(5, 2)) AS price, DATE '2026-01-31' AS day FROM shop.customers WHERE id = :id"
    ours, theirs = client.query(sql, {"id": 1}), app.query(sql, {"id": 1})
    assert (ours.schema, ours.tables, ours.explain()) == (theirs.schema, theirs.tables, theirs.explain())
    with pytest.raises(InvalidOperationError, match="ask for rows first"):
        _ = ours.offsets
    assert ours.one() == theirs.one()
    assert ours.to_arrow() == theirs.to_arrow()
    assert str(ours) == str(theirs)
    assert ours.offsets == theirs.offsets
    assert [row["id"] for row in client.query("SELECT id FROM shop.many")] == list(range(MANY))


def test_values_of_parameters_arrive_with_their_types(client: Client) -> None:
    moment = dt.datetime(2026, 1, 31, 10, tzinfo=dt.timezone.utc)
    values = {
        "d": Decimal("1.10"),
        "day": moment.date(),
        "at": moment.replace(tzinfo=None),
        "zoned": moment,
        "raw": b"\x00\xff",
        "real": 1.5,
        "no": None,
        "yes": True,
        "text": "Ä'",
    }
    cells = ", ".join(f":{name} AS {name}" for name in values)
    assert client.query(f"SELECT {cells}", values).one() == values
    # JSON proper has no infinite numbers.
    assert client.query("SELECT :x AS x", {"x": float("inf")}).one() == {"x": float("inf")}
    assert client.query("SELECT id FROM shop.customers WHERE name IN (:names)", {"names": ["Bob"]}).one() == {"id": 2}
    with pytest.raises(ArgumentTypeError, match="got object"):
        client.query("SELECT :x AS x", {"x": object()})


def test_numbers_that_json_has_not_keep_their_names(http: httpx.Client) -> None:
    sql = "SELECT CAST('NaN' AS DOUBLE) AS a, array(CAST('-Infinity' AS DOUBLE)) AS b, 1.5D AS c"
    assert json.loads(ask(http, sql).text) == {"a": "NaN", "b": ["-Infinity"], "c": 1.5}


# -- Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "status", "error", "place"),
    [
        ("SELEC 1", 400, SQLSyntaxError, (1, 1)),
        ("SELECT\n nam FROM shop.customers", 400, SQLAnalysisError, (2, 2)),
        ("SELECT * FROM read_csv('/etc/passwd')", 400, SQLNotSupportedError, None),
        ("DROP TABLE shop.customers", 400, SQLNotSupportedError, (1, 1)),
        ("SELECT * FROM shop.nowhere", 404, TableNotFoundError, None),
        ("SELECT 1 / (id - id) AS x FROM shop.customers", 422, QueryError, None),
        ("(" * 50_000, 400, SQLSyntaxError, None),
    ],
)
def test_errors_are_problems_with_their_place(
    http: httpx.Client, client: Client, sql: str, status: int, error: type[Exception], place: tuple[int, int] | None
) -> None:
    answer = ask(http, sql)
    found = answer.json()
    assert (answer.status_code, found["error"]) == (status, error.__name__)
    assert answer.headers["content-type"] == "application/problem+json"
    if place is not None:
        assert (found["line"], found["column"]) == place
    with pytest.raises(error) as raised:
        list(client.query(sql))
    assert str(raised.value) == found["message"]
    assert place is None or (raised.value.line, raised.value.column) == place  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "must be a JSON object"),
        (b"[1]", "must be a JSON object"),
        (b'{"sql": 1}', "must be a JSON object"),
        (b'{"sql": "SELECT 1", "files": true}', "the body has 'files'; it takes after, args"),
        (b'{"sql": "SELECT 1", "args": [1]}', "args must be an object"),
        (b'{"sql": "SELECT :a", "args": {"a": {"$python": "os"}}}', r"objects with one of \$decimal"),
        (b'{"sql": "SELECT :a", "args": {"a": {"$decimal": "x"}}}', r"a \$decimal has a text that is none"),
        (b'{"sql": "SELECT :a", "args": {"a": [[1]]}}', "args takes null"),
        (b'{"sql": "SELECT \'\\ud800\'"}', "unpaired surrogate"),
        (b'{"sql": "SELECT 1", "timeout": -1}', "timeout must be a number"),
        (b'{"sql": "SELECT 1", "timeout": NaN}', "timeout must be a number"),
        (b'{"sql": "SELECT 1", "timeout": 61}', "timeout may be 60 at most"),
        (b'{"sql": "SELECT 1", "limit": 1e3}', "limit must be a whole number"),
        (b'{"sql": "SELECT 1", "limit": 1000001}', r"limit may be 1e\+06 at most over HTTP \(control_sql_rows\)"),
        (b'{"sql": "SELECT 1", "max_scan_bytes": 99999999999}', "max_scan_bytes may be"),
        (b'{"sql": "SELECT 1", "id": "../x"}', "id must have 1 to 64 letters"),
        (b'{"sql": "SELECT 1", "after": "nonsense"}', "token"),
        (b'{"sql": "' + b"S" * 100_001 + b'"}', "at most 100,000 characters"),
        (b"[" * 100_000, "must be a JSON object"),
        (b'{"sql": "\xff"}', "must be a JSON object"),
    ],
)
def test_hostile_bodies_are_refused(http: httpx.Client, body: bytes, message: str) -> None:
    answer = http.post("/query", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert re.search(message, answer.json()["message"])


def test_requests_that_do_not_fit_are_refused(http: httpx.Client) -> None:
    large = {"sql": "SELECT 1 AS a", "args": {"a": "x" * 1_100_000}}
    answer = http.post("/query", json=large)
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert http.post("/query", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert ask(http, ALL, "image/png").status_code == 406
    assert http.post("/query?limit=1", json={"sql": ALL}).status_code == 400
    assert http.get("/query").status_code == 405
    assert http.get("/queries/unknown").status_code == 404
    assert http.delete("/queries/unknown").status_code == 404
    foreign = http.post("/query", json={"sql": ALL}, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_a_body_has_its_time(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_routes, "_BODY_S", 0.1)
    with connected(app, "Content-Length: 100\r\n", b'{"sql"') as mine:
        assert b" 408 " in mine.recv(1000)


# -- Limits ------------------------------------------------------------------------------------------------------------


def test_results_beyond_the_rows_of_the_server_end_without_the_last_chunk(customers: Catalog) -> None:
    with (
        played(control_token=TOKEN, control_sql="read", control_sql_rows=25_000, catalog=customers) as app,
        Client(str(app.location), TOKEN) as client,
    ):
        sql, headers = "SELECT * FROM shop.many", {"Authorization": f"Bearer {TOKEN}"}
        got: list[Any] = []
        with pytest.raises(ResultTooLargeError, match="more than 25,000 rows, the most over HTTP"):
            got.extend(each["id"] for each in client.query(sql))
        assert 0 < len(got) <= 25_000
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{app.location}/query", json={"sql": sql}, headers=headers, trust_env=False, verify=False)
        assert len(client.query(sql, limit=25_000).to_arrow()) == 25_000
        # What fits into the first part has a status.
        small = {"sql": "SELECT id FROM shop.many", "limit": 25_001}
        assert (
            httpx.post(f"{app.location}/query", json=small, headers=headers, trust_env=False, verify=False).status_code
            == 400
        )


def test_a_query_has_its_time(http: httpx.Client, client: Client) -> None:
    answer = ask(http, LONG, timeout=0.2)
    assert (answer.status_code, answer.json()["error"], answer.json()["retriable"]) == (504, "QueryTimeoutError", True)
    with pytest.raises(QueryTimeoutError, match=r"did not end in 0\.2 s"):
        client.query(LONG, timeout=0.2).one()


def test_few_statements_work_at_once_and_probes_are_answered(app: Played, http: httpx.Client, client: Client) -> None:
    results = [client.query(LONG, timeout=50) for _ in range(sql_runs.QUERIES_AT_ONCE)]
    errors: list[str] = []

    def read(number: int) -> None:
        try:
            results[number].one()
        except QueryError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(results))]
    for each in threads:
        each.start()
    wait_until(lambda: slots_of(app)._value == 0)
    busy = ask(http, ALL)
    assert (busy.status_code, busy.headers["retry-after"], busy.json()["retriable"]) == (503, "1", True)
    with pytest.raises(ControlUnavailableError, match="statements work already"):
        client.execute("DELETE FROM shop.customers WHERE id = 1")
    assert [http.get(path).status_code for path in ("/live", "/ready", "/status")] == [200] * 3
    for result, thread in zip(results, threads, strict=True):
        result.cancel()
        thread.join(30)
    assert errors == ["the query was cancelled"] * len(results)
    wait_until(lambda: slots_of(app)._value == sql_runs.QUERIES_AT_ONCE)


def test_a_query_is_cancelled_by_its_id(app: Played, http: httpx.Client) -> None:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask(http, LONG, id="long-1")))
    thread.start()
    wait_until(lambda: http.get("/queries/long-1").status_code == 200)
    assert http.get("/queries/long-1").json()["status"] == "running"
    assert ask(http, ALL, id="long-1").status_code == 409
    assert http.delete("/queries/long-1").status_code == 202
    thread.join(30)
    assert (answers[0].status_code, answers[0].json()["message"]) == (422, "the query was cancelled")
    assert http.get("/queries/long-1").json()["status"] == "cancelled"


def connected(app: Played, headers: str, body: bytes, method: str = "POST /query") -> socket.socket:
    parts = urlsplit(str(app.location))
    mine = socket.create_connection((str(parts.hostname), int(parts.port or 0)), 60)
    head = (
        f"{method} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    )
    mine.sendall(f"{head}{headers}\r\n".encode() + body)
    return mine


def send_query(app: Played, sql: str, name: str) -> socket.socket:
    body = json.dumps({"sql": sql, "id": name}).encode()
    return connected(app, f"Content-Length: {len(body)}\r\n", body)


def status_of(http: httpx.Client, name: str) -> str:
    return str(http.get(f"/queries/{name}").json().get("status"))


def test_a_query_ends_when_its_client_leaves(app: Played, http: httpx.Client) -> None:
    with send_query(app, LONG, "left"):
        wait_until(lambda: status_of(http, "left") == "running")
    wait_until(lambda: status_of(http, "left") == "cancelled")
    # Also while rows are sent.
    with send_query(app, "SELECT a.* FROM shop.many a, shop.many b", "midway") as mine:
        assert mine.recv(100)
    wait_until(lambda: status_of(http, "midway") == "cancelled")


def test_an_answer_that_is_not_taken_ends(app: Played, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "SELECT a.* FROM shop.many a, shop.many b"
    monkeypatch.setattr("streamrt.control.protocol._ANSWER_S", 0.2)
    with send_query(app, endless, "stalled") as mine:
        # No more is made than is taken.
        wait_until(lambda: status_of(http, "stalled") == "cancelled")
        assert http.get("/queries/stalled").json()["rows"] < 1_000_000
        del mine
    monkeypatch.setattr("streamrt.control.protocol._ANSWER_S", 60)
    monkeypatch.setattr(sql_routes, "_TAKE_S", -59.8)
    with send_query(app, endless, "slow") as slow:
        wait_until(lambda: status_of(http, "slow") == "failed")
        del slow
    assert "was not taken within 0.2 s" in http.get("/queries/slow").json()["error"]["message"]


# -- Statements --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("FE-136")
def test_fe136_statements_write_rows(http: httpx.Client, client: Client) -> None:
    answer = http.post(
        "/execute", json={"sql": "INSERT INTO shop.customers VALUES (3, :name, NULL)", "args": {"name": "Eve"}}
    )
    found = answer.json()
    assert answer.status_code == 200
    assert (found["statement"], found["name"], found["changed"], found["rows"]) == ("INSERT", "shop.customers", True, 1)
    assert ask(http, "SELECT name FROM shop.customers WHERE id = 3", after=found["token"]).text == '{"name":"Eve"}\n'
    done = client.execute("UPDATE shop.customers SET city = 'Oslo' WHERE id = :id", {"id": 3})
    assert (done.statement, done.rows, done.info) == ("UPDATE", 1, None)
    city = "SELECT city FROM shop.customers WHERE id = 3"
    assert client.query(city, after=done.token).one() == {"city": "Oslo"}
    assert client.execute("DELETE FROM shop.customers WHERE id = 3").rows == 1
    assert list(client.query(city)) == []


def test_statements_that_are_not_possible(http: httpx.Client, client: Client) -> None:
    with pytest.raises(InvalidOperationError, match="has no primary key"):
        client.execute("DELETE FROM shop.many")
    with pytest.raises(SchemaError, match="at 'SELECT'"):
        client.execute("SELECT 1 AS one")
    assert http.post("/execute", json={"sql": "CREATE TABLE shop.customers (a INT)"}).status_code == 409
    assert http.post("/execute", json={"sql": "SELECT 1", "limit": 1}).status_code == 400


# -- Who may ------------------------------------------------------------------------------------------------------------


def test_it_is_off_unless_it_is_switched_on(customers: Catalog) -> None:
    with (
        played(control_token=TOKEN, catalog=customers) as app,
        Client(str(app.location), TOKEN) as client,
        Client(str(app.location)) as stranger,
    ):
        for call in (client.query, client.execute):
            with pytest.raises(
                ControlRefusedError, match=r'over HTTP are switched off: set control_sql="(read|write)"'
            ):
                call(ALL)
        with pytest.raises(ControlRefusedError, match="needs a token"):
            stranger.query(ALL)


def test_read_does_not_write(customers: Catalog) -> None:
    with (
        played(control_token=TOKEN, control_sql="read", catalog=customers) as app,
        Client(str(app.location), TOKEN) as client,
    ):
        assert len(list(client.query(ALL))) == 2
        with pytest.raises(ControlRefusedError, match=r'statements that write over HTTP .* set control_sql="write"'):
            client.execute("DELETE FROM shop.customers")
        assert len(list(client.query(ALL))) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"control_sql": "read"}, "lets callers read all tables of the application: set control_token"),
        ({"control_sql": "read", "control": None}, "control_sql has no effect without control"),
        ({"control_sql_rows": 5}, "control_sql_rows has no effect without control_sql"),
        ({"control_sql_timeout": 5}, "control_sql_timeout has no effect without control_sql"),
        ({"control_sql": "all"}, "control_sql"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_CONTROL_TOKEN", raising=False)
    with pytest.raises(ConfigurationError, match=message):
        Played(**settings)


def test_the_log_has_a_digest_and_no_text(app: Played, http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "canary-value"
    ask(http, f"SELECT id FROM shop.customers WHERE name = '{secret}'")
    ask(http, f"SELECT CAST('{secret}' AS INT) AS x")
    ask(http, "SELECT :x AS x, nothing", args={"x": secret})
    http.post("/execute", json={"sql": f"INSERT INTO shop.customers VALUES (9, '{secret}', NULL)"})
    http.post("/execute", json={"sql": f"INSERT INTO shop.customers VALUES ('{secret}', 'a', NULL)"})

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if "sha256" in each.getMessage()]

    wait_until(lambda: len(lines()) == 5)
    assert not [each for each in caplog.records if secret in each.getMessage()]
    assert any(": 200, query " in each and ", tables shop.customers, 0 rows, " in each for each in lines())
    assert any("'execute': 200, INSERT, sha256 " in each and ", 1 rows, " in each for each in lines())


def test_bodies_have_all_arguments() -> None:
    value = [1, "a", b"b", Decimal("1.5"), dt.date(2026, 1, 31), None, True]
    body = json.dumps({"sql": "SELECT 1", "args": {"x": show_argument(value)}, "limit": 3}).encode()
    read = parse_body(body, is_query=True)
    assert (read.args, read.limit) == ({"x": value}, 3)
    with pytest.raises(ArgumentValueError, match="it takes args, sql, timeout"):
        parse_body(body, is_query=False)
    assert not issubclass(ApplicationStateError, ArgumentValueError)
