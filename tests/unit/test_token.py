"""Offsets as one value: what they mean together, and their text."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    StaleTokenError,
    TokenVersionError,
)
from streamrt.models import TopicPartition

OFFSETS = st.dictionaries(
    st.tuples(st.sampled_from(["orders", "a--b", 'é"\\']), st.integers(0, 3)), st.integers(0, 2**63 - 1), max_size=6
).map(lambda at: Offsets(at, {"orders": "kT3"}))


@pytest.mark.rows("FL-149")
def test_a_mapping_of_partitions() -> None:
    offsets = Offsets({("orders", 1): 7, ("orders", 0): 42, ("b", 0): 0}, {"orders": "x", "other": "y"})
    assert offsets["orders", 0] == 42
    assert offsets[TopicPartition("orders", 1)] == 7
    assert list(offsets) == [("b", 0), ("orders", 0), ("orders", 1)]
    assert offsets.topics == ("b", "orders")
    assert offsets.ids == {"orders": "x"}
    assert offsets.partition_map("orders") == {0: 42, 1: 7}
    assert offsets == {("orders", 1): 7, ("orders", 0): 42, ("b", 0): 0}
    assert offsets != Offsets(dict(offsets))
    assert hash(offsets) == hash(Offsets(dict(offsets)))
    assert pickle.loads(pickle.dumps(offsets)) == offsets
    with pytest.raises(KeyError):
        offsets["orders", 2]
    assert str(offsets) == '{"v":1,"topics":{"b":{"at":{"0":0}},"orders":{"id":"x","at":{"0":42,"1":7}}}}'


@pytest.mark.rows("FL-149")
def test_partitions_are_equal_and_hash_by_value() -> None:
    one, same = TopicPartition("orders", 0), TopicPartition("".join(["ord", "ers"]), 0)
    others = [TopicPartition("orders", 1), TopicPartition("order", 0), TopicPartition("orders2", 0)]
    assert one == same
    assert hash(one) == hash(same)
    assert one is not same
    assert all(one != other for other in others)
    assert len({one, same, *others}) == 4
    assert {one: "a"}[same] == "a"
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(one) == "orders[0]"
    assert sorted([*others, one]) == [others[1], one, *others[0:1], others[2]]
    # Not by what else is at the position: a topic that was created again has another id, which tokens have.
    assert Offsets({one: 1}, {"orders": "x"})[same] == Offsets({same: 1}, {"orders": "y"})[one] == 1


@pytest.mark.rows("DK-018")
@given(OFFSETS)
def test_the_text_has_everything(offsets: Offsets) -> None:
    assert Offsets.parse(str(offsets)) == offsets
    assert Offsets.parse(str(offsets)).ids == offsets.ids
    assert eval(repr(offsets)) == offsets


@given(OFFSETS, OFFSETS, OFFSETS)
def test_the_laws_of_higher_and_lower(a: Offsets, b: Offsets, c: Offsets) -> None:
    assert a | b == b | a
    assert a & b == b & a
    assert (a | b) | c == a | (b | c)
    assert (a & b) & c == a & (b & c)
    assert a | a == a
    assert a & a == a
    assert (a | b).covers(a)
    assert a.covers(a & b)
    assert a.covers(b) == ((a | b).covers(a) and all((a | b)[each] == a.get(each, 0) for each in a | b))
    assert not (a.covers(b) and b.covers(c)) or a.covers(c)


def test_topics_that_were_created_again() -> None:
    old, new, unknown = (Offsets({("orders", 0): 5}, ids) for ids in ({"orders": "x"}, {"orders": "y"}, None))
    for combine in (old.__or__, old.__and__, old.covers):
        with pytest.raises(StaleTokenError, match="topic 'orders' was deleted and created again"):
            combine(new)
    assert old.covers(unknown)
    assert (unknown | old).ids == {"orders": "x"}
    with pytest.raises(ArgumentTypeError, match="compared with Offsets, got dict"):
        old.covers({("orders", 0): 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "kind"),
    [
        ({("orders", -1): 0}, ArgumentValueError),
        ({("orders", 0): -1}, ArgumentValueError),
        ({("orders", 0): 2**63}, ArgumentValueError),
        ({("", 0): 0}, ArgumentValueError),
        ({("orders", True): 0}, ArgumentTypeError),
        ({("orders", 0): 1.0}, ArgumentTypeError),
        ({("orders", "0"): 1}, ArgumentTypeError),
        ({"orders": 1}, ArgumentTypeError),
        ([("orders", 0)], ArgumentTypeError),
    ],
)
def test_wrong_parts(at: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Offsets(at)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "earliest",
        "[]",
        "{}",
        "7",
        '{"v":1}',
        '{"v":0,"topics":{}}',
        '{"v":true,"topics":{}}',
        '{"v":"1","topics":{}}',
        '{"v":1,"topics":[]}',
        '{"v":1,"topics":{},"more":1}',
        '{"v":1,"topics":{"orders":{}}}',
        '{"v":1,"topics":{"orders":{"at":{"0":"1"}}}}',
        '{"v":1,"topics":{"orders":{"at":{"0":-1}}}}',
        '{"v":1,"topics":{"orders":{"at":{"00":1}}}}',
        '{"v":1,"topics":{"orders":{"at":{"-1":1}}}}',
        '{"v":1,"topics":{"orders":{"at":{"1.0":1}}}}',
        '{"v":1,"topics":{"orders":{"id":7,"at":{"0":1}}}}',
        '{"v":1,"topics":{"orders":{"id":"","at":{"0":1}}}}',
        '{"v":1,"topics":{"orders":{"at":{"0":1},"more":1}}}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a token: give a text that str\(Offsets\(...\)\) has made"):
        Offsets.parse(text)


def test_a_newer_text_is_refused_by_name() -> None:
    text = json.dumps({"v": 2, "topics": {}, "more": 1})
    with pytest.raises(TokenVersionError, match=r"a newer version .* \(format 2, this one knows 1\)"):
        Offsets.parse(text)
    with pytest.raises(ArgumentTypeError, match="got bytes"):
        Offsets.parse(b"{}")  # type: ignore[arg-type]
