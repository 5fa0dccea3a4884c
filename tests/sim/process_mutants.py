"""Deliberate mistakes with timers and lists, for applications with a process function."""

from collections.abc import Callable
from typing import Any

import streamrt.state.changelog as changelog_module
from streamrt.process.execution import ProcessExecution
from streamrt.runtime.tasks.chain.collector import OutputCollector
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.runtime.tasks.work_cycle import WorkCycle
from streamrt.state.access.collections import Collections, Overlay
from streamrt.state.base import Change
from streamrt.state.layout import (
    ARRIVAL_KEY,
    LIST_SPACE,
    MAP_SPACE,
    NAME_SPACE,
    TIMER_SPACE,
    Expiring,
    timer_bound_key,
)
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.state.transactions.timers import Timer, Timers
from streamrt.topology import Node

PROCESSING = "processing"
"""In the names of mutants that are looked for in applications with a process function."""
EXPANDED = "expanded"
"""In the names of those in which each record becomes two above it."""

_REAL_PREPARE = ProcessTransaction.prepare
_REAL_TIMERS = Timers.prepare
_REAL_FIRE = Timers.fire
_REAL_DUE = Timers.due
_REAL_APPEND = Collections.append
_REAL_PORTION = ProcessExecution._fire_timers
_later: dict[Timers, Timer] = {}


def _restore_no_timers(*args: Any) -> list[Change]:
    return []


def _delete_timers_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0][0] != TIMER_SPACE or change[1] is not None]


def _write_a_bound_that_is_too_high(self: Timers) -> tuple[list[Change], list[Change]]:
    changes, local = _REAL_TIMERS(self)
    bound = timer_bound_key(self._domain)
    return changes, [
        (key, (int.from_bytes(value, "big") + 1).to_bytes(8, "big")) if key == bound and value else (key, value)
        for key, value in local
    ]


def _put_off_a_deletion(self: Timers, timer: Timer) -> None:
    """Fire, and delete the timer when the next one is looked for: after `on_timer`, which may have registered it again."""
    _later[self] = timer


def _delete_what_has_fired(self: Timers, bound: int) -> Timer | None:
    fired = _later.pop(self, None)
    if fired is not None:
        _REAL_FIRE(self, fired)
    return _REAL_DUE(self, bound)


def _keep_maps_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0][0] != MAP_SPACE]


def _change_maps_in_the_changelog_once(self: ProcessTransaction) -> list[Change]:
    """Leave out changes of entries that the store has."""
    changes, partition = _REAL_PREPARE(self), self._partition
    return [change for change in changes if change[0][0] != MAP_SPACE or partition.get(change[0]) is None]


def _delete_on_disk_only(self: ProcessTransaction) -> list[Change]:
    """Leave the elements and entries in the changelog that were deleted."""
    spaces = (MAP_SPACE, LIST_SPACE)
    return [change for change in _REAL_PREPARE(self) if change[0][0] not in spaces or change[1] is not None]


def _keep_names_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0][0] != NAME_SPACE]


def _keep_the_counter_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0] != ARRIVAL_KEY]


def _lose_an_element_of_a_list(self: Collections, overlay: Overlay, entry: bytes | Expiring) -> None:
    """Append, and delete the first of the elements that the transaction has appended before."""
    _REAL_APPEND(self, overlay, entry)
    if len(overlay.keys) > 2:
        self._entries.put(next(iter(overlay.keys)), None)


def _lose_what_is_left(
    self: ProcessExecution, transaction: ProcessTransaction, timers: Timers, bound: int, *args: Any
) -> bool:
    done = _REAL_PORTION(self, transaction, timers, bound, *args)
    while not done and (timer := timers.due(bound)) is not None:
        timers.delete(timer[1], timer[0])
    return done


def _fire_the_last_one_again(
    self: ProcessExecution, transaction: ProcessTransaction, timers: Timers, bound: int, *args: Any
) -> bool:
    done = _REAL_PORTION(self, transaction, timers, bound, *args)
    if not done and (last := timers._last) is not None:
        timers.register(last[1], last[0])
    return done


def _fire_between_records(self: OutputCollector, node: Node, work: Callable[[], None]) -> None:
    work()


def _forget_what_is_left(self: WorkCycle, task: StreamTask, unfinished: bool) -> None:
    task.unfinished = False


Patch = tuple[Any, str, Callable[..., Any]]

_MISTAKES: dict[str, list[Patch]] = {
    "timers are lost in a restore": [(changelog_module, "_timer_index", _restore_no_timers)],
    "a timer that fires stays in the changelog": [(ProcessTransaction, "prepare", _delete_timers_on_disk_only)],
    "the bound of the index is too high": [(Timers, "prepare", _write_a_bound_that_is_too_high)],
    "a timer is deleted after on_timer": [
        (Timers, "fire", _put_off_a_deletion),
        (Timers, "due", _delete_what_has_fired),
    ],
    "maps are not in the changelog": [(ProcessTransaction, "prepare", _keep_maps_on_disk_only)],
    "a map keeps its first entries": [(ProcessTransaction, "prepare", _change_maps_in_the_changelog_once)],
    "deletions of elements are not in the changelog": [(ProcessTransaction, "prepare", _delete_on_disk_only)],
    "types of names are not in the changelog": [(ProcessTransaction, "prepare", _keep_names_on_disk_only)],
    "the counter of lists is not in the changelog": [(ProcessTransaction, "prepare", _keep_the_counter_on_disk_only)],
    "an element of a list is lost": [(Collections, "append", _lose_an_element_of_a_list)],
}

_EXPANDED_MISTAKES: dict[str, list[Patch]] = {
    "a portion loses what it leaves": [(ProcessExecution, "_fire_timers", _lose_what_is_left)],
    "a portion fires its last timer again": [(ProcessExecution, "_fire_timers", _fire_the_last_one_again)],
    "timers fire between the records of one": [(OutputCollector, "when_complete", _fire_between_records)],
    "nobody goes on with what a portion leaves": [(WorkCycle, "_note_unfinished", _forget_what_is_left)],
}

PROCESS_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, tuple(patches))
    for prefix, transactional in (
        (f"{PROCESSING}, ", True),
        (f"{PROCESSING}, at least once, ", False),
        (f"resident {PROCESSING}, ", True),
    )
    for what, patches in _MISTAKES.items()
    # At least once, a list may have an element once more and a timer may fire once more, so one less does not show.
    if transactional or not ("list" in what or "after on_timer" in what)
} | {
    f"{prefix}{EXPANDED}, {what}": ("", True, tuple(patches))
    for prefix in (f"{PROCESSING}, ", f"resident {PROCESSING}, ")
    for what, patches in _EXPANDED_MISTAKES.items()
}
