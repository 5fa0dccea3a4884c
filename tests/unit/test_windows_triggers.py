"""Windows with triggers, in both modes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from streamrt import StreamingDataFrame
from streamrt.errors import ArgumentValueError, ProcessingError
from streamrt.kafka import TopicConfig
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import (
    Collect,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    Count,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    Evictor,
    MergeContext,
    MergingWindowAssigner,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
    WindowContext,
)
from tests.unit.apps import Stage, application

pytestmark = pytest.mark.usefixtures("processing_mode")

Record = tuple[str, Any, int]
Build = Callable[[StreamingDataFrame], StreamingDataFrame]
CLOCKS = pytest.mark.parametrize("clock", ["watermark", "partition"])
END = ("end of time", 0, 10_000_000)


class Play:
    """An application with windows, and its results: key, value and timestamp."""

    def __init__(self, build: Build, *, partitions: int = 1, sides: Sequence[str] = ("late",), start: int = 0) -> None:
        self.app = application()
        self.topic = self.app.topic(
            "in", key_deserializer="str", key_serializer="str", config=TopicConfig(partitions, 1)
        )
        frame = build(self.app.dataframe(self.topic))
        self.results = self._gathered(frame)
        self.side = {tag: self._gathered(frame.side_output(tag)) for tag in sides}
        self.driver = TopologyTestDriver(self.app, start=start)

    def pipe(self, *records: Record, partition: int = 0) -> list[Any]:
        """Send records (key, value, timestamp) through it; return the new results, except those of the last key."""
        before = len(self.results)
        self.driver.pipe_many(
            InputRecord(self.topic, value, key, timestamp, partition=partition) for key, value, timestamp in records
        )
        return [result for result in self.results[before:] if result[0] != END[0]]

    def advance(self, by: int) -> list[Any]:
        before = len(self.results)
        self.driver.advance(by)
        return self.results[before:]

    @staticmethod
    def _gathered(frame: StreamingDataFrame) -> list[Any]:
        found: list[Any] = []
        frame.update(lambda value, key, time, headers: found.append((key, value, time)), metadata=True)
        return found


def numbers(*timestamps: int) -> list[Record]:
    return [("a", timestamp, timestamp) for timestamp in timestamps]


def values(results: Sequence[Any]) -> list[Any]:
    return [value["value"] for _, value, _ in results]


def test_sessions_wait_for_all_partitions() -> None:
    """The other partition holds the watermark back by ten seconds."""
    seen: list[Any] = []

    def told(key: Any, ctx: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        seen.append((ctx.window.start, ctx.window.end, ctx.current_watermark))
        yield [*elements]

    play = Play(lambda sdf: sdf.window(EventTimeSessions(5000)).process(told).trigger(EventTimeTrigger()), partitions=2)
    for timestamp in (1000, 8000, 4000):
        assert play.pipe(*numbers(timestamp), partition=0) == []
    assert play.pipe(("b", 0, 12_000), partition=1) == []
    assert play.pipe(*numbers(30_000), partition=0) == []
    assert sorted(play.pipe(("b", 0, 20_000), partition=1)) == [("a", [1000, 8000, 4000], 1000), ("b", [0], 12_000)]
    assert sorted(seen) == [(1000, 13_000, 19_999), (12_000, 17_000, 19_999)]
    assert sorted(play.advance(10_000_000)) == [("a", [30_000], 30_000), ("b", [0], 20_000)]
    assert sorted(bounds for *bounds, _ in seen[2:]) == [[20_000, 25_000], [30_000, 35_000]]


def test_elements_of_merged_sessions_are_in_the_order_of_arrival() -> None:
    play = Play(lambda sdf: sdf.window(EventTimeSessions(5000), 20_000).collect().final("partition"))
    assert play.pipe(*numbers(8000, 1000, 4000), END) == [
        ("a", {"start": 1000, "end": 13_000, "value": [8000, 1000, 4000]}, 1000)
    ]


@pytest.mark.rows("PF-G23")
@CLOCKS
def test_merging_sessions_have_no_state_of_a_window(clock: Any) -> None:
    def asks(key: Any, ctx: WindowContext, elements: Any) -> None:
        ctx.window_state.get("x")

    play = Play(lambda sdf: sdf.session_window(5000).count().process(asks).final(clock))
    with pytest.raises(ProcessingError, match="asks asked for the state of a window, but its windows merge"):
        play.pipe(*numbers(1000, 20_000))


@pytest.mark.rows("PF-G13", "PF-G15")
@CLOCKS
def test_a_continuous_trigger_ends_with_the_window_whose_last_millisecond_is_a_multiple(clock: Any) -> None:
    play = Play(
        lambda sdf: (
            sdf.tumbling_window(timedelta(milliseconds=10), grace_ms=timedelta(milliseconds=20))
            .collect()
            .trigger(ContinuousEventTimeTrigger(3), closing_strategy=clock)
        )
    )
    assert values(play.pipe(*numbers(9, 28))) == [[9]]


@pytest.mark.rows("PF-G28", "PF-H3")
@CLOCKS
def test_windows_that_a_record_is_late_for_are_told(clock: Any) -> None:
    told: list[Any] = []

    def on_late(value: Any, key: Any, timestamp: int, late_by: int, start: int, end: int, *origin: Any) -> bool:
        told.append((value, late_by, start, end))
        return False

    play = Play(
        lambda sdf: (
            sdf.hopping_window(10_000, 5_000, on_late=on_late)
            .collect()
            .trigger(EventTimeTrigger(), closing_strategy=clock)
        )
    )
    play.pipe(*numbers(7000, 12_000, 8000, 16_000, 9000))
    assert told == [(8000, 4000, 0, 10_000), (9000, 7000, 0, 10_000), (9000, 7000, 5000, 15_000)]


@pytest.mark.rows("PF-G3", "PF-G15", "PF-G31", "PF-G32")
def test_batches_in_a_global_window_are_count_windows() -> None:
    records = [
        (key, number, time) for number, (key, time) in enumerate(zip("abaabbbaab", range(90, 0, -9), strict=True))
    ]
    batches = Play(lambda sdf: sdf.global_window().collect().trigger(PurgingTrigger(CountTrigger(3))), sides=())
    expected = Play(lambda sdf: sdf.tumbling_count_window(3).collect().final(), sides=())
    found = batches.pipe(*records)
    assert found == expected.pipe(*records)
    assert [value for _, value, _ in found][:1] == [{"start": 63, "end": 90, "value": [0, 2, 3]}]
    totals = Play(lambda sdf: sdf.global_window().sum().current(), sides=())
    assert values(totals.pipe(*numbers(5, 3, 4))) == [5, 8, 12]


class Spread(ProcessWindowFunction):
    """Tells what a window function learns."""

    outputs: ClassVar[tuple[str, ...]] = ("odd", "unread")

    def process(self, key: Any, ctx: WindowContext, elements: list[Any]) -> Iterator[Any]:
        ctx.window_state.list("fired").add(len(elements))
        ctx.global_state.set("fired", ctx.global_state.get("fired", 0) + 1)
        if sum(elements) % 2:
            ctx.output("odd", [key, *elements])
        ctx.output("unread", None)
        yield [ctx.window, elements, [*ctx.window_state.list("fired")], ctx.global_state.get("fired")]
        yield ctx.current_watermark, ctx.current_processing_time

    def clear(self, ctx: WindowContext) -> None:
        ctx.global_state.set("left", [*ctx.window_state.list("fired")])


@pytest.mark.rows("PF-G21", "PF-G22", "PF-G23", "PF-G24", "PF-G25", "PF-H1", "PF-H2")
@CLOCKS
def test_a_window_function_has_state_and_side_outputs(clock: Any) -> None:
    play = Play(
        lambda sdf: (
            sdf.tumbling_window(10, grace_ms=5).process(Spread()).trigger(EventTimeTrigger(), closing_strategy=clock)
        ),
        sides=("late", "odd"),
        start=77,
    )
    window = Window(10, 20)
    assert play.pipe(("a", 1, 11), ("a", 2, 19)) == []
    assert play.pipe(("b", 0, 20)) == [("a", [window, [1, 2], [2], 1], 10), ("a", (19, 77), 10)]
    assert play.pipe(("a", 4, 12)) == [("a", [window, [1, 2, 4], [2, 3], 2], 10), ("a", (19, 77), 10)]
    assert play.side["odd"] == [("a", ["a", 1, 2], 10), ("a", ["a", 1, 2, 4], 10)]
    store = "tumbling_window_10_process"
    assert play.driver.state(play.topic, "a", store=store).get("left") is None
    play.pipe(END)
    assert play.driver.state(play.topic, "a", store=store).get("left") == [2, 3]
    with pytest.raises(ArgumentValueError, match="no side output 'even'"):
        Stage().sdf.tumbling_window(10).process(Spread()).final().side_output("even")


@pytest.mark.rows("PF-G9", "PF-G10", "PF-G12", "PF-G13", "PF-G14")
@CLOCKS
def test_a_window_that_is_over_leaves_nothing(clock: Any) -> None:
    class Untidy(Trigger):
        def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            ctx.state.map("seen")[value] = 1
            for distance in (0, 5, 30):
                ctx.register_event_time_timer(window.max_timestamp + distance)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            called.append(time)
            return TriggerResult.FIRE_AND_PURGE

    called: list[int] = []
    play = Play(
        lambda sdf: sdf.tumbling_window(10).process(Spread()).trigger(Untidy(), closing_strategy=clock),
        sides=("late",),
    )
    found = play.pipe(("a", 1, 1), ("b", 2, 15), ("b", 3, 100), ("b", 4, 1_000))
    assert [value[1] for _, value, _ in found if isinstance(value, list)] == [[1], [2], [3]]
    assert called == [9, 19, 109]
    view = play.driver.state(play.topic, "a", store="tumbling_window_10_process")
    with view._store.reading(0) as opened:
        rows = [key for key, _ in opened.scan(b"\x01", b"\xf0")]
    # The last window of b is open; of a, nothing is left but the state of the key.
    assert not [key for key in rows if b"a" in key[:12] and key[1] == 3]


@pytest.mark.rows("PF-G20", "PF-G27")
def test_process_after_an_aggregation_gets_the_aggregate() -> None:
    def told(key: Any, ctx: WindowContext, elements: list[Any]) -> list[Any]:
        return [(ctx.window.start, *elements)]

    records = [*numbers(1, 5, 12, 3), END]
    for build, expected in (
        (lambda sdf: sdf.tumbling_window(10, grace_ms=5).sum(), [(0, 9), (10, 12)]),
        (
            lambda sdf: sdf.tumbling_window(10, grace_ms=5).agg(n=Count(), all=Collect()),
            [(0, {"n": 3, "all": [1, 5, 3]}), (10, {"n": 1, "all": [12]})],
        ),
        (lambda sdf: sdf.window(TumblingEventTimeWindows(10), 5).sum(), [(0, 9), (10, 12)]),
    ):
        found = Play(lambda sdf, build=build: build(sdf).process(told).final()).pipe(*records)  # type: ignore[misc]
        assert [value for _, value, _ in found] == expected
    running = Play(lambda sdf: sdf.tumbling_window(10).sum().process(told).current("partition")).pipe(*records)
    assert [value for _, value, _ in running] == [(0, 1), (0, 6), (10, 12)]


@pytest.mark.rows("PF-G5", "PF-G15", "PF-G16", "PF-G20")
@pytest.mark.parametrize("closing", ["partition", "watermark"])
def test_triggers_that_stand_for_final_and_current(closing: Any) -> None:
    records = [(key, at, max(0, at + move)) for at, (key, move) in enumerate([("a", 0), ("b", 3), ("c", -9)] * 20)]

    def played(build: Build) -> Any:
        play = Play(build)
        return play.pipe(*records, END), play.side["late"]

    options: dict[str, Any] = {"closing_strategy": closing}
    kinds: list[Callable[[StreamingDataFrame], Any]] = [
        lambda sdf: sdf.tumbling_window(10),
        lambda sdf: sdf.hopping_window(10, 4, offset_ms=3),
    ]
    for kind in kinds:
        expected = played(lambda sdf, kind=kind: kind(sdf).sum().final(**options))  # type: ignore[misc]
        assert len(expected[0]) > 10
        assert len(expected[1]) > 2
        assert expected == played(lambda sdf, kind=kind: kind(sdf).sum().trigger(EventTimeTrigger(), **options))  # type: ignore[misc]
        results, late = played(
            lambda sdf, kind=kind: (  # type: ignore[misc]
                kind(sdf).process(lambda key, ctx, elements: [sum(elements)]).final(**options)
            )
        )
        assert ([value for _, value, _ in results], late) == (values(expected[0]), expected[1])
        expected = played(lambda sdf, kind=kind: kind(sdf).sum().current(**options))  # type: ignore[misc]
        assert expected == played(lambda sdf, kind=kind: kind(sdf).sum().trigger(CountTrigger(1), **options))  # type: ignore[misc]
    by_assigner = played(lambda sdf: sdf.window(SlidingEventTimeWindows(10, 4, 3)).sum().final(**options))
    assert by_assigner == played(lambda sdf: sdf.hopping_window(10, 4, offset_ms=3).sum().final(**options))


class Marked(Evictor):
    """Keeps the even values, in new tuples, and drops 4 afterwards."""

    def evict_before(self, elements: Any, window: Window, ctx: Any) -> Any:
        assert ctx.current_watermark < window.end < ctx.current_processing_time
        return [(time, value) for time, value in elements if value % 2 == 0]

    def evict_after(self, elements: Any, window: Window, ctx: Any) -> Any:
        return [(time, value) for time, value in elements if value != 4]


@pytest.mark.rows("PF-G8", "PF-G36")
@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (CountEvictor(2), [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]),
        (CountEvictor(2, after=True), [[1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]),
        (TimeEvictor(2), [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]),
        (TimeEvictor(timedelta(milliseconds=2), after=True), [[1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]),
        (DeltaEvictor(2, lambda old, last: last - old), [[1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]),
        (Marked(), [[2], [2], [2, 4], [2], [2, 6]]),
    ],
)
def test_evictors(evictor: Evictor, expected: Any) -> None:
    class FromTheSecond(Trigger):
        def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
            return TriggerResult.FIRE if value > 1 else TriggerResult.CONTINUE

    play = Play(
        lambda sdf: sdf.tumbling_window(100).collect().trigger(FromTheSecond(), evictor=evictor), start=1_000_000
    )
    assert values(play.pipe(*numbers(1, 2, 3, 4, 5, 6))) == expected


@pytest.mark.rows("PF-A18", "PF-G30", "PF-G40")
def test_windows_by_the_wall_clock() -> None:
    play = Play(lambda sdf: sdf.tumbling_window(5_000, time="processing").collect().final(), sides=())
    assert play.pipe(("a", 1, 9_999), ("a", 2, 3)) == []
    assert play.advance(4_999) == []
    assert play.pipe(("a", 3, 0)) == []
    assert play.advance(1) == [("a", {"start": 0, "end": 5000, "value": [1, 2, 3]}, 0)]
    assert play.pipe(("a", 4, 0)) == []
    assert play.advance(5_000) == [("a", {"start": 5000, "end": 10_000, "value": [4]}, 5000)]
    assert play.advance(1_000_000) == []
    play = Play(lambda sdf: sdf.hopping_window(4_000, 2_000, time="processing").sum().current(), sides=())
    assert values(play.pipe(("a", 1, 0)) + play.advance(2_500) + play.pipe(("a", 5, 0))) == [1, 6, 5]
    play = Play(lambda sdf: sdf.session_window(3_000, time="processing").count().final(), sides=())
    play.pipe(("a", 1, 0))
    assert play.advance(2_000) == []
    play.pipe(("a", 1, 0))
    assert play.advance(2_999) == []
    assert play.advance(1) == [("a", {"start": 0, "end": 5000, "value": 2}, 0)]
    play = Play(
        lambda sdf: (
            sdf.tumbling_window(10_000, time="processing").count().trigger(ContinuousProcessingTimeTrigger(4_000))
        ),
        sides=(),
    )
    play.pipe(("a", 1, 0))
    assert [values(play.advance(by)) for by in (4_000, 1, 3_999, 1, 1_998, 1, 9_000)] == [[], [1], [], [1], [], [1], []]


@pytest.mark.rows("PF-G15")
def test_processing_time_triggers_over_event_time() -> None:
    play = Play(lambda sdf: sdf.tumbling_window(10_000).count().trigger(ContinuousProcessingTimeTrigger(4_000)))
    play.pipe(("a", 1, 1))
    assert values(play.advance(8_001)) == [1, 1]
    assert values(play.pipe(("b", 1, 10_000))) == []
    assert [key for key, *_ in play.advance(4_000)] == ["b"]
    play = Play(lambda sdf: sdf.tumbling_window(10_000).count().trigger(ProcessingTimeTrigger()), start=50_000)
    # Its end is past: it is emitted at once.
    assert values(play.pipe(("a", 1, 1), ("a", 1, 2))) == [1, 2]


class Weekly(MergingWindowAssigner):
    """Windows whose values say where they are; they merge if their starts are close."""

    def assign_windows(self, value: Any, timestamp: int, now: int) -> Iterator[Window]:
        for start, end in value:
            yield Window(start, end)

    def merge_windows(self, windows: Sequence[Window]) -> Iterator[tuple[Window, Sequence[Window]]]:
        ordered = sorted(windows)
        close = [window for window in ordered if window.start - ordered[0].start < 5]
        yield Window(close[0].start, max(window.end for window in close)), close


class Asking(WindowAssigner):
    """Windows that the value names."""

    def assign_windows(self, value: Any, timestamp: int, now: int) -> Any:
        return [window if window is None else Window(*window) for window in value]


@pytest.mark.rows("PF-G4")
def test_assigners_of_ones_own() -> None:
    play = Play(lambda sdf: sdf.window(Asking()).count().final("partition"))
    # No window, two windows, and a window that is over although the record is not late.
    assert play.pipe(("a", [], 5), ("a", [[0, 9], [3, 12]], 6), ("a", [], 20), ("a", [[0, 5]], 25)) == [
        ("a", {"start": 0, "end": 9, "value": 1}, 0),
        ("a", {"start": 3, "end": 12, "value": 1}, 3),
    ]
    assert play.side["late"] == [("a", [[0, 5]], 25)]
    for wrong in (None, (-1, 5), (5, 5), (0, (1 << 63) + 1)):
        with pytest.raises(ProcessingError, match="a window must be a Window with a start of 0 or more"):
            play.pipe(("a", [wrong], 30))
        play = Play(lambda sdf: sdf.window(Asking()).count().final("partition"))


class Shift(WindowAssigner):
    """Windows that begin with each shift of work, by the wall clock."""

    time = "processing"

    def assign_windows(self, value: Any, timestamp: int, now: int) -> list[Window]:
        start = Window.start_of(now, 8_000, 6_000)
        return [Window(start, start + 8_000)]


@pytest.mark.rows("PF-G5", "PF-G6")
def test_an_assigner_knows_the_wall_clock() -> None:
    play = Play(lambda sdf: sdf.window(Shift()).collect().final(), sides=(), start=7_000)
    assert play.pipe(("a", 1, 0), ("a", 2, 99_999)) == []
    assert play.advance(7_000) == [("a", {"start": 6_000, "end": 14_000, "value": [1, 2]}, 6_000)]
    play.pipe(("a", 3, 0))
    assert play.advance(8_000) == [("a", {"start": 14_000, "end": 22_000, "value": [3]}, 14_000)]


@pytest.mark.rows("PF-G7", "PF-G11")
def test_windows_that_merge_by_rules_of_ones_own() -> None:
    merged: list[Any] = []

    class Longest(CountTrigger):
        def on_merge(self, window: Window, ctx: MergeContext) -> None:
            merged.append((window, ctx.merged, len(ctx.merged_states)))
            super().on_merge(window, ctx)

    play = Play(lambda sdf: sdf.window(Weekly()).collect().trigger(Longest(4)))
    assert play.pipe(("a", [[10, 20]], 1), ("a", [[30, 40]], 2), ("a", [[12, 25]], 3), ("a", [[11, 22]], 4)) == []
    assert merged == [(Window(10, 25), (Window(10, 20),), 1)]
    assert play.pipe(("a", [[8, 9]], 5)) == [
        ("a", {"start": 8, "end": 25, "value": [[[10, 20]], [[12, 25]], [[11, 22]], [[8, 9]]]}, 8)
    ]


def test_a_delta_trigger() -> None:
    play = Play(lambda sdf: sdf.global_window().collect().trigger(DeltaTrigger(2, lambda a, b: b - a)), sides=())
    assert values(play.pipe(*numbers(1, 2, 3, 4, 5, 9))) == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 9]]


def test_records_without_a_key_are_in_no_window() -> None:
    stage = Stage()
    frame = stage.sdf.tumbling_window(10).count().trigger(CountTrigger(1))
    found: list[Any] = []
    frame.update(found.append)
    driver = stage.drive()
    driver.pipe(stage.source, 1, timestamp=5)
    driver.pipe(stage.source, 1, key=b"k", timestamp=5)
    assert [value["value"] for value in found] == [1]
    with pytest.raises(ProcessingError, match="is in no window"):
        driver.pipe(stage.source, 1, key=b"k", timestamp=-5)


class Wrong(Trigger):
    def on_element(self, value: Any, timestamp: int, window: Window, ctx: TriggerContext) -> Any:
        kept.append(ctx)
        if value == "timer":
            ctx.register_event_time_timer(-1)
        return {"none": None, "late": lambda: kept[0].current_watermark}.get(value)


kept: list[TriggerContext] = []


def test_wrong_uses_at_run_time() -> None:
    for value, message in (("none", "Wrong.on_element must return a TriggerResult"), ("timer", "since 1970, got -1")):
        with pytest.raises(ProcessingError, match=message):
            Play(lambda sdf: sdf.tumbling_window(10).count().trigger(Wrong())).pipe(("a", value, 0))
    with pytest.raises(Exception, match="a TriggerContext was used after its call"):
        kept[0].state.get("x")
    wrong: list[Any] = [{}, "text", 5]
    for results in wrong:
        with pytest.raises(ProcessingError, match="must return an iterable of results or None, but returned"):
            Play(
                lambda sdf, results=results: (  # type: ignore[misc]
                    sdf.tumbling_window(10).process(lambda *_: results).trigger(CountTrigger(1))
                )
            ).pipe(("a", 1, 0))
