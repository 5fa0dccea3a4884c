"""The side of PyFlink: reads cases from standard input, one as JSON on each line, and writes what PyFlink puts out.

It runs in an environment with PyFlink: `python -m tests.oracle.flink`.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyflink.common import Time, Types
from pyflink.datastream import OutputTag, RuntimeContext
from pyflink.datastream.functions import (
    AggregateFunction,
    InternalIterableProcessWindowFunction,
    InternalSingleValueProcessWindowFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowOperationDescriptor,
)
from pyflink.fn_execution.datastream.window import window_operator
from pyflink.fn_execution.datastream.window.merging_window_set import MergingWindowSet
from pyflink.fn_execution.flink_fn_execution_pb2 import UserDefinedDataStreamFunction as Kind

from tests.oracle.actions import in_the_past, play
from tests.oracle.operators import BEFORE_ALL, Operator

ANY = Types.PICKLED_BYTE_ARRAY()
Case = dict[str, Any]
Results = list[list[Any]]


def run(case: Case) -> Results:
    """Return what PyFlink puts out at each step of a case."""
    if case["kind"] == "process":
        operator = Operator(Kind.KEYED_PROCESS, Player(case))
    else:
        operator = Operator(Kind.WINDOW, _window(case))
    clock, delay, found = BEFORE_ALL, case["delay"] + session_delay(case), []
    for kind, *step in case["steps"]:
        results: list[Any] = []
        if kind == "e":
            key, timestamp, value = step
            for tag, result in operator.element(key, value, timestamp):
                # A late element comes out as it was.
                results.append(["late", key, result] if tag == "late" else result)
            clock = max(clock, timestamp)
        elif kind == "c":
            clock = max(clock, step[0])
        else:
            operator.now = step[0]
        if clock > BEFORE_ALL:
            results += [result for _, (_, result) in operator.advance(clock - delay - 1)]
        # The JVM wakes timers of processing time 1 ms after their time. Process functions of StreamRT do not wait for it.
        results += [result for _, (_, result) in operator.pass_time(operator.now - (case["kind"] != "process"))]
        found.append(results)
    operator.close()
    return found


def session_delay(case: Case) -> int:
    """Sessions of `final()` wait a gap longer, for what could still extend them."""
    return case["assigner"][1] + 1 if case["kind"] == "final" and case["assigner"][0] == "session" else 0


# -- Process functions -------------------------------------------------------------------------------------------------


class _Plus(ReduceFunction):
    def reduce(self, one: Any, other: Any) -> Any:
        return one + other


class _Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        return [accumulator[0] + value, accumulator[1] + 1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, one: Any, other: Any) -> Any:
        return [one[0] + other[0], one[1] + other[1]]


class Player(KeyedProcessFunction):
    """Plays the actions of elements and timers."""

    def __init__(self, case: Case) -> None:
        self._timers = case["timers"]
        self._past = in_the_past(case)
        self._ttl = case.get("ttl")

    def open(self, context: RuntimeContext) -> None:
        self.states = {
            "value": context.get_state(self._lasting(ValueStateDescriptor("v", ANY))),
            "list": context.get_list_state(self._lasting(ListStateDescriptor("l", ANY))),
            "map": context.get_map_state(self._lasting(MapStateDescriptor("m", ANY, ANY))),
            "reducing": context.get_reducing_state(self._lasting(ReducingStateDescriptor("r", _Plus(), ANY))),
            "aggregating": context.get_aggregating_state(self._lasting(AggregatingStateDescriptor("a", _Mean(), ANY))),
        }

    def _lasting(self, descriptor: Any) -> Any:
        """Return a descriptor with the time to live of the case."""
        if self._ttl is not None:
            ms, update = self._ttl
            kind = StateTtlConfig.UpdateType.OnReadAndWrite if update else StateTtlConfig.UpdateType.OnCreateAndWrite
            descriptor.enable_time_to_live(
                StateTtlConfig.new_builder(Time.milliseconds(ms)).set_update_type(kind).build()
            )
        return descriptor

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for result in play(value, Call(self.states, ctx), self._past):
            yield self._put(result, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        yield ["main", ctx.get_current_key(), ["timer", ctx.time_domain().name, service.current_watermark()], timestamp]
        for result in play(self._timers.get(str(timestamp), ()), Call(self.states, ctx), self._past):
            yield self._put(result, ctx)

    def _put(self, result: Any, ctx: Any) -> Any:
        if isinstance(result, tuple):
            tag, value = result
            return tag, ["side", ctx.get_current_key(), value, ctx.timestamp()]
        return ["main", ctx.get_current_key(), result, ctx.timestamp()]


class Call:
    """A call of PyFlink, as `play` needs it."""

    def __init__(self, states: dict[str, Any], ctx: Any) -> None:
        self._ctx = ctx
        self._service = ctx.timer_service()
        self._states = states

    def value(self) -> Any:
        return self._states["value"]

    def list(self) -> Any:
        return self._states["list"]

    def map(self) -> Any:
        return self._states["map"]

    def reducing(self) -> Any:
        return self._states["reducing"]

    def aggregating(self) -> Any:
        return self._states["aggregating"]

    def watermark(self) -> int:
        found: int = self._service.current_watermark()
        return found

    def now(self) -> int:
        found: int = self._service.current_processing_time()
        return found

    def timestamp(self) -> int:
        found: int = self._ctx.timestamp()
        return found

    def key(self) -> Any:
        return self._ctx.get_current_key()

    def register(self, domain: str, time: int) -> None:
        getattr(self._service, f"register_{domain}_time_timer")(time)

    def delete(self, domain: str, time: int) -> None:
        getattr(self._service, f"delete_{domain}_time_timer")(time)

    def side(self, value: Any) -> Any:
        return OutputTag("side", ANY), value


# -- Windows -----------------------------------------------------------------------------------------------------------


class _Sessions(MergingWindowSet):
    """Keeps a session that a new element neither begins nor extends.

    PyFlink takes the window of an element for a new one if it equals a session that has been merged, and loses the elements
    of this session.
    """

    def add_window(self, new_window: Any, merge_function: Any) -> Any:
        if self.get_state_window(new_window) is not None:
            return new_window
        return super().add_window(new_window, merge_function)


window_operator.MergingWindowSet = _Sessions


class _Gaps(SessionWindowTimeGapExtractor):
    def __init__(self, longest: int) -> None:
        self._longest = longest

    def extract(self, element: Any) -> int:
        return 1 + int(element) % self._longest


class _Sliding(SlidingEventTimeWindows):
    """Assigns the earliest window first, as StreamRT does, where PyFlink begins with the latest one."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return super().assign_windows(element, timestamp, context)[::-1]


