"""Traces: spans of commits and records, the context from headers to headers, sampling, and collectors that are away."""

import logging
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace

from streamrt import Application, DeadLetters, TopicConfig, Tracing, message_context
from streamrt.connectors import ListSink
from streamrt.errors import ConfigurationError
from streamrt.records import Headers
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.tasks.chain.operator_chain import OperatorChain
from streamrt.runtime.tasks.chain.traced_chain import TracedChain
from streamrt.runtime.tasks.spans import RecordSampler
from streamrt.testing import TopologyTestDriver
from tests.otlp import Collector, collector

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{CALLER}-01".encode()
UNSAMPLED = f"00-{TRACE}-{CALLER}-00".encode()
ALL = Tracing(sample_ratio=1.0)
NONE = Tracing(sample_ratio=0.0)
CANARY = "canary-5c0d"


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector(monkeypatch.setenv) as made:
        yield made


def application(tracing: Tracing | None, **settings: Any) -> Application:
    return Application(
        "unused:9092", consumer_group="shop", loglevel=None, auto_offset_reset="earliest", tracing=tracing, **settings
    )


def parent_in(headers: Headers | None) -> tuple[str, str]:
    """Return trace and span that a record carries."""
    (value,) = [value for name, value in headers or () if name == "traceparent"]
    assert isinstance(value, bytes)
    version, trace_id, span_id, flags = value.decode().split("-")
    assert version == "00"
    assert int(flags, 16) & 1, "sampled"
    return trace_id, span_id


# -- Spans -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("FE-112")
@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_commits_and_records_have_spans(received: Collector, mode: Any, guarantee: Any) -> None:
    app = application(ALL, processing_mode=mode, processing_guarantee=guarantee)
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1, partition=2)
        driver.pipe("orders", 2, partition=2)
    first, second = received.wait_for("process orders", 2)
    assert (first.service, first.kind, first.parent_id, first.status) == ("shop", 5, "", "")
    assert first.trace_id != second.trace_id
    for span, offset in ((first, 0), (second, 1)):
        assert span.attributes == {
            "messaging.system": "kafka",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "2",
            "messaging.kafka.offset": offset,
            "messaging.consumer.group.name": "shop",
            "streamrt.stream": "orders",
        }
    commits = received.wait_for("commit orders", 2)
    assert [span.attributes["streamrt.end_offsets"] for span in commits] == [["orders[2]@1"], ["orders[2]@2"]]
    for commit, record in zip(commits, (first, second), strict=True):
        assert record.links == (commit.span_id,)
        assert commit.events == ("prepared", "published", "stored")
        counts = ("records", "outputs", "produced", "skipped", "dead_letters")
        assert [commit.attributes[f"streamrt.{name}"] for name in counts] == [1, 1, 1, 0, 0]
        assert [commit.attributes[f"streamrt.{name}"] for name in ("group", "stream", "partition")] == [
            "shop",
            "orders",
            2,
        ]


def test_the_variables_of_opentelemetry_apply(received: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "prices")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=sesame")
    app = application(Tracing(sample_ratio=1.0, commit_ratio=0.0))
    app.dataframe(app.topic("orders")).apply(lambda value: value)
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1)
    (span,) = received.wait_for("", 1)
    assert (span.name, span.service, span.links) == ("process orders", "prices", ())
    assert {key.lower(): value for key, value in received.headers[0].items()}["api-key"] == "sesame"


def test_records_that_fail_are_seen_in_their_spans(received: Collector) -> None:
    app = application(ALL, on_error={"process": "skip", "deserialize": DeadLetters()})
    app.dataframe(app.topic("orders")).apply(lambda value: CANARY[value])
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1_000)
        driver.pipe_bytes("orders", b"{", headers=[("traceparent", SAMPLED), ("a", b"b")])
        (letter,) = driver.read("dead-letters__shop")
        assert ("traceparent", SAMPLED) in (letter.headers or ()), "the record is kept as it came"
    assert [span.status for span in received.wait_for("process", 2)] == [
        "failed and was skipped",
        "became a dead letter",
    ]
    failing = application(ALL, processing_guarantee="exactly-once")
    failing.dataframe(failing.topic("orders")).apply(lambda value: 1 / value)
    with TopologyTestDriver(failing) as driver, pytest.raises(Exception, match="ZeroDivisionError"):
        driver.pipe("orders", 0)
    *_, last = received.wait_for("process", 3)
    assert (last.status, last.events) == ("ZeroDivisionError", ("exception",))
    *_, commit = received.wait_for("commit", 3)
    assert commit.status
    assert CANARY not in repr(received.spans())


