"""What a task hears of event time: the ticks of its operators."""

from collections.abc import Mapping

from streamrt.records import Tick
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import StoreTime
from streamrt.runtime.tasks.stream_task import StreamTask

__all__ = ["tick_of"]


def tick_of(task: StreamTask, context: BatchContext) -> Tick:
    """Return the tick for a task that has heard of earlier work, but not of a context.

    Args:
        task: the task.
        context: current time and watermarks.
    """
    watermarks = context.watermarks.get(task.id, {})
    if task.replaying:
        # What the other partitions have needs no such limit: an operator never goes beyond its own watermark for it.
        watermarks = _as_far_as(task.stores.times(), watermarks)
    return Tick(context.now, watermarks, context.others.get(task.id, {}))


def _as_far_as(times: Mapping[str, StoreTime], watermarks: Mapping[str, int]) -> dict[str, int]:
    """Return the watermarks, each capped at the event time that its store has seen."""
    seen = {name: time.reached for name, time in times.items() if time.reached is not None}
    return {name: min(watermark, seen[name]) for name, watermark in watermarks.items() if name in seen}
