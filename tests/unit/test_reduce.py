"""`reduce`: the combination of all values of a key so far."""

from typing import Any

import pytest

from streamrt.errors import ArgumentTypeError, InvalidOperationError, ProcessingError
from tests.unit.apps import Stage


@pytest.mark.rows("PF-D3")
def test_each_record_gives_the_combination_so_far() -> None:
    stage = Stage()
    stage.sdf.reduce(lambda total, value: total + value)
    driver = stage.drive()
    for time, (key, value) in enumerate([("a", 1), ("a", 2), ("a", 3), ("b", 4)], 1):
        driver.pipe(stage.source, value, key=key, timestamp=time)
    assert driver.outputs() == [(1, b"a", 1, None), (3, b"a", 2, None), (6, b"a", 3, None), (4, b"b", 4, None)]


def test_a_value_of_none_is_a_value() -> None:
    stage = Stage()
    stage.sdf.reduce(lambda former, value: [former, value])
    assert stage.values(None, None) == [None, [None, None]]


def test_what_follows_cannot_change_the_combination() -> None:
    stage = Stage()
    stage.sdf.reduce(lambda former, value: {"n": former["n"] + value["n"]}).update(lambda value: value.update(n=100))
    driver = stage.drive()
    for number in (1, 2):
        driver.pipe(stage.source, {"n": number}, key="k")
    assert driver.state(stage.source, b"k", store="reduce").get("value") == {"n": 3}


def test_two_need_names_and_groupings_have_stores_of_their_own() -> None:
    stage = Stage()
    total = stage.sdf.reduce(max)
    with pytest.raises(InvalidOperationError, match=r"already has reduce\(\) with its state in the store 'reduce'"):
        stage.sdf.reduce(min)
    stage.sdf.reduce(min, name="low")
    total.group_by("shop").reduce(min)
    names = {store.name for node in stage.app.topology.nodes for store in node.operator.stores()}
    assert names == {"reduce", "reduce_low", "reduce.shop"}


def test_a_function_that_is_none_is_refused() -> None:
    wrong: Any = "total"
    with pytest.raises(ArgumentTypeError, match=r"reduce\(\) needs a function"):
        Stage().sdf.reduce(wrong)


def test_an_error_names_the_operator() -> None:
    stage = Stage()
    stage.sdf.reduce(lambda former, value: former["x"])
    driver = stage.drive()
    driver.pipe(stage.source, {}, key="k")
    with pytest.raises(ProcessingError, match="reduce-1"):
        driver.pipe(stage.source, {}, key="k")