def test_spans_of_users_functions_belong_to_the_record(received: Collector) -> None:
    def current(value: Any) -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    app = application(ALL)
    app.dataframe(app.topic("orders")).apply(current).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1)
        (out,) = driver.read("out")
    (span,) = received.wait_for("process", 1)
    assert out.value == span.span_id
    assert not trace.get_current_span().get_span_context().is_valid


# -- From headers to headers -------------------------------------------------------------------------------------------


def test_a_trace_goes_from_input_through_a_group_by_to_outputs_and_sinks(received: Collector) -> None:
    app = application(NONE)
    results = ListSink(metadata=True)
    # With one partition, records would be grouped in memory, in one span.
    orders = app.dataframe(app.topic("orders", config=TopicConfig(2, 1))).group_by("shop")
    totals = orders.apply(lambda order, state: order["price"], stateful=True)
    totals.to_topic(app.topic("totals"))
    totals.sink(results)
    with TopologyTestDriver(app) as driver:
        headers: Headers = [("traceparent", SAMPLED), ("tracestate", b"vendor=1"), ("other", b"x")]
        driver.pipe("orders", {"shop": "a", "price": 3}, key=b"k", headers=headers)
        (total,) = driver.read("totals")
    first, second = received.wait_for("process", 2)
    assert first.name == "process orders"
    assert (first.trace_id, first.parent_id) == (TRACE, CALLER)
    assert second.name.startswith("process repartition__shop")
    assert (second.trace_id, second.parent_id) == (TRACE, first.span_id)
    assert parent_in(total.headers) == (TRACE, second.span_id)
    assert ("tracestate", b"vendor=1") in (total.headers or ())
    assert ("other", b"x") in (total.headers or ())
    assert len(total.headers or ()) == 3
    (sunk,) = results
    assert sunk["value"] == 3
    assert parent_in(sunk["_headers"]) == (TRACE, second.span_id)
    assert ("tracestate", b"vendor=1") in sunk["_headers"]
    assert ("other", b"x") in sunk["_headers"]


def test_sinks_and_functions_see_the_context_in_headers_and_outputs_keep_it_where_headers_are_replaced(
    received: Collector,
) -> None:
    app = application(ALL)
    sdf = app.dataframe(app.topic("orders"))
    sdf.set_headers(lambda value, key, timestamp, headers: [("mine", b"1")]).to_topic(app.topic("out"))
    sdf.apply(lambda value, key, timestamp, headers: headers[0][0], metadata=True).to_topic(app.topic("names"))
    sdf.apply(lambda value: message_context().headers).to_topic(app.topic("original"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1)
        (out,), (names,), (original,) = driver.read("out"), driver.read("names"), driver.read("original")
    (span,) = received.wait_for("process", 1)
    assert parent_in(out.headers) == (span.trace_id, span.span_id)
    assert ("mine", b"1") in (out.headers or ())
    assert names.value == "traceparent"
    assert original.value is None


@pytest.mark.parametrize("tracing", [None, NONE, ALL])
def test_a_record_that_is_not_sampled_passes_its_context_on_unchanged(received: Collector, tracing: Any) -> None:
    app = application(tracing)
    app.dataframe(app.topic("orders", config=TopicConfig(2, 1))).group_by("shop").to_topic(app.topic("out"))
    headers: Headers = [("traceparent", UNSAMPLED), ("tracestate", b"vendor=1")]
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"shop": "a"}, key=b"k", headers=headers)
        (out,) = driver.read("out")
    assert out.headers == headers
    assert received.spans("process") == []


@pytest.mark.parametrize("value", [b"", b"nonsense", b"00-zz-11-01", b"00-0-0-xx", None])
def test_a_context_that_cannot_be_read_is_no_context(received: Collector, value: Any) -> None:
    app = application(ALL)
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1, headers=[("traceparent", value)])
        assert len(driver.read("out")) == 1


# -- Sampling --------------------------------------------------------------------------------------------------------


def chunk(size: int, headers: list[Headers | None] | None = None) -> Chunk:
    return Chunk("t", 0, list(range(size)), [None] * size, [b"1"] * size, [0] * size, [0] * size, headers)


