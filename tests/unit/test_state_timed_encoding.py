"""Exact values: what is stored comes back as it was."""

import collections
import datetime
import decimal
import enum
import json
import math
import pickle
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import SerializationError, StoreCorruptedError
from streamrt.state import RocksDBOptions
from streamrt.state.encoding import dumps_exact, exact_of, loads_exact, pack, packing_of, unpack

UTC = datetime.timezone.utc

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from([float("nan"), -0.0, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308]),
    st.text(),
    st.sampled_from(["~", "~[1]", "null", "a null b", "NaN", "Infinity", "\ud800", "\x00", '"', "~null"]),
)
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.sampled_from(
        [zoneinfo.ZoneInfo("Europe/Paris"), zoneinfo.ZoneInfo("America/New_York"), zoneinfo.ZoneInfo("UTC")]
    ),
    st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)).map(datetime.timezone),
)
typed = st.one_of(
    st.dates(),
    st.datetimes(timezones=zones),
    st.datetimes(timezones=st.just(zoneinfo.ZoneInfo("Europe/Paris"))).map(lambda value: value.replace(fold=1)),
    st.times(timezones=zones),
    st.times().map(lambda value: value.replace(fold=1)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.sampled_from([decimal.Decimal(text) for text in ("1.50", "-0", "0E+3", "Infinity", "1E-400", "9" * 60)]),
    st.binary(max_size=5),
)
scalars = st.one_of(scalars, typed)
names = st.one_of(
    st.text(st.characters(), max_size=3), st.sampled_from(["$", "$$", "$date", "$$date", "$bytes", "$a", "null"])
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types, and floats bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.isnan(one) if math.isnan(other) else struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, datetime.datetime | datetime.time):
        return (one.replace(tzinfo=None), str(one.tzinfo), one.fold) == (
            other.replace(tzinfo=None),
            str(other.tzinfo),
            other.fold,
        )
    return str(one) == str(other) if isinstance(one, decimal.Decimal) else bool(one == other)


@given(values)
def test_values_come_back(value: Any) -> None:
    data = dumps_exact(value)
    assert same(loads_exact(data), value)
    assert same(unpack(pack(value)), value)
    # A cell is a value of its own, and can stand in a head.
    assert same(unpack(loads_exact(dumps_exact([pack(value)]))[0]), value)


@given(values)
def test_values_come_back_from_users_functions(value: Any) -> None:
    packing, unpacking = packing_of(RocksDBOptions(dumps=pickle.dumps, loads=pickle.loads))
    cell = packing(value)
    assert cell is None or type(cell) in (int, float, bool, str)
    assert same(unpacking(loads_exact(dumps_exact([cell]))[0]), value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ([1, 0.5, "a", True], b'[1,0.5,"a",true]'),
        ([None], b"[null]"),
        ("null", b'"null"'),
        ([None, (1, None)], b"[null,[1,null]]"),
        (float("nan"), b"~NaN"),
        ({"a": [float("-inf"), None]}, b'~{"a": [-Infinity, null]}'),
        (2**64 - 1, b"18446744073709551615"),
        (2**64, b"~18446744073709551616"),
        (-0.0, b"-0.0"),
        ("~1", b'"~1"'),
        ("@1", b'"@1"'),
        ({"$date": 1}, b'{"$date":1}'),
        (datetime.date(2024, 5, 1), b'@{"$date":"2024-05-01"}'),
        (datetime.datetime(2024, 5, 1, 12), b'@{"$datetime":"2024-05-01T12:00:00"}'),
        (datetime.datetime(2024, 5, 1, 12, tzinfo=UTC), b'@{"$datetime":"2024-05-01T12:00:00+00:00"}'),
        (
            [datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=1)],
            b'@[{"$datetime":["2024-10-27T02:30:00","Europe/Paris",1]}]',
        ),
        (datetime.time(12, 0, 0, 5), b'@{"$time":"12:00:00.000005"}'),
        (datetime.timedelta(1, 2, 3), b'@{"$timedelta":[1,2,3]}'),
        ({"a": decimal.Decimal("1.50"), "b": None}, b'@{"a":{"$decimal":"1.50"},"b":null}'),
        ([b"\x00\xff", {"$bytes": "AA=="}], b'@[{"$bytes": "AP8="}, {"$$bytes": "AA=="}]'),
        ([decimal.Decimal(1), math.inf], b'@[{"$decimal": "1"}, Infinity]'),
        (['{ "$a', '{"$b', decimal.Decimal(1)], rb'@["{ \"$a","{\"$b",{"$decimal":"1"}]'),
    ],
)
def test_the_format(value: Any, data: bytes) -> None:
    assert dumps_exact(value) == data
    assert same(unpack(pack(value)), loads_exact(data))


