"""Deliberate mistakes about topics that are deleted and created again."""

from collections.abc import Callable, Mapping
from typing import Any

import streamrt.runtime.tasks.stores.changelog_restore as restore_module
import streamrt.runtime.tasks.stores.task_stores as stores_module
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.topic_identity import InputIdentity

RECREATED = "recreated"
"""In the names of mutants that are looked for where a topic is deleted and created again."""

_REAL_CHECK = restore_module.check_position


def _name_no_topic(self: CommitMetadata, topic: str) -> dict[str, Any]:
    return {}


def _hold_nothing_back(self: InputIdentity) -> None:
    """Let each commit through."""


def _doubt_nothing(self: InputIdentity, reason: str, topics: Any = None) -> None:
    """Take no error for a sign."""


def _take_state_of_any_topic(position: Any, topic_id: Any, *rest: Any, **options: Any) -> None:
    _REAL_CHECK(position, None, *rest, **options)


Patch = tuple[Any, str, Callable[..., Any]]

RECREATED_MUTANTS: Mapping[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{prefix}{what}": ("", transactional, ((where, name, replacement),))
    for prefix, transactional in (
        (f"{RECREATED}, ", True),
        (f"{RECREATED}, at least once, ", False),
        (f"resident {RECREATED}, ", True),
        (f"resident {RECREATED}, at least once, ", False),
    )
    for what, where, name, replacement in (
        ("committed offsets name no topic", CommitMetadata, "_topic_identity", _name_no_topic),
        ("no commit is held back", InputIdentity, "require", _hold_nothing_back),
        ("errors are no sign", InputIdentity, "doubt", _doubt_nothing),
        ("state of any topic is taken", stores_module, "check_position", _take_state_of_any_topic),
    )
}