def chosen(sampler: RecordSampler, records: Chunk, step: int = 1_000_000) -> list[int]:
    found, start, size = [], 0, len(records.offsets)
    while start < size:
        stop = min(start + step, size)
        index = sampler.following(records, start, stop)
        if index < stop:
            found.append(index)
        start = index + 1 if index < stop else stop
    return found


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.5])
@pytest.mark.parametrize("headers", [False, True])
def test_the_share_of_sampled_records_is_the_ratio_however_records_are_divided(ratio: float, headers: bool) -> None:
    size = 100_000
    records = chunk(size, [[("a", b"b")], None] * (size // 2) if headers else None)
    expected, deviation = size * ratio, (size * ratio * (1 - ratio)) ** 0.5
    for step in (1, 7, size):
        found = chosen(RecordSampler(ratio, source=random.Random(7)), records, step)
        assert abs(len(found) - expected) < 5 * deviation
    whole = chosen(RecordSampler(ratio, source=random.Random(7)), records)
    assert whole == chosen(RecordSampler(ratio, source=random.Random(7)), records, 13)


def test_all_or_none_are_sampled_where_the_ratio_says_so() -> None:
    assert chosen(RecordSampler(1.0), chunk(50)) == list(range(50))
    assert chosen(RecordSampler(0.0), chunk(50)) == []
    mixed: list[Headers | None] = [None, [("traceparent", SAMPLED)], [("traceparent", UNSAMPLED)]]
    assert chosen(RecordSampler(0.0), chunk(3, mixed)) == [1]
    assert chosen(RecordSampler(1.0), chunk(3, mixed)) == [0, 1]


@pytest.mark.parametrize("headers", [None, [[("a", b"b")]] * 100])
def test_no_more_records_per_second_begin_a_trace_than_the_limit(headers: list[Headers | None] | None) -> None:
    now = 0.0
    sampler = RecordSampler(0.5, 4.0, source=random.Random(7), clock=lambda: now)
    assert len(chosen(sampler, chunk(100, headers))) == 4
    assert chosen(sampler, chunk(100, headers), 13) == []
    now = 0.5
    assert len(chosen(sampler, chunk(100, headers))) == 2
    now = 60.0
    assert len(chosen(sampler, chunk(100, headers))) == 4
    # Traces that others have begun go on.
    assert chosen(sampler, chunk(3, [None, [("traceparent", SAMPLED)], None])) == [1]


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1", True])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Tracing\(max_per_second=\.\.\.\) must be a number above 0, or None"):
        Tracing(max_per_second=limit)
    assert Tracing(max_per_second=None).max_per_second is None


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), "1", True, None])
def test_a_wrong_ratio_is_refused(ratio: Any) -> None:
    for name in ("sample_ratio", "commit_ratio"):
        with pytest.raises(ConfigurationError, match=rf"Tracing\({name}=\.\.\.\) must be a number from 0 to 1"):
            Tracing(**{name: ratio})
    with pytest.raises(ConfigurationError, match="tracing must be a Tracing"):
        application(1.0)  # type: ignore[arg-type]


def test_without_tracing_there_is_the_plain_chain(received: Collector) -> None:
    for tracing, kind in ((None, OperatorChain), (ALL, TracedChain)):
        app = application(tracing)
        app.dataframe(app.topic("orders")).apply(lambda value: value)
        with TopologyTestDriver(app) as driver:
            assert type(driver._execution.tasks._registry.chain("orders")) is kind
            assert (driver._execution.tasks._registry.spans is None) is (tracing is None)


# -- Collectors that do not answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [True, False])
def test_a_collector_that_fails_disturbs_nothing_and_is_logged_once(
    received: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, away: bool
) -> None:
    received.status = 401
    if away:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:{CANARY}@127.0.0.1:{port}/?key={CANARY}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={CANARY}")
    caplog.set_level(logging.DEBUG)
    app = application(ALL)
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"))
    begun = time.monotonic()
    with TopologyTestDriver(app) as driver:
        for value in range(200):
            driver.pipe("orders", value)
        assert len(driver.read("out")) == 200
    assert time.monotonic() - begun < 30
    told = [record for record in caplog.records if record.name.startswith(("streamrt", "opentelemetry"))]
    (line,) = [record.getMessage() for record in told if record.levelno >= logging.WARNING]
    assert "could not be exported to http://127.0.0.1:" in line
    assert ("ConnectionError" if away else "HTTP status 401") in line
    assert not any(CANARY in record.getMessage() for record in told)


def test_variables_that_cannot_be_used_leave_the_application_without_traces(
    received: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    app = application(ALL)
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1)
        assert len(driver.read("out")) == 1
    assert "there are no traces: a variable OTEL_... cannot be used (ValueError)" in caplog.text
