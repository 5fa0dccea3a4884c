"""The metrics of an application, and the partitions that make no progress."""

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamrt.common.replica_sizes import ReplicaSize
from streamrt.control import Client
from streamrt.records import OffsetRange, TopicPartition
from streamrt.runtime.driver.observation import meters as meters_module
from streamrt.runtime.driver.observation.lag import Lag, ProgressWatch
from streamrt.runtime.driver.observation.meters import JvmMemory, Meters
from streamrt.runtime.report import Pause, Report, RestoredPart, StoreSize, StoreTime
from streamrt.topology import Measured, MetricId, Tally, TaskId
from streamrt.topology.tallies import (
    CACHE_HITS,
    CACHE_MISSES,
    CHANGELOG_RESTORES,
    LATE_RECORDS,
    LOOKUP_HITS,
    OPERATOR_RECORDS,
    OPERATOR_SECONDS,
    SINK_RETRIES,
    SINK_RETRY_SECONDS,
    SNAPSHOT_BYTES,
    SNAPSHOT_FAILURES,
    SNAPSHOT_RESTORES,
    SNAPSHOT_UPLOADS,
    TABLE_DELETES,
    TABLE_DELETIONS,
    TABLE_INSERTIONS,
    TABLE_UNCHANGED,
    TABLE_UPDATES,
    TABLE_UPSERTS,
    TIMERS,
)
from tests.unit.played import PARTITION, Played


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values of metrics, by name and the values of the labels besides the group, in the order of their names."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "group")
            found[sample.name, labels] = sample.value
    return found


def busy(app: Played) -> None:
    """Let the driver of an application learn what tasks report."""
    task, store = TaskId("orders", 0), (TaskId("orders", 0), "default")
    app._state.progress.assigned({PARTITION: 3})
    app._state.progress.report(
        Report(
            ranges={PARTITION: OffsetRange(*PARTITION, 3, 8)},
            records=5,
            produced=4,
            skipped=2,
            dead_letters=1,
            seconds=0.2,
            commit_seconds=0.03,
            read_bytes=500,
            produced_bytes=80,
            memory={"machine:7": 4096},
            block_cache={"machine:7": 1024},
            replicas={"machine:7": {"ref.countries": ReplicaSize(250, 3)}},
            sizes={store: StoreSize(5_000, 40, 1_500, 900), (task, "own"): StoreSize(70, None)},
            tallies={
                Tally(CACHE_HITS, "orders", "default"): 9,
                Tally(CACHE_MISSES, "orders", "default"): 1,
                Tally(LOOKUP_HITS, "orders", "join_lookup-2"): 5,
                Tally(OPERATOR_SECONDS, "orders", "apply-1"): 0.25,
                Tally(OPERATOR_RECORDS, "orders", "apply-1"): 2,
                Tally(TIMERS, "orders", "process_Check"): 6,
                Tally(LATE_RECORDS, "orders", "default"): 7,
                Tally(TABLE_INSERTIONS, "users", "table-1"): 7,
                Tally(TABLE_UPDATES, "users", "table-1"): 6,
                Tally(TABLE_DELETIONS, "users", "table-1"): 5,
                Tally(TABLE_UNCHANGED, "users", "table-1"): 4,
                Tally(TABLE_UPSERTS, "users", "to_table-2"): 3,
                Tally(TABLE_DELETES, "users", "to_table-2"): 2,
                Tally(SNAPSHOT_UPLOADS, "orders", "default"): 4,
                Tally(SNAPSHOT_BYTES, "orders", "default"): 1_200,
                Tally(SNAPSHOT_FAILURES, "orders", "default"): 2,
                Tally(SNAPSHOT_RESTORES, "orders", "default"): 1,
                Tally(CHANGELOG_RESTORES, "orders", "default"): 3,
                Tally(SINK_RETRIES): 3,
                Tally(SINK_RETRY_SECONDS): 0.5,
            },
            metrics={
                MetricId("orders", "process_Check", "rejected"): Measured("counter", 3),
                MetricId("orders", "process_Check", "open", 2): Measured("gauge", 7.5),
                MetricId("orders", "process_Check", "price"): Measured("distribution", 20.0, 4, 1.0, 9.0),
            },
            stalled={task: Pause(1.5)},
            interrupted={task: "broker away"},
            locked={task: "in use"},
            times={store: StoreTime(1_500, None)},
            restores={
                store: RestoredPart(10, 10, 10, finished=True),
                (task, "other"): RestoredPart(3, 10, 3, finished=False),
            },
        )
    )
    app._state.progress.meters.restarted("query")
    app._state.progress.meters.watermarked({task: {"default": 1_250}})
    app._state.progress.meters.rebalanced()
    app._state.progress.meters.jvm_memory(JvmMemory(1_000, 5_000, 9_000))


