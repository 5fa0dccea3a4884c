"""Deliberate mistakes with timers and lists, for applications with a process function."""

from collections.abc import Callable
from typing import Any

import streamrt.state.changelog as changelog_module
from streamrt.state.base import Change
from streamrt.state.collections import Collections, Overlay
from streamrt.state.layout import ARRIVAL_KEY, TIMER_SPACE, Expiring, timer_bound_key
from streamrt.state.process import ProcessTransaction
from streamrt.state.timers import Timers

PROCESSING = "processing"
"""In the names of mutants that are looked for in applications with a process function."""

_REAL_PREPARE = ProcessTransaction.prepare
_REAL_TIMERS = Timers.prepare
_REAL_APPEND = Collections.append


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


def _keep_the_counter_on_disk_only(self: ProcessTransaction) -> list[Change]:
    return [change for change in _REAL_PREPARE(self) if change[0] != ARRIVAL_KEY]


def _lose_an_element_of_a_list(self: Collections, overlay: Overlay, entry: bytes | Expiring) -> None:
    """Append, and delete the first of the elements that the transaction has appended before."""
    _REAL_APPEND(self, overlay, entry)
    if len(overlay.keys) > 2:
        self._entries.put(next(iter(overlay.keys)), None)


Patch = tuple[Any, str, Callable[..., Any]]

PROCESS_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, ((where, name, replacement),))
    for prefix, transactional in (
        (f"{PROCESSING}, ", True),
        (f"{PROCESSING}, at least once, ", False),
        (f"resident {PROCESSING}, ", True),
    )
    for what, where, name, replacement in (
        ("timers are lost in a restore", changelog_module, "_timer_index", _restore_no_timers),
        ("a timer that fires stays in the changelog", ProcessTransaction, "prepare", _delete_timers_on_disk_only),
        ("the bound of the index is too high", Timers, "prepare", _write_a_bound_that_is_too_high),
        ("the counter of lists is not in the changelog", ProcessTransaction, "prepare", _keep_the_counter_on_disk_only),
        ("an element of a list is lost", Collections, "append", _lose_an_element_of_a_list),
    )
    # At least once, a list may have an element once more, so one less does not show.
    if transactional or "list" not in what
}
