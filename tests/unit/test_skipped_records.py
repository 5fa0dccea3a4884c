"""A record that is skipped has no effect: neither on state, timers, windows and joins, nor by its outputs."""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamrt import Context, DeadLetters, ProcessFunction, State, StreamingDataFrame, TimerContext
from streamrt.connectors import ListSink
from streamrt.kafka import TopicConfig
from streamrt.runtime.tasks.chain.last_outputs import last_outputs
from streamrt.state import MemoryStore, Stamp, StoreIdentity
from streamrt.state.journal import Journal
from streamrt.state.transactions.panes import PaneTransaction
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import Collect, Count, CountTrigger, First, Lag, Last, Sum
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

GUARANTEES = ["at-least-once", "exactly-once"]
TEXT: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}


def skipped(*_: Any) -> bool:
    return True


def explode(value: Any) -> Any:
    """Fail for what comes from a bad record."""
    if isinstance(value, dict) and value.get("bad"):
        raise ValueError("bad")
    return value


def use_everything(value: dict[str, Any], state: State) -> Any:
    """Change all kinds of state."""
    state.set("n", state.get("n", 0) + 1)
    state.set_bytes("b", (state.get_bytes("b") or b"") + b"x")
    state.value("v").update(value["i"])
    state.list("l").add(value["i"])
    state.map("m")[str(value["i"])] = value["i"]
    state.reducing("r", max).add(value["i"])
    if value["i"] % 3 == 0:
        state.list("l").clear()
        state.map("other")["k"] = value["i"]
    if value["i"] % 5 == 0:
        state.delete("n")
        state.map("m").pop(str(value["i"] - 1), None)
    if value["i"] % 7 == 0:
        state.clear()
    if value["i"] % 2:
        state.set("ttl", value["i"], ttl=timedelta(seconds=1))
    return {**value, "all": dump(state)}


def dump(state: State) -> list[Any]:
    return [
        state.get("n"),
        (state.get_bytes("b") or b"").decode(),
        state.value("v").value(),
        list(state.list("l")),
        sorted(state.map("m").items()),
        sorted(state.map("other").items()),
        state.reducing("r", max).get(),
        state.get("ttl"),
    ]


class Remind(ProcessFunction):
    """Registers and deletes timers, and keeps state."""

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        count = ctx.state.value("count", default=0)
        count.update(count.value() + 1)
        ctx.register_event_time_timer(ctx.timestamp + 25)
        if value["i"] % 2:
            ctx.delete_event_time_timer(ctx.timestamp + 15)
        yield {**value, "count": count.value()}

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        fired = ctx.state.list("fired")
        fired.add(timestamp)
        yield {"timer": timestamp, "fired": list(fired)}


def other(sdf: StreamingDataFrame, stage: Stage) -> StreamingDataFrame:
    return stage.app.dataframe(stage.app.topic("other", **TEXT))


def counted(windows: Any, *, final: bool = False) -> StreamingDataFrame:
    """Aggregate so that results of bad records fail."""
    made = windows.agg(n=Count(), s=Sum("i"), f=First("i"), l=Last("i"), bad=Last("bad"))
    result: StreamingDataFrame = made.final() if final else made.current()
    return result


BUILDS: dict[str, Callable[[StreamingDataFrame, Stage], StreamingDataFrame]] = {
    "state": lambda sdf, _: sdf.apply(use_everything, stateful=True),
    "process": lambda sdf, _: sdf.process(Remind()),
    "tumbling": lambda sdf, _: counted(sdf.tumbling_window(20, grace_ms=10)),
    "hopping": lambda sdf, _: counted(sdf.hopping_window(20, 10)),
    "sliding": lambda sdf, _: counted(sdf.sliding_window(20)),
    "session": lambda sdf, _: counted(sdf.session_window(5, grace_ms=100)),
    "dynamic session": lambda sdf, _: counted(sdf.session_window(lambda value: 5, grace_ms=100)),
    "count": lambda sdf, _: counted(sdf.tumbling_count_window(4)),
    "sliding count": lambda sdf, _: counted(sdf.sliding_count_window(3)),
    "by partition": lambda sdf, _: counted(sdf.tumbling_window(20)),
    "trigger": lambda sdf, _: sdf.tumbling_window(20).agg(n=Count(), bad=Last("bad")).trigger(CountTrigger(1)),
    "interval": lambda sdf, stage: sdf.join_interval(
        other(sdf, stage), on_merge="keep-left", how="left", backward_ms=50, forward_ms=50
    ),
    "as-of": lambda sdf, stage: sdf.join_asof(other(sdf, stage), on_merge="keep-left", how="left"),
    "drop_duplicates": lambda sdf, _: sdf.drop_duplicates(within=3, closing_strategy="partition"),
    "over rows": lambda sdf, _: sdf.over(rows=3).agg(n=Count(), s=Sum("i")),
    "over all": lambda sdf, _: sdf.over().agg(n=Count(), s=Sum("i"), former=Lag("i")),
    "over range": lambda sdf, _: sdf.over(range=20, closing_strategy="partition").agg(n=Count(), s=Sum("i")),
    "group_by": lambda sdf, _: sdf.group_by(lambda value: "g", name="g").apply(use_everything, stateful=True),
}


