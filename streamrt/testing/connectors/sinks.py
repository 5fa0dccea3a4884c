"""The conformance suite of sinks."""
# ruff: noqa: S101 - asserting is what a test suite does

import contextlib
import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import cloudpickle
import pytest

from streamrt.connectors import BatchingSink, SinkBackpressureError, SinkBatch, SinkItem
from streamrt.testing.comparison import check_same
from streamrt.testing.connectors.spies import spy_on

__all__ = ["BatchingSinkConformance", "BrokenBatch", "Written"]

_TOPIC = "conformance"


class Written(NamedTuple):
    """A value at the destination of a sink. Fields that the external system does not store are None.

    Attributes:
        value: the value.
        key: the key, in its written form.
        timestamp: milliseconds since the Unix epoch.
        topic: topic of the input record.
        partition: partition of the input record.
        offset: offset of the input record.
    """

    value: Any
    key: Any = None
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


class BatchingSinkConformance:
    """The contract of every `BatchingSink`, driver sinks included.

    Attributes:
        values: values that the sink can write, at least three, all different.
        keys: keys that it can write.
        many: number of items of a large batch.
    """

    values: ClassVar[Sequence[Any]] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "list": [1, None, "\n"]}, {})
    keys: ClassVar[Sequence[Any]] = (b"key", None, b"", "schlüssel", "two\r\nlines", b"\xff\x00")
    many: ClassVar[int] = 10_000

    def make(self) -> BatchingSink:
        """Return a sink that is not started and writes to the destination of `written`."""
        raise NotImplementedError

    def written(self) -> list[Written]:
        """Return the values at the destination, in the order in which they were written."""
        raise NotImplementedError

    def started(self) -> BatchingSink:
        """Return a sink in the state of a task: unpickled and started."""
        sink: BatchingSink = pickle.loads(cloudpickle.dumps(self.make()))
        sink.start()
        return sink

    def test_it_can_be_pickled_before_it_is_started(self) -> None:
        """A sink is sent to the processes that run tasks, and connects there."""
        sink = self.make()
        again = pickle.loads(cloudpickle.dumps(sink))
        assert type(again).__name__ == type(sink).__name__
        # Spark may run several tasks in one process, each from the same bytes.
        copy.deepcopy(pickle.loads(cloudpickle.dumps(again))).start()

    def test_start_connects_once_and_tells_the_callback(self) -> None:
        """`start` calls `setup`, then `on_client_connect_success`."""
        sink = self.make()
        calls = spy_on(sink, "setup", lambda: "setup")
        sink._on_client_connect_success = lambda: calls.append("success")
        sink.start()
        assert calls == ["setup", "success"]

    def test_a_failed_setup_is_told_to_the_callback(self) -> None:
        """Without a callback the error propagates; a callback that returns has handled it."""
        sink = self.make()
        problem = ConnectionError("nobody is there")
        heard: list[Exception] = []

        def fail() -> None:
            raise problem

        sink.setup = fail  # type: ignore[method-assign]
        sink._on_client_connect_failure = None
        with pytest.raises(ConnectionError, match="nobody is there"):
            sink.start()
        sink._on_client_connect_failure = heard.append
        sink.start()
        assert heard == [problem]

    def test_a_closed_sink_writes_again_after_its_next_start(self) -> None:
        """`close` may come without `start`, and twice; it writes nothing."""
        self.make().close()
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 1)
        sink.flush()
        self._add_values(sink, 1, 2)
        sink.close()
        sink.close()
        self._check_same(self.written()[len(before) :], [(0, 0)])
        sink.on_paused()
        sink.start()
        self._add_values(sink, 1, 3)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_nothing_is_written_before_flush(self) -> None:
        """Added values belong to a commit that may be abandoned."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 3)
        check_same(self.written(), before)

    def test_flush_writes_what_was_added_in_order(self) -> None:
        """Each value once, in the order of arrival."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 3)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_flush_empties(self) -> None:
        """A second flush has nothing to write; later values form another batch."""
        sink = self.started()
        self._add_values(sink, 0, 2)
        sink.flush()
        once = self.written()
        sink.flush()
        check_same(self.written(), once)
        self._add_values(sink, 2, 3)
        sink.flush()
        self._check_same(self.written()[len(once) :], [(0, 2)])

    def test_a_flush_without_values_is_fine(self) -> None:
        """Commits also happen when nothing reaches the sink."""
        sink, before = self.started(), self.written()
        sink.flush()
        check_same(self.written(), before)

    def test_partitions_are_batches_of_their_own(self) -> None:
        """Each batch comes from one partition and has its offsets."""
        sink = self.started()
        batches = spy_on(sink, "write", lambda batch: batch)
        for offset in (7, 8, 9):
            for partition in (1, 0):
                self._add_values(sink, offset, offset + 1, partition)
        sink.flush()
        seen = {(batch.topic, batch.partition): (batch.first_offset, batch.last_offset) for batch in batches}
        assert seen == {(_TOPIC, 1): (7, 9), (_TOPIC, 0): (7, 9)}
        assert len(batches) == 2
        for batch in batches:
            assert batch.start_offset == batch.first_offset
            assert [item.offset for item in batch] == [7, 8, 9]

    def test_several_values_may_have_one_offset(self) -> None:
        """An operator may make several values from one record."""
        sink, before = self.started(), self.written()
        for _ in range(3):
            self._add_values(sink, 5, 6)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, 5)] * 3)

    def test_on_paused_drops_what_was_added(self) -> None:
        """The same records are delivered again."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 3)
        sink.on_paused()
        sink.flush()
        check_same(self.written(), before)
        self._add_values(sink, 0, 3)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_on_paused_is_allowed_at_any_time(self) -> None:
        """Another sink may fail before this one got anything."""
        sink = self.started()
        sink.on_paused()
        sink.on_paused()
        sink.flush()

    def test_a_failed_flush_can_be_repeated(self) -> None:
        """After `on_paused`, the same records are added again and written once more."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 2)
        with _failing_write(sink, OSError("the disk is full")), pytest.raises(OSError, match="the disk is full"):
            sink.flush()
        sink.on_paused()
        self._add_values(sink, 0, 3)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(3)])

    def test_backpressure_passes_through(self) -> None:
        """The runtime pauses the partition for as long as the sink asks."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, 2)
        with _failing_write(sink, SinkBackpressureError(2.5)), pytest.raises(SinkBackpressureError) as caught:
            sink.flush()
        assert caught.value.retry_after == 2.5
        sink.on_paused()
        self._add_values(sink, 0, 2)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(2)])

    @pytest.mark.parametrize("kind", [RuntimeError, OSError, ValueError])
    def test_an_error_within_write_is_not_swallowed(self, kind: type[Exception]) -> None:
        """Offsets are committed after `flush`: a sink that returns has written everything."""
        sink = self.started()
        batch = BrokenBatch(kind)
        for offset in range(3):
            batch.append(copy.deepcopy(self._make_value(offset)), b"key", 1_000 + offset, None, offset)
        with pytest.raises(Exception):  # noqa: B017, PT011 - sinks may explain it in their own words
            sink.write(batch)

    def test_a_destination_that_fails_is_not_passed_over(self) -> None:
        """The error of the system outside reaches the runtime: `flush` raises, or asks to retry later."""
        sink = self.started()
        if self.break_destination(sink) is NotImplemented:
            pytest.skip("the suite does not say how to break the destination: define break_destination()")
        self._add_values(sink, 0, 3)
        with pytest.raises(Exception):  # noqa: B017, PT011 - each system has its own
            sink.flush()

    def break_destination(self, sink: BatchingSink) -> Any:
        """Make the destination refuse what a started sink writes: drop its table, close its connection, stop its server.

        Args:
            sink: the sink.

        Returns:
            NotImplemented if there is no way to do so, which skips a test.
        """
        return NotImplemented

    def test_all_kinds_of_keys_and_values(self) -> None:
        """Keys may be missing, empty, text or bytes; values may be as large and as unusual as the suite defines."""
        sink, before = self.started(), self.written()
        pairs = [(value, key) for key in self.keys for value in self.values]
        for offset, (value, key) in enumerate(pairs):
            sink.add(value, key, 1_000 + offset, [("name", b"\xff"), ("name", None)], _TOPIC, 0, offset)
        sink.flush()
        found = self.written()[len(before) :]
        check_same([item.value for item in found], [value for value, _ in pairs])
        for offset, item in enumerate(found):
            assert item.timestamp in (None, 1_000 + offset)

    def test_a_large_batch(self) -> None:
        """Sinks write in chunks, and lose nothing between them."""
        sink, before = self.started(), self.written()
        self._add_values(sink, 0, self.many)
        sink.flush()
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(self.many)])

    def test_two_sinks_may_write_to_one_destination(self) -> None:
        """Several processes run tasks."""
        one, other, before = self.started(), self.started(), self.written()
        self._add_values(one, 0, 1, 0)
        self._add_values(other, 0, 1, 1)
        one.flush()
        other.flush()
        self._add_values(one, 1, 2, 0)
        one.flush()
        self._check_same(self.written()[len(before) :], [(0, 0), (1, 0), (0, 1)])

    def _make_value(self, offset: int) -> Any:
        return self.values[offset % len(self.values)]

    def _add_values(self, sink: BatchingSink, start: int, end: int, partition: int = 0) -> None:
        for offset in range(start, end):
            sink.add(copy.deepcopy(self._make_value(offset)), b"key", 1_000 + offset, None, _TOPIC, partition, offset)

    def _check_same(self, found: Sequence[Written], origins: Sequence[tuple[int, int]]) -> None:
        check_same([item.value for item in found], [self._make_value(offset) for _, offset in origins])
        for item, (partition, offset) in zip(found, origins, strict=True):
            assert item.topic in (None, _TOPIC)
            assert item.partition in (None, partition)
            assert item.offset in (None, offset)
            assert item.timestamp in (None, 1_000 + offset)


class BrokenBatch(SinkBatch):
    """A batch that fails when its second item is taken.

    Args:
        kind: class of the error.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(_TOPIC, 0)
        self._kind = kind

    def __iter__(self) -> Iterator[SinkItem]:
        for number, item in enumerate(self._items):
            if number:
                raise self._kind("the suite breaks this batch")
            yield item

    def iter_chunks(self, n: int) -> Iterator[list[SinkItem]]:  # noqa: D102
        yield from (list(items) for items in [self])


@contextlib.contextmanager
def _failing_write(sink: BatchingSink, error: Exception) -> Iterator[None]:
    def fail(batch: SinkBatch) -> None:
        raise error

    sink.write = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        del sink.write
