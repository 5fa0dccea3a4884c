"""Joins, one record after the other."""

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt.common.copies import deep_copy
from streamrt.errors import ColumnTypeError, ConfigurationError, InvalidOperationError, SerializationError
from streamrt.joins import OnMerge
from streamrt.joins.asof import AsOfJoin
from streamrt.joins.interval import IntervalJoin
from streamrt.joins.merging import merge_of
from streamrt.joins.notes import Warnings
from streamrt.joins.sides import Sides
from streamrt.state import StorePartition
from tests.unit.joined import SPEC, Joined, pair

LEFT, RIGHT = 0, 1


def asof(how: Any = "inner", grace: int = 1_000, merge: Any = pair) -> Joined:
    return Joined(AsOfJoin(how, merge, grace, SPEC))


def interval(
    how: Any = "inner", grace: int = 1_000, backward: int = 10, forward: int = 10, merge: Any = pair
) -> Joined:
    return Joined(IntervalJoin(Sides(how, merge, backward, forward), grace, SPEC))


def values(outputs: list[Any]) -> list[Any]:
    return [output[0] for output in outputs]


def test_asof_takes_the_right_record_in_force() -> None:
    joined = asof()
    for value, timestamp in (("old", 100), ("new", 200), ("newer of the two", 200), ("future", 300)):
        assert joined.feed(RIGHT, value, b"k", timestamp) == []
    assert joined.feed(LEFT, 1, b"k", 250, [("h", b"x")]) == [([1, "newer of the two"], b"k", 250, [("h", b"x")])]
    assert values(joined.feed(LEFT, 2, b"k", 199)) == [[2, "old"]]
    assert values(joined.feed(LEFT, 3, b"k", 200)) == [[3, "newer of the two"]]
    assert joined.feed(LEFT, 4, b"k", 99) == []
    assert joined.feed(LEFT, 5, b"other", 250) == []


@pytest.mark.parametrize("value", [{}, 0, "", [], False, 0.0])
def test_a_falsy_right_record_is_a_match(value: Any) -> None:
    joined = asof()
    joined.feed(RIGHT, value, b"k", 100)
    assert values(joined.feed(LEFT, 1, b"k", 100)) == [[1, value]]


def test_a_right_record_without_a_value_ends_the_one_before() -> None:
    for how, expected in (("inner", []), ("left", [[2, None]])):
        joined = asof(how)
        joined.feed(RIGHT, "limit", b"k", 100)
        joined.feed(RIGHT, None, b"k", 200)
        assert values(joined.feed(LEFT, 1, b"k", 199)) == [[1, "limit"]]
        assert values(joined.feed(LEFT, 2, b"k", 200)) == expected


def test_the_right_record_in_force_stays_and_earlier_ones_for_the_grace(caplog: pytest.LogCaptureFixture) -> None:
    joined = asof("left", grace=100)
    joined.feed(RIGHT, "first", b"k", 1_000)
    joined.feed(RIGHT, "second", b"k", 2_000)
    assert values(joined.feed(LEFT, 1, b"k", 1_950)) == [[1, "first"]]
    # Any key moves stream time, as any record of either side does.
    joined.feed(RIGHT, "other", b"other", 1_000_000)
    joined.commit()
    assert values(joined.feed(LEFT, 2, b"k", 999_900)) == [[2, "second"]]
    assert "found nothing" not in caplog.text
    assert values(joined.feed(LEFT, 3, b"k", 2_000)) == [[3, None]]
    assert "found nothing for a left record of key b'k' with timestamp 2000" in caplog.text
    assert "grace of 100 ms behind stream time 1000000" in caplog.text
    joined.feed(RIGHT, "too late", b"k", 2_500)
    assert "dropped a right record of key b'k' with timestamp 2500" in caplog.text
    assert values(joined.feed(LEFT, 4, b"k", 999_900)) == [[4, "second"]]


