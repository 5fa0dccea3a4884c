"""`InfluxDB3Sink`: writes go to QuestDB, which takes them as InfluxDB does; refusals come from a double."""

import gzip
import importlib.util
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt.connectors import InfluxDB3Sink
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.http_server import Answer, HTTPServer, Request
from tests.connectors.questdb import QuestDB, questdb
from tests.connectors.sinks import QUICK, fill
from tests.servers import free_port
from tests.support import unique


@pytest.fixture(scope="module")
def server() -> Iterator[QuestDB]:
    with questdb() as running:
        yield running


def sink(url: str, measurement: Any = "weather", **options: Any) -> InfluxDB3Sink:
    arguments: dict[str, Any] = {"token": "open-sesame", "host": url, "organization_id": "o", "database": "shop"}
    return InfluxDB3Sink(**{**arguments, "measurement": measurement, "retries": QUICK, **options})


def started(url: str, measurement: Any = "weather", **options: Any) -> InfluxDB3Sink:
    made = sink(url, measurement, **options)
    made.start()
    return made


class TestInfluxDB3Sink(BatchingSinkConformance):
    many: ClassVar[int] = 2_000
    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "x": 1.5, "b": True})
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel")

    @pytest.fixture(autouse=True)
    def target(self, server: QuestDB) -> None:
        self.server, self.table = server, unique("t").replace("-", "_")

    def make(self) -> InfluxDB3Sink:
        return sink(self.server.url, self.table, include_metadata_tags=True)

    def written(self) -> list[Written]:
        self.server.settled(self.table)
        # QuestDB keeps points with the same tags and time, in the order of arrival.
        rows = self.server.rows(f"SELECT *, timestamp::long us FROM {self.table} ORDER BY timestamp")
        found = []
        for row in rows:
            value = {name: row[name] for name in ("n", "text", "x", "b") if name in row}
            if value.get("b") is False:
                # QuestDB has no null of this type.
                del value["b"]
            found.append(Written(value, row.get("__key"), row["us"] // 1_000, row["__topic"], int(row["__partition"])))
        return found


def test_tags_times_and_precisions(server: QuestDB) -> None:
    table = unique("t").replace("-", "_")
    for precision, at in (("s", 5), ("ms", 5_000), ("us", 5_000_000), ("ns", 5_000_000_000)):
        made = started(
            server.url,
            lambda value: value["table"],
            fields_keys=["n"],
            tags_keys=["room"],
            time_setter="at",
            time_precision=precision,
            enable_gzip=precision == "s",
        )
        fill(made, value={"n": 1, "room": "a b,c=d", "at": at, "table": table}).flush()
    server.settled(table)
    rows = server.rows(f"SELECT * FROM {table}")
    assert rows == [{"room": "a b,c=d", "n": 1, "timestamp": "1970-01-01T00:00:05.000000Z"}] * 4


def test_the_record_that_the_server_refuses_is_named(server: QuestDB) -> None:
    table = unique("t").replace("-", "_")
    made = started(server.url, table)
    fill(made, 10)
    fill(made, start=10, value={"n": "sesame"})
    fill(made, 5, start=11)
    with pytest.raises(SinkError) as caught:
        made.flush()
    problem = str(caught.value)
    assert "InfluxDB3Sink cannot write orders[3] offset 10 to database 'shop' at http://127.0.0.1" in problem
    assert "it answers 400: field 'n' has another type there" in problem
    assert "sesame" not in problem
    made.on_paused()
    fill(made).flush()


@pytest.mark.slow
def test_nothing_is_lost_when_the_server_is_killed() -> None:
    with questdb() as own:
        made = started(own.url)
        fill(made, 20).flush()
        own.settled("weather")
        own.kill()
        fill(made, 20, start=20)
        with pytest.raises(SinkBackpressureError) as caught:
            made.flush()
        assert caught.value.retry_after == 3
        made.on_paused()
        own.start()
        fill(made, 20, start=20).flush()
        own.settled("weather")
        assert [row["n"] for row in own.rows("SELECT n FROM weather ORDER BY timestamp")] == list(range(40))


class InfluxDouble:
    """Answers as InfluxDB does; writes with the text `old` are beyond the retention period."""

    def __init__(self, **answers: Any) -> None:
        self.answers = list(answers.get("first", ()))
        self.http = HTTPServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        if b"# streamrt" in body:
            return Answer(204) if "sesame" in request.headers["authorization"] else Answer(401)
        if self.answers:
            answer: Answer = self.answers.pop(0)
            return answer
        if b"old" in body:
            message = {"code": "unprocessable", "message": "data in table 'w' is outside the retention period: sesame"}
            return Answer(422, json.dumps(message).encode())
        return Answer(204)

    def __enter__(self) -> "InfluxDouble":
        self.http.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.stop()


def test_the_request() -> None:
    with InfluxDouble() as double:
        made = started(double.http.url, enable_gzip=False)
        fill(made, 2).flush()
        check, write = double.http.requests
        assert check.path == write.path == "/api/v2/write?org=o&bucket=shop&precision=ms"
        assert write.headers["authorization"] == "Token open-sesame"
        assert write.body == b"weather n=0i 1000\nweather n=1i 1001"


def test_a_wrong_token() -> None:
    with InfluxDouble() as double, pytest.raises(SinkError, match="it refuses the token with 401") as caught:
        started(double.http.url, token="wrong")
    assert "wrong" not in str(caught.value)


def test_a_missing_database() -> None:
    with (
        HTTPServer(lambda request: Answer(404)) as server,
        pytest.raises(SinkError, match=r"to database 'shop' at http://127.*: there is no such database"),
    ):
        started(server.url)


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(host: str) -> None:
    with pytest.raises(SinkError, match=f"InfluxDB3Sink cannot connect: database 'shop' at http://{host}.* does not"):
        started(f"http://{host}:{free_port()}")


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_becomes_backpressure(status: int) -> None:
    with InfluxDouble(first=[Answer(status, headers={"Retry-After": "42"})]) as double:
        made = fill(started(double.http.url))
        with pytest.raises(SinkBackpressureError) as caught:
            made.flush()
        assert caught.value.retry_after == 42
        made.on_paused()
        fill(made).flush()


def test_a_busy_server_is_asked_again() -> None:
    with InfluxDouble(first=[Answer(503)]) as double:
        fill(started(double.http.url)).flush()
        assert len(double.http.requests) == 3


@pytest.mark.parametrize("strict", [True, False])
def test_points_beyond_the_retention_period(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    with InfluxDouble() as double:
        made = started(double.http.url, raise_on_retention_violation=strict)
        fill(made, 2)
        fill(made, start=2, value={"text": "old"})
        if strict:
            with pytest.raises(SinkError, match=r"orders\[3\] offset 2 .* older than the retention period") as caught:
                made.flush()
            assert "sesame" not in str(caught.value)
        else:
            made.flush()
            assert "dropped points of orders[3] offsets 0 to 2" in caplog.text


def test_secrets_are_nowhere(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    with InfluxDouble() as double:
        made = sink(double.http.url, debug=True)
        assert "sesame" not in repr(vars(made))
        assert b"sesame" not in cloudpickle.dumps(made)
        again: InfluxDB3Sink = pickle.loads(cloudpickle.dumps(made))
        again.start()
        fill(again).flush()
        assert ">>> Body: " in capsys.readouterr().out
        assert "sesame" not in caplog.text
        fill(started(double.http.url, token=lambda: "open-sesame")).flush()
    logging.getLogger("influxdb_client.client.http").handlers.clear()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"InfluxDB3Sink needs the package influxdb_client_3: .*\[influxdb3\]"):
        sink("http://localhost")
