"""Windows with triggers against a naive model of Flink's window operator, and with restarts and crashes in between."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.state.base import Change
from streamrt.state.layout import (
    CONTENT,
    DATA_SPACE,
    JSON_KEY,
    LIST_SPACE,
    PANE_KEY,
    TIMER_SPACE,
    key_prefix,
    split_key,
    split_pane,
)
from streamrt.state.transactions.panes import TRIGGER, PaneTransaction
from streamrt.testing import TopologyTestDriver
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.apps import application
from tests.unit.test_windows_portions import Cut, judge, plans, thoroughly
from tests.unit.trigger_model import Model, Spec, Step, on_frame
from tests.unit.window_model import Record

pytestmark = pytest.mark.usefixtures("processing_mode")

TOGETHER = 8
"""So many windows are on one dataframe: building an application costs more than running it."""

few = settings(thoroughly, max_examples=600 if LONG else 3)
closings = st.sampled_from(["partition", "watermark"])


@st.composite
def triggers(draw: Any, kind: str, time: str) -> tuple[Any, ...]:
    choices: list[Any] = [("count", draw(st.integers(1, 4))), ("never",)]
    choices += [("continuous_processing", draw(st.sampled_from([3, 10])))]
    if kind != "global":
        choices += [("final",)]
        if time == "event":
            choices += [("event",), ("event",), ("continuous", draw(st.sampled_from([3, 10])))]
        choices += [("processing",)]
    found = draw(st.sampled_from(choices))
    return ("purging", found) if found[0] != "final" and draw(st.booleans()) else found


@st.composite
def specs(draw: Any) -> Spec:
    """Return windows, also those that depend on the wall clock."""
    kind = draw(st.sampled_from(["fixed", "fixed", "session", "session", "dynamic", "global"]))
    time = "event" if kind == "global" else draw(st.sampled_from(["event", "event", "processing"]))
    size = draw(st.integers(2, 12))
    step = draw(st.one_of(st.just(size), st.integers(1, size)))
    trigger = draw(triggers(kind, time))
    result = draw(st.sampled_from(["collect", "reduce", "process"]))
    if result == "reduce" and trigger[0] != "purging" and draw(st.booleans()):
        trigger = ("current",)
    evictor = None
    if result != "reduce" and trigger[0] != "final" and draw(st.booleans()):
        evictor = (draw(st.sampled_from(["count", "time"])), draw(st.integers(1, 5)), draw(st.booleans()))
    grace = draw(st.sampled_from([0, 0, 3, 10])) if time == "event" and kind != "global" else 0
    return Spec(kind, size, step, draw(st.integers(1 - step, step - 1)), grace, trigger, result, evictor, time)


@st.composite
def histories(draw: Any) -> list[Step]:
    """Return records of several keys, out of order, with time that passes in between."""
    moment, found = draw(st.integers(0, 20)), []
    for number in range(draw(st.integers(10, 35))):
        if draw(st.integers(0, 4)) == 0:
            found.append(Step(None, 0, 0, draw(st.integers(1, 12))))
        else:
            moment = max(0, moment + draw(st.sampled_from([0, 1, 2, 3, 5, 15, -3, -8])))
            found.append(Step(draw(st.sampled_from(["a", "a", "b", "long key"])), moment, number))
    return [*found, Step("a", 10_000, -1), Step(None, 0, 0, 9_000)]


def run(several: Sequence[Spec], steps: Sequence[Step], closing: str) -> list[list[Any]]:
    """Return what each window puts out for each step, and the late records at the end."""
    app = application()
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    sdf = app.dataframe(topic)
    out: list[list[Any]] = [[] for _ in several]
    late: list[list[Any]] = [[] for _ in several]
    for number, (spec, outputs, behind) in enumerate(zip(several, out, late, strict=True)):
        frame = on_frame(sdf, spec, f"w{number}", closing)
        frame.update(_into(outputs), metadata=True)
        if spec.time == "event":
            frame.side_output("late").update(_into(behind), metadata=True)
    found: list[list[Any]] = [[] for _ in several]
    with TopologyTestDriver(app, start=0) as driver:
        for step in steps:
            if step.key is None:
                driver.advance(step.passed)
            else:
                driver.pipe(topic, step.value, key=step.key, timestamp=step.timestamp)
            for outputs, each in zip(out, found, strict=True):
                each.append([*outputs])
                outputs.clear()
        for node in app.topology.nodes:
            for store in node.operator.stores():
                assert left_behind(driver, store.name) == [], store.name
    for each, behind in zip(found, late, strict=True):
        each.append([value for value, *_ in behind])
    return found


def left_behind(driver: TopologyTestDriver, store: str) -> list[bytes]:
    """Return the stored keys of windows that are over, and of elements of keys that have no window any more."""
    found = []
    with driver.state("in", "a", store=store)._store.reading(0) as opened:
        for key, _ in opened.scan(b"\x01", b"\xf0"):
            tag, pane, _ = split_key(key)
            if tag == PANE_KEY and "global" not in store:
                owner, _, _, end = split_pane(key_prefix(tag, pane))
                if 0 < end < 9_000 or (end == 0 and owner != key_prefix(JSON_KEY, b'"a"')):
                    found.append(key)
    return found


def _into(outputs: list[Any]) -> Callable[[Any, Any, int, Any], None]:
    return lambda value, key, time, headers: outputs.append((value, key, time))


@pytest.mark.slow
@few
@given(closings, st.lists(specs(), min_size=TOGETHER, max_size=TOGETHER), histories())
def test_windows_are_those_of_the_model(closing: str, several: list[Spec], steps: list[Step]) -> None:
    for spec, found in zip(several, run(several, steps, closing), strict=True):
        model = Model(spec)
        for step, outputs in zip(steps, found, strict=False):
            assert outputs == model.step(step), (spec, step)
        assert found[-1] == model.late, spec


def together(several: Sequence[Spec], closing: str) -> Callable[[StreamingDataFrame], list[StreamingDataFrame]]:
    """Return what puts windows on a dataframe, with their late records."""

    def build(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
        numbered = sdf.apply(lambda value: int(value or 0))
        frames = []
        for number, spec in enumerate(several):
            frame = on_frame(numbered, spec, f"w{number}", closing)
            frames.append(frame.apply(lambda value, name=f"w{number}": [name, value]))
            if spec.time == "event":
                late = frame.side_output("late")
                frames.append(late.apply(lambda value, name=f"late{number}": [name, value]))
        return frames

    return build


@pytest.mark.slow
@settings(thoroughly, max_examples=400 if LONG else 2)
@given(
    st.sampled_from(["at-least-once", "exactly-once"]),
    closings,
    st.lists(specs(), min_size=TOGETHER, max_size=TOGETHER),
    plans,
)
def test_windows_in_portions_with_restarts_are_the_same(
    processing_mode: ProcessingMode, guarantee: str, closing: str, several: list[Spec], plan: tuple[Any, Any, Any]
) -> None:
    judge(together(several, closing), guarantee, processing_mode, plan, by_key=False)


SESSIONS = Spec("session", 5, 5, 0, 10, ("event",), "process", ("count", 3, True), "event")
BY_THE_WALL = Spec("fixed", 8, 4, 1, 0, ("continuous_processing", 3), "process", None, "processing")
WINDOWS = Spec("fixed", 20, 10, 3, 10, ("purging", ("continuous", 3)), "collect", None, "event")


def _without(lost: Callable[[int, int], bool]) -> Callable[[PaneTransaction], list[Change]]:
    """Return a `prepare` that leaves changes out of the changelog, by their space and the role of the pane."""

    def prepare(self: PaneTransaction) -> list[Change]:
        kept = []
        for change in _REAL_PREPARE(self):
            key = change[0]
            tag, pane, _ = split_key(key) if key[0] in (DATA_SPACE, LIST_SPACE, TIMER_SPACE) else (0, b"", b"")
            if tag != PANE_KEY or not lost(key[0], split_pane(key_prefix(tag, pane))[1]):
                kept.append(change)
        return kept

    return prepare


_REAL_PREPARE = PaneTransaction.prepare
MUTANTS: dict[str, Callable[[int, int], bool]] = {
    "contents of panes are lost": lambda space, role: space == DATA_SPACE and role == CONTENT,
    "states of triggers are lost": lambda space, role: space == DATA_SPACE and role == TRIGGER,
    "elements are lost": lambda space, role: space == LIST_SPACE,
    "timers of panes are lost": lambda space, role: space == TIMER_SPACE,
}


@pytest.mark.slow
def test_mutants_are_found(processing_mode: ProcessingMode) -> None:
    records = [Record(b"%d" % (number % 3), 2 * number, number, number % 2) for number in range(40)]
    plan = (records, [30, 60, 5_000], [Cut(2, "wipe")] * 60)
    build = together([SESSIONS, WINDOWS], "partition")
    judge(build, "exactly-once", processing_mode, plan, by_key=False)
    for what, lost in MUTANTS.items():
        try:
            with replaced(PaneTransaction, "prepare", _without(lost)):
                judge(build, "exactly-once", processing_mode, plan, by_key=False)
        except AssertionError:
            continue
        pytest.fail(f"nothing shows that {what}")


@pytest.mark.parametrize("closing", ["partition", "watermark"])
def test_there_are_portions_and_crashes_in_between(processing_mode: ProcessingMode, closing: str) -> None:
    records = [Record(b"%d" % (number % 7), 2 * number, number, number % 2) for number in range(60)]
    records += [Record(b"last", 1_000, 0, partition) for partition in range(2)]
    crashes = [Cut(0, event, crash) for crash in range(12) for event in ("", "restart", "wipe")]
    world = judge(
        together([SESSIONS, WINDOWS, BY_THE_WALL], closing),
        "exactly-once",
        processing_mode,
        (records, [50, 5_000], crashes),
        by_key=False,
    )
    assert world.portions > 10
    assert world.crashes > 5
    # Windows by the wall clock have results of several times.
    by_the_wall = [found for (_, name), results in world.outputs().items() if name == "w2" for found in results]
    assert len({timestamp for _, timestamp, _ in by_the_wall}) > 1