def records(seed: int) -> list[dict[str, Any]]:
    """Return records that rise in time, a third of them bad. Bad ones do not move time, which also goes on with them."""
    rng, found, at = random.Random(seed), [], 1_000
    for number in range(1, 40):
        bad = number > 1 and rng.random() < 0.35
        at += 0 if bad else rng.choice([0, 1, 3, 12])
        found.append({"i": number, "at": at, "bad": bad, "key": rng.choice("ab")})
    return found


def outcome(name: str, guarantee: str, given: list[dict[str, Any]], *, partitions: int = 1) -> list[Any]:
    """Return what comes out of two branches and a sink."""
    sink = ListSink()
    config = TopicConfig(partitions, 1)
    stage = Stage({**TEXT, "config": config}, TEXT, on_processing_error=skipped, processing_guarantee=guarantee)
    built = BUILDS[name](stage.sdf, stage)
    # The outputs come before the failure.
    built.to_topic(stage.out)
    built.sink(sink)
    late = stage.app.topic("behind", **TEXT)
    built.apply(explode).to_topic(late)
    with stage.drive() as driver:
        # Skipped records are undone among others that are committed with them.
        driver.pipe_many(
            InputRecord(topic, value if topic == "in" else {"right": value["i"]}, value["key"], value["at"])
            for value in given
            for topic in ("other", "in")
            if topic == "in" or ("other" in stage.app.topology.sources and is_good(value))
        )
        return [
            [(each.key, each.value, each.timestamp) for each in driver.read(topic)] for topic in ("out", "behind")
        ] + [[dict(each) if isinstance(each, dict) else each for each in sink]]


def is_good(record: dict[str, Any]) -> bool:
    return not record["bad"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("name", BUILDS)
def test_a17_what_follows_is_as_if_skipped_records_had_not_been(name: str, guarantee: str) -> None:
    given = records(1)
    without = outcome(name, guarantee, list(filter(is_good, given)))
    assert outcome(name, guarantee, given) == without
    assert without[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["state", "process", "session", "interval", "over range"])
def test_a17_in_many_orders(name: str, seed: int) -> None:
    given = records(seed)
    assert outcome(name, "at-least-once", given) == outcome(name, "at-least-once", list(filter(is_good, given)))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a17_behind_a_group_by_only_what_is_behind_it_is_undone(partitions: int) -> None:
    app = application(on_processing_error=skipped)
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1), **TEXT))
    frame = frame.apply(lambda value, state: {**value, "above": _next(state)}, stateful=True)
    below = frame.group_by(lambda value: "g", name="g")
    below = below.apply(lambda value, state: {**value, "below": _next(state)}, stateful=True)
    below.apply(explode).to_topic(app.topic("out", **TEXT))
    with TopologyTestDriver(app) as driver:
        for bad in (False, True, False):
            driver.pipe("in", {"bad": bad}, key="k", timestamp=5)
        found = [each.value for each in driver.read("out")]
    assert found == [{"bad": False, "above": 1, "below": 1}, {"bad": False, "above": 3, "below": 2}]


