"""Columns of a `StreamingDataFrame`, and frames that serve as columns or conditions."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from streamrt import StreamingDataFrame
from streamrt.errors import InvalidOperationError
from tests.unit.apps import Stage, fails, through

pytestmark = pytest.mark.usefixtures("processing_mode")

# -- Columns ---------------------------------------------------------------------------------------------------------


def test_drop_deletes_columns_in_place() -> None:
    assert through(lambda sdf: sdf.drop("a"), {"a": 1, "b": 2}) == [{"b": 2}]
    assert through(lambda sdf: sdf.drop(["a", "b"]), {"a": 1, "b": 2, "c": 3}) == [{"c": 3}]


def test_drop_of_a_missing_column_raises_unless_told_to_ignore_it(stage: Stage) -> None:
    assert through(lambda sdf: sdf.drop(["a", "x"], errors="ignore"), {"a": 1}) == [{}]
    stage.sdf.drop(["a", "x"])
    assert "MissingColumnError: column 'x' is missing; the value has 'b'" in fails(stage, {"a": 1, "b": 2})


@pytest.mark.parametrize("value", [None, "text", 5, [1]])
def test_drop_projection_and_assignment_need_a_dict(value: Any) -> None:
    operations: list[Callable[[StreamingDataFrame], Any]] = [
        lambda sdf: sdf.drop("a"),
        lambda sdf: sdf[["a"]],
        lambda sdf: sdf.__setitem__("a", 1),
        lambda sdf: sdf[sdf["a"] == 1],
    ]
    for operation in operations:
        stage = Stage()
        operation(stage.sdf)
        message = fails(stage, value)
        assert "ColumnTypeError: cannot " in message
        assert f"the value is of type {type(value).__name__}" in message


@pytest.mark.parametrize("columns", [5, None, ("a",), [1], ["a", 1], [], {"a": 1}])
def test_drop_refuses_what_names_no_columns(stage: Stage, columns: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"drop\(\) needs a column name or a list of column names"):
        stage.sdf.drop(columns)


def test_drop_refuses_another_way_to_treat_errors(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match=r"errors='raise' or errors='ignore', got 'coerce'"):
        stage.sdf.drop("a", errors=cast("Any", "coerce"))


def test_fill_adds_missing_columns_as_none_and_keeps_the_others() -> None:
    assert through(lambda sdf: sdf.fill("a", "b"), {"a": 1}, {"b": None}) == [
        {"a": 1, "b": None},
        {"b": None, "a": None},
    ]


def test_fill_with_values_replaces_none_and_keeps_other_falsy_values() -> None:
    values = [{}, {"a": None}, {"a": False}, {"a": ""}, {"a": 0}]
    assert through(lambda sdf: sdf.fill(a=7), *values) == [{"a": 7}, {"a": 7}, {"a": False}, {"a": ""}, {"a": 0}]


def test_fill_gives_each_record_a_default_of_its_own(stage: Stage) -> None:
    stage.sdf.fill(a=[]).update(lambda value: value["a"].append(1))
    assert stage.values({}, {}) == [{"a": [1]}, {"a": [1]}]


def test_fill_without_columns_or_with_wrong_names_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match=r"fill\(\) needs at least one column"):
        stage.sdf.fill()
    with pytest.raises(InvalidOperationError, match=r"fill\(\) needs a column name"):
        stage.sdf.fill(cast("Any", 5))


def test_contains_asks_for_one_column_or_for_all_of_several() -> None:
    assert through(lambda sdf: sdf[sdf.contains("a")], {"a": None}, {"b": 1}) == [{"a": None}]
    assert through(lambda sdf: sdf[sdf.contains(["a", "b"])], {"a": 1}, {"a": 1, "b": 2}) == [{"a": 1, "b": 2}]
    assert through(lambda sdf: sdf.__setitem__("has", ~sdf.contains("a")), {"b": 1}) == [{"b": 1, "has": True}]


def test_contains_on_a_value_without_columns_is_a_column_type_error(stage: Stage) -> None:
    stage.sdf[stage.sdf.contains("a")].update(lambda value: None)
    message = fails(stage, None)
    assert "ColumnTypeError: cannot look for column 'a': the value is of type NoneType" in message


def test_contains_refuses_what_names_no_columns(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match=r"contains\(\) needs a column name"):
        stage.sdf.contains(cast("Any", 5))


@pytest.mark.rows("PF-C4", "PF-N5")
def test_a_projection_keeps_columns_in_the_order_asked_for() -> None:
    (value,) = through(lambda sdf: sdf[["c", "a"]], {"a": 1, "b": 2, "c": 3})
    assert list(value.items()) == [("c", 3), ("a", 1)]


def test_a_projection_on_a_missing_column_raises_and_names_what_there_is(stage: Stage) -> None:
    stage.sdf[["a", "x"]].update(lambda value: None)
    assert "MissingColumnError: column 'x' is missing; the value has 'a', 'b'" in fails(stage, {"a": 1, "b": 2})


@pytest.mark.parametrize("item", [5, None, [], [1], ("a",), ["a", 1], slice(0, 1)])
def test_a_frame_is_indexed_by_names_and_conditions_only(stage: Stage, item: Any) -> None:
    with pytest.raises(InvalidOperationError, match="a dataframe is indexed by a column name"):
        stage.sdf[item]


def test_a_condition_made_of_columns_filters() -> None:
    assert through(lambda sdf: sdf[(sdf["a"] > 1) & sdf["b"]], {"a": 2, "b": 1}, {"a": 2, "b": 0}, {"a": 1}) == [
        {"a": 2, "b": 1}
    ]


def test_a_missing_column_in_a_condition_is_a_processing_error(stage: Stage) -> None:
    stage.sdf = stage.sdf[stage.sdf["x"] > 1]
    message = fails(stage, {"a": 1})
    assert message.startswith("where-1 ((x > 1)) defined at test_dataframe_columns.py:")
    assert "failed on in[0] at offset 0: MissingColumnError: column 'x' is missing; the value has 'a'" in message


@pytest.mark.parametrize("constant", [1, None, "text", [1, {"x": 2}]])
def test_a_column_can_be_set_to_a_constant(stage: Stage, constant: Any) -> None:
    stage.sdf["x"] = constant
    assert stage.values({"a": 1}) == [{"a": 1, "x": constant}]


def test_a_column_can_be_set_from_others_and_overwritten(stage: Stage) -> None:
    stage.sdf["b"] = stage.sdf["a"] * 2
    stage.sdf["a"] = stage.sdf["b"] + stage.sdf["a"]
    assert stage.values({"a": 1}) == [{"a": 3, "b": 2}]


def test_a_series_taken_before_an_assignment_can_be_used_after_it(stage: Stage) -> None:
    column = stage.sdf["a"]
    stage.sdf["a"] = 10
    stage.sdf["b"] = column
    assert stage.values({"a": 1}) == [{"a": 10, "b": 10}]


def test_a_column_named_by_something_else_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match="a column is named by a string, got int"):
        cast("Any", stage.sdf)[5] = 1


# -- Frames as columns and as conditions -----------------------------------------------------------------------------


def counted(calls: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes each call in a list of the test."""

    def run(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return run


def test_a_column_set_from_apply_calls_the_function_once(stage: Stage) -> None:
    calls: list[Any] = []
    stage.sdf["x"] = stage.sdf.apply(counted(calls, lambda value: value["a"] + 1))
    assert stage.values({"a": 1}) == [{"a": 1, "x": 2}]
    assert len(calls) == 1


def test_a_column_can_be_set_from_several_applies_and_metadata(stage: Stage) -> None:
    keyed = stage.sdf.apply(lambda value, key, timestamp, headers: (key, timestamp), metadata=True)
    stage.sdf["x"] = keyed.apply(str)
    assert stage.values({}, key="k", timestamp=7) == [{"x": "(b'k', 7)"}]


def test_a_column_can_be_set_from_a_projection(stage: Stage) -> None:
    stage.sdf["x"] = stage.sdf[["a"]]
    assert stage.values({"a": 1, "b": 2}) == [{"a": 1, "b": 2, "x": {"a": 1}}]


def test_a_frame_made_by_apply_filters(stage: Stage) -> None:
    calls: list[Any] = []
    stage.sdf = stage.sdf[stage.sdf.apply(counted(calls, lambda value: value > 1))]
    assert stage.values(1, 2) == [2]
    assert len(calls) == 2


def test_a_frame_of_two_applies_can_be_a_condition_twice(stage: Stage) -> None:
    condition = stage.sdf.apply(lambda value: value - 1).apply(lambda value: value > 0)
    stage.sdf[condition].apply(lambda value: ("first", value))
    stage.sdf[condition].apply(lambda value: ("second", value))
    assert stage.values(1, 2) == [("first", 2), ("second", 2)]


def test_a_frame_that_was_used_as_a_column_can_still_be_continued(stage: Stage) -> None:
    doubled = stage.sdf.apply(lambda value: value["a"] * 2).apply(lambda value: value + 1)
    stage.sdf["x"] = doubled
    doubled.apply(lambda value: ("branch", value)).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", {"a": 1})
    assert sorted(map(repr, (output[0] for output in driver.outputs()))) == ["('branch', 3)", "{'a': 1, 'x': 3}"]
    assert [record.value for record in driver.read("out")] == [["branch", 3]]


def test_a_frame_used_as_a_column_keeps_its_own_branches(stage: Stage) -> None:
    doubled = stage.sdf.apply(lambda value: value["a"] * 2)
    doubled.apply(lambda value: ("branch", value))
    stage.sdf["x"] = doubled
    assert stage.values({"a": 1}) == [("branch", 2), {"a": 1, "x": 2}]


@pytest.mark.parametrize(
    "make",
    [
        lambda sdf: sdf.filter(lambda value: True),
        lambda sdf: sdf[sdf["a"] == 1],
        lambda sdf: sdf.apply(lambda value: [value], expand=True),
        lambda sdf: sdf.set_timestamp(lambda *_: 1),
        lambda sdf: sdf.set_headers(lambda *_: None),
    ],
)
def test_a_column_can_be_set_from_apply_only(stage: Stage, make: Callable[[StreamingDataFrame], Any]) -> None:
    with pytest.raises(InvalidOperationError, match=r"may contain only apply\(\) without expand"):
        stage.sdf["x"] = make(stage.sdf)
    with pytest.raises(InvalidOperationError, match=r"may contain only apply\(\) without expand"):
        stage.sdf[make(stage.sdf)]


def test_a_frame_of_elsewhere_is_no_column_and_no_condition(stage: Stage) -> None:
    other = Stage().sdf.apply(lambda value: value)
    branch = stage.sdf.apply(lambda value: value).apply(lambda value: value)
    stage.sdf.update(lambda value: None)
    for foreign in (other, branch):
        with pytest.raises(InvalidOperationError, match="must be derived from the frame in which it is used"):
            stage.sdf["x"] = foreign
        with pytest.raises(InvalidOperationError, match="must be derived from the frame in which it is used"):
            stage.sdf[foreign]


def test_a_frame_is_no_condition_and_no_column_of_itself(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match="must be derived from the frame in which it is used"):
        stage.sdf["x"] = stage.sdf
    with pytest.raises(InvalidOperationError, match="must be derived from the frame in which it is used"):
        stage.sdf[stage.sdf]


def test_a_series_of_another_frame_cannot_be_assigned(stage: Stage) -> None:
    other = stage.sdf.apply(lambda value: value)
    with pytest.raises(InvalidOperationError, match="column 'x' can only be set from columns of the same dataframe"):
        stage.sdf["x"] = other["a"]


def test_a_series_of_another_frame_is_accepted_as_a_condition(stage: Stage) -> None:
    # As in Quix Streams: `sdf = sdf[...]` renames the frame while conditions made before are still at hand.
    other = stage.sdf.apply(lambda value: value)
    other[stage.sdf["a"] > 1].apply(lambda value: value["a"])
    assert stage.values({"a": 1}, {"a": 2}) == [2]


# -- What makes no sense ---------------------------------------------------------------------------------------------


def test_a_frame_has_no_truth_value_and_cannot_be_iterated_over(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match="a dataframe has no truth value"):
        bool(stage.sdf)
    with pytest.raises(InvalidOperationError, match="a dataframe cannot be iterated over"):
        iter(stage.sdf)


@pytest.mark.parametrize("function", [None, 5, "text", {"a": 1}])
def test_operators_refuse_what_cannot_be_called(stage: Stage, function: Any) -> None:
    operators: dict[str, Callable[[], Any]] = {
        "apply()": lambda: stage.sdf.apply(function),
        "update()": lambda: stage.sdf.update(function),
        "filter()": lambda: stage.sdf.filter(function),
        "set_timestamp()": lambda: stage.sdf.set_timestamp(function),
        "set_headers()": lambda: stage.sdf.set_headers(function),
    }
    if function is not None:
        operators["to_topic(key=...)"] = lambda: stage.sdf.to_topic(stage.out, key=function)
    for name, call in operators.items():
        with pytest.raises(InvalidOperationError) as caught:
            call()
        assert str(caught.value) == f"{name} needs a function, got {type(function).__name__}"
    assert len(stage.app.topology.nodes) == 1
