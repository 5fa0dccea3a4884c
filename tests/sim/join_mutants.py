"""Deliberate mistakes with merges behind exchanges."""

from collections.abc import Callable, Mapping
from typing import Any

from streamrt.event_time.exchange_cuts import ExchangeCut, UpstreamProgress
from streamrt.event_time.merge_phases import MergePhase, MergePhases
from streamrt.models import TopicPartition
from streamrt.runtime.resident.deliveries import Deliveries
from streamrt.runtime.resident.turns import Turns

JOINING = "joining"
"""In the names of mutants that are looked for where frames meet behind exchanges."""

_REAL_DONE = Turns.complete_cut
_REAL_ADVANCE = ExchangeCut.advance


def _take_at_once(self: Turns) -> dict[str, int]:
    for task_id in list(self._fresh):
        self._take_chunks(task_id).extend(self._fresh.pop(task_id))
    return {}


def _read_all(self: MergePhases) -> None:
    self.phase = MergePhase.ALL


def _wait_for_nobody(self: UpstreamProgress, partition: TopicPartition, end: int, now_ms: int) -> bool:
    return True


def _ask_too_early(self: UpstreamProgress) -> Callable[[TopicPartition, int], bool]:
    """Count what tasks reach while the answers are on their way."""
    return lambda partition, end: self._reached.get(partition, -1) >= end


def _forget_chains(self: ExchangeCut, reached: Callable[[TopicPartition, int], bool]) -> bool:
    self._passed.update(topic for topic in self._before if topic not in ("in", "other"))
    return _REAL_ADVANCE(self, reached)


def _read_what_is_there(self: Turns, stream: str, number: int, ends: Mapping[TopicPartition, int]) -> None:
    _REAL_DONE(self, stream, number, dict.fromkeys(ends, 0))


def _say_too_early(self: Deliveries) -> bool:
    return True


Patch = tuple[Any, str, Callable[..., Any]]

JOIN_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{JOINING}, {'' if transactional else 'at least once, '}{what}": (
        "",
        transactional,
        ((where, name, mistake),),
    )
    for prefix, guarantees, what, where, name, mistake in (
        ("resident ", (True, False), "records are taken at once", Turns, "request_cuts", _take_at_once),
        ("", (True, False), "all is read at once", MergePhases, "restart", _read_all),
        ("resident ", (True, False), "nobody is waited for", UpstreamProgress, "reached", _wait_for_nobody),
        ("", (True, False), "nobody is waited for", UpstreamProgress, "reached", _wait_for_nobody),
        ("resident ", (False,), "ends are asked for too early", UpstreamProgress, "snapshot", _ask_too_early),
        ("resident ", (True,), "a second exchange is not waited for", ExchangeCut, "advance", _forget_chains),
        ("resident ", (True, False), "merges do not read to the ends", Turns, "complete_cut", _read_what_is_there),
        ("resident ", (False,), "outputs in flight count", Deliveries, "_are_delivered", _say_too_early),
    )
    for transactional in guarantees
}
