"""Windows against the naive model: random windows over random records, one by one through the test driver."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt import TopicConfig
from streamrt.testing import InputRecord
from tests.support import LONG
from tests.unit.apps import Stage
from tests.unit.window_model import (
    AGGREGATIONS,
    BOTH,
    COUNTED,
    TIMED,
    Late,
    Model,
    Output,
    Record,
    Window,
    follow,
    on_frame,
    shown,
    side_by_side,
    sort_out,
)

pytestmark = pytest.mark.usefixtures("processing_mode")

TOGETHER = 12
"""So many windows stand on one dataframe and see the same records: building an application costs more than running it."""

# In each of the two modes.
thoroughly = settings(
    max_examples=1_000 if LONG else 15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Sums in any order are exact.
numbers = st.one_of(st.none(), st.integers(-3, 3), st.integers(-3, 3).map(lambda n: n + 0.5))
keys = st.sampled_from([b"a", b"a", b"b", b"c", b"", None])
# Times that move on, mostly, with equal ones, late ones, and gaps.
steps = st.one_of(st.integers(0, 4), st.integers(-25, 10), st.integers(0, 60), st.just(0))


@st.composite
def histories(draw: Any, partitions: int = 1, most: int = 40) -> list[Record]:
    """Return records of several keys, out of order."""
    now, records = draw(st.integers(0, 40)), []
    # Short ones are rare: on their own, lists would mostly have about five entries.
    least = draw(st.sampled_from([most // 2, 0]))
    for key, step, value in draw(st.lists(st.tuples(keys, steps, numbers), min_size=least, max_size=most)):
        now = max(0, now + step)
        records.append(Record(key, now, value, draw(st.integers(0, partitions - 1)) if partitions > 1 else 0))
    return records


@st.composite
def windows(draw: Any, closing: Sequence[str] = ("key", "partition", "watermark")) -> Window:
    """Return any window."""
    kind = draw(st.sampled_from((*TIMED, *TIMED, *COUNTED)))
    final = draw(st.booleans())
    aggregation = draw(st.sampled_from(AGGREGATIONS if final else (*BOTH, "agg")))
    if kind in COUNTED:
        size = draw(st.integers(2, 5))
        return Window(kind, size, draw(st.integers(1, size)), 0, aggregation, final)
    size = draw(st.sampled_from([1, 2, 5, 10, 12] if kind != "hopping" else [2, 5, 10, 12]))
    step = draw(st.integers(1, size - 1)) if kind == "hopping" else 0
    grace = draw(st.sampled_from([0, 0, 1, 5, 20]))
    return Window(kind, size, step, grace, aggregation, final, draw(st.sampled_from(closing)))


# -- Record by record --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(thoroughly, max_examples=1_000 if LONG else 20)
@given(st.lists(windows(), min_size=TOGETHER // 2, max_size=TOGETHER), histories())
def test_the_driver_puts_out_what_the_model_says(several: list[Window], records: list[Record]) -> None:
    stage = Stage()
    late: list[list[Late]] = [[] for _ in several]

    def note(number: int) -> Callable[..., bool]:
        def on_late(*call: Any) -> bool:
            late[number].append(Late(*call[:6]))
            return False

        return on_late

    side_by_side(stage.sdf, several, [note(number) for number in range(len(several))])
    models = [Model(window) for window in several]
    with stage.drive() as driver:
        driver.pipe_many(InputRecord(stage.source, record.value, record.key, record.timestamp) for record in records)
        found = sort_out(driver.outputs(), len(several))
    for window, model, outputs, calls in zip(several, models, found, late, strict=True):
        assert shown(outputs) == shown([output for record in records for output in follow(model, record)]), window
        assert calls == model.late, window


def answers(wanted: Sequence[bool]) -> Callable[..., bool]:
    """Return a trigger that says something else from call to call, but the same in each run."""
    calls = 0

    def trigger(aggregated: Any, value: Any, key: Any, timestamp: int, headers: Any) -> bool:
        nonlocal calls
        calls += 1
        return wanted[calls % len(wanted)]

    return trigger


@pytest.mark.slow
@thoroughly
@given(
    st.sampled_from(["tumbling", "hopping"]),
    st.sampled_from(["reduce", "agg", "collect", "count"]),
    st.booleans(),
    st.sampled_from(["key", "partition"]),
    st.lists(st.booleans(), max_size=5),
    st.lists(st.booleans(), max_size=5),
    histories(),
)
def test_triggers(
    kind: str, aggregation: str, final: bool, closing: str, before: list[bool], after: list[bool], records: list[Record]
) -> None:
    def window() -> Window:
        return Window(
            kind,
            10,
            4,
            3,
            "reduce" if aggregation == "collect" and not final else aggregation,
            final,
            closing,
            answers(before) if before else None,
            answers(after) if after else None,
        )

    stage, model = Stage(), Model(window())
    on_frame(stage.sdf, window())
    with stage.drive() as driver:
        driver.pipe_many(InputRecord(stage.source, record.value, record.key, record.timestamp) for record in records)
        found = [Output(*output[:3]) for output in driver.outputs()]
    assert shown(found) == shown([output for record in records for output in model.record(record)])


# -- Watermarks --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@thoroughly
@given(windows(closing=["watermark"]).filter(lambda window: window.kind in TIMED), histories(partitions=3))
def test_a_watermark_is_the_lowest_time_of_all_partitions(window: Window, records: list[Record]) -> None:
    records = [record._replace(key=in_partition(record.key, record.partition)) for record in records]
    stage = Stage({"config": TopicConfig(3, 1)})
    on_frame(stage.sdf, window)
    models = [Model(window) for _ in range(3)]
    wanted: list[Output] = []
    with stage.drive() as driver:
        driver.pipe_many(
            InputRecord(stage.source, record.value, record.key, record.timestamp, partition=record.partition)
            for record in records
        )
        for record in records:
            wanted += models[record.partition].record(record)
            if (watermark := min(model.observed for model in models)) >= 0:
                # The partition of the record closes its windows with the record, the others afterwards.
                for model in (models[record.partition], *models):
                    wanted += model.tick(watermark)
        # After a while all partitions are idle, and event time goes on with the wall clock.
        driver.advance(1_000_000)
        for model in models:
            wanted += model.tick(1_000_000)
        found = [Output(*output[:3]) for output in driver.outputs()]
    assert shown(found) == shown(wanted)


def in_partition(key: bytes | None, partition: int) -> bytes | None:
    """Return a key that is only in that partition."""
    return key if key is None or partition == 0 else b"%d%s" % (partition, key)
