"""Deliberate mistakes with asynchronous calls."""

from collections.abc import Callable
from typing import Any

from streamrt.runtime.tasks.chain.work_in_flight import WorkInFlight, _NodeCalls

ASYNCHRONOUS = "asynchronous"
"""In the names of mutants that are looked for in applications with asynchronous calls."""


def _any_is_ready(self: _NodeCalls) -> bool:
    return any(call.done for call in self.open)


def _pass_on_in_the_order_of_ends(self: _NodeCalls) -> None:
    for call in [each for each in self.open if each.done]:
        del self.open[call]
        self._resume_call(call)


def _drain_nothing(self: WorkInFlight, patience_s: float | None = None) -> bool:
    return True


def _drop_nothing(self: WorkInFlight) -> None:
    """Let the calls of an attempt that is over go on."""


Patch = tuple[Any, str, Callable[..., Any]]

CALL_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, patches)
    for prefix, transactional in (
        (f"{ASYNCHRONOUS}, ", True),
        (f"{ASYNCHRONOUS}, at least once, ", False),
        (f"resident {ASYNCHRONOUS}, ", True),
        (f"resident {ASYNCHRONOUS}, at least once, ", False),
    )
    for what, patches in (
        (
            "results come in the order of their ends",
            ((_NodeCalls, "_is_ready", _any_is_ready), (_NodeCalls, "_pass_on", _pass_on_in_the_order_of_ends)),
        ),
        ("a commit does not wait for calls", ((WorkInFlight, "drain", _drain_nothing),)),
        ("calls of a task that is given up go on", ((WorkInFlight, "drop", _drop_nothing),)),
    )
    # At least once, results may come twice.
    if transactional or "given up" not in what
}
