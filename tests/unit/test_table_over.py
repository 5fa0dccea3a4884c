"""`over()` of tables, over random changes, gives each row what its definition says of the present rows."""

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.testing import TopologyTestDriver
from streamrt.windows import (
    Aggregator,
    Collect,
    Count,
    CountDistinct,
    CumulativeDistribution,
    DenseRank,
    Earliest,
    First,
    FirstValue,
    Lag,
    LastValue,
    Lead,
    Max,
    Mean,
    NthValue,
    NTile,
    PercentRank,
    Rank,
    RowNumber,
    Sum,
)
from streamrt.windows.frames import Frame, OrderedRows
from tests.support import LONG
from tests.unit.bags import Bag, Follower, change_tables, counted, make_app, table_of

pytestmark = pytest.mark.usefixtures("processing_mode")

CASES = 100 if LONG else 3


class Longest(Aggregator):
    """An aggregator of users, which changes its state and its values."""

    def initialize(self) -> Any:
        return []

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        old.append(new.pop("n"))
        return old

    def result(self, value: Any) -> Any:
        return value


class Definition(NamedTuple):
    """A function, and what it is: a function of the rows of a group in order, a place, and the places of the frame."""

    function: Any
    define: Callable[[list[int], int, range], Any]


def peers(values: list[int], place: int) -> int:
    """Return the number of values before the first one that is equal to that of a place."""
    return values.index(values[place])


def tile(values: list[int], place: int, frame: range) -> int:
    size, larger = divmod(len(values), 2)
    return 1 if place < size + larger else 2


FUNCTIONS = {
    "number": Definition(RowNumber(), lambda values, place, frame: place + 1),
    "rank": Definition(Rank(), lambda values, place, frame: peers(values, place) + 1),
    "dense": Definition(DenseRank(), lambda values, place, frame: len(set(values[: place + 1]))),
    "percent": Definition(PercentRank(), lambda values, place, frame: peers(values, place) / max(len(values) - 1, 1)),
    "share": Definition(
        CumulativeDistribution(),
        lambda values, place, frame: (peers(values, place) + values.count(values[place])) / len(values),
    ),
    "tile": Definition(NTile(2), tile),
    "lag": Definition(Lag("n"), lambda values, place, frame: values[place - 1] if place else None),
    "lead": Definition(
        Lead("n", 2, -1), lambda values, place, frame: values[place + 2] if place + 2 < len(values) else -1
    ),
    "first": Definition(FirstValue("n"), lambda values, place, frame: values[frame[0]] if frame else None),
    "last": Definition(LastValue("n"), lambda values, place, frame: values[frame[-1]] if frame else None),
    "second": Definition(NthValue("n", 2), lambda values, place, frame: values[frame[1]] if len(frame) > 1 else None),
    "total": Definition(Sum("n"), lambda values, place, frame: sum(values[each] for each in frame)),
    "count": Definition(Count(), lambda values, place, frame: len(frame)),
    "mean": Definition(
        Mean("n"), lambda values, place, frame: sum(values[each] for each in frame) / len(frame) if frame else None
    ),
    "max": Definition(Max("n"), lambda values, place, frame: max((values[each] for each in frame), default=None)),
    "different": Definition(CountDistinct("n"), lambda values, place, frame: len({values[each] for each in frame})),
    "arrived": Definition(First("n"), lambda values, place, frame: values[frame[0]] if frame else None),
    "list": Definition(Collect("n"), lambda values, place, frame: [values[each] for each in frame]),
    "own": Definition(Longest(), lambda values, place, frame: [values[each] for each in frame]),
}
FRAMES: list[dict[str, Any]] = [
    {"rows": 1},
    {"rows": 2},
    {"rows": (-1, 1)},
    {"rows": (1, 2)},
    {"rows": (-2, -1)},
    {"rows": (None, 0)},
    {"rows": (0, None)},
    {"rows": (None, None)},
    {},
    {"range": (0, 0)},
    {"range": 1},
    {"range": (-1, 1)},
    {"range": (0, None)},
    {"range": (1, 2)},
]


def frame_of(values: list[int], place: int, frame: dict[str, Any], *, descending: bool) -> range:
    """Return the places of a frame, from its definition."""
    unit, bounds = next(iter(frame.items()), ("range", (None, 0)))
    if isinstance(bounds, int):
        bounds = (1 - bounds, 0) if unit == "rows" else (-bounds, 0)
    start, end = bounds

    def distance(other: int) -> int:
        if unit == "rows":
            return other - place
        return (values[place] - values[other]) if descending else (values[other] - values[place])

    inside = [
        other
        for other in range(len(values))
        if (start is None or distance(other) >= start) and (end is None or distance(other) <= end)
    ]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_rows_around_a_row(seed: int) -> None:
    dice = random.Random(seed)
    app = make_app()
    partitions = {"rows": dice.choice((1, 3))}
    groups = table_of(app, "rows", partitions["rows"]).group_by("a")
    made: dict[str, Callable[[Bag], Bag]] = {}
    for number, frame in enumerate(FRAMES):
        names = dice.sample(sorted(FUNCTIONS), dice.choice((1, 2)))
        descending, name = dice.random() < 0.4, f"over{number}"
        over = groups.over("n", descending=descending, name=name, **frame)
        over.agg(**{each: FUNCTIONS[each].function for each in names}).to_stream("rows").to_topic(app.topic(name))
        made[name] = lambda rows, names=names, frame=frame, descending=descending: compute(  # type: ignore[misc]
            rows, names, frame, descending=descending
        )
    driver = TopologyTestDriver(app)
    followers = {name: Follower(driver, name) for name in made}
    for now in change_tables(driver, dice, partitions, 40, {"rows": ("a", "n")}):
        for name, follower in followers.items():
            assert follower.read() == counted(made[name](now["rows"])), name


