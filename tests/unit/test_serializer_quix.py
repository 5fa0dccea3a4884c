"""Quix's formats. Bytes and rows of the tables are what the platform's own library (3.28.1) wrote and read."""

import gzip
import json
import math
import time
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, IgnoreMessage, SerializationError
from streamrt.models import Headers
from streamrt.serializers import (
    MessageField,
    QuixDeserializer,
    QuixEventsSerializer,
    QuixTimeseriesSerializer,
    SerializationContext,
)
from tests.unit.apps import Stage

CONTEXT = SerializationContext("topic", MessageField.VALUE)


def headers(kind: Any = b"TimeseriesData", codec: Any = b"JT") -> Headers:
    return [("__Q_ModelKey", kind), ("__Q_CodecId", codec)]


def read(value: Any, own: Headers | None = None, **options: Any) -> list[Any]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return QuixDeserializer(**options)(data, SerializationContext("topic", MessageField.VALUE, own))


# -- Writing ---------------------------------------------------------------------------------------------------------

WRITTEN_SERIES = [
    (
        {
            "a": 1,
            "b": 1.1,
            "c": "string",
            "d": b"bytes",
            "e": bytearray(b"x"),
            "Timestamp": 123,
            "Tags": {"tag1": "tag"},
        },
        (
            b'{"BinaryValues":{"d":["Ynl0ZXM="],"e":["eA=="]},"StringValues":{"c":["string"]},'
            b'"NumericValues":{"a":[1],"b":[1.1]},"Timestamps":[123],"TagValues":{"tag1":["tag"]}}'
        ),
    ),
    (
        {"Timestamp": 5},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{},"Timestamps":[],"TagValues":{}}',
    ),
    ({}, b'{"BinaryValues":{},"StringValues":{},"NumericValues":{},"Timestamps":[],"TagValues":{}}'),
    (
        {"a": None, "Timestamp": 1},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{},"Timestamps":[],"TagValues":{}}',
    ),
    (
        {"a": 1, "Timestamp": 1.5},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{"a":[1]},"Timestamps":[1.5],"TagValues":{}}',
    ),
    (
        {"a": 1, "Timestamp": 1, "Tags": None},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{"a":[1]},"Timestamps":[1],"TagValues":{}}',
    ),
    (
        {"a": 1, "Timestamp": 1, "Tags": {"t": None}},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{"a":[1]},"Timestamps":[1],"TagValues":{"t":[null]}}',
    ),
    (
        {"a": math.nan, "Timestamp": 1},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{"a":[null]},"Timestamps":[1],"TagValues":{}}',
    ),
    (
        {"Tags": {"a": "b"}, "Timestamp": 3},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{},"Timestamps":[],"TagValues":{"a":["b"]}}',
    ),
    (
        {"é": "ü", "Timestamp": 1},
        '{"BinaryValues":{},"StringValues":{"é":["ü"]},"NumericValues":{},"Timestamps":[1],"TagValues":{}}'.encode(),
    ),
    (
        {"a": -0.0, "Timestamp": -7},
        b'{"BinaryValues":{},"StringValues":{},"NumericValues":{"a":[-0.0]},"Timestamps":[-7],"TagValues":{}}',
    ),
]
WRITTEN_EVENTS = [
    (
        {"Id": "i", "Value": "v", "Tags": {"t": "x"}, "Timestamp": 17},
        b'{"Id":"i","Value":"v","Tags":{"t":"x"},"Timestamp":17}',
    ),
    ({"Timestamp": 1}, b'{"Id":"","Value":"","Tags":{},"Timestamp":1}'),
    ({"Tags": None, "Timestamp": 1}, b'{"Id":"","Value":"","Tags":{},"Timestamp":1}'),
    ({"Timestamp": 1, "x": 2}, b'{"Id":"","Value":"","Tags":{},"Timestamp":1}'),
    ({"Tags": {"t": 5}, "Timestamp": 1}, b'{"Id":"","Value":"","Tags":{"t":5},"Timestamp":1}'),
]


@pytest.mark.parametrize(("row", "data"), WRITTEN_SERIES)
def test_rows_become_time_series_data(row: Any, data: bytes) -> None:
    assert QuixTimeseriesSerializer(as_legacy=False)(row, CONTEXT) == data
    end = str(34 + len(data)).encode()
    assert QuixTimeseriesSerializer()(row, CONTEXT) == (
        b'{"C":"JT","K":"ParameterData","V":' + data + b',"S":34,"E":' + end + b"}"
    )


