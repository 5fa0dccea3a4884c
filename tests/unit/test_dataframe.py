"""Every method of `StreamingDataFrame`, through the tasks that run in production."""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from streamrt import MessageContext, StreamingDataFrame, StreamingSeries, Topic, message_context
from streamrt.errors import ConfigurationError, InvalidOperationError, ProcessingError, ProducerError
from streamrt.models import Headers
from streamrt.operators.metadata import checked_headers
from streamrt.topology.compose import copier
from streamrt.topology.describe import as_mermaid, as_text
from tests.unit.apps import START, Stage, through


@pytest.fixture
def stage() -> Stage:
    return Stage()


def fails(stage: Stage, value: Any, **record: Any) -> str:
    """Send one value that an operator must refuse; return the message."""
    with pytest.raises(ProcessingError) as caught:
        stage.drive().pipe(stage.source, value, **record)
    return str(caught.value)


# -- apply, update, filter -------------------------------------------------------------------------------------------


def test_apply_passes_on_what_the_function_returns() -> None:
    assert through(lambda sdf: sdf.apply(lambda value: value["a"] + 1), {"a": 1}, {"a": 2}) == [2, 3]


def test_apply_passes_none_on_and_json_writes_it_as_null(stage: Stage) -> None:
    stage.sdf.apply(lambda value: None).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", {"a": 1})
    assert driver.outputs()[0][0] is None
    assert [record.raw_value for record in driver.read("out")] == [b"null"]


def test_apply_leaves_the_frame_as_it_was(stage: Stage) -> None:
    new = stage.sdf.apply(lambda value: "changed")
    assert new is not stage.sdf
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", "original")
    assert [record.value for record in driver.read("out")] == ["original"]


@pytest.mark.parametrize(
    ("result", "items"),
    [
        ([1, 2], [1, 2]),
        ([], []),
        ("ab", ["a", "b"]),
        ({"k": 1, "l": 2}, ["k", "l"]),
        ((1, None), [1, None]),
        (range(2), [0, 1]),
        (b"\x01", [1]),
    ],
)
def test_expand_takes_any_iterable(result: Any, items: list[Any]) -> None:
    assert through(lambda sdf: sdf.apply(lambda value: result, expand=True), 0) == items


@pytest.mark.parametrize("result", [None, 5, 1.5, True])
def test_expand_of_something_else_is_a_type_error(stage: Stage, result: Any) -> None:
    stage.sdf.apply(lambda value: result, expand=True)
    message = fails(stage, 0)
    assert (
        f"TypeError: apply(expand=True) needs an iterable, but the function returned {type(result).__name__}" in message
    )


def test_expand_keeps_what_was_yielded_before_an_exception(stage: Stage) -> None:
    def items(value: int) -> Iterator[int]:
        yield value
        yield value + 1
        raise RuntimeError("boom")

    stage.sdf.apply(items, expand=True).to_topic(stage.out)
    driver = stage.drive()
    with pytest.raises(ProcessingError, match="RuntimeError: boom"):
        driver.pipe("in", 1)
    assert [record.value for record in driver.read("out")] == [1, 2]


def test_a_generator_is_pulled_one_item_at_a_time(stage: Stage) -> None:
    seen: list[str] = []

    def items(value: int) -> Iterator[int]:
        for item in range(value):
            seen.append(f"yield {item}")
            yield item

    stage.sdf.apply(items, expand=True).update(lambda item: seen.append(f"take {item}"))
    stage.values(2)
    assert seen == ["yield 0", "take 0", "yield 1", "take 1"]


@pytest.mark.parametrize("expand", [False, True])
def test_apply_with_metadata_gets_key_timestamp_and_headers(stage: Stage, expand: bool) -> None:
    stage.sdf.apply(lambda *arguments: [arguments], expand=expand, metadata=True)
    expected = ("v", b"k", 7, [("h", b"1")])
    result = stage.values("v", key="k", timestamp=7, headers=[("h", b"1")])
    assert result == ([expected] if expand else [[expected]])


