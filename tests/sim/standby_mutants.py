"""Deliberate mistakes with standbys."""

from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from typing import Any

import streamrt.runtime.tasks.stores.followed_stores as followed_module
from streamrt.runtime.tasks.stores.changelog_restore import Restored, replay
from streamrt.runtime.tasks.stores.followed_stores import FollowedStores
from tests.sim.clients import Batch

STANDBYS = "standbys"
"""In the names of mutants that are looked for where tasks keep copies of stores of others."""

_REAL_REPLAY = replay
_REAL_INIT = FollowedStores.__init__


def _count_open_transactions(
    partition: Any, identity: Any, log: Any, start: int, end: int, clients: Any, *rest: Any
) -> Restored | None:
    """Count as applied what is in the changelog, and not only what is committed."""
    found = _REAL_REPLAY(partition, identity, log, start, end, clients, *rest)
    if found is not None:
        partition.write((), changed(partition.stamp, changelog_offset=clients.bounds(log)[1]))
    return found


def _skip_a_record(partition: Any, identity: Any, log: Any, start: int, end: int, *rest: Any) -> Restored | None:
    return _REAL_REPLAY(partition, identity, log, min(start + 1, end), end, *rest)


class _UncommittedClients:
    """Clients that read what is written, whether it is committed or not."""

    def __init__(self, clients: Any) -> None:
        self._clients = clients

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)

    def log_end(self, partition: Any) -> int:
        end: int = self._clients.bounds(partition)[1]
        return end

    def changelog(self, partition: Any, start: int, end: int) -> Iterator[Batch]:
        log = self._clients._sim.broker.logs[partition]
        found = [entry for entry in log.entries if start <= entry.offset < end and not entry.marker]
        yield Batch(
            [entry.key or b"" for entry in found],
            [entry.value for entry in found],
            [entry.timestamp for entry in found],
            end,
            [entry.epoch for entry in found],
        )


def _read_uncommitted(self: FollowedStores, catalog: Any, stores: Any, task: Any, clients: Any) -> None:
    _REAL_INIT(self, catalog, stores, task, _UncommittedClients(clients))


Patch = tuple[Any, str, Callable[..., Any]]

STANDBY_MISTAKES: dict[str, tuple[Patch, ...]] = {
    "open transactions count": ((followed_module, "replay", _count_open_transactions),),
    "copies are ahead of what is committed": ((FollowedStores, "__init__", _read_uncommitted),),
    "a record is left out": ((followed_module, "replay", _skip_a_record),),
}
STANDBY_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    **{f"{STANDBYS}, {name}": ("", True, patches) for name, patches in STANDBY_MISTAKES.items()},
    f"{STANDBYS}, at least once, a record is left out": ("", False, ((followed_module, "replay", _skip_a_record),)),
}
