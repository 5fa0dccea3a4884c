"""Spans of OpenTelemetry: of the commits of tasks, and of sampled records.

A process of tasks has its own provider, alongside the one that users' code may set up for itself. It exports in a thread, and
what cannot be exported is dropped.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry import context as otel_context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from typing_extensions import override

from streamrt.common.throttle import Throttle
from streamrt.records import Headers, HeadersMapping, HeaderValue, TopicPartition
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.spec import TaskSpec
from streamrt.topology import TaskId
from streamrt.tracing import Tracing

__all__ = ["CommitSpan", "RecordSampler", "TaskSpans", "headers_of", "open_spans"]

logger = logging.getLogger("streamrt")

_TRACEPARENT = "traceparent"
_TRACESTATE = "tracestate"
_CARRIED = (_TRACEPARENT, _TRACESTATE)
"""Headers with the trace context, as in https://www.w3.org/TR/trace-context/."""

_SILENCE_S = 60.0
_END_S = 2.0
_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
_QUEUE_FULL = "Queue full"
_propagator = TraceContextTextMapPropagator()


def open_spans(spec: TaskSpec) -> "TaskSpans | None":
    """Return the spans of an application; None if OpenTelemetry cannot be set up, which is logged and disturbs nothing."""
    if spec.tracing is None:
        return None
    try:
        return TaskSpans(spec, spec.tracing)
    except Exception as error:  # noqa: BLE001 - whatever it is, records can be processed without traces
        # Variables may contain tokens, and errors quote them.
        logger.warning("there are no traces: a variable OTEL_... cannot be used (%s)", type(error).__name__)
        return None


class TaskSpans:
    """Makes the spans of one application in one process.

    Args:
        spec: the application.
        tracing: what is traced.
    """

    def __init__(self, spec: TaskSpec, tracing: Tracing) -> None:
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            # Neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES has a name.
            resource = resource.merge(Resource({SERVICE_NAME: spec.group}))
        # Processes of tasks end by a signal; what is left then, `close` has exported before, or is lost.
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_QuietExporter()))
        self._tracer = self._provider.get_tracer("streamrt")
        self._group = spec.group
        self._commit_ratio = tracing.commit_ratio
        self.sample_ratio = tracing.sample_ratio
        self.max_per_second = tracing.max_per_second

    def commit(self, task: TaskId) -> "CommitSpan | None":
        """Begin the span of the work of a task up to its next commit; None if this one is not sampled."""
        if random.random() >= self._commit_ratio:  # noqa: S311 - no secret depends on it
            return None
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": self._group,
            "streamrt.group": self._group,
            "streamrt.stream": task.stream,
            "streamrt.partition": task.partition,
        }
        # Not a part of what calls this: the trace of a commit begins here.
        span = self._tracer.start_span(f"commit {task.stream}", otel_context.Context(), attributes=attributes)
        return CommitSpan(span)

    def record(self, chunk: Chunk, index: int, stream: str, commit: "CommitSpan | None") -> Span:
        """Begin the span of a record, as a child of the context that it brings."""
        headers = None if chunk.headers is None else chunk.headers[index]
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "kafka",
            "messaging.destination.name": chunk.topic,
            "messaging.destination.partition.id": str(chunk.partition),
            "messaging.kafka.offset": chunk.offsets[index],
            "messaging.consumer.group.name": self._group,
            "streamrt.stream": stream,
        }
        begun = otel_context.Context()
        return self._tracer.start_span(
            f"process {chunk.topic}",
            begun if headers is None else _propagator.extract(_make_carrier(headers), begun),
            SpanKind.CONSUMER,
            attributes,
            None if commit is None else [Link(commit.context)],
        )

    def close(self) -> None:
        """Export what is left, for a limited time."""
        # While nothing answers, the exporter tries again for seconds.
        thread = threading.Thread(target=self._provider.shutdown, name="streamrt-spans", daemon=True)
        thread.start()
        thread.join(_END_S)


