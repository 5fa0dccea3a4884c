"""A process function with timers, a list and a map for the simulator, and a naive model of it."""

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from streamrt import Context, ProcessFunction, TimerContext
from streamrt.state.layout import (
    BYTES_KEY,
    LIST_SPACE,
    MAP_SPACE,
    NAME_SPACE,
    TIMER_SPACE,
    collection_prefix,
    key_prefix,
    name_key,
    record_prefix,
    split_timer_index_key,
    timer_bound_key,
    timer_index_key,
    timer_index_of,
    timer_key,
)
from tests.sim.broker import Entry

STORE = "process_Remind"
FIRED = 1_000_000
"""Outputs of timers have the id of the record that they are about, plus this number."""
TWIN = 500_000
"""The second record that an expanded one becomes has the id of the first, plus this number."""
KEPT_SPACES = (MAP_SPACE, LIST_SPACE, TIMER_SPACE, NAME_SPACE)


def due_of(unique: int, timestamp: int) -> int:
    """Return when a record is due."""
    return timestamp + 15 + 10 * (unique % 5)


def twins(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an expanded record becomes."""
    return [value, {**value, "u": TWIN + value["u"]}]


class Remind(ProcessFunction):
    """Keeps records in a list and counts them in a map, until timers take them out."""

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        state, unique = ctx.state, value["u"]
        waiting, kinds, last = state.list("waiting"), state.map("kinds"), state.get("last")
        waiting.add(unique)
        kinds[value["g"]] = kinds.get(value["g"], 0) + 1
        if last is not None and unique % 3 == 0:
            ctx.delete_event_time_timer(last)
        due = due_of(unique, ctx.timestamp)
        ctx.register_event_time_timer(due)
        state.set("last", due)
        state.set("n", state.get("n", 0) + 1)
        yield {**value, "n": state.get("n"), "waiting": list(waiting), "kinds": dict(kinds.items())}

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        waiting, kinds = list(ctx.state.list("waiting")), ctx.state.map("kinds")
        if not waiting:
            kinds.clear()
            return
        first, *rest = waiting
        ctx.state.list("waiting").update(rest)
        kinds["fired"] = kinds.get("fired", 0) + 1
        if first % 4 == 0:
            ctx.register_event_time_timer(timestamp + 7)
        elif first % 4 == 1:
            # The same timer again: it was deleted before this call, and fires once more.
            ctx.register_event_time_timer(timestamp)
        yield {"u": FIRED + first, "at": timestamp, "waiting": rest}


@dataclass
class _Key:
    """State of a key."""

    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Arrival numbers and ids."""
    kinds: dict[str, int] = field(default_factory=dict)
    last: int | None = None
    n: int = 0


@dataclass
class RemindModel:
    """The same over dictionaries.

    Attributes:
        expanding: whether each record becomes two.
    """

    expanding: bool = False
    keys: dict[bytes, _Key] = field(default_factory=dict)
    timers: list[tuple[int, bytes]] = field(default_factory=list)
    arrivals: int = 0
    clock: int = -1

    def run(self, records: Iterable[Entry]) -> list[tuple[bytes, dict[str, Any]]]:
        """Process records; return keys and values of the outputs."""
        outputs: list[tuple[bytes, dict[str, Any]]] = []
        for record in records:
            value, key = orjson.loads(record.value or b"null"), record.key or b""
            for item in twins(value) if self.expanding else [value]:
                outputs.append((key, self._process(item, key, record.timestamp)))
            self.clock = max(self.clock, record.timestamp)
            # A timer is due when later records are.
            while self.timers and self.timers[0][0] < self.clock:
                outputs += self._fire()
        return outputs

    def _process(self, value: dict[str, Any], key: bytes, timestamp: int) -> dict[str, Any]:
        own = self.keys.setdefault(key, _Key())
        self._add(own, value["u"])
        own.kinds[value["g"]] = own.kinds.get(value["g"], 0) + 1
        if own.last is not None and value["u"] % 3 == 0:
            self._forget((own.last, key_prefix(BYTES_KEY, key)))
        own.last = due_of(value["u"], timestamp)
        self._register(own.last, key)
        own.n += 1
        waiting = [unique for _, unique in own.waiting]
        return {**value, "n": own.n, "waiting": waiting, "kinds": dict(own.kinds)}

    def end(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Fire all timers; return keys and values of the outputs."""
        outputs: list[tuple[bytes, dict[str, Any]]] = []
        while self.timers:
            outputs += self._fire()
        return outputs

    def dump(self) -> dict[bytes, bytes]:
        """Return what is in the store, by its keys."""
        found = {timer_key(prefix, 0, time): b"" for time, prefix in self.timers}
        if self.keys:
            found.update({name_key("waiting"): b"list", name_key("kinds"): b"map"})
        for key, own in self.keys.items():
            prefix = key_prefix(BYTES_KEY, key)
            waiting = collection_prefix(LIST_SPACE, prefix, "waiting")
            found.update({waiting + number.to_bytes(8, "big"): b"%d" % unique for number, unique in own.waiting})
            kinds = collection_prefix(MAP_SPACE, prefix, "kinds")
            found.update({kinds + orjson.dumps(kind): b"%d" % count for kind, count in own.kinds.items()})
            for name, number in (("last", own.last), ("n", own.n)):
                found[record_prefix(BYTES_KEY, key) + orjson.dumps(name)] = orjson.dumps(number)
        return found

    def _fire(self) -> list[tuple[bytes, dict[str, Any]]]:
        time, prefix = self.timers.pop(0)
        key = next(key for key in self.keys if key_prefix(BYTES_KEY, key) == prefix)
        own = self.keys[key]
        if not own.waiting:
            own.kinds.clear()
            return []
        (_, first), *rest = own.waiting
        own.waiting = []
        for _, unique in rest:
            self._add(own, unique)
        own.kinds["fired"] = own.kinds.get("fired", 0) + 1
        if first % 4 == 0:
            self._register(time + 7, key)
        elif first % 4 == 1:
            self._register(time, key)
        return [(key, {"u": FIRED + first, "at": time, "waiting": [unique for _, unique in rest]})]

    def _add(self, own: _Key, unique: int) -> None:
        own.waiting.append((self.arrivals, unique))
        self.arrivals += 1

    def _register(self, time: int, key: bytes) -> None:
        self._forget((time, key_prefix(BYTES_KEY, key)))
        bisect.insort(self.timers, (time, key_prefix(BYTES_KEY, key)))

    def _forget(self, timer: tuple[int, bytes]) -> None:
        if timer in self.timers:
            self.timers.remove(timer)


def trouble_with_timers(entries: dict[bytes, bytes]) -> str:
    """Return what is wrong with the index of timers in a store; an empty string if nothing is."""
    wanted = {timer_index_of(key) for key in entries if key[0] == TIMER_SPACE}
    found = {key for key in entries if key[0] == timer_index_key(0, 0, b"")[0]}
    if wanted != found:
        return f"the index of timers lacks {sorted(wanted - found)} and has {sorted(found - wanted)}"
    times = [split_timer_index_key(key)[0] for key in found]
    bound = entries.get(timer_bound_key(0))
    if bound is not None and times and int.from_bytes(bound, "big") > min(times):
        return f"the bound of the timers is {int.from_bytes(bound, 'big')}, and the first one is at {min(times)}"
    return ""
