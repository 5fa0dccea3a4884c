"""Lookups in a real PostgreSQL server."""

import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from pydantic import SecretStr

from streamrt.errors import ConfigurationError, MissingColumnError
from streamrt.joins import BaseField, LookupUnavailableError, PostgresLookup, PostgresLookupField
from streamrt.joins.lookups import sql
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from tests.postgres import NoPostgresError, Postgres, postgres
from tests.unit.apps import Stage

pytestmark = pytest.mark.slow

SCHEMA = (
    'CREATE TABLE customers (id INT, name TEXT, "odd ""%s name" TEXT, tags JSONB)',
    "INSERT INTO customers VALUES (1, 'ann', 'x', '[1]'), (2, 'bob', 'y', NULL), (2, 'bob''s', 'z', NULL)",
    'CREATE SCHEMA "other%schema"',
    'CREATE MATERIALIZED VIEW "other%schema".names AS SELECT name FROM customers',
    "CREATE TABLE gone (kept INT, dropped INT)",
    "ALTER TABLE gone DROP COLUMN dropped",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        with postgres() as running:
            running.execute(*SCHEMA)
            yield running
    except NoPostgresError as error:
        pytest.skip(str(error))


@pytest.fixture
def lookup(server: Postgres) -> Iterator[PostgresLookup]:
    lookup = PostgresLookup(**server.settings)
    yield lookup
    lookup.close()


def look(lookup: PostgresLookup, field: BaseField, on: Any = None, **value: Any) -> Any:
    lookup.join({"found": field}, on, value, None, 0, None)
    return value["found"]


def test_fields(lookup: PostgresLookup) -> None:
    assert look(lookup, lookup.field("customers", ["name", "tags"], on="id"), 1) == {"name": "ann", "tags": [1]}
    names = lookup.field(
        "customers", ["name"], "id", order_by="name", order_by_direction="DESC", first_match_only=False
    )
    assert look(lookup, names, 2) == [{"name": "bob's"}, {"name": "bob"}]
    assert look(lookup, lookup.field("customers", ["name"], on="id", default="nobody"), 3) == "nobody"
    assert look(lookup, lookup.field("customers", ['odd "%s name'], on='odd "%s name'), "y") == {'odd "%s name': "y"}
    assert look(lookup, lookup.field("names", ["name"], on="name", schema="other%schema"), "ann") == {"name": "ann"}


def test_queries(lookup: PostgresLookup) -> None:
    query = lookup.query_field("SELECT name, '100 %%' FROM customers WHERE id = %(customer)s AND name LIKE %(like)s")
    assert look(lookup, query, customer=2, like="bob_s") == ("bob's", "100 %")
    with pytest.raises(MissingColumnError, match="'like' is missing"):
        look(lookup, query, customer=2)
    everything = lookup.query_field("SELECT id FROM customers ORDER BY id", first_match_only=False)
    assert look(lookup, everything) == [(1,), (2,), (2,)]
    # A list can be bound, but is not a key of a cache.
    assert look(lookup, lookup.query_field("SELECT count(*) FROM customers WHERE id = ANY(%(ids)s)"), ids=[1, 2]) == (
        3,
    )


def test_answers_are_remembered(server: Postgres, lookup: PostgresLookup) -> None:
    server.execute("CREATE TABLE IF NOT EXISTS prices (item TEXT, price INT)", "INSERT INTO prices VALUES ('cup', 1)")
    field = lookup.field("prices", ["price"], on="item")
    assert look(lookup, field, "cup") == {"price": 1}
    server.execute("UPDATE prices SET price = 2")
    assert look(lookup, field, "cup") == {"price": 1}
    assert look(lookup, lookup.field("prices", ["price"], on="item", ttl=0), "cup") == {"price": 2}
    server.execute("DROP TABLE prices")


@pytest.mark.parametrize(
    "text", ["' OR '1'='1", "'; DROP TABLE customers; --", '" OR 1=1 --', "%s", "%(x)s", "$1", "\\"]
)
def test_nothing_that_is_looked_up_becomes_sql(lookup: PostgresLookup, text: str) -> None:
    assert look(lookup, lookup.field("customers", ["id"], on="name"), text) is None
    assert look(lookup, lookup.query_field("SELECT id FROM customers WHERE name = %(name)s"), name=text) is None
    for field in (
        PostgresLookupField(text, ["id"], on="name"),
        lookup.field("customers", [text], on="name"),
        lookup.field("customers", ["id"], on=text),
        lookup.field("customers", ["id"], on="name", order_by=text),
        lookup.field("customers", ["id"], on="name", schema=text),
    ):
        with pytest.raises(ConfigurationError, match=r"has no (table|column)"):
            look(lookup, field, "ann")
    assert look(lookup, lookup.query_field("SELECT count(*) FROM customers")) == (3,)


def test_what_the_database_refuses(lookup: PostgresLookup) -> None:
    for query, message in (
        ("SELECT x FROM customers", 'refuses a lookup: column "x" does not exist'),
        ("DELETE FROM customers", "refuses a lookup: cannot execute DELETE in a read-only transaction"),
        ("SELECT %(n)s::int", "refuses a lookup: invalid input syntax for type integer"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            look(lookup, lookup.query_field(query), n="x")
        assert look(lookup, lookup.query_field("SELECT 1")) == (1,)
    with pytest.raises(ConfigurationError, match=r"has no column 'dropped'; its columns: 'kept'"):
        look(lookup, lookup.field("gone", ["dropped"], on="kept"), 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(sql, "_LONGEST_PAUSE_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_lookup_may_not_take_for_ever(server: Postgres) -> None:
    patient = PostgresLookup(**server.settings, statement_timeout_seconds=1)
    assert look(patient, patient.query_field("SELECT pg_sleep(0.2)")) == ("",)
    assert look(patient, patient.query_field("SHOW statement_timeout")) == ("1s",)
    patient.close()
    quick = PostgresLookup(**server.settings, options="-c statement_timeout=50")
    with pytest.raises(LookupUnavailableError, match="canceling statement due to statement timeout"):
        look(quick, quick.query_field("SELECT pg_sleep(5)"))
    quick.close()


@pytest.mark.usefixtures("impatient")
def test_a_lost_connection_is_opened_again(server: Postgres, lookup: PostgresLookup) -> None:
    pid = lookup.query_field("SELECT pg_backend_pid()", ttl=0)
    (first,) = look(lookup, pid)
    server.execute(f"SELECT pg_terminate_backend({first})")
    (second,) = look(lookup, pid)
    assert second != first


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_away_is_nobodys_fault(server: Postgres, lookup: PostgresLookup) -> None:
    one = lookup.query_field("SELECT 1", ttl=0)
    assert look(lookup, one) == (1,)
    server.stop()
    try:
        with pytest.raises(
            LookupUnavailableError, match=r"the PostgreSQL database 'postgres' at 127\.0\.0\.1:\d+ did not"
        ):
            look(lookup, one)
    finally:
        server.start()
    assert look(lookup, one) == (1,)


@pytest.mark.usefixtures("impatient")
def test_a_wrong_password(server: Postgres) -> None:
    lookup = PostgresLookup(**{**server.settings, "password": "wrong-sesame"})
    with pytest.raises(LookupUnavailableError, match="password authentication failed") as caught:
        look(lookup, lookup.query_field("SELECT 1"))
    assert "wrong-sesame" not in str(caught.value)


@pytest.mark.parametrize("wrap", [str, SecretStr])
def test_a_password_travels_by_reference(server: Postgres, wrap: Any) -> None:
    lookup = PostgresLookup(**{**server.settings, "password": wrap(server.password)})
    assert server.password not in repr(vars(lookup))
    with collect_secrets() as collected:
        pickled = cloudpickle.dumps(lookup)
    assert server.password.encode() not in pickled
    assert server.password in "".join(collected.values())
    copied = pickle.loads(pickled)
    assert cloudpickle.dumps(copied)
    assert look(copied, copied.query_field("SELECT 1")) == (1,)
    assert server.password not in repr(vars(copied))
    copied.close()


def test_a_password_from_a_function(server: Postgres) -> None:
    password = server.password
    lookup = PostgresLookup(**{**server.settings, "password": lambda: password})
    assert look(lookup, lookup.query_field("SELECT 1")) == (1,)
    assert repr(lookup) == f"PostgresLookup('127.0.0.1', {server.port}, 'postgres', 'tester', ***)"
    lookup.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"password": 5}, r"password=\.\.\.\) must be a string or a function"),
        ({"connection_timeout_seconds": 0}, r"connection_timeout_seconds=\.\.\.\) must be 1 second or more"),
        ({"statement_timeout_seconds": 1.5}, r"statement_timeout_seconds=\.\.\.\) must be 1 second or more"),
        ({"sslmod": "require"}, "unsupported settings among sslmod: it takes"),
        ({"autocommit": True}, "unsupported settings among autocommit"),
        ({"sslmode": ["require"]}, r"sslmode=\.\.\.\) must be a string or a number"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PostgresLookup(**{"host": "h", "port": 1, "dbname": "d", "user": "u", "password": "p", **settings})


def test_in_an_application(server: Postgres) -> None:
    stage = Stage()
    lookup = PostgresLookup(**server.settings, sslmode="disable", prepare_threshold=None)
    fields = {"customer": lookup.field("customers", ["name"], on="id")}
    stage.sdf.join_lookup(lookup, fields, on="customer_id")
    with TopologyTestDriver(stage.app) as driver:
        driver.pipe(stage.source, {"customer_id": 1})
        assert [output[0] for output in driver.outputs()] == [{"customer_id": 1, "customer": {"name": "ann"}}]
    lookup.close()
