"""Lines of the line protocol, which InfluxDB and TDengine read."""

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streamrt.connectors import InfluxDB1Sink, InfluxDB3Sink, SinkBatch, TDengineSink
from streamrt.connectors.time_series.line_protocol import LineProtocol, explained
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError


def line(value: Any, key: Any = b"k", **options: Any) -> str:
    arguments: dict[str, Any] = {
        "table": "m",
        "fields_keys": (),
        "tags_keys": (),
        "time_setter": None,
        "time_precision": "ms",
        "allow_missing_fields": False,
        "include_metadata_tags": False,
        "convert_ints_to_floats": False,
    }
    batch = SinkBatch("orders", 3)
    batch.append(value, key, 1_234, None, 7)
    return LineProtocol("TestSink", **{**arguments, **options}).line(next(iter(batch)), batch)


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ({"a": 1}, {}, "m a=1i 1234"),
        ({"a": 1, "b": 2.5, "c": True, "d": "x", "e": None}, {}, 'm a=1i,b=2.5,c=true,d="x" 1234'),
        ({"a": 1}, {"convert_ints_to_floats": True}, "m a=1.0 1234"),
        ({"a": 1, "b": 2}, {"fields_keys": ["b"]}, "m b=2i 1234"),
        ({"a": 1, "b": 2}, {"fields_keys": lambda value: ["a"]}, "m a=1i 1234"),
        ({"a": 1, "b": 2}, {"tags_keys": ["b"]}, "m,b=2 a=1i 1234"),
        ({"a": 1, "b": "x"}, {"tags_keys": lambda value: ["b", "gone"]}, "m,b=x a=1i 1234"),
        ({"a": 1, "b": ""}, {"tags_keys": ["b"]}, "m a=1i 1234"),
        ({"a": 1}, {"fields_keys": ["a", "b"], "allow_missing_fields": True}, "m a=1i 1234"),
        ({"a": 1}, {"include_metadata_tags": True}, "m,__key=k,__topic=orders,__partition=3 a=1i 1234"),
        ({"a": 1}, {"include_metadata_tags": True, "key": None}, "m,__topic=orders,__partition=3 a=1i 1234"),
        ({"a": 1}, {"table": lambda value: f"m{value['a']}"}, "m1 a=1i 1234"),
        ({"a": 1}, {"time_precision": "s"}, "m a=1i 1"),
        ({"a": 1}, {"time_precision": "us"}, "m a=1i 1234000"),
        ({"a": 1}, {"time_precision": "ns"}, "m a=1i 1234000000"),
        ({"a": 1, "t": 5}, {"time_setter": "t", "fields_keys": ["a"]}, "m a=1i 5"),
        ({"a": 1, "t": None}, {"time_setter": "t"}, "m a=1i 1234"),
        ({"a": 1}, {"time_setter": lambda value: "1970-01-01T00:00:02Z"}, "m a=1i 2000"),
        ({"a": 1}, {"time_setter": lambda value: datetime(1970, 1, 1, 0, 0, 3)}, "m a=1i 3000"),
        (
            {"a": 1},
            {"time_setter": lambda value: datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
            "m a=1i 0",
        ),
        # What has a meaning in the protocol is escaped.
        ({"a b,c=d": 'q"\\\nx'}, {}, 'm a\\ b\\,c\\=d="q\\"\\\\\nx" 1234'),
        ({"a": 1, "t x": "u v,w=1"}, {"tags_keys": ["t x"]}, "m,t\\ x=u\\ v\\,w\\=1 a=1i 1234"),
        ({"a": 1}, {"table": "m,x=1 y=2"}, "m\\,x\\=1\\ y\\=2 a=1i 1234"),
        ({"a": "größer 🚆"}, {}, 'm a="größer 🚆" 1234'),
        ({"a": -(2**63)}, {}, f"m a={-(2**63)}i 1234"),
    ],
)
def test_lines(value: Any, options: dict[str, Any], expected: str) -> None:
    assert line(value, **options) == expected


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (["sesame"], {}, "its value is a list, not a dict"),
        ({}, {}, "it has no field"),
        ({"a": None}, {}, "it has no field"),
        ({"a": {"sesame": 1}}, {}, "its field 'a' is a dict"),
        ({"a": b"sesame"}, {}, "its field 'a' is a bytes"),
        ({"a": math.nan}, {}, "its field 'a' is not a finite number"),
        ({"a": math.inf}, {}, "its field 'a' is not a finite number"),
        ({"a": 2**63}, {}, "its field 'a' is an int of more than 64 bits"),
        ({"a": 10**400}, {"convert_ints_to_floats": True}, "its field 'a' is not a finite number"),
        ({"a": "sesame\x00"}, {}, "its field 'a' holds a character"),
        ({"a": "sesame\ud800"}, {}, "its field 'a' holds a character"),
        ({"b": 1}, {"fields_keys": ["a"]}, "it lacks the field 'a'"),
        ({"a": 1, "t": "sesame\nm a=2i"}, {"tags_keys": ["t"]}, "its tag 't' contains a line end"),
        ({"a": 1, "t": "sesame\\"}, {"tags_keys": ["t"]}, "ends with a backslash"),
        ({"a": 1, "t": ["sesame"]}, {"tags_keys": ["t"]}, "its tag 't' is a list"),
        ({"a": 1}, {"include_metadata_tags": True, "key": b"\xff"}, "its tag '__key' is not UTF-8"),
        ({"a\nm b": 1}, {}, "the name of a field contains a line end"),
        ({"a\\": 1}, {}, "ends with a backslash"),
        ({7: 1}, {}, "the name of a field is a int"),
        ({"a": 1}, {"table": lambda value: "m\nn"}, "the name of a measurement contains a line end"),
        ({"a": 1}, {"table": lambda value: "#m"}, "begins with a number sign"),
        ({"a": 1}, {"table": lambda value: ""}, "the name of a measurement is empty"),
        ({"a": 1}, {"table": lambda value: value["sesame"]}, "measurement failed with KeyError"),
        ({"a": 1}, {"fields_keys": lambda value: "a"}, "fields_keys returned a str"),
        ({"a": 1}, {"tags_keys": lambda value: 7}, "tags_keys returned a int"),
        ({"a": 1}, {"time_setter": "t"}, "it lacks the time 't'"),
        ({"a": 1, "t": "sesame"}, {"time_setter": "t"}, "its time is a str without an ISO 8601 date"),
        ({"a": 1, "t": 1.5}, {"time_setter": "t"}, "its time is a float"),
        ({"a": 1, "t": 2**63}, {"time_setter": "t", "fields_keys": ["a"]}, "its time is a int"),
        ({"a": 1}, {"time_setter": lambda value: value["sesame"]}, "time_setter failed with KeyError"),
    ],
)
def test_values_without_a_line_are_named_and_not_shown(value: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkError) as caught:
        line(value, **options)
    assert str(caught.value).startswith("TestSink cannot write orders[3] offset 7: ")
    assert message in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('partial write: field type conflict: input field "Nr" on measurement "m" is type string', "field 'Nr' has"),
        ("table: weather, column: n; cast error from protocol type: string", "field 'n' has another type"),
        ("points beyond retention policy", "older than the retention period"),
        ("unable to parse 'sesame'", ""),
    ],
)
def test_texts_of_servers(text: str, expected: str) -> None:
    assert expected in explained(text)
    assert "sesame" not in explained(text)


