"""Conditions of aggregations: `where=`. Random ones in all windows are in `test_windows_properties.py`."""

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from streamrt import StreamingDataFrame, StreamingSeries
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ColumnTypeError, ProcessingError
from streamrt.windows import (
    Aggregator,
    Collect,
    Collector,
    Count,
    EventTimeSessions,
    Latest,
    Reduce,
    Sum,
    TumblingEventTimeWindows,
)
from tests.unit.apps import Stage

pytestmark = pytest.mark.usefixtures("processing_mode")


class Longest(Aggregator):
    """Has a constructor of its own, and a state for no records that its `merge` does not take."""

    def __init__(self, column: str, unit: str, **options: Any) -> None:
        super().__init__(column, **options)
        self.unit = unit

    def initialize(self) -> Any:
        return None

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        return max(old or 0, new[self.column])

    def result(self, value: Any) -> Any:
        return None if value is None else f"{value} {self.unit}"

    def merge(self, a: Any, b: Any) -> Any:
        return max(a, b)


class NoConstructor(Collector):
    """Does not call the constructor of its base."""

    def __init__(self) -> None:
        pass

    def result(self, items: Any) -> Any:
        return len(items)


WINDOWS: dict[str, Callable[[StreamingDataFrame], Any]] = {
    "tumbling": lambda sdf: sdf.tumbling_window(100),
    "hopping": lambda sdf: sdf.hopping_window(100, 99),
    "sliding": lambda sdf: sdf.sliding_window(100),
    "session": lambda sdf: sdf.session_window(20),
    "count": lambda sdf: sdf.tumbling_count_window(4),
    "assigned": lambda sdf: sdf.window(TumblingEventTimeWindows(100)),
    "assigned sessions": lambda sdf: sdf.window(EventTimeSessions(20)),
}
ROWS = [{"price": 5, "kind": "a"}, {"price": 500}, {"price": 7, "kind": "b"}, {"price": 900}]


def last_of(stage: Stage) -> Any:
    """Return the result of the window that all rows are in."""
    driver = stage.drive()
    for number, row in enumerate(ROWS):
        driver.pipe(stage.source, row, key="k", timestamp=69 + 10 * number)
    driver.pipe(stage.source, {"price": 0, "kind": ""}, key="k", timestamp=1_000)
    results = [output[0] for output in driver.outputs()]
    return {name: item for name, item in max(results, key=lambda row: row["n"]).items() if name not in ("start", "end")}


@pytest.mark.parametrize("kind", WINDOWS)
def test_records_that_do_not_count_only_miss_in_their_aggregation(kind: str) -> None:
    stage = Stage()
    cheap = stage.sdf["price"] < 100
    WINDOWS[kind](stage.sdf).agg(
        n=Count(),
        cheap=Count(where=cheap),
        total=Sum("price", where=lambda row: row["price"] < 100),
        # Not read where the condition is false.
        last=Latest("kind", where=cheap),
        kinds=Collect("kind", where=cheap),
        none=Reduce(lambda old, new: 1, lambda new: 1, lambda a, b: 1, where=lambda row: False),
        rows=Reduce(lambda old, new: old + 1, lambda new: 1, lambda a, b: a + b, where=cheap),
        longest=Longest("price", "m", where=cheap),
        never=Longest("price", "m", where=lambda row: None),
        all=NoConstructor(),
    ).final()
    assert last_of(stage) == {
        "n": 4,
        "cheap": 2,
        "total": 12,
        "last": "b",
        "kinds": ["a", "b"],
        "none": None,
        "rows": 2,
        "longest": "7 m",
        "never": None,
        "all": 4,
    }


def test_sessions_merge_of_which_one_has_no_record_that_counts() -> None:
    rows: tuple[list[Any], ...]
    for rows in (ROWS[:1], [], ROWS[1:2]), ([], ROWS[:1], ROWS[1:2]):
        stage = Stage()
        stage.sdf.session_window(20).agg(
            n=Count(), longest=Longest("price", "m", where=lambda row: row["price"] < 100)
        ).final()
        driver = stage.drive()
        early, late, between = ([*rows[0], {"price": 1_000}], [*rows[1], {"price": 1_000}], rows[2])
        for timestamp, batch in ((10, early), (40, late), (25, between)):
            for row in batch:
                driver.pipe(stage.source, row, key="k", timestamp=timestamp)
        driver.pipe(stage.source, {"price": 0, "kind": ""}, key="k", timestamp=1_000)
        assert driver.outputs()[0][0] == {"start": 10, "end": 41, "n": 4, "longest": "5 m"}


def test_an_error_of_the_condition_is_an_error_of_the_record() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).agg(n=Count(where=lambda row: row["price"] < 100)).current()
    with stage.drive() as driver, pytest.raises(ProcessingError, match="KeyError: 'price'"):
        driver.pipe(stage.source, {}, key="k", timestamp=10)
    stage = Stage()
    stage.sdf.tumbling_window(10).agg(n=Count(where=stage.sdf["price"] < 100)).current()
    with stage.drive() as driver, pytest.raises(ProcessingError, match="cannot read column price") as caught:
        driver.pipe(stage.source, 5, key="k", timestamp=10)
    assert isinstance(caught.value.__cause__, ColumnTypeError)


@pytest.mark.parametrize("kind", [Count, Collect, lambda where: Reduce(max, abs, where=where)])
def test_what_is_no_condition_is_refused(kind: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"\(where=...\) is a function of the value, such as .*; got str"):
        kind(where="price < 100")


def test_conditions_see_only_the_value() -> None:
    sdf = Stage().sdf
    late = StreamingSeries.from_apply_callback(lambda value, key, timestamp, headers: timestamp > 5, sdf)
    with pytest.raises(ArgumentValueError, match=r"Count\(where=...\) sees only the value of a record"):
        Count(where=late)


def test_conditions_are_part_of_the_names_of_states() -> None:
    sdf = Stage().sdf
    cheap = sdf["price"] < 100
    assert Count(where=cheap).state_suffix == "Count where (price < 100)"
    assert Sum("x", where=lambda row: True).state_suffix == "Sum/x where"
    # Sets and functions have no text that is the same in each process.
    assert Count(where=sdf["kind"].isin({"a", "b"})).state_suffix == "Count where"
    assert Collect(where=sdf["kind"].apply(str.isupper)).state_suffix == "Collect where"
    long = Count(where=(sdf["some_long_column"] < 100) & (sdf["another_long_column"] > 5)).state_suffix
    assert long == "Count where ce8f152f0819"


def test_equal_conditions_are_computed_once() -> None:
    calls: list[int] = []

    def even(value: int) -> bool:
        calls.append(value)
        return value % 2 == 0

    stage = Stage()
    stage.sdf.tumbling_window(10).agg(n=Count(where=even), total=Sum(where=even)).current()
    driver = stage.drive()
    driver.pipe(stage.source, 4, key="k", timestamp=1)
    assert driver.outputs()[0][0] == {"start": 0, "end": 10, "n": 1, "total": 4}
    assert calls == [4]


def test_definitions_with_conditions_can_be_pickled() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).agg(
        n=Count(where=stage.sdf["price"].isin({1, 2})), all=Collect(where=lambda row: True)
    ).final()
    copy = pickle.loads(cloudpickle.dumps(stage.app.topology))
    assert [node.operator.describe() for node in copy.nodes] == ["in", "tumbling_window_10, final"]
