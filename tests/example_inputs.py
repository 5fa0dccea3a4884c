"""Records for the examples: tests run these on Kafka, and the gallery of the documentation shows them."""

from dataclasses import dataclass
from typing import Any

import orjson

FLIGHT = {"time_hour": "2013-07-01T10:00:00Z", "month": 7, "carrier": "UA", "flight": 1545, "dest": "IAH"}


@dataclass(frozen=True)
class Input:
    """A record to produce."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes], ...] = ()


def given(topic: str, key: str | None, *values: Any) -> list[Input]:
    return [Input(topic, orjson.dumps(value), None if key is None else key.encode()) for value in values]


INPUTS = {
    "late_flights": given(
        "flights",
        "UA",
        {**FLIGHT, "origin": "EWR", "dep_delay": 90, "arr_delay": None},
        {**FLIGHT, "origin": "EWR", "dep_delay": None, "arr_delay": None},
        {**FLIGHT, "origin": "JFK", "dep_delay": 61, "arr_delay": 40},
    ),
    "routing": given("orders", "ann", {"country": "FR", "total": 20}, {"country": "DE", "total": 5_000}),
    "words": [Input("texts", "Grüß Gott, World!".encode()), Input("texts", None), Input("texts", b"end")],
    "dead_letters": [
        Input("readings", b'{"sensor": "a", "celsius": "21.5"}', b"\0\0\0\7"),
        Input("readings", b"{broken", b"\0\0\0\7"),
        Input("readings", b'{"sensor": "a", "celsius": -300}', b"\0\0\0\7"),
        Input("readings", b'{"sensor": "a", "celsius": 1}', b"seven"),
        Input("readings", b'{"sensor": "b", "celsius": 1}', b"\0\0\0\7"),
    ],
    "metadata": [
        Input(
            "measurements",
            b'{"watts": 230, "measured_at_ms": 1699999999000}',
            b"m1",
            headers=(("trace", b"t"),),
        ),
        Input("measurements", b'{"watts": 0, "measured_at_ms": 1700000000000}', b"m2"),
    ],
    "columns": given(
        "rides",
        None,
        {"city": "Lyon", "km": 12.0, "fare": 24.0, "tip": None},
        {"city": "Lyon"},
        {"city": "Nice Airport", "km": 4.0, "fare": 20.0, "tip": 5.0, "paid_by": "card"},
    ),
    "inventory": given("movements", "cup", {"pieces": 12, "why": "delivered"}, {"pieces": -5, "why": "sold"}),
    "several_topics": [
        *given("page-views", None, {"user": "ann", "url": "/a"}, {"user": "bob", "url": "/b"}),
        *given("purchases", None, {"customer": "bob", "cents": 1999}),
    ],
}


# Examples that run together in this process, which costs less than a program for each.
TOGETHER = {
    # Not JSON: the value is {"id": "o1", "day": 2020-01-01, "price": 2.50, "pieces": 3}.
    "avro_orders": [Input("avro-orders", b"\x04o1\xac\x9d\x02\x04\x00\xfa\x06", b"ann")],
    "card_payments": [
        Input("payments", b'{"merchant": "kiosk", "cents": 250}', b"4711", timestamp=at)
        for at in (1_700_000_000_000, 1_700_000_300_000, 1_700_001_000_000)
    ],
    "routes": given(
        "departures",
        "UA",
        {"origin": "JFK", "dest": "LAX", "delay_min": 12},
        {"origin": "EWR", "dest": "IAH", "delay_min": None},
        {"origin": "JFK", "dest": "LAX", "delay_min": 3},
        {"origin": "JFK", "dest": "BOS", "delay_min": 0},
    ),
    "flights_per_hour": given(
        "scheduled-flights",
        "UA",
        *(
            {"time_hour": f"2013-07-01T{hour}:00:00Z", "dep_delay": delay}
            for hour, delay in [("05", 2), ("05", None), ("07", 1)]
        ),
    ),
    "click_sessions": [
        Input("clicks", b'{"page": "/cup"}', b"ann", timestamp=at)
        for at in (1_700_000_000_000, 1_700_000_300_000, 1_700_010_000_000)
    ],
    "discounts": [
        Input("discounts", b'{"minimum": 100.0, "percent": 5}', b"big", timestamp=1_700_000_001_000),
        Input("priced-orders", b'{"total": 120.0}', b"ann", timestamp=1_700_000_002_000),
        Input("discounts", b'{"percent": 0}', b"big", timestamp=1_700_000_003_000),
        Input("priced-orders", b'{"total": 120.0}', b"ann", timestamp=1_700_000_004_000),
    ],
    "enriched_orders": [
        *given("customer-orders", "ann", {"order": 1, "customer": 7}),
        *given("customer-orders", "bob", {"order": 2, "customer": 8}),
    ],
    "unpaid_orders": [
        Input(
            "order-events", b'{"type": "%s", "total": 20.0}' % kind, key, timestamp=1_700_000_000_000 + minute * 60_000
        )
        for kind, key, minute in ((b"order", b"1", 0), (b"payment", b"1", 1), (b"order", b"2", 2), (b"order", b"3", 30))
    ],
    "asof_readings": [
        Input("room-temperatures", b'{"celsius": 21.5}', b"hall", timestamp=1_700_000_000_000),
        Input("meter-readings", b'{"watts": 230}', b"hall", timestamp=1_700_000_001_000),
        Input("meter-readings", b'{"watts": 10}', b"attic", timestamp=1_700_000_002_000),
        Input("room-temperatures", b'{"celsius": 22.0}', b"hall", timestamp=1_700_000_003_000),
        Input("meter-readings", b'{"watts": 240}', b"hall", timestamp=1_700_000_004_000),
    ],
}