@pytest.mark.parametrize(
    "data",
    [
        b'@{"$unknown":1}',
        b'@{"$date":1}',
        b'@{"$date":"2024-13-01"}',
        b'@{"$decimal":"a"}',
        b'@{"$bytes":"a"}',
        b'@{"$timedelta":["a"]}',
        b'@{"$datetime":[]}',
    ],
)
def test_tags_that_this_version_does_not_know(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match="is not JSON"):
        loads_exact(data)


def test_a_time_zone_that_this_machine_does_not_know() -> None:
    with pytest.raises(SerializationError, match=r"time zone 'Mars/Phobos'.*install the package tzdata"):
        loads_exact(b'@{"$datetime":["2024-10-27T02:30:00","Mars/Phobos",0]}')


class Money(decimal.Decimal):
    pass


class Day(datetime.date):
    pass


@pytest.mark.parametrize("value", [Money(1), [Day(2024, 1, 1)]])
def test_objects_of_subclasses_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"cannot be stored exactly.*(Money|Day) is not a JSON type"):
        dumps_exact(value)


def test_cells() -> None:
    for plain in (None, True, False, 0, 2**70, 0.5, float("inf")):
        assert pack(plain) is plain
        assert unpack(plain) is plain
    assert pack("a") == '"a"'
    assert pack([2**70]) == "~[1180591620717411303424]"
    value = {"a": [1]}
    cell = pack(value)
    value["a"].append(2)
    unpack(cell)["a"].append(3)
    assert unpack(cell) == {"a": [1]}


class Pair(collections.namedtuple("Pair", ["a", "b"])):
    __slots__ = ()


class Celsius(float):
    pass


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, (2,)), [1, [2]]),
        (Pair(1, None), [1, None]),
        (Pair(float("inf"), 2), [float("inf"), 2]),
        (Celsius(0.1), 0.1),
        ([Celsius("inf")], [float("inf")]),
        (Name("a"), "a"),
        ({Name("a"): 1}, {"a": 1}),
        (collections.OrderedDict(a=2**64), {"a": 2**64}),
    ],
)
def test_classes_of_their_own_become_what_they_are(value: Any, back: Any) -> None:
    assert same(loads_exact(dumps_exact(value)), back)


@dataclass
class Point:
    x: int


endless: list[Any] = []
endless.append(endless)
deep: list[Any] = []
for _ in range(400):
    deep = [deep]
too_deep: list[Any] = []
for _ in range(5_000):
    too_deep = [too_deep]


def test_nesting() -> None:
    assert loads_exact(dumps_exact(deep)) == deep


@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        {"a": {1: 2**64}},
        {None: 1},
        {1, 2},
        [bytearray(b"a")],
        [b"bytes", {1: 2}],
        1j,
        object(),
        Point(1),
        endless,
        too_deep,
        10**5_000,
        [2**64, bytearray(b"a")],
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("function", [dumps_exact, pack])
def test_what_is_no_json_is_refused(function: Callable[[Any], Any], value: Any) -> None:
    if function is pack and type(value) is int:
        assert pack(value) is value
        return
    with pytest.raises(SerializationError, match="cannot be stored exactly"):
        function(value)


class Color(enum.Enum):
    RED = "red"


def test_what_orjson_knows_beside_json() -> None:
    """As for `State`: such values become their JSON."""
    number = uuid.uuid4()
    assert loads_exact(dumps_exact([Color.RED, number])) == ["red", str(number)]


@pytest.mark.parametrize("data", [b"", b"{", b"~", b"~{", b"\xff", b"[1,]", b"NaN"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match="not JSON"):
        loads_exact(data)


def test_users_functions_that_fail() -> None:
    dumps, loads = exact_of(RocksDBOptions(dumps=json.dumps, loads=json.loads))
    assert loads(dumps({1: 2})) == {"1": 2}
    with pytest.raises(SerializationError, match=r"type set has no stored form.*TypeError.*serializable"):
        dumps({1})
    with pytest.raises(SerializationError, match=r"cannot be read by RocksDBOptions\.loads"):
        loads(b"{")
