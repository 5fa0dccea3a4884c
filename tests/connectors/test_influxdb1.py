"""`InfluxDB1Sink`, against InfluxDB 1."""

import importlib.util
import logging
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt.connectors import InfluxDB1Sink
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.influxd import PASSWORD, USER, Influx, influxd
from tests.connectors.sinks import QUICK, fill
from tests.servers import free_port
from tests.support import unique


@pytest.fixture(scope="module")
def server() -> Iterator[Influx]:
    with influxd() as running:
        yield running


def sink(server: Influx, measurement: Any = "weather", **options: Any) -> InfluxDB1Sink:
    arguments: dict[str, Any] = {
        "host": "127.0.0.1",
        "database": "shop",
        "port": server.port,
        "username": USER,
        "password": PASSWORD,
        "retries": QUICK,
    }
    return InfluxDB1Sink(**{**arguments, "measurement": measurement, **options})


def started(server: Influx, measurement: Any = "weather", **options: Any) -> InfluxDB1Sink:
    made = sink(server, measurement, **options)
    made.start()
    return made


class TestInfluxDB1Sink(BatchingSinkConformance):
    many: ClassVar[int] = 2_000
    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": 'größer 🚆 "\\\n x=1,y'}, {"n": 3, "x": 1.5, "b": True})
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel", b"a b,c=d")

    @pytest.fixture(autouse=True)
    def target(self, server: Influx) -> None:
        self.server, self.table = server, unique("table")

    def make(self) -> InfluxDB1Sink:
        return sink(self.server, self.table, include_metadata_tags=True)

    def written(self) -> list[Written]:
        rows = self.server.query(f'SELECT * FROM "{self.table}"', "shop")
        return [
            Written(
                {name: row[name] for name in ("n", "text", "x", "b") if name in row},
                row.get("__key"),
                row["time"] // 1_000_000,
                row["__topic"],
                int(row["__partition"]),
            )
            for row in sorted(rows, key=lambda row: (row["time"], row["__partition"]))
        ]

    def test_several_values_may_have_one_offset(self) -> None:
        """Points with the same tags and time are one point."""
        made = self.started()
        for _ in range(3):
            self._add_values(made, 5, 6)
        made.flush()
        assert len(self.written()) == 1


def test_points_that_come_again_are_stored_once(server: Influx) -> None:
    table = unique("table")
    for _ in range(2):
        fill(started(server, table), 20).flush()
    assert [row["n"] for row in server.query(f'SELECT n FROM "{table}"', "shop")] == list(range(20))


@pytest.mark.parametrize(("precision", "at"), [("s", 5), ("ms", 5_000), ("us", 5_000_000), ("ns", 5_000_000_000)])
def test_tags_times_and_precisions(server: Influx, precision: Any, at: int) -> None:
    table = unique("table")
    options: dict[str, Any] = {"fields_keys": ["n"], "tags_keys": ["room"], "time_setter": "at"}
    made = started(server, lambda value: value["table"], time_precision=precision, **options)
    fill(made, value={"n": 1, "room": "a b,c=d", "at": at, "table": table}).flush()
    assert server.query(f'SELECT * FROM "{table}"', "shop") == [{"time": 5_000_000_000, "n": 1, "room": "a b,c=d"}]


def test_the_record_that_the_server_refuses_is_named(server: Influx) -> None:
    table = unique("table")
    made = started(server, table)
    fill(made, 10)
    fill(made, start=10, value={"n": "sesame"})
    fill(made, 5, start=11)
    with pytest.raises(SinkError) as caught:
        made.flush()
    problem = str(caught.value)
    assert "InfluxDB1Sink cannot write orders[3] offset 10 to database 'shop' at 127.0.0.1" in problem
    assert "it answers 400: field 'n' has another type there" in problem
    assert "sesame" not in problem
    assert caught.value.record == ("orders", 3, 10)
    made.on_paused()
    fill(made).flush()


def test_a_point_beyond_the_retention_period_is_not_dropped_silently(server: Influx) -> None:
    server.query("CREATE DATABASE brief WITH DURATION 1h")
    made = fill(started(server, database="brief"))
    with pytest.raises(SinkError, match=r"orders\[3\] offset 0 .* older than the retention period"):
        made.flush()


def test_names_from_data_cannot_write_elsewhere(server: Influx) -> None:
    table = unique("table")
    made = started(server, lambda value: value["table"])
    fill(made, value={"n": 1, "table": f"{table}\nother n=1"})
    with pytest.raises(SinkError, match="the name of a measurement contains a line end"):
        made.flush()
    made.on_paused()
    name = f"{table} n=1,other"
    fill(made, value={"n": 1, "table": name}).flush()
    assert {"name": name} in server.query("SHOW MEASUREMENTS", "shop")


def test_a_wrong_password(server: Influx) -> None:
    with pytest.raises(SinkError, match=r"InfluxDB1Sink cannot connect to .* it refuses the user with 401") as caught:
        started(server, password="wrong-sesame")
    assert "sesame" not in str(caught.value)


def test_a_missing_database(server: Influx) -> None:
    with pytest.raises(SinkError, match=r"cannot write to database 'none' at 127.0.0.1:\d+: there is no such database"):
        started(server, database="none")


def test_a_database_that_is_dropped(server: Influx) -> None:
    server.query("CREATE DATABASE dropped")
    made = fill(started(server, database="dropped"), 5)
    server.query("DROP DATABASE dropped")
    with pytest.raises(SinkError, match=r"orders\[3\] offsets 0 to 4 .*: there is no such database"):
        made.flush()


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(server: Influx, host: str) -> None:
    with pytest.raises(SinkError, match=f"InfluxDB1Sink cannot connect to database 'shop' at {host}.* does not answer"):
        started(server, host=host, port=free_port())


@pytest.mark.slow
def test_nothing_is_lost_when_the_server_is_killed() -> None:
    with influxd() as own:
        made = started(own)
        fill(made, 20).flush()
        own.kill()
        fill(made, 20, start=20)
        with pytest.raises(SinkBackpressureError) as caught:
            made.flush()
        assert caught.value.retry_after == 3
        made.on_paused()
        own.start()
        fill(made, 20, start=20).flush()
        assert [row["n"] for row in own.query("SELECT n FROM weather", "shop")] == list(range(40))


def test_secrets_are_nowhere(server: Influx, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = sink(server)
    assert PASSWORD not in repr(vars(made))
    assert PASSWORD.encode() not in cloudpickle.dumps(made)
    again: InfluxDB1Sink = pickle.loads(cloudpickle.dumps(made))
    again.start()
    fill(again).flush()
    assert PASSWORD not in caplog.text
    fill(started(server, password=lambda: PASSWORD)).flush()


def test_a_missing_library_is_named(server: Influx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"InfluxDB1Sink needs the package influxdb: .*\[influxdb1\]"):
        sink(server)
