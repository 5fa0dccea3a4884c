"""The language of process functions, lists of actions, and of asynchronous functions; both sides play it in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

__all__ = ["Answers", "Call", "in_the_past", "play"]

Action = Sequence[Any]


class Call(Protocol):
    """One call of a process function: what both sides offer in it, under one name."""

    def watermark(self) -> int: ...
    def now(self) -> int: ...
    def timestamp(self) -> int: ...
    def key(self) -> Any: ...
    def register(self, domain: str, time: int) -> None: ...
    def delete(self, domain: str, time: int) -> None: ...
    def value(self) -> Any: ...
    def list(self) -> Any: ...
    def map(self) -> Any: ...
    def reducing(self) -> Any: ...
    def aggregating(self) -> Any: ...
    def side(self, value: Any) -> Any: ...


class Answers:
    """Answers elements `[milliseconds, failures, results]`: after a while, and after some attempts that fail."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}

    async def answer(self, value: Sequence[Any]) -> list[Any]:
        """Return the results of an element.

        Raises:
            ConnectionError: as often as the element says.
        """
        pause_ms, failures, results = value
        await asyncio.sleep(pause_ms / 1000)
        name = repr(list(value))
        attempt = self._attempts[name] = self._attempts.get(name, 0) + 1
        if attempt <= failures:
            raise ConnectionError(f"attempt {attempt}")
        return [[result, attempt] for result in results]

    def too_late(self, value: Sequence[Any]) -> list[Any]:
        """Return the results of an element whose time is over."""
        return [["late", *value[2]]]


def in_the_past(case: dict[str, Any]) -> bool:
    """Whether the functions of a case register timers in the past.

    Flink fires them with the next watermark. So does StreamRT with `clock="partition"`; with `clock="watermark"` it may
    fire them before.
    """
    return bool(case["clock"] == "partition")


def play(actions: Sequence[Action], call: Call, past: bool) -> Iterator[Any]:
    """Play the actions; yield what they put out: lists that begin with the name of the action.

    Args:
        actions: the actions.
        call: how to do them.
        past: whether to register timers in the past.
    """
    for name, *given in actions:
        if name in ("event", "processing"):
            if past or given[0] > (call.watermark() if name == "event" else call.now()):
                call.register(name, *given)
        elif name in ("no-event", "no-processing"):
            call.delete(name.removeprefix("no-"), *given)
        elif name == "side":
            yield call.side(["side", *given])
        elif name in _WRITES:
            kind, method = _WRITES[name]
            getattr(getattr(call, kind)(), method)(*given)
        else:
            yield [name, *_READS[name](call, *given)]


_WRITES = {
    "set": ("value", "update"),
    "unset": ("value", "clear"),
    "add": ("list", "add"),
    "add-all": ("list", "add_all"),
    "replace": ("list", "update"),
    "drop": ("list", "clear"),
    "put": ("map", "put"),
    "put-all": ("map", "put_all"),
    "remove": ("map", "remove"),
    "wipe": ("map", "clear"),
    "reduce": ("reducing", "add"),
    "unreduce": ("reducing", "clear"),
    "sum": ("aggregating", "add"),
    "unsum": ("aggregating", "clear"),
}
_READS: dict[str, Any] = {
    "emit": lambda call, value: [value],
    "times": lambda call: [call.key(), call.timestamp(), call.watermark(), call.now()],
    "get": lambda call: [call.value().value()],
    "list": lambda call: [list(call.list().get())],
    "map": lambda call: [sorted([key, value] for key, value in call.map().items())],
    "keys": lambda call: [sorted(call.map().keys())],
    "look": lambda call, key: [call.map().get(key), call.map().contains(key), call.map().is_empty()],
    "reduced": lambda call: [call.reducing().get()],
    "mean": lambda call: [call.aggregating().get()],
}
