"""Records with odd timestamps: no operator gives a wrong result without a word."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Application, Context, ProcessFunction, State, StreamingDataFrame, TimerContext
from streamrt.errors import ProcessingError, ProducerError
from streamrt.windows import CountTrigger
from tests.unit.apps import Stage

pytestmark = pytest.mark.usefixtures("processing_mode")

TEXT: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}
YEAR_10000 = 253_402_300_800_000
SECOND = timedelta(seconds=1)

Build = Callable[[StreamingDataFrame, Application], Any]


class Remind(ProcessFunction):
    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        ctx.register_event_time_timer(ctx.timestamp + 500)
        yield value

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield timestamp


def counted(value: Any, state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number, ttl=SECOND)
    return number


def other(app: Application) -> StreamingDataFrame:
    return app.dataframe(app.topic("other", **TEXT))


BY_TIME: dict[str, Build] = {
    "tumbling": lambda sdf, _: sdf.tumbling_window(SECOND).count().current(),
    "hopping": lambda sdf, _: sdf.hopping_window(SECOND, SECOND / 2).count().current(),
    "sliding": lambda sdf, _: sdf.sliding_window(SECOND).count().current(),
    "session": lambda sdf, _: sdf.session_window(SECOND).count().current(),
    "trigger": lambda sdf, _: sdf.tumbling_window(SECOND).count().trigger(CountTrigger(1)),
    "interval join": lambda sdf, app: sdf.join_interval(other(app), grace_ms=SECOND),
    "as-of join": lambda sdf, app: other(app).join_asof(sdf, grace_ms=SECOND),
}
"""Operators that store records by their time."""
BESIDE: dict[str, Build] = {
    "nothing": lambda sdf, _: sdf,
    "ttl": lambda sdf, _: sdf.apply(counted, stateful=True),
    "reduce": lambda sdf, _: sdf.reduce(lambda one, two: one),
    "group_by": lambda sdf, _: sdf.group_by(str, name="all"),
    "concat": lambda sdf, app: sdf.concat(other(app)),
}
"""Operators whose results have the time of the record."""


def stage_of(build: Build) -> tuple[Stage, list[tuple[Any, int]]]:
    """Return an application, and what comes out of an operator: values and timestamps."""
    stage, found = Stage(TEXT, TEXT), list[tuple[Any, int]]()
    built = build(stage.sdf, stage.app)
    built.update(lambda value, key, timestamp, headers: found.append((value, timestamp)), metadata=True)
    built.to_topic(stage.out)
    return stage, found


@pytest.mark.parametrize("timestamp", [-1, -5_000])
@pytest.mark.parametrize("name", BY_TIME)
def test_what_is_kept_by_time_refuses_times_before_1970(name: str, timestamp: int) -> None:
    stage, found = stage_of(BY_TIME[name])
    with stage.drive() as driver, pytest.raises(ProcessingError, match=f"timestamp {timestamp} .*start at 0"):
        driver.pipe("in", 1, key="k", timestamp=timestamp)
    assert not found


@pytest.mark.parametrize("name", BESIDE)
def test_what_only_passes_by_keeps_its_time_and_is_not_written_with_another(name: str) -> None:
    timestamp = -1
    stage, found = stage_of(BESIDE[name])
    with stage.drive() as driver, pytest.raises(ProducerError, match=f"timestamp is {timestamp} ms"):
        driver.pipe("in", 1, key="k", timestamp=timestamp)
    # A group_by is the first that writes it, even on one partition.
    assert [each for _, each in found] == ([] if name == "group_by" else [timestamp])
    assert driver.read("out") == []


def test_a_timer_before_1970_is_refused() -> None:
    stage, _ = stage_of(lambda sdf, _: sdf.process(Remind()))
    with stage.drive() as driver, pytest.raises(ProcessingError, match="the time of a timer"):
        driver.pipe("in", 1, key="k", timestamp=-5_000)


# There are no windows before 1970, where the first of these would begin; and group_by writes the epoch as 1 ms later.
FROM_1970 = [name for name in (*BY_TIME, *BESIDE) if name not in ("hopping", "sliding", "group_by")]


@pytest.mark.parametrize(
    ("start", "name"),
    [
        *((0, name) for name in FROM_1970),
        *((start, name) for start in (YEAR_10000 - 1_000, 9_000_000_000_000_000) for name in (*BY_TIME, *BESIDE)),
    ],
)
def test_results_of_far_times_are_those_of_others(start: int, name: str) -> None:
    """The same records at another time give the same results, moved by the difference."""
    usual, results = 1_000_000, []
    for begin in (usual, start):
        stage, found = stage_of({**BY_TIME, **BESIDE}[name])
        with stage.drive() as driver:
            for number, at in enumerate((0, 100, 700, 1_500, 300)):
                if "other" in stage.app.topology.sources:
                    driver.pipe("other", {"other": number}, key="k", timestamp=begin + at)
                driver.pipe("in", {"in": number}, key="k", timestamp=begin + at)
        results.append([(_moved(value, begin), timestamp - begin) for value, timestamp in found])
    assert results[0] == results[1]
    assert results[0]


def _moved(value: Any, begin: int) -> Any:
    if not isinstance(value, dict) or "start" not in value:
        return value
    return {**value, "start": value["start"] - begin, "end": value["end"] - begin}
