"""The metrics of an application, read from what the driver knows at the moment of a scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from streamrt.control.controlled import Controlled, installed_version
from streamrt.control.task_metrics import task_families
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.observation.lag import LagSample
from streamrt.runtime.driver.observation.meters import BATCH_BOUNDS_S, COMMIT_BOUNDS_S, MetersSnapshot
from streamrt.topology import Measured, MetricId, TaskId

__all__ = ["ApplicationCollector", "ApplicationMetrics"]


class ApplicationMetrics:
    """The metrics of one application and of its process, in a registry of their own.

    Args:
        app: the application.
        sample: returns the last known lag.
        ready: returns whether the application is ready.
    """

    def __init__(self, app: Controlled, sample: Callable[[], LagSample], ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(ApplicationCollector(app, sample, ready))
        ProcessCollector(registry=self._registry)

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics, and their content type.

        Args:
            accept: the header Accept of the request: OpenMetrics, or else Prometheus' text format.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class ApplicationCollector(Collector):
    """Makes the metrics of an application; see docs/metrics.md for their names.

    Args:
        app: the application.
        sample: returns the last known lag.
        ready: returns whether the application is ready.
    """

    def __init__(self, app: Controlled, sample: Callable[[], LagSample], ready: Callable[[], bool]) -> None:
        self._app = app
        self._sample = sample
        self._ready = ready
        self._group = app.definition.config.consumer_group

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        yield from self._life_metrics()
        meters = self._app.state.progress.meters.snapshot()
        yield from self._count_metrics(meters)
        yield from self._memory_metrics(meters)
        yield from self._offset_metrics()
        yield from self._part_metrics()
        yield from task_families(self._group, meters)
        yield from function_families(self._group, meters.functions)

    def _life_metrics(self) -> Iterator[Metric]:
        app, config = self._app, self._app.definition.config
        yield InfoMetricFamily(
            "streamrt",
            "The application: its version, and how it processes.",
            {
                "group": self._group,
                "version": installed_version(),
                "processing_mode": config.processing_mode,
                "processing_guarantee": config.processing_guarantee,
            },
        )
        states = StateSetMetricFamily("streamrt_status", "The state of the application.", labels=["group"])
        # A copy, because the state may change meanwhile.
        status = app.state.status
        own = [each for each in ApplicationStatus if each is not ApplicationStatus.UNREACHABLE]
        states.add_metric([self._group], {each.value: each is status for each in own})
        yield states
        yield self._make_gauge(
            "streamrt_status_since_timestamp_seconds", "When the state began.", _epoch_seconds(app.state.status_since)
        )
        yield self._make_gauge("streamrt_ready", "1 if /ready answers with success.", float(self._ready()))

    def _count_metrics(self, meters: MetersSnapshot) -> Iterator[Metric]:
        yield self._make_counter("streamrt_starts", "Runs that began.", meters.starts)
        yield self._make_counter("streamrt_records", "Records read.", meters.records)
        yield self._make_counter("streamrt_produced_records", "Records sent to topics.", meters.produced)
        yield self._make_counter("streamrt_skipped_records", "Records that failed and were skipped.", meters.skipped)
        yield self._make_counter(
            "streamrt_dead_letters", "Records that failed and became dead letters.", meters.dead_letters
        )
        yield self._make_counter("streamrt_batches", "Micro-batches; in resident mode, commits.", meters.batches)
        yield self._make_counter("streamrt_read_bytes", "Size of the keys and values read.", meters.read_bytes)
        yield self._make_counter(
            "streamrt_produced_bytes", "Size of keys and values sent to topics.", meters.produced_bytes
        )
        batches = (BATCH_BOUNDS_S, meters.batch_buckets, meters.batch_seconds)
        yield self._make_histogram(
            "streamrt_batch_duration_seconds", "How long the tasks of a micro-batch took.", *batches
        )
        commits = (COMMIT_BOUNDS_S, meters.commit_buckets, meters.commit_seconds)
        yield self._make_histogram("streamrt_commit_duration_seconds", "How long the commits of tasks took.", *commits)
        yield self._make_counter(
            "streamrt_rebalances", "Assignments that the group gave to this instance.", meters.rebalances
        )
        # With zeros, because a counter that appears with its first restart has not increased for Prometheus.
        restarts = {"query": 0, "tasks": 0, **meters.restarts}
        yield self._make_labelled("streamrt_restarts", "Restarts after Spark gave work up.", "kind", restarts)
        yield self._make_labelled("streamrt_sink_pauses", "Pauses that sinks asked for.", "stream", meters.sink_pauses)
        yield self._make_labelled(
            "streamrt_task_interruptions", "Tasks that began again at the last commit.", "stream", meters.interruptions
        )
        yield self._make_labelled(
            "streamrt_store_lock_waits", "Waits for stores of another process.", "stream", meters.lock_waits
        )
        yield self._make_labelled("streamrt_store_restores", "Stores that were restored.", "stream", meters.restores)
        restoring = self._per_store("streamrt_restore_remaining_offsets", "Changelog offsets left to replay.")
        left = {name: max(0, part.total - part.done) for name, part in meters.restoring.items()}
        _add_values(restoring, self._group, left, 1.0)
        yield restoring
        times = self._per_store("streamrt_event_time_seconds", "Highest event time seen, for stores that wait for it.")
        _add_values(times, self._group, meters.event_times, 0.001)
        yield times
        watermarks = self._per_store("streamrt_watermark_seconds", "Watermark of stores that wait for one.")
        _add_values(watermarks, self._group, meters.watermarks, 0.001)
        yield watermarks

    def _memory_metrics(self, meters: MetersSnapshot) -> Iterator[Metric]:
        workers = GaugeMetricFamily(
            "streamrt_worker_resident_memory_bytes",
            "Resident memory of the processes that run tasks.",
            labels=["group", "worker"],
        )
        for name, size in sorted(meters.worker_memory.items()):
            workers.add_metric([self._group, name], size)
        yield workers
        if meters.jvm is None:
            return
        yield self._make_gauge("streamrt_jvm_heap_used_bytes", "Heap of Spark's JVM in use.", meters.jvm.heap_used)
        yield self._make_gauge("streamrt_jvm_heap_max_bytes", "Limit of this heap.", meters.jvm.heap_max)
        if meters.jvm.resident is not None:
            words = "Resident memory of Spark's JVM."
            yield self._make_gauge("streamrt_jvm_resident_memory_bytes", words, meters.jvm.resident)

    def _offset_metrics(self) -> Iterator[Metric]:
        labels = ["group", "topic", "partition"]
        positions = self._app.state.progress.snapshot().positions if self._app.state.status.is_active else {}
        sample = self._sample()
        position = GaugeMetricFamily("streamrt_position_offset", "Offset of the next record to process.", labels=labels)
        committed = GaugeMetricFamily("streamrt_committed_offset", "Committed offset.", labels=labels)
        end = GaugeMetricFamily("streamrt_end_offset", "Offset after the last record that can be read.", labels=labels)
        lag = GaugeMetricFamily("streamrt_lag_offsets", "Offsets from the committed one to the end.", labels=labels)
        for partition, offset in sorted(positions.items()):
            own = [self._group, partition.topic, str(partition.partition)]
            position.add_metric(own, offset)
            known = sample.lags.get(partition)
            if known is not None:
                end.add_metric(own, known.end)
                if known.committed is not None:
                    committed.add_metric(own, known.committed)
                    lag.add_metric(own, known.offsets)
        yield from (position, committed, end, lag)
        if sample.at is not None:
            yield self._make_gauge("streamrt_lag_timestamp_seconds", "When Kafka answered the last time.", sample.at)
        yield self._make_gauge("streamrt_assigned_partitions", "Partitions of this instance.", len(positions))

    def _part_metrics(self) -> Iterator[Metric]:
        paused = self._app.state.paused_topics
        topics = GaugeMetricFamily("streamrt_topic_paused", "1 if the topic is not read.", labels=["group", "topic"])
        for topic in self._app.definition.topology.sources:
            topics.add_metric([self._group, topic], float(topic in paused))
        yield topics
        sources = GaugeMetricFamily(
            "streamrt_source_running", "1 if the process of the source runs.", labels=["group", "source", "topic"]
        )
        for process in self._app.definition.sources.processes:
            sources.add_metric([self._group, process.name, process.topic.name], float(process.is_alive()))
        yield sources

    # -- Shapes ----------------------------------------------------------------------------------------------------

    def _make_gauge(self, name: str, words: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, words, labels=["group"])
        family.add_metric([self._group], value)
        return family

    def _make_counter(self, name: str, words: str, value: float) -> Metric:
        family = CounterMetricFamily(name, words, labels=["group"])
        family.add_metric([self._group], value)
        return family

    def _make_histogram(
        self, name: str, words: str, bounds: Sequence[float], counts: Sequence[int], seconds: float
    ) -> Metric:
        family = HistogramMetricFamily(name, words, labels=["group"])
        totals = zip([*map(str, bounds), "+Inf"], accumulate(map(float, counts)), strict=True)
        family.add_metric([self._group], list(totals), seconds)
        return family

    def _make_labelled(self, name: str, words: str, label: str, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(name, words, labels=["group", label])
        for each, count in sorted(counts.items()):
            family.add_metric([self._group, each], count)
        return family

    def _per_store(self, name: str, words: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, words, labels=["group", "stream", "partition", "store"])


def _add_values(family: GaugeMetricFamily, group: str, values: Mapping[tuple[TaskId, str], int], unit: float) -> None:
    items: Iterable[tuple[tuple[TaskId, str], int]] = sorted(values.items())
    for (task, store), value in items:
        family.add_metric([group, task.stream, str(task.partition), store], value * unit)


def _epoch_seconds(moment: datetime) -> float:
    return moment.timestamp()


_LABELS = ["group", "stream", "operator", "name"]


def function_families(group: str, values: Mapping[MetricId, Measured]) -> Iterator[Metric]:
    """Yield the metrics of functions: `name` is a label, so the names in programs cannot collide with other metrics.

    Args:
        group: the consumer group.
        values: what was measured.
    """
    counters = CounterMetricFamily("streamrt_function_counter", "Counters of users' functions.", labels=_LABELS)
    words = "Gauges of users' functions."
    gauges = GaugeMetricFamily("streamrt_function_gauge", words, labels=[*_LABELS, "partition"])
    words = "Number and sum of the values of users' distributions."
    summaries = SummaryMetricFamily("streamrt_function_distribution", words, labels=_LABELS)
    words = "Lowest value of a distribution since the start."
    least = GaugeMetricFamily("streamrt_function_distribution_min", words, labels=_LABELS)
    words = "Highest value of a distribution since the start."
    greatest = GaugeMetricFamily("streamrt_function_distribution_max", words, labels=_LABELS)
    for (stream, operator, name, partition), measured in sorted(values.items(), key=lambda item: str(item[0])):
        own = [group, stream, operator, name]
        if measured.kind == "counter":
            counters.add_metric(own, measured.total)
        elif measured.kind == "gauge":
            gauges.add_metric([*own, str(partition)], measured.total)
        else:
            summaries.add_metric(own, measured.count, measured.total)
            least.add_metric(own, measured.least)
            greatest.add_metric(own, measured.greatest)
    yield from (counters, gauges, summaries, least, greatest)
