"""The status of a transaction, and its allowed transitions."""

import enum
from typing import Final

__all__ = ["TransactionStatus"]


class TransactionStatus(enum.Enum):
    """The status of a transaction."""

    STARTED = "started"
    PREPARED = "prepared"
    COMPLETE = "complete"
    FAILED = "failed"

    @property
    def next(self) -> frozenset["TransactionStatus"]:
        """The statuses that may follow."""
        return _NEXT[self]

    @property
    def final(self) -> bool:
        """Whether no other status can follow."""
        return not _NEXT[self]


_NEXT: Final = {
    TransactionStatus.STARTED: frozenset({TransactionStatus.PREPARED, TransactionStatus.FAILED}),
    TransactionStatus.PREPARED: frozenset({TransactionStatus.COMPLETE, TransactionStatus.FAILED}),
    TransactionStatus.COMPLETE: frozenset(),
    TransactionStatus.FAILED: frozenset(),
}