def test_expanded_items_keep_the_metadata_of_the_record(stage: Stage) -> None:
    stage.sdf.apply(lambda value: value, expand=True)
    outputs = stage.outputs([1, 2], key="k", timestamp=7, headers=[("h", b"1")])
    assert outputs == [(1, b"k", 7, [("h", b"1")]), (2, b"k", 7, [("h", b"1")])]


def test_update_changes_the_value_in_place_and_ignores_the_result() -> None:
    assert through(lambda sdf: sdf.update(lambda value: value.append(4) or "ignored"), [3]) == [[3, 4]]


def test_update_works_on_the_frame_itself(stage: Stage) -> None:
    assert stage.sdf.update(lambda value: value.append(1)) is stage.sdf
    stage.sdf.update(lambda value: value.append(2))
    assert stage.values([]) == [[1, 2]]


def test_update_with_metadata_gets_key_timestamp_and_headers(stage: Stage) -> None:
    seen: list[tuple[Any, ...]] = []
    stage.sdf.update(lambda *arguments: seen.append(arguments), metadata=True)
    stage.values("v", key="k", timestamp=7)
    assert seen == [("v", b"k", 7, None)]


@pytest.mark.parametrize(
    ("result", "kept"), [(1, True), ("x", True), ([0], True), (0, False), ("", False), (None, False)]
)
def test_filter_keeps_on_truthiness(result: Any, kept: bool) -> None:
    assert through(lambda sdf: sdf.filter(lambda value: result), "v") == (["v"] if kept else [])


def test_filter_with_metadata_gets_key_timestamp_and_headers() -> None:
    assert through(
        lambda sdf: sdf.filter(lambda value, key, timestamp, headers: key == b"k", metadata=True), 1, key="k"
    ) == [1]
    assert (
        through(
            lambda sdf: sdf.filter(lambda value, key, timestamp, headers: timestamp > 8, metadata=True), 1, timestamp=8
        )
        == []
    )


def test_filter_leaves_the_frame_as_it_was(stage: Stage) -> None:
    stage.sdf.filter(lambda value: False)
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1)
    assert len(driver.read("out")) == 1


# -- Branches --------------------------------------------------------------------------------------------------------


def test_an_expanded_item_goes_through_all_branches_before_the_next_begins(stage: Stage) -> None:
    items = stage.sdf.apply(lambda value: value, expand=True)
    for name in ("b1", "b2", "b3"):
        items.apply(lambda item, name=name: f"{item}/{name}")
    assert stage.values([1, 2]) == ["1/b1", "1/b2", "1/b3", "2/b1", "2/b2", "2/b3"]


def test_branches_run_in_the_order_in_which_they_were_declared(stage: Stage) -> None:
    first = stage.sdf.apply(lambda value: "1")
    stage.sdf.apply(lambda value: "2")
    first.apply(lambda value: value + "a")
    third = stage.sdf.apply(lambda value: "3")
    first.apply(lambda value: value + "b")
    third.apply(lambda value: value + "a")
    assert stage.values(0) == ["1a", "1b", "2", "3a"]


def test_a_mutation_in_one_branch_is_not_seen_by_its_siblings(stage: Stage) -> None:
    for number in (1, 2, 3):
        branch = stage.sdf.apply(lambda value: value)
        branch.update(lambda value, number=number: value["list"].append(number))
        branch.update(lambda value, number=number: value.update(own=number))
    assert stage.values({"list": []}) == [{"list": [n], "own": n} for n in (1, 2, 3)]


def test_a_flat_value_is_copied_between_branches_too(stage: Stage) -> None:
    stage.sdf.apply(lambda value: value).update(lambda value: value.update(a=2))
    stage.sdf.apply(lambda value: value)
    assert stage.values({"a": 1}) == [{"a": 2}, {"a": 1}]


def test_a_branch_taken_before_an_operation_in_place_does_not_see_it(stage: Stage) -> None:
    before = stage.sdf.apply(lambda value: value)
    stage.sdf["x"] = 1
    after = stage.sdf.apply(lambda value: value)
    before["name"] = "before"
    after["name"] = "after"
    assert stage.values({}) == [{"name": "before"}, {"x": 1, "name": "after"}]