@pytest.mark.parametrize(("event", "data"), WRITTEN_EVENTS)
def test_rows_become_events(event: Any, data: bytes) -> None:
    assert QuixEventsSerializer(as_legacy=False)(event, CONTEXT) == data
    end = str(30 + len(data)).encode()
    assert QuixEventsSerializer()(event, CONTEXT) == (
        b'{"C":"JT","K":"EventData","V":' + data + b',"S":30,"E":' + end + b"}"
    )


def test_the_envelope_says_where_the_value_is() -> None:
    data = QuixTimeseriesSerializer()({"é": "ü", "Timestamp": 1}, CONTEXT) or b""
    envelope = json.loads(data)
    assert (envelope["S"], envelope["E"]) == (34, 133)
    assert json.loads(data[envelope["S"] : envelope["E"]]) == envelope["V"]


def test_headers_say_what_the_new_format_holds() -> None:
    assert QuixTimeseriesSerializer(as_legacy=False).extra_headers == {
        "__Q_ModelKey": "TimeseriesData",
        "__Q_CodecId": "JT",
    }
    assert QuixEventsSerializer(as_legacy=False).extra_headers == {"__Q_ModelKey": "EventData", "__Q_CodecId": "JT"}
    assert (QuixTimeseriesSerializer().extra_headers, QuixEventsSerializer().extra_headers) == ({}, {})