def compute(rows: Bag, names: list[str], frame: dict[str, Any], *, descending: bool) -> Bag:
    """Return rows with functions of the rows around them, from their definitions."""
    groups: dict[str, Bag] = {}
    for row in rows:
        groups.setdefault(repr(row["a"]), []).append(row)
    results = []
    for group in groups.values():
        group.sort(key=lambda row: row["n"], reverse=descending)
        values = [row["n"] for row in group]
        for place, row in enumerate(group):
            around = frame_of(values, place, frame, descending=descending)
            results.append({**row, **{name: FUNCTIONS[name].define(values, place, around) for name in names}})
    return results


def test_a_change_concerns_rows_in_reach_only() -> None:
    app = make_app()
    groups = table_of(app, "rows", 1).group_by("a")
    groups.over("n", rows=2).agg(total=Sum("n"), next=Lead("n")).to_stream("rows").to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    for key in range(5):
        driver.pipe("rows", {"a": 1, "n": 10 * key}, key=str(key))
    driver.read("out")
    driver.pipe("rows", {"a": 1, "n": 21}, key="2")
    changes = [(row["_change_type"], row["n"], row["total"], row["next"]) for row in map(value_of, driver.read("out"))]
    assert changes == [
        ("-U", 20, 30, 30),
        ("+U", 21, 31, 30),
        ("-U", 10, 10, 20),
        ("+U", 10, 10, 21),
        ("-U", 30, 50, 40),
        ("+U", 30, 51, 40),
    ]


def value_of(record: Any) -> Any:
    return record.value


def test_without_an_order_results_are_about_the_group() -> None:
    app = make_app()
    groups = table_of(app, "rows", 2).group_by("a")
    groups.over().agg(total=Sum("n")).to_stream("rows").to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    for key in range(3):
        driver.pipe("rows", {"a": 1, "n": key}, key=str(key))
    follower = Follower(driver, "out")
    assert follower.read() == counted({"a": 1, "n": n, "total": 3} for n in range(3))


def test_ranges_of_times_and_rows_without_a_value() -> None:
    frame = Frame("range", timedelta(hours=-1), 0)
    start = datetime(2026, 1, 1)
    times = [None, start, start + timedelta(hours=1), start + timedelta(hours=2, seconds=1)]
    ordered = OrderedRows.of([str(time) for time in times], [{"at": time} for time in times], "at")
    assert frame.bounds(ordered) == [(0, 1), (1, 2), (1, 3), (3, 4)]
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    ordered = OrderedRows.of(days, [{"at": day} for day in days], "at")
    assert frame.bounds(ordered) == [(0, 1), (1, 2)]
    assert Frame("range", timedelta(days=-1), 0).bounds(ordered) == [(0, 1), (0, 2)]


def test_values_that_are_not_null() -> None:
    rows = [{"n": value} for value in (None, 1, None, 2, None)]
    ordered, frame = OrderedRows.of(range(5), rows), Frame("rows", None, 0)
    assert LastValue("n", ignore_nulls=True).compute(ordered, frame) == [None, 1, 1, 2, 2]
    assert FirstValue("n", ignore_nulls=True).compute(ordered, frame) == [None, 1, 1, 1, 1]
    assert LastValue("n").compute(ordered, frame) == [None, 1, None, 2, None]


def test_what_cannot_be_computed_is_refused() -> None:
    groups = table_of(make_app(), "rows", 1).group_by("a")
    with pytest.raises(ArgumentValueError, match="one of rows"):
        groups.over("n", rows=1, range=1)
    with pytest.raises(ArgumentValueError, match="without order_by"):
        groups.over(rows=3)
    with pytest.raises(ArgumentValueError, match="ends before it starts"):
        groups.over("n", rows=(1, -1))
    with pytest.raises(ArgumentValueError, match="one column"):
        groups.over(["n", "m"], range=5)
    with pytest.raises(ArgumentValueError, match="a pair"):
        groups.over("n", rows=(1, 2, 3))
    with pytest.raises(ArgumentTypeError, match="a number of rows"):
        groups.over("n", rows="3")
    with pytest.raises(ArgumentTypeError, match="order_by"):
        groups.over(7)
    with pytest.raises(ArgumentValueError, match="at least one function"):
        groups.over("n").agg()
    with pytest.raises(ArgumentTypeError, match="the class Sum"):
        groups.over("n").agg(total=Sum)
    with pytest.raises(InvalidOperationError, match="have no times"):
        groups.over("n").agg(total=Earliest("n"))
    groups.over("n").agg(total=Sum("n"))
    with pytest.raises(InvalidOperationError, match=r"over\(\.\.\., name='"):
        groups.over("n").agg(total=Sum("n"))
