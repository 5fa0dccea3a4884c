"""Deliberate mistakes with standbys."""

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import streamrt.runtime.tasks.stores.followed_stores as followed_module
from streamrt.runtime.tasks.stores.changelog_restore import Restored, replay

STANDBYS = "standbys"
"""In the names of mutants that are looked for where tasks keep copies of stores of others."""

_REAL_REPLAY = replay


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


Patch = tuple[Any, str, Callable[..., Any]]

STANDBY_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{STANDBYS}, open transactions count": ("", True, ((followed_module, "replay", _count_open_transactions),)),
    f"{STANDBYS}, a record is left out": ("", True, ((followed_module, "replay", _skip_a_record),)),
    f"{STANDBYS}, at least once, a record is left out": ("", False, ((followed_module, "replay", _skip_a_record),)),
}
