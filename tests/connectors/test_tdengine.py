"""`TDengineSink`, against a double of the REST API of taosAdapter."""

import base64
import gzip
import importlib.util
import json
import logging
import pickle
import re
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import cloudpickle
import pytest

from streamrt.connectors import TDengineSink
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.http_server import Answer, HTTPServer, Request
from tests.connectors.sinks import fill
from tests.servers import free_port

USER, PASSWORD, TOKEN = "root", "open-sesame", "token-sesame"


class TDengineDouble:
    """Answers as taosAdapter does, and keeps the lines that it gets.

    A line with the text `refused` gets the answer to a line with an error, which is 500 with a code of TDengine.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.parameters: list[dict[str, list[str]]] = []
        self.answers: list[Answer] = []
        self.largest = 100_000
        self.http = HTTPServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        parameters = parse_qs(parts.query)
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if request.headers.get("authorization") != basic and parameters.get("token") != [TOKEN]:
            return Answer(200, json.dumps({"code": 0x357, "desc": "Authentication failure"}).encode())
        if parts.path == "/rest/sql":
            return Answer(200, json.dumps({"code": 0, "data": [["log"], ["power"]], "rows": 2}).encode())
        assert parts.path == "/influxdb/v1/write"
        if self.answers:
            return self.answers.pop(0)
        body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        if body.count(b"\n") >= self.largest:
            return Answer(413)
        if b"refused" in body:
            return self.failed("[0x3002] Invalid data format: sesame")
        self.parameters.append(parameters)
        self.lines += body.decode().split("\n")
        return Answer(204)

    @staticmethod
    def failed(message: str) -> Answer:
        return Answer(500, json.dumps({"code": "internal error", "message": message}).encode())

    def __enter__(self) -> "TDengineDouble":
        self.http.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.stop()


@pytest.fixture
def double() -> Iterator[TDengineDouble]:
    with TDengineDouble() as running:
        yield running


def sink(double: TDengineDouble, **options: Any) -> TDengineSink:
    arguments: dict[str, Any] = {
        "host": double.http.url,
        "database": "power",
        "supertable": "meters",
        "subtable": "meter_1",
        "username": USER,
        "password": PASSWORD,
        "max_retries": 1,
        "retry_backoff_factor": 0.01,
    }
    return TDengineSink(**{**arguments, **options})


def started(double: TDengineDouble, **options: Any) -> TDengineSink:
    made = sink(double, **options)
    made.start()
    return made


class TestTDengineSink(BatchingSinkConformance):
    many: ClassVar[int] = 2_000
    values: ClassVar[Any] = ({"n": 1}, {"n": 2}, {"n": 3})
    keys: ClassVar[Any] = (b"key", None, b"", "schlüssel")

    @pytest.fixture(autouse=True)
    def target(self, double: TDengineDouble) -> None:
        self.double = double

    def make(self) -> TDengineSink:
        return sink(self.double, include_metadata_tags=True)

    def written(self) -> list[Written]:
        found = []
        for line in self.double.lines:
            tags = r"__subtable=meter_1(?:,__key=\S+)?,__topic=(\w+),__partition=(\d)"
            match = re.fullmatch(rf"meters,{tags} n=(\d)i (\d+)", line)
            assert match is not None, line
            topic, partition, number, timestamp = match.groups()
            found.append(Written({"n": int(number)}, None, int(timestamp), topic, int(partition)))
        return found


def test_the_request(double: TDengineDouble) -> None:
    made = started(
        double,
        supertable=lambda value: f"meters_{value['kind']}",
        subtable=lambda value: f"meter {value['meter']}",
        fields_keys=["volt"],
        tags_keys=["room"],
        time_precision="us",
        enable_gzip=False,
    )
    fill(made, value={"kind": "a", "meter": 7, "volt": 1.5, "room": "x y"}).flush()
    assert double.lines == ["meters_a,room=x\\ y,__subtable=meter\\ 7 volt=1.5 1000000"]
    assert double.parameters == [{"db": ["power"], "precision": ["u"], "table_name_key": ["__subtable"]}]


def test_a_token(double: TDengineDouble) -> None:
    fill(started(double, username="", password="", token=TOKEN)).flush()
    assert double.parameters[0]["token"] == [TOKEN]
    assert "authorization" not in double.http.requests[0].headers


@pytest.mark.parametrize(
    "wrong", [{"password": "wrong-sesame"}, {"username": "", "password": "", "token": "wrong-sesame"}]
)
def test_wrong_credentials(double: TDengineDouble, wrong: dict[str, Any]) -> None:
    with pytest.raises(
        SinkError, match=r"TDengineSink cannot connect to .*: it refuses the user or the token"
    ) as caught:
        started(double, **wrong)
    assert "sesame" not in str(caught.value)


def test_a_missing_database(double: TDengineDouble) -> None:
    with pytest.raises(SinkError, match=r"cannot write to database 'none' at http://127.*: there is no such database"):
        started(double, database="none")


def test_a_database_that_is_dropped(double: TDengineDouble) -> None:
    made = fill(started(double), 5)
    double.answers = [double.failed("[0x388] Database not exist")]
    with pytest.raises(SinkError, match=r"orders\[3\] offsets 0 to 4 .*: there is no such database"):
        made.flush()


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1"])
def test_a_server_that_is_not_there(double: TDengineDouble, host: str) -> None:
    with pytest.raises(SinkError, match=f"TDengineSink cannot connect to database 'power' at http://{host}"):
        started(double, host=f"http://{host}:{free_port()}")


def test_the_record_that_the_server_refuses_is_named(double: TDengineDouble) -> None:
    made = started(double)
    fill(made, 10)
    fill(made, start=10, value={"text": "refused"})
    fill(made, 5, start=11)
    with pytest.raises(SinkError, match=r"orders\[3\] offset 10 .*: it answers 500 with code 0x3002") as caught:
        made.flush()
    assert caught.value.record == ("orders", 3, 10)
    assert "sesame" not in str(caught.value)
    made.on_paused()
    fill(made).flush()


def test_requests_that_are_too_large_are_split(double: TDengineDouble) -> None:
    double.largest = 3
    fill(started(double), 10).flush()
    assert [int(line.split("n=")[1].split("i")[0]) for line in double.lines] == list(range(10))


def test_failures_that_may_pass_are_repeated(double: TDengineDouble) -> None:
    made = started(double)
    double.answers = [double.failed("[0x000b] Unable to establish connection")]
    fill(made).flush()
    assert len(double.lines) == 1
    double.answers = [Answer(503), Answer(500)]
    with pytest.raises(SinkBackpressureError, match="answers 500"):
        fill(made, start=1).flush()
    made.on_paused()
    double.answers = [Answer(429, headers={"Retry-After": "42"})]
    with pytest.raises(SinkBackpressureError) as caught:
        fill(made, start=1).flush()
    assert caught.value.retry_after == 42


def test_nothing_is_lost_when_the_server_restarts(double: TDengineDouble) -> None:
    made = started(double)
    fill(made, 20).flush()
    double.http.stop()
    with pytest.raises(SinkBackpressureError):
        fill(made, 20, start=20).flush()
    made.on_paused()
    double.http.start()
    fill(made, 20, start=20).flush()
    assert [int(line.split("n=")[1].split("i")[0]) for line in double.lines] == list(range(40))


def test_names_from_data_cannot_write_elsewhere(double: TDengineDouble) -> None:
    made = fill(started(double, subtable=lambda value: "a\nmeters,__subtable=b n=1i 1"))
    with pytest.raises(SinkError, match="its tag '__subtable' contains a line end"):
        made.flush()
    assert double.lines == []


def test_secrets_are_nowhere(double: TDengineDouble, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cases: list[dict[str, Any]] = [{}, {"username": "", "password": "", "token": TOKEN}]
    for options in cases:
        made = sink(double, **options)
        assert "sesame" not in repr(vars(made))
        assert b"sesame" not in cloudpickle.dumps(made)
        again: TDengineSink = pickle.loads(cloudpickle.dumps(made))
        again.start()
        fill(again).flush()
        double.answers = [Answer(400)]
        with pytest.raises(SinkError) as caught:
            fill(again).flush()
        assert "sesame" not in str(caught.value)
    assert "sesame" not in caplog.text
    fill(started(double, password=lambda: PASSWORD)).flush()


def test_a_missing_library_is_named(double: TDengineDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="TDengineSink needs the package httpx"):
        sink(double)
