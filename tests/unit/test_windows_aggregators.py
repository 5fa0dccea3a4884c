"""Results of aggregators: by hand, in windows, and folded at once."""

import itertools
import math
import random
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pytest

from streamrt import StreamingDataFrame, windows
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ColumnTypeError,
    InvalidOperationError,
    MissingColumnError,
    ProcessingError,
    SerializationError,
)
from streamrt.state.encoding import pack, unpack
from streamrt.windows import (
    Aggregator,
    AnyValue,
    ApproxCountDistinct,
    BoolAnd,
    BoolOr,
    Collect,
    CollectList,
    Collector,
    CollectSet,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    Reduce,
    StandardDeviation,
    Sum,
    Total,
    Variance,
)
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.aggregator import BuiltIn
from streamrt.windows.aggregators import fold_of
from tests.unit.apps import Stage

pytestmark = pytest.mark.usefixtures("processing_mode")

MOMENT = datetime(2024, 5, 1, tzinfo=timezone.utc)
BUILT_IN = [
    kind()
    for name in windows.__all__
    if issubclass(kind := getattr(windows, name), BuiltIn) and kind not in (ApproxCountDistinct, MinBy, MaxBy)
]


class Packing:
    pack = staticmethod(pack)
    unpack = staticmethod(unpack)
    arrival = staticmethod(itertools.count().__next__)
    counted = None
    owner = b""


def folded(aggregator: Aggregator, *values: Any) -> Any:
    fold, _ = fold_of(aggregator)
    state = fold.initial(Packing)
    for timestamp, value in enumerate(values):
        state = fold.step(state, value, timestamp, Packing)
    return fold.result(state, Packing)


def current(define: Callable[[Any], Any], *values: Any) -> list[Any]:
    """Return what a window of 10 ms emits for values that come at 0, 1, ..."""
    stage = Stage()
    define(stage.sdf.tumbling_window(10)).current()
    driver = stage.drive()
    for timestamp, value in enumerate(values):
        driver.pipe(stage.source, value, key="k", timestamp=timestamp)
    return [output[0] for output in driver.outputs()]


@pytest.mark.parametrize(
    ("aggregator", "values", "result"),
    [
        (Count(), (), 0),
        (Count(), (None, 5, None, 0), 2),
        (Sum(), (), 0),
        (Sum(), (2**60, None, 1), 2**60 + 1),
        (Sum(), (2**80, 1), 2**80 + 1),
        (Sum(), (True, True), 2),
        (Sum(), (1, 0.5), 1.5),
        (Mean(), (), None),
        (Mean(), (None,), None),
        (Mean(), (1, 2), 1.5),
        (Mean(), (4,), 4.0),
        (Min(), (None,), None),
        (Min(), (3, None, 1, 1.0), 1),
        (Min(), ("b", "a"), "a"),
        (Max(), ([1], [2, 0]), [2, 0]),
        (Max(), (1, 1.0, True), 1),
        (Sum(), (Decimal("0.10"), None, 1, Decimal("0.2")), Decimal("1.30")),
        (Sum(), (Decimal(10**38), Decimal("1E-10"), 1), Decimal("100000000000000000000000000000000000001.0000000001")),
        (Mean(), (None, Decimal("0.1"), Decimal("0.2"), 0), Decimal("0.1")),
        (Mean(), (Decimal(1), Decimal(1), Decimal(0)), Decimal("0." + 37 * "6" + "7")),
        (CountDistinct(), (1, 1.0, None, "1", [1]), 3),
        (CollectSet(), (), []),
        (CollectSet(), ("b", None, "a", "b"), ["a", "b"]),
        (CollectSet(), (3, 1, 1.0, Decimal("2.5"), -7, 3), [-7, 1, Decimal("2.5"), 3]),
        (CollectSet(), ({"at": MOMENT}, {"at": MOMENT}), [{"at": MOMENT}]),
        (CollectList(), ("b", None, "a", "b"), ["a", "b", "b"]),
        (CollectList(), (), []),
        (Total(), (None,), None),
        (Total(), (1, None, Decimal("0.5")), Decimal("1.5")),
        (Min(nan="highest"), (math.nan, 1.0, None), 1.0),
        (BoolAnd(), (), None),
        (BoolAnd(), (True, None, 1), True),
        (BoolAnd(), (True, 0), False),
        (BoolOr(), (None,), None),
        (BoolOr(), (False, None), False),
        (BoolOr(), (False, "x"), True),
        (AnyValue(), (None, 5, 3), 5),
        (Variance(), (), None),
        (Variance(), (5,), None),
        (Variance(of="population"), (5,), 0.0),
        (Variance(), (1, 2, None, 3, 4), 5 / 3),
        (Variance(), (10**20, 10**20 + 1), 0.5),
        (Variance(), (1e10 + 0.5, 1e10 + 1.5, Decimal("1E10")), 0.5833333333333334),
        (Variance(of="population"), (Decimal("0.1"), Decimal("0.3")), 0.01),
        (StandardDeviation(), (2, 4, 4, 4, 5, 5, 7, 9), 2.138089935299395),
        (StandardDeviation(of="population"), (2, 4, 4, 4, 5, 5, 7, 9), 2.0),
        (StandardDeviation(), (1, True), 0.0),
        (Variance(), (1e300, -1e300), math.inf),
        (Min(), (Decimal("NaN"), Decimal("1.0"), Decimal(1)), Decimal("1.0")),
        (Max(), (date(2024, 5, 1), None, date(2024, 5, 2)), date(2024, 5, 2)),
        (Last(), (b"a", b"\x00"), b"\x00"),
        (First(), (None, {"at": MOMENT, "time": time(1)}), {"at": MOMENT, "time": time(1)}),
        (First(), (None, {"a": (1,)}, 2), {"a": [1]}),
        (Last(), (1, [2], None), [2]),
        (Reduce(lambda old, new: [*old, new], lambda new: [new]), (None, 1, None), [None, 1, None]),
        (Reduce(lambda old, new: None, lambda new: new), (1, 2, 3), None),
    ],
)
def test_results(aggregator: Aggregator, values: tuple[Any, ...], result: Any) -> None:
    found = folded(aggregator, *values)
    assert found == result
    assert type(found) is type(result)
    fold, _ = fold_of(aggregator)
    if fold.whole is not None:
        assert fold.result(fold.whole(list(values), Packing), Packing) == result


