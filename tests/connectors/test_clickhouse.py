"""The sink of ClickHouse, against its engine behind a small front."""

import datetime
import decimal
import importlib.util
import json
import logging
import pickle
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt import Application
from streamrt.connectors import BatchingSink, ClickHouseSink, SinkBackpressureError, SinkBatch
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkError
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.clickhouse_server import PASSWORD, USER, ClickHouseServer, clickhouse_server
from tests.connectors.proxy import Proxy, proxy

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("chdb") is None, reason="the engine of ClickHouse has half a gigabyte: pip install chdb"
)


ORIGIN = "__topic String, __partition Int32, __offset Int64, __number Int32"


class House:
    """The server, and a way to it that can be closed."""

    def __init__(self, server: ClickHouseServer, way: Proxy) -> None:
        self.server, self.way = server, way

    def table(self, columns: str, engine: str = "MergeTree ORDER BY tuple()", name: str = "orders") -> None:
        self.server.query(f"CREATE TABLE default.`{name}` ({columns}) ENGINE = {engine}")

    def rows(self, order: str = "ALL", final: str = "") -> list[dict[str, Any]]:
        return self.server.query(f"SELECT * FROM default.orders {final} ORDER BY {order}")

    def sink(self, table: str = "orders", **settings: Any) -> Any:
        given = {"username": USER, "password": PASSWORD, **settings}
        sink = ClickHouseSink("127.0.0.1", table, self.way.port, **given)
        sink._retries = Retries(first_wait_s=0.001, retry_after_s=3)
        return sink


@pytest.fixture(scope="module")
def running() -> Iterator[House]:
    with clickhouse_server() as server, proxy(server.port) as way:
        yield House(server, way)


@pytest.fixture
def house(running: House) -> House:
    running.server.query("DROP TABLE IF EXISTS default.orders SYNC")
    return running


def batch_of(*values: Any, keys: Any = None, first: int = 40) -> SinkBatch:
    batch = SinkBatch("orders", 0)
    for number, value in enumerate(values):
        key = b"key" if keys is None else keys[number]
        batch.append(value, key, 1_000, [("h", b"\x01"), ("none", None)], first + number)
    return batch


class TestClickHouseSink(BatchingSinkConformance):
    many = 2_000
    values: ClassVar[Any] = (
        {"n": 1},
        {"n": 2, "text": "größer 🚆"},
        {"n": 3, "list": [1, None]},
        {"text": "a'\\\n\"`"},
        {},
    )

    @pytest.fixture(autouse=True)
    def destination(self, house: House) -> None:
        self.house = house
        columns = f"n Nullable(Int8), text Nullable(String), list Array(Nullable(Int64)), {ORIGIN}"
        # Inserted blocks stay in order.
        self.house.table(columns, "Memory")

    def make(self) -> BatchingSink:
        sink: BatchingSink = self.house.sink(add_topic_metadata=True)
        return sink

    def written(self) -> list[Written]:
        rows = self.house.server.query("SELECT * FROM default.orders")
        return [
            Written(
                {name: cell for name, cell in row.items() if not name.startswith("__") and cell not in (None, [])},
                topic=row["__topic"],
                partition=row["__partition"],
                offset=int(row["__offset"]),
            )
            for row in rows
        ]


def test_columns_have_types(house: House) -> None:
    house.table(
        "flag Bool, price Decimal(10, 2), when DateTime64(3, 'UTC'), day Date, id UUID, ratio Float64, raw String,"
        " tags Map(String, Int32), big UInt64, kind LowCardinality(Nullable(String)), extra String DEFAULT 'none',"
        " doubled UInt64 MATERIALIZED big * 2"
    )
    number = uuid.uuid4()
    value = {
        "flag": True,
        "price": decimal.Decimal("1.25"),
        "when": datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=datetime.timezone.utc),
        "day": datetime.date(2024, 5, 6),
        "id": number,
        "ratio": float("-inf"),
        "raw": b"\xff\x00",
        "tags": {"a": 1},
        "big": 2**64 - 1,
        "kind": None,
    }
    house.sink().write(
        batch_of(value, {**value, "when": "2024-05-06T09:08:09.123+02:00", "big": "18446744073709551615"})
    )
    select = "toString(price) AS price, toString(ratio) AS ratio, hex(raw) AS raw, toString(big) AS big"
    for row in house.server.query(f"SELECT * EXCEPT (price, ratio, raw, big), {select} FROM default.orders"):
        assert row == {
            "flag": True,
            "price": "1.25",
            "when": "2024-05-06 07:08:09.123",
            "day": "2024-05-06",
            "id": str(number),
            "ratio": "-inf",
            "raw": "FF00",
            "tags": {"a": 1},
            "big": "18446744073709551615",
            "kind": None,
            "extra": "none",
        }


