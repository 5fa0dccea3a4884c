"""Metrics of tasks for Prometheus: state, caches, operators, timers, late records and sinks."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from streamrt.runtime.driver.observation.meters import MetersSnapshot
from streamrt.topology import of_kind
from streamrt.topology.tallies import (
    CACHE_HITS,
    CACHE_MISSES,
    CHANGELOG_RESTORES,
    LATE_RECORDS,
    LOOKUP_HITS,
    LOOKUP_MISSES,
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
    Tally,
)

__all__ = ["task_families"]


def task_families(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    """Yield the metrics of what tasks count and measure.

    Args:
        group: the consumer group.
        meters: the counters.
    """
    yield from _state_metrics(group, meters)
    yield from _snapshot_metrics(group, meters)
    yield from _cache_metrics(group, meters)
    yield from _operator_metrics(group, meters)
    yield from _table_metrics(group, meters)
    yield from _sink_metrics(group, meters)


def _state_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    labels = ["group", "stream", "partition", "store"]
    sizes = GaugeMetricFamily("streamrt_state_size_bytes", "Approximate size of stores.", labels=labels)
    entries = GaugeMetricFamily("streamrt_state_entries", "Approximate number of keys in stores.", labels=labels)
    for (task, store), found in sorted(meters.sizes.items()):
        own = [group, task.stream, str(task.partition), store]
        sizes.add_metric(own, found.size)
        if found.entries is not None:
            entries.add_metric(own, found.entries)
    words = "Blocks of files in the memory of the processes that run tasks."
    blocks = GaugeMetricFamily("streamrt_worker_block_cache_bytes", words, labels=["group", "worker"])
    for name, used in sorted(meters.block_caches.items()):
        blocks.add_metric([group, name], used)
    words = "Changelog offsets that the copies of other instances' stores lack."
    standbys = GaugeMetricFamily("streamrt_standby_lag_offsets", words, labels=labels[:-1])
    for task, left in sorted(meters.standbys.items()):
        standbys.add_metric([group, task.stream, str(task.partition)], left)
    yield from (sizes, entries, blocks, standbys)


def _snapshot_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    labels = ["group", "stream", "partition", "store"]
    times = GaugeMetricFamily(
        "streamrt_state_snapshot_timestamp_seconds", "Time of the newest snapshot of stores.", labels=labels
    )
    sizes = GaugeMetricFamily("streamrt_state_snapshot_size_bytes", "Size of that snapshot.", labels=labels)
    for (task, store), found in sorted(meters.sizes.items()):
        if found.snapshot_at is not None and found.snapshot_size is not None:
            own = [group, task.stream, str(task.partition), store]
            times.add_metric(own, found.snapshot_at / 1_000)
            sizes.add_metric(own, found.snapshot_size)
    yield from (times, sizes)
    for name, words, kind in (
        ("streamrt_state_snapshot_uploads", "Snapshots of stores that were uploaded.", SNAPSHOT_UPLOADS),
        ("streamrt_state_snapshot_upload_bytes", "Bytes sent for them.", SNAPSHOT_BYTES),
        ("streamrt_state_snapshot_failures", "Snapshots not taken, uploaded or found.", SNAPSHOT_FAILURES),
    ):
        family = CounterMetricFamily(name, words, labels=["group", "topic", "store"])
        for tally, count in of_kind(meters.tallies, kind):
            family.add_metric([group, tally.stream, tally.name], count)
        yield family
    restores = CounterMetricFamily(
        "streamrt_state_complete_restores",
        "Restores of empty stores, with snapshots on, by their origin.",
        labels=["group", "topic", "store", "origin"],
    )
    for origin, kind in (("snapshot", SNAPSHOT_RESTORES), ("changelog", CHANGELOG_RESTORES)):
        for tally, count in of_kind(meters.tallies, kind):
            restores.add_metric([group, tally.stream, tally.name, origin], count)
    yield restores


def _cache_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    labels = ["group", "cache", "stream", "name"]
    for name, words, of_state, of_lookups in (
        ("streamrt_cache_hits", "Reads that a cache of tasks answered.", CACHE_HITS, LOOKUP_HITS),
        ("streamrt_cache_misses", "Reads that no cache of tasks could answer.", CACHE_MISSES, LOOKUP_MISSES),
    ):
        family = CounterMetricFamily(name, words, labels=labels)
        for cache, kind in (("state", of_state), ("lookup", of_lookups)):
            for tally, count in of_kind(meters.tallies, kind):
                family.add_metric([group, cache, tally.stream, tally.name], count)
        yield family


def _operator_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    times = SummaryMetricFamily(
        "streamrt_operator_duration_seconds",
        "Time of operators for sampled records.",
        labels=["group", "stream", "operator"],
    )
    for tally, records in of_kind(meters.tallies, OPERATOR_RECORDS):
        seconds = meters.tallies.get(Tally(OPERATOR_SECONDS, tally.stream, tally.name), 0.0)
        times.add_metric([group, tally.stream, tally.name], int(records), seconds)
    yield times
    for name, words, kind in (
        ("streamrt_timers", "Timers that fired.", TIMERS),
        ("streamrt_late_records", "Records that came too late for all of their windows.", LATE_RECORDS),
    ):
        family = CounterMetricFamily(name, words, labels=["group", "stream", "store"])
        for tally, count in of_kind(meters.tallies, kind):
            family.add_metric([group, tally.stream, tally.name], count)
        yield family


def _table_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    labels = ["group", "stream", "operator"]
    for name, words, kinds in (
        (
            "streamrt_table_changes",
            "Changes of the rows of tables in the application, by what happened to the row.",
            {"+I": TABLE_INSERTIONS, "+U": TABLE_UPDATES, "-D": TABLE_DELETIONS},
        ),
        (
            "streamrt_table_writes",
            "Rows that to_table() has written, by kind.",
            {"upsert": TABLE_UPSERTS, "delete": TABLE_DELETES},
        ),
    ):
        family = CounterMetricFamily(name, words, labels=[*labels, "kind"])
        for kind, tallied in kinds.items():
            for tally, count in of_kind(meters.tallies, tallied):
                family.add_metric([group, tally.stream, tally.name, kind], count)
        yield family
    rows = GaugeMetricFamily(
        "streamrt_table_replica_rows",
        "Approximate number of rows of copies of tables.",
        labels=["group", "worker", "table"],
    )
    lag = GaugeMetricFamily(
        "streamrt_table_replica_lag_offsets", "Offsets that copies of tables lack.", labels=["group", "worker", "table"]
    )
    for (worker, table), size in sorted(meters.replicas.items()):
        lag.add_metric([group, worker, table], size.lag)
        if size.rows is not None:
            rows.add_metric([group, worker, table], size.rows)
    yield from (rows, lag)
    unchanged = CounterMetricFamily(
        "streamrt_table_unchanged", "Records and changes that have left a row as it was.", labels=labels
    )
    for tally, count in of_kind(meters.tallies, TABLE_UNCHANGED):
        unchanged.add_metric([group, tally.stream, tally.name], count)
    yield unchanged


def _sink_metrics(group: str, meters: MetersSnapshot) -> Iterator[Metric]:
    for name, words, kind in (
        ("streamrt_sink_retries", "Requests that sinks repeated.", SINK_RETRIES),
        ("streamrt_sink_retry_wait_seconds", "Time that sinks waited before them.", SINK_RETRY_SECONDS),
    ):
        family = CounterMetricFamily(name, words, labels=["group"])
        family.add_metric([group], meters.tallies.get(Tally(kind), 0))
        yield family
    pauses = CounterMetricFamily(
        "streamrt_sink_pause_seconds", "Length of the pauses that sinks asked for.", labels=["group", "stream"]
    )
    for stream, seconds in sorted(meters.sink_pause_seconds.items()):
        pauses.add_metric([group, stream], seconds)
    yield pauses