def test_own_functions_write_and_read_the_json() -> None:
    write = QuixTimeseriesSerializer(dumps=json.dumps)
    assert write({"a": "ü", "Timestamp": 1}, CONTEXT) == (
        b'{"C":"JT","K":"ParameterData","V":{"BinaryValues": {}, "StringValues": {"a": ["\\u00fc"]}, "NumericValues": {}, '
        b'"Timestamps": [1], "TagValues": {}},"S":34,"E":146}'
    )
    assert read(write({"a": "ü", "Timestamp": 1}, CONTEXT), loads=json.loads) == [
        {"a": "ü", "Tags": {}, "Timestamp": 1}
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (5, "got a int, not a mapping"),
        ([], "got a list"),
        ({"a": 1}, "need 'Timestamp' in the value"),
        ({"a": True, "Timestamp": 1}, "the parameter 'a' .* is a bool; it must be an int"),
        ({"a": [1], "Timestamp": 1}, "is a list"),
        ({"a": {}, "Timestamp": 1}, "is a dict"),
        ({1: 1, "Timestamp": 1}, "has no JSON form: Dict key must be str"),
        ({"a": 2**70, "Timestamp": 1}, "Integer exceeds 64-bit range"),
        ({"a": 1, "Timestamp": 1, "Tags": [1]}, "'Tags' must be a mapping, not a list"),
        ({"a": 1, "Timestamp": 1, "Tags": "x"}, "'Tags' must be a mapping, not a str"),
        # These are written as they are by the library; readers cannot use them.
        ({"a": 1, "Timestamp": "x"}, "'Timestamp' must be a number of nanoseconds, not a str"),
        ({"a": 1, "Timestamp": None}, "not a NoneType"),
        ({"a": 1, "Timestamp": True}, "not a bool"),
        ({"a": 1, "Timestamp": math.inf}, "not a float"),
    ],
)
def test_rows_that_are_no_time_series_data_are_refused(row: Any, message: str) -> None:
    for legacy in (False, True):
        with pytest.raises(SerializationError, match=message):
            QuixTimeseriesSerializer(as_legacy=legacy)(row, CONTEXT)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"Id": "i", "Value": "v"}, "need 'Timestamp' in the value"),
        ({"Id": 5, "Timestamp": 1}, "Id of a Quix event must be a str, not a int"),
        ({"Id": None, "Timestamp": 1}, "not a NoneType"),
        ({"Value": b"x", "Timestamp": 1}, "Value of a Quix event must be a str, not a bytes"),
        ({"Tags": 5, "Timestamp": 1}, "'Tags' must be a mapping, not a int"),
        ([{"Timestamp": 1}], "got a list"),
    ],
)
def test_rows_that_are_no_events_are_refused(event: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        QuixEventsSerializer()(event, CONTEXT)


def test_none_is_a_tombstone() -> None:
    # The library refuses None.
    assert QuixTimeseriesSerializer()(None, CONTEXT) is None
    assert QuixEventsSerializer(as_legacy=False)(None, CONTEXT) is None


# -- Reading ---------------------------------------------------------------------------------------------------------

SERIES: dict[str, Any] = {
    "BinaryValues": {"d": ["Ynl0ZXM=", None]},
    "StringValues": {"c": ["string", "x"]},
    "NumericValues": {"a": [1, 2], "b": [1.1, None]},
    "Timestamps": [10, 20],
    "TagValues": {"tag1": ["t", "u"]},
}
ROWS = [
    {"a": 1, "b": 1.1, "c": "string", "d": b"bytes", "Tags": {"tag1": "t"}, "Timestamp": 10},
    {"a": 2, "b": None, "c": "x", "d": None, "Tags": {"tag1": "u"}, "Timestamp": 20},
]
EVENT: dict[str, Any] = {"Id": "i", "Value": "v", "Tags": {"t": "x"}, "Timestamp": 17}


def legacy(value: Any, kind: Any = "ParameterData", codec: Any = "JT") -> dict[str, Any]:
    return {"C": codec, "K": kind, "V": value, "S": 34, "E": 198}


def raw(value: Any) -> bytes:
    """Return the envelope as writers of the legacy format lay it out."""
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("data", "own"),
    [
        (raw(SERIES), headers()),
        (raw(SERIES), headers(b"ParameterData")),
        (raw(SERIES), headers(codec=b"J")),
        (raw(SERIES), [("other", b"\xff"), *headers(b"StreamEnd"), *headers()]),
        (raw(SERIES), [("__Q_ModelKey", "TimeseriesData"), ("__Q_CodecId", "JT")]),
        (gzip.compress(raw(SERIES)), headers(codec=b"[GZIP]JT")),
        (gzip.compress(raw(SERIES)), headers(codec=b"[GZIP]J")),
        (raw(legacy(SERIES)), None),
        (raw(legacy(SERIES)), []),
        (raw(legacy(SERIES, "TimeseriesData")), None),
        (raw(legacy(SERIES, codec="J")), None),
        (raw({"C": "JT", "K": "ParameterData", "V": SERIES}), None),
        (raw(legacy(SERIES)), headers(b"EventData")),
        (raw({**SERIES, "X": 1}), headers()),
    ],
)
def test_time_series_data_becomes_a_row_for_each_timestamp(data: bytes, own: Headers | None) -> None:
    rows = read(data, own)
    assert rows == ROWS
    assert [list(row) for row in rows] == [["a", "b", "c", "d", "Tags", "Timestamp"]] * 2


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"BinaryValues": {}, "StringValues": {}, "NumericValues": {}, "TagValues": {}}, [{}, {}]),
        ({"Timestamps": []}, []),
        (
            {"Timestamps": [5]},
            [{"a": 1, "b": 1.1, "c": "string", "d": b"bytes", "Tags": {"tag1": "t"}, "Timestamp": 5}],
        ),
        ({"BinaryValues": {"d": ["", ""]}}, [{"d": b""}, {"d": b""}]),
        ({"TagValues": {"t": [None, "y"]}}, [{"Tags": {"t": None}}, {"Tags": {"t": "y"}}]),
        ({"NumericValues": {"a": [None, None], "b": [1, 2]}}, [{"a": None, "b": 1}, {"a": None, "b": 2}]),
        ({"StringValues": {"a": ["s", "t"], "c": ["", ""]}}, [{"a": "s", "c": ""}, {"a": "t", "c": ""}]),
        ({"Timestamps": [9, 5]}, [{"Timestamp": 9}, {"Timestamp": 5}]),
    ],
)
def test_parts_may_be_empty_and_values_null(change: Any, rows: Any) -> None:
    whole = read({**SERIES, **change}, headers())
    assert len(whole) == len(rows)
    for row, expected in zip(whole, rows, strict=True):
        assert {name: row[name] for name in expected} == expected


def test_a_parameter_may_have_numbers_at_times_and_text_at_others() -> None:
    # The library gives the null of the later part instead of the number.
    value = {"Timestamps": [1, 2], "NumericValues": {"a": [5, None]}, "StringValues": {"a": [None, "x"]}}
    assert [row["a"] for row in read(value, headers())] == [5, "x"]