def test_metadata(house: House) -> None:
    house.table(f"n Int64, __key String, __timestamp Int64, __headers String, {ORIGIN}")
    sink = house.sink(add_message_metadata=True, add_topic_metadata=True)
    batch = batch_of({"n": 1})
    batch.append({"n": 2}, b"\xff", 2_000, [("h", b"\x01")], 40)
    sink.write(batch)
    first, second = house.server.query(
        "SELECT n, hex(__key) AS key, __timestamp AS t, __headers AS h, __topic, __partition, __offset, __number"
        " FROM default.orders ORDER BY n"
    )
    origin = {"__topic": "orders", "__partition": 0}
    assert {name: first[name] for name in origin} == origin
    assert (first["key"], int(first["t"]), json.loads(first["h"])) == ("6B6579", 1_000, [["h", "\x01"], ["none", None]])
    assert (int(first["__offset"]), first["__number"], int(second["__offset"]), second["__number"]) == (40, 0, 40, 1)
    assert second["key"] == "FF"


def test_each_value_once(house: House) -> None:
    engine = "ReplacingMergeTree ORDER BY (__topic, __partition, __offset, __number)"
    house.table(f"n Int64, {ORIGIN}", engine)
    sink = house.sink(add_topic_metadata=True)
    sink.write(batch_of(*({"n": n} for n in range(5))))
    # After a crash, batches have other boundaries.
    sink.write(batch_of(*({"n": n} for n in range(2, 8)), first=42))
    rows = house.rows("n", "FINAL")
    assert [int(row["n"]) for row in rows] == list(range(8))


def test_a_block_that_is_sent_again_is_stored_once(house: House) -> None:
    house.table("n Int64", "MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 100")
    for _ in range(2):
        house.sink(chunk_size=2).write(batch_of(*({"n": n} for n in range(5))))
    # Other content and other origins are not repetitions.
    house.sink(chunk_size=2).write(batch_of({"n": 7}, {"n": 8}))
    house.sink(chunk_size=2).write(batch_of({"n": 0}, {"n": 1}, first=140))
    assert [int(row["n"]) for row in house.rows("n")] == [0, 0, 1, 1, 2, 3, 4, 7, 8]


def test_null_and_unknown_columns_may_be_accepted(house: House) -> None:
    house.table("n Int64 DEFAULT 7, text Nullable(String)")
    value = {"n": None, "text": "x", "other": 1}
    for sink in (house.sink(null_as_default=True), house.sink(ignore_unknown_columns=True)):
        with pytest.raises(SinkError):
            sink.write(batch_of(value))
    house.sink(null_as_default=True, ignore_unknown_columns=True).write(batch_of(value))
    assert [(int(row["n"]), row["text"]) for row in house.rows()] == [(7, "x")]


def test_names_are_quoted(house: House) -> None:
    name = "or`ders; DROP TABLE x --"
    house.server.query('CREATE TABLE default.`or\\`ders; DROP TABLE x --` (`a``b" c` Int8) ENGINE = Memory')
    house.sink(name).write(batch_of({'a`b" c': 5}))
    assert house.server.query("SELECT * FROM default.`or\\`ders; DROP TABLE x --`") == [{'a`b" c': 5}]


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_a_wrong_host(host: str) -> None:
    with pytest.raises(
        SinkError, match=rf"^ClickHouseSink cannot reach table default.orders of ClickHouse at {host}:1: "
    ):
        ClickHouseSink(host, "orders", 1).start()


def test_a_wrong_password(house: House) -> None:
    house.table("n Int64")
    with pytest.raises(SinkError, match=r"cannot use table default.orders .*: it refuses the credentials$") as caught:
        house.sink(password="top-secret").start()
    assert "top-secret" not in repr(caught.value)
    passwords = ["top-secret", PASSWORD]
    house.sink(password=lambda: passwords.pop(0)).write(batch_of({"n": 1}))
    assert passwords == []


def test_a_missing_table(house: House) -> None:
    with pytest.raises(SinkError, match=r"cannot use table default.orders of .*: it answers UNKNOWN_TABLE \(60\)$"):
        house.sink().start()
    with pytest.raises(SinkError, match=r"cannot use table nope.orders of .*: it answers UNKNOWN_DATABASE \(81\)$"):
        house.sink(database="nope").start()


