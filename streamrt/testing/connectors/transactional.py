"""The conformance suite of transactional sinks."""
# ruff: noqa: S101 - asserting is what a test suite does

import pickle
from typing import Any, ClassVar

import cloudpickle
import pytest

from streamrt.connectors import PositionChange, SinkBatch, SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import SinkFencedError
from streamrt.testing.comparison import check_same
from streamrt.testing.connectors.sinks import BatchingSinkConformance, BrokenBatch

__all__ = ["TransactionalSinkConformance"]

_FIRST, _SECOND = ("conformance", 0), ("conformance", 1)


class TransactionalSinkConformance(BatchingSinkConformance):
    """The contract of every `TransactionalSink`: values and positions are written together, or not at all.

    Attributes:
        rejected: a value that the system refuses; None if there is none.
        group: a consumer group, with characters that must be quoted.
    """

    rejected: ClassVar[Any] = None
    group: ClassVar[str] = 'shop\'s "größer" group; DROP TABLE x --'

    def make(self) -> TransactionalSink:
        """Return a sink that is not started and writes to the destination of `written`."""
        raise NotImplementedError

    def transactional(self) -> TransactionalSink:
        """Return a sink in the state of a task: unpickled and started."""
        sink: TransactionalSink = pickle.loads(cloudpickle.dumps(self.make()))
        sink.start()
        return sink

    def test_there_is_no_position_at_first(self) -> None:
        """A group that has written nothing has no position."""
        assert dict(self.transactional().positions(self.group, [_FIRST, _SECOND])) == {}

    def test_values_and_positions_are_written_together(self) -> None:
        """Another process finds both."""
        sink, before = self.transactional(), self.written()
        position = SinkPosition(3, 1, "topic id", '{"replay": ["größer"]}')
        self._write_batch(sink, 0, 3, {_FIRST: PositionChange(None, position)})
        again = self.transactional()
        assert dict(again.positions(self.group, [_FIRST, _SECOND])) == {_FIRST: position}
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(3)])
        later = SinkPosition(5, 2)
        self._write_batch(again, 3, 5, {_FIRST: PositionChange(position, later)})
        assert dict(sink.positions(self.group, [_FIRST])) == {_FIRST: later}
        self._check_same(self.written()[len(before) :], [(0, offset) for offset in range(5)])

    def test_several_inputs_are_one_transaction(self) -> None:
        """A task may have several inputs, and not all of them need have values."""
        sink, before = self.transactional(), self.written()
        changes = {_FIRST: PositionChange(None, SinkPosition(2, 1)), _SECOND: PositionChange(None, SinkPosition(7, 1))}
        self._write_batch(sink, 0, 2, changes)
        assert dict(sink.positions(self.group, [_FIRST, _SECOND])) == {
            _FIRST: SinkPosition(2, 1),
            _SECOND: SinkPosition(7, 1),
        }
        self._check_same(self.written()[len(before) :], [(0, 0), (0, 1)])

    @pytest.mark.parametrize("known", [None, SinkPosition(1, 1), SinkPosition(9, 9)])
    def test_another_position_than_expected_refuses_the_values(self, known: SinkPosition | None) -> None:
        """A process that was suspended must not write after its successor."""
        sink = self.transactional()
        self._write_batch(sink, 0, 1, {_FIRST: PositionChange(None, SinkPosition(1, 1))})
        self._write_batch(sink, 1, 2, {_FIRST: PositionChange(SinkPosition(1, 1), SinkPosition(2, 2))})
        zombie, before = self.transactional(), self.written()
        # A position that moves together with one that does not is not moved, either.
        other = {_SECOND: PositionChange(None, SinkPosition(4, 1))}
        version = 1 if known is None else known.version + 1
        with pytest.raises(SinkFencedError):
            self._write_batch(zombie, 1, 3, {_FIRST: PositionChange(known, SinkPosition(3, version)), **other})
        check_same(self.written(), before)
        assert dict(sink.positions(self.group, [_FIRST, _SECOND])) == {_FIRST: SinkPosition(2, 2)}
        # It goes on once it knows the position.
        self._write_batch(zombie, 2, 3, {_FIRST: PositionChange(SinkPosition(2, 2), SinkPosition(3, 3))})
        self._check_same(self.written()[len(before) :], [(0, 2)])

    def test_a_rejected_value_moves_no_position(self) -> None:
        """Neither the values before it nor the position are written; the sink stays usable."""
        if self.rejected is None:
            pytest.skip("the system refuses no value")
        sink = self.transactional()
        self._write_batch(sink, 0, 1, {_FIRST: PositionChange(None, SinkPosition(1, 1))})
        before = self.written()
        batch = self._make_batch(1, 3)
        batch.append(self.rejected, b"key", 1_003, None, 3)
        change = PositionChange(SinkPosition(1, 1), SinkPosition(4, 2))
        with pytest.raises(Exception, match=r"conformance\[0\] at offset 3") as caught:
            sink.write_transaction([batch], SinkCommit(self.group, {_FIRST: change}))
        assert not isinstance(caught.value, SinkFencedError)
        check_same(self.written(), before)
        assert dict(sink.positions(self.group, [_FIRST])) == {_FIRST: SinkPosition(1, 1)}
        self._write_batch(sink, 1, 3, {_FIRST: change})
        self._check_same(self.written()[len(before) :], [(0, 1), (0, 2)])

    def test_a_failure_within_a_transaction_moves_nothing(self) -> None:
        """The error reaches the runtime, and the same records are delivered again."""
        sink = self.transactional()
        self._write_batch(sink, 0, 1, {_FIRST: PositionChange(None, SinkPosition(1, 1))})
        before = self.written()
        batch = BrokenBatch(RuntimeError)
        for offset in (1, 2):
            batch.append(self._make_value(offset), b"key", 1_000 + offset, None, offset)
        change = PositionChange(SinkPosition(1, 1), SinkPosition(3, 2))
        with pytest.raises(Exception):  # noqa: B017, PT011 - sinks may explain it in their own words
            sink.write_transaction([batch], SinkCommit(self.group, {_FIRST: change}))
        check_same(self.written(), before)
        assert dict(sink.positions(self.group, [_FIRST])) == {_FIRST: SinkPosition(1, 1)}
        self._write_batch(sink, 1, 3, {_FIRST: change})
        self._check_same(self.written()[len(before) :], [(0, 1), (0, 2)])

    def test_groups_do_not_share_positions(self) -> None:
        """Two applications may write to one destination."""
        sink, before = self.transactional(), self.written()
        change = {_FIRST: PositionChange(None, SinkPosition(1, 1))}
        self._write_batch(sink, 0, 1, change)
        sink.write_transaction([self._make_batch(0, 1)], SinkCommit("another group", change))
        self._check_same(self.written()[len(before) :], [(0, 0), (0, 0)])

    def _make_batch(self, start: int, end: int) -> SinkBatch:
        batch = SinkBatch(*_FIRST)
        for offset in range(start, end):
            batch.append(self._make_value(offset), b"key", 1_000 + offset, None, offset)
        return batch

    def _write_batch(
        self, sink: TransactionalSink, start: int, end: int, changes: dict[tuple[str, int], PositionChange]
    ) -> None:
        sink.write_transaction([self._make_batch(start, end)], SinkCommit(self.group, changes))
