"""Side outputs: what an operator puts out in addition to its results."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import ArgumentValueError
from streamrt.topology import SideOutput
from tests.unit.apps import Stage

Build = Callable[[StreamingDataFrame], StreamingDataFrame]


def late_of(build: Build, *records: tuple[int, Any]) -> tuple[list[Any], list[Any]]:
    """Send records (timestamp, value) of one key through windows; return the results, and the times of late records."""
    stage = Stage()
    results: list[Any] = []
    late: list[Any] = []
    window = build(stage.sdf)
    window.update(results.append)
    window.side_output("late").update(late.append)
    driver = stage.drive()
    for timestamp, value in records:
        driver.pipe(stage.source, value, key="k", timestamp=timestamp)
    return [(each["start"], each["value"]) for each in results], late


@pytest.mark.rows("PF-G19", "PF-H3")
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize(
    "windows",
    [
        lambda sdf: sdf.tumbling_window(10),
        lambda sdf: sdf.hopping_window(10, 5),
        lambda sdf: sdf.sliding_window(10),
        lambda sdf: sdf.session_window(10),
    ],
)
def test_late_records_leave_windows_as_they_came(windows: Any, final: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    counts = windows(stage.sdf).count()
    found = counts.final() if final else counts.current()
    late: list[Any] = []
    found.side_output("late").update(lambda *record: late.append(record), metadata=True)
    driver = stage.drive()
    for timestamp in (100, 1_000, 100):
        driver.pipe(stage.source, {"t": timestamp}, key="k", timestamp=timestamp, headers=[("h", b"1")])
    assert late == [({"t": 100}, b"k", 100, [("h", b"1")])]
    assert "too late" not in caplog.text


@pytest.mark.rows("PF-G19", "PF-H3")
def test_a_record_that_is_late_for_some_windows_is_not_late() -> None:
    heard = []

    def on_late(value: Any, key: Any, timestamp: int, late_by: int, start: int, *rest: Any) -> bool:
        heard.append((value, start))
        return True

    found = late_of(
        lambda sdf: sdf.hopping_window(10_000, 5_000, on_late=on_late).collect().final(closing_strategy="partition"),
        *((time, time) for time in (7_000, 12_000, 8_000, 16_000, 9_000)),
    )
    assert found == ([(0, [7_000]), (5_000, [7_000, 8_000, 12_000])], [9_000])
    assert heard == [(8_000, 0), (9_000, 0), (9_000, 5_000)]


def test_a_record_within_the_grace_is_not_late() -> None:
    found = late_of(
        lambda sdf: sdf.tumbling_window(5_000, grace_ms=2_000).count().final(closing_strategy="partition"),
        *((time, time) for time in (1_000, 4_000, 5_000, 3_000, 7_000, 2_000)),
    )
    assert found == ([(0, 3)], [2_000])


def test_a_late_record_is_not_late_for_sliding_windows_to_come() -> None:
    found = late_of(
        lambda sdf: sdf.sliding_window(10).collect().final(),
        *((100, "a"), (95, "late"), (89, "too late"), (104, "b"), (200, "c")),
    )
    assert found == ([(90, ["late", "a"]), (94, ["late", "a", "b"])], ["too late"])


@pytest.mark.rows("PF-G19")
def test_without_a_reader_late_records_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).count().final(closing_strategy="partition")
    driver = stage.drive()
    with caplog.at_level(logging.WARNING):
        for timestamp in (100, 1_000, 100):
            driver.pipe(stage.source, 1, key="k", timestamp=timestamp)
    assert "900 ms too late" in caplog.text


def test_several_frames_may_read_a_side_output_each_with_its_own_copy() -> None:
    stage = Stage()
    windows = stage.sdf.tumbling_window(10).count().final(closing_strategy="partition")
    seen: list[Any] = []
    for name in "ab":
        late = windows.side_output("late")
        late["by"] = name
        late.update(seen.append)
    driver = stage.drive()
    for timestamp in (100, 1_000, 100):
        driver.pipe(stage.source, {"t": timestamp}, key="k", timestamp=timestamp)
    assert seen == [{"t": 100, "by": "a"}, {"t": 100, "by": "b"}]


def test_changes_in_place_leave_a_frame_its_side_outputs() -> None:
    stage = Stage()
    windows = stage.sdf.tumbling_window(10).count().final()
    windows["more"] = 1
    windows.print()
    windows.side_output("late").to_topic(stage.out)
    described = stage.app.describe()
    assert "side_output-" in described
    assert "(late)" in described


@pytest.mark.rows("PF-H1")
def test_unknown_side_outputs_are_refused_when_the_frame_is_built() -> None:
    stage = Stage()
    windows = stage.sdf.tumbling_window(10).count().final()
    with pytest.raises(ArgumentValueError, match="no side output 'early': its side outputs are 'late'"):
        windows.side_output("early")
    with pytest.raises(ArgumentValueError, match=r"^source-0 \(in\).* no side output 'late': it has no side outputs$"):
        stage.sdf.side_output("late")
    counted = stage.sdf.tumbling_count_window(2).count().final()
    with pytest.raises(ArgumentValueError, match="it has no side outputs"):
        counted.side_output("late")


def test_late_records_may_be_older_than_any_watermark() -> None:
    stage = Stage()
    windows = stage.sdf.tumbling_window(10).count().final(closing_strategy="watermark")
    windows.side_output("late").group_by("shop").tumbling_window(10).count().final(closing_strategy="watermark")
    windows.group_by("value").tumbling_window(10).count().final(closing_strategy="watermark")
    topology = stage.app.topology
    holds = {exchange: topology.holds_back_ms(exchange) for exchange in topology.exchanges}
    assert sorted(holds.values(), key=str) == [10, None]
    assert [node.operator for node in topology.nodes if isinstance(node.operator, SideOutput)] == [
        SideOutput("late", late=True)
    ]
