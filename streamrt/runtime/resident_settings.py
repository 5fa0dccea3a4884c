"""What a resident task needs to know of its place and of when to commit."""

from dataclasses import dataclass

__all__ = ["ResidentSettings"]


@dataclass(frozen=True)
class ResidentSettings:
    """What a resident task needs beside the specification.

    Attributes:
        slot: its number, from 0 on.
        attempt: how many tasks of this number died before.
        commit_interval: seconds between two commits.
        commit_every: commit after this many records already; 0 leaves it to the interval.
        transaction_interval: exactly once, seconds after which a transaction closes at the latest.
    """

    slot: int
    attempt: int = 0
    commit_interval: float = 5.0
    commit_every: int = 0
    transaction_interval: float = 0.1
