"""Tables that are sources and sinks of `streamrt.connectors`: statements, secrets by reference, and rows that are checked."""

import decimal
import json
import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamrt import Application
from streamrt.connectors import ListSink
from streamrt.errors import ConfigurationError, InvalidOperationError, SinkError
from streamrt.secret import SecretRef, masked
from streamrt.tables import Catalog, MemoryCatalog, SinkTable, SourceTable
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import MemorySourceStore
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import DeadLetters
from tests.connectors.http_server import Answer, HTTPServer, Request
from tests.connectors.test_endpoints import SourceRun, pipe
from tests.unit.table_homes import Tables


class Rides:
    """A service that lists rides, and takes what is posted."""

    def __init__(self) -> None:
        self.rides: list[object] = [{"id": 1, "km": "2.5"}, {"id": 2, "km": None}]
        self.posted: list[object] = []
        self.http = HTTPServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer sesame":
            return Answer(401)
        if request.method == "POST":
            self.posted.append(json.loads(request.body))
            return Answer(204)
        return Answer(200, json.dumps(self.rides).encode())


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rides]:
    service = Rides()
    service.http.start()
    monkeypatch.setenv("TEST_RIDES_TOKEN", "sesame")
    monkeypatch.setenv("TEST_RIDES_URL", service.http.url)
    yield service
    service.http.stop()


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    catalog.create_database("city")
    catalog.create_table("city.trips", "id BIGINT NOT NULL, km DECIMAL(5, 1), day DATE", topic="trips")
    return catalog


def make_app(catalog: Catalog, **settings: object) -> Application:
    return Application("unused:9092", consumer_group="city", catalog=catalog, **settings)  # type: ignore[arg-type]


def test_a_source_is_a_table(service: Rides, catalog: Catalog) -> None:
    rides = catalog.execute(
        """CREATE TABLE city.rides (id BIGINT NOT NULL, km DECIMAL(5, 1)) WITH (
            'connector' = 'source', 'connector.source' = 'HTTPPollingSource', 'key' = 'id',
            'connector.arguments.url' = '${env:TEST_RIDES_URL}/rides', 'connector.arguments.interval' = '0.02',
            'connector.arguments.auth_token' = 'env:TEST_RIDES_TOKEN'
        )"""
    ).info
    assert rides is not None
    assert rides.location()["arguments"] == {
        "url": "${env:TEST_RIDES_URL}/rides",
        "interval": 0.02,
        "auth_token": "env:TEST_RIDES_TOKEN",
    }
    app = make_app(catalog)
    sink = ListSink()
    app.dataframe("city.rides").sink(sink)
    assert "sesame" not in f"{app.describe()} {catalog.export()} {rides!r}"
    with SourceRun(app, MemorySourceStore()) as run:
        run.has(2)
        assert service.http.requests[0].headers["authorization"] == "Bearer sesame"
    records = run.records[:2]
    assert [(record.topic, record.key, record.value) for record in records] == [
        ("source__city.rides", b"1", b'{"id":1,"km":"2.5"}'),
        ("source__city.rides", b"2", b'{"id":2,"km":null}'),
    ]
    pipe(TopologyTestDriver(app), records)
    assert sink == [{"id": 1, "km": decimal.Decimal("2.5")}, {"id": 2, "km": None}]
    with pytest.raises(InvalidOperationError, match=r"table city\.rides \(source\) can be read alone"):
        app.dataframe("city.trips").to_table("city.rides")


def test_a_value_that_is_no_row_ends_the_source(service: Rides, catalog: Catalog) -> None:
    arguments = {"url": "${env:TEST_RIDES_URL}/", "auth_token": SecretRef.env("TEST_RIDES_TOKEN")}
    rides = SourceTable("HTTPPollingSource", arguments)
    catalog.create_table("city.rides", "id BIGINT NOT NULL", connector=rides)
    service.rides = [{"id": "secret"}]
    app = make_app(catalog)
    app.dataframe("city.rides")
    failure = SourceRun(app, MemorySourceStore()).failure()
    assert "record 1 of the answer" in str(failure)
    assert "column 'id' (BIGINT) must be an integer" in str(failure.__cause__)
    assert "secret" not in f"{failure} {failure.__cause__}"


