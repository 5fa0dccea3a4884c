"""The side of StreamRT: runs cases in the test driver."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from streamrt import BroadcastProcessFunction, Context, CoProcessFunction, Retry, StreamingDataFrame, TimerContext
from streamrt.testing import TopologyTestDriver
from tests.oracle.actions import Answers
from tests.oracle.ours import BUILD, TICKER, Clock, Player, gather
from tests.unit.apps import application

__all__ = ["run"]

Case = dict[str, Any]


def run(case: Case, **settings: Any) -> list[Any]:
    """Return the rows that StreamRT puts out."""
    app = application(**settings)
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    other = app.topic("other", key_deserializer="str", key_serializer="str")
    found: list[Any] = []
    sdf = app.dataframe(topic)
    if case["kind"] == "async":
        _asynchronous(sdf, case, found)
    elif case["kind"] in _FUNCTIONS:
        _two_inputs(sdf, app.dataframe(other), case, found)
    else:
        BUILD[case["kind"]](sdf, case, case["clock"], found)
    highest = -1
    with TopologyTestDriver(app) as driver:
        if case["kind"] == "async":
            # All at once: `pipe` waits for the call of each.
            elements = [step for step in case["steps"] if step[0] == "e"]
            (key,) = {key for _, key, _, _ in elements}
            driver.pipe_all(topic, [value for *_, value in elements], key=key)
            return found
        for kind, *step in case["steps"]:
            if kind == "end":
                driver.end()
            elif kind == "w":
                driver.advance(step[0])
            elif kind == "c":
                if step[0] > highest:
                    driver.pipe(topic, 0, key=TICKER, timestamp=step[0])
                    highest = step[0]
            else:
                key, timestamp, value = step
                driver.pipe(topic if kind == "e" else other, value, key=key, timestamp=timestamp)
                highest = max(highest, timestamp)
    return found


def _asynchronous(sdf: StreamingDataFrame, case: Case, found: list[Any]) -> None:
    answers = Answers()
    frame = sdf.apply_async(
        answers.answer,
        timeout=timedelta(milliseconds=case["timeout"]),
        capacity=case["capacity"],
        ordered=case["ordered"],
        expand=True,
        retry=Retry(case["attempts"], backoff=0.001) if case["attempts"] > 1 else None,
        on_timeout=answers.too_late,
    )
    gather(frame, found, lambda value, key, timestamp: ["main", key, value, None])


class _Connected(CoProcessFunction):
    """Plays the actions of both inputs."""

    outputs = ("side",)

    def __init__(self, case: Case) -> None:
        self._player = Player(case)

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield from self._player.on_timer(timestamp, ctx)


class _Broadcast(BroadcastProcessFunction):
    """Plays the actions of elements and timers; each timer tells the rules that were broadcast."""

    outputs = ("side",)

    def __init__(self, case: Case) -> None:
        self._player = Player(case)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        rules = ctx.broadcast_state("rules")
        name, *given = value
        if given:
            rules[name] = given[0]
        else:
            rules.discard(name)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ["rules", sorted([name, value] for name, value in ctx.broadcast_state("rules").items())]
        yield from self._player.on_timer(timestamp, ctx)


_FUNCTIONS: dict[str, Any] = {"connected": _Connected, "broadcast": _Broadcast}


def _two_inputs(sdf: StreamingDataFrame, other: StreamingDataFrame, case: Case, found: list[Any]) -> None:
    clock: Clock = case["clock"]
    frame = sdf.connect(other.broadcast() if case["kind"] == "broadcast" else other).process(
        _FUNCTIONS[case["kind"]](case),
        clock=clock,
        grace_ms=timedelta(milliseconds=case["delay"]),
        when_all_idle="hold" if clock == "watermark" else None,
    )
    gather(frame, found, lambda value, key, timestamp: ["main", key, value, timestamp])
    gather(frame.side_output("side"), found, lambda value, key, timestamp: ["side", key, value, timestamp])
