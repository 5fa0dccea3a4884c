"""Deliberate mistakes in the protocol: a simulator that does not find them is worth nothing."""

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import streamrt.runtime.merge as merge_module
import streamrt.runtime.restore as restore_module
import streamrt.runtime.stores as stores_module
from streamrt.runtime.batch import Batch
from streamrt.runtime.commit import ExactlyOnceSession, Session, SessionStatus
from streamrt.runtime.link import Begin
from streamrt.runtime.membership import Membership
from streamrt.runtime.resident import ResidentTask
from streamrt.runtime.restore import RestorePlan
from streamrt.runtime.stores import TaskStores
from streamrt.state import POSITION_KEY
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation, Violation, replaced

_REAL_OPEN = ExactlyOnceSession.open
_REAL_PREPARE = TaskStores.prepare
_REAL_NEXT = TaskStores._next_changelog_offset
_REAL_PLAN = restore_module.plan_restore
_REAL_COMMIT = Membership._commit
_REAL_SETTLE = ResidentTask._settle
_REAL_CLOSE = ResidentTask._close
_REAL_OBEY = ResidentTask._obey
_REAL_DROP = ResidentTask._drop
_REAL_ABORT = Batch._abort


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


def _publish_stores_first(self: ExactlyOnceSession) -> None:
    self.stores.flush(self.end)
    assert self._transaction is not None
    self._transaction.commit(self.end, self._metadata)
    self._move(SessionStatus.PUBLISHED)


def _store_nothing(self: Session) -> None:
    self._move(SessionStatus.COMMITTED)


def _publish_one_input(self: ExactlyOnceSession) -> None:
    assert self._transaction is not None
    first = self.inputs[0]
    self._transaction.commit({first: self.end[first]}, self._metadata)
    Session.publish(self)


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
        self._commit(session, session.publish)
    # The report goes to the driver before the outputs are durable.


def _follow_a_spent_writer(self: ExactlyOnceSession) -> Any:
    return Session.successor(self)


def _report_and_commit(self: ResidentTask) -> None:
    class Outbox:
        """Has offsets committed before the driver has heard of the work."""

        def __getattr__(self, name: str) -> Any:
            return getattr(outbox, name)

        def report(self, report: Any, offsets: Any) -> None:
            if offsets:
                task._membership.commit(offsets)
            outbox.report(report, {})

    task, outbox = self, self._outbox
    self._outbox = Outbox()  # type: ignore[assignment]
    try:
        _REAL_SETTLE(self)
    finally:
        self._outbox = outbox


def _commit_is_believed(self: Membership, wanted: Any, metadata: Any) -> bool:
    _REAL_COMMIT(self, wanted, metadata)
    return True


def _close_without_seeking(self: ResidentTask, tasks: Any, position: Any) -> None:
    seek, self._feed.seek = self._feed.seek, lambda place, offset: None  # type: ignore[method-assign]
    try:
        _REAL_CLOSE(self, tasks, position)
    finally:
        self._feed.seek = seek  # type: ignore[method-assign]


def _close_and_keep_what_is_left(self: ResidentTask, tasks: Any, position: Any) -> None:
    left = list(self._left)
    _REAL_CLOSE(self, tasks, position)
    self._left = left


def _begin_whatever_it_answers(self: ResidentTask, message: Any) -> None:
    if isinstance(message, Begin):
        message = replace(message, generation=self._membership.assignment.generation)
    _REAL_OBEY(self, message)


def _let_go_without_closing(self: ResidentTask) -> None:
    kept, self._sessions = dict(self._sessions), {}
    batch, self._batch = self._batch, None
    _REAL_DROP(self)
    self._sessions.update(kept)
    del batch


def _abort_and_go_on(self: Batch, session: Session) -> None:
    """Take the work back but for the state: the same stores, with all that was read and written, serve the next attempt."""
    stores = session.stores
    close, stores.close = stores.close, lambda: None  # type: ignore[method-assign]
    _REAL_ABORT(self, session)
    stores.close = close  # type: ignore[method-assign]
    if session.status is SessionStatus.ABORTED and self._carried is not None:
        following = copy.copy(session)
        following.status = SessionStatus.OPEN
        following.end = dict(session.start)
        self._carried[session.place] = following


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
        ((ExactlyOnceSession, "publish", _publish_stores_first), (ExactlyOnceSession, "store", _store_nothing)),
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
    "only one input's offset is committed": ("", True, ((ExactlyOnceSession, "publish", _publish_one_input),)),
    "stores of any age are replayed": ("", True, ((stores_module, "plan_restore", _plan_without_age),)),
    "at least once, progress is reported before the flush": (
        "",
        False,
        ((Batch, "_settle_prepared", _settle_before_flush),),
    ),
    "resident, a session follows one whose producer is spent": (
        "",
        True,
        ((ExactlyOnceSession, "successor", _follow_a_spent_writer),),
    ),
    "resident, the committed offset is not compared": (
        "",
        True,
        ((ExactlyOnceSession, "open", _open_without_comparing),),
    ),
    "resident, stores are written before the transaction is committed": (
        "",
        True,
        ((ExactlyOnceSession, "publish", _publish_stores_first), (ExactlyOnceSession, "store", _store_nothing)),
    ),
    "resident, a transactional id fences nobody": ("fencing", True, ()),
    "resident, a commit of the member that failed counts": (
        "",
        True,
        ((Membership, "_commit", _commit_is_believed),),
    ),
    "resident, positions are not taken back": ("", True, ((ResidentTask, "_close", _close_without_seeking),)),
    "resident, records of a session that was given up are processed": (
        "",
        True,
        ((ResidentTask, "_close", _close_and_keep_what_is_left),),
    ),
    "resident, state that was given up is used": ("", True, ((Batch, "_abort", _abort_and_go_on),)),
    "resident, an answer of any assignment is heard": (
        "",
        True,
        ((ResidentTask, "_obey", _begin_whatever_it_answers),),
    ),
    "resident, stores stay open when partitions go": ("", True, ((ResidentTask, "_drop", _let_go_without_closing),)),
    "resident, at least once, offsets are committed before the report is taken": (
        "",
        False,
        ((ResidentTask, "_settle", _report_and_commit),),
    ),
    "resident, at least once, progress is reported before the flush": (
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
    kind = ResidentSimulation if name.startswith("resident") else Simulation
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(replaced(*patch))
        for count, seed in enumerate(range(first, first + most), 1):
            try:
                kind(seed, mutant=mistake, transactional=transactional, sinks=False).run_to_end()
            except Violation:
                return count
    return None
