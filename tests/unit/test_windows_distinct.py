"""Counts of distinct values: what they keep. Their results in all windows are in `test_windows_properties.py`."""

import random
from typing import Any

import pytest

from streamrt.errors import ProcessingError
from streamrt.operators.closing import Closing
from streamrt.state.layout import split_prefix
from streamrt.windows import CollectSet, Count, CountDistinct, CountTrigger, Reduce, Sum, distinct
from streamrt.windows.aggregation import Aggregation
from streamrt.windows.closing import WindowOperator
from streamrt.windows.count import CountWindowOperator
from streamrt.windows.fixed import FixedWindow
from streamrt.windows.session import SessionWindow
from streamrt.windows.sliding import SlidingWindow
from tests.support import LONG
from tests.unit.apps import Stage
from tests.unit.test_windows_behaviour import STORE, Task

pytestmark = pytest.mark.usefixtures("processing_mode")

USERS = Aggregation.named(n=Count(), users=CountDistinct(), large=CollectSet(where=lambda value: value > 5))
KINDS: dict[str, Any] = {
    "tumbling": (FixedWindow, {"duration_ms": 10, "step_ms": 10}, 1),
    "hopping": (FixedWindow, {"duration_ms": 10, "step_ms": 4}, 1),
    "triggered": (
        FixedWindow,
        {
            "duration_ms": 10,
            "step_ms": 4,
            "before_update": lambda result, value, *_: value == 3,
            "after_update": lambda result, value, *_: result["users"] == 4,
        },
        1,
    ),
    "session": (SessionWindow, {"gap_ms": 3}, 2),
    "sliding": (SlidingWindow, {"duration_ms": 10}, 1),
    "count": (CountWindowOperator, {"count": 5, "step": 2}, 3),
}


def referred_to(task: Task, at: int) -> dict[tuple[bytes, str], int]:
    """Return the sets that the heads refer to, with their sizes: by record key and number of the set."""
    found = {}
    for prefix, head in task.transaction.heads():
        for window in head[1]:
            for name, state in window[at].items():
                if ("CountDistinct" in name or "CollectSet" in name) and state is not None:
                    number, count = state[0] if type(state[0]) is list else state
                    found[prefix, str(number)] = count
    return found


def stored_sets(task: Task) -> dict[tuple[bytes, str], int]:
    found: dict[tuple[bytes, str], int] = {}
    for key, _ in task.partition.scan(b"\x05", b"\x06"):
        _, rest = split_prefix(key[1:])
        record, rest = rest[:1], rest[1:]
        prefix, name = key[1:3] + record, rest[1 : 1 + rest[0]].decode()
        found[prefix, name] = found.get((prefix, name), 0) + 1
    return found


@pytest.mark.parametrize("seed", range(20 if LONG else 2))
@pytest.mark.parametrize("closing", ["key", "partition"])
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_kept_longer_than_its_window(kind: str, final: bool, closing: Any, seed: int) -> None:
    make, options, at = KINDS[kind]
    closings: dict[str, Any] = {} if kind == "count" else {"closing": Closing(closing), "grace_ms": 4}
    operator: WindowOperator = make(STORE, USERS, final, **options, **closings)
    task, dice, now = Task(operator), random.Random(seed), 100
    for number in range(150):
        now = max(0, now + dice.choice([0, 1, 2, 5, 30, -3, -20]))
        task.run(dice.randrange(9), dice.choice([b"a", b"b"]), now)
        if number % 7 == 0:
            task.commit()
            assert stored_sets(task) == referred_to(task, at)
            assert number < 20 or task.outputs


def test_a_record_writes_one_value_whatever_the_size_of_the_window_is() -> None:
    task = Task(FixedWindow(STORE, Aggregation.of(CountDistinct()), False, duration_ms=10, step_ms=10))
    for value in range(1_000):
        task.run(value, b"a", 1)
    task.commit()
    task.run(5, b"a", 1)
    task.run(1_000, b"a", 1)
    assert task.outputs[-1][1]["value"] == 1_001
    changes = task.transaction.prepare()
    assert [key[:1] for key, _ in changes] == [b"\x02", b"\x05"]
    assert sum(len(key) + len(value or b"") for key, value in changes) < 100


def test_values_of_a_skipped_record_do_not_count() -> None:
    def refuse(value: int) -> int:
        if value == 7:
            raise ValueError("seven")
        return value

    stage = Stage(on_processing_error=lambda *_: True)
    stage.sdf.hopping_window(10, 5).agg(
        users=CountDistinct(), refuse=Reduce(lambda old, new: refuse(new), refuse)
    ).current()
    driver = stage.drive()
    for value in (1, 7, 2, 7, 1):
        driver.pipe(stage.source, value, key="k", timestamp=7)
    assert [output[0]["users"] for output in driver.outputs()] == [1, 1, 2, 2, 2, 2]


def test_windows_with_triggers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_MOST_IN_HEAD", 3)
    stage = Stage()
    stage.sdf.tumbling_window(100).agg(n=Count(), users=CountDistinct()).trigger(CountTrigger(1))
    driver = stage.drive()
    for value in (1, 1.0, "a", "b", "a"):
        driver.pipe(stage.source, value, key="k", timestamp=7)
    assert [output[0]["users"] for output in driver.outputs()] == [1, 1, 2, 3, 3]
    with pytest.raises(
        ProcessingError, match=r"CountDistinct has 3 different values in one window.*ApproxCountDistinct"
    ):
        driver.pipe(stage.source, "c", key="k", timestamp=7)


def test_sets_of_sessions_with_triggers_merge() -> None:
    stage = Stage()
    stage.sdf.session_window(10).agg(users=CountDistinct()).trigger(CountTrigger(1))
    driver = stage.drive()
    for value, timestamp in (("a", 1), ("b", 15), ("a", 9)):
        driver.pipe(stage.source, value, key="k", timestamp=timestamp)
    assert [output[0]["users"] for output in driver.outputs()] == [1, 1, 2]


def test_sets_are_listed_in_their_order() -> None:
    stage = Stage()
    stage.sdf.session_window(10, grace_ms=20, name="triggered").agg(set=CollectSet()).trigger(CountTrigger(1))
    stage.sdf.session_window(10).agg(set=CollectSet()).current()
    driver = stage.drive()
    for value, timestamp in (("b", 1), ("a", 15), ("c", 9)):
        driver.pipe(stage.source, value, key="k", timestamp=timestamp)
    found = [output[0]["set"] for output in driver.outputs()]
    assert sorted(found) == [["a"], ["a"], ["a", "b", "c"], ["a", "b", "c"], ["b"], ["b"]]


def test_sets_with_triggers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct, "_MOST_IN_HEAD", 1)
    stage = Stage()
    stage.sdf.tumbling_window(100).agg(set=CollectSet()).trigger(CountTrigger(1))
    driver = stage.drive()
    driver.pipe(stage.source, "a", key="k", timestamp=7)
    with pytest.raises(ProcessingError, match=r"CollectSet has 1 different values.*use a window without a trigger"):
        driver.pipe(stage.source, "b", key="k", timestamp=7)


def test_what_values_are_different() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(100).agg(users=CountDistinct("user"), total=Sum("n", missing="ignore")).current()
    driver = stage.drive()
    users = [1, 1.0, "1", None, [1], [1.0], {"a": 1, "b": 2}, {"b": 2, "a": 1}, True]
    for user in users:
        driver.pipe(stage.source, {"user": user}, key="k", timestamp=7)
    assert [output[0]["users"] for output in driver.outputs()] == [1, 1, 2, 2, 3, 3, 4, 4, 4]
