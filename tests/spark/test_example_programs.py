"""The examples as programs, on Spark and Kafka: they put out what the test driver puts out, and end on SIGTERM."""

import importlib.util
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake
import duckdb
import orjson
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog

from streamrt import Application
from streamrt.kafka import Consumer, Producer, TopicConfig
from streamrt.models import Headers
from streamrt.testing import TopologyTestDriver
from streamrt.topics import Topic
from tests.example_inputs import INPUTS, TOGETHER, Input
from tests.support import MASTER, Kafka, RunningProgram, unique, wait_until
from tests.support import running as in_this_process

pytestmark = [pytest.mark.spark, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
START_S = 150.0

Produced = tuple[bytes | None, bytes | None, int, tuple[tuple[str, Any], ...]]


WITH_CONNECTORS = {"frost", "lake", "ledger", "logs", "outbox", "parquet", "partner", "sensors", "weeks"}
WITH_TABLES = {"endpoints_sse"}
"""`test_tables_run.py` runs it."""
NO_APPLICATIONS = {
    "demo",
    "endpoints",
    "sql_adhoc",
    "sql_and_python",
    "sql_views",
    "tables_cdc",
    "tables_keyed",
    "tables_log",
    "tables_lookup",
    "tables_maintained",
    "test_thermostat",
}
"""`tests/kafka/test_example_tables.py` runs those of tables."""
BOUNDED = {"energy", "nexmark"}
"""`test_bounded_run.py` and `test_nexmark_run.py` run them."""
ALONE = "late_flights"
"""Runs in a process of its own, with nothing set but what users set; the others take turns in one process."""


def test_none_is_left_out() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names - NO_APPLICATIONS == {*INPUTS, *TOGETHER, *WITH_CONNECTORS, *WITH_TABLES, *BOUNDED}


@pytest.mark.parametrize("name", INPUTS)
def test_example(
    name: str,
    kafka: Kafka,
    program: Callable[..., RunningProgram],
    hosted: Callable[..., RunningProgram],
) -> None:
    expected = run_in_driver(name)
    make_app(name, kafka.address).setup_topics()
    produce(kafka.address, INPUTS[name])
    environment = {"STREAMRT_BROKER_ADDRESS": kafka.address, "STREAMRT_STATE_DIR": str(kafka.state_dir)}
    if name == ALONE:
        started = program(EXAMPLES / f"{name}.py", **environment)
    else:
        started = hosted(EXAMPLES / f"{name}.py", STREAMRT_SPARK_MASTER=MASTER, **environment)
    produced = consume(kafka.address, {topic: len(records) for topic, records in expected.items()}, started)
    code, _ = started.end()
    assert code == 0, started.err
    assert {topic: sorted(records, key=repr) for topic, records in produced.items()} == {
        topic: sorted(records, key=repr) for topic, records in expected.items()
    }
    if name == "columns":
        assert any("Rides" in line for line in started.out)
    if name == "dead_letters":
        assert any("below absolute zero" in line for line in started.err)


@pytest.mark.usefixtures("processing_mode")
def test_examples_with_state_run_together(kafka: Kafka) -> None:
    app = kafka.app(processing_guarantee="exactly-once")
    expected: dict[str, list[Produced]] = {}
    for name in TOGETHER:
        load(name).build(app)
        expected |= run_in_driver(name)
    app.setup_topics()
    for inputs in TOGETHER.values():
        produce(kafka.address, inputs)
    with in_this_process(app):
        for topic, records in expected.items():
            # Records of a key keep their order; those of different keys may come from different partitions.
            found = [(one.key, one.value, one.timestamp, ()) for one in kafka.receive(topic, len(records), START_S)]
            for key in {record[0] for record in records}:
                assert [one for one in found if one[0] == key] == [one for one in records if one[0] == key]
            assert len(found) == len(records)


def test_examples_with_connectors_run_together(kafka: Kafka, tmp_path: Path) -> None:
    app = kafka.app()
    outbox = load("outbox")
    outbox.fill(tmp_path / "shop.sqlite")
    outbox.build(app, tmp_path / "shop.sqlite")
    frost, trips = tmp_path / "frost.csv", tmp_path / "trips.parquet"
    load("frost").build(app, frost=frost)
    load("parquet").build(app, path=trips)
    load("ledger").build(app, tmp_path / "bank.sqlite")
    sensors, lake, logs = load("sensors"), load("lake"), load("logs")
    sensors.build(app, tmp_path / "sensors.duckdb", count=50)
    lake.build(app, tmp_path)
    logs.fill(tmp_path / "logs")
    logs.build(app, tmp_path / "logs", tmp_path / "failures")
    load("weeks").build(app)
    load("partner").build(app, kafka.address)
    app.setup_topics()
    kafka.admin.create_topics([Topic("partner-orders", TopicConfig(1, 1))])
    kafka.produce("partner-orders", [{"order": "a7", "pieces": pieces, "cents": 250} for pieces in (3, 0)], key=b"a7")
    kafka.produce("card-payments", [{"country": "FR", "euros": euros} for euros in (12.5, -2.5)], key=b"4711")
    kafka.produce("bookings", [{"account": "ann", "cents": cents} for cents in (500, -120, 70)], key=b"ann")
    kafka.produce("trips", [{"vehicle": "bus-7", "day": day, "km": 12.5} for day in ("2024-01-05", "2024-01-06")])
    with in_this_process(app):
        assert [(one.key, one.value) for one in kafka.receive("parcels", 2, START_S)] == [
            (b"ann", b'{"order":1,"item":"kettle","pieces":1}'),
            (b"bob", b'{"order":2,"item":"cup","pieces":6}'),
        ]
        wait_until(lambda: frost.exists() and len(frost.read_text().splitlines()) == 6, what="the days with frost")
        wait_until(lambda: (kafka.committed(app.config.consumer_group, "trips") or 0) == 2, what="the trips")
        wait_until(lambda: (kafka.committed(app.config.consumer_group, "bookings") or 0) == 3, what="the bookings")
        wait_until(lambda: (kafka.committed(app.config.consumer_group, "card-payments") or 0) == 2, what="the payments")
        wait_until(
            lambda: (kafka.committed(app.config.consumer_group, "source__sensors") or 0) == 50, what="the readings"
        )
        wait_until(lambda: (kafka.committed(app.config.consumer_group, "source__logs") or 0) == 5, what="the requests")
        assert [one.value for one in kafka.receive("partner-confirmations", 1, START_S)] == [
            b'{"order":"a7","total_cents":750}'
        ]
        last = {one.key: orjson.loads(one.value or b"") for one in kafka.receive("weeks", 10, START_S)}
    with closing(sqlite3.connect(tmp_path / "bank.sqlite")) as connection:
        assert connection.execute("SELECT account, cents FROM totals").fetchall() == [("ann", 450)]
        assert connection.execute("SELECT cents FROM bookings ORDER BY rowid").fetchall() == [(500,), (-120,), (70,)]
    assert {station: (week["days"], week["coldest"]) for station, week in last.items()} == {
        b"Oslo": (3, -23.1),
        b"Lyon": (4, -2.3),
        b"Faro": (3, 6.9),
    }
    with closing(duckdb.connect(str(tmp_path / "sensors.duckdb"), read_only=True)) as connection:
        assert [row[:2] for row in connection.execute(sensors.MEANS).fetchall()] == [
            (f"sensor-{number}", 10) for number in range(5)
        ]
    payments = deltalake.DeltaTable(tmp_path / "payments").to_pyarrow_table().to_pylist()
    with closing(load_catalog("default", **lake.catalog(tmp_path))) as catalog:
        refunds = catalog.load_table("shop.refunds").scan().to_arrow().to_pylist()
    assert sorted((row["_key"], row["euros"]) for row in payments) == [("4711", -2.5), ("4711", 12.5)]
    assert [(row["country"], row["euros"]) for row in refunds] == [("FR", -2.5)]
    failed = [
        row
        for file in (tmp_path / "failures").glob("*/*/*.parquet")
        for row in pyarrow.parquet.read_table(file).to_pylist()
    ]
    assert sorted((row["_timestamp"], row["status"]) for row in failed) == [
        (1_704_067_201_000, 503),
        (1_704_067_204_000, 500),
    ]
    written = pyarrow.dataset.dataset(trips, partitioning="hive").to_table().to_pylist()
    assert sorted((str(trip["day"]), trip["vehicle"], trip["km"], trip["_offset"]) for trip in written) == [
        ("2024-01-05", "bus-7", 12.5, 0),
        ("2024-01-06", "bus-7", 12.5, 1),
    ]


def test_example_that_is_a_test() -> None:
    done = subprocess.run(
        [sys.executable, "examples/test_thermostat.py"],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_app(name: str, address: str) -> Application:
    module = load(name)
    settings = {**getattr(module, "CALLBACKS", {}), **getattr(module, "SETTINGS", {})}
    app = Application(broker_address=address, loglevel=None, **settings)
    module.build(app)
    return app


def produce(address: str, inputs: list[Input]) -> None:
    with Producer(address) as producer:
        for record in inputs:
            headers = list(record.headers) or None
            producer.produce(record.topic, record.value, record.key, headers, timestamp=record.timestamp)


def run_in_driver(name: str) -> dict[str, list[Produced]]:
    """Return what the example produces in the test driver, by topic."""
    app = make_app(name, "unused:9092")
    with TopologyTestDriver(app) as driver:
        for record in (INPUTS | TOGETHER)[name]:
            headers: Headers | None = list(record.headers) or None
            driver.pipe_bytes(record.topic, record.value, key=record.key, timestamp=record.timestamp, headers=headers)
        outputs = set(app.topic_manager.all_topics) - set(app.topology.sources)
        return {
            topic: [
                (record.raw_key, record.raw_value, record.timestamp, tuple(record.headers or ()))
                for record in driver.read(topic)
            ]
            for topic in outputs
        }


def consume(address: str, wanted: dict[str, int], program: RunningProgram) -> dict[str, list[Produced]]:
    """Return the records of some topics as soon as there are as many as wanted."""
    found: dict[str, list[Produced]] = {topic: [] for topic in wanted}
    deadline = time.monotonic() + START_S
    with Consumer(address, unique("test"), "earliest", auto_commit_enable=False) as consumer:
        consumer.subscribe(list(wanted))
        while any(len(found[topic]) < count for topic, count in wanted.items()):
            assert program.process.poll() is None, f"the example ended by itself: {program.err}"
            assert time.monotonic() < deadline, f"the outputs did not arrive within {START_S:g} s: {found}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                headers: list[tuple[str, Any]] = message.headers() or []
                found[str(message.topic())].append(
                    (message.key(), message.value(), message.timestamp()[1], tuple(headers))
                )
    return found
