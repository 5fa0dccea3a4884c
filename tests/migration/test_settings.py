"""Settings, serializers, contexts and lookups under the names that programs written for Quix Streams use."""

import contextlib
import logging
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt import ConnectionConfig, MessageContext, StreamingSeries, message_context, set_message_context
from streamrt.config import ApplicationConfig, configure_logging
from streamrt.dataframe.utils import ensure_milliseconds
from streamrt.errors import ConfigurationError, IgnoreMessage, InvalidOperationError
from streamrt.joins import SQLiteLookup, SQLiteLookupField
from streamrt.serializers import (
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    QuixDeserializer,
    QuixEventsSerializer,
    QuixSerializer,
    QuixTimeseriesSerializer,
    SerializationContext,
)
from streamrt.serializers.json import default_dumps, default_loads
from tests.unit.apps import Stage, application

CONTEXT = SerializationContext("t", MessageField.VALUE)

# -- Application -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_partition_buffer_size": 10_000}, r"max\.partition\.fetch\.bytes"),
        ({"state_recovery_offset_reset": "latest"}, "state is kept"),
        ({"state_recovery_offset_reset": "match"}, "auto_recover_from_source_offset_out_of_range=False"),
    ],
)
def test_parameters_without_a_counterpart_are_refused_by_name(settings: dict[str, Any], reason: str) -> None:
    [name] = settings
    with pytest.raises(ValueError, match=f"^{name} is not supported: .*{reason}"):
        application(**settings)


def test_state_recovery_from_the_earliest_record_is_what_happens_anyway() -> None:
    application(state_recovery_offset_reset="earliest", max_partition_buffer_size=None)


def test_a_configuration_can_be_copied_with_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ApplicationConfig(consumer_group="readings", commit_every=5)
    monkeypatch.setenv("STREAMRT_COMMIT_INTERVAL", "9")
    copy = config.copy(commit_every=0, state_dir="elsewhere")
    assert (copy.consumer_group, copy.commit_every, copy.state_dir, copy.commit_interval) == (
        *("readings", 0, Path("elsewhere")),
        5.0,
    )
    assert config.commit_every == 5
    for wrong in ({"commit_every": -1}, {"unknown": 1}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            config.copy(**wrong)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, "] [WARNING] [streamrt.tests] here"),
        ({"name": "100% mine"}, "] [WARNING] [100% mine] here"),
        ({"pid": True}, "] [WARNING] [{pid}] [streamrt.tests] here"),
    ],
)
def test_logging_may_tell_a_name_and_the_process(
    settings: dict[str, Any], begins: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 4711)
    logging.getLogger("streamrt").handlers.clear()
    assert configure_logging("INFO", **settings)
    assert not configure_logging("INFO", **settings)
    logging.getLogger("streamrt.tests").warning("here")
    assert begins.format(pid=4711) in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings", [{"sasl_mechanisms": "plain"}, {"sasl_mechanisms": "PLAIN", "sasl_mechanism": "PLAIN"}]
)
def test_sasl_mechanisms_is_sasl_mechanism(settings: dict[str, Any]) -> None:
    connection = ConnectionConfig(bootstrap_servers="kafka:9093", **settings)
    assert connection.sasl_mechanism == "PLAIN"
    assert connection.as_librdkafka_dict()["sasl.mechanism"] == "PLAIN"
    assert ConnectionConfig(bootstrap_servers="kafka:9093", sasl_mechanisms=None).sasl_mechanism is None


def test_two_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="sasl_mechanism and sasl_mechanisms are the same setting"):
        ConnectionConfig(bootstrap_servers="kafka:9093", sasl_mechanisms="PLAIN", sasl_mechanism="GSSAPI")
    with pytest.raises(ValueError, match="sasl_mechanism: Input should be"):
        ConnectionConfig(bootstrap_servers="kafka:9093", sasl_mechanisms="MAGIC")


# -- Serializers -----------------------------------------------------------------------------------------------------


