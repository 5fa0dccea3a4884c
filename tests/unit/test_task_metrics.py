"""Counts and measurements of tasks for metrics: state, caches, operators, timers, late records, sinks and failed records."""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from streamrt import Application, Context, ProcessFunction, TimerContext
from streamrt.app import definition_of
from streamrt.common.replica_sizes import measure_replicas
from streamrt.connectors import BaseSink, BatchingSink, SinkBatch
from streamrt.connectors.retries import Retries, retry_counts
from streamrt.dataframe.joins.lookups import SQLiteLookup, SQLiteLookupField
from streamrt.errors import SinkBackpressureError
from streamrt.models import Headers, RawRecord
from streamrt.runtime.driver.observation.recent import Recent
from streamrt.runtime.report import FailedRecord, Failure, Pause, Report
from streamrt.runtime.tasks import task_registry
from streamrt.runtime.tasks.chain import operator_times
from streamrt.runtime.tasks.chain.failed_records import FailedRecords
from streamrt.runtime.tasks.chain.operator_times import OperatorTimes
from streamrt.runtime.tasks.task_executor import measure_process
from streamrt.secret import accept_secrets
from streamrt.state import MemoryStore, RocksDBStore, Stamp, StoreIdentity
from streamrt.state.rocksdb import block_cache_usage
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver
from streamrt.testing.driver.record_processing import DriverExecution
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topology import Tallies, Tally, TaskId
from streamrt.topology.tallies import (
    CACHE_HITS,
    CACHE_MISSES,
    LATE_RECORDS,
    LOOKUP_HITS,
    LOOKUP_MISSES,
    OPERATOR_RECORDS,
    OPERATOR_SECONDS,
    SINK_RETRIES,
    SINK_RETRY_SECONDS,
    TABLE_DELETES,
    TABLE_DELETIONS,
    TABLE_INSERTIONS,
    TABLE_UNCHANGED,
    TABLE_UPDATES,
    TABLE_UPSERTS,
    TIMERS,
)
from streamrt.windows import Count
from tests.unit.apps import START, application
from tests.unit.table_homes import Tables

modes = pytest.mark.usefixtures("processing_mode")


class KeepsReports(DriverExecution):
    """Keeps the sum of all reports."""

    def __init__(self, *arguments: Any) -> None:
        self.report = Report()
        super().__init__(*arguments)

    @override
    def _handle_report(self, report: Report) -> None:
        self.report.merge(report)
        super()._handle_report(report)


class Reports(TopologyTestDriver):
    _execution: KeepsReports

    def __init__(self, app: Application) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("streamrt.testing.driver.topology_driver.DriverExecution", KeepsReports)
            super().__init__(app, start=START)

    @property
    def report(self) -> Report:
        return self._execution.report

    def counted(self, kind: str) -> dict[tuple[str, str], float]:
        return {tally[1:]: count for tally, count in self.report.tallies.items() if tally.kind == kind}


def totals(value: Any, state: Any) -> Any:
    state.set("total", state.get("total", 0) + value)
    return value


@modes
def test_reads_of_state_and_sizes_of_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_registry, "_FIRST_SIZES_S", 0.0)
    app = application()
    topic = app.topic("in")
    app.dataframe(topic).apply(totals, stateful=True)
    with Reports(app) as driver:
        for key in ("a", "b", "a", "a"):
            driver.pipe(topic, 1, key=key)
        hits, misses = driver.counted(CACHE_HITS), driver.counted(CACHE_MISSES)
        assert misses[("in", "default")] >= 2
        assert hits.get(("in", "default"), 0) + misses[("in", "default")] == 4
        size = driver.report.sizes[TaskId("in", 0), "default"]
        assert size.size > 0
        assert size.entries is not None
        assert size.entries >= 1


class Timed(ProcessFunction):
    def process_element(self, value: Any, ctx: Context) -> None:
        ctx.register_processing_time_timer(ctx.current_processing_time + 10)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp


@modes
def test_timers_and_late_records() -> None:
    app = application()
    timed, windowed = app.topic("timed"), app.topic("windowed")
    app.dataframe(timed).process(Timed())
    app.dataframe(windowed).tumbling_window(100, grace_ms=0).count().final()
    with Reports(app) as driver:
        for key in "abc":
            driver.pipe(timed, 1, key=key)
        driver.advance(20)
        for timestamp in (50, 250, 60, 70, 260):
            driver.pipe(windowed, 1, key="k", timestamp=timestamp)
        assert driver.counted(TIMERS) == {("timed", "process_Timed"): 3}
        [(where, late)] = driver.counted(LATE_RECORDS).items()
        assert where[0] == "windowed"
        assert late == 2