def test_the_spread_of_numbers_that_are_not_finite_is_nan() -> None:
    assert math.isnan(folded(Variance(), 1, math.inf))
    assert math.isnan(folded(StandardDeviation(), 1, math.nan, 2))
    with pytest.raises(TypeError, match="a value of type str is not a number"):
        folded(Variance(), "1")
    with pytest.raises(ArgumentValueError, match=r"Variance\(of=...\)"):
        Variance(of="all")  # type: ignore[arg-type]


ROWS = [{"name": "a", "price": 5}, {"name": "b", "price": 3}, {"name": None, "price": 9}, {"name": "d", "price": None}]


@pytest.mark.parametrize(
    ("aggregator", "results"),
    [
        (MinBy("name", by="price"), ["a", "b", "b", "b", "b"]),
        (MaxBy("name", by="price"), ["a", "a", None, None, None]),
        (MaxBy(by="price"), [ROWS[0], ROWS[0], ROWS[2], ROWS[2], ROWS[2]]),
        (MinBy("name", by="price", where=lambda row: row["name"] != "b"), ["a", "a", "a", "a", "e"]),
        (MinBy("name", "price", "ignore"), ["a", "b", "b", "b", "b"]),
    ],
)
def test_the_value_next_to_the_lowest_or_highest_one(aggregator: Any, results: list[Any]) -> None:
    rows: list[Any] = [*ROWS, {"name": "e", "price": 3}]
    values = current(lambda window: window.agg(best=aggregator), *rows)
    assert [value["best"] for value in values] == results
    fold, _ = fold_of(aggregator)
    assert fold.merge is not None
    a: Any = [5, 7]
    b: Any = [6, 7]
    cases: list[tuple[list[Any], list[Any], int]] = [([a], [b], 5), ([], [b], 6), ([a], [], 5)]
    for early, late, best in cases:
        states = [fold.initial(Packing), fold.initial(Packing)]
        for number, inputs in enumerate((early, late)):
            for each in inputs:
                states[number] = fold.step(states[number], each, 0, Packing)
        assert fold.result(fold.merge(states[0], states[1], Packing), Packing) == best


@pytest.mark.parametrize("by", [None, 5, ""])
def test_what_decides_must_be_a_column(by: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"MinBy\(by=...\) is the name of a column, such as MinBy"):
        MinBy("name", by=by)


