"""`InfluxDB3Source`, against a double of the queries of InfluxDB 3 (Arrow Flight)."""

import importlib.util
import json
import logging
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from pyarrow import flight

from streamrt.connectors import InfluxDB3Source
from streamrt.connectors.time_series.influxdb3_source import _fill_placeholders
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError, SourceError
from streamrt.testing.connectors import MemorySourceStore, StatefulSourceConformance
from tests.connectors.sources import DyingProducer, Run, crashed
from tests.servers import free_port

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
TOKEN = "open-sesame"


class Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets requests with the token in."""

    def start_call(self, info: Any, headers: Any) -> None:
        if headers.get("authorization") != [f"Bearer {TOKEN}"]:
            raise flight.FlightUnauthenticatedError("wrong token sesame")


class InfluxFlightDouble(flight.FlightServerBase):  # type: ignore[misc]
    """Answers queries for intervals of tables that have a row for each minute."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(f"grpc://127.0.0.1:{port}", middleware={"tokens": Tokens()})
        self.tables = ["humidity", 'temper"ature']
        self.queries: list[str] = []
        self.problems: list[Exception] = []
        self.hang = threading.Event()
        self.hang.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def do_get(self, context: Any, ticket: Any) -> Any:
        asked = json.loads(ticket.ticket)
        assert asked["database"] == "shop"
        query = asked["sql_query"]
        self.queries.append(query)
        self.hang.wait(20)
        if self.problems:
            raise self.problems.pop(0)
        return flight.RecordBatchStream(self._rows(query))

    def _rows(self, query: str) -> pa.Table:
        if "information_schema" in query:
            return pa.table({"table_name": self.tables})
        if "SELECT 1" in query:
            return pa.table({"one": [1]})
        found = re.search(r"FROM \"(.+)\" WHERE time >= '(.+)' AND time < '(.+)' ORDER", query)
        assert found is not None, query
        start, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in found.groups()[1:])
        minutes = [m for m in range(24 * 60) if start <= BEGIN + timedelta(minutes=m) < end]
        times = [(BEGIN + timedelta(minutes=m)).replace(tzinfo=None) for m in minutes]
        return pa.table(
            {
                "time": pa.array(times, pa.timestamp("ns")),
                "n": pa.array(minutes, pa.int64()),
                "room": pa.array(["x"] * len(minutes)).dictionary_encode(),
                "gone": pa.nulls(len(minutes), pa.float64()),
            }
        )


@pytest.fixture
def double() -> Iterator[InfluxFlightDouble]:
    with InfluxFlightDouble() as running:
        yield running
        running.hang.set()


def source(double: InfluxFlightDouble, **options: Any) -> InfluxDB3Source:
    arguments: dict[str, Any] = {
        "host": double.url,
        "token": TOKEN,
        "organization_id": "o",
        "database": "shop",
        "start_date": BEGIN,
        "end_date": BEGIN + timedelta(minutes=12),
        "measurements": "weather",
    }
    return InfluxDB3Source(**{**arguments, **options})


def numbers(run: Run) -> list[int]:
    return [value["n"] for value in run.values]


class TestInfluxDB3Source(StatefulSourceConformance):
    @pytest.fixture(autouse=True)
    def target(self, double: InfluxFlightDouble) -> None:
        self.double = double

    def make(self) -> InfluxDB3Source:
        return source(self.double)


def test_rows_become_records(double: InfluxFlightDouble) -> None:
    made = source(
        double,
        key_setter=lambda row: row["room"],
        timestamp_setter=lambda row: row["n"],
        measurement_column_name="from",
    )
    with Run(made) as run:
        run.to_end()
    assert numbers(run) == list(range(12))
    assert run.values[1] == {"time": "2026-01-01T00:01:00", "n": 1, "room": "x", "gone": None, "from": "weather"}
    assert (run.producer.records[1].key, run.producer.records[1].timestamp) == (b"x", 1)
    starts = [re.findall(r"'(.+?)'", query)[0] for query in double.queries[1:]]
    assert starts == [f"2026-01-01T00:{minute:02}:00.000000Z" for minute in (0, 5, 10)]


def test_all_measurements(double: InfluxFlightDouble) -> None:
    with Run(source(double, measurements=None, time_delta="1h")) as run:
        run.to_end()
    assert {value["_measurement_name"] for value in run.values} == set(double.tables)
    assert {record.key for record in run.producer.records} == {name.encode() for name in double.tables}
    assert any('FROM "temper""ature" WHERE' in query for query in double.queries)


def test_a_query_of_ones_own(double: InfluxFlightDouble) -> None:
    query = "SELECT n, time FROM {measurement_name} WHERE time >= '{start_time}' AND time < '{end_time}' ORDER BY n"
    with Run(source(double, sql_query=query)) as run:
        run.to_end()
    assert numbers(run) == list(range(12))
    assert _fill_placeholders("{a} {start_time}", {"start_time": "{end_time}", "end_time": "x"}) == "{a} {end_time}"


def test_the_position_survives_a_restart(double: InfluxFlightDouble) -> None:
    store = MemorySourceStore()
    with Run(source(double), store) as run:
        run.to_end()
    with Run(source(double, end_date=BEGIN + timedelta(minutes=20)), store) as run:
        run.to_end()
    assert numbers(run) == list(range(12, 20))


