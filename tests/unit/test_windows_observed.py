"""Windows against outputs that were recorded elsewhere: of what users of this API rely on, nothing may change unnoticed.

The records of windows_observed.txt go through the test driver and through the naive model.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import StreamRTError
from streamrt.windows import (
    Aggregator,
    Collect,
    Collector,
    Count,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
)
from tests.unit.apps import Stage
from tests.unit.window_model import Late, Model, Output, Record, Window, append, on_frame, single

pytestmark = pytest.mark.usefixtures("processing_mode")

OBSERVED = Path(__file__).with_name("windows_observed.txt")

TRIGGERS: dict[str, Callable[..., bool]] = {
    "1": lambda aggregated, value, key, timestamp, headers: value == 1,
    "2": lambda aggregated, value, key, timestamp, headers: value == 2,
    "3": lambda aggregated, value, key, timestamp, headers: value == 3,
    "5": lambda aggregated, value, key, timestamp, headers: value == 5,
    "3 or 5": lambda aggregated, value, key, timestamp, headers: value in (3, 5),
    "3 values": lambda aggregated, value, key, timestamp, headers: bool(aggregated) and len(aggregated) == 3,
}


@dataclass
class Case:
    """Records with what each of them puts out."""

    name: str
    window: Window
    records: list[Record]
    outputs: list[list[Output]]


def read_output(text: str, key: bytes | None) -> Output:
    bounds, value = text.split("=", 1)
    name, bounds = bounds[:-1].split("[")
    start, end = (int(bound) for bound in bounds.split(","))
    owner = name[:-1].encode() if name else key or b""
    return Output({"start": start, "end": end, "value": json.loads(value)}, owner, start)


def read_outputs(text: str, key: bytes | None) -> list[Output]:
    # An error is told by its name.
    return [] if not text or text.endswith("Error") else [read_output(part, key) for part in text.split(" | ")]


def read_cases() -> Iterator[Case]:
    case: Case | None = None
    for line in OBSERVED.read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        if line.startswith("== "):
            if case is not None:
                yield case
            _, name, fields = line.split(" ", 2)
            options = json.loads(fields)
            triggers: dict[str, Any] = {
                name: TRIGGERS[options.pop(name)] for name in ("before", "after") if name in options
            }
            case = Case(name, Window(**options, **triggers), [], [])
            continue
        assert case is not None
        if line.startswith("ours:"):
            case.outputs[-1] = read_outputs(line[5:].strip(), case.records[-1].key)
            continue
        given, _, results = line.partition(" -> ")
        place, value = given.split(" ", 1)
        name, timestamp = place.split("@")
        key = None if name == "-" else name.encode()
        case.records.append(Record(key, int(timestamp), json.loads(value)))
        case.outputs.append(read_outputs(results, key))
    assert case is not None
    yield case


CASES = list(read_cases())


def drive(build: Callable[[Any], Any], records: list[Record], **settings: Any) -> list[list[Any]]:
    """Return value, key and timestamp of what each record puts out."""
    stage = Stage(**settings)
    build(stage.sdf)
    outputs = []
    with stage.drive() as driver:
        for record in records:
            driver.pipe_bytes(
                stage.source, json.dumps(record.value).encode(), key=record.key, timestamp=record.timestamp
            )
            outputs.append([output[:3] for output in driver.outputs()])
    return outputs


def of_key(*records: tuple[int, Any]) -> list[Record]:
    return [Record(b"a", timestamp, value) for timestamp, value in records]


def skipped(error: Exception, record: Any, logger: Any) -> bool:
    return True


def test_there_are_enough() -> None:
    assert len(CASES) >= 70


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_observed(case: Case) -> None:
    found = drive(lambda sdf: on_frame(sdf, case.window), case.records)
    assert found == [[tuple(output) for output in outputs] for outputs in case.outputs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_says_the_same(case: Case) -> None:
    model = Model(case.window)
    assert [model.record(record) for record in case.records] == case.outputs


# -- Aggregations ------------------------------------------------------------------------------------------------------

COLUMN_RECORDS = of_key(
    (1, {"x": 3, "y": "q"}),
    (5, {"x": None, "y": "w"}),
    (3, {"x": 1.5, "y": None}),
    (5, {"y": "zz"}),
    (5, {"x": True, "y": "k"}),
    (2, {"x": 1e20, "y": "k"}),
    (1, {"x": 3, "y": "first"}),
    (10, {"x": 7}),
)
COLUMN_RESULTS = [
    # count, of x, sum, mean, min, max, first, last, earliest, latest x; first, last, earliest, latest, min y
    [1, 1, 3, 3.0, 3, 3, 3, 3, 3, 3, "q", "q", "q", "q", "q"],
    [2, 1, 3, 3.0, 3, 3, 3, 3, 3, 3, "q", "w", "q", "w", "q"],
    [3, 2, 4.5, 2.25, 1.5, 3, 3, 1.5, 3, 1.5, "q", "w", "q", "w", "q"],
    [4, 2, 4.5, 2.25, 1.5, 3, 3, 1.5, 3, 1.5, "q", "zz", "q", "zz", "q"],
    [5, 3, 5.5, 5.5 / 3, True, 3, 3, True, 3, True, "q", "k", "q", "k", "k"],
    [6, 4, 1e20, 2.5e19, True, 1e20, 3, 1e20, 3, True, "q", "k", "q", "k", "k"],
    [7, 5, 1e20, 2e19, True, 1e20, 3, 3, 3, True, "q", "first", "q", "k", "first"],
    [1, 1, 7, 7.0, 7, 7, 7, 7, 7, 7, None, None, None, None, None],
]


# Elsewhere a missing column counts as None; here, missing="ignore" says so.
def test_aggregations_of_columns() -> None:
    def build(sdf: Any) -> Any:
        return (
            sdf.tumbling_window(10)
            .agg(
                c=Count(),
                cx=Count("x", missing="ignore"),
                s=Sum("x", missing="ignore"),
                m=Mean("x", missing="ignore"),
                mi=Min("x", missing="ignore"),
                ma=Max("x", missing="ignore"),
                f=First("x", missing="ignore"),
                l=Last("x", missing="ignore"),
                e=Earliest("x", missing="ignore"),
                la=Latest("x", missing="ignore"),
                fy=First("y", missing="ignore"),
                ly=Last("y", missing="ignore"),
                ey=Earliest("y", missing="ignore"),
                lay=Latest("y", missing="ignore"),
                miy=Min("y", missing="ignore"),
            )
            .current()
        )

    found = drive(build, COLUMN_RECORDS)
    rows = [list(outputs[0][0].values())[2:] for outputs in found]
    # Comparing strings tells 1, 1.0 and True apart.
    assert [repr(row) for row in rows] == [repr(row) for row in COLUMN_RESULTS]


ALL = ["first", "last", "earliest", "latest", "min", "max", "mean", "sum", "count"]


def build_all(sdf: Any) -> Any:
    return (
        sdf.tumbling_window(10)
        .agg(
            first=First(),
            last=Last(),
            earliest=Earliest(),
            latest=Latest(),
            min=Min(),
            max=Max(),
            mean=Mean(),
            sum=Sum(),
            count=Count(),
        )
        .current()
    )


@pytest.mark.parametrize(
    ("records", "results"),
    [
        pytest.param(
            of_key((5, None), (4, 2), (3, 1.0), (5, 1), (4, 2.0), (4, 1e300), (4, -1), (4, True)),
            [
                [None, None, None, None, None, None, None, 0, 0],
                [2, 2, 2, 2, 2, 2, 2.0, 2, 1],
                [2, 1.0, 1.0, 2, 1.0, 2, 1.5, 3.0, 2],
                [2, 1, 1.0, 1, 1.0, 2, 4 / 3, 4.0, 3],
                [2, 2.0, 1.0, 1, 1.0, 2, 1.5, 6.0, 4],
                [2, 1e300, 1.0, 1, 1.0, 1e300, 2e299, 1e300, 5],
                [2, -1, 1.0, 1, -1, 1e300, 1e300 / 6, 1e300, 6],
                [2, True, 1.0, 1, -1, 1e300, 1e300 / 7, 1e300, 7],
            ],
            id="numbers",
        ),
        pytest.param(
            of_key((5, None), (6, None)),
            [[None, None, None, None, None, None, None, 0, 0]] * 2,
            id="None",
        ),
        pytest.param(
            of_key((5, True), (5, 2**60), (5, 2**60)),
            [
                [True, True, True, True, True, True, 1.0, 1, 1],
                [True, 2**60, True, 2**60, True, 2**60, (2**60 + 1) / 2, 2**60 + 1, 2],
                [True, 2**60, True, 2**60, True, 2**60, (2**61 + 1) / 3, 2**61 + 1, 3],
            ],
            id="large",
        ),
    ],
)
def test_aggregations_of_values(records: list[Record], results: list[list[Any]]) -> None:
    rows = [[outputs[0][0][name] for name in ALL] for outputs in drive(build_all, records)]
    assert [repr(row) for row in rows] == [repr(row) for row in results]


def test_aggregations_of_merged_sessions() -> None:
    def build(sdf: Any) -> Any:
        made = sdf.session_window(10, grace_ms=100)
        return made.agg(f=First(), l=Last(), e=Earliest(), la=Latest(), m=Mean(), s=Sum(), c=Count()).current()

    records = of_key((10, 1), (30, 2), (20, 3), (45, 4), (35, 5), (25, 6), (10, 7), (45, 8), (45, 9))
    found = [list(outputs[0][0].values()) for outputs in drive(build, records)]
    assert found == [
        [10, 11, 1, 1, 1, 1, 1.0, 1, 1],
        [30, 31, 2, 2, 2, 2, 2.0, 2, 1],
        # Elsewhere the last value is that of the later session, here of the record that arrived last.
        [10, 31, 1, 3, 1, 2, 2.0, 6, 3],
        [45, 46, 4, 4, 4, 4, 4.0, 4, 1],
        [10, 46, 1, 5, 1, 4, 3.0, 15, 5],
        [10, 46, 1, 6, 1, 4, 3.5, 21, 6],
        [10, 46, 1, 7, 1, 4, 4.0, 28, 7],
        [10, 46, 1, 8, 1, 8, 4.5, 36, 8],
        [10, 46, 1, 9, 1, 9, 5.0, 45, 9],
    ]


class Trace(Aggregator):
    """Shows each call."""

    def initialize(self) -> Any:
        return [0]

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        return [*old, new, timestamp]

    def result(self, value: Any) -> Any:
        return f"result of {value}"

    def merge(self, left: Any, right: Any) -> Any:
        return [*left, "and", *right]


class Kind(Collector):
    """Shows what it gets."""

    def result(self, items: Any) -> Any:
        return [type(items).__name__, *items]


def test_aggregators_of_users() -> None:
    def fixed(sdf: Any) -> Any:
        return sdf.tumbling_window(10).agg(a=Trace(), c=Kind()).final()

    def session(sdf: Any) -> Any:
        return sdf.session_window(10).agg(a=Trace(), c=Kind()).final()

    found = drive(fixed, of_key((1, 5), (2, None), (1, 6), (12, 0)))
    assert found[-1][0][0] == {
        "start": 0,
        "end": 10,
        "a": "result of [0, 5, 1, None, 2, 6, 1]",
        "c": ["list", 5, 6, None],
    }
    found = drive(session, of_key((10, 1), (30, 2), (20, 3), (100, 4)))
    assert found[-1][0][0]["a"] == "result of [0, 1, 10, 3, 20, 'and', 0, 2, 30]"
    assert found[-1][0][0]["c"] == ["list", 1, 3, 2]


def test_collected_columns() -> None:
    def build(sdf: Any) -> Any:
        return sdf.tumbling_window(10).agg(x=Collect("x", missing="ignore"), n=Count()).final()

    # A missing column raises KeyError elsewhere, and not before the window closes.
    records = of_key((1, {"x": 1}), (2, {"x": None}), (1, {"x": [1]}), (3, {}), (12, {"x": 1}))
    assert drive(build, records)[-1][0][0] == {"start": 0, "end": 10, "x": [1, [1], None, None], "n": 4}


def test_an_error_changes_no_window() -> None:
    def divide(aggregated: float, value: int) -> float:
        return aggregated + 1 // value

    def build(sdf: Any) -> Any:
        return sdf.hopping_window(10, 5).reduce(divide, lambda value: value).current()

    records = of_key((7, 1), (8, 0), (8, 1), (12, 0), (13, 1), (25, 1))
    found = drive(build, records, on_processing_error=skipped)
    shown = [[(value["start"], value["value"]) for value, _, _ in outputs] for outputs in found]
    assert shown == [[(0, 1), (5, 1)], [], [(0, 2), (5, 2)], [], [(5, 3), (10, 1)], [(20, 1), (25, 1)]]


def test_an_error_in_a_merger_changes_no_session() -> None:
    def merge(left: int, right: int) -> int:
        if right == 3:
            raise ValueError("no")
        return left + right

    def build(sdf: Any) -> Any:
        return sdf.session_window(10, grace_ms=100).reduce(lambda a, v: a + v, lambda v: v, merge).current()

    records = of_key((10, 1), (30, 3), (20, 5), (30, 1), (20, 5))
    found = drive(build, records, on_processing_error=skipped)
    shown = [[tuple(value.values()) for value, _, _ in outputs] for outputs in found]
    assert shown == [[(10, 11, 1)], [(30, 31, 3)], [], [(30, 31, 4)], [(10, 31, 10)]]


@pytest.mark.parametrize(
    ("method", "values"),
    [("sum", ["a", 1, [1]]), ("mean", ["a", 1, "z"]), ("min", [1, "b", 2])],
)
def test_values_that_do_not_go_together_are_errors(method: str, values: list[Any]) -> None:
    def build(sdf: Any) -> Any:
        return getattr(sdf.tumbling_window(10), method)().current()

    found = drive(build, of_key(*((5, value) for value in values)), on_processing_error=skipped)
    assert [len(outputs) for outputs in found] == ([1, 0, 1] if method == "min" else [0, 1, 0])


# -- What comes too late -----------------------------------------------------------------------------------------------

LATE = of_key((1, 1), (12, 2), (9, 3), (25, 4), (19, 5), (3, 6), (12, 7), (13, 8))


@pytest.mark.parametrize(
    ("window", "store", "late"),
    [
        pytest.param(
            Window("tumbling", 10, grace=2, aggregation="sum"),
            "tumbling_window_10_sum",
            [
                (3, 9, 1, 0, 10),
                (5, 19, 4, 10, 20),
                (6, 3, 20, 0, 10),
                (7, 12, 11, 10, 20),
                (8, 13, 10, 10, 20),
            ],
            id="tumbling",
        ),
        pytest.param(
            Window("hopping", 10, 5, grace=2, aggregation="mean"),
            "hopping_window_10_5_mean",
            [
                (3, 9, 1, 0, 10),
                (5, 19, 4, 10, 20),
                (6, 3, 20, 0, 10),
                (7, 12, 11, 5, 15),
                (7, 12, 11, 10, 20),
                (8, 13, 10, 5, 15),
                (8, 13, 10, 10, 20),
            ],
            id="hopping",
        ),
        pytest.param(
            # Elsewhere, the bounds are [10, 20] for 19 and for 13.
            Window("sliding", 10, grace=2, aggregation="sum"),
            "sliding_window_10_sum",
            [(5, 19, 4, 9, 19), (6, 3, 20, 0, 3), (7, 12, 11, 2, 12), (8, 13, 10, 3, 13)],
            id="sliding",
        ),
        pytest.param(
            Window("session", 10, grace=2, aggregation="collect"),
            "session_window_10_collect",
            [(6, 3, 10, 3, 4), (7, 12, 1, 12, 13)],
            id="session",
        ),
    ],
)
def test_what_is_told_of_late_records(window: Window, store: str, late: list[tuple[int, ...]]) -> None:
    calls: list[tuple[Any, ...]] = []

    def on_late(*call: Any) -> bool:
        calls.append(call)
        return False

    drive(lambda sdf: on_frame(sdf, window, None, on_late), LATE)
    assert [call[:6] for call in calls] == [
        (value, b"a", timestamp, late_by, start, end) for value, timestamp, late_by, start, end in late
    ]
    assert [call[6:] for call in calls] == [(store, "in", 0, value - 1) for value, *_ in late]
    model = Model(window)
    for record in LATE:
        model.record(record)
    assert model.late == [Late(*call[:6]) for call in calls]


# -- What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda sdf: sdf.hopping_window(10, 10), "step"),
        (lambda sdf: sdf.hopping_window(10, 0), "step"),
        (lambda sdf: sdf.tumbling_window(0), "duration"),
        (lambda sdf: sdf.sliding_window(0), "duration"),
        (lambda sdf: sdf.tumbling_window(10, grace_ms=-1), "grace"),
        (lambda sdf: sdf.tumbling_window(10.5), "duration"),
        (lambda sdf: sdf.session_window(0), "inactivity_gap"),
        (lambda sdf: sdf.session_window(10, grace_ms=-1), "grace"),
        (lambda sdf: sdf.session_window(10).reduce(append, single).final(), "merge"),
        (lambda sdf: sdf.tumbling_window(10).agg(), "agg"),
        (lambda sdf: sdf.tumbling_window(10).agg(start=Sum()), "start"),
        (lambda sdf: sdf.tumbling_window(10).collect().current(), "final"),
        (lambda sdf: sdf.tumbling_window(10).agg(r=Reduce(append, single), c=Collect()).current(), "final"),
        (lambda sdf: sdf.tumbling_window(10).sum().final(closing_strategy="foo"), "partition"),
        (lambda sdf: sdf.tumbling_count_window(1), "count"),
        (lambda sdf: sdf.sliding_count_window(0), "count"),
        (lambda sdf: sdf.hopping_count_window(3, 0), "step"),
        # Elsewhere, a larger step counts as one of the same size.
        (lambda sdf: sdf.hopping_count_window(3, 4), "step"),
        (lambda sdf: (sdf.tumbling_window(10).sum().final(), sdf.tumbling_window(10, 5).sum().final()), "name="),
    ],
)
def test_what_is_refused(build: Callable[[Any], Any], words: str) -> None:
    with pytest.raises((StreamRTError, ValueError, TypeError), match=words):
        build(Stage().sdf)
