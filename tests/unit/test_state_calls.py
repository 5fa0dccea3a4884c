"""State, handles and iterators end with the call that got them, before the next record of the same transaction."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from streamrt import (
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    ProcessFunction,
    StreamingDataFrame,
    TimerContext,
)
from streamrt.errors import StateError
from streamrt.state import State
from streamrt.windows import (
    CountTrigger,
    ProcessWindowFunction,
    Sum,
    Trigger,
    TriggerContext,
    TriggerResult,
    Window,
    WindowContext,
)
from tests.unit.apps import Stage

OVER = "state was used after its call: a State, its handles and their iterators are valid only during the call"


def uses_of(state: State) -> list[Callable[[], Any]]:
    """Return all that can be done later with what a call has got, as functions that another call may use."""
    value, orders, prices = state.value("v"), state.list("l"), state.map("m")
    highest, total = state.reducing("r", max), state.aggregating("a", Sum())
    orders.add_all([1, 2])
    prices.put_all({1: 1, 2: 2})
    readers: list[Iterator[Any]] = [iter(orders), iter(prices), prices.values(), prices.items()]
    for reader in readers:
        next(reader)
    return [
        *(lambda reader=reader: next(reader) for reader in readers),
        *(value.value, lambda: value.update(1), value.clear),
        *(lambda: orders.add(1), lambda: orders.add_all([1]), lambda: orders.update([1]), lambda: list(orders)),
        *(orders.clear, orders.is_empty, lambda: bool(prices), prices.clear, lambda: list(prices)),
        *(
            lambda: prices["a"],
            lambda: prices.__setitem__("a", 1),
            lambda: prices.__delitem__("a"),
            lambda: 5 in prices,
        ),
        *(lambda: prices.get("a"), lambda: prices.pop("a", 1), lambda: prices.discard("a")),
        *(lambda: prices.put_all({1: 1}), lambda: list(prices.items()), lambda: list(prices.values())),
        *(lambda: highest.add(1), highest.get, highest.clear, lambda: total.add(1), total.get, total.clear),
        *(lambda: state.get("v"), lambda: state.set("v", 1), lambda: state.delete("v"), lambda: state.exists("v")),
        *(lambda: state.get_bytes("v"), lambda: state.set_bytes("v", b""), state.clear),
        *(lambda: state.value("v"), lambda: state.list("l"), lambda: state.map("m")),
        *(lambda: state.reducing("r", max), lambda: state.aggregating("a", Sum())),
    ]


class Keeper:
    """Keeps what one call has got, and has later calls try to use it."""

    def __init__(self) -> None:
        self.kept: list[Callable[[], Any]] = []
        self.refused = 0

    def look(self, state: State) -> None:
        for use in self.kept:
            with pytest.raises(StateError, match=OVER):
                use()
            self.refused += 1
        self.kept = uses_of(state)
        # What this call has got works all the while.
        assert list(state.list("l"))[-2:] == [1, 2]


def judge(build: Callable[[StreamingDataFrame, Keeper], StreamingDataFrame], calls: int = 2) -> None:
    """Send records of two keys through one transaction, and see that each call refuses what the one before has kept."""
    stage, keeper = Stage(), Keeper()
    frame = build(stage.sdf, keeper)
    for key in (b"a", b"b", b"a")[: calls + 1]:
        frame.test({"n": 1}, key=key, timestamp=5)
    assert keeper.refused == calls * len(keeper.kept)
    assert keeper.kept


def test_process_element() -> None:
    class Keeps(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
            keeper_of[0].look(ctx.state)
            yield value
            # A generator goes on: its call is not over before its last result.
            ctx.state.value("v").update(1)

    keeper_of: list[Keeper] = []

    def build(sdf: StreamingDataFrame, keeper: Keeper) -> StreamingDataFrame:
        keeper_of.append(keeper)
        return sdf.process(Keeps())

    judge(build)
    keeper_of.clear()
    judge(lambda sdf, keeper: build(sdf, keeper).apply(lambda value: value))


def test_a_call_that_fails_is_over() -> None:
    kept: list[State] = []

    class Fails(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> None:
            kept.append(ctx.state)
            raise ValueError("wrong")

    def fail(value: Any, state: State) -> Any:
        kept.append(state)
        raise ValueError("wrong")

    builds: list[Callable[[StreamingDataFrame], StreamingDataFrame]] = [
        lambda sdf: sdf.process(Fails()),
        lambda sdf: sdf.apply(fail, stateful=True),
        lambda sdf: sdf.apply(fail, stateful=True, expand=True),
    ]
    for build in builds:
        with pytest.raises(Exception, match="wrong"):
            build(Stage().sdf).test({}, key=b"a")
        with pytest.raises(StateError, match=OVER):
            kept.pop().get("a")


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("operator", ["apply", "expand", "generator", "update", "filter", "column"])
def test_stateful_functions(operator: str, metadata: bool) -> None:
    def build(sdf: StreamingDataFrame, keeper: Keeper) -> StreamingDataFrame:
        def look(value: Any, *arguments: Any) -> Any:
            keeper.look(arguments[-1])
            return [value] if operator == "expand" else value

        def generate(value: Any, *arguments: Any) -> Iterator[Any]:
            for number in range(2):
                arguments[-1].value("v").update(number)
                yield value
            keeper.look(arguments[-1])

        if operator == "column":
            sdf["found"] = sdf.apply(look, stateful=True, metadata=metadata)
            return sdf
        if operator == "generator":
            return sdf.apply(generate, stateful=True, metadata=metadata, expand=True)
        if operator == "update":
            return sdf.update(look, stateful=True, metadata=metadata)
        if operator == "filter":
            return sdf.filter(look, stateful=True, metadata=metadata)
        return sdf.apply(look, stateful=True, metadata=metadata, expand=operator == "expand")

    judge(build)


def test_operators_below_have_their_own_state_of_the_same_store() -> None:
    def twice(value: Any, state: State) -> Iterator[Any]:
        for _ in range(2):
            state.value("n").update((state.value("n", default=0).value()) + 1)
            yield state.value("n").value()

    def below(value: Any, state: State) -> Any:
        state.set("n", state.get("n") * 10)
        return value

    frame = Stage().sdf.apply(twice, stateful=True, expand=True).apply(below, stateful=True)
    assert [found[0] for found in frame.test({}, key=b"a")] == [1, 11]


def test_timers_and_both_sides_of_connected_frames() -> None:
    keeper = Keeper()

    class Keeps(CoProcessFunction):
        def process_element1(self, value: Any, ctx: Context) -> None:
            keeper.look(ctx.state)
            ctx.register_event_time_timer(ctx.timestamp)

        def process_element2(self, value: Any, ctx: Context) -> None:
            keeper.look(ctx.state)

        def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
            keeper.look(ctx.state)

    stage = Stage()
    frame = stage.sdf.connect(stage.sdf).process(Keeps(), clock="partition")
    # Both sides get the record, and the second record lets the timer of the first one fire.
    frame.test(1, key=b"a", timestamp=5)
    frame.test(1, key=b"b", timestamp=6)
    assert keeper.refused == 4 * len(keeper.kept)


def test_triggers_and_window_functions() -> None:
    keeper, wide, narrow = Keeper(), Keeper(), Keeper()

    class Keeps(Trigger):
        def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            keeper.look(ctx.state)
            return TriggerResult.FIRE

    class Counts(ProcessWindowFunction):
        def process(self, key: Any, ctx: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
            wide.look(ctx.global_state)
            narrow.look(ctx.window_state)
            yield 1

    frame = Stage().sdf.tumbling_window(10).process(Counts()).trigger(Keeps())
    for key in (b"a", b"b"):
        frame.test({}, key=key, timestamp=5)
    assert keeper.refused == wide.refused == narrow.refused == len(keeper.kept)
    frame = Stage().sdf.tumbling_window(10).count().trigger(CountTrigger(2))
    assert [len(frame.test({}, key=key, timestamp=5)) for key in (b"a", b"b", b"a")] == [0, 0, 1]


def test_a_map_of_broadcast_state_is_writable_in_its_call_only() -> None:
    kept: list[Any] = []

    class Keeps(BroadcastProcessFunction):
        def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
            rules = ctx.broadcast_state("rules")
            rules[value] = value
            ctx.broadcast_state("others")[value] = rules[value]
            kept.append(rules)

        def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
            with pytest.raises(StateError, match=OVER):
                kept[0]["order"] = value
            yield sorted(ctx.broadcast_state("rules"))

    stage = Stage()
    rules = stage.sdf.filter(lambda value: value == "rule").broadcast()
    results: list[Any] = []
    stage.sdf.filter(lambda value: value != "rule").connect(rules).process(Keeps()).update(results.append)
    driver = stage.drive()
    driver.pipe(stage.source, "rule", timestamp=1)
    driver.pipe(stage.source, "order", timestamp=2)
    assert results == [["rule"]]