def test_asof_keeps_one_item_for_a_key_that_never_comes_again_and_none_behind_a_tombstone() -> None:
    joined = asof("left", grace=100)
    for number in range(50):
        for value in ("first", "last"):
            joined.feed(RIGHT, value, b"%d" % number, number)
    joined.feed(RIGHT, None, b"7", 60)
    joined.commit()
    joined.feed(RIGHT, None, b"clock", 10_000)
    joined.feed(RIGHT, None, b"clock", 20_000)
    joined.commit()
    prefixes = [key[1:-16] for key in entries(joined.run.partition) if key[:1] == b"\x03"]
    assert len(set(prefixes)) == 50
    assert b"\x01\x017" not in prefixes
    assert values(joined.feed(LEFT, 1, b"3", 20_000)) == [[1, "last"]]
    assert values(joined.feed(LEFT, 1, b"7", 20_000)) == [[1, None]]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_left_record_without_a_key_matches_nothing(how: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamrt")
    joined = asof(how)
    joined.feed(RIGHT, "x", None, 1)
    assert joined.feed(LEFT, 1, None, 2) == ([] if how == "inner" else [([1, None], None, 2, None)])
    assert caplog.text.count("skips records without a key") == 1


def test_interval_pairs_come_with_the_second_record() -> None:
    joined = interval(backward=100, forward=50)
    assert joined.feed(LEFT, "l1", b"k", 1_000, [("h", b"x")]) == []
    assert joined.feed(RIGHT, "r1", b"k", 1_051) == []
    assert joined.feed(RIGHT, "r2", b"k", 1_050) == [(["l1", "r2"], b"k", 1_050, None)]
    assert joined.feed(RIGHT, "r3", b"k", 900) == [(["l1", "r3"], b"k", 1_000, None)]
    assert joined.feed(RIGHT, "r4", b"k", 899) == []
    assert joined.feed(LEFT, "l2", b"k", 1_000) == [
        (["l2", "r3"], b"k", 1_000, None),
        (["l2", "r2"], b"k", 1_050, None),
    ]
    assert joined.feed(RIGHT, "r5", "k", 1_000) == []


def test_interval_without_width_pairs_equal_timestamps() -> None:
    joined = interval(backward=0, forward=0)
    joined.feed(LEFT, 1, b"k", 5)
    joined.feed(LEFT, 2, b"k", 5)
    assert values(joined.feed(RIGHT, 3, b"k", 5)) == [[1, 3], [2, 3]]
    assert joined.feed(RIGHT, 4, b"k", 6) == []


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [("inner", False, False), ("left", True, False), ("right", False, True), ("outer", True, True)],
)
def test_what_meets_nothing_is_passed_on_alone_at_once(how: Any, left: bool, right: bool) -> None:
    joined = interval(how)
    assert values(joined.feed(LEFT, 1, b"k", 100)) == ([[1, None]] if left else [])
    assert values(joined.feed(RIGHT, 2, b"k", 200)) == ([[None, 2]] if right else [])
    assert values(joined.feed(RIGHT, 3, b"k", 105)) == [[1, 3]]
    assert values(joined.feed(LEFT, 4, None, 100)) == ([[4, None]] if left else [])
    assert values(joined.feed(RIGHT, 5, None, 100)) == ([[None, 5]] if right else [])


def test_interval_drops_late_records_of_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    joined = interval("outer", grace=100)
    joined.feed(LEFT, 1, b"k", 1_000)
    joined.feed(RIGHT, 2, b"other", 1_101)
    assert values(joined.feed(RIGHT, 3, b"k", 1_001)) == [[None, 3]]
    assert joined.feed(RIGHT, 4, b"k", 1_000) == []
    assert joined.feed(LEFT, 5, b"k", 1_000) == []
    # The second line of the same kind is counted only.
    assert caplog.text.count("dropped a record of key b'k' with timestamp 1000") == 1


def test_keys_of_all_kinds_are_told_apart() -> None:
    for joined in (asof("left"), interval("left")):
        keys: list[Any] = [b"", b"a", "a", b"<a", ["<", b"a".decode()], 1, "1", True, 1.0, "", [1], "[1]", {"k": 1}]
        for number, key in enumerate(keys):
            joined.feed(RIGHT, number, key, 10)
        for number, key in enumerate(keys):
            assert values(joined.feed(LEFT, "x", key, 10)) == [["x", number]]


def test_a_merge_that_fails_leaves_an_interval_join_as_it_was() -> None:
    def picky(left: Any, right: Any) -> Any:
        if right == 3:
            raise ValueError("three")
        return [left, right]

    joined = interval(merge=picky)
    joined.feed(LEFT, 1, b"k", 10)
    with pytest.raises(ValueError, match="three"):
        joined.feed(RIGHT, 3, b"k", 10)
    assert values(joined.feed(LEFT, 2, b"k", 10)) == []


def test_what_cannot_be_stored_is_refused() -> None:
    for joined in (asof(), interval()):
        with pytest.raises(SerializationError, match="set"):
            joined.feed(RIGHT, {"x": {1}}, b"k", 10)


def spoiling(left: Any, right: Any) -> Any:
    for value in (left, right):
        if value is not None:
            value["n"].append("spoilt")
    return {"left": left, "right": right}


@pytest.mark.parametrize("make", [asof, interval])
def test_who_changes_values_changes_none_of_the_others(make: Any) -> None:
    joined = make("left", merge=spoiling)
    joined.feed(RIGHT, {"n": [1]}, b"k", 10)
    for _ in range(3):
        found = joined.feed(LEFT, {"n": [2]}, b"k", 10)
        assert values(found) == [{"left": {"n": [2, "spoilt"]}, "right": {"n": [1, "spoilt"]}}]
        found[0][0]["right"]["n"].append("later")
    if make is interval:
        pairs = values(joined.feed(RIGHT, {"n": [3]}, b"k", 10))
        assert pairs == [{"left": {"n": [2, "spoilt"]}, "right": {"n": [3, "spoilt"]}}] * 3
        assert pairs[0]["right"] is not pairs[1]["right"]