@pytest.mark.parametrize(
    "operation",
    [
        lambda sdf, out: sdf.update(lambda value: None),
        lambda sdf, out: sdf.to_topic(out),
        lambda sdf, out: sdf.drop("a"),
        lambda sdf, out: sdf.fill(a=0),
        lambda sdf, out: sdf.print(),
        lambda sdf, out: sdf.print_table(),
    ],
)
def test_operations_in_place_return_the_frame(stage: Stage, operation: Callable[..., Any]) -> None:
    assert operation(stage.sdf, stage.out) is stage.sdf


@pytest.mark.parametrize(
    "operation",
    [
        lambda sdf: sdf.apply(lambda value: 1),
        lambda sdf: sdf.filter(lambda value: False),
        lambda sdf: sdf[sdf["a"] > 1],
        lambda sdf: sdf[["a"]],
        lambda sdf: sdf.set_timestamp(lambda *_: 1),
        lambda sdf: sdf.set_headers(lambda *_: None),
    ],
)
def test_the_other_operations_leave_the_frame_as_it_was(stage: Stage, operation: Callable[..., Any]) -> None:
    assert operation(stage.sdf) is not stage.sdf
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", {"a": 1, "b": 2}, timestamp=9, headers=[("h", b"")])
    (record,) = driver.read("out")
    assert (record.value, record.timestamp, record.headers) == ({"a": 1, "b": 2}, 9, [("h", b"")])


class Odd:
    """Can be copied, not pickled."""

    def __init__(self, items: list[int]) -> None:
        self.items = items
        self.function = lambda: None


@pytest.mark.parametrize(
    "value", [None, 1, "x", {"a": 1}, {"a": [1]}, [1, [2]], {(1, 2): {3}}, {"a": {"b": {"c": []}}}, [b"", 1.5, {1}]]
)
def test_a_copy_for_a_branch_is_deep_and_equal(value: Any) -> None:
    original = copy.deepcopy(value)
    one, other = copier(value)(), copier(value)()
    assert one == other == original
    if isinstance(value, dict | list):
        assert one is not other
        assert one is not value


def test_values_that_cannot_be_pickled_are_copied_too() -> None:
    odd = Odd([1])
    fresh = copier({"odd": odd})
    odd.items.append(2)
    assert fresh()["odd"].items == [1]
    assert fresh()["odd"] is not fresh()["odd"]


def test_two_frames_of_one_application_are_processed_apart(stage: Stage) -> None:
    second = stage.app.topic("second")
    other = stage.app.dataframe(second)
    stage.sdf.apply(lambda value: ("in", value))
    other.apply(lambda value: ("second", value))
    driver = stage.drive()
    driver.pipe("in", 1)
    driver.pipe("second", 2)
    assert [output[0] for output in driver.outputs()] == [("in", 1), ("second", 2)]
    assert stage.sdf.topics == (stage.source,)
    assert other.topics == (second,)


def test_a_second_frame_on_the_same_topic_is_refused_and_the_first_is_named(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match=r"topic 'in' has a dataframe already \(defined at apps.py:\d+\)"):
        stage.app.dataframe(stage.source)


# -- to_topic --------------------------------------------------------------------------------------------------------


def test_to_topic_serializes_at_once(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out).update(lambda value: value["list"].append(9)).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", {"list": []})
    assert [record.raw_value for record in driver.read("out")] == [b'{"list":[]}', b'{"list":[9]}']


def test_key_timestamp_and_headers_go_along(stage: Stage) -> None:
    headers: Headers = [("a", b"1"), ("a", None), ("b", b""), ("c", b"\x00\xff")]
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1, key="k", timestamp=7, headers=headers)
    (record,) = driver.read("out")
    assert (record.raw_key, record.timestamp, record.headers) == (b"k", 7, headers)