def make_assigner(name: str, *options: int) -> Any:
    if name == "count":
        count, step = options
        return CountTumblingWindowAssigner(count) if count == step else CountSlidingWindowAssigner(count, step)
    if name == "dynamic":
        return DynamicEventTimeSessionWindows(_Gaps(*options))
    return {
        "tumbling": TumblingEventTimeWindows,
        "sliding": _Sliding,
        "session": EventTimeSessionWindows,
        "global": GlobalWindows,
        "tumbling-processing": TumblingProcessingTimeWindows,
        "session-processing": ProcessingTimeSessionWindows,
    }[name](*options)


def make_trigger(name: str, *options: Any) -> Any:
    if name == "purging":
        return PurgingTrigger(make_trigger(*options[0]))
    made: Any = {
        "event": EventTimeTrigger,
        "processing": ProcessingTimeTrigger,
        "count": CountTrigger,
        "continuous": ContinuousEventTimeTrigger,
        "continuous-processing": ContinuousProcessingTimeTrigger,
        "never": NeverTrigger,
        "own": _Own,
    }[name](*options)
    if name.startswith("continuous"):
        # PyFlink passes a class where a function is expected, and fails when two sessions with such a trigger merge.
        made.state_desc = ReducingStateDescriptor("fire-time", min, ANY)
    return made


def _window(case: Case) -> WindowOperationDescriptor:
    assigner = make_assigner(*case["assigner"])
    merging = case["assigner"][0] in ("session", "dynamic", "session-processing")
    state: Any
    if case.get("function") == "aggregate":
        state = AggregatingStateDescriptor("window-contents", Tuples(), ANY)
        function: Any = InternalSingleValueProcessWindowFunction(WindowResults(merging))
    else:
        state = ListStateDescriptor("window-contents", ANY)
        function = InternalIterableProcessWindowFunction(WindowResults(merging))
    trigger = make_trigger(*case["trigger"]) if "trigger" in case else assigner.get_default_trigger(None)
    return WindowOperationDescriptor(
        assigner,
        trigger,
        case.get("lateness", 0),
        OutputTag("late", ANY),
        state,
        assigner.get_window_serializer(),
        function,
    )


class Tuples(AggregateFunction):
    """Gathers the elements in one accumulator."""

    def create_accumulator(self) -> Any:
        return ()

    def add(self, value: Any, accumulator: Any) -> Any:
        return (*accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        return (*one, *other)


class WindowResults(ProcessWindowFunction):
    """Puts out the bounds and elements of a window, the watermark, and how often it has been called."""

    def __init__(self, merging: bool) -> None:
        self._merging = merging

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        values = [value for element in elements for value in (element if isinstance(element, tuple) else [element])]
        total = context.global_state().get_state(ValueStateDescriptor("total", ANY))
        total.update((total.value() or 0) + 1)
        calls = 0
        if not self._merging:
            of_window = context.window_state().get_state(ValueStateDescriptor("calls", ANY))
            calls = (of_window.value() or 0) + 1
            of_window.update(calls)
        bounds = [getattr(window, "start", 0), getattr(window, "end", 0)]
        yield ["main", key, *bounds, values, context.current_watermark(), calls, total.value()]

    def clear(self, context: Any) -> None:
        if not self._merging:
            context.window_state().get_state(ValueStateDescriptor("calls", ANY)).clear()


class _Own(Trigger):
    """A user's trigger with state: see `tests.oracle.ours` for the same one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sum = ReducingStateDescriptor("sum", _Plus(), ANY)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        seen = ctx.get_partitioned_state(self._sum)
        seen.add(1)
        if element % 7 == 0:
            return TriggerResult.PURGE
        if seen.get() >= self._limit:
            seen.clear()
            return TriggerResult.FIRE_AND_PURGE if element % 2 else TriggerResult.FIRE
        if hasattr(window, "end"):
            ctx.register_event_time_timer(window.end + 2)
            if element % 5 == 0:
                ctx.delete_event_time_timer(window.end + 2)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE if time == window.end + 2 else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self._sum)
        ctx.register_event_time_timer(window.end + 2)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self._sum).clear()
        if hasattr(window, "end"):
            ctx.delete_event_time_timer(window.end + 2)


def main() -> None:
    """Answer each line."""
    for line in sys.stdin:
        case = json.loads(line)
        try:
            found: Any = run(case)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found, separators=(",", ":")), flush=False)


if __name__ == "__main__":
    main()