def entries(partition: StorePartition) -> Iterator[bytes]:
    return (key for key, _ in partition.scan(b"\x02", b"\x04"))


def test_keys_that_never_come_again_are_given_back() -> None:
    joined = interval("left", grace=100)
    for number in range(500):
        joined.feed(RIGHT, number, b"%d" % number, number // 10)
        if number % 50 == 0:
            joined.commit()
    joined.commit()
    assert sum(1 for _ in entries(joined.run.partition)) == 1_000
    joined.feed(RIGHT, "last", b"last", 10_000)
    joined.commit()
    # One head and one item.
    assert sum(1 for _ in entries(joined.run.partition)) == 2
    assert list(joined.run.partition.scan(b"\xf0", b"\xf1")) != []


@pytest.mark.parametrize("make", [asof, interval])
def test_a_busy_key_does_not_grow(make: Any) -> None:
    joined = make("left", grace=100)
    for number in range(2_000):
        joined.feed(RIGHT, number, b"k", number)
        if number % 100 == 0:
            joined.commit()
    joined.commit()
    # What the grace holds and an eighth of it, and the head.
    assert sum(1 for _ in entries(joined.run.partition)) <= 100 + 13 + 2


def test_one_record_deletes_for_a_bounded_number_of_keys() -> None:
    joined = interval(grace=10)
    for number in range(2_500):
        joined.feed(RIGHT, 1, b"%d" % number, 0)
    left = []
    for now in (100, 200, 300):
        joined.feed(RIGHT, 1, b"k", now)
        joined.commit()
        left.append(sum(1 for _ in entries(joined.run.partition)))
    assert left == [3_002, 1_003, 2]


@pytest.mark.parametrize(
    ("on_merge", "expected"),
    [
        ("keep-left", {"x": 1, "b": 3, "a": 2}),
        ("keep-right", {"x": 9, "a": 2, "b": 3}),
        (lambda left, right: [left["x"], right["x"]], [1, 9]),
    ],
)
def test_columns_that_both_have(on_merge: OnMerge, expected: Any) -> None:
    left, right = {"a": 2, "x": 1}, {"x": 9, "b": 3}
    assert merge_of("join_asof", on_merge)(left, right) == expected


def test_raise_names_the_columns_that_both_have() -> None:
    merge = merge_of("join_asof", "raise")
    assert merge({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(
        ConfigurationError, match=r"join_asof\(on_merge='raise'\) found columns .* both have: 'x', 'y'; choose"
    ):
        merge({"x": 1, "a": 2, "y": 3}, {"y": 1, "x": 2})


@pytest.mark.parametrize("on_merge", ["raise", "keep-left", "keep-right"])
def test_rules_merge_dicts_and_take_none_for_a_dict_without_columns(on_merge: Any) -> None:
    merge = merge_of("join_interval", on_merge)
    assert merge({"a": 1}, None) == {"a": 1}
    assert merge(None, {"a": 1}) == {"a": 1}
    assert merge(None, None) == {}
    with pytest.raises(
        ColumnTypeError, match="the right value is of type int: give a function, such as on_merge=lambda"
    ):
        merge({"a": 1}, 5)
    with pytest.raises(ColumnTypeError, match="the left value is of type list"):
        merge([], {"a": 1})


@pytest.mark.parametrize("on_merge", ["keep", None, 5])
def test_an_unknown_rule_is_refused(on_merge: Any) -> None:
    with pytest.raises(
        InvalidOperationError, match=r"join_asof\(on_merge=\.\.\.\) must be one of 'raise', 'keep-left'"
    ):
        merge_of("join_asof", on_merge)


def test_rules_can_be_pickled() -> None:
    merge = pickle.loads(pickle.dumps(merge_of("join_asof", "keep-right")))
    assert merge({"x": 1}, {"x": 2}) == {"x": 2}


def test_warnings_are_counted_for_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 9.9, 10.0, 30.0))
    warnings = Warnings("%s dropped %d", "join-1 (50 %)", clock=lambda: next(times))
    for number in range(1, 6):
        warnings.note(number)
    assert [record.getMessage() for record in caplog.records] == [
        "join-1 (50 %) dropped 1",
        "join-1 (50 %) dropped 4 (2 more like this since the last line)",
        "join-1 (50 %) dropped 5",
    ]


def test_fresh_values() -> None:
    class Own:
        def __init__(self) -> None:
            self.items: list[int] = []

    value: dict[str, Any] = {"flat": {"a": 1}, "deep": [{"b": [1]}], "own": Own(), "tuple": ([1],)}
    copied = deep_copy(value)
    copied["flat"]["a"] = 2
    copied["deep"][0]["b"].append(2)
    copied["own"].items.append(1)
    copied["tuple"][0].append(2)
    assert value["flat"] == {"a": 1}
    assert value["deep"] == [{"b": [1]}]
    assert value["own"].items == []
    assert value["tuple"] == ([1],)