@modes
def test_changes_of_tables() -> None:
    tables = Tables()
    tables.add("shop.users", "id BIGINT, name STRING, PRIMARY KEY (id)")
    tables.add("shop.copy", "id BIGINT, name STRING, PRIMARY KEY (id)")
    tables.add("shop.names", "name STRING, n BIGINT, PRIMARY KEY (name)")
    app = application(catalog=tables, processing_guarantee="exactly-once")
    users = app.table("shop.users")
    users.group_by("name").agg(n=Count()).to_table("shop.names")
    users.to_table("shop.copy")
    with Reports(app) as driver:
        for number, name in ((1, "ann"), (2, "ann"), (1, "ann"), (1, "bob"), (2, None), (3, None)):
            driver.pipe("shop.users", None if name is None else {"id": number, "name": name}, key=number)
        labels = {node.operator.describe() or node.label: node.label for node in definition_of(app).topology.nodes}
        kinds = (TABLE_INSERTIONS, TABLE_UPDATES, TABLE_DELETIONS, TABLE_UNCHANGED, TABLE_UPSERTS, TABLE_DELETES)

        def counted(label: str) -> list[float]:
            return [sum(n for (_, name), n in driver.counted(kind).items() if name == label) for kind in kinds]

        assert counted("table-1") == [2, 1, 1, 2, 0, 0]
        assert counted(labels["n"]) == [2, 2, 1, 0, 0, 0]
        assert counted(labels["shop.names"]) == [0, 0, 0, 0, 4, 1]
        assert counted(labels["shop.copy"]) == [0, 0, 0, 0, 3, 1]


def test_copies_of_tables_are_measured() -> None:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    catalog.create_database("measured")
    table = catalog.create_table("measured.users", "id BIGINT, name STRING, PRIMARY KEY (id)", num_partitions=2)
    with table.replica() as replica:
        token = table.upsert([{"id": number, "name": "ann"} for number in range(10)])
        replica.wait_for(token)
        assert measure_replicas()["measured.users"] == (10, 0)
        report = Report()
        measure_process(report)
        assert [sizes["measured.users"] for sizes in report.replicas.values()] == [(10, 0)]
    assert "measured.users" not in measure_replicas()
    catalog.close()


def test_caches_of_lookups(tmp_path: Path) -> None:
    path = tmp_path / "airlines.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE carriers (code TEXT, name TEXT)")
        connection.execute("INSERT INTO carriers VALUES ('UA', 'United')")
    app = application()
    topic = app.topic("in")
    frame = app.dataframe(topic)
    frame.join_lookup(SQLiteLookup(path), {"name": SQLiteLookupField("carriers", ["name"], on="code")}, on="carrier")
    with Reports(app) as driver:
        for carrier in ("UA", "UA", "LH", "UA"):
            driver.pipe(topic, {"carrier": carrier}, key="k")
        assert driver.counted(LOOKUP_HITS) == {("in", "join_lookup-1"): 2}
        assert driver.counted(LOOKUP_MISSES) == {("in", "join_lookup-1"): 2}


class Shaky(BatchingSink):
    """Needs a second attempt for each batch."""

    def write(self, batch: SinkBatch) -> None:
        answers = iter([ConnectionError("busy"), None])

        def request() -> None:
            if (error := next(answers)) is not None:
                raise error

        Retries(first_wait_s=0).write(request, passing=(ConnectionError,), what="the insert")


class Full(BaseSink):
    """Accepts nothing."""

    def flush(self) -> None:
        pass

    def add(
        self, value: Any, key: Any, timestamp: int, headers: Headers | None, topic: str, partition: int, offset: int
    ) -> None:
        raise SinkBackpressureError(3.0, "the disk is full")


@modes
def test_repeated_requests_of_sinks() -> None:
    app = application()
    topic = app.topic("in")
    app.dataframe(topic).sink(Shaky())
    # Those that others have made do not count.
    retry_counts.add(1.0)
    with Reports(app) as driver:
        driver.pipe(topic, 1)
        assert driver.counted(SINK_RETRIES) == {("", ""): 1}
        assert driver.counted(SINK_RETRY_SECONDS).get(("", ""), 0) < 1


# -- Operators -----------------------------------------------------------------------------------------------------------