def _next(state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


WINDOWS: dict[str, Callable[[StreamingDataFrame], Any]] = {
    "tumbling": lambda sdf: sdf.tumbling_window(10).agg(n=Count(), x=Collect()).final(),
    "sliding": lambda sdf: sdf.sliding_window(10).agg(n=Count(), x=Collect()).final(),
    "session": lambda sdf: sdf.session_window(3).agg(n=Count(), x=Collect()).final(),
    "by partition": lambda sdf: sdf.tumbling_window(10).agg(n=Count(), x=Collect()).final(closing_strategy="partition"),
    "watermark": lambda sdf: sdf.tumbling_window(10).agg(n=Count(), x=Collect()).final(closing_strategy="watermark"),
    "count": lambda sdf: sdf.tumbling_count_window(2).agg(n=Count(), x=Collect()).final(),
}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("name", WINDOWS)
def test_a17_a_window_whose_result_fails_is_not_made_again(name: str, guarantee: str) -> None:
    """Otherwise all following records would fail on it."""
    failed = list[Any]()

    def fail_first(value: Any) -> Any:
        if not failed:
            failed.append(value["x"])
            raise ValueError("bad")
        return value

    stage = Stage(TEXT, TEXT, on_processing_error=skipped, processing_guarantee=guarantee)
    WINDOWS[name](stage.sdf).apply(fail_first).to_topic(stage.out)
    with stage.drive() as driver:
        for number in range(1, 9):
            driver.pipe("in", number, key="k", timestamp=1_000 + 10 * number)
        driver.advance(timedelta(minutes=1))
        found = [each.value["x"] for each in driver.read("out")]
    # What follows is as it would have been.
    stage = Stage(TEXT, TEXT, processing_guarantee=guarantee)
    WINDOWS[name](stage.sdf).to_topic(stage.out)
    with stage.drive() as driver:
        for number in range(1, 9):
            driver.pipe("in", number, key="k", timestamp=1_000 + 10 * number)
        driver.advance(timedelta(minutes=1))
        assert [each.value["x"] for each in driver.read("out")] == failed + found


def test_a17_a_timer_that_fails_does_not_fire_again() -> None:
    class Fails(Remind):
        def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
            ctx.state.set("timers", ctx.state.get("timers", 0) + 1)
            if timestamp == 1_025:
                raise ValueError("bad")
            yield {"timer": timestamp, "timers": ctx.state.get("timers")}

    stage = Stage(TEXT, TEXT, on_processing_error=skipped)
    stage.sdf.process(Fails()).to_topic(stage.out)
    with stage.drive() as driver:
        for number, at in ((2, 1_000), (2, 1_010), (2, 1_100)):
            driver.pipe("in", {"i": number}, key="k", timestamp=at)
        found = [each.value for each in driver.read("out")]
    # What the failed one has changed is undone, and the records stay.
    assert [each["timers"] for each in found if "timer" in each] == [1]
    assert [each["count"] for each in found if "count" in each] == [1, 2, 3]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a17_behind_a_group_by_each_record_is_undone_alone(partitions: int) -> None:
    """Also after one whose timer has failed, so that it stays."""

    class Fails(ProcessFunction):
        def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
            number = ctx.state.get("n", 0) + 1
            ctx.state.set("n", number)
            yield number
            explode(value)
            if value.get("due"):
                ctx.register_event_time_timer(ctx.timestamp - 60_000)

        def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
            raise ValueError("due")

    app = application(on_processing_error=skipped)
    frame = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1), **TEXT))
    frame = frame.apply(lambda value: value, expand=True).group_by(lambda value: "g", name="g")
    frame.process(Fails(), clock="partition").to_topic(app.topic("out", **TEXT))
    with TopologyTestDriver(app) as driver:
        driver.pipe("in", [{"due": True}, {"bad": True}, {}], key="k", timestamp=100_000)
        assert [each.value for each in driver.read("out")] == [1, 2]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a17_a_dead_letter_has_no_effect_so_that_it_can_be_replayed(guarantee: str) -> None:
    stage = Stage(TEXT, TEXT, on_error=DeadLetters(), processing_guarantee=guarantee)
    frame = stage.sdf.apply(lambda value, state: {**value, "n": _next(state)}, stateful=True)
    frame.to_topic(stage.out)
    frame.apply(explode)
    with stage.drive() as driver:
        driver.pipe("in", {"bad": False}, key="k")
        driver.pipe("in", {"bad": True}, key="k")
        assert [each.value["n"] for each in driver.read("out")] == [1]
        [letter] = driver.read("dead-letters__group")
        assert letter.raw_value == b'{"bad":true}'
        # As a replay does, after the record was mended.
        driver.pipe("in", {"bad": False}, key="k")
        assert [each.value["n"] for each in driver.read("out")] == [2]