@pytest.mark.rows("PF-O2")
def test_metrics_are_what_the_driver_knows(app: Played, client: Client) -> None:
    busy(app)
    found = samples(client.metrics())
    assert found["streamrt_records_total", ()] == 5
    assert found["streamrt_produced_records_total", ()] == 4
    assert found["streamrt_skipped_records_total", ()] == 2
    assert found["streamrt_dead_letters_total", ()] == 1
    assert found["streamrt_batches_total", ()] == 1
    assert found["streamrt_batch_duration_seconds_bucket", ("0.1",)] == 0
    assert found["streamrt_batch_duration_seconds_bucket", ("0.25",)] == 1
    assert found["streamrt_batch_duration_seconds_bucket", ("+Inf",)] == 1
    assert found["streamrt_batch_duration_seconds_sum", ()] == 0.2
    assert found["streamrt_commit_duration_seconds_bucket", ("0.025",)] == 0
    assert found["streamrt_commit_duration_seconds_bucket", ("0.05",)] == 1
    assert found["streamrt_commit_duration_seconds_sum", ()] == 0.03
    assert found["streamrt_read_bytes_total", ()] == 500
    assert found["streamrt_produced_bytes_total", ()] == 80
    assert found["streamrt_rebalances_total", ()] == 1
    assert found["streamrt_worker_resident_memory_bytes", ("machine:7",)] == 4096
    assert found["streamrt_jvm_heap_used_bytes", ()] == 1_000
    assert found["streamrt_jvm_heap_max_bytes", ()] == 5_000
    assert found["streamrt_jvm_resident_memory_bytes", ()] == 9_000
    assert found["streamrt_restarts_total", ("query",)] == 1
    for name in ("sink_pauses", "task_interruptions", "store_lock_waits", "store_restores"):
        assert found[f"streamrt_{name}_total", ("orders",)] == 1
    assert found["streamrt_restore_remaining_offsets", ("0", "other", "orders")] == 7
    assert found["streamrt_event_time_seconds", ("0", "default", "orders")] == 1.5
    assert found["streamrt_watermark_seconds", ("0", "default", "orders")] == 1.25
    assert found["streamrt_position_offset", ("0", "orders")] == 8
    assert found["streamrt_assigned_partitions", ()] == 1
    assert found["streamrt_state_size_bytes", ("0", "default", "orders")] == 5_000
    assert found["streamrt_state_entries", ("0", "default", "orders")] == 40
    assert found["streamrt_state_size_bytes", ("0", "own", "orders")] == 70
    assert ("streamrt_state_entries", ("0", "own", "orders")) not in found
    assert found["streamrt_state_snapshot_timestamp_seconds", ("0", "default", "orders")] == 1.5
    assert found["streamrt_state_snapshot_size_bytes", ("0", "default", "orders")] == 900
    assert ("streamrt_state_snapshot_size_bytes", ("0", "own", "orders")) not in found
    assert found["streamrt_state_snapshot_uploads_total", ("default", "orders")] == 4
    assert found["streamrt_state_snapshot_upload_bytes_total", ("default", "orders")] == 1_200
    assert found["streamrt_state_snapshot_failures_total", ("default", "orders")] == 2
    assert found["streamrt_state_complete_restores_total", ("snapshot", "default", "orders")] == 1
    assert found["streamrt_state_complete_restores_total", ("changelog", "default", "orders")] == 3
    assert found["streamrt_worker_block_cache_bytes", ("machine:7",)] == 1_024
    assert found["streamrt_cache_hits_total", ("state", "default", "orders")] == 9
    assert found["streamrt_cache_misses_total", ("state", "default", "orders")] == 1
    assert found["streamrt_cache_hits_total", ("lookup", "join_lookup-2", "orders")] == 5
    assert found["streamrt_operator_duration_seconds_sum", ("apply-1", "orders")] == 0.25
    assert found["streamrt_operator_duration_seconds_count", ("apply-1", "orders")] == 2
    changes = {kind: found["streamrt_table_changes_total", (kind, "table-1", "users")] for kind in ("+I", "+U", "-D")}
    assert changes == {"+I": 7, "+U": 6, "-D": 5}
    assert found["streamrt_table_unchanged_total", ("table-1", "users")] == 4
    assert found["streamrt_table_writes_total", ("upsert", "to_table-2", "users")] == 3
    assert found["streamrt_table_writes_total", ("delete", "to_table-2", "users")] == 2
    assert found["streamrt_table_replica_rows", ("ref.countries", "machine:7")] == 250
    assert found["streamrt_table_replica_lag_offsets", ("ref.countries", "machine:7")] == 3
    assert found["streamrt_timers_total", ("process_Check", "orders")] == 6
    assert found["streamrt_late_records_total", ("default", "orders")] == 7
    assert found["streamrt_sink_retries_total", ()] == 3
    assert found["streamrt_sink_retry_wait_seconds_total", ()] == 0.5
    assert found["streamrt_sink_pause_seconds_total", ("orders",)] == 1.5
    own = ("process_Check", "orders")
    assert found["streamrt_function_counter_total", ("rejected", *own)] == 3
    assert found["streamrt_function_gauge", ("open", "process_Check", "2", "orders")] == 7.5
    assert found["streamrt_function_distribution_count", ("price", *own)] == 4
    assert found["streamrt_function_distribution_sum", ("price", *own)] == 20.0
    assert found["streamrt_function_distribution_min", ("price", *own)] == 1.0
    assert found["streamrt_function_distribution_max", ("price", *own)] == 9.0
    assert found["streamrt_status", ("running",)] == 1
    assert found["streamrt_status", ("paused",)] == 0
    assert found["streamrt_ready", ()] == 1
    assert found["streamrt_starts_total", ()] == 1
    client.pause("orders")
    client.restart()
    found = samples(client.metrics())
    assert found["streamrt_starts_total", ()] == 2
    assert found["streamrt_records_total", ()] == 5
    assert found["streamrt_topic_paused", ("orders",)] == 1, "a restart leaves topics paused"
    gauges = ("streamrt_state_size", "streamrt_state_entries", "streamrt_state_snapshot_timestamp", "streamrt_worker")
    assert not any(name.startswith(gauges) for name, _ in found)
    assert found["streamrt_timers_total", ("process_Check", "orders")] == 6
    assert not any("memory" in name or "jvm" in name for name, _ in found if name.startswith("streamrt"))


