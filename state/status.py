"""Where a transaction stands, and what may follow."""

import enum
from typing import Final

__all__ = ["TransactionStatus"]


class TransactionStatus(enum.Enum):
    """Where a transaction stands."""

    STARTED = "started"
    PREPARED = "prepared"
    COMPLETE = "complete"
    FAILED = "failed"

    @property
    def next(self) -> frozenset["TransactionStatus"]:
        """The states that may follow."""
        return _NEXT[self]

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return not _NEXT[self]


_NEXT: Final = {
    TransactionStatus.STARTED: frozenset({TransactionStatus.PREPARED, TransactionStatus.FAILED}),
    TransactionStatus.PREPARED: frozenset({TransactionStatus.COMPLETE, TransactionStatus.FAILED}),
    TransactionStatus.COMPLETE: frozenset(),
    TransactionStatus.FAILED: frozenset(),
}