def test_the_key_function_gives_the_output_its_key_and_leaves_the_record_alone(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out, key=lambda value: value["id"]).apply(lambda value, key, *_: key, metadata=True)
    driver = stage.drive()
    driver.pipe("in", {"id": "new"}, key="old")
    assert [record.raw_key for record in driver.read("out")] == [b"new"]
    assert driver.outputs()[0][0] == b"old"


@pytest.mark.parametrize("key_serializer", ["bytes", "str", "int", "double", "json"])
def test_a_key_function_that_returns_none_produces_no_key(key_serializer: str) -> None:
    stage = Stage(out={"key_serializer": key_serializer})
    stage.sdf.to_topic(stage.out, key=lambda value: None)
    driver = stage.drive()
    driver.pipe("in", 1, key="old")
    assert [record.raw_key for record in driver.read("out")] == [None]


def test_a_key_of_none_stays_none_and_an_empty_key_stays_empty(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1, key=None)
    driver.pipe("in", 1, key=b"")
    assert [record.raw_key for record in driver.read("out")] == [None, b""]


def test_the_topic_may_be_chosen_per_record(stage: Stage) -> None:
    even, odd = stage.app.topic("even"), stage.app.topic("odd")
    seen: list[Any] = []

    def choose(value: int, key: Any, timestamp: int, headers: Any) -> Topic:
        seen.append((value, key, timestamp, headers))
        return odd if value % 2 else even

    stage.sdf.to_topic(choose, key=str)
    driver = stage.drive()
    for number in range(4):
        driver.pipe("in", number, key="k", timestamp=7)
    assert [(record.raw_key, record.value) for record in driver.read(odd)] == [(b"1", 1), (b"3", 3)]
    assert [(record.raw_key, record.value) for record in driver.read(even)] == [(b"0", 0), (b"2", 2)]
    assert seen[0] == (0, b"k", 7, None)


def test_a_topic_function_that_returns_no_topic_is_a_processing_error(stage: Stage) -> None:
    stage.sdf.to_topic(cast("Callable[..., Topic]", lambda *_: "out"))
    assert "must return a Topic, got str" in fails(stage, 1)


def test_a_value_that_cannot_be_serialized_is_a_producer_error_naming_the_topic(stage: Stage) -> None:
    stage.sdf.apply(lambda value: {1}).to_topic(stage.out)
    with pytest.raises(ProducerError, match=r"the value of a record for topic 'out' cannot be serialized") as caught:
        stage.drive().pipe("in", 1)
    assert "in[0] at offset 0" in str(caught.value)


def test_a_key_that_cannot_be_serialized_is_a_producer_error_naming_the_key(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out, key=lambda value: 5)
    with pytest.raises(ProducerError, match=r"the key of a record for topic 'out' cannot be serialized"):
        stage.drive().pipe("in", 1)


@pytest.mark.parametrize("topic", ["out", None, 5])
def test_to_topic_refuses_what_is_no_topic(stage: Stage, topic: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"to_topic\(\) takes a Topic or a function that returns one"):
        stage.sdf.to_topic(topic)


# -- set_timestamp, set_headers --------------------------------------------------------------------------------------


def test_set_timestamp_changes_what_comes_after_it(stage: Stage) -> None:
    stage.sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + value).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 5, timestamp=7)
    assert [record.timestamp for record in driver.read("out")] == [12]
    assert driver.outputs()[0][2] == 12


