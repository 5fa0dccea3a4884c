"""Deliberate mistakes in the protocol: a simulator that does not find them is worth nothing."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import streamrt.runtime.merge as merge_module
import streamrt.runtime.restore as restore_module
import streamrt.runtime.stores as stores_module
from streamrt.runtime.batch import Batch
from streamrt.runtime.commit import ExactlyOnceSession, Session, SessionStatus
from streamrt.runtime.restore import RestorePlan
from streamrt.runtime.stores import TaskStores
from streamrt.state import POSITION_KEY
from tests.sim.simulation import Simulation, Violation, replaced

_REAL_OPEN = ExactlyOnceSession.open
_REAL_COMMIT = ExactlyOnceSession.commit
_REAL_PREPARE = TaskStores.prepare
_REAL_NEXT = TaskStores._next_changelog_offset
_REAL_PLAN = restore_module.plan_restore


def _open_without_comparing(self: ExactlyOnceSession, **options: Any) -> None:
    class Clients:
        """Says that the group is where the driver believes it to be."""

        def __getattr__(self, name: str) -> Any:
            return getattr(clients, name)

        def committed(self, place: Any) -> int:
            return start[place]

    clients, start = self.clients, dict(self.start)
    self.clients = Clients()
    _REAL_OPEN(self, **options)


def _commit_stores_first(self: ExactlyOnceSession) -> None:
    self.stores.flush(self.end)
    assert self._transaction is not None
    self._transaction.commit(self.end, self._metadata)
    self._move(SessionStatus.COMMITTED)


def _commit_one_input(self: ExactlyOnceSession) -> None:
    assert self._transaction is not None
    first = self.inputs[0]
    self._transaction.commit({first: self.end[first]}, self._metadata)
    Session.commit(self)


def _read_what_is_delivered(self: Any, delivered: Any) -> Any:
    yield from delivered


def _prepare_without_position(self: TaskStores, writer: Any, ends: Any) -> None:
    class Writer:
        """Leaves position records out."""

        def produce(self, topic: str, value: Any, key: Any, *rest: Any) -> None:
            if key != POSITION_KEY:
                writer.produce(topic, value, key, *rest)

    _REAL_PREPARE(self, Writer(), ends)  # type: ignore[arg-type]
    for store in self._open.values():
        store.changes -= 1


def _next_offset_too_high(self: TaskStores, store: Any) -> int | None:
    found = _REAL_NEXT(self, store)
    return None if found is None else found + 1


def _plan_without_age(*args: Any, longest_absence_ms: int, **options: Any) -> RestorePlan:
    return _REAL_PLAN(*args, longest_absence_ms=1 << 62, **options)


def _settle_before_flush(self: Batch) -> None:
    prepared, self._prepared = self._prepared, []
    for session in prepared:
        self._commit(session)
    # The report goes to the driver before the outputs are durable.


Patch = tuple[Any, str, Callable[..., Any]]

MUTANTS: Mapping[str, tuple[str, bool, tuple[Patch, ...]]] = {
    "the committed offset is not compared": (
        "",
        True,
        ((ExactlyOnceSession, "open", _open_without_comparing),),
    ),
    "stores are written before the transaction is committed": (
        "",
        True,
        ((ExactlyOnceSession, "commit", _commit_stores_first),),
    ),
    "restores end at the last stable offset": ("bounds", True, ()),
    "a transactional id fences nobody": ("fencing", True, ()),
    "a producer is used again after trouble": ("usable", True, ()),
    "no position is produced": ("", True, ((TaskStores, "prepare", _prepare_without_position),)),
    "the stamp's changelog offset is one too high": (
        "",
        True,
        ((TaskStores, "_next_changelog_offset", _next_offset_too_high),),
    ),
    "a merge does not read ahead": ("", True, ((merge_module._Feed, "_read", _read_what_is_delivered),)),
    "only one input's offset is committed": ("", True, ((ExactlyOnceSession, "commit", _commit_one_input),)),
    "stores of any age are replayed": ("", True, ((stores_module, "plan_restore", _plan_without_age),)),
    "at least once, progress is reported before the flush": (
        "",
        False,
        ((Batch, "_settle_prepared", _settle_before_flush),),
    ),
    "at least once, no position is produced": ("", False, ((TaskStores, "prepare", _prepare_without_position),)),
    "at least once, the stamp's changelog offset is one too high": (
        "",
        False,
        ((TaskStores, "_next_changelog_offset", _next_offset_too_high),),
    ),
}
"""By what is wrong: the mistake of the simulated clients, the guarantee, and what is replaced in the code."""


def seeds_needed(name: str, most: int, first: int = 0) -> int | None:
    """Return how many seeds it takes until a mutant is found; None if it is not."""
    mistake, transactional, patches = MUTANTS[name]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(replaced(*patch))
        for count, seed in enumerate(range(first, first + most), 1):
            try:
                Simulation(seed, mutant=mistake, transactional=transactional).run_to_end()
            except Violation:
                return count
    return None
