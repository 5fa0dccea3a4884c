"""The examples that read and write files, databases and lakes, without Kafka and Spark."""

import csv
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog

from streamrt.connectors import CSVSource, source_topic
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer
from tests.example_programs import feed, load, make_app, make_driver

pytestmark = pytest.mark.usefixtures("processing_mode")


def test_frost(tmp_path: Path) -> None:
    module = load("frost")
    app = make_app(module)
    module.build(app, frost=tmp_path / "frost.csv")
    source = CSVSource(module.WEATHER, "weather", module.station, module.midnight)
    producer = RecordingProducer()
    source.configure(source_topic(source), producer)
    source.start()
    assert len(producer.records) == 10
    with TopologyTestDriver(app) as driver:
        for record in producer.records:
            driver.pipe_bytes("source__weather", record.value, key=record.key, timestamp=record.timestamp)
    with (tmp_path / "frost.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == [
        "2024-01-05: -23.1 °C",
        "2024-01-06: -21.8 °C",
        "2024-01-07: -14.0 °C",
        "2024-01-07: -0.6 °C",
        "2024-01-08: -2.3 °C",
    ]
    assert (rows[3]["key"], rows[3]["timestamp"], rows[3]["offset"]) == ("Lyon", "1704585600000", "5")


def test_outbox_goes_on_where_it_was(tmp_path: Path) -> None:
    module = load("outbox")
    path = tmp_path / "shop.sqlite"
    module.fill(path)
    producer, store = RecordingProducer(), MemorySourceStore()

    def follow() -> list[Any]:
        """Run the source until it sleeps, that is, until it has produced what there is."""
        source = module.Outbox(path)
        source.sleep = lambda seconds: source.stop()
        source.configure(source_topic(source), producer, store_partition=store)
        source.start()
        found, producer.records[:] = list(producer.records), []
        return found

    first = follow()
    assert len(first) == 3
    assert follow() == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO outbox (customer, item, pieces) VALUES ('cid', 'tray', 2)")
    (fresh,) = follow()

    driver = make_driver("outbox")
    for record in (*first, fresh):
        driver.pipe_bytes("source__outbox", record.value, key=record.key)
    assert [(record.key, record.value) for record in driver.read("parcels")] == [
        ("ann", {"order": 1, "item": "kettle", "pieces": 1}),
        ("bob", {"order": 2, "item": "cup", "pieces": 6}),
        ("cid", {"order": 4, "item": "tray", "pieces": 2}),
    ]


def test_ledger_has_each_booking_and_the_last_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    driver = make_driver("ledger")
    for account, cents in (("ann", 500), ("bob", 70), ("ann", -20)):
        driver.pipe("bookings", {"account": account, "cents": cents}, key=account)
    with closing(sqlite3.connect("bank.sqlite")) as connection:
        totals = connection.execute("SELECT account, cents FROM totals ORDER BY account").fetchall()
        bookings = connection.execute("SELECT __key, cents FROM bookings").fetchall()
    assert totals == [("ann", 480), ("bob", 70)]
    assert bookings == [("ann", 500), ("bob", 70), ("ann", -20)]


@pytest.mark.slow
def test_sensors_fill_a_table(tmp_path: Path) -> None:
    module = load("sensors")
    app = make_app(module)
    module.build(app, tmp_path / "sensors.duckdb", count=5)
    with TopologyTestDriver(app) as driver:
        feed(app, driver)
    with closing(duckdb.connect(str(tmp_path / "sensors.duckdb"), read_only=True)) as connection:
        means = connection.execute(module.MEANS).fetchall()
        humid = connection.execute("SELECT bool_and(humid = (percent > 50)) FROM readings").fetchall()
    assert [(sensor, readings) for sensor, readings, _ in means] == [(f"sensor-{number}", 1) for number in range(5)]
    assert all(10 < celsius < 32 for _, _, celsius in means)
    assert humid == [(True,)]


@pytest.mark.slow
def test_lake_has_each_payment_and_refund(tmp_path: Path) -> None:
    module = load("lake")
    app = make_app(module)
    module.build(app, tmp_path)
    with TopologyTestDriver(app) as driver:
        for country, euros in (("FR", 12.5), ("DE", 7), ("FR", -2.5)):
            driver.pipe("card-payments", {"country": country, "euros": euros}, key="4711", timestamp=1_000)
    payments = deltalake.DeltaTable(tmp_path / "payments")
    with closing(load_catalog("default", **module.catalog(tmp_path))) as catalog:
        refunds = catalog.load_table("shop.refunds")
    assert payments.metadata().partition_columns == ["country"]
    assert sorted((row["country"], row["euros"]) for row in payments.to_pyarrow_table().to_pylist()) == [
        ("DE", 7.0),
        ("FR", -2.5),
        ("FR", 12.5),
    ]
    assert [(row["_key"], row["euros"]) for row in refunds.scan().to_arrow().to_pylist()] == [("4711", -2.5)]


def test_logs_become_parquet_files(tmp_path: Path) -> None:
    module = load("logs")
    logs, failures = tmp_path / "logs", tmp_path / "failures"
    module.fill(logs)
    app = make_app(module)
    module.build(app, logs, failures)
    with TopologyTestDriver(app) as driver:
        feed(app, driver)
    rows = [
        row for file in sorted(failures.glob("*/*/*.parquet")) for row in pyarrow.parquet.read_table(file).to_pylist()
    ]
    assert [(row["_key"], row["path"], row["status"]) for row in rows] == [
        ("web-1", "/cart", 503),
        ("web-1", "/cart", 500),
    ]
    assert rows[1]["_timestamp"] == rows[1]["at"] == 1_704_067_204_000
