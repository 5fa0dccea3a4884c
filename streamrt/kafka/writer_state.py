"""The states in the life of a `KafkaTransactionalWriter`."""

import enum
from collections.abc import Mapping

__all__ = ["WriterState"]


class WriterState(enum.Enum):
    """Life-cycle state of a `KafkaTransactionalWriter`; see the diagram of `streamrt.kafka.transactions`."""

    NEW = "new"
    READY = "ready"
    OPEN = "in a transaction"
    FAILED = "in a transaction that failed"
    SPENT = "spent"

    @property
    def successors(self) -> "frozenset[WriterState]":
        """States that may follow this one."""
        return _SUCCESSORS[self]


_SUCCESSORS: Mapping[WriterState, frozenset[WriterState]] = {
    WriterState.NEW: frozenset({WriterState.READY, WriterState.SPENT}),
    WriterState.READY: frozenset({WriterState.OPEN, WriterState.SPENT}),
    WriterState.OPEN: frozenset({WriterState.READY, WriterState.FAILED, WriterState.SPENT}),
    WriterState.FAILED: frozenset({WriterState.SPENT}),
    WriterState.SPENT: frozenset(),
}
