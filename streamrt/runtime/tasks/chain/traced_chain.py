"""The operators of a stream, where sampled records are traced."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context
from typing_extensions import override

from streamrt.records import Headers, HeadersMapping, merge_headers
from streamrt.runtime.chunk import Chunk
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.chain.operator_chain import Limits, OperatorChain
from streamrt.runtime.tasks.spans import CommitSpan, RecordSampler, TaskSpans, headers_of
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.task_clients import RecordWriter
from streamrt.topology import RecordHandler

__all__ = ["TracedChain"]


class TracedChain(OperatorChain):
    """Gives each sampled record a span, and its operators and outputs the context of that span.

    Records between two sampled ones run as in a plain chain, at the same cost.

    Args:
        spec: the application.
        stream: id of the stream.
        spans: makes the spans.
        arguments: the other arguments of `OperatorChain`.
    """

    def __init__(self, spec: TaskSpec, stream: str, spans: TaskSpans, *arguments: Any) -> None:
        super().__init__(spec, stream, *arguments)
        self._stream = stream
        self._spans = spans
        self._sampler = RecordSampler(spans.sample_ratio, spans.max_per_second)
        self._commit: CommitSpan | None = None
        self._letters = frozenset(spec.policies.topics.values())
        # Headers with the context of the current span.
        self._carried: HeadersMapping = {}
        self._plain_inputs = self._inputs
        self._traced_inputs = {
            name: replace(each, execute=self._with_context(each.execute), whole=None)
            for name, each in self._inputs.items()
        }

    @override
    def work_for(self, task: StreamTask) -> None:
        super().work_for(task)
        self._commit = None if task.work is None else task.work.span

    @override
    def run(self, chunk: Chunk, limits: Limits, start: int = 0, stop: int | None = None) -> tuple[int, bool]:
        last = len(chunk.offsets) if stop is None else stop
        while True:
            sampled = self._sampler.following(chunk, start, last)
            if sampled > start:
                end, finished = super().run(chunk, limits, start, sampled)
                if sampled == last or not finished or self._is_over(limits):
                    return end, finished and sampled == last
            end, _ = self._run_traced(chunk, limits, sampled)
            start = sampled + 1
            if start == last or self._is_over(limits):
                return end, start == last

    def _run_traced(self, chunk: Chunk, limits: Limits, index: int) -> tuple[int, bool]:
        """Process one record in a span."""
        span = self._spans.record(chunk, index, self._stream, self._commit)
        failed, writer = self.failed, self.collector.writer
        before = failed.skipped, failed.dead_letters
        self._carried = headers_of(span)
        self._inputs = self._traced_inputs
        self.collector.writer = _CarryingWriter(writer, self._carried, self._letters)
        # So that what users' functions trace themselves belongs to the record.
        token = otel_context.attach(set_span_in_context(span, otel_context.Context()))
        try:
            result = super().run(chunk, limits, index, index + 1)
        except BaseException as error:
            _note_error(span, error)
            raise
        else:
            if (failed.skipped, failed.dead_letters) != before:
                kept = failed.dead_letters > before[1]
                span.set_status(Status(StatusCode.ERROR, "became a dead letter" if kept else "failed and was skipped"))
            return result
        finally:
            otel_context.detach(token)
            self.collector.writer = writer
            self._inputs = self._plain_inputs
            span.end()

    def _with_context(self, execute: RecordHandler) -> RecordHandler:
        def execute_carrying(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
            execute(value, key, timestamp, merge_headers(headers, self._carried))

        return execute_carrying


class _CarryingWriter:
    """Adds a trace context to the outputs of a record, also where an operator has replaced the headers.

    Dead letters keep the headers that their records had.
    """

    def __init__(self, writer: RecordWriter, carried: HeadersMapping, letters: frozenset[str]) -> None:
        self._produce: Callable[..., None] = writer.produce
        self._carried = carried
        self._letters = letters
        self.flush = writer.flush

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        """Hand a record to the writer."""
        if topic not in self._letters:
            headers = merge_headers(headers, self._carried)
        self._produce(topic, value, key, timestamp, headers, partition)


def _note_error(span: Span, error: BaseException) -> None:
    cause = error.__cause__ or error
    span.set_status(Status(StatusCode.ERROR, type(cause).__name__))
    span.add_event("exception", {"exception.type": type(cause).__qualname__})
