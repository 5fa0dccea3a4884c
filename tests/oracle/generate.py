"""Random cases: process functions with timers and state, and windows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["KINDS", "PROCESSING_TIMES", "generate"]

Case = dict[str, Any]
_LONG_AGO = 1_000
"""Event time begins here, so that no window begins before 1970."""
PROCESSING_TIMES = 500
"""Processing time is below."""


def generate(kind: str, seed: int) -> Case:
    """Return the case of a kind with a number."""
    draw = random.Random(f"{kind} {seed}")
    return {"kind": kind, "clock": draw.choice(["partition", "watermark"]), **KINDS[kind](draw)}


# -- Process functions -------------------------------------------------------------------------------------------------


class _Actions:
    """Draws actions around a time."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.event_times = [_LONG_AGO + draw.randrange(120) for _ in range(draw.randrange(2, 9))]
        self.processing_times = [draw.randrange(120) for _ in range(draw.randrange(1, 5))]

    def some(self, most: int, after: int = -1) -> list[list[Any]]:
        """Return actions; their timers are later than `after` in the list of times, so that no two wake each other."""
        found = [self._timer(after) if self._draw.random() < 0.45 else self._state() for _ in range(most)]
        return [action for action in found if action]

    def _timer(self, after: int) -> list[Any]:
        draw = self._draw
        if draw.random() < 0.75 or not self.processing_times:
            name, times = "event", self.event_times
        else:
            name, times = "processing", self.processing_times
        if draw.random() < 0.25:
            return [f"no-{name}", draw.choice(times)]
        later = times[after + 1 :]
        return [name, draw.choice(later)] if later else []

    def _state(self) -> list[Any]:
        draw = self._draw
        number, key = draw.randrange(-3, 10), draw.choice("xyz")
        actions: tuple[list[Any], ...] = (
            ["times"],
            ["emit", number],
            ["side", number],
            *(["set", number], ["get"], ["get"], ["unset"]),
            *(["add", number], ["add", key], ["add-all", [number, key]], ["list"], ["list"], ["drop"]),
            *(["replace", [key, number, key]], ["replace", []]),
            *(["put", key, number], ["put", key, number], ["put-all", {key: number, "x": 0}], ["remove", key]),
            *(["look", key], ["map"], ["keys"], ["wipe"]),
            *(["reduce", number], ["reduce", number], ["reduced"], ["unreduce"]),
            *(["sum", number], ["sum", number], ["mean"], ["unsum"]),
        )
        return draw.choice(actions)


def _process(draw: random.Random) -> Case:
    actions = _Actions(draw)
    timers = {}
    for place, time in enumerate(actions.event_times):
        if draw.random() < 0.6 and time not in actions.event_times[:place]:
            timers[str(time)] = actions.some(draw.randrange(1, 4), actions.event_times.index(time))
    for place, time in enumerate(actions.processing_times):
        # They register no timers of event time: whether those in the past fire at once differs.
        if draw.random() < 0.6 and time not in actions.processing_times[:place]:
            timers[str(time)] = [
                action for action in actions.some(2, actions.processing_times.index(time)) if action[0] != "event"
            ]
    if len(set(actions.event_times)) < len(actions.event_times):
        # A time that is in the list twice could wake itself.
        timers = {}
    if len(set(actions.processing_times)) < len(actions.processing_times):
        timers = {time: found for time, found in timers.items() if int(time) >= PROCESSING_TIMES}
    steps: list[list[Any]] = []
    now, clock, delay = 0, _LONG_AGO, draw.choice([0, 0, 1, 10])
    for _ in range(draw.randrange(4, 12)):
        chance = draw.random()
        if chance < 0.12:
            now = max(now, draw.choice([now + draw.randrange(40), *actions.processing_times]))
            steps.append(["p", now])
        elif chance < 0.3:
            # To any time, to that of a timer, or to 1 ms later, when it fires.
            clock = max(clock, draw.choice([clock + 30, *actions.event_times]) + delay + draw.randrange(2))
            steps.append(["c", clock])
        else:
            timestamp = max(_LONG_AGO, clock + draw.randrange(-30, 40))
            clock = max(clock, timestamp)
            steps.append(["e", draw.choice("aab"), timestamp, actions.some(draw.randrange(1, 5))])
    return {"delay": delay, "timers": timers, "steps": steps}


# -- Windows -----------------------------------------------------------------------------------------------------------


