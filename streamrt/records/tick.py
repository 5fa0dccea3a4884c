"""Notification of operators that time has passed."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tick:
    """A moment of processing time.

    Attributes:
        now: wall clock in milliseconds since the Unix epoch.
        watermarks: stream-wide watermark, as event time in milliseconds, by name of each store that uses watermarks; a
            store without one yet is missing.
        final: whether the inputs of a bounded run have ended, so that everything that waits for event time is due. No
            clock moves: records may follow in a later run.
        others: the watermark of all other partitions, in the same form; a number above all times if none counts. A
            store for which it is unknown is missing.
        still: whether operators go on with what became due before, at the time that their stores have. Only what comes out
            of it moves the time of operators below.
    """

    now: int
    watermarks: Mapping[str, int] = field(default_factory=dict)
    final: bool = False
    others: Mapping[str, int] = field(default_factory=dict)
    still: bool = False