def test_what_was_not_flushed_comes_again(double: InfluxFlightDouble) -> None:
    store = MemorySourceStore()
    with Run(source(double), store, DyingProducer()) as run:
        assert "the process dies" in str(run.failure())
    with Run(source(double), crashed(store)) as run:
        run.to_end()
    assert numbers(run) == list(range(12))


def test_an_interval_is_read_when_it_is_over(double: InfluxFlightDouble) -> None:
    now = datetime.now(timezone.utc)
    store = MemorySourceStore()
    with Run(source(double, start_date=None, end_date=None), store) as run:
        assert run.connected.wait(60)
        assert run.running
    assert len(double.queries) == 1
    # The begin of the interval is remembered, though it was not read.
    begun = datetime.fromisoformat(store.state().get("weather"))
    assert now <= begun <= datetime.now(timezone.utc)
    late = source(double, end_date=now + timedelta(seconds=1), time_delta="4w", start_date=now, wait_for_late=0.2)
    with Run(late) as run:
        run.to_end()
    assert datetime.now(timezone.utc) >= now + timedelta(seconds=1.2)


def test_failures_that_may_pass_are_repeated(double: InfluxFlightDouble) -> None:
    with Run(source(double, end_date=BEGIN + timedelta(minutes=5), max_retries=1)) as run:
        assert run.connected.wait(60)
        run.to_end()
    with Run(source(double, max_retries=1)) as run:
        double.problems = [flight.FlightUnavailableError("busy")]
        run.to_end()
    assert numbers(run) == list(range(12))
    double.problems = [flight.FlightUnavailableError("busy")]
    with Run(source(double, max_retries=0)) as run:
        assert "cannot read database 'shop' at http://127" in str(run.failure())


def test_a_query_that_is_refused(double: InfluxFlightDouble) -> None:
    double.problems = [pa.ArrowInvalid("there is no such column")]
    with Run(source(double)) as run:
        assert "it refuses the query with" in str(run.failure())


def test_a_wrong_token(double: InfluxFlightDouble) -> None:
    with Run(source(double, token="wrong-sesame")) as run:
        error = run.failure()
    assert isinstance(error, SourceError)
    assert "cannot read database 'shop'" in str(error)
    assert "it refuses the token" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(double: InfluxFlightDouble, host: str) -> None:
    url = f"http://{host}:{free_port()}"
    with Run(source(double, host=url, max_retries=0)) as run:
        assert f"the source influxdb3_shop cannot read database 'shop' at {url}: it does not" in str(run.failure())


def test_a_database_without_measurements(double: InfluxFlightDouble) -> None:
    double.tables = []
    with Run(source(double, measurements=None)) as run:
        assert "found no measurement in database 'shop'" in str(run.failure())


def test_it_stops_while_the_server_hangs(double: InfluxFlightDouble) -> None:
    with Run(source(double)) as run:
        assert run.connected.wait(60)
        double.hang.clear()
    double.hang.set()


def test_a_row_that_cannot_be_produced_is_named(double: InfluxFlightDouble) -> None:
    with Run(source(double, key_setter=lambda row: row["sesame"])) as run:
        error = str(run.failure())
    assert "row 1 of an interval of measurement 'weather' in database 'shop'" in error
    assert "sesame" not in error


def test_secrets_are_nowhere(double: InfluxFlightDouble, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = source(double)
    assert TOKEN not in repr(vars(made))
    assert TOKEN.encode() not in cloudpickle.dumps(made)
    with Run(made) as run:
        run.to_end()
    assert TOKEN not in caplog.text


def test_a_missing_library_is_named(double: InfluxFlightDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="InfluxDB3Source needs the package influxdb_client_3"):
        source(double)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"host": "localhost"}, ArgumentValueError),
        ({"token": 7}, ArgumentTypeError),
        ({"organization_id": ""}, ArgumentValueError),
        ({"database": ""}, ArgumentValueError),
        ({"key_setter": 7}, ArgumentTypeError),
        ({"timestamp_setter": 7}, ArgumentTypeError),
        ({"start_date": "2026"}, ArgumentTypeError),
        ({"start_date": datetime(2026, 1, 1)}, ArgumentValueError),
        ({"end_date": BEGIN}, ArgumentValueError),
        ({"measurements": []}, ArgumentTypeError),
        ({"measurements": 7}, ArgumentTypeError),
        ({"measurement_column_name": ""}, ArgumentValueError),
        ({"sql_query": "SELECT 1"}, ArgumentValueError),
        ({"time_delta": "5"}, ArgumentValueError),
        ({"time_delta": "0m"}, ArgumentValueError),
        ({"time_delta": 5}, ArgumentTypeError),
        ({"delay": -1}, ArgumentValueError),
        ({"max_retries": -1}, ArgumentValueError),
        ({"wait_for_late": -1}, ArgumentValueError),
        ({"query_timeout": 0}, ArgumentValueError),
        ({"verify_ssl": 1}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(double: InfluxFlightDouble, wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="InfluxDB3Source"):
        source(double, **wrong)
