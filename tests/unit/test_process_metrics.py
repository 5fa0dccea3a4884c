"""Metrics of process functions: what they measure, their names, and how they go to the driver."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import (
    BroadcastContext,
    BroadcastProcessFunction,
    BroadcastTimerContext,
    Context,
    CoProcessFunction,
    ProcessFunction,
    TaskContext,
    TimerContext,
)
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, ProcessingError, StateError
from streamrt.kafka import TopicConfig
from streamrt.runtime.driver.observation.function_metrics import FunctionMetrics
from streamrt.runtime.report import Report
from streamrt.slots.reports import dump_report, merge_reports
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Measured, MetricId, Metrics, TaskId
from streamrt.topology.metrics import MOST_METRICS
from tests.unit.apps import application

pytestmark = pytest.mark.usefixtures("processing_mode")


class Measures(ProcessFunction):
    def open(self, context: TaskContext) -> None:
        self.context = context
        self.prices = context.metrics.distribution("price")
        context.metrics.counter("opened").inc()

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        ctx.metrics.counter("records").inc()
        ctx.metrics.gauge("last").set(value)
        self.prices.update(value)
        ctx.register_processing_time_timer(ctx.current_processing_time + 10)
        if value == 13:
            raise ValueError("unlucky")
        yield [self.context.topic, self.context.partition, self.context.partitions]

    def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
        ctx.metrics.counter("timers").inc(2.5)


@pytest.mark.rows("PF-E15", "PF-E17", "PF-O1", "PF-O3")
def test_a_function_measures_and_knows_its_task() -> None:
    app = application(on_processing_error=lambda *args: True)
    topic = app.topic("in", config=TopicConfig(num_partitions=3, replication_factor=1))
    app.dataframe(topic).process(Measures())
    with TopologyTestDriver(app) as driver:
        for partition, value in ((0, 4), (2, 1.5), (0, 6)):
            driver.pipe(topic, value, key="k", partition=partition)
        assert [output[0] for output in driver.outputs()] == [["in", 0, 3], ["in", 2, 3], ["in", 0, 3]]
        found = driver.metrics("process_Measures")
        assert found == {
            "opened": 1,
            "records": 3,
            "last": 1.5,
            "price": Measured("distribution", 11.5, 3, 1.5, 6),
        }
        # What is aborted or skipped was called nevertheless.
        driver.pipe(topic, 13, key="k")
        driver.advance(10)
        found = driver.metrics("process_Measures")
        assert (found["records"], found["timers"]) == (4, 5.0)
        assert driver.metrics("process_Other") == {}


class MeasuresBoth(CoProcessFunction):
    def open(self, context: TaskContext) -> None:
        self.context = context
        self.kept: list[Context] = []

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        ctx.register_event_time_timer(ctx.timestamp + 1)
        yield self._measured("first", ctx)

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield self._measured("second", ctx)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield self._measured("timers", ctx)

    def _measured(self, name: str, ctx: Context) -> list[Any]:
        for kept in self.kept:
            if kept is not ctx:
                # One for each kind of call, and only that of this call may be used.
                with pytest.raises(StateError, match="was used after its call"):
                    _ = kept.current_watermark
        self.kept.append(ctx)
        ctx.metrics.counter(name).inc()
        count = ctx.state.get("n", 0) + 1
        ctx.state.set("n", count)
        context = self.context
        return [name, ctx.key, count, context.topic, context.partition, context.partitions]


def test_connected_frames_measure_and_know_their_task() -> None:
    app = application()
    config = TopicConfig(num_partitions=2, replication_factor=1)
    first, second = (app.topic(name, key_deserializer="str", config=config) for name in ("a", "b"))
    app.dataframe(first).connect(app.dataframe(second)).process(MeasuresBoth(), name="both", clock="partition")
    with TopologyTestDriver(app) as driver:
        driver.pipe(first, 1, key="k", timestamp=10, partition=1)
        driver.pipe(second, 2, key="k", timestamp=20, partition=1)
        driver.pipe(second, 3, key="l", timestamp=30, partition=1)
        assert [output[0] for output in driver.outputs()] == [
            ["first", "k", 1, "a--b", 1, 2],
            ["second", "k", 2, "a--b", 1, 2],
            ["timers", "k", 3, "a--b", 1, 2],
            ["second", "l", 1, "a--b", 1, 2],
        ]
        assert driver.metrics("process_both") == {"first": 1, "second": 2, "timers": 1}


class MeasuresRules(BroadcastProcessFunction):
    def open(self, context: TaskContext) -> None:
        self.context = context
        self.kept: dict[str, BroadcastContext] = {}

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        self._check("rules", ctx)
        ctx.broadcast_state("rules")[value] = self.context.partition
        ctx.metrics.gauge("rule").set(value)
        with pytest.raises(InvalidOperationError, match="has no state of a key"):
            _ = ctx.state

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        self._check("records", ctx)
        ctx.register_event_time_timer(ctx.timestamp)
        ctx.state.set("last", value)
        yield [value, dict(ctx.broadcast_state("rules").items()), self.context.partitions]

    def on_timer(self, timestamp: int, ctx: BroadcastTimerContext) -> Iterator[Any]:
        self._check("timers", ctx)
        yield [ctx.state.get("last"), sum(1 for _ in ctx.broadcast_state("rules").items())]

    def _check(self, method: str, ctx: BroadcastContext) -> None:
        for kept in self.kept.values():
            if kept is not ctx:
                with pytest.raises(StateError, match="was used after its call"):
                    kept.broadcast_state("rules")
        self.kept[method] = ctx
        ctx.metrics.counter(method).inc()


def test_broadcasts_measure_in_each_partition_and_know_their_task() -> None:
    app = application()
    orders = app.topic("orders", key_deserializer="str", config=TopicConfig(num_partitions=3, replication_factor=1))
    rules = app.topic("rules")
    frame = app.dataframe(orders).connect(app.dataframe(rules).broadcast())
    frame.process(MeasuresRules(), name="rules", clock="partition")
    with TopologyTestDriver(app) as driver:
        driver.pipe(rules, 7, timestamp=10)
        driver.pipe(orders, 1, key="k", timestamp=20, partition=2)
        driver.pipe(orders, 2, key="k", timestamp=30, partition=2)
        assert [output[0] for output in driver.outputs()] == [[1, {7: 2}, 3], [2, {7: 2}, 3], [2, 1]]
        assert driver.metrics("process_rules.--broadcast") == {"rules": 3, "rule": 7, "records": 2, "timers": 1}


def test_names_are_bounded_and_checked() -> None:
    metrics = Metrics("process_It", lambda: 0)
    counter = metrics.counter("a.b-c_1")
    assert metrics.counter("a.b-c_1") is counter
    for wrong in ("", "1st", "with space", "x" * 101, "ü", "a\n"):
        with pytest.raises(ArgumentValueError, match="cannot be the name of a metric of process_It"):
            metrics.gauge(wrong)
    with pytest.raises(ArgumentTypeError, match="must be a str, got int"):
        metrics.counter(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOperationError, match=r"has a counter 'a\.b-c_1', so there can be no gauge"):
        metrics.gauge("a.b-c_1")
    for number in range(MOST_METRICS - 1):
        metrics.distribution(f"n{number}")
    with pytest.raises(InvalidOperationError, match=f"has {MOST_METRICS} metrics"):
        metrics.counter("one-more")


@pytest.mark.parametrize("by", [-1, float("nan")])
def test_counters_do_not_fall(by: float) -> None:
    counter = Metrics("process_It", lambda: 0).counter("n")
    counter.inc(0)
    with pytest.raises(ArgumentValueError, match="use a gauge for what may fall"):
        counter.inc(by)


def test_values_are_numbers() -> None:
    metrics = Metrics("process_It", lambda: 0)
    with pytest.raises(ArgumentTypeError, match="gauge 'g' takes a number, got str"):
        metrics.gauge("g").set("5")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="distribution 'd' takes a number, got None"):
        metrics.distribution("d").update(None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="cannot take NaN"):
        metrics.distribution("d").update(float("nan"))
    assert metrics.drain() == {}


def test_an_error_of_a_metric_names_the_operator() -> None:
    class Wrong(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> None:
            ctx.metrics.counter("n").inc(-1)

    app = application()
    app.dataframe(app.topic("in")).process(Wrong())
    with TopologyTestDriver(app) as driver, pytest.raises(ProcessingError, match="counter 'n' was increased by -1"):
        driver.pipe("in", 1)


def test_a_dataframe_under_test_drops_what_is_measured() -> None:
    app = application()
    frame = app.dataframe(app.topic("in")).process(Measures())
    assert frame.test(5)[0][0] == ["test", 0, 1]


def test_reports_of_several_processes_are_added_up() -> None:
    name, gauge = MetricId("in", "process_It", "n"), MetricId("in", "process_It", "g", 1)
    reports = [
        Report(metrics={name: Measured("distribution", 5.0, 2, 1.0, 4.0), gauge: Measured("gauge", 7)}),
        Report(metrics={name: Measured("distribution", 9.0, 1, 9.0, 9.0), gauge: Measured("gauge", 8)}),
        Report(),
    ]
    merged = merge_reports(map(dump_report, reports))
    expected = {name: Measured("distribution", 14.0, 3, 1.0, 9.0), gauge: Measured("gauge", 8)}
    assert pickle.loads(dump_report(merged)).metrics == merged.metrics == expected
    metrics = FunctionMetrics()
    for report in reports:
        metrics.add(report.metrics)
    assert metrics.values() == expected
    # A gauge belongs to a task; all else to the application.
    metrics.keep({TaskId("in", 1)})
    assert metrics.values() == expected
    metrics.keep({TaskId("in", 0)})
    assert list(metrics.values()) == [name]
