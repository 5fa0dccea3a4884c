"""Tokens for single tables: what they may ask and change over HTTP, and all that they may not."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from streamrt.common.addresses import HostPort
from streamrt.control import TokenRights
from streamrt.control.guard import Guard
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError
from streamrt.secret import Secret
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import wait_until
from tests.unit.played import Played

ADMIN, REPORTS, LOADER = "canary-admin", "canary-reports", "canary-loader"
SECRET = "canary-secret-row"
RIGHTS = [
    TokenRights("reports", REPORTS, read=["shop.orders", "open.*"]),
    TokenRights("loader", Secret(LOADER), read=["shop.orders"], write=["shop.notes"]),
]


@pytest.fixture(scope="module")
def catalog() -> Iterator[Catalog]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as made:
        for database in ("shop", "open", "staff"):
            made.create_database(database)
        columns = "id INT, name STRING, PRIMARY KEY (id)"
        for name in ("shop.orders", "shop.notes", "shop.salaries", "shop.ORDERS2", "open.cities", "staff.orders"):
            table = made.create_table(name, columns, num_partitions=1)
            table.upsert([[1, "Ann" if name in ("shop.orders", "open.cities") else SECRET]])
        made.create_table("orders", columns, num_partitions=1).upsert([[1, SECRET]])
        yield made


@pytest.fixture(scope="module")
def app(catalog: Catalog) -> Played:
    made = Played(control_token=ADMIN, control_sql="write", control_rights=RIGHTS, catalog=catalog)
    made.sql("CREATE VIEW peek AS SELECT * FROM shop.salaries; CREATE VIEW mine AS SELECT * FROM shop.orders")
    return made


class Caller:
    """Sends requests to the routes of an application, without sockets."""

    def __init__(self, app: Played, token: str, rights: list[TokenRights] = RIGHTS) -> None:
        assert app._server is not None
        self._guarded = Guard(app._server._routes.asgi(), HostPort("127.0.0.1", 7070), app._server.token, rights)
        self._headers = {"Authorization": f"Bearer {token}"}

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._guarded)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as client:
                return await client.request(method, path, headers=self._headers, **more)

        return anyio.run(send)

    def ask(self, sql: str, **more: Any) -> httpx.Response:
        """Send a query."""
        return self.send("POST", "/query", json={"sql": sql, **more})

    def do(self, sql: str, **more: Any) -> httpx.Response:
        """Send a statement."""
        return self.send("POST", "/execute", json={"sql": sql, **more})

    def rows(self, sql: str, **more: Any) -> list[Any]:
        """Return the rows of a query that is answered."""
        answer = self.ask(sql, **more)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def reports(app: Played) -> Caller:
    return Caller(app, REPORTS)


@pytest.fixture
def loader(app: Played) -> Caller:
    return Caller(app, LOADER)


@pytest.fixture
def admin(app: Played) -> Caller:
    return Caller(app, ADMIN)


# -- What is allowed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM shop.orders",
        "SELECT name FROM SHOP.Orders",
        "SELECT name FROM `shop`.`orders`",
        "SELECT name FROM `shop.orders`",
        "WITH salaries AS (SELECT name FROM shop.orders) SELECT name FROM salaries",
        "SELECT o.name FROM shop.orders o JOIN open.cities c ON c.id = o.id",
        "SELECT name FROM OPEN.cities WHERE EXISTS (SELECT 1 FROM shop.orders)",
    ],
)
def test_granted_tables_are_read_by_any_spelling(reports: Caller, sql: str) -> None:
    assert reports.rows(sql) == [{"name": "Ann"}]


def test_the_tables_of_a_caller_are_listed(reports: Caller, loader: Caller, admin: Caller) -> None:
    names = "SELECT name FROM system.tables ORDER BY name"
    assert [row["name"] for row in reports.rows(names)] == ["open.cities", "shop.orders"]
    assert [row["name"] for row in loader.rows(names)] == ["shop.notes", "shop.orders"]
    assert len(admin.rows(names)) == 7


def test_rows_of_granted_tables_are_changed(loader: Caller, admin: Caller) -> None:
    answer = loader.do("INSERT INTO SHOP.notes SELECT id + 1, name FROM shop.orders")
    assert (answer.status_code, answer.json()["rows"]) == (200, 1)
    assert admin.rows("SELECT name FROM shop.notes WHERE id = 2", after=answer.json()["token"]) == [{"name": "Ann"}]
    # The keys are those of WHERE, so nothing is read.
    assert loader.do("DELETE FROM shop.notes WHERE id = 2").json()["rows"] == 1


def test_the_token_of_the_application_may_do_everything(admin: Caller) -> None:
    assert admin.rows("SELECT name FROM shop.salaries") == [{"name": SECRET}]
    assert admin.rows("SELECT name FROM peek") == [{"name": SECRET}]
    assert admin.send("GET", "/status").status_code == 200


# -- What is not -------------------------------------------------------------------------------------------------------

HOSTILE = [
    line
    for line in (Path(__file__).parent / "hostile_rights.txt").read_text().splitlines()
    if line and not line.startswith("--")
]


def test_there_are_enough_statements() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_token_reaches_no_other_table(reports: Caller, loader: Caller, sql: str) -> None:
    explained = reports.send("POST", "/query?explain=true", json={"sql": sql})
    for answer in (explained, reports.ask(sql), loader.ask(sql), loader.do(sql)):
        # No table has a name of three parts, so none is looked for.
        is_no_name = answer.status_code == 404 and "names are <database>.<table>" in answer.text
        assert answer.status_code in (400, 403) or is_no_name, (answer.status_code, answer.text)
        assert SECRET not in answer.text


def test_hostile_statements_have_changed_nothing(admin: Caller) -> None:
    for name in ("shop.salaries", "shop.notes", "shop.orders"):
        assert [row["id"] for row in admin.rows(f"SELECT id FROM {name}")] == [1]
    assert len(admin.rows("SELECT name FROM system.tables")) == 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT * FROM shop.salaries", "SELECT * FROM shop.salariez"),
        ("SELECT nothing FROM shop.salaries", "SELECT nothing FROM shop.salariez"),
        ("SELECT * FROM peek", "SELECT * FROM peec"),
        ("SELECT * FROM system.lag", "SELECT * FROM system.lax"),
        ("SELECT * FROM streamrt_state.default", "SELECT * FROM streamrt_state.defaulx"),
    ],
)
def test_refusals_do_not_tell_what_exists(reports: Caller, one: str, other: str) -> None:
    answers = [reports.ask(one), reports.ask(other)]
    assert [each.status_code for each in answers] == [403, 403]
    first, second = (each.json()["message"] for each in answers)
    assert first.rpartition(" ")[0] == second.rpartition(" ")[0]


def test_statements_of_other_kinds_are_refused(reports: Caller, loader: Caller) -> None:
    refused = reports.do("INSERT INTO shop.notes VALUES (5, 'x')")
    assert (refused.status_code, refused.json()["message"]) == (403, "this token is for queries only")
    refused = loader.do("ALTER TABLE shop.notes ADD COLUMN x INT")
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        "this token may run INSERT, UPDATE and DELETE only",
    )
    refused = loader.do("UPDATE shop.notes SET name = 'x'")
    assert (refused.status_code, refused.json()["message"]) == (403, "this token may not read 'shop.notes'")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", each) for each in ("/status", "/config", "/stats", "/overview", "/metrics", "/topology", "/state")),
        *(("GET", each) for each in ("/state/default?partition=0", "/progress", "/end", "/idle?wait=1", "/query/")),
        *(("POST", each) for each in ("/pause", "/resume", "/stop", "/restart", "/checkpoint", "/topics/orders/pause")),
        *(("POST", each) for each in ("/query/x", "/queries/a/b", "/Query", "/execute%2f")),
    ],
)
def test_other_routes_are_closed(reports: Caller, method: str, path: str) -> None:
    assert reports.send(method, path, json={"sql": "SELECT 1 AS a"}).status_code == 403


def test_probes_are_open_and_tell_no_reasons(reports: Caller) -> None:
    assert reports.send("GET", "/live").status_code == 200
    assert "reasons" not in reports.send("GET", "/ready").json()


def test_queries_of_others_are_not_seen(reports: Caller, loader: Caller, admin: Caller) -> None:
    assert reports.ask("SELECT name FROM shop.orders", id="mine").status_code == 200
    wait_until(lambda: reports.send("GET", "/queries/mine").json()["status"] == "finished")
    for other in (loader, admin):
        for method in ("GET", "DELETE"):
            assert other.send(method, "/queries/mine").status_code == 404
    # The id is free for others.
    assert loader.ask("SELECT name FROM shop.orders", id="mine").status_code == 200


def test_tokens_of_other_topics_are_refused(reports: Caller) -> None:
    token = '{"v":1,"topics":{"shop.salaries":{"at":{"0":1}}}}'
    answer = reports.ask("SELECT name FROM shop.orders", after=token)
    assert (answer.status_code, answer.json()["error"]) == (403, "ControlRefusedError")
    assert "prices" not in answer.text


@pytest.mark.parametrize("token", ["", "canary", f"{REPORTS} ", REPORTS.upper(), f"{REPORTS}{LOADER}", "Bearer"])
def test_other_tokens_are_unknown(app: Played, token: str) -> None:
    answer = Caller(app, token).ask("SELECT 1 AS one")
    assert answer.status_code == (200 if token.strip() == REPORTS else 401)


def test_the_log_names_the_caller(reports: Caller, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reports.ask("SELECT name FROM shop.orders")
    wait_until(lambda: any(" (reports) POST 'query': 200, " in each.getMessage() for each in caplog.records))
    assert not [each for each in caplog.records if REPORTS in each.getMessage()]


# -- Settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"control_sql": None}, "control_rights has no effect without control_sql"),
        ({"control_sql": None, "control": None, "control_token": None}, "control_rights has no effect"),
        ({"control_sql": "read"}, "'loader' in control_rights may write tables, and control_sql=\"read\""),
        ({"control_rights": [RIGHTS[0], RIGHTS[0]]}, "'reports' twice"),
        ({"control_token": LOADER}, "are the same"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    given = {"control_token": ADMIN, "control_sql": "write", "control_rights": RIGHTS, **settings}
    with pytest.raises(ConfigurationError, match=message):
        Played(**given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"name": "a b", "read": ["shop.x"]}, ArgumentValueError, "letters, digits"),
        ({"name": "a"}, ArgumentValueError, "allows nothing"),
        ({"name": "a", "read": "shop.x"}, ArgumentTypeError, "a list of names"),
        ({"name": "a", "read": [1]}, ArgumentTypeError, "a list of names"),
        *(
            ({"name": "a", "write": [each]}, ArgumentValueError, "takes names such as")
            for each in ("*", "*.*", "x", "shop.o*", "s*.orders", "a.b.c", ".x", "x.", "")
        ),
    ],
)
def test_rights_that_are_none(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TokenRights(**{"token": "sesame", **given})
    with pytest.raises(ConfigurationError, match="the token of TokenRights"):
        TokenRights("a", "two words", read=["shop.x"])


def test_a_token_may_change(app: Played) -> None:
    tokens = ["first"]
    rights = TokenRights("mover", lambda: tokens[0], read=["shop.orders"])
    first, second = (Caller(app, token, [rights]) for token in ("first", "second"))
    assert [each.ask("SELECT 1 AS one").status_code for each in (first, second)] == [200, 401]
    tokens[0] = "second"
    assert [each.ask("SELECT 1 AS one").status_code for each in (first, second)] == [401, 200]
    # A function that fails locks out no other caller.
    tokens.clear()
    both = [rights, TokenRights("steady", "third", read=["shop.orders"])]
    assert Caller(app, "third", both).ask("SELECT 1 AS one").status_code == 200
    assert Caller(app, "second", both).ask("SELECT 1 AS one").status_code == 500


def test_a_main_token_that_fails_locks_out_no_other_caller_and_no_probe(catalog: Catalog) -> None:
    tokens = [ADMIN]
    app = Played(control_token=lambda: tokens[0], control_sql="write", control_rights=RIGHTS, catalog=catalog)
    tokens.clear()
    assert Caller(app, REPORTS).ask("SELECT 1 AS one").status_code == 200
    assert Caller(app, REPORTS).send("GET", "/status").status_code == 403
    for caller in (Caller(app, ADMIN), Caller(app, "wrong")):
        assert caller.send("GET", "/live").status_code == 200
        assert caller.send("GET", "/status").status_code == 500