def test_each_operator_has_its_own_time() -> None:
    now = itertools.count()
    tallies = Tallies()
    seen: list[Any] = []

    def last(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        seen.append(value)
        next(now)

    def branches() -> Any:
        others, end = [last], last

        def run(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            for other in others:
                other(value, key, timestamp, headers)
            end(value, key, timestamp, headers)

        return run

    def built(child: Any) -> Any:
        def helper(value: Any) -> None:
            child(value, None, 0, None)

        def run(value: Any, key: Any, timestamp: int, headers: Any) -> None:
            next(now), next(now)
            helper(value)

        return run

    first = built(branches())
    times = OperatorTimes({"last-2": (last,), "first-1": (first,)}, tallies, clock=lambda: float(next(now)))
    timed = times.timed(first)
    assert timed is not None
    with times.measuring("source-0"):
        timed(7, None, 0, None)
    assert seen == [7, 7]
    found = tallies.drain("in")
    assert {tally.name: count for tally, count in found.items() if tally.kind == OPERATOR_RECORDS} == {
        "source-0": 1,
        "first-1": 1,
        "last-2": 1,
    }
    # Each look at the clock also takes a second.
    seconds = {tally.name: count for tally, count in found.items() if tally.kind == OPERATOR_SECONDS}
    assert seconds == {"source-0": 2.0, "first-1": 5.0, "last-2": 4.0}
    # Everything is where it was.
    before = next(now)
    first(8, None, 0, None)
    assert next(now) == before + 5
    assert tallies.drain("in") == {}


def test_closures_are_put_back_after_an_error() -> None:
    def child(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        raise ValueError(value)

    def run(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        child(value, key, timestamp, headers)

    original = child
    [cell] = run.__closure__ or ()
    times = OperatorTimes({"child-1": (child,), "run-0": (run,)}, Tallies())
    with times.measuring("source"):
        assert cell.cell_contents is not original
    assert cell.cell_contents is original
    with pytest.raises(ValueError, match="5"), times.measuring("source"):
        run(5, None, 0, None)
    assert cell.cell_contents is original


@modes
@pytest.mark.parametrize("every_s", [0.0, 1e9], ids=["all timed", "none timed"])
def test_results_are_the_same_for_timed_records(monkeypatch: pytest.MonkeyPatch, every_s: float) -> None:
    monkeypatch.setattr(operator_times, "_EVERY_S", every_s)
    app = application(on_processing_error=lambda *_: True)
    topic = app.topic("in")
    frame = app.dataframe(topic).apply(lambda value: value + 1)
    frame.filter(lambda value: value % 2 == 0).apply(totals, stateful=True).to_topic(app.topic("even"))
    frame.apply(lambda value: 12 // (value - 3)).to_topic(app.topic("odd"))
    with Reports(app) as driver:
        for number in range(6):
            driver.pipe(topic, number, key="k")
        assert [each.value for each in driver.read("even")] == [2, 4, 6]
        assert [each.value for each in driver.read("odd")] == [-6, -12, 12, 6, 4]
        assert driver.report.skipped == 1
        records = driver.counted(OPERATOR_RECORDS)
        if every_s:
            assert records == {}
        else:
            assert records[("in", "apply-1")] == 6
            assert records[("in", "filter-2")] == 6
            assert records[("in", "apply-3")] == 3
            assert driver.counted(OPERATOR_SECONDS)[("in", "apply-1")] > 0


@modes
def test_operators_on_columns_have_their_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_times, "_EVERY_S", 0.0)
    app = application()
    topic = app.topic("in")
    frame = app.dataframe(topic)
    frame["double"] = frame["n"] * 2
    frame = frame[frame["double"] > 2]
    frame.update(lambda value: value.update(seen=True)).to_topic(app.topic("out"))
    with Reports(app) as driver:
        for number in range(3):
            driver.pipe(topic, {"n": number})
        records = driver.counted(OPERATOR_RECORDS)
        expected = {"assign-1": 3, "where-2": 3, "update-3": 1, "to_topic-4": 1}
        assert {name: records[("in", name)] for name in expected} == expected


def test_a_count_may_begin_again() -> None:
    count = [5]
    tallies = Tallies()
    tallies.watch("hits", "lookup", lambda: count[0])
    assert tallies.drain("in") == {Tally("hits", "in", "lookup"): 5}
    count[0] = 2
    assert tallies.drain("in") == {Tally("hits", "in", "lookup"): 2}


@pytest.mark.parametrize("kind", [MemoryStore, RocksDBStore])
def test_approximate_entries(tmp_path: Path, kind: Any) -> None:
    store = kind("totals", "orders", tmp_path)
    with closing(store.open(0)) as partition:
        assert partition.approximate_entries() == 0
        identity = StoreIdentity("shop", "orders", 0, "totals", None, None, 1)
        partition.write([(b"%d" % number, b"value") for number in range(50)], Stamp(identity, 1, 5, None, 0))
        assert partition.approximate_entries() == 50
        partition.write([(b"%d" % number, None) for number in range(20)], Stamp(identity, 2, 6, None, 0))
        assert 30 <= (partition.approximate_entries() or 0) <= 52
    if kind is RocksDBStore:
        with closing(store.open(0)) as partition:
            # Also of files that nothing has read yet.
            assert partition.approximate_entries() == 30
            assert (block_cache_usage() or -1) >= 0


# -- Failed records ------------------------------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("policy", ["skip", "callback"])
def test_the_first_failed_record_of_a_kind_is_reported(policy: str) -> None:
    asked = {"on_processing_error": lambda *_: True}
    app = application(**({"on_error": "skip"} if policy == "skip" else asked))
    topic = app.topic("in")
    app.dataframe(topic).apply(lambda value: 1 // value)
    with Reports(app) as driver:
        for value in (1, 0, 0, 0):
            driver.pipe(topic, value, key="k")
        assert driver.report.skipped == 3
        [failed] = driver.report.failed
        assert failed.task == TaskId("in", 0)
        assert (failed.kind, failed.stage, failed.topic, failed.offset) == ("skipped record", "process", "in", 1)
        assert failed.operator.startswith("apply-1")
        assert failed.message == "ZeroDivisionError: integer division or modulo by zero"


def test_a_skipped_record_that_is_not_noted_is_not_made() -> None:
    app = application(on_processing_error=lambda *_: True)
    app.dataframe(app.topic("in")).apply(lambda value: 1 // value)
    now, made = [0.0], list[int]()
    failed = FailedRecords(definition_of(app).task_spec(), lambda: now[0])
    node = app.topology.nodes[1]

    def record() -> RawRecord:
        made.append(1)
        return RawRecord("in", 0, 7, None, b"0", 0, 1, None)

    for at in (0.0, 1.0, 9.9, 10.0, 11.0):
        now[0] = at
        failed.skip_quietly("process", ZeroDivisionError("no"), record, node)
    assert failed.take() == (5, 0)
    assert [(each.offset, each.operator, each.more) for each in failed.take_noted("in")] == [
        (7, str(node), 0),
        (7, str(node), 2),
    ]
    assert len(made) == 2


@modes
def test_the_name_of_a_sink_that_pauses_is_reported() -> None:
    app = application()
    topic = app.topic("in")
    app.dataframe(topic).sink(Full())
    with Reports(app) as driver:
        with pytest.raises(SinkBackpressureError) as caught:
            driver.pipe(topic, 1)
        assert (caught.value.retry_after, caught.value.reason, caught.value.sink) == (3.0, "the disk is full", "Full")


def test_what_recent_errors_say() -> None:
    accept_secrets({"reference-of-recent": "open-sesame"})
    now = [100.0]
    recent = Recent(clock=lambda: now[0])
    task = TaskId("orders", 3)
    recent.report(
        Report(
            failed=[
                FailedRecord(task, "dead letter", "process", "orders", 97, "apply-1", "KeyError: open-sesame", 4),
                FailedRecord(task, "skipped record", "sink", "orders", 98, "WebhookSink", "SinkError: 400"),
            ],
            stalled={task: Pause(5.0, "away", sink="WebhookSink"), TaskId("orders", 4): Pause(1.0)},
            failure=Failure("processing", TaskId("orders", 3), None, "no way"),
        ),
        finished=True,
    )
    for number in range(30):
        recent.note_error(("source", "meter"), f"failed {number}")
    errors = recent.errors()
    assert [each.message for each in errors["topic", "orders"]] == [
        "dead letter: orders[3] at 97 (apply-1): KeyError: ***; 4 more since the last one like this"
    ]
    assert [each.message for each in errors["sink", "WebhookSink"]] == [
        "away",
        "skipped record: orders[3] at 98: SinkError: 400",
    ]
    assert [each.message for each in errors["sink", "of orders"]] == ["a sink asked for 1 s"]
    assert [each.message for each in errors["source", "meter"]] == [f"failed {number}" for number in range(10, 30)]
    found = [(each.kind, each.record, each.operator) for each in recent.troubles()]
    assert found == [
        ("sink paused", "", "WebhookSink"),
        ("sink paused", "", ""),
        ("dead letter", "orders[3] at 97", "apply-1"),
        ("skipped record", "orders[3] at 98", "WebhookSink"),
        ("failed", "", ""),
    ]