@pytest.mark.parametrize(
    ("value", "own", "events"),
    [
        (EVENT, headers(b"EventData"), [EVENT]),
        ([EVENT, {**EVENT, "Id": "j"}], headers(b"EventData[]"), [EVENT, {**EVENT, "Id": "j"}]),
        ([], headers(b"EventData[]"), []),
        ({"Id": "i", "Value": "v", "Timestamp": 1}, headers(b"EventData"), [{**EVENT, "Tags": {}, "Timestamp": 1}]),
        ({**EVENT, "Tags": None}, headers(b"EventData"), [{**EVENT, "Tags": None}]),
        ({**EVENT, "x": 1}, headers(b"EventData"), [EVENT]),
        ({**EVENT, "Value": 5}, headers(b"EventData"), [{**EVENT, "Value": 5}]),
    ],
)
def test_events_become_rows(value: Any, own: Headers, events: Any) -> None:
    assert read(value, own) == events


def test_legacy_events_become_rows() -> None:
    assert read(raw(legacy(EVENT, "EventData"))) == [EVENT]
    assert read(raw(legacy([EVENT, EVENT], "EventData[]"))) == [EVENT, EVENT]


@pytest.mark.parametrize("kind", ["ParameterDefinitions", "EventDefinitions", "StreamProperties", "StreamEnd"])
def test_other_kinds_are_ignored(kind: str) -> None:
    for data, own in (
        (raw(SERIES), headers(kind.encode())),
        (raw(legacy(SERIES, kind)), None),
        (b"?", headers(kind.encode())),
    ):
        with pytest.raises(IgnoreMessage):
            read(data, own)