def test_a17_a_record_whose_output_alone_is_skipped_keeps_its_other_effects() -> None:
    stage = Stage(TEXT, TEXT, on_producer_error=skipped, on_processing_error=skipped)
    frame = stage.sdf.apply(lambda value, state: {**value, "n": _next(state)}, stateful=True)
    frame.apply(lambda value: {1, 2}).to_topic(stage.app.topic("refused"))
    frame.to_topic(stage.out)
    with stage.drive() as driver:
        for _ in range(2):
            driver.pipe("in", {}, key="k")
        assert [each.value["n"] for each in driver.read("out")] == [1, 2]


def test_a17_several_records_of_one_batch() -> None:
    stage = Stage(TEXT, TEXT, on_processing_error=skipped)
    stage.sdf.apply(use_everything, stateful=True).apply(explode).to_topic(stage.out)
    given = records(3)
    with stage.drive() as driver:
        driver.pipe_all("in", given, key="k", timestamp=1_000)
        found = [each.value for each in driver.read("out")]
    stage = Stage(TEXT, TEXT)
    stage.sdf.apply(use_everything, stateful=True).to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe_all("in", list(filter(is_good, given)), key="k", timestamp=1_000)
        assert [each.value for each in driver.read("out")] == found


def test_a17_asynchronous_results() -> None:
    async def call(value: Any) -> Any:
        return value

    stage = Stage(TEXT, TEXT, on_processing_error=skipped)
    frame = stage.sdf.apply_async(call, timeout=timedelta(seconds=30))
    frame = frame.apply(lambda value, state: {**value, "n": _next(state)}, stateful=True)
    frame.to_topic(stage.out)
    frame.apply(explode)
    with stage.drive() as driver:
        driver.pipe_all("in", [{"bad": bad} for bad in (False, True, False)], key="k")
        assert [each.value["n"] for each in driver.read("out")] == [1, 2]


def test_a17_what_a_sink_gets_before_an_asynchronous_result_has_its_own_offset() -> None:
    async def call(value: Any) -> Any:
        return value

    sink = ListSink(metadata=True)
    stage = Stage(TEXT, TEXT, on_processing_error=skipped)
    stage.sdf.sink(sink)
    stage.sdf.apply_async(call, timeout=timedelta(seconds=30), capacity=1).to_topic(stage.out)
    with stage.drive() as driver:
        driver.pipe_all("in", [{"i": number} for number in range(5)], key="k")
        assert len(driver.read("out")) == 5
    assert [(each["i"], each["_offset"]) for each in sink] == [(number, number) for number in range(5)]


# -- Transactions ------------------------------------------------------------------------------------------------------

IDENTITY = StoreIdentity("group", "in", 0, "default", None, None, 1)


@pytest.mark.parametrize("seed", range(12))
def test_a17_what_is_undone_is_what_was_done(seed: int, tmp_path: Any) -> None:
    """Random changes, half of them undone, against a transaction that has only the others."""
    rng = random.Random(seed)
    stores = [MemoryStore("default", "in", tmp_path / name).open(0) for name in ("undone", "plain")]
    panes = [MemoryStore("panes", "in", tmp_path / name).open(0) for name in ("undone", "plain")]
    for round_number in range(4):
        timed = [TimedTransaction(store) for store in stores]
        paned = [PaneTransaction(store) for store in panes]
        journal = Journal()
        timed[0].follow(journal)
        paned[0].follow(journal)
        for _ in range(30):
            seed_of_step, undone = rng.random(), rng.random() < 0.5
            journal.begin()
            change(timed[0], paned[0], random.Random(seed_of_step))
            if undone:
                if rng.random() < 0.3:
                    mark = journal.mark()
                    change(timed[0], paned[0], random.Random(seed_of_step + 1))
                    journal.undo(mark)
                journal.undo()
            else:
                change(timed[1], paned[1], random.Random(seed_of_step))
            assert look(timed[0], paned[0]) == look(timed[1], paned[1])
        for pair in (timed, paned):
            for each in pair:
                each.prepare()
                # The next round reads what the stores have.
                each.flush(Stamp(IDENTITY, round_number + 1, None, 1_000, 0))


