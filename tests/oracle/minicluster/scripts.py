"""The scripted cases, by name: see `tests.oracle` and `tests.oracle.actions` for their language.

Two inputs come in no order in Flink, nor does a test driver mix them. So results of such cases are those of timers that
are due when both inputs have passed.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCRIPTS"]

Case = dict[str, Any]
Steps = list[list[Any]]


def _process(timers: dict[int, Any], steps: Steps, *, kind: str = "process", delay: int = 0) -> Case:
    named = {str(time): actions for time, actions in timers.items()}
    return {"kind": kind, "clock": "watermark", "delay": delay, "timers": named, "steps": [*steps, ["end"]]}


def _lasting(ttl_ms: int, *, reads: bool, steps: Steps) -> Case:
    """Return a case whose state lives so long after each write, or also after reads; `["w", ms]` waits by the wall clock."""
    return {**_process({}, steps), "ttl": [ttl_ms, reads]}


def _asked(steps: Steps, *, ordered: bool, capacity: int, attempts: int = 1, timeout: int = 60_000) -> Case:
    settings = {"ordered": ordered, "capacity": capacity, "attempts": attempts, "timeout": timeout}
    return {"kind": "async", "clock": "partition", "delay": 0, **settings, "steps": [*steps, ["end"]]}


def _windows(assigner: list[Any], trigger: list[Any], steps: Steps, *, lateness: int = 0, fold: bool = False) -> Case:
    return {
        "kind": "triggered",
        "clock": "watermark",
        "delay": 0,
        "assigner": assigner,
        "trigger": trigger,
        "lateness": lateness,
        "function": "aggregate" if fold else "process",
        "steps": [*steps, ["end"]],
    }


_ALL_STATES: Steps = [
    ["e", "a", 1000, [["set", 1], ["add-all", [2, 3]], ["put", "k", 4], ["reduce", 5], ["sum", 6]]],
    ["w", 400],
    ["e", "b", 1001, [["get"], ["list"], ["map"], ["reduced"], ["mean"]]],
    ["e", "a", 1002, [["get"], ["list"], ["map"], ["look", "k"], ["keys"], ["reduced"], ["mean"]]],
    ["e", "a", 1003, [["set", 7], ["add", 8], ["put", "l", 9], ["reduce", 10], ["sum", 11]]],
    ["w", 400],
    ["e", "a", 1004, [["get"], ["list"], ["map"], ["keys"], ["reduced"], ["mean"]]],
    ["e", "a", 1005, [["unset"], ["drop"], ["remove", "k"], ["unreduce"], ["unsum"]]],
    ["w", 400],
    ["e", "a", 1006, [["get"], ["list"], ["map"], ["reduced"], ["mean"]]],
]
"""Writes, and reads at least 400 ms later."""
_QUESTIONS: Steps = [
    ["e", "a", 1000 + number, [pause, 0, results]]
    for number, (pause, results) in enumerate(
        [(25, [1]), (0, [2, 3]), (12, []), (3, [4]), (0, [5]), (40, [6, 7, 8]), (1, [9]), (0, []), (9, [10])]
    )
]
"""Elements whose answers come after so many milliseconds, and are none, one or several."""
_READINGS: Steps = [
    ["e", "a", 1003, 1],
    ["e", "b", 1004, 2],
    ["e", "a", 1011, 3],
    ["e", "a", 1001, 4],
    ["e", "b", 1019, 5],
    ["e", "a", 1026, 6],
    ["e", "b", 1008, 8],
    ["e", "a", 1012, 9],
    ["c", 1050],
    ["e", "a", 1030, 10],
    ["e", "b", 1071, 11],
    ["e", "a", 1064, 12],
]
"""Elements out of order, some of them late for windows of 10 ms."""
_SLOW: Steps = [
    *_READINGS[:8],
    *(["c", time] for time in (1033, 1041, 1049, 1050)),
    *_READINGS[9:],
    *(["c", time] for time in (1073, 1080)),
]
"""The same with more watermarks: those that pass two timers at once are one of the differences of PyFlink."""

SCRIPTS: dict[str, Case] = {
    # A timer for each element, which the next one deletes: what is left is a time-out.
    "time-outs": _process(
        {1100: [["get"], ["unset"]], 1150: [["get"], ["unset"]], 1220: [["get"], ["emit", "quiet"]]},
        [
            ["e", "a", 1000, [["set", 1], ["event", 1100]]],
            ["e", "b", 1010, [["set", 1], ["event", 1100]]],
            ["e", "a", 1050, [["no-event", 1100], ["set", 2], ["event", 1150]]],
            ["e", "b", 1101, [["get"]]],
            ["e", "a", 1120, [["get"], ["no-event", 1150], ["set", 3], ["event", 1220]]],
            ["e", "b", 1160, [["get"], ["event", 1220]]],
        ],
    ),
    # A count, and what a cleared value is.
    "a value": _process(
        {},
        [
            ["e", "a", 1000, [["get"], ["set", 1], ["get"]]],
            ["e", "b", 1001, [["get"], ["set", 7]]],
            ["e", "a", 1002, [["set", 2], ["get"], ["unset"], ["get"]]],
            ["e", "a", 1003, [["get"], ["unset"], ["set", 0], ["get"]]],
            ["e", "b", 1004, [["get"]]],
        ],
    ),
    # Elements wait in a list until the watermark has passed them: those that are at most 20 ms late come in order.
    "sorted by event time": _process(
        {1010: [["emit", 1010]], 1015: [["emit", 1015], ["list"]], 1030: [["emit", 1030], ["list"], ["drop"]]},
        [
            ["e", "a", 1030, [["add", 1030], ["event", 1030]]],
            ["e", "a", 1015, [["add", 1015], ["event", 1015]]],
            ["e", "a", 1010, [["add", 1010], ["event", 1010]]],
            ["e", "b", 1010, [["event", 1010]]],
            ["c", 1035],
            ["e", "a", 1040, [["list"]]],
            ["c", 1051],
            ["e", "a", 1060, [["list"], ["add-all", [1, 2]], ["replace", [3]], ["add", 4], ["list"]]],
        ],
        delay=20,
    ),
    # A cart: entries come, change and go; a timer empties it.
    "a map": _process(
        {1200: [["map"], ["wipe"], ["look", "pears"]]},
        [
            ["e", "a", 1000, [["look", "pears"], ["put", "pears", 2], ["look", "pears"], ["event", 1200]]],
            ["e", "a", 1010, [["put", "figs", 1], ["put", "nuts", 5], ["keys"]]],
            ["e", "b", 1020, [["keys"], ["put", "figs", 9]]],
            ["e", "a", 1030, [["remove", "nuts"], ["remove", "dates"], ["put", "pears", 3], ["map"]]],
            ["e", "b", 1201, [["map"]]],
            ["e", "a", 1210, [["map"]]],
        ],
    ),
    "sums and means": _process(
        {1500: [["reduced"], ["mean"], ["unreduce"], ["unsum"], ["sum", 10]]},
        [
            ["e", "a", 1000, [["reduced"], ["reduce", 5], ["sum", 5], ["mean"]]],
            ["e", "a", 1001, [["reduce", -2], ["reduced"], ["sum", 2], ["mean"], ["event", 1500]]],
            ["e", "b", 1002, [["reduce", 1], ["sum", 1]]],
            ["c", 1501],
            ["e", "a", 1502, [["reduced"], ["mean"]]],
            ["e", "b", 1503, [["reduced"], ["mean"]]],
        ],
    ),
    "side outputs": _process(
        {1040: [["side", "late"], ["emit", "on time"], ["side", "again"]]},
        [
            ["e", "a", 1000, [["emit", 1], ["side", 2], ["emit", 3], ["side", 4]]],
            ["e", "b", 1005, [["side", 5], ["event", 1040]]],
            ["e", "a", 1050, [["side", 6]]],
        ],
    ),
    # Timers that register timers, one time twice, and one that its own timer would have deleted.
    "chains of timers": _process(
        {
            1010: [["event", 1020], ["event", 1020], ["add", 1010]],
            1020: [["event", 1030], ["add", 1020], ["list"]],
            1030: [["no-event", 1060], ["add", 1030], ["event", 1090]],
            1060: [["emit", "never for a"]],
            1090: [["list"]],
        },
        [
            ["e", "a", 1000, [["event", 1010], ["event", 1010], ["event", 1060]]],
            ["e", "b", 1001, [["event", 1060]]],
            ["c", 1015],
            ["c", 1031],
            ["e", "b", 1061, [["no-event", 1060], ["list"]]],
        ],
    ),
    # Elements that are later than the watermark are elements still; timers in the past are not registered.
    "late elements": _process(
        {1002: [["emit", "past"]], 1055: [["get"]]},
        [
            ["e", "a", 1050, [["set", 1], ["event", 1055]]],
            ["e", "a", 1000, [["get"], ["set", 2], ["event", 1002], ["event", 1055]]],
            ["e", "b", 1049, [["get"], ["event", 1055]]],
            ["c", 1056],
            ["e", "a", 1001, [["get"], ["event", 1002]]],
        ],
    ),
    # Both inputs share state and timers of a key.
    "connected": _process(
        {1200: [["reduced"], ["map"], ["keys"]], 1300: [["reduced"], ["side", "end"], ["wipe"]], 1400: [["map"]]},
        [
            ["e", "a", 1000, [["reduce", 3], ["put", "left", 1], ["event", 1200]]],
            ["o", "a", 1001, [["reduce", 4], ["put", "right", 2], ["event", 1200]]],
            ["o", "b", 1002, [["put", "right", 5], ["event", 1300]]],
            ["e", "b", 1003, [["reduce", 9], ["event", 1300], ["event", 1400]]],
            ["o", "c", 1004, [["event", 1200]]],
        ],
        kind="connected",
    ),
    # Rules for all keys; timers see them.
    "broadcast": _process(
        {1200: [["get"]], 1300: [["list"]]},
        [
            ["o", "", 1000, ["small", 10]],
            ["o", "", 1001, ["big", 100]],
            ["o", "", 1002, ["small"]],
            ["o", "", 1003, ["big", 200]],
            ["e", "a", 1004, [["set", 1], ["event", 1200]]],
            ["e", "b", 1005, [["add", 2], ["event", 1300]]],
        ],
        kind="broadcast",
    ),
    "state that expires at once": _lasting(1, reads=False, steps=_ALL_STATES),
    "state that expires at once, with reads that prolong": _lasting(1, reads=True, steps=_ALL_STATES),
    "state that lives for a day": _lasting(86_400_000, reads=False, steps=_ALL_STATES),
    "state that lives for a day, with reads that prolong": _lasting(86_400_000, reads=True, steps=_ALL_STATES),
    "async, ordered": _asked(_QUESTIONS, ordered=True, capacity=3),
    "async, one at a time": _asked(_QUESTIONS, ordered=True, capacity=1),
    "async, unordered": _asked(_QUESTIONS, ordered=False, capacity=4),
    "async with attempts that fail": _asked(
        [["e", "a", 1000 + number, [0, number % 3, [number]]] for number in range(8)],
        ordered=True,
        capacity=3,
        attempts=3,
    ),
    # An hour is longer than any time-out.
    "async that takes too long": _asked(
        [["e", "a", 1000 + number, [3_600_000, 0, [number]]] for number in range(3)],
        ordered=True,
        capacity=5,
        timeout=50,
    ),
    "tumbling windows, and what is late": _windows(["tumbling", 10, 0], ["event"], _READINGS),
    "tumbling windows with an offset": _windows(["tumbling", 10, 4], ["event"], _READINGS, fold=True),
    "tumbling windows with lateness": _windows(["tumbling", 10, 0], ["event"], _READINGS, lateness=15),
    "sliding windows": _windows(["sliding", 12, 5, 0], ["event"], _READINGS),
    "sliding windows with lateness": _windows(["sliding", 12, 5, 0], ["event"], _READINGS, lateness=15, fold=True),
    "sessions": _windows(["session", 9], ["event"], _READINGS),
    "sessions with lateness": _windows(["session", 9], ["event"], _READINGS, lateness=30),
    "windows that fire each two elements": _windows(["tumbling", 30, 0], ["purging", ["count", 2]], _READINGS),
    "windows that fire as time passes": _windows(["tumbling", 30, 0], ["continuous", 8], _SLOW),
    "windows with a trigger of a user": _windows(["sliding", 20, 10, 0], ["own", 3], _READINGS, lateness=5),
    "global windows": _windows(["global"], ["count", 3], _READINGS),
}
