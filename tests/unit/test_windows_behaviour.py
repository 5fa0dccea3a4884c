"""Windows around their aggregates: clocks, late records, failures, keys, triggers, and what they leave in stores."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt.context import current_provider
from streamrt.dataframe.trial import TrialContext, TrialStores
from streamrt.errors import ProcessingError
from streamrt.models import Tick
from streamrt.operators.closing import Closing, ClosingStrategy
from streamrt.operators.late import LateRecords
from streamrt.state import MemoryStore, Stamp, StoreIdentity
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, RecordHandler, TaskAccess, WatermarkStrategy
from streamrt.windows import Collect, Count, Sum
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.count import CountWindowOperator
from streamrt.windows.fixed import FixedWindow
from streamrt.windows.session import SessionWindow
from streamrt.windows.sliding import SlidingWindow
from tests.unit.apps import Stage

pytestmark = pytest.mark.usefixtures("processing_mode")

Sent = tuple[int, str | None, Any]
STORE = StoreSpec("windows", transaction=TimedTransaction)


def drive(define: Callable[[Any], Any], *records: Sent, **settings: Any) -> list[list[tuple[Any, ...]]]:
    """Return what each record, given as event time, key and value, brings out: start, end, value and key."""
    stage = Stage(**settings)
    define(stage.sdf)
    driver = stage.drive()
    found = []
    for timestamp, key, value in records:
        driver.pipe(stage.source, value, key=key, timestamp=timestamp)
        found.append([(*value.values(), key) for value, key, _, _ in driver.outputs()])
    return found


class Task:
    """Runs one operator over a store in memory, with commits where the test wants them."""

    def __init__(self, operator: Operator) -> None:
        self.partition = MemoryStore("windows", "in", Path()).open(0)
        self.transaction = TimedTransaction(self.partition)
        self.outputs: list[tuple[Any, Any]] = []
        self.ticks: list[Callable[[Tick], None]] = []
        self.execute: RecordHandler = operator.build(self.take, Node(1, (0,), operator, "here"), self)  # type: ignore[arg-type]
        self.commits = 0

    def run(self, value: Any, key: bytes, timestamp: int) -> None:
        token = current_provider.set(TrialContext(TrialStores()))
        try:
            self.execute(value, key, timestamp, None)
        finally:
            current_provider.reset(token)

    def store(self, spec: StoreSpec) -> Callable[[], TimedTransaction]:
        return lambda: self.transaction

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        self.ticks.append(callback)

    def side_output(self, tag: str) -> None:
        """No one reads it."""

    def hold_records(self, held: Any, child: RecordHandler) -> None:
        """Nothing is held."""

    def asynchronous(self, node: Node, calls: Any) -> RecordHandler:
        raise AssertionError("nothing is called")

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing ends."""

    def access(self, store: StoreSpec) -> TaskAccess:
        return TaskAccess.of_test(store.name)

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Nothing is counted."""

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        work()

    repeats_records = False

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        return lambda: False

    def take(self, value: Any, key: Any, timestamp: int, headers: Any) -> None:
        assert headers is None
        assert timestamp == value["start"]
        self.outputs.append((key, value))

    def tick(self, watermark: int) -> None:
        for callback in self.ticks:
            callback(Tick(0, {"windows": watermark}))

    def commit(self) -> None:
        self.commits += 1
        self.transaction.prepare()
        identity = StoreIdentity("group", "in", 0, "windows", None, None, 1)
        self.transaction.flush(Stamp(identity, self.commits, None, self.transaction.stream_time, 0))
        observed = self.transaction.observed
        self.transaction = TimedTransaction(self.partition)
        assert self.transaction.observed == observed

    def kept(self) -> dict[bytes, bytes]:
        """Return the heads and items in the store."""
        self.commit()
        return dict(self.partition.scan(b"\x02", b"\x04"))


def fixed(strategy: ClosingStrategy, duration: int = 10, step: int = 10, *, final: bool = True) -> FixedWindow:
    aggregation = Aggregation.named(n=Count(), all=Collect()) if final else Aggregation.of(Count())
    closing = Closing(strategy, WatermarkStrategy() if strategy == "watermark" else None)
    return FixedWindow(STORE, aggregation, final, closing=closing, duration_ms=duration, step_ms=step)


# -- Output ----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-G35")
def test_outputs_have_key_and_start_and_no_headers() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).sum().current()
    driver = stage.drive()
    driver.pipe(stage.source, 5, key="k", timestamp=17, headers=[("h", b"1")])
    assert driver.outputs() == [({"start": 10, "end": 20, "value": 5}, b"k", 10, None)]


def test_windows_return_new_frames_and_leave_the_others_alone() -> None:
    stage = Stage()
    window = stage.sdf.tumbling_window(10).reduce(lambda old, new: old, lambda new: new.pop("x") and new).current()
    window.apply(lambda value: value["value"])
    stage.sdf.apply(lambda value: value["x"])
    assert sorted(map(str, stage.values({"x": 5}, key="k", timestamp=1))) == ["5", "{}"]


def test_two_windows_on_one_frame_and_windows_of_windows() -> None:
    def define(sdf: Any) -> None:
        counts = sdf.tumbling_window(10).count().final()
        counts.apply(lambda value: value["value"]).tumbling_window(100).sum().current()
        sdf.hopping_window(20, 10).count().current()

    found = drive(define, (5, "k", 1), (15, "k", 1))
    assert found == [[(0, 20, 1, b"k")], [(0, 100, 1, b"k"), (0, 20, 2, b"k"), (10, 30, 1, b"k")]]


def test_windows_see_timestamps_and_keys_that_were_set_before() -> None:
    def define(sdf: Any) -> None:
        moved = sdf.set_timestamp(lambda value, key, timestamp, headers: value["at"])
        moved.group_by("who").tumbling_window(10).agg(n=Count("at")).final()

    found = drive(
        define, (0, "k", {"who": "a", "at": 5}), (0, "k", {"who": "b", "at": 50}), (0, "j", {"who": "a", "at": 10})
    )
    assert found == [[], [], [(0, 10, 1, "a")]]


def test_a_dataframe_on_trial_keeps_its_windows() -> None:
    frame = Stage().sdf.tumbling_window(10).count().final(closing_strategy="partition")
    assert frame.test(1, timestamp=5) == []
    assert frame.test(1, key=b"other", timestamp=10) == [({"start": 0, "end": 10, "value": 1}, b"key", 0, None)]


# -- Keys and times --------------------------------------------------------------------------------------------------


def test_records_without_a_key_are_left_out_and_go_on_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    def define(sdf: Any) -> None:
        sdf.tumbling_window(10).sum().final(closing_strategy="partition")
        sdf.apply(lambda value: {"value": value})

    with caplog.at_level(logging.DEBUG, "streamrt"):
        found = drive(define, (1, "", 1), (30, None, 2), (31, None, 3), (32, "", 4))
    assert found == [[(1, b"")], [(2, None)], [(3, None)], [(0, 10, 1, b""), (4, b"")]]
    assert sum("records without a key" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "sliding", "session"])
def test_a_record_without_a_time_is_an_error(kind: str) -> None:
    operators: dict[str, Operator] = {
        "tumbling": fixed("key"),
        "hopping": fixed("key", 10, 5),
        "sliding": SlidingWindow(STORE, Aggregation.of(Sum()), True, duration_ms=10),
        "session": SessionWindow(STORE, Aggregation.of(Sum()), True, gap_ms=10),
    }
    task = Task(operators[kind])
    for _ in range(2):
        with pytest.raises(Exception, match="timestamp -1 is in no window"):
            task.run(1, b"k", -1)
    assert task.kept() == {}


def test_near_the_epoch() -> None:
    found = drive(lambda sdf: sdf.hopping_window(10, 4).count().current(), (0, "k", 1), (9, "k", 1))
    assert found == [[(0, 10, 1, b"k")], [(0, 10, 2, b"k"), (4, 14, 1, b"k"), (8, 18, 1, b"k")]]
    found = drive(lambda sdf: sdf.sliding_window(10).count().current(), (0, "k", 1), (4, "k", 1), (12, "k", 1))
    assert found == [[(0, 0, 1, b"k")], [(0, 4, 2, b"k")], [(2, 12, 2, b"k")]]


# -- Late records ----------------------------------------------------------------------------------------------------


def test_on_late_is_called_once_for_each_window_that_is_closed() -> None:
    calls: list[Any] = []

    def on_late(*args: Any) -> bool:
        calls.append(args)
        return False

    found = drive(
        lambda sdf: sdf.hopping_window(10, 5, grace_ms=2, on_late=on_late).sum().current(),
        *((100, "k", 1), (94, "k", 2), (80, "k", 4)),
    )
    assert found[1] == [(90, 100, 2, b"k")]
    assert found[2] == []
    assert calls == [
        (2, b"k", 94, 4, 85, 95, "hopping_window_10_5_sum", "in", 0, 1),
        (4, b"k", 80, 18, 75, 85, "hopping_window_10_5_sum", "in", 0, 2),
        (4, b"k", 80, 18, 80, 90, "hopping_window_10_5_sum", "in", 0, 2),
    ]


def test_a_record_at_the_end_plus_grace_closes_the_window() -> None:
    found = drive(
        lambda sdf: sdf.tumbling_window(10, grace_ms=5, on_late=lambda *_: False).count().final(),
        *((1, "k", 1), (14, "k", 1), (9, "k", 1), (15, "k", 1), (9, "k", 1)),
    )
    assert found == [[], [], [], [(0, 10, 2, b"k")], []]


def test_late_records_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    seconds = [0.0]
    late = LateRecords("store", lambda *args: args[0] != "quiet", clock=lambda: seconds[0])

    def tell(value: Any) -> Any:
        late(value, b"k", 5, 7, 0, 10)
        return value

    stage.sdf.apply(tell)
    with caplog.at_level(logging.WARNING, "streamrt"):
        stage.values("quiet", 1, 2, 3)
        seconds[0] = 30.0
        stage.values(4, 5)
    assert len(caplog.messages) == 2
    assert "the record of in[0] at offset 1 with timestamp 5 came 7 ms too late for the window 0 to 10" in caplog.text
    assert "like 2 more since the last warning" in caplog.messages[1]


def test_a_late_record_still_counts_in_sliding_windows_that_are_open() -> None:
    found = drive(
        lambda sdf: sdf.sliding_window(10, on_late=lambda *_: False).collect().final(),
        *((100, "k", "a"), (95, "k", "late"), (89, "k", "too late"), (104, "k", "b"), (200, "k", "c")),
    )
    assert found[3] == [(90, 100, ["late", "a"], b"k")]
    assert found[4] == [(94, 104, ["late", "a", "b"], b"k")]


@pytest.mark.rows("PF-G34")
def test_sessions_merge_and_close_when_nothing_can_reach_them() -> None:
    found = drive(
        lambda sdf: sdf.session_window(10, grace_ms=5).agg(n=Count(), all=Collect()).final(),
        *((100, "k", "a"), (120, "k", "b"), (110, "k", "c"), (145, "k", "d"), (146, "k", "e"), (300, "k", "f")),
    )
    assert found == [[], [], [], [], [(100, 121, 3, ["a", "c", "b"], b"k")], [(145, 147, 2, ["d", "e"], b"k")]]


# -- Failures --------------------------------------------------------------------------------------------------------


def divide(old: float, new: float) -> float:
    return old + 10 / new


@pytest.mark.parametrize(
    "define",
    [
        lambda sdf: sdf.hopping_window(10, 5).reduce(divide, abs).current(),
        lambda sdf: sdf.sliding_window(10, grace_ms=10).reduce(divide, abs).current(),
        lambda sdf: sdf.session_window(10).reduce(divide, abs, max).current(),
        lambda sdf: sdf.hopping_count_window(5, 2).reduce(divide, abs).current(),
    ],
)
def test_a_reducer_that_raises_leaves_all_windows_as_they_were(define: Callable[[Any], Any]) -> None:
    good: list[Sent] = [(6, "k", 5), (7, "k", 2), (5, "k", 4)]
    with_bad = [*good[:2], (6, "k", 0), (8, "k", 0), good[2]]
    found = drive(define, *with_bad, on_processing_error=lambda *_: True)
    assert found[2:4] == [[], []]
    assert [*found[:2], found[4]] == drive(define, *good)


def test_what_fails_below_is_not_emitted_again_and_costs_no_other_window() -> None:
    def define(sdf: Any) -> None:
        windows = sdf.hopping_window(10, 5).count().final(closing_strategy="partition")
        windows[windows["start"] != 0].apply(lambda value: value)
        windows.filter(lambda value: 1 / value["start"])

    records: list[Sent] = [(6, "a", 1), (7, "b", 1), *((timestamp, "c", 1) for timestamp in range(40, 44))]
    found = drive(define, *records, on_processing_error=lambda *_: True)
    emitted = {output[0::3] for outputs in found for output in outputs}
    assert emitted == {(5, b"a"), (5, b"b")}
    assert found[-1] == []


def test_a_failure_names_the_window() -> None:
    with pytest.raises(
        ProcessingError, match=r"window-1 \(tumbling_window_10_sum, final\) defined at test_windows_beh"
    ):
        drive(lambda sdf: sdf.tumbling_window(10).sum().final(), (1, "k", "text"))


class Picky(Sum):
    """Fails on a result, when the record has been counted already."""

    def result(self, value: Any) -> Any:
        return 1 / (value - 3) and value


@pytest.mark.parametrize(
    "operator",
    [
        FixedWindow(STORE, Aggregation.of(Picky()), False, duration_ms=10, step_ms=10),
        FixedWindow(STORE, Aggregation.of(Picky()), False, duration_ms=10, step_ms=5),
        SlidingWindow(STORE, Aggregation.of(Picky()), False, duration_ms=10),
        CountWindowOperator(STORE, Aggregation.of(Picky()), False, 5, 5),
    ],
)
def test_a_result_that_raises_leaves_memory_and_store_equal(operator: Operator) -> None:
    def values(*, reopened: bool) -> list[Any]:
        task = Task(operator)
        for number, value in enumerate((1, 2, 4, 3)):
            try:
                task.run(value, b"k", 5 + number)
            except ZeroDivisionError:
                task.outputs.append((None, number))
            if reopened:
                task.commit()
                task.partition.read_cache = None
                task.transaction = TimedTransaction(task.partition)
        return task.outputs

    found = values(reopened=False)
    assert any(key is None for key, _ in found)
    assert found == values(reopened=True)


# -- Triggers --------------------------------------------------------------------------------------------------------


def test_after_update_emits_the_window_with_the_record_and_empties_it() -> None:
    def full(aggregate: Any, value: Any, key: Any, timestamp: int, headers: Any) -> bool:
        assert (key, timestamp, headers) == (b"k", value, [("h", b"1")])
        return bool(aggregate["n"] == 2)

    stage = Stage()
    stage.sdf.hopping_window(10, 5, after_update=full).agg(n=Count(), all=Collect()).final()
    driver = stage.drive()
    for timestamp in (6, 7, 8, 30):
        driver.pipe(stage.source, timestamp, key="k", timestamp=timestamp, headers=[("h", b"1")])
    assert [tuple(output[0].values()) for output in driver.outputs()] == [
        (0, 10, 2, [6, 7]),
        (5, 15, 2, [6, 7]),
        (0, 10, 1, [8]),
        (5, 15, 1, [8]),
    ]


def test_before_update_emits_the_window_without_the_record_and_drops_that() -> None:
    def stop(aggregate: Any, value: Any, *_: Any) -> bool:
        return str(value) == "stop"

    records: list[Sent] = [(1, "k", "a"), (2, "k", "stop"), (3, "k", "b"), (10, "k", "c")]
    found = drive(lambda sdf: sdf.tumbling_window(10, before_update=stop).collect().final(), *records)
    assert found == [[], [(0, 10, ["a"], b"k")], [], [(0, 10, ["b"], b"k")]]
    found = drive(lambda sdf: sdf.tumbling_window(10, before_update=stop).count().current(), *records)
    assert found == [[(0, 10, 1, b"k")], [], [(0, 10, 1, b"k")], [(10, 20, 1, b"k")]]


# -- Stores ----------------------------------------------------------------------------------------------------------

ALL: list[Operator] = [
    fixed("partition"),
    fixed("partition", 10, 3),
    fixed("watermark"),
    fixed("partition", final=False),
    fixed("watermark", 10, 3, final=False),
    SlidingWindow(STORE, Aggregation.named(s=Sum(), all=Collect()), True, 2, Closing("partition"), duration_ms=10),
    SlidingWindow(
        STORE, Aggregation.of(Sum()), False, 2, Closing("watermark", WatermarkStrategy(0, 1)), duration_ms=10
    ),
    SessionWindow(STORE, Aggregation.named(s=Sum(), all=Collect()), True, 2, Closing("partition"), gap_ms=10),
    SessionWindow(STORE, Aggregation.of(Sum()), False, 2, Closing("watermark", WatermarkStrategy(0, 1)), gap_ms=10),
]


@pytest.mark.parametrize("operator", ALL, ids=lambda operator: operator.describe())
def test_windows_that_are_closed_leave_nothing_whatever_the_commits(operator: Any) -> None:
    outputs = []
    for every in (1, 7, 10_000):
        task = Task(operator)
        for number in range(100):
            task.run(1, b"key-%d" % (number % 30), 100 + number * 2 % 37)
            if number % every == 0:
                task.commit()
        assert task.kept()
        if operator.closing.by_partition:
            task.run(1, b"last", 10_000)
            assert {key[3:7] for key in task.kept() if key[0] == 2} == {b"last"}
        else:
            assert task.transaction.observed == 136
            task.tick(10_000)
            assert task.kept() == {}
        outputs.append(task.outputs)
    assert outputs[0]
    assert outputs[0] == outputs[1] == outputs[2]


def test_count_windows_that_are_full_leave_nothing() -> None:
    task = Task(CountWindowOperator(STORE, Aggregation.named(n=Count(), all=Collect()), True, 3, 3))
    for number in range(9):
        task.run(number, b"k", 5)
    assert [value["all"] for _, value in task.outputs] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert task.kept() == {}


def test_windows_of_many_keys_close_in_the_order_in_which_they_are_due() -> None:
    task = Task(fixed("partition", 100, 50))
    keys = [b"%03d" % (number * 37 % 500) for number in range(500)]
    for number, key in enumerate(keys):
        task.run(1, key, 100 + number % 40)
        if number == 250:
            task.commit()
    task.outputs.clear()
    task.run(1, b"end", 1_000)
    assert [(key, value["start"]) for key, value in task.outputs] == [
        (key, start) for start in (50, 100) for key in sorted(keys)
    ]


@pytest.mark.parametrize("final", [True, False])
def test_watermarks_close_windows_and_decide_what_is_late(final: bool) -> None:
    task = Task(fixed("watermark", final=final))
    task.run(1, b"a", 5)
    task.run(1, b"b", 500)
    task.run(1, b"a", 9)
    starts = [value["start"] for _, value in task.outputs]
    assert starts == ([] if final else [0, 500, 0])
    task.tick(9)
    assert len(task.outputs) == len(starts)
    task.outputs.clear()
    task.tick(10)
    assert [(key, value["n"]) for key, value in task.outputs] == ([(b"a", 2)] if final else [])
    assert task.transaction.observed == 500
    kept = task.kept()
    task.run(1, b"a", 9)
    assert task.kept() == kept


@pytest.mark.rows("PF-J13")
def test_the_clock_of_a_key_goes_on_after_a_restart() -> None:
    task = Task(fixed("key"))
    task.run(1, b"k", 12)
    task.commit()
    task.partition.read_cache = None
    task.transaction = TimedTransaction(task.partition)
    task.run(2, b"k", 25)
    assert [value["all"] for _, value in task.outputs] == [[1]]