def change(timed: TimedTransaction, paned: PaneTransaction, rng: random.Random) -> None:
    prefix = timed.prefix(rng.choice(["a", "b", "c"]))
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(9)
        if kind == 0:
            head = timed.head(prefix) or [0, []]
            head[1].append(rng.randrange(9))
            timed.set_head(prefix, head, rng.choice([None, rng.randrange(100)]))
        elif kind == 1:
            timed.delete_head(prefix)
        elif kind == 2:
            timed.timelines.add(prefix, rng.randrange(50), rng.randrange(1_000))
        elif kind == 3:
            start = rng.randrange(50)
            timed.timelines.delete(prefix, start, start + rng.randrange(30))
        elif kind == 4:
            paned.event_timers.register(b"\x02\x01a", rng.randrange(20))
        elif kind == 5:
            paned.event_timers.delete(b"\x02\x01a", rng.randrange(20))
        else:
            state = paned.state_of(rng.choice(["x", "y"]), 5)
            name = rng.choice("pq")
            if kind == 6:
                state.map("m")[name] = rng.randrange(9)
            elif kind == 7:
                state.list("l").add(rng.randrange(9))
                state.set(name, rng.randrange(9))
            else:
                _clear(state, name, rng.randrange(4))


def _clear(state: State, name: str, how: int) -> None:
    if how == 0:
        state.clear()
    elif how == 1:
        state.list("l").clear()
    elif how == 2:
        state.map("m").clear()
    else:
        state.delete(name)


def look(timed: TimedTransaction, paned: PaneTransaction) -> list[Any]:
    found: list[Any] = [
        (timed.head(timed.prefix(key)), timed.timelines.items(timed.prefix(key), 0, 100)) for key in "abc"
    ]
    found.append(timed.next_deadline)
    for key in "xy":
        state = paned.state_of(key, 5)
        found.append((state.get("p"), state.get("q"), list(state.list("l")), sorted(state.map("m").items())))
    found += [paned.event_timers.times(b"\x02\x01a"), paned.event_timers.next_time]
    return found


def test_outputs_are_held_unless_nothing_can_fail_after_them() -> None:
    def last(build: Callable[[StreamingDataFrame, Stage], Any]) -> frozenset[Any]:
        stage = Stage()
        build(stage.sdf, stage)
        return last_outputs(stage.app.topology)

    def passed_on(sdf: StreamingDataFrame, stage: Stage) -> None:
        sdf.to_topic(stage.out).apply(explode)

    def written_twice(sdf: StreamingDataFrame, stage: Stage) -> None:
        sdf.to_topic(stage.out)
        sdf.apply(explode).to_topic(stage.out)

    sink = ListSink()
    assert last(lambda sdf, stage: sdf[sdf["i"] > 0].apply(use_everything, stateful=True).to_topic(stage.out)) == {
        "out"
    }
    assert last(lambda sdf, stage: sdf.filter(bool).sink(sink)) == {id(sink)}
    assert not last(lambda sdf, stage: sdf.apply(list, expand=True).to_topic(stage.out))
    assert last(lambda sdf, stage: sdf.tumbling_window(20).count().current().to_topic(stage.out)) == {"out"}
    assert not last(lambda sdf, stage: sdf.hopping_window(20, 10).count().current().to_topic(stage.out))
    assert not last(lambda sdf, stage: sdf.tumbling_window(20).count().final().to_topic(stage.out))
    assert not last(
        lambda sdf, stage: sdf.tumbling_window(20).count().current(closing_strategy="partition").to_topic(stage.out)
    )
    assert not last(
        lambda sdf, stage: sdf.tumbling_window(20, before_update=lambda *_: True).count().current().to_topic(stage.out)
    )
    assert not last(lambda sdf, stage: sdf.process(Remind()).to_topic(stage.out))
    assert not last(lambda sdf, stage: sdf.to_topic(lambda *_: stage.out))
    assert not last(passed_on)
    assert not last(written_twice)
