"""The settings of a resident task: its slot and its commit intervals."""

from dataclasses import dataclass

__all__ = ["ResidentSettings"]


@dataclass(frozen=True)
class ResidentSettings:
    """The settings of a resident task in addition to the specification.

    Attributes:
        slot: its number, starting at 0.
        attempt: number of tasks with this number that died before.
        commit_interval: seconds between two commits.
        commit_every: maximum number of records between two commits; 0 for no limit.
        transaction_interval: with exactly-once, maximum duration of a transaction in seconds.
    """

    slot: int
    attempt: int = 0
    commit_interval: float = 5.0
    commit_every: int = 0
    transaction_interval: float = 0.1