def test_an_output_with_timestamp_0_gets_the_wall_clock(stage: Stage) -> None:
    stage.sdf.set_timestamp(lambda *_: 0).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 5, timestamp=7)
    assert [record.timestamp for record in driver.read("out")] == [START]


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (-1, "ValueError: a timestamp cannot be negative, got -1"),
        (1.5, "TypeError: a timestamp is an integer of milliseconds, got float"),
        (None, "TypeError: a timestamp is an integer of milliseconds, got NoneType"),
        (True, "TypeError: a timestamp is an integer of milliseconds, got bool"),
        ("7", "TypeError: a timestamp is an integer of milliseconds, got str"),
    ],
)
def test_set_timestamp_refuses_what_kafka_cannot_store(stage: Stage, timestamp: Any, reason: str) -> None:
    stage.sdf.set_timestamp(lambda *_: timestamp)
    assert reason in fails(stage, 1)


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        (None, None),
        ([], None),
        ((), None),
        ([("a", b"1")], [("a", b"1")]),
        ((("a", b"1"), ("a", "text"), ("b", None)), [("a", b"1"), ("a", "text"), ("b", None)]),
        ([["a", b"1"]], [("a", b"1")]),
        ({"a": b"1"}.items(), [("a", b"1")]),
    ],
)
def test_set_headers_replaces_the_headers(stage: Stage, given: Any, headers: Any) -> None:
    # A closure over dict items could not be pickled; the list can.
    pairs = list(given) if isinstance(given, type({}.items())) else given
    stage.sdf.set_headers(lambda *_: pairs).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1, headers=[("old", b"")])
    assert [record.headers for record in driver.read("out")] == [headers]
    assert driver.outputs()[0][3] == headers


def test_headers_may_come_from_a_generator() -> None:
    assert checked_headers((name, None) for name in "ab") == [("a", None), ("b", None)]
    assert checked_headers(iter(())) is None


@pytest.mark.parametrize("headers", ["ab", [("a",)], [("a", 1)], [(1, b"1")], {"a": b"1"}, 5, 0, False, [b"ab"]])
def test_set_headers_refuses_what_is_no_collection_of_pairs(stage: Stage, headers: Any) -> None:
    stage.sdf.set_headers(lambda *_: headers)
    assert "TypeError: " in fails(stage, 1)


def test_set_headers_gets_value_key_timestamp_and_headers(stage: Stage) -> None:
    stage.sdf.set_headers(lambda value, key, timestamp, headers: [("seen", repr((value, key, timestamp, headers)))])
    assert stage.outputs(1, key="k", timestamp=7)[0][3] == [("seen", "(1, b'k', 7, None)")]


# -- Columns ---------------------------------------------------------------------------------------------------------


def test_drop_deletes_columns_in_place() -> None:
    assert through(lambda sdf: sdf.drop("a"), {"a": 1, "b": 2}) == [{"b": 2}]
    assert through(lambda sdf: sdf.drop(["a", "b"]), {"a": 1, "b": 2, "c": 3}) == [{"c": 3}]


def test_drop_of_a_missing_column_raises_unless_told_to_ignore_it(stage: Stage) -> None:
    assert through(lambda sdf: sdf.drop(["a", "x"], errors="ignore"), {"a": 1}) == [{}]
    stage.sdf.drop(["a", "x"])
    assert "MissingColumnError: column 'x' is missing; the value has 'b'" in fails(stage, {"a": 1, "b": 2})


