"""The event loop of asynchronous functions, in both modes: what blocks it or does not end, and ends of tasks and slices."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from typing import Any

import pytest

import streamrt.runtime.tasks.chain.work_in_flight as calls_module
from streamrt import StreamingDataFrame, message_context
from streamrt.common.event_loop import EventLoopThread
from streamrt.kafka import TopicConfig
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.task_executor import TaskExecutor
from tests.support import wait_until
from tests.unit.apps import Stage, completed
from tests.unit.asynchronous import LONG, SHORT_MS, echo, play, slow
from tests.unit.tasks import Process, Writer, numbers

pytestmark = pytest.mark.usefixtures("processing_mode", "undivided_slices")


def test_a_call_may_clean_up_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a capacity of one, the next call begins after the end of the one before."""
    monkeypatch.setattr(calls_module, "_CLEAN_UP_S", 3_600.0)
    events: list[Any] = []

    async def call(value: int) -> int:
        events.append(("begin", value))
        try:
            await slow(value)
        finally:
            await asyncio.sleep(0.002)
            events.append(("end", value))
        return value

    def build(sdf: StreamingDataFrame) -> Any:
        return sdf.apply_async(call, timeout=SHORT_MS, capacity=1, on_timeout=lambda value: -value)

    assert play(build, 1, 2) == [-1, -2]
    assert events == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_a_call_that_will_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "_CLEAN_UP_S", 0.01)
    free: list[bool] = []

    async def call(value: int) -> int:
        while not free:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.002)
        return value

    try:
        assert play(lambda sdf: sdf.apply_async(call, timeout=5, on_timeout=lambda value: -value), 1, 2) == [-1, -2]
    finally:
        free.append(True)


def test_a_blocked_loop_is_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, seconds in (("_CHECK_S", 0.02), ("_BLOCKED_S", 0.05), ("_OVERDUE_S", 0.2)):
        monkeypatch.setattr(calls_module, name, seconds)
    free: list[bool] = []

    async def block(value: int) -> int:
        while value == 1 and not free:
            time.sleep(0.005)
        return value

    def late(value: int) -> int:
        # The next loop has all the time that it needs.
        monkeypatch.setattr(calls_module, "_OVERDUE_S", 3_600.0)
        return -value

    try:
        with caplog.at_level(logging.WARNING, "streamrt"):
            found = play(lambda sdf: sdf.apply_async(block, timeout=5, capacity=2, on_timeout=late), 1, 2, 3)
    finally:
        free.append(True)
    assert found == [-1, -2, 3]
    lines = [record.getMessage() for record in caplog.records]
    assert any("another one takes its place" in line and "in block" in line for line in lines)


class Lines(logging.Handler):
    """Keeps lines in a list."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_what_blocks_the_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_CHECK_S", 0.02), ("_BLOCKED_S", 0.05)):
        monkeypatch.setattr(calls_module, name, seconds)
    lines: list[str] = []

    async def block(value: int) -> int:
        while not any("blocks the event loop" in line for line in lines):
            time.sleep(0.005)
        return value

    logging.getLogger("streamrt").addHandler(Lines(lines))
    assert play(lambda sdf: sdf.apply_async(block, timeout=LONG), 1) == [1]
    assert any("in block" in line for line in lines)


def test_calls_end_with_their_task_and_no_thread_stays(caplog: pytest.LogCaptureFixture) -> None:
    """A failure drops the calls in flight: they are cancelled, and asyncio has nothing to complain of."""
    stage = Stage()
    ended: list[int] = []

    async def call(value: int) -> int:
        try:
            if value < 4:
                await slow(value)
            await asyncio.sleep(0.005)
            raise ValueError("bad")
        except asyncio.CancelledError:
            ended.append(value)
            raise

    stage.sdf.apply_async(call, timeout=LONG, ordered=False)
    tasks = TaskExecutor(completed(stage.app), Writer())
    with caplog.at_level(logging.DEBUG, "asyncio"):
        report = Process(tasks, stage.app.config.processing_mode).run([numbers(5)], BatchContext())
        assert report.failure is not None
        tasks.close()
        wait_until(lambda: sorted(ended) == [0, 1, 2, 3], what="the end of the calls")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_loop_that_is_closed_cancels_what_runs() -> None:
    loop = EventLoopThread()
    ended = threading.Event()

    async def run() -> None:
        try:
            await slow(1)
        finally:
            ended.set()

    loop.call_soon_threadsafe(lambda: loop._loop.create_task(run()))
    assert loop.is_responsive(10)
    loop.close()
    assert ended.is_set()
    assert not loop._thread.is_alive()


def test_limits_of_outputs_hold() -> None:
    """`run(count=...)` stops at a number of outputs, although more calls could be in flight."""
    stage = Stage()
    stage.sdf.apply_async(echo, timeout=LONG)
    tasks = TaskExecutor(completed(stage.app), Writer())
    report = Process(tasks, stage.app.config.processing_mode).run([numbers(50)], BatchContext(output_limit=10))
    tasks.close()
    assert report.outputs == 10
    assert report.ranges[TopicPartition("in", 0)].end == 10


def test_partitions_take_turns_with_calls_in_flight() -> None:
    stage, writer = Stage({"config": TopicConfig(2, 1)}), Writer()
    stage.sdf.apply_async(echo, timeout=LONG, ordered=False).apply(
        lambda value: [message_context().partition, value]
    ).to_topic(stage.out)
    tasks = TaskExecutor(completed(stage.app), writer)
    chunks = [numbers(20), numbers(20, partition=1), numbers(20, 20), numbers(20, 20, partition=1)]
    report = Process(tasks, stage.app.config.processing_mode).run(chunks, BatchContext())
    tasks.close()
    assert {each: done.end for each, done in report.ranges.items()} == {
        TopicPartition("in", number): 40 for number in range(2)
    }
    assert sorted(json.loads(value or b"") for value in writer.values) == [[p, n] for p in range(2) for n in range(40)]


def test_a_slow_call_outlives_a_time_slice() -> None:
    """The commit waits for it; nothing is lost or repeated."""
    stage, calls = Stage(), []

    async def call(value: int) -> int:
        calls.append(value)
        await asyncio.sleep(0 if value else 0.05)
        return value

    stage.sdf.apply_async(call, timeout=LONG, ordered=False).to_topic(stage.out)
    writer = Writer()
    tasks = TaskExecutor(completed(stage.app), writer)
    report = Process(tasks, stage.app.config.processing_mode).run([numbers(10)], BatchContext(time_limit_s=0.02))
    tasks.close()
    end = report.ranges[TopicPartition("in", 0)].end
    assert end
    assert sorted(value or b"" for value in writer.values) == sorted(str(number).encode() for number in range(end))
    assert sorted(calls) == [*range(end)]
