"""The end of time in portions, with commits, restarts and crashes in between, gives what it gives at once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings

from streamrt.config import ProcessingMode
from streamrt.dataframe import StreamingDataFrame
from streamrt.event_time.end_of_time import EndOfTime
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.topology import TaskId
from tests.support import LONG
from tests.unit.test_process_portions import Waits
from tests.unit.test_windows_portions import GUARANTEES, PARTITIONS, TASKS, Cut, World, history, plans, thoroughly
from tests.unit.window_model import Record


def chained(sdf: StreamingDataFrame) -> list[StreamingDataFrame]:
    """Return windows of all clocks behind each other, and a process function behind windows."""
    first = sdf.session_window(5, grace_ms=3, name="first").count().final()
    second = first.tumbling_window(10, name="second").collect().final(closing_strategy="partition")
    third = second.sliding_window(9, name="third").count().final(closing_strategy="watermark", idle_timeout_ms=10_000)
    fourth = third.sliding_window(30, name="fourth").collect().final()
    timers = first.process(Waits())
    named = {"first": first, "second": second, "third": third, "fourth": fourth, "timers": timers}
    return [frame.apply(lambda value, name=name: [name, value]) for name, frame in named.items()]


class EndingWorld(World):
    """A world whose inputs end."""

    ending = False

    def end(self) -> None:
        """End time, with interruptions, until all operators have finished."""
        self.time = EndOfTime()
        self.time.describe(self.spec.topology, {"in": PARTITIONS})
        self.time.assign(TASKS)
        self.time.ready(TASKS)
        self.time.reach(0)
        self.ending = True
        for _ in range(20_000):
            if self.time.over:
                break
            report = self._run(partial(self._process_tick, sorted(self.time.due)))
            if report is not None:
                self.time.report(report.ended)
        else:
            raise AssertionError("time does not end")
        self.ending = False

    def _process_tick(self, tasks: Sequence[TaskId], context: BatchContext) -> Report:
        return super()._process_tick(tasks, replace(context, final=self.time.due) if self.ending else context)


def ended(world: EndingWorld, records: Sequence[Record]) -> EndingWorld:
    """Let a world process records, and end."""
    close = world.close
    world.close = lambda: None  # type: ignore[method-assign]
    history(world, records, [0])
    world.end()
    close()
    return world


def judge(guarantee: str, mode: ProcessingMode, records: list[Record], several: Sequence[Cut]) -> EndingWorld:
    at_once = ended(EndingWorld(chained, guarantee, mode), records)
    portioned = ended(EndingWorld(chained, guarantee, mode, several), records)
    assert portioned.outputs(by_key=True) == at_once.outputs(by_key=True)
    return portioned


@pytest.mark.slow
@GUARANTEES
@settings(thoroughly, max_examples=500 if LONG else 3)
@given(plans)
def test_the_end_in_portions(processing_mode: ProcessingMode, guarantee: str, plan: tuple[Any, Any, Any]) -> None:
    records, _, several = plan
    judge(guarantee, processing_mode, records, several)


@GUARANTEES
def test_there_are_portions_and_crashes_in_between(processing_mode: ProcessingMode, guarantee: str) -> None:
    records = [Record(b"%d" % (number % 5), 2 * number, number, number % 2) for number in range(20)]
    crashes = [Cut(3, event, crash) for crash in range(12) for event in ("", "restart", "wipe")]
    world = judge(guarantee, processing_mode, records, crashes)
    assert world.portions > 10
    assert (world.crashes > 5) is (guarantee == "exactly-once")
    assert len(world.outputs()) == 5 * PARTITIONS