def test_a_sink_is_a_table(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "city.sqlite"
    catalog.execute(
        f"""CREATE TABLE city.archive (id BIGINT NOT NULL, km DECIMAL(5, 1), day DATE, note STRING DEFAULT 'none') WITH (
            'connector' = 'sink', 'connector.sink' = 'SQLiteSink', 'connector.arguments.path' = '{path}',
            'connector.arguments.table_name' = 'rides', 'connector.arguments.include_metadata' = 'false'
        )"""
    )
    app = make_app(catalog)
    app.dataframe("city.trips").apply(lambda row: {**row, "km": "3.5"}).to_table("city.archive")
    driver = TopologyTestDriver(app)
    driver.pipe("trips", {"id": 1, "day": "2026-11-25"})
    driver.pipe("trips", {"id": 2})
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT id, km, day, note FROM rides ORDER BY id").fetchall()
    database.close()
    assert found == [(1, "3.5", "2026-11-25", "none"), (2, "3.5", None, "none")]
    with pytest.raises(InvalidOperationError, match=r"table city\.archive \(sink\) can be written alone"):
        app.dataframe("city.archive")
    with pytest.raises(InvalidOperationError, match=r"is external \(sink\)"):
        catalog.table("city.archive").writer()


def test_a_sink_has_secrets_by_reference(service: Rides, catalog: Catalog) -> None:
    token = SecretRef.env("TEST_RIDES_TOKEN")
    sink = SinkTable("WebhookSink", {"url": "${env:TEST_RIDES_URL}/rides", "auth_token": token})
    table = catalog.create_table("city.posts", "id BIGINT NOT NULL, km DOUBLE", connector=sink)
    app = make_app(catalog)
    app.dataframe("city.trips")[["id"]].to_table("city.posts")
    assert "sesame" not in f"{app.describe()} {catalog.export()} {table.info!r}"
    TopologyTestDriver(app).pipe("trips", {"id": 7})
    assert "sesame" not in json.dumps(service.posted)
    assert '"id": 7, "km": null' in json.dumps(service.posted)


def test_secrets_inside_arguments(
    service: Rides, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bearer = tmp_path / "bearer"
    bearer.write_text("Bearer sesame\n")
    sink = SinkTable(
        "WebhookSink", {"url": "${env:TEST_RIDES_URL}/rides", "headers": {"Authorization": SecretRef.file(str(bearer))}}
    )
    catalog.create_table("city.posts", "id BIGINT NOT NULL", connector=sink)
    source = SourceTable(
        "HTTPPollingSource", {"url": "http://unused/", "headers": {"X-Api-Key": SecretRef.env("TEST_RIDES_KEY")}}
    )
    catalog.create_table("city.rides", "id BIGINT NOT NULL", connector=source)
    app = make_app(catalog)
    app.dataframe("city.trips")[["id"]].to_table("city.posts")
    (made,) = app.topology.sinks.values()
    assert b"sesame" not in pickle.dumps(made)
    assert "sesame" not in f"{app.describe()} {catalog.export()}"
    TopologyTestDriver(app).pipe("trips", {"id": 7})
    assert service.posted
    assert masked("it was Bearer sesame") == "it was ***"
    with pytest.raises(ConfigurationError, match=r"the environment variable TEST_RIDES_KEY with a secret is not set"):
        app.dataframe("city.rides")
    monkeypatch.setenv("TEST_RIDES_KEY", "abracadabra")
    assert app.dataframe("city.rides").topics


def test_a_row_that_does_not_fit_is_rejected_by_the_sink(catalog: Catalog, tmp_path: Path) -> None:
    sink = SinkTable("SQLiteSink", {"path": str(tmp_path / "a.sqlite"), "table_name": "rides"})
    catalog.create_table("city.archive", "id BIGINT NOT NULL", connector=sink)

    def driver(**settings: object) -> TopologyTestDriver:
        app = make_app(catalog, **settings)
        app.dataframe("city.trips").apply(lambda row: {"id": None if row["id"] == 1 else row["id"]}).to_table(
            "city.archive"
        )
        return TopologyTestDriver(app)

    with pytest.raises(SinkError) as error:
        driver().pipe("trips", {"id": 1})
    assert "SQLiteSink gets no value of trips[0] offset 0: the row does not fit table city.archive: column 'id'" in str(
        error.value
    )
    letters = DeadLetters("dead")
    kept = driver(on_error={"sink": letters})
    kept.pipe("trips", {"id": 1})
    kept.pipe("trips", {"id": 2})
    assert len(kept.read("dead")) == 1
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        assert database.execute("SELECT id FROM rides").fetchall() == [(2,)]
    database.close()


@pytest.mark.parametrize(
    ("connector", "why"),
    [
        (SinkTable("NoSuchSink"), r"the sink 'NoSuchSink', which streamrt\.connectors does not have"),
        (
            SinkTable("PostgresSink"),
            r"the sink 'PostgresSink', which streamrt\.connectors does not have; did you mean PostgreSQLSink\?",
        ),
        (SinkTable("BatchingSink"), r"the sink 'BatchingSink', which streamrt\.connectors does not have"),
        (SourceTable("KinesesSource"), r"the source 'KinesesSource', .*; did you mean KinesisSource\?"),
        (SourceTable("StatefulSource"), r"the source 'StatefulSource', which streamrt\.connectors does not have"),
        *(
            (SinkTable(each), rf"the sink '{each}', which gives rows to the program")
            for each in ("ListSink", "SparkSink")
        ),
    ],
)
def test_classes_that_tables_cannot_have(catalog: Catalog, connector: SinkTable | SourceTable, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^table city\.none has {why}"):
        catalog.create_table("city.none", "id BIGINT", connector=connector)
    assert "city.none" not in catalog
    # A catalogue that another version has written may have it.
    home = Tables()
    home.add("city.none", "id BIGINT", connector)
    home.add("city.trips", "id BIGINT")
    app = Application("unused:9092", consumer_group="city", catalog=home)  # type: ignore[arg-type]
    use = app.dataframe if isinstance(connector, SourceTable) else app.dataframe("city.trips").to_table
    with pytest.raises(ConfigurationError, match=rf"^table city\.none has {why}"):
        use("city.none")


def test_arguments_that_a_sink_does_not_take(catalog: Catalog) -> None:
    catalog.create_table("city.none", "id BIGINT", connector=SinkTable("SQLiteSink", {"file": "x"}))
    with pytest.raises(ConfigurationError, match=r"the sink SQLiteSink of table city\.none cannot be made of file"):
        make_app(catalog).dataframe("city.trips").to_table("city.none")


def test_what_a_sink_has_no_use_for(catalog: Catalog) -> None:
    for given in ({"format": "avro"}, {"key_format": "int", "key": ["id"]}):
        with pytest.raises(ConfigurationError, match=r"is written by SQLiteSink, which gets rows and no bytes"):
            catalog.create_table("city.none", "id BIGINT", connector=SinkTable("SQLiteSink"), **given)
    with pytest.raises(ConfigurationError, match=r"names no sink: .* such as 'PostgreSQLSink'"):
        SinkTable("CSVSource")
    with pytest.raises(ConfigurationError, match=r"a secret in 'password', and a catalogue keeps none"):
        catalog.create_table("city.none", "id BIGINT", connector=SinkTable("PostgreSQLSink", {"password": "sesame"}))