class CommitSpan:
    """The span of the work of a task between two commits."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.context: SpanContext = span.get_span_context()

    def note(self, step: str) -> None:
        """Note that a step of the commit is done."""
        self._span.add_event(step)

    def committed(self, counts: Mapping[str, int], ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """End the span of committed work. If there was none, there is nothing to tell, and the span is dropped.

        Args:
            counts: what was processed and sent.
            ends: the committed offset of each input partition.
        """
        if any(counts.values()):
            self._span.set_attribute("streamrt.end_offsets", [f"{partition}@{end}" for partition, end in ends])
            self._end_span(counts)

    def aborted(self, counts: Mapping[str, int], reason: str) -> None:
        """End the span of work that was not committed and will be repeated."""
        self._span.set_status(Status(StatusCode.ERROR, reason))
        self._end_span(counts)

    def _end_span(self, counts: Mapping[str, int]) -> None:
        self._span.set_attributes({f"streamrt.{name}": count for name, count in counts.items()})
        self._span.end()


class RecordSampler:
    """Chooses the records of a stream that are traced.

    Args:
        ratio: the share among the records without a trace context.
        most: most such records per second, after as many at once; None for no limit.
        source: a source of randomness.
        clock: returns the time in seconds.

    Example:
        >>> chunk = Chunk("t", 0, [5, 6], [None] * 2, [b"1"] * 2, [0] * 2, [0] * 2)
        >>> RecordSampler(1.0).following(chunk, 0, 2), RecordSampler(0.0).following(chunk, 0, 2)
        (0, 2)
    """

    def __init__(
        self,
        ratio: float,
        most: float | None = None,
        *,
        source: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ratio = ratio
        self._most = most
        # How many may begin a trace now, as of a time.
        self._left = 1.0 if most is None else max(1.0, most)
        self._clock = clock
        self._counted_at = clock()
        self._source = source or random.Random()  # noqa: S311 - no secret depends on it
        # How many records without a context come before the next one that is traced: no number is drawn for each of them.
        self._before = self._draw_number()

    def following(self, chunk: Chunk, start: int, stop: int) -> int:
        """Return the index of the first traced record of a range, or `stop`; records before it count as seen."""
        if chunk.headers is None:
            while self._before < stop - start:
                found = start + int(self._before)
                self._before = self._draw_number()
                if self._may_begin():
                    return found
                start = found + 1
            self._before -= stop - start
            return stop
        column = chunk.headers
        # Without a slice, which would be copied for each sampled record.
        for index in range(start, stop):
            headers = column[index]
            sampled = None if headers is None else _read_sampled(headers)
            if sampled is None:
                if self._before < 1:
                    self._before = self._draw_number()
                    if self._may_begin():
                        return index
                else:
                    self._before -= 1
            elif sampled:
                return index
        return stop

    def _may_begin(self) -> bool:
        if self._most is None:
            return True
        now = self._clock()
        self._left = min(max(1.0, self._most), self._left + (now - self._counted_at) * self._most)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _draw_number(self) -> float:
        if self._ratio >= 1:
            return 0
        if self._ratio <= 0:
            return math.inf
        # 1 - random() is never 0.
        return int(math.log(1.0 - self._source.random()) / math.log1p(-self._ratio))


def headers_of(span: Span) -> HeadersMapping:
    """Return the headers that carry a span to other processes."""
    own = span.get_span_context()
    if not own.is_valid:
        return {}
    carried: dict[str, HeaderValue] = {
        _TRACEPARENT: b"00-%032x-%016x-%02x" % (own.trace_id, own.span_id, own.trace_flags)
    }
    if own.trace_state:
        carried[_TRACESTATE] = own.trace_state.to_header().encode()
    return carried


def _read_sampled(headers: Headers) -> bool | None:
    """Return what a trace context says about sampling; None without a valid one."""
    for name, value in headers:
        if name == _TRACEPARENT:
            if not value:
                return None
            parts = (value if isinstance(value, bytes) else str(value).encode()).split(b"-")
            try:
                return len(parts) >= 4 and bool(int(parts[3], 16) & 1)
            except ValueError:
                return None
    return None


def _make_carrier(headers: Headers | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers or ():
        if name in _CARRIED and value:
            found[name] = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return found


# -- Export --------------------------------------------------------------------------------------------------------------


class _QuietExporter(SpanExporter):
    """Exports by OTLP, and logs that it cannot at most once a minute.

    The sentence says what failed, not what was sent or received: addresses and answers of collectors may contain tokens.
    """

    def __init__(self) -> None:
        self._outcome = "nothing was sent"
        session = requests.Session()
        self._request = session.request
        session.request = self._note_result
        self._inner = OTLPSpanExporter(session=session)
        address = urlsplit(getattr(self._inner, "_endpoint", ""))
        self._shown = f"{address.scheme}://{address.hostname}:{address.port or ''}".rstrip(":")
        self._throttle = Throttle(_SILENCE_S)
        self._lost = 0
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_filter)

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        _exporting.active = True
        try:
            result = self._inner.export(spans)
        except Exception as error:  # noqa: BLE001 - spans are lost, and nothing else
            self._outcome = type(error).__name__
            result = SpanExportResult.FAILURE
        finally:
            _exporting.active = False
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if self._throttle.admit():
                logger.warning(
                    "%d spans could not be exported to %s and are lost (%s); check OTEL_EXPORTER_OTLP_ENDPOINT",
                    self._lost,
                    self._shown,
                    self._outcome,
                )
                self._lost = 0
        return result

    def _note_result(self, *arguments: Any, **options: Any) -> Any:
        """Send a request, and note how it ended."""
        try:
            response = self._request(*arguments, **options)
        except Exception as error:
            self._outcome = type(error).__name__
            raise
        self._outcome = f"HTTP status {response.status_code}"
        return response

    @override
    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]

    @override
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


_exporting = threading.local()


class _Quiet(logging.Filter):
    """Drops what OpenTelemetry logs about our exports, which `_QuietExporter` reports; other threads export for others."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle(_SILENCE_S)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(_exporting, "active", False):
            return False
        return not str(record.msg).startswith(_QUEUE_FULL) or self._throttle.admit()


_filter = _Quiet()
