"""A function with broadcast state and timers for the simulator, and a naive model of it.

The inputs on their own do not say what is right: a task does not wait for broadcast records, so it depends on commits which
records of the other side one reaches in time. But each output tells which broadcast records the task had. So the order in
which a task has worked can be read off its committed outputs; `tests.sim.broadcast_checks` does, and replays it with the
model.
"""

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from streamrt import BroadcastContext, BroadcastProcessFunction, BroadcastTimerContext, TaskContext
from streamrt.state.access.broadcast import BROADCAST_PREFIX
from streamrt.state.layout import BYTES_KEY, MAP_SPACE, collection_prefix, key_prefix, record_prefix, timer_key
from tests.sim.broker import Entry
from tests.sim.processing import FIRED

COPIES = "repartition__sim--other--broadcast"
"""The topic of which each partition has all broadcast records."""
SEEN, NEWEST = (collection_prefix(MAP_SPACE, BROADCAST_PREFIX, name) for name in ("seen", "newest"))
_DUE_MS = 15


def _listed(entries: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    return [list(entry) for entry in sorted(entries)]


class Judge(BroadcastProcessFunction):
    """Counts each broadcast record, keeps the newest one of each group, and tells all that with each output."""

    def open(self, context: TaskContext) -> None:
        self._task = context

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        seen, newest = ctx.broadcast_state("seen"), ctx.broadcast_state("newest")
        seen[value["u"]] = seen.get(value["u"], 0) + 1
        if value["u"] % 3 == 0:
            newest.discard(value["g"])
        else:
            newest[value["g"]] = value["u"]
        yield {"u": value["u"], **self._told(ctx)}

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        ctx.state.set("n", ctx.state.get("n", 0) + 1)
        ctx.state.set("last", value["u"])
        ctx.register_event_time_timer(ctx.timestamp + _DUE_MS)
        yield {"u": value["u"], "n": ctx.state.get("n"), **self._told(ctx)}

    def on_timer(self, timestamp: int, ctx: BroadcastTimerContext) -> Iterator[Any]:
        yield {"u": FIRED + ctx.state.get("last"), "at": timestamp, **self._told(ctx)}

    def _told(self, ctx: BroadcastContext) -> dict[str, Any]:
        seen, newest = (_listed(ctx.broadcast_state(name).items()) for name in ("seen", "newest"))
        return {"p": self._task.partition, "seen": seen, "newest": newest}


@dataclass
class JudgeModel:
    """The same over dictionaries, without the number of the partition."""

    counts: dict[bytes, int] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    timers: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    clock: int = -1

    def run(self, records: Iterable[Entry]) -> list[tuple[bytes, dict[str, Any]]]:
        """Process records of both sides; return keys and values of the outputs."""
        outputs: list[tuple[bytes, dict[str, Any]]] = []
        for record in records:
            value, key = orjson.loads(record.value or b"null"), record.key or b""
            if is_broadcast(record):
                self._broadcast(value)
                outputs.append((key, {"u": value["u"], **self._told()}))
            else:
                self._count(value["u"], key, record.timestamp + _DUE_MS)
                outputs.append((key, {"u": value["u"], "n": self.counts[key], **self._told()}))
            self.clock = max(self.clock, record.timestamp)
            # A timer is due when later records are, of either side.
            while self.timers and self.timers[0][0] < self.clock:
                time, _, key = self.timers.pop(0)
                outputs.append((key, {"u": FIRED + self.last[key], "at": time, **self._told()}))
        return outputs

    def dump(self) -> dict[bytes, bytes]:
        """Return what is in the store, by its keys."""
        found = {timer_key(prefix, 0, time): b"" for time, prefix, _ in self.timers}
        for name, numbers in (("n", self.counts), ("last", self.last)):
            at = orjson.dumps(name)
            found.update({record_prefix(BYTES_KEY, key) + at: b"%d" % number for key, number in numbers.items()})
        for prefix, entries in ((SEEN, self.seen), (NEWEST, self.newest)):
            found.update({prefix + orjson.dumps(name): b"%d" % number for name, number in entries.items()})
        return found

    def _broadcast(self, value: dict[str, Any]) -> None:
        self.seen[value["u"]] = self.seen.get(value["u"], 0) + 1
        if value["u"] % 3 == 0:
            self.newest.pop(value["g"], None)
        else:
            self.newest[value["g"]] = value["u"]

    def _count(self, unique: int, key: bytes, due: int) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1
        self.last[key] = unique
        timer = due, key_prefix(BYTES_KEY, key), key
        if timer not in self.timers:
            bisect.insort(self.timers, timer)

    def _told(self) -> dict[str, Any]:
        return {"seen": _listed(self.seen.items()), "newest": _listed(self.newest.items())}


def is_broadcast(record: Entry) -> bool:
    """Return whether an input is a broadcast record."""
    return bool(orjson.loads(record.value or b"{}").get("broadcast"))