def test_json_serializers_have_functions_as_defaults() -> None:
    assert default_loads(default_dumps({"a": [1, None], "ü": "é"})) == {"a": [1, None], "ü": "é"}
    for write in (JSONSerializer(), JSONSerializer(dumps=default_dumps), JSONSerializer(dumps=None)):
        assert write({"a": 1}, CONTEXT) == b'{"a":1}'
    for read in (JSONDeserializer(), JSONDeserializer(loads=default_loads), JSONDeserializer(loads=None)):
        assert read(b'{"a":1}', CONTEXT) == {"a": 1}
    with pytest.raises(TypeError):
        default_dumps({1, 2})
    with pytest.raises(ValueError, match="unexpected end of data"):
        default_loads(b"{")


@pytest.mark.parametrize("kind", [JSONSerializer, JSONDeserializer])
def test_a_validator_with_an_invalid_schema_is_refused_at_once(kind: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(ValueError, match=r"the JSON Schema is not valid at \$\.type"):
        kind(validator=jsonschema.Draft202012Validator({"type": "invalid"}))
    kind(validator=jsonschema.Draft202012Validator({"type": "object"}))


def test_quix_data_can_be_deserialized_by_its_model_key() -> None:
    read = QuixDeserializer()
    rows = read.deserialize("TimeseriesData", {"Timestamps": [1, 2], "NumericValues": {"n": [3, 4]}})
    assert [row["n"] for row in rows] == [3, 4]
    event = {"Timestamp": 1, "Id": "door", "Value": "open", "Tags": {}}
    assert read.deserialize("EventData[]", [event, event]) == [event, event]
    with pytest.raises(IgnoreMessage):
        read.deserialize("StreamEnd", {})


def test_quix_serializers_have_a_class_in_common() -> None:
    assert all(isinstance(write, QuixSerializer) for write in (QuixTimeseriesSerializer(), QuixEventsSerializer()))


# -- Contexts, series and durations ----------------------------------------------------------------------------------


def test_a_message_context_can_be_set_for_functions_under_test() -> None:
    def place(value: Any) -> Any:
        return message_context().topic, message_context().partition

    context = MessageContext(topic="orders", partition=2, offset=7, size=0)
    set_message_context(context)
    try:
        assert place({}) == ("orders", 2)
        stage = Stage()
        stage.sdf.apply(place)
        assert stage.values({}) == [("in", 0)]
        assert message_context() is context
    finally:
        set_message_context(None)
    with pytest.raises(InvalidOperationError, match="no record is being processed"):
        message_context()


def test_a_series_from_a_function_needs_its_dataframe(stage: Stage) -> None:
    series = StreamingSeries.from_apply_callback(lambda value, key, timestamp, headers: timestamp, stage.sdf)
    assert series.test({}, timestamp=5)[0][0] == 5
    with pytest.raises(TypeError, match="needs the dataframe of the series, not its id, got int"):
        StreamingSeries.from_apply_callback(lambda *_: None, id(stage.sdf))  # type: ignore[arg-type]


def test_durations_are_milliseconds() -> None:
    assert [ensure_milliseconds(delta) for delta in (7, timedelta(seconds=1), timedelta(microseconds=1_600))] == [
        *(7, 1_000),
        2,
    ]
    with pytest.raises(TypeError, match="delta must be an int of milliseconds or a timedelta"):
        ensure_milliseconds("1s")  # type: ignore[arg-type]


# -- Lookups ---------------------------------------------------------------------------------------------------------


def test_a_lookup_tells_how_its_cache_has_served(tmp_path: Path) -> None:
    path = tmp_path / "airlines.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE carriers (code TEXT, name TEXT)")
        connection.execute("INSERT INTO carriers VALUES ('UA', 'United')")
    lookup = SQLiteLookup(path, cache_size=10)
    field = SQLiteLookupField("carriers", ["name"], on="code")
    assert lookup.cache_info() == {"hits": 0, "misses": 0, "size": 0, "maxsize": 10}
    for code in ("UA", "UA", "DL", "UA"):
        lookup.join({"found": field}, code, {}, None, 0, None)
    assert lookup.cache_info() == {"hits": 2, "misses": 2, "size": 2, "maxsize": 10}
    lookup.close()
    assert lookup.cache_info() == {"hits": 0, "misses": 0, "size": 0, "maxsize": 10}
