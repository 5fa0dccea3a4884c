"""Every method of `StreamingDataFrame`, through the tasks that run in production."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from streamrt import Topic
from streamrt.common.copies import copier
from streamrt.errors import InvalidOperationError, ProcessingError, ProducerError
from streamrt.models import Headers
from streamrt.operators.metadata import checked_headers
from tests.unit.apps import Stage, fails, through

pytestmark = pytest.mark.usefixtures("processing_mode")

# -- apply, update, filter -------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-C1")
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


@pytest.mark.rows("PF-C2")
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


@pytest.mark.rows("PF-C2")
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


@pytest.mark.rows("PF-C3")
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


@pytest.mark.rows("PF-D8")
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
    with pytest.raises(InvalidOperationError, match=r"topic 'in' already has a dataframe \(defined at apps.py:\d+\)"):
        stage.app.dataframe(stage.source)


# -- to_topic --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-C11", "PF-M13", "PF-N5")
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


@pytest.mark.rows("PF-J1")
def test_set_timestamp_changes_what_comes_after_it(stage: Stage) -> None:
    stage.sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + value).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 5, timestamp=7)
    assert [record.timestamp for record in driver.read("out")] == [12]
    assert driver.outputs()[0][2] == 12


def test_an_output_with_timestamp_0_does_not_get_the_wall_clock(stage: Stage) -> None:
    stage.sdf.set_timestamp(lambda *_: 0).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 5, timestamp=7)
    assert [record.timestamp for record in driver.read("out")] == [1]


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (-1, "ValueError: a timestamp cannot be negative, got -1"),
        (1.5, "TypeError: a timestamp must be an integer of milliseconds, got float"),
        (None, "TypeError: a timestamp must be an integer of milliseconds, got NoneType"),
        (True, "TypeError: a timestamp must be an integer of milliseconds, got bool"),
        ("7", "TypeError: a timestamp must be an integer of milliseconds, got str"),
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
        ((("a", b"1"), ("a", "text"), ("b", None)), [("a", b"1"), ("a", b"text"), ("b", None)]),
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
    # Only behind a topic are they bytes.
    assert driver.outputs()[0][3] == (None if pairs is None else [tuple(pair) for pair in pairs])


def test_headers_may_come_from_a_generator() -> None:
    assert checked_headers((name, None) for name in "ab") == [("a", None), ("b", None)]
    assert checked_headers(iter(())) == []


@pytest.mark.parametrize("headers", ["ab", [("a",)], [("a", 1)], [(1, b"1")], {"a": b"1"}, 5, 0, False, [b"ab"]])
def test_set_headers_refuses_what_is_no_collection_of_pairs(stage: Stage, headers: Any) -> None:
    stage.sdf.set_headers(lambda *_: headers)
    assert "TypeError: " in fails(stage, 1)


def test_set_headers_gets_value_key_timestamp_and_headers(stage: Stage) -> None:
    stage.sdf.set_headers(lambda value, key, timestamp, headers: [("seen", repr((value, key, timestamp, headers)))])
    assert stage.outputs(1, key="k", timestamp=7)[0][3] == [("seen", "(1, b'k', 7, None)")]
