"""Estimates of numbers of different values."""

import itertools
import random
import sys
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError, ConfigurationError, InvalidOperationError, StoreVersionError
from streamrt.state.encoding import pack, unpack
from streamrt.windows import ApproxCountDistinct, Count, CountDistinct, sketches
from streamrt.windows.aggregators import fold_of
from tests.unit.apps import Stage


class Packing:
    pack = staticmethod(pack)
    unpack = staticmethod(unpack)
    arrival = staticmethod(itertools.count().__next__)
    counted = None
    owner = b""


def estimate(values: Any, precision: int = 12) -> Any:
    fold, _ = fold_of(ApproxCountDistinct(precision=precision))
    state = fold.initial(Packing)
    for value in values:
        state = fold.step(state, value, 0, Packing)
    return state, fold.result(state, Packing)


def test_few_values_are_counted_exactly() -> None:
    assert estimate([])[1] == 0
    assert estimate([None])[1] == 0
    assert estimate([1, 1.0, "1", None, [1], (1,), {"a": 1}])[1] == 4
    assert estimate(range(300))[1] == 300


@pytest.mark.parametrize("precision", [4, 12])
def test_the_error_has_a_bound(precision: int) -> None:
    state, found = estimate((f"user {n % 3_000}" for n in range(4_000)), precision)
    assert abs(found - 3_000) / 3_000 < 3 * 1.04 / 2 ** (precision / 2)
    assert len(state[1]) < 4 / 3 * (2**precision * 0.52 + 200)


def test_the_format_of_a_state() -> None:
    """The same in each process and version."""
    state, _ = estimate([1, "a"])
    assert state == [1, "AgEHDAMIAgDXCKAKBwRJBg=="]
    fold, _ = fold_of(ApproxCountDistinct())
    assert fold.result(state, Packing) == 2
    with pytest.raises(StoreVersionError, match="a sketch in the store has version 2"):
        fold.result([2, state[1]], Packing)


def test_states_merge() -> None:
    fold, _ = fold_of(ApproxCountDistinct())
    assert fold.merge is not None
    empty = fold.initial(Packing)
    early, late = estimate(range(200))[0], estimate(range(100, 250))[0]
    assert fold.result(fold.merge(early, late, Packing), Packing) == 250
    assert fold.merge(early, empty, Packing) == fold.merge(empty, early, Packing) == early


@pytest.mark.usefixtures("processing_mode")
def test_windows_estimate() -> None:
    stage = Stage()
    stage.sdf.session_window(20, grace_ms=100).agg(
        n=Count(),
        exact=CountDistinct("user"),
        users=ApproxCountDistinct("user"),
        large=ApproxCountDistinct("user", where=lambda row: row["user"] > 5),
    ).final()
    driver, dice = stage.drive(), random.Random(1)
    for _ in range(50):
        driver.pipe(stage.source, {"user": dice.randrange(12)}, key="k", timestamp=dice.randrange(100))
    driver.pipe(stage.source, {"user": 0}, key="k", timestamp=1_000)
    result = driver.outputs()[0][0]
    assert [result[name] for name in ("n", "exact", "users", "large")] == [50, 12, 12, 6]


def test_rows_of_a_table_cannot_be_taken_back() -> None:
    app = Application("unused:9092", consumer_group="shop")
    groups = app.table(app.topic("rows")).group_by("group")
    with pytest.raises(
        InvalidOperationError, match=r"agg\(n=.*\) over a table: a sketch cannot forget the value of a row"
    ):
        groups.agg(n=ApproxCountDistinct("n"))


@pytest.mark.parametrize("precision", [3, 22, 12.0, True, None])
def test_the_precision_is_checked(precision: Any) -> None:
    with pytest.raises(ArgumentValueError, match="is an integer from 4 to 21; got"):
        ApproxCountDistinct(precision=precision)


def test_the_precision_is_part_of_the_name_of_the_state() -> None:
    assert ApproxCountDistinct("user").state_suffix == "ApproxCountDistinct/user 2^12"


def test_without_the_library_the_definition_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    sketches._library.cache_clear()
    with pytest.raises(
        ConfigurationError, match=r"needs the library datasketches, the extra 'sketches': pip install .*"
    ):
        ApproxCountDistinct()
    sketches._library.cache_clear()
