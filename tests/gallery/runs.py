"""Runs of the examples without Kafka and Spark, for the gallery."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import deltalake
import duckdb
import pyarrow.parquet
from pyiceberg.catalog import load_catalog

from streamrt import Application
from streamrt.app import definition_of
from streamrt.cli.records.record_values import ReadFormat, decode
from streamrt.connectors import ListSink
from streamrt.models import Headers
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver
from streamrt.testing.memory_topics import MemoryLinks
from tests.example_inputs import INPUTS, TOGETHER, given
from tests.example_programs import feed, load, make_app

__all__ = ["Run", "run_example"]

MOST_READ = 2
MOST_WRITTEN = 4

BID = {"auction": 1007, "bidder": 1001, "date_time": 1_704_153_590_040, "extra": ""}
RECORDS = {
    **INPUTS,
    **TOGETHER,
    "ledger": given("bookings", "ann", {"account": "ann", "cents": 500}, {"account": "ann", "cents": -20}),
    "lake": given("card-payments", "4711", {"country": "FR", "euros": 12.5}, {"country": "FR", "euros": -2.5}),
    "parquet": given("trips", None, *({"vehicle": "bus-7", "day": "2024-01-05", "km": km} for km in (12.5, 0))),
    "nexmark": given("nexmark-bids", "1007", {**BID, "price": 1_500}, {**BID, "price": 200}),
    "partner": given("orders-here", None, *({"order": "a7", "pieces": pieces, "cents": 250} for pieces in (3, 0))),
}


@dataclass(frozen=True)
class Run:
    """What an example did.

    Attributes:
        reads: its input topics.
        writes: its output topics.
        lines: records that it read and wrote, what is in its files, or what it prints.
    """

    reads: list[str]
    writes: list[str]
    lines: list[str]


def run_example(name: str, directory: Path) -> Run:
    """Run an example.

    Args:
        name: its name.
        directory: for its files.
    """
    module = load(name)
    if name in WITHOUT_APPLICATION:
        return Run([], [], list(WITHOUT_APPLICATION[name](module)))
    app = make_app(module)
    results = WITH_FILES.get(name, _build)(module, app, directory)
    sources = definition_of(app).sources.processes
    with TopologyTestDriver(app) as driver:
        inputs = RECORDS.get(name, [])
        for record in inputs:
            headers: Headers | None = [*record.headers] or None
            driver.pipe_bytes(record.topic, record.value, key=record.key, timestamp=record.timestamp, headers=headers)
        if sources and not inputs:
            _run_to_its_end(sources[0].source)
            feed(app, driver)
            driver.end()
        reads = [topic for topic in app.topology.sources if not topic.startswith("repartition__")]
        writes = [topic for topic in app.topic_manager.all_topics if topic not in app.topology.sources]
        wrote = [
            ("wrote", topic, _text_of(each.raw_key, each.key), _text_of(each.raw_value, each.value))
            for topic in writes
            for each in driver.read(topic)
        ]
    read = [("read", each.topic, _text_of(each.key), _text_of(each.value)) for each in inputs]
    stored = [("stored", "", "", str(result)) for result in results()]
    return Run(reads, writes, _aligned([*read[:MOST_READ], *wrote[-MOST_WRITTEN:], *stored[:MOST_WRITTEN]]))


def _text_of(data: bytes | None, value: Any = None) -> str:
    """Return a key or a value as `streamrt consume` shows it; without text, the value that it stands for, or hex."""
    text, form = ("", "") if data is None else decode(data, ReadFormat.auto)
    if data is None or (form != "hex" and text.isprintable()):
        return text
    return data.hex() if value is None else str(value)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return rows as lines, with columns one below the other; a column without text is left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*columns, strict=True)]


def _run_to_its_end(source: Any) -> None:
    """Let a source end where it would wait for more, and let it not wait between records."""
    waits = source.stop if type(source).__name__ == "Outbox" else lambda: None
    source.sleep = lambda seconds: waits()


# -- Examples with files -----------------------------------------------------------------------------------------------

Results = Callable[[], Iterable[Any]]


def _build(module: ModuleType, app: Application, directory: Path) -> Results:
    module.build(app)
    return list


def _frost(module: ModuleType, app: Application, directory: Path) -> Results:
    module.build(app, frost=directory / "frost.csv")
    return lambda: (directory / "frost.csv").read_text().splitlines()


def _outbox(module: ModuleType, app: Application, directory: Path) -> Results:
    module.fill(directory / "shop.sqlite")
    module.build(app, directory / "shop.sqlite")
    return list


def _logs(module: ModuleType, app: Application, directory: Path) -> Results:
    module.fill(directory / "logs")
    module.build(app, directory / "logs", directory / "failures")
    files = directory / "failures"
    return lambda: [
        row for file in sorted(files.glob("*/*/*.parquet")) for row in pyarrow.parquet.read_table(file).to_pylist()
    ]


def _sensors(module: ModuleType, app: Application, directory: Path) -> Results:
    path = directory / "sensors.duckdb"
    module.build(app, path, count=10)

    def means() -> list[Any]:
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            return list(connection.execute(module.MEANS).fetchall())

    return means


def _ledger(module: ModuleType, app: Application, directory: Path) -> Results:
    path = directory / "bank.sqlite"
    module.build(app, path)

    def totals() -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return [
                (table, *row)
                for table in ("totals", "bookings")
                for row in connection.execute(f"SELECT account, cents FROM {table}").fetchall()
            ]

    return totals


def _lake(module: ModuleType, app: Application, directory: Path) -> Results:
    module.build(app, directory)

    def rows() -> Iterator[Any]:
        with closing(load_catalog("default", **module.catalog(directory))) as catalog:
            refunds = catalog.load_table("shop.refunds")
        payments = deltalake.DeltaTable(directory / "payments").to_pyarrow_table()
        for table, found in (("payments", payments), ("refunds", refunds.scan().to_arrow())):
            yield from sorted((table, row["_key"], row["country"], row["euros"]) for row in found.to_pylist())

    return rows


def _into_list(module: ModuleType, app: Application, directory: Path) -> Results:
    sink = ListSink()
    module.build(app, sink=sink)
    return lambda: sink


WITH_FILES = {
    "frost": _frost,
    "outbox": _outbox,
    "logs": _logs,
    "sensors": _sensors,
    "ledger": _ledger,
    "lake": _lake,
    "parquet": _into_list,
    "partner": _into_list,
}


# -- Examples that are not run as an application ------------------------------------------------------------------------


def _tables_log(module: ModuleType) -> Iterator[str]:
    shown = module.run(Catalog(store=MemoryCatalog(), links=MemoryLinks()))
    yield from (f"{what}: {shown[what]!r}" for what in ("token", "scores", "first", "rest"))


def _sql_adhoc(module: ModuleType) -> Iterator[str]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        shown = module.run(catalog)
    yield from (f"{what}: {shown[what]!r}" for what in ("best", "joined", "changed", "deleted"))


def _tables_keyed(module: ModuleType) -> Iterator[str]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        yield from (f"{what}: {shown!r}" for what, shown in module.run(catalog).items())


def _tables_maintained(module: ModuleType) -> Iterator[str]:
    with Catalog(store=MemoryCatalog()) as catalog:
        module.tables(catalog)
        app = Application(broker_address="unused:9092", consumer_group="maintainer", catalog=catalog)
        module.build(app)
        with TopologyTestDriver(app) as driver:
            yield from (f"{what}: {shown!r}" for what, shown in module.write(driver.table).items())


def _tables_lookup(module: ModuleType) -> Iterator[str]:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        module.tables(catalog)
        app = Application(broker_address="unused:9092", consumer_group="lookup", catalog=catalog)
        module.build(app)
        with TopologyTestDriver(app) as driver:
            module.write(driver.table)
            completed = module.completed(driver.table(module.COMPLETED))
            yield from (f"{what}: {shown!r}" for what, shown in completed.items())


def _tables_cdc(module: ModuleType) -> Iterator[str]:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    module.tables(catalog)
    app = Application(broker_address="unused:9092", consumer_group="changes", catalog=catalog)
    module.build(app)
    driver = TopologyTestDriver(app)
    for change in module.CHANGES:
        driver.pipe(module.TOPIC, change)
    for name in ("demo.customers", "demo.customer_history"):
        rows = {record.key: record.value for record in driver.read(name)}
        yield f"{name}:"
        yield from (f"  {rows[key]}" for key in sorted(rows) if rows[key] is not None)


def _sql(module: ModuleType) -> Iterator[str]:
    """Yield what a program with views in SQL shows, and the proof of its views."""
    with Catalog(store=MemoryCatalog()) as catalog:
        module.tables(catalog)
        app = Application(
            broker_address="unused:9092",
            consumer_group="views",
            catalog=catalog,
            processing_guarantee="exactly-once",
        )
        module.build(app)
        with TopologyTestDriver(app) as driver:
            yield from (f"{what}: {shown!r}" for what, shown in module.change(driver.table, lambda: None).items())
            if hasattr(module, "PREFERRED"):
                proof = driver.verify(module.PREFERRED)
                yield f"proof: {proof.rows} rows, {'equal' if proof.equal else proof}"


def _endpoints(module: ModuleType) -> Iterator[str]:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    module.tables(catalog)
    detected = module.detected(catalog, 1.0)
    yield from (f"{what}: {detected[what]!r}" for what in ("texts", "new", "missing"))
    module.copy(catalog)
    yield f"after another run: {module.result(catalog)!r}"


def _endpoints_sse(module: ModuleType) -> Iterator[str]:
    """Yield the topology: a run needs an HTTP server and a queue of AWS."""
    app = make_app(module)
    module.build(app)
    yield from filter(None, app.describe().splitlines())


def _test_thermostat(module: ModuleType) -> Iterator[str]:
    """Yield the end of pytest's output, which `test_example_that_is_a_test` compares; a run of its own takes seconds."""
    yield f"{sum(name.startswith('test_') for name in vars(module))} passed"


def _demo(module: ModuleType) -> Iterator[str]:
    """Yield nothing: it starts Kafka and Spark, and shows `late_flights` at work."""
    yield from ()


WITHOUT_APPLICATION: dict[str, Callable[[ModuleType], Iterator[str]]] = {
    "sql_adhoc": _sql_adhoc,
    "tables_cdc": _tables_cdc,
    "tables_log": _tables_log,
    "tables_keyed": _tables_keyed,
    "tables_maintained": _tables_maintained,
    "tables_lookup": _tables_lookup,
    "endpoints": _endpoints,
    "sql_views": _sql,
    "sql_and_python": _sql,
    "endpoints_sse": _endpoints_sse,
    "test_thermostat": _test_thermostat,
    "demo": _demo,
}
