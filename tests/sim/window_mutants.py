"""Deliberate mistakes about event time."""

from collections.abc import Callable, Mapping
from typing import Any

from streamrt.event_time.barriers import Passage
from streamrt.models import TopicPartition
from streamrt.runtime.resident.outbox import Outbox

WINDOWS = "windows"
"""In the names of mutants that are looked for in applications with windows by watermark."""

_REAL_ADD = Passage.add
_REAL_SEE = Outbox.see


def _add_and_note(self: Passage, watermark: int, ends: Mapping[TopicPartition, int]) -> None:
    self.__dict__["newest"] = watermark
    _REAL_ADD(self, watermark, ends)


def _need_only_what_has_risen(self: Passage, watermark: int) -> bool:
    newest = self.__dict__.get("newest")
    return newest is None or watermark > newest


def _see_without_repeating(self: Outbox, *args: Any, **options: Any) -> None:
    self._repeated_at = float("inf")
    _REAL_SEE(self, *args, **options)


Patch = tuple[Any, str, Callable[..., Any]]

WINDOW_MUTANTS: dict[str, tuple[str, bool, tuple[Patch, ...]]] = {
    f"{WINDOWS}, a watermark that stands still passes no more": (
        "",
        True,
        ((Passage, "add", _add_and_note), (Passage, "needs", _need_only_what_has_risen)),
    ),
    f"{WINDOWS}, tasks report only changes": ("", True, ((Outbox, "see", _see_without_repeating),)),
}
