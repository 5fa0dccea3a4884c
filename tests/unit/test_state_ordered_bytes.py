"""Bytes that are ordered as values."""

import datetime
import zoneinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import SerializationError
from streamrt.state.ordered_bytes import order_bytes

UTC = datetime.timezone.utc
numbers = st.one_of(
    st.integers(),
    st.integers(-20, 20),
    st.integers(-20, 20).map(float),
    st.booleans(),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal(text) for text in ("1.0", "1.00", "-0", "1E+30", "1E-30", "-1E-30", "Infinity", "0.1")]),
    st.sampled_from([10**40, -(10**40), 2**63, 0.1, -0.0, 5e-324, 1.7976931348623157e308, float("-inf")]),
)
KINDS = [
    numbers,
    st.text(),
    st.text(st.sampled_from("\0\1ab\U0001f600\uffff\ud800"), max_size=4),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, datetime.timezone(datetime.timedelta(hours=5))])),
    st.times(),
    st.times(timezones=st.sampled_from([UTC, datetime.timezone(datetime.timedelta(hours=5))])),
    st.timedeltas(),
    st.lists(numbers, max_size=3),
    st.lists(st.text(st.sampled_from("\0\1\xffa"), max_size=3), max_size=3),
    st.lists(st.lists(st.binary(max_size=2), max_size=2), max_size=2),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_are_ordered_as_values(kind: st.SearchStrategy[Any]) -> None:
    @given(kind, kind)
    def compare(a: Any, b: Any) -> None:
        one, other = order_bytes(a), order_bytes(b)
        assert (one == other) is (a == b)
        assert (one < other) is (a < b)

    compare()


@given(st.lists(st.one_of(st.none(), *KINDS, st.dictionaries(st.text(max_size=2), numbers, max_size=3)), max_size=2))
def test_equal_values_have_equal_bytes(values: list[Any]) -> None:
    for a in values:
        for b in values:
            assert (order_bytes(a) == order_bytes(b)) is (a == b)
            assert (order_bytes([a]) == order_bytes((b,))) is (a == b)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, "01"),
        (0, "0202"),
        (Decimal("-0.0"), "0202"),
        (120, "02038000000000000002" + b"12".hex()),
        (Decimal("0.5"), "02037fffffffffffffff" + b"5".hex()),
        (-5, "02017fffffffffffffffcaff"),
        (float("inf"), "0204"),
        (float("-inf"), "0200"),
        (float("nan"), "0205"),
        (Decimal("NaN"), "0205"),
        ("a\0", "036100"),
        (b"\xff", "04ff"),
        (datetime.date(2024, 5, 1), "05000b46bf"),
        (datetime.datetime(1, 1, 1), "068000000000000000"),
        (datetime.datetime(1, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5))), "078000000000000000"),
        (datetime.time(0, 0, 1), "0880000000000f4240"),
        (datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), "098000000000000000"),
        (datetime.timedelta(microseconds=120), "0a038000000000000002" + b"12".hex()),
        ([0, "\0"], "0b0202" + "0001" + "0300ff" + "0001" + "0000"),
        ({"b": 0, "a": None}, "0c" + "0361" + "0001" + "01" + "0001" + "0362" + "0001" + "0202" + "0001" + "0000"),
    ],
    ids=repr,
)
def test_the_format(value: Any, data: str) -> None:
    assert order_bytes(value).hex() == data


def test_a_datetime_with_a_named_zone_is_the_same_moment() -> None:
    paris = datetime.datetime(2024, 5, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))
    assert order_bytes(paris) == order_bytes(paris.astimezone(UTC))


class Text(str):
    __slots__ = ()


def test_subclasses_are_their_bases() -> None:
    assert order_bytes(Text("a")) == order_bytes("a")


@pytest.mark.parametrize("value", [{1}, [object()], 1j, {"a": {1}}])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match="cannot be compared with others"):
        order_bytes(value)
