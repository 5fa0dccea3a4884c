"""Windows with an offset, and sessions whose gap follows from the records."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from streamrt import StreamingDataFrame
from streamrt.errors import ArgumentValueError, ProcessingError
from streamrt.testing import InputRecord
from streamrt.windows import Window
from tests.unit.apps import Stage

CLOSINGS = pytest.mark.parametrize("closing", ["key", "partition", "watermark"])


def shifted(by: int) -> Callable[[Any, Any, int, Any], int]:
    return lambda value, key, timestamp, headers: timestamp + by


def outputs(build: Callable[[StreamingDataFrame], StreamingDataFrame], records: Sequence[tuple[int, int]]) -> list[Any]:
    """Return value and timestamp of what a window puts out for values and timestamps."""
    stage = Stage()
    found: list[Any] = []
    build(stage.sdf).update(lambda value, key, time, headers: found.append((value, time)), metadata=True)
    stage.drive().pipe_many(
        InputRecord(stage.source, value, b"%d" % (value % 2), timestamp) for value, timestamp in records
    )
    return found


def moved(results: Sequence[Any], by: int) -> list[Any]:
    return [({**value, "start": value["start"] + by, "end": value["end"] + by}, time + by) for value, time in results]


@pytest.mark.rows("PF-G1", "PF-G2")
def test_a_window_is_an_interval() -> None:
    window = Window(5, 10)
    assert window.max_timestamp == 9
    # Those that touch are one session.
    meeting = [start for start in range(20) if window.intersects(Window(start, start + 2))]
    assert meeting == [*range(3, 11)]
    assert window.cover(Window(1, 6)) == Window(1, 10)
    assert [Window.start_of(time, 10, 4) for time in (4, 13, 14, 23, 24)] == [4, 4, 14, 14, 24]


@pytest.mark.rows("PF-G29")
@CLOSINGS
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize(("duration", "step"), [(10, 10), (12, 5), (10, 5)])
@pytest.mark.parametrize("offset", [3, -2])
def test_an_offset_moves_windows(closing: Any, final: bool, duration: int, step: int, offset: int) -> None:
    random_of = random.Random(f"{closing} {final} {duration} {step} {offset}")
    records = [(number, 100 + number + random_of.randrange(30)) for number in range(60)]

    def window(sdf: StreamingDataFrame, offset: int) -> StreamingDataFrame:
        if step == duration:
            defined = sdf.tumbling_window(duration, grace_ms=4, offset_ms=offset)
        else:
            defined = sdf.hopping_window(duration, step, grace_ms=4, offset_ms=offset)
        return defined.collect().final(closing) if final else defined.sum().current(closing)

    expected = outputs(lambda sdf: window(sdf.set_timestamp(shifted(-offset)), 0), records)
    assert len(expected) > 5
    assert outputs(lambda sdf: window(sdf, offset), records) == moved(expected, offset)


@pytest.mark.rows("PF-G2")
@CLOSINGS
@pytest.mark.parametrize("final", [True, False])
def test_the_first_window_begins_in_1970(closing: Any, final: bool) -> None:
    def window(sdf: StreamingDataFrame) -> StreamingDataFrame:
        defined = sdf.hopping_window(10, 5, offset_ms=timedelta(milliseconds=2))
        return defined.collect().final(closing) if final else defined.sum().current(closing)

    found = outputs(window, [(2, 0), (4, 3), (8, 30)])
    first: list[Any] = [{"start": 0, "end": 7, "value": [2, 4]}, {"start": 2, "end": 12, "value": [4]}]
    if final:
        assert found == [(value, value["start"]) for value in first]
    else:
        assert [(value["start"], value["end"], value["value"], time) for value, time in found][:3] == [
            (0, 7, 2, 0),
            (0, 7, 6, 0),
            (2, 12, 4, 2),
        ]


@pytest.mark.parametrize("offset", [10, -10, timedelta(milliseconds=11)])
def test_an_offset_is_less_than_the_distance_of_windows(offset: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"tumbling_window\(offset_ms=.*less than the distance of 10 ms"):
        Stage().sdf.tumbling_window(10, offset_ms=offset)
    with pytest.raises(ArgumentValueError, match=r"hopping_window\(offset_ms=.*less than the distance of 10 ms"):
        Stage().sdf.hopping_window(100, 10, offset_ms=offset)


def test_windows_with_and_without_an_offset_have_stores_of_their_own() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).count().final()
    stage.sdf.tumbling_window(10, offset_ms=5).count().final()
    stage.sdf.tumbling_window(10, offset_ms=-5).count().final()
    names = {store.name for node in stage.app.topology.nodes for store in node.operator.stores()}
    assert names == {
        "tumbling_window_10_count",
        "tumbling_window_10_offset_5_count",
        "tumbling_window_10_offset_-5_count",
    }


@CLOSINGS
@pytest.mark.parametrize("final", [True, False])
def test_a_constant_gap_may_be_a_function(closing: Any, final: bool) -> None:
    random_of = random.Random(f"{closing} {final}")
    records = [(number, number * 4 + random_of.randrange(40)) for number in range(80)]

    def window(sdf: StreamingDataFrame, gap: Any) -> StreamingDataFrame:
        defined = sdf.session_window(gap, grace_ms=3)
        if final:
            return defined.collect().final(closing)
        return defined.reduce(lambda old, new: [*old, new], lambda value: [value], lambda a, b: a + b).current(closing)

    expected = outputs(lambda sdf: window(sdf, 7), records)
    assert len(expected) > 5
    assert outputs(lambda sdf: window(sdf, lambda value: timedelta(milliseconds=7)), records) == expected


@pytest.mark.rows("PF-G33")
@CLOSINGS
def test_each_record_has_its_gap(closing: Any) -> None:
    def window(sdf: StreamingDataFrame) -> StreamingDataFrame:
        return sdf.session_window(lambda value: value, grace_ms=1, name="own").collect().final(closing)

    # 20 reaches from 100 to 120; 4 from 110 to 114; 2 from 125 to 127; 6 covers 118 to 124: no session meets the last one.
    found = outputs(window, [(20, 100), (4, 110), (2, 125), (6, 118), (100, 1_000)])
    assert found == [
        ({"start": 125, "end": 126, "value": [2]}, 125),
        ({"start": 100, "end": 119, "value": [20, 4, 6]}, 100),
    ]


@pytest.mark.rows("PF-G33")
@pytest.mark.parametrize("gap", [0, -1, None, "5"])
def test_a_function_that_returns_no_gap(gap: Any) -> None:
    with pytest.raises(ProcessingError, match="the inactivity gap that the function returns must be"):
        outputs(lambda sdf: sdf.session_window(lambda value: gap).count().final(), [(1, 1)])