SINKS: list[tuple[Any, dict[str, Any]]] = [
    (InfluxDB3Sink, {"token": "t", "host": "http://h", "organization_id": "o", "database": "d", "measurement": "m"}),
    (InfluxDB1Sink, {"host": "h", "database": "d", "measurement": "m"}),
    (
        TDengineSink,
        {"host": "http://h", "database": "d", "supertable": "m", "subtable": "s", "username": "u", "password": "p"},
    ),
]


@pytest.mark.parametrize(("kind", "arguments"), SINKS)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"host": ""}, ArgumentValueError),
        ({"host": "http://a:b@h/"}, ArgumentValueError),
        ({"database": ""}, ArgumentValueError),
        ({"database": 7}, ArgumentTypeError),
        ({"fields_keys": "a"}, ArgumentTypeError),
        ({"fields_keys": [7]}, ArgumentTypeError),
        ({"tags_keys": 7}, ArgumentTypeError),
        ({"tags_keys": [""]}, ArgumentTypeError),
        ({"fields_keys": ["a"], "tags_keys": ["a"]}, ArgumentValueError),
        ({"time_setter": 7}, ArgumentTypeError),
        ({"time_precision": "m"}, ArgumentValueError),
        ({"allow_missing_fields": 1}, ArgumentTypeError),
        ({"include_metadata_tags": 1}, ArgumentTypeError),
        ({"convert_ints_to_floats": 1}, ArgumentTypeError),
        ({"batch_size": 0}, ArgumentValueError),
        ({"request_timeout_ms": 0}, ArgumentValueError),
        ({"request_timeout_ms": 1.5}, ArgumentTypeError),
        ({"verify_ssl": "no"}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(
    kind: Any, arguments: dict[str, Any], wrong: dict[str, Any], error: type[Exception]
) -> None:
    kind(**arguments)
    with pytest.raises(error, match=kind.__name__):
        kind(**{**arguments, **wrong})


@pytest.mark.parametrize(
    ("index", "wrong", "error"),
    [
        (0, {"token": 7}, ArgumentTypeError),
        (0, {"organization_id": ""}, ArgumentValueError),
        (0, {"measurement": ""}, ArgumentValueError),
        (0, {"enable_gzip": 1}, ArgumentTypeError),
        (0, {"debug": 1}, ArgumentTypeError),
        (0, {"raise_on_retention_violation": 1}, ArgumentTypeError),
        (1, {"port": 0}, ArgumentValueError),
        (1, {"password": "p"}, ArgumentValueError),
        (1, {"username": 7}, ArgumentTypeError),
        (1, {"username": "u", "password": 7}, ArgumentTypeError),
        (1, {"ssl": 1}, ArgumentTypeError),
        (2, {"supertable": ""}, ArgumentValueError),
        (2, {"subtable": 7}, ArgumentTypeError),
        (2, {"username": ""}, ArgumentValueError),
        (2, {"token": "t"}, ArgumentValueError),
        (2, {"username": "", "token": "t"}, ArgumentValueError),
        (2, {"max_retries": -1}, ArgumentValueError),
        (2, {"retry_backoff_factor": -1}, ArgumentValueError),
        (2, {"enable_gzip": 1}, ArgumentTypeError),
    ],
)
def test_wrong_arguments_of_one_sink_are_refused(index: int, wrong: dict[str, Any], error: type[Exception]) -> None:
    kind, arguments = SINKS[index]
    with pytest.raises(error, match=kind.__name__):
        kind(**{**arguments, **wrong})