@pytest.mark.parametrize("value", [None, "text", 5, [1]])
def test_drop_fill_projection_and_assignment_need_a_dict(value: Any) -> None:
    operations: list[Callable[[StreamingDataFrame], Any]] = [
        lambda sdf: sdf.drop("a"),
        lambda sdf: sdf.fill("a"),
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
    assert message.startswith("where-1 ((x > 1)) defined at test_dataframe.py:")
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
    with pytest.raises(InvalidOperationError, match=r"may consist of apply\(\) without expand only"):
        stage.sdf["x"] = make(stage.sdf)
    with pytest.raises(InvalidOperationError, match=r"may consist of apply\(\) without expand only"):
        stage.sdf[make(stage.sdf)]


def test_a_frame_of_elsewhere_is_no_column_and_no_condition(stage: Stage) -> None:
    other = Stage().sdf.apply(lambda value: value)
    branch = stage.sdf.apply(lambda value: value).apply(lambda value: value)
    stage.sdf.update(lambda value: None)
    for foreign in (other, branch):
        with pytest.raises(InvalidOperationError, match="must be made from the frame that it is used in"):
            stage.sdf["x"] = foreign
        with pytest.raises(InvalidOperationError, match="must be made from the frame that it is used in"):
            stage.sdf[foreign]


def test_a_frame_is_no_condition_and_no_column_of_itself(stage: Stage) -> None:
    with pytest.raises(InvalidOperationError, match="must be made from the frame that it is used in"):
        stage.sdf["x"] = stage.sdf
    with pytest.raises(InvalidOperationError, match="must be made from the frame that it is used in"):
        stage.sdf[stage.sdf]


def test_a_series_of_another_frame_cannot_be_assigned(stage: Stage) -> None:
    other = stage.sdf.apply(lambda value: value)
    with pytest.raises(InvalidOperationError, match="column 'x' can be set from columns of the same dataframe only"):
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


@pytest.mark.parametrize("method", ["apply", "update", "filter"])
def test_stateful_operations_are_refused_by_name(stage: Stage, method: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{method}\(stateful=True\) is not available in this version"):
        getattr(stage.sdf, method)(lambda value, state: value, stateful=True)


# -- print, print_table ----------------------------------------------------------------------------------------------


def test_print_shows_the_value_as_it_is_at_that_point(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print().update(lambda value: value.update(a=2)).print()
    stage.values({"a": 1})
    assert capsys.readouterr().out == "{'a': 1}\n{'a': 2}\n"


def test_print_with_metadata_shows_key_timestamp_and_headers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print(pretty=False, metadata=True)
    stage.values({"b": 1, "a": 2}, key="k", timestamp=7)
    assert capsys.readouterr().out == "{'value': {'b': 1, 'a': 2}, 'key': b'k', 'timestamp': 7, 'headers': None}\n"


def test_pretty_printing_keeps_the_order_of_columns_and_breaks_long_lines(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print()
    stage.values({"b": "x" * 50, "a": "y" * 50})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "'b'" in lines[0]
    assert "'a'" in lines[1]


def test_print_table_prints_a_full_table_and_the_rest_at_the_end(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print_table(size=2, title="Numbers", columns=["n"], column_widths={"n": 6})
    with stage.drive() as driver:
        for number in (101, 102, 103):
            driver.pipe("in", {"n": number, "hidden": 999}, key="k", timestamp=7)
        first = capsys.readouterr().out
        assert "Numbers" in first
        assert all(text in first for text in ("_key", "_timestamp", "b'k'", "7", "101", "102"))
        assert "103" not in first
        assert "999" not in first
    assert "103" in capsys.readouterr().out


def test_print_table_without_metadata_shows_values_that_are_no_dicts(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print_table(size=1, metadata=False)
    stage.values("plain")
    shown = capsys.readouterr().out
    assert "value" in shown
    assert "plain" in shown
    assert "_key" not in shown


def test_print_table_with_no_columns_shows_the_metadata_only(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print_table(size=1, columns=[])
    stage.values({"hidden": 999}, key="k")
    shown = capsys.readouterr().out
    assert "b'k'" in shown
    assert "999" not in shown


@pytest.mark.parametrize("name", ["size", "timeout", "live_slowdown"])
@pytest.mark.parametrize("number", [0, -1, "5", None])
def test_print_table_needs_positive_numbers(stage: Stage, name: str, number: Any) -> None:
    with pytest.raises(InvalidOperationError, match=rf"print_table\({name}=...\) must be a positive number"):
        stage.sdf.print_table(**{name: number})


# -- compose, test, drawings -----------------------------------------------------------------------------------------


def test_compose_gives_one_function_per_topic(stage: Stage) -> None:
    other = stage.app.dataframe(stage.app.topic("other"))
    stage.sdf.apply(lambda value: ("in", value))
    other.apply(lambda value: ("other", value))
    outputs: list[Any] = []
    functions = stage.sdf.compose(lambda *output: outputs.append(output))
    assert sorted(functions) == ["in", "other"]
    functions["in"](1, b"k", 7, None)
    functions["other"](2, None, 8, [("h", b"")])
    assert outputs == [(("in", 1), b"k", 7, None), (("other", 2), None, 8, [("h", b"")])]
    assert stage.sdf.compose()["in"](1, b"k", 7, None) is None


def test_test_returns_the_outputs_of_all_branches(stage: Stage) -> None:
    stage.sdf.apply(lambda value: value + 1)
    stage.sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + 1)
    assert stage.sdf.test(1, key="k", timestamp=7, headers=[("h", b"")]) == [
        (2, "k", 7, [("h", b"")]),
        (1, "k", 8, [("h", b"")]),
    ]
    assert stage.sdf.test(1)[0] == (2, b"key", 0, None)


def test_test_takes_the_topic_where_there_are_several(stage: Stage) -> None:
    other = stage.app.topic("other")
    stage.app.dataframe(other).apply(lambda value: ("other", value))
    assert stage.sdf.test(1, topic=other) == [(("other", 1), b"key", 0, None)]
    with pytest.raises(InvalidOperationError, match="no dataframe reads topic 'out'"):
        stage.sdf.test(1, topic=stage.out)


def test_test_gives_functions_a_message_context(stage: Stage) -> None:
    stage.sdf.apply(lambda value: message_context())
    ((own, *_),) = stage.sdf.test(1, key="k", timestamp=7)
    assert (own.topic, own.partition, own.offset, own.key, own.timestamp.milliseconds) == ("test", 0, 0, "k", 7)
    given = MessageContext(topic="t", partition=3, offset=9, size=1)
    assert stage.sdf.test(1, ctx=given)[0][0] is given
    with pytest.raises(InvalidOperationError, match="there is no record to tell about"):
        message_context()


def test_test_serializes_what_goes_to_topics_and_lets_errors_through(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out, key=lambda value: None).to_topic(stage.out)
    assert stage.sdf.test({"a": 1}) == [({"a": 1}, b"key", 0, None)]
    with pytest.raises(Exception, match="no JSON form"):
        stage.sdf.test({1})


def test_test_prints_what_print_prints(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print().print_table(size=1)
    stage.sdf.test({"a": 1})
    assert capsys.readouterr().out == "{'a': 1}\n"


def test_a_thousand_operators_in_a_row_do_not_hit_the_recursion_limit(stage: Stage) -> None:
    for _ in range(1_000):
        stage.sdf = stage.sdf.apply(lambda value: value + 1)
    assert stage.values(0) == [1_000]


def test_a_function_below_many_operators_still_has_room_to_recurse(stage: Stage) -> None:
    def depth(value: int) -> int:
        return value if value == 0 else 1 + depth(value - 1)

    for _ in range(300):
        stage.sdf = stage.sdf.apply(lambda value: value)
    stage.sdf.apply(depth)
    assert stage.values(500) == [500]


def test_a_topology_is_drawn_as_text_and_as_mermaid(stage: Stage) -> None:
    sdf = stage.sdf[stage.sdf["a"] > 1]
    sdf.to_topic(stage.out)
    stage.sdf.update(print)
    topology = stage.app.topology
    assert as_text(topology).splitlines() == [
        "source-0 (in)",
        "  where-1 ((a > 1))",
        "    to_topic-2 (out)",
        "  update-3 (print)",
    ]
    drawing = as_mermaid(topology).splitlines()
    assert drawing[0] == "flowchart TD"
    assert '    n2["to_topic-2 (out)"]' in drawing
    assert "    n1 --> n2" in drawing


def test_a_topology_does_not_change_when_the_dataframe_grows(stage: Stage) -> None:
    topology = stage.app.topology
    stage.sdf.update(print)
    assert len(topology.nodes) == 1
    assert len(stage.app.topology.nodes) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast("Any", topology).nodes = ()


def test_frames_and_series_describe_themselves(stage: Stage) -> None:
    assert repr(stage.sdf) == "StreamingDataFrame(in, at source-0)"
    assert repr((stage.sdf["a"] + 1).isin([2])) == "StreamingSeries(((a + 1) in [2]))"
    assert isinstance(stage.sdf["a"], StreamingSeries)


def test_everything_of_a_record_reaches_the_output_topic_as_json(stage: Stage) -> None:
    value = {"text": "ü", "list": [1, 2.0, None, True], "nested": {"b": 1, "a": 2}}
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", value)
    (record,) = driver.read("out")
    assert record.raw_value == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
