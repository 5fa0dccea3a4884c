"""The side of PyFlink: runs all cases in one job on the mini-cluster, with worker processes, and writes their results.

It runs in an environment with PyFlink: `python -m tests.oracle.minicluster.flink < cases > results`. Both are JSON.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import copyreg
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Row, Time, Types
from pyflink.datastream import AsyncDataStream, DataStream, OutputTag, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.async_retry_predicates import has_exception_predicate
from pyflink.datastream.async_retry_strategies import NO_RETRY_STRATEGY, FixedDelayRetryStrategy
from pyflink.datastream.functions import AsyncFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from pyflink.datastream.state import MapStateDescriptor
from pyflink.table import Schema, StreamTableEnvironment

from tests.oracle.actions import Answers
from tests.oracle.flink import ANY, Player, Tuples, WindowResults, make_assigner, make_trigger, session_delay

Case = dict[str, Any]

_ROW = Types.ROW_NAMED(["side", "key", "at", "value"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.STRING()])
_RULES = MapStateDescriptor("rules", ANY, ANY)
# A type that is in use holds an object of the JVM, which cannot be sent to workers.
copyreg.pickle(type(ANY), lambda _: (Types.PICKLED_BYTE_ARRAY, ()))


class Number(int):
    """A value of an element that knows its key, so that window functions see a number."""

    key: str


class Actions(list[Any]):
    """A list of actions that knows its key."""

    key: str


def run(cases: list[Case]) -> list[list[Any]]:
    """Return what each case puts out, in no order of outputs and keys."""
    env = StreamExecutionEnvironment.get_execution_environment(_settings())
    env.set_parallelism(1)
    tables = StreamTableEnvironment.create(env)
    found: list[list[Any]] = [[] for _ in cases]
    everything = None
    for number, case in enumerate(cases):
        for output in _BUILD[case["kind"]](_elements(env, tables, case), case):
            numbered = output.map(_Numbered(number), output_type=ANY)
            everything = numbered if everything is None else everything.union(numbered)
    assert everything is not None
    with everything.execute_and_collect("cases") as results:
        for number, row in results:
            found[number].append(row)
    return found


def _settings() -> Configuration:
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    # A watermark waits until the workers have answered all elements before it: with bundles of one, for the last element.
    settings.set_string("python.fn-execution.bundle.size", "1")
    # Workers would return what they have cached after it has expired.
    for cache in ("state.cache-size", "map-state.read-cache-size", "map-state.write-cache-size"):
        settings.set_string(f"python.{cache}", "0")
    # Watermarks follow each element, and not a clock: see `_elements`.
    settings.set_string("pipeline.auto-watermark-interval", "0")
    settings.set_string("taskmanager.memory.managed.size", "256m")
    return settings


def _elements(env: Any, tables: Any, case: Case) -> DataStream:
    """Return a stream of the steps of a case, with a watermark after each.

    Watermarks of streams come from a clock. Those of tables follow each row, if the interval is 0.
    """
    rows = []
    for side, *step in case["steps"]:
        if side == "c":
            rows.append(Row(side, "", step[0], "null"))
        elif side == "w":
            rows.append(Row(side, "", 0, json.dumps(step[0])))
        elif side in ("e", "o"):
            key, at, value = step
            rows.append(Row(side, key, at, json.dumps(value)))
    behind = case["delay"] + session_delay(case) + 1
    schema = (
        Schema.new_builder()
        .column("side", "STRING")
        .column("key", "STRING")
        .column("at", "BIGINT")
        .column("value", "STRING")
        .column_by_expression("time", "TO_TIMESTAMP_LTZ(`at`, 3)")
        .watermark("time", f"`time` - INTERVAL '{behind // 1000}.{behind % 1000:03}' SECOND")
        .build()
    )
    return tables.to_data_stream(tables.from_data_stream(env.from_collection(rows, type_info=_ROW), schema))


def _side(elements: DataStream, side: str) -> DataStream:
    """Return the elements of one input, as values that know their keys."""

    def convert(row: Any) -> Any:
        value = json.loads(row[3])
        made = Number(value) if isinstance(value, int) else Actions(value)
        made.key = row[1]
        return made

    def is_of_side(row: Any) -> bool:
        # What is before is processed meanwhile, and nothing behind it.
        if row[0] == "w":
            time.sleep(json.loads(row[3]) / 1000)
        return bool(row[0] == side)

    return elements.filter(is_of_side).map(convert, output_type=ANY)


def _keyed(elements: DataStream, side: str = "e") -> Any:
    return _side(elements, side).key_by(lambda value: value.key, key_type=Types.STRING())


class _Numbered:
    """Puts the number of a case before a result."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, row: Any) -> Any:
        return self._number, row


