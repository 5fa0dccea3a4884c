"""The ticks of a task: what its operators see of time, and in which order they are called."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from streamrt.records import Tick
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import StoreTime
from streamrt.runtime.tasks.stream_task import StreamTask
from streamrt.topology import Node

__all__ = ["calls_of", "still_tick_of", "tick_of"]

_Callback = Callable[[Tick], None]


def tick_of(context: BatchContext, task: StreamTask) -> Tick:
    """Return the tick of a task in a context.

    Args:
        context: current time and watermarks.
        task: the task. One that reads records again sees watermarks only as far as its stores have been before.
    """
    watermarks = context.watermarks.get(task.id, {})
    if task.replaying:
        # What the other partitions have needs no such limit: an operator never goes beyond its own watermark for it.
        watermarks = _as_far_as(task.stores.times(), watermarks)
    return Tick(context.now, watermarks, others=context.others.get(task.id, {}))


def still_tick_of(context: BatchContext, task: StreamTask) -> Tick:
    """Return the tick of a task that has work left over.

    It has no watermarks, so that event time stays where this work became due. What the other partitions have is in it: the
    results move the time of operators below as they would have done without a portion in between.

    Args:
        context: current time.
        task: the task.
    """
    return Tick(context.now, others=context.others.get(task.id, {}), still=True)


def calls_of(
    ticks: Sequence[tuple[Node, _Callback]], tick: Tick, final: frozenset[int], must_stop: Callable[[], bool]
) -> Iterator[tuple[Node, _Callback, Tick]]:
    """Yield each operator's tick function with its node and the tick to call it with.

    At the end of a bounded run, operators finish from the inputs on, each after all operators above it: their last results
    are among its records.

    Args:
        ticks: the tick functions, each with its node.
        tick: the tick.
        final: the ids of the nodes whose inputs have ended.
        must_stop: returns whether an operator has left work unfinished.

    Example:
        >>> list(calls_of([], Tick(0), frozenset(), lambda: False))
        []
    """
    for node, callback in ticks:
        yield node, callback, tick
    last = replace(tick, final=True)
    # A node has a higher id than its parents.
    for node, callback in sorted((each for each in ticks if each[0].id in final), key=lambda each: each[0].id):
        if must_stop():
            return
        yield node, callback, last


def _as_far_as(times: Mapping[str, StoreTime], watermarks: Mapping[str, int]) -> dict[str, int]:
    """Return the watermarks, each capped at the event time that its store has seen."""
    seen = {name: time.reached for name, time in times.items() if time.reached is not None}
    return {name: min(watermark, seen[name]) for name, watermark in watermarks.items() if name in seen}