@pytest.mark.parametrize(
    ("data", "own", "message"),
    [
        (raw(SERIES), None, "the header __Q_ModelKey contains no Quix model key, so the value is not in a Quix format"),
        (raw(SERIES), [("__Q_ModelKey", b"TimeseriesData")], "the header __Q_CodecId is missing or empty"),
        (raw(SERIES), headers(None), "the header __Q_ModelKey contains no Quix model key"),
        (raw(SERIES), headers(codec=None), "the header __Q_CodecId is missing or empty"),
        (raw(SERIES), headers(b"\xff"), "the header __Q_ModelKey is not UTF-8 text"),
        (raw(SERIES), headers(b"TimeseriesDefinitions"), "model key 'TimeseriesDefinitions' is unknown"),
        (raw(SERIES), headers(codec=b"PB"), "the Quix codec 'PB' is unknown; JT, J are supported"),
        (raw(SERIES), headers(codec=b"[GZIP]"), "the Quix codec '.GZIP.' is unknown"),
        (gzip.compress(gzip.compress(b"{}")), headers(codec=b"[GZIP][GZIP]JT"), "codec .* is unknown"),
        (raw(SERIES), headers(codec=b"[GZIP]JT"), "the value cannot be inflated: .*incorrect header check"),
        (gzip.compress(raw(SERIES))[:-1], headers(codec=b"[GZIP]JT"), "is truncated"),
        (gzip.compress(raw(SERIES)) + b"x", headers(codec=b"[GZIP]JT"), "has bytes after its end"),
        (raw(SERIES), [*headers(), ("__Q_SplitMessageId", b"1")], "part of a split Quix message"),
        (b"{", headers(), "the bytes are not JSON"),
        (b" " + raw(legacy(SERIES)), None, "contains no Quix model key"),
        (raw(legacy(SERIES, "Other")), None, "model key 'Other' is unknown"),
        (raw(legacy(SERIES, "")), None, "K contains no Quix model key"),
        (raw(legacy(SERIES, 5)), None, "K contains no Quix model key"),
        (raw(legacy(SERIES, codec="X")), None, "the Quix codec 'X' is unknown in a legacy envelope"),
        (raw(legacy(SERIES, codec=["JT"])), None, "is unknown in a legacy envelope"),
        (raw({"C": "JT", "K": "ParameterData"}), None, "the header __Q_ModelKey contains no"),
        (raw(legacy(json.dumps(SERIES))), None, "time series data must be a JSON object, not a str"),
        (raw({}), headers(), "has no list of Timestamps"),
        (raw({"Timestamps": "12"}), headers(), "has no list of Timestamps"),
        (
            raw({**SERIES, "NumericValues": {"a": [1]}}),
            headers(),
            "NumericValues .* have 1 values for 'a' and 2 timestamps",
        ),
        (raw({**SERIES, "TagValues": {"t": ["x"]}}), headers(), "TagValues .* have 1 values for 't' and 2 timestamps"),
        (raw({**SERIES, "StringValues": {"a": "xy"}}), headers(), "have a str for 'a'"),
        (raw({**SERIES, "NumericValues": [1]}), headers(), "NumericValues must be a JSON object, not a list"),
        (raw({**SERIES, "TagValues": None}), headers(), "TagValues must be a JSON object, not a NoneType"),
        (raw({**SERIES, "BinaryValues": {"d": ["e!A==", ""]}}), headers(), "the binary value of 'd' is not base64"),
        (raw({**SERIES, "BinaryValues": {"d": [1, 2]}}), headers(), "the binary value of 'd' is not base64"),
        (raw({**SERIES, "NumericValues": {"Timestamp": [1, 2]}}), headers(), "a parameter has the name 'Timestamp'"),
        (raw({**SERIES, "StringValues": {"Tags": ["", ""]}}), headers(), "a parameter has the name 'Tags'"),
        (raw({"Id": "i"}), headers(b"EventData"), "the Quix event has no Timestamp"),
        (raw([EVENT]), headers(b"EventData"), "an event must be a JSON object, not a list"),
        (raw(EVENT), headers(b"EventData[]"), "must be a list, not a dict"),
        (raw([5]), headers(b"EventData[]"), "an event must be a JSON object, not a int"),
    ],
)
def test_what_is_not_in_a_quix_format_is_refused(data: bytes, own: Headers | None, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        read(data, own)


@pytest.mark.slow
def test_bombs_are_refused_in_no_time() -> None:
    bomb = gzip.compress(b'{"Timestamps":[' + b"1," * 10_000_000 + b"1]}")
    begun = time.process_time()
    with pytest.raises(SerializationError, match="larger than max_inflated_bytes=10485760"):
        read(bomb, headers(codec=b"[GZIP]JT"))
    with pytest.raises(SerializationError, match="contains 300001 records, more than max_records=100000"):
        read(b'{"Timestamps":[' + b"1," * 300_000 + b"1]}", headers())
    with pytest.raises(SerializationError, match="more than max_records=100000"):
        read(b"[" + b"{}," * 300_000 + b"{}]", headers(b"EventData[]"))
    assert time.process_time() - begun < 10


def test_limits_can_be_set() -> None:
    data = gzip.compress(raw(SERIES))
    assert read(data, headers(codec=b"[GZIP]JT"), max_inflated_bytes=len(raw(SERIES)), max_records=2) == ROWS
    with pytest.raises(SerializationError, match="max_inflated_bytes"):
        read(data, headers(codec=b"[GZIP]JT"), max_inflated_bytes=len(raw(SERIES)) - 1)
    with pytest.raises(SerializationError, match="max_records=1"):
        read(data, headers(codec=b"[GZIP]JT"), max_records=1)
    for limit in (0, -1, "many"):
        with pytest.raises(ConfigurationError, match="max_records must be a positive int"):
            QuixDeserializer(max_records=limit)  # type: ignore[arg-type]


# -- In an application -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("processing_mode")
def test_each_row_is_processed_as_a_record_with_the_headers_of_its_message() -> None:
    stage = Stage({"value_deserializer": "quix"}, {"value_serializer": QuixTimeseriesSerializer(as_legacy=False)})
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_bytes("in", raw(SERIES), key=b"k", headers=headers(), timestamp=7)
    driver.pipe_bytes("in", b"?", headers=headers(b"StreamEnd"))
    first, second = driver.read("out")
    assert json.loads(first.raw_value or b"")["NumericValues"] == {"a": [1], "b": [1.1]}
    assert json.loads(second.raw_value or b"")["Timestamps"] == [20]
    assert (first.raw_key, first.timestamp, second.timestamp) == (b"k", 7, 7)
    assert dict(first.headers or ()) == {"__Q_ModelKey": b"TimeseriesData", "__Q_CodecId": b"JT"}


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("name", ["quix_timeseries", "quix_events"])
def test_what_the_named_serializers_write_the_named_deserializer_reads(name: str) -> None:
    stage = Stage(out={"value_serializer": name, "value_deserializer": "quix"})
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    row = {"Timestamp": 5, "Id": "i", "Value": "v", "Tags": {}}
    driver.pipe("in", row)
    (record,) = driver.read("out")
    assert record.value == [row]