def test_counters_never_fall(app: Played) -> None:
    meters = app._state.progress.meters
    for records, total in ((5, 5), (-3, 5), (2, 5), (4, 8)):
        report = Report(records=records, produced=records, skipped=records, dead_letters=records)
        meters.report(report, finished=True)
        counts = meters.snapshot()
        assert (counts.records, counts.produced, counts.skipped, counts.dead_letters) == (total,) * 4


def test_a_process_that_reports_nothing_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now, meters = [1_000.0], Meters()
    monkeypatch.setattr(meters_module, "monotonic", lambda: now[0])
    meters.report(Report(memory={"machine:7": 4096}), finished=True)
    now[0] += 599
    meters.report(Report(memory={"machine:8": 8192}), finished=False)
    assert meters.snapshot().worker_memory == {"machine:7": 4096, "machine:8": 8192}
    now[0] += 2
    assert meters.snapshot().worker_memory == {"machine:8": 8192}


def test_every_metric_is_in_the_table_of_the_documentation(app: Played, client: Client) -> None:
    busy(app)
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(streamrt\w*)` \| (\w+) \|", page, re.MULTILINE))
    text = client.metrics()
    families = dict(re.findall(r"^# TYPE (streamrt\w*) (\w+)$", text, re.MULTILINE))
    # Known once Kafka was asked.
    assert rows == {**families, "streamrt_lag_timestamp_seconds": "gauge"}


def test_openmetrics(http: httpx.Client) -> None:
    answer = http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


# -- Progress ----------------------------------------------------------------------------------------------------------

OTHER = TopicPartition("prices", 1)


@pytest.mark.parametrize(
    ("seen", "stuck"),
    [
        # Committed and end offsets at 0, 100, 200 s, ... of a partition, and what is stuck after 300 s.
        ([(5, 9), (5, 9), (5, 9), (5, 9)], (300.0, 4)),
        ([(5, 9), (5, 12), (5, 15), (5, 20)], (300.0, 15)),
        ([(5, 9), (6, 9), (6, 9), (6, 9)], None),
        ([(5, 9), (6, 9), (6, 9), (6, 9), (6, 9)], (300.0, 3)),
        ([(9, 9), (9, 9), (9, 9), (9, 12)], None),
        ([(9, 9), (9, 12), (9, 9), (9, 12), (9, 12)], None),
        ([(None, 9)] * 5, None),
        ([(9, 5)] * 5, None),
    ],
)
def test_a_partition_with_records_and_without_commits_is_stuck(
    seen: list[tuple[int | None, int]], stuck: tuple[float, int] | None
) -> None:
    watch = ProgressWatch(300.0)
    for step, lag in enumerate(seen):
        watch.observe(100.0 * step, {PARTITION: Lag(*lag), OTHER: Lag(1, 1)}, ())
    assert [each[1:] for each in watch.stuck] == ([] if stuck is None else [stuck])


def test_paused_topics_and_released_partitions_are_not_stuck() -> None:
    watch, lags = ProgressWatch(300.0), {PARTITION: Lag(5, 9), OTHER: Lag(5, 9)}
    for at in (0.0, 200.0, 400.0):
        watch.observe(at, lags, ["orders"])
    assert [stuck.partition for stuck in watch.stuck] == [OTHER]
    # Waiting begins with the end of the pause.
    for at in (500.0, 700.0):
        watch.observe(at, {PARTITION: Lag(5, 9)}, ())
    assert list(watch.stuck) == []
    watch.observe(800.0, {PARTITION: Lag(5, 9)}, ())
    assert [stuck.partition for stuck in watch.stuck] == [PARTITION]
    unwatched = ProgressWatch(None)
    for at in (0.0, 1e6):
        unwatched.observe(at, lags, ())
    assert list(unwatched.stuck) == []


def test_a_stuck_partition_is_not_ready(app: Played, client: Client, http: httpx.Client) -> None:
    assert app._server is not None
    lag = app._server._lag
    # The sampler has nothing to ask for here, and forgets what it was told.
    lag.close()
    for at in (0.0, 300.0):
        lag._watch.observe(at, {PARTITION: Lag(5, 9)}, ())
    assert http.get("/ready").status_code == 503
    ready, reasons = client.ready()
    assert not ready
    assert reasons[0].startswith("orders[0] has 4 unprocessed offsets, and nothing was committed for 300 s: see ")
    assert samples(client.metrics())["streamrt_ready", ()] == 0


def test_commits_may_be_as_far_apart_as_the_application_wants() -> None:
    app = Played(progress_timeout=10, commit_interval=60)
    assert app._server is not None
    assert app._server._lag._watch.timeout_s == 120