def test_other_columns_are_part_of_the_name_of_a_state() -> None:
    assert repr(MinBy("name", by="price")) == "MinBy('name', by='price')"
    assert MinBy("name", by="price").state_suffix == "MinBy/name by price"


@pytest.mark.parametrize("values", [(Decimal(1), 0.5), (0.5, Decimal(1)), (1, Decimal(1), 0.5)])
@pytest.mark.parametrize("aggregator", [Sum(), Mean()])
def test_floats_and_decimals_do_not_mix(aggregator: Aggregator, values: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        folded(aggregator, *values)
    with pytest.raises(TypeError):
        fold_of(aggregator)[0].whole(values, Packing)  # type: ignore[misc]


def test_earliest_and_latest_go_by_event_time() -> None:
    records = [("a", 5), ("b", 3), (None, 1), ("c", 3), ("d", 8), ("e", 8), ("f", 6)]
    for aggregator, result in ((Earliest(), "b"), (Latest(), "e"), (First(), "a"), (Last(), "f")):
        state = aggregator.initialize()
        for value, timestamp in records:
            state = aggregator.agg(state, value, timestamp)
        assert aggregator.result(state) == result


def test_nan_stays_what_it_is() -> None:
    assert math.isnan(folded(Sum(), 1, math.nan, 2))
    assert math.isnan(folded(Mean(), 1, math.nan, 2))
    assert folded(Max(), 1, math.inf) == math.inf


@pytest.mark.rows("PF-G26")
@pytest.mark.parametrize("aggregator", BUILT_IN, ids=repr)
def test_states_merge_as_if_all_records_had_been_in_one(aggregator: Aggregator) -> None:
    for early, late in (([3, None, 1], [1, 7, None]), ([Decimal("0.1"), None], [Decimal(2), Decimal("1E-30")])):
        check_merge(aggregator, early, late)


def check_merge(aggregator: Aggregator, early: list[Any], late: list[Any]) -> None:
    assert aggregator.mergeable
    fold, _ = fold_of(aggregator)
    assert fold.merge is not None

    def state(values: Iterable[Any], start: int) -> Any:
        result = fold.initial(Packing)
        for timestamp, value in enumerate(values, start):
            result = fold.step(result, value, timestamp, Packing)
        return result

    merged = fold.merge(state(early, 0), state(late, len(early)), Packing)
    assert fold.result(merged, Packing) == fold.result(state(early + late, 0), Packing)
    empty = fold.initial(Packing)
    for a, b in ((state(early, 0), empty), (empty, state(early, 0))):
        assert fold.result(fold.merge(a, b, Packing), Packing) == fold.result(state(early, 0), Packing)
    direct = [aggregator.initialize(), aggregator.initialize()]
    for timestamp, value in enumerate(early + late):
        direct[timestamp >= len(early)] = aggregator.agg(direct[timestamp >= len(early)], value, timestamp)
    assert aggregator.result(aggregator.merge(*direct)) == fold.result(merged, Packing)


def test_built_in_aggregators_work_by_hand_on_columns() -> None:
    total = Sum("x")
    assert total.agg(total.agg(total.initialize(), {"x": 2}, 0), {"x": None}, 1) == 2
    with pytest.raises(MissingColumnError, match="column 'x' is missing; the value has 'y'"):
        total.agg(0, {"y": 5}, 0)
    with pytest.raises(ColumnTypeError, match="column 'x': the value is of type int"):
        total.agg(0, 5, 0)


class Longest(Aggregator):
    def initialize(self) -> str:
        return ""

    def agg(self, old: str, new: Any, timestamp: int) -> str:
        text = str(new[self.column] if self.column else new)
        return text if len(text) > len(old) else old

    def result(self, value: str) -> int:
        return len(value)


class Doubled(Sum):
    """A class of ours with one method replaced: that one counts."""

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        return old + 2 * new


class Careless(Aggregator):
    """Changes its state in place, and keeps what it returned."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def initialize(self) -> list[Any]:
        return []

    def agg(self, old: list[Any], new: Any, timestamp: int) -> list[Any]:
        for state in self.kept:
            state.append("changed")
        old.append(new)
        self.kept.append(old)
        return old

    def result(self, value: list[Any]) -> list[Any]:
        return value


class Spread(Collector):
    def result(self, items: Iterable[Any]) -> Any:
        values = list(items)
        return max(values) - min(values)


@pytest.mark.rows("PF-G26")
def test_own_aggregators_get_whole_values() -> None:
    values = current(lambda window: window.agg(all=Longest(), x=Longest("x")), {"x": "abc"}, {"x": "abcdef"})
    assert [value["x"] for value in values] == [3, 6]
    assert values[0]["all"] == len(str({"x": "abc"}))
    with pytest.raises(InvalidOperationError, match="Longest cannot merge"):
        Longest().merge("", "")


def test_methods_of_subclasses_count() -> None:
    assert [value["x"] for value in current(lambda window: window.agg(x=Doubled()), 1, 2)] == [2, 6]


def test_states_are_not_shared_with_users() -> None:
    assert [value["x"] for value in current(lambda window: window.agg(x=Careless()), 1, 2, 3)] == [
        [1],
        [1, 2],
        [1, 2, 3],
    ]


def test_what_is_emitted_may_be_changed() -> None:
    stage = Stage()
    frame = stage.sdf.tumbling_window(10).reduce(lambda old, new: [*old, new], lambda new: [new]).current()
    frame.update(lambda value: value["value"].append("changed"))
    assert [value["value"] for value in stage.values(1, 2, key="k")] == [[1, "changed"], [1, 2, "changed"]]


def test_what_was_collected_may_be_changed_when_it_is_emitted() -> None:
    stage = Stage()
    frame = stage.sdf.sliding_window(10, grace_ms=100).collect().final()
    frame.update(lambda value: [item.append("changed") for item in value["value"]])
    driver = stage.drive()
    for timestamp in (20, 25, 200):
        driver.pipe(stage.source, [timestamp], key="k", timestamp=timestamp)
    assert [output[0]["value"] for output in driver.outputs()] == [
        [[20, "changed"]],
        [[20, "changed"], [25, "changed"]],
    ]


def test_several_aggregations_of_columns() -> None:
    aggregations = {
        "n": Count(),
        "nx": Count("x", missing="ignore"),
        "sum": Sum("x", missing="ignore"),
        "last": Last("y", missing="ignore"),
    }
    values = current(lambda window: window.agg(**aggregations), {"x": 1, "y": "a"}, {"y": None}, {"x": None})
    assert values[-1] == {"start": 0, "end": 10, "n": 3, "nx": 1, "sum": 1, "last": "a"}


def test_collectors_take_columns_and_whole_values() -> None:
    stage = Stage()
    window = stage.sdf.tumbling_window(10).agg(n=Count(), x=Collect("x"), all=Collect(), spread=Spread("x"))
    window.final()
    driver = stage.drive()
    for timestamp, value in ((3, {"x": 5}), (1, {"x": 2}), (10, {"x": 0})):
        driver.pipe(stage.source, value, key="k", timestamp=timestamp)
    ((value, *_),) = driver.outputs()
    assert value == {"start": 0, "end": 10, "n": 2, "x": [2, 5], "all": [{"x": 2}, {"x": 5}], "spread": 3}


def test_a_value_without_columns_is_an_error_that_names_the_column() -> None:
    with pytest.raises(ProcessingError, match="cannot aggregate column 'x': the value is of type int"):
        current(lambda window: window.agg(x=Sum("x")), 5)


def test_what_cannot_be_stored_is_an_error_of_the_record() -> None:
    with pytest.raises(ProcessingError, match="set") as caught:
        current(lambda window: window.reduce(lambda old, new: old, lambda new: {new}), 5)
    assert isinstance(caught.value.__cause__, SerializationError)


def test_an_aggregation_that_is_added_later_begins_with_nothing() -> None:
    before = Aggregation.named(n=Count(), old=Sum()).plan().fold
    state = before.step(before.initial(Packing), 5, 0, Packing)
    after = Aggregation.named(n=Count(), new=Sum()).plan().fold
    assert after.result(state, Packing) == {"n": 1, "new": 0}
    assert after.result(after.step(state, 7, 1, Packing), Packing) == {"n": 2, "new": 7}


# -- Missing columns ---------------------------------------------------------------------------------------------------

WINDOWS: dict[str, Callable[[StreamingDataFrame], Any]] = {
    "tumbling": lambda sdf: sdf.tumbling_window(10),
    "hopping": lambda sdf: sdf.hopping_window(10, 5),
    "sliding": lambda sdf: sdf.sliding_window(10),
    "session": lambda sdf: sdf.session_window(10),
    "dynamic session": lambda sdf: sdf.session_window(lambda value: 10),
    "count": lambda sdf: sdf.tumbling_count_window(2),
    "sliding count": lambda sdf: sdf.sliding_count_window(2),
}
KINDS = [Count, Sum, Mean, Min, Max, First, Last, Earliest, Latest]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a15_a_column_that_is_missing_is_an_error_unless_it_is_ignored(window: str, kind: Any) -> None:
    stage = Stage()
    WINDOWS[window](stage.sdf).agg(x=kind("prise")).current()
    with (
        stage.drive() as driver,
        pytest.raises(ProcessingError, match=r"column 'prise' is missing; the value has 'price'.*missing='ignore'"),
    ):
        driver.pipe(stage.source, {"price": 1}, key="k", timestamp=10)
    stage = Stage()
    WINDOWS[window](stage.sdf).agg(x=kind("prise", missing="ignore"), n=Count()).current()
    with stage.drive() as driver:
        driver.pipe(stage.source, {"price": 1}, key="k", timestamp=10)
        # None in a column is not a missing column.
        driver.pipe(stage.source, {"prise": None}, key="k", timestamp=11)
        results = [value["x"] for value, *_ in driver.outputs()]
    assert set(results) == {folded(kind("prise"), None)}


def test_a15_collectors_too() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).agg(x=Collect("prise")).final()
    with stage.drive() as driver, pytest.raises(ProcessingError, match="column 'prise' is missing"):
        driver.pipe(stage.source, {"price": 1}, key="k", timestamp=10)


def test_a15_two_aggregations_of_one_column_may_differ() -> None:
    values = current(
        lambda window: window.agg(s=Sum("x", missing="ignore"), n=Count(), m=Max("x", missing="ignore"), y=Sum("y")),
        {"x": 1, "y": 1},
        {"y": 2},
    )
    assert values[-1] == {"start": 0, "end": 10, "s": 1, "n": 2, "m": 1, "y": 3}


def test_a15_other_words_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match=r"Sum\(missing=...\) must be 'raise' or 'ignore', got 'skip'"):
        Sum("x", missing="skip")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError):
        Sum("x", missing=1)  # type: ignore[arg-type]


# -- Order -------------------------------------------------------------------------------------------------------------

SESSIONS: dict[str, Callable[[StreamingDataFrame], Any]] = {
    "session": lambda sdf: sdf.session_window(10, grace_ms=1_000),
    "dynamic session": lambda sdf: sdf.session_window(lambda value: 10, grace_ms=1_000),
}


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("window", SESSIONS)
def test_a16_first_and_last_of_merged_sessions_are_by_arrival(window: str, seed: int) -> None:
    random_ = random.Random(seed)
    times = [10 * number for number in range(12)]
    random_.shuffle(times)
    values = [random_.choice([None, number]) for number in range(12)]
    stage = Stage()
    SESSIONS[window](stage.sdf).agg(first=First("v"), last=Last("v"), n=Count()).current()
    with stage.drive() as driver:
        for time, value in zip(times, values, strict=True):
            driver.pipe(stage.source, {"v": value}, key="k", timestamp=1_000 + time)
        whole = driver.outputs()[-1][0]
    known = [value for value in values if value is not None]
    assert whole == {"start": 1_000, "end": 1_111, "first": known[0], "last": known[-1], "n": 12}


def test_a16_states_of_an_earlier_version_merge_by_the_order_of_sessions() -> None:
    for kind, result in ((First, "a"), (Last, "b")):
        fold, _ = fold_of(kind(), by_arrival=True)
        assert fold.merge is not None
        assert fold.result(fold.merge(pack("a"), pack("b"), Packing), Packing) == result
        assert fold.result(pack("a"), Packing) == "a"


@pytest.mark.parametrize("values", list(itertools.permutations([3.0, float("nan"), None, 1, 2])))
def test_a16_nan_is_no_value_for_min_and_max_in_any_order(values: tuple[Any, ...]) -> None:
    for kind, wanted in ((Min, 1), (Max, 3.0)):
        fold, _ = fold_of(kind())
        assert folded(kind(), *values) == wanted
        assert fold.whole is not None
        assert fold.result(fold.whole(list(values), Packing), Packing) == wanted
    assert folded(Min(), float("nan")) is None