@pytest.mark.slow
def test_a_server_that_dies(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.table(f"n Int64, {ORIGIN}", "ReplacingMergeTree ORDER BY (__topic, __partition, __offset, __number)")
    sink = house.sink(add_topic_metadata=True, chunk_size=400)
    sink.start()
    values = [{"n": n} for n in range(2_000)]
    house.way.close_after(80_000)
    try:
        with (
            caplog.at_level(logging.INFO, "streamrt"),
            pytest.raises(
                SinkBackpressureError, match=r"write of orders\[0\] to table .* failed, also when it was repeated"
            ) as caught,
        ):
            sink.write(batch_of(*values))
        assert caught.value.retry_after == 3
        house.server.kill()
        house.server.start()
        assert 0 < len(house.rows()) < 2_000
    finally:
        house.way.open()
    sink.write(batch_of(*values))
    assert [int(row["n"]) for row in house.rows("n", "FINAL")] == list(range(2_000))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["secret-value"], "its value has the type list"),
        ({"n": "secret-value"}, "insert column 'n' of orders[0] at offset 47"),
        ({"when": "secret-value"}, "insert column 'when' of orders[0] at offset 47"),
        ({"n": None}, "Int64 cannot be null"),
        ({"small": 300}, "a number is outside of UInt8"),
        ({"small": "-1"}, "a number is outside of UInt8"),
        ({"list": [1, 2, 999]}, "insert column 'list' of orders[0] at offset 47"),
        ({"list": [None]}, "Int8 cannot be null"),
        ({"list": None}, "Array(Int8) cannot be null"),
        ({"n": 2**63}, "a number is outside of Int64"),
        ({"text": "\ud800 secret-value"}, "insert column 'text' of"),
        ({"text": {"secret-value"}}, "JSON cannot express it (TypeError)"),
        ({"n": 1, "no such column": "secret-value"}, "'no such column' of orders[0] at offset 47"),
    ],
)
def test_what_cannot_be_inserted(house: House, value: Any, words: str) -> None:
    house.table("n Int64, small UInt8, list Array(Int8), when DateTime, text String")
    sink = house.sink()
    values: list[Any] = [{"n": n} for n in range(20)]
    values[7] = value
    with pytest.raises(SinkError) as caught:
        sink.write(batch_of(*values))
    assert words in str(caught.value)
    assert "orders[0] at offset 47 into table default.orders of ClickHouse" in str(caught.value)
    assert "secret-value" not in str(caught.value) + repr(caught.value.__cause__)
    assert house.rows() == []
    sink.write(batch_of({"n": 1}))
    assert [int(row["n"]) for row in house.rows()] == [1]


def test_secrets_stay_hidden(house: House) -> None:
    house.table("n Int64")
    sink = house.sink(client_name="of-a-client")
    with collect_secrets() as collected:
        data = cloudpickle.dumps(sink)
    for text in (data, repr(sink).encode(), repr(vars(sink)).encode()):
        assert PASSWORD.encode() not in text
        assert b"of-a-client" not in text
    assert PASSWORD in collected.values()
    again = pickle.loads(data)
    again.start()
    again.write(batch_of({"n": 1}))
    assert len(house.rows()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"host": ""}, "host"),
        ({"table": ""}, "table"),
        ({"port": 0}, "port"),
        ({"database": None}, "database"),
        ({"username": ""}, "username"),
        ({"password": None}, "password"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"null_as_default": 1}, "null_as_default"),
        ({"ignore_unknown_columns": 1}, "ignore_unknown_columns"),
        ({"add_message_metadata": 1}, "add_message_metadata"),
        ({"add_topic_metadata": 1}, "add_topic_metadata"),
        ({"secure": "yes"}, "secure"),
        ({"no_such_setting": "secret-value"}, "unsupported settings no_such_setting"),
        ({"show_clickhouse_errors": False}, "unsupported settings show_clickhouse_errors"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        ClickHouseSink(**{"host": "localhost", "table": "orders", **arguments})
    assert "secret-value" not in str(caught.value)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigurationError, match=r"ClickHouseSink needs the package clickhouse_connect: .*\[clickhouse\]"
    ):
        ClickHouseSink("localhost", "orders")


def test_at_the_end_of_a_dataframe(house: House) -> None:
    house.table("sku String")
    app = Application(broker_address="unused:9092", consumer_group="shop")
    orders = app.topic("orders", key_serializer="str")
    app.dataframe(orders).sink(house.sink())
    with TopologyTestDriver(app) as driver:
        driver.pipe(orders, {"sku": "piano"}, key="ada")
    assert house.rows() == [{"sku": "piano"}]


def test_c6_a_row_that_the_server_does_not_name_is_found(house: House) -> None:
    house.table("n Int64, CONSTRAINT small CHECK n < 100", "Memory")
    sink = house.sink()
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 45 into .*VIOLATED_CONSTRAINT") as caught:
        sink.write(batch_of(*({"n": 500 if n == 5 else n} for n in range(9))))
    assert caught.value.record == ("orders", 0, 45)