def _elements(draw: random.Random, oldest: Callable[[int], int], most: int = 16) -> list[list[Any]]:
    """Return steps with out-of-order elements; `oldest` limits how old they may be, by the clock."""
    clock = _LONG_AGO
    steps: list[list[Any]] = []
    for _ in range(draw.randrange(3, most)):
        if draw.random() < 0.12:
            clock += draw.randrange(1, 25)
            steps.append(["c", clock])
            continue
        move = draw.choice([draw.randrange(4), draw.randrange(4), draw.randrange(-25, 10), draw.randrange(30)])
        timestamp = max(_LONG_AGO, oldest(clock), clock + move)
        clock = max(clock, timestamp)
        steps.append(["e", draw.choice("aab"), timestamp, draw.randrange(1, 30)])
    return [*steps, ["c", clock + 100]]


def _fixed(draw: random.Random) -> list[Any]:
    size = draw.choice([1, 2, 5, 10, 12])
    if draw.random() < 0.5 or size == 1:
        return ["tumbling", size, 0]
    return ["sliding", size, draw.randrange(1, size), 0]


def _final(draw: random.Random) -> Case:
    delay = draw.choice([0, 0, 1, 5, 20])
    if draw.random() < 0.3:
        gap = draw.choice([1, 2, 5, 10])
        return {
            "assigner": ["session", gap],
            "delay": delay,
            "steps": _elements(draw, lambda clock: clock - gap - delay),
        }
    return {"assigner": _fixed(draw), "delay": delay, "steps": _elements(draw, lambda clock: 0)}


def _counted(draw: random.Random) -> Case:
    count = draw.randrange(2, 6)
    step = draw.choice([count, draw.randrange(1, count + 1)])
    return {"assigner": ["count", count, step], "delay": 0, "steps": _elements(draw, lambda clock: 0, 24)}


def _trigger(draw: random.Random, *, processing: bool = False) -> list[Any]:
    chance = draw.random()
    if chance < 0.2:
        return ["purging", _trigger(draw, processing=processing)]
    if chance < 0.4:
        return ["count", draw.randrange(1, 5)]
    if chance < 0.6:
        return ["continuous-processing" if processing else "continuous", draw.choice([1, 3, 5, 7])]
    if chance < 0.7:
        return ["own", draw.randrange(2, 6)]
    if chance < 0.75:
        return ["never"]
    return ["processing" if processing else "event"]


def _triggered(draw: random.Random) -> Case:
    chance = draw.random()
    if chance < 0.5:
        assigner = _fixed(draw)
        size = assigner[1] if assigner[0] == "tumbling" else assigner[2]
        assigner[-1] = draw.choice([0, draw.randrange(size)])
    elif chance < 0.7:
        assigner = ["session", draw.choice([1, 2, 5, 10])]
    elif chance < 0.85:
        assigner = ["dynamic", draw.choice([3, 9])]
    else:
        assigner = ["global"]
    lateness = 0 if assigner == ["global"] else draw.choice([0, 0, 1, 5, 20])
    return {
        "assigner": assigner,
        "trigger": draw.choice([["count", 3], ["purging", ["count", 2]], ["own", 3], ["never"]])
        if assigner == ["global"]
        else _trigger(draw),
        "lateness": lateness,
        "delay": 0,
        "function": draw.choice(["process", "aggregate"]),
        "steps": _elements(draw, lambda clock: 0),
    }


def _timed(draw: random.Random) -> Case:
    """Windows of processing time."""
    size, now = draw.choice([2, 5, 10]), 0
    steps: list[list[Any]] = []
    for _ in range(draw.randrange(3, 14)):
        if draw.random() < 0.45:
            now += draw.randrange(1, 12)
            steps.append(["p", now])
        else:
            steps.append(["e", draw.choice("aab"), _LONG_AGO + draw.randrange(50), draw.randrange(1, 30)])
    return {
        "assigner": draw.choice([["tumbling-processing", size, 0], ["session-processing", size]]),
        "trigger": draw.choice([["processing"], ["own", 3], _trigger(draw, processing=True)]),
        "lateness": 0,
        "delay": 0,
        "function": draw.choice(["process", "aggregate"]),
        "steps": [*steps, ["p", now + 50]],
    }


KINDS: dict[str, Callable[[random.Random], Case]] = {
    "process": _process,
    "final": _final,
    "counted": _counted,
    "triggered": _triggered,
    "timed": _timed,
}
"""Process functions; windows that are emitted once; count windows; windows with triggers; windows of processing time."""