# -- Process functions -------------------------------------------------------------------------------------------------


def _process(elements: DataStream, case: Case) -> list[DataStream]:
    main = _keyed(elements).process(Player(case), output_type=ANY)
    return [main, main.get_side_output(OutputTag("side", ANY))]


class _Connected(KeyedCoProcessFunction):
    """Plays the actions of both inputs."""

    def __init__(self, case: Case) -> None:
        self._player = Player(case)

    def open(self, context: RuntimeContext) -> None:
        self._player.open(context)

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield from self._player.on_timer(timestamp, ctx)


def _connected(elements: DataStream, case: Case) -> list[DataStream]:
    main = _keyed(elements).connect(_keyed(elements, "o")).process(_Connected(case), output_type=ANY)
    return [main, main.get_side_output(OutputTag("side", ANY))]


class _Broadcast(KeyedBroadcastProcessFunction):
    """Plays the actions of elements and timers; each timer tells the rules that were broadcast."""

    def __init__(self, case: Case) -> None:
        self._player = Player(case)

    def open(self, context: RuntimeContext) -> None:
        self._player.open(context)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._player.process_element(value, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        rules = ctx.get_broadcast_state(_RULES)
        name, *given = value
        if given:
            rules.put(name, given[0])
        else:
            rules.remove(name)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        rules = sorted([name, value] for name, value in ctx.get_broadcast_state(_RULES).items())
        yield ["main", ctx.get_current_key(), ["rules", rules], timestamp]
        yield from self._player.on_timer(timestamp, ctx)


def _broadcast(elements: DataStream, case: Case) -> list[DataStream]:
    rules = _side(elements, "o").broadcast(_RULES)
    main = _keyed(elements).connect(rules).process(_Broadcast(case), output_type=ANY)
    return [main, main.get_side_output(OutputTag("side", ANY))]


# -- Asynchronous functions --------------------------------------------------------------------------------------------


class _Asking(AsyncFunction):
    """Puts out the answers to elements, with their keys."""

    def __init__(self) -> None:
        self._answers = Answers()

    async def async_invoke(self, value: Any) -> list[Any]:
        return [["main", value.key, answer, None] for answer in await self._answers.answer(value)]

    def timeout(self, value: Any) -> list[Any]:
        return [["main", value.key, answer, None] for answer in self._answers.too_late(value)]


def _asynchronous(elements: DataStream, case: Case) -> list[DataStream]:
    wait = AsyncDataStream.ordered_wait_with_retry if case["ordered"] else AsyncDataStream.unordered_wait_with_retry
    strategy = NO_RETRY_STRATEGY
    if case["attempts"] > 1:
        # PyFlink counts repetitions.
        strategy = FixedDelayRetryStrategy(case["attempts"] - 1, 1, None, has_exception_predicate)
    timeout = Time.milliseconds(case["timeout"])
    return [wait(_side(elements, "e"), _Asking(), timeout, strategy, case["capacity"], ANY)]


# -- Windows -----------------------------------------------------------------------------------------------------------


def _windows(elements: DataStream, case: Case) -> list[DataStream]:
    assigner, late = case["assigner"], OutputTag("late", ANY)
    windows = _keyed(elements).window(make_assigner(*assigner)).side_output_late_data(late)
    if "trigger" in case:
        windows = windows.trigger(make_trigger(*case["trigger"]))
    if case.get("lateness"):
        windows = windows.allowed_lateness(case["lateness"])
    results = WindowResults(assigner[0] in ("session", "dynamic"))
    if case.get("function") == "aggregate":
        main = windows.aggregate(Tuples(), results, ANY, ANY)
    else:
        main = windows.process(results, output_type=ANY)
    return [main, main.get_side_output(late).map(lambda value: ["late", value.key, value], output_type=ANY)]


def _counted(elements: DataStream, case: Case) -> list[DataStream]:
    _, count, step = case["assigner"]
    windows = _keyed(elements).count_window(count, 0 if count == step else step)
    return [windows.process(WindowResults(False), output_type=ANY)]


_BUILD = {
    "async": _asynchronous,
    "process": _process,
    "connected": _connected,
    "broadcast": _broadcast,
    "final": _windows,
    "counted": _counted,
    "triggered": _windows,
}


def main() -> None:
    """Answer all cases of standard input."""
    # The gateway and the mini-cluster write to standard output as well.
    json.dump(run(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
