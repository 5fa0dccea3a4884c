"""A schema registry that is away, or refuses: no record is to blame, and no error callback is asked."""

import json
from typing import Any

import pytest

from streamrt.errors import SchemaRegistryError, SchemaRegistryUnavailableError, ValueDeserializationError
from streamrt.models import Headers
from streamrt.serializers import (
    AvroDeserializer,
    AvroSerializer,
    Deserializer,
    SchemaRegistrySerializationConfig,
    SerializationContext,
    Serializer,
)
from tests.unit.apps import Stage
from tests.unit.registries import Answer, RegistryDouble, always
from tests.unit.tasks import TASK, Writer, chunk, end, run, values

pytestmark = pytest.mark.usefixtures("processing_mode")

AWAY = SchemaRegistryUnavailableError("the schema registry http://registry did not answer")
REFUSAL = SchemaRegistryError("the schema registry http://registry does not let this application")


class Troubled(Deserializer):
    """Reads JSON; raises at the value 3."""

    def __init__(self, trouble: Exception) -> None:
        self.trouble = trouble

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        if value == b"3":
            raise self.trouble
        return json.loads(value)


class TroubledOut(Serializer):
    """Writes JSON; raises at the value 3."""

    def __init__(self, trouble: Exception) -> None:
        self.trouble = trouble

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:
        if value == 3:
            raise self.trouble
        return json.dumps(value).encode()


def stage(side: str, trouble: Exception, asked: list[Any]) -> Stage:
    def skip(*error: Any) -> bool:
        asked.append(error)
        return True

    callbacks: dict[str, Any] = {f"on_{name}_error": skip for name in ("consumer", "processing", "producer")}
    if side == "output":
        made = Stage(out={"value_serializer": TroubledOut(trouble)}, **callbacks)
    else:
        made = Stage(
            {f"{side}_deserializer": Troubled(trouble)},
            {"key_serializer": "json"} if side == "key" else {},
            **callbacks,
        )
    made.sdf.to_topic(made.out)
    return made


@pytest.mark.parametrize("side", ["value", "key", "output"])
def test_a_registry_that_is_away_interrupts_the_partition(side: str) -> None:
    asked: list[Any] = []
    records = chunk(b"1", b"2", b"3", b"4", keys=[b"1", b"2", b"3", b"4"])
    report = run(stage(side, AWAY, asked).app, records)
    assert asked == []
    assert report.failure is None
    assert report.interrupted == {TASK: str(AWAY)}
    # Nothing of the work counts: it begins again at what is committed.
    assert (end(report), values(report), report.records) == (0, [], 0)


@pytest.mark.parametrize("side", ["value", "key", "output"])
def test_a_registry_that_refuses_ends_the_application(side: str) -> None:
    asked: list[Any] = []
    records = chunk(b"1", b"2", b"3", b"4", keys=[b"1", b"2", b"3", b"4"])
    report = run(stage(side, REFUSAL, asked).app, records)
    assert asked == []
    assert report.interrupted == {}
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.partition, failure.message) == ("registry", TASK, str(REFUSAL))
    assert type(failure.error()) is SchemaRegistryError


def test_records_are_not_skipped_while_the_registry_is_away() -> None:
    broken = [True]

    def answers(method: str, path: str, body: Any) -> Answer:
        if broken[0]:
            return 503, {}
        return (200, {"schema": '"int"'}) if path.endswith("/7") else (404, {"error_code": 40403})

    skipped: list[Any] = []

    def skip(error: Any, *record: Any) -> bool:
        skipped.append(error)
        return True

    with RegistryDouble(answers) as double:
        reader = AvroDeserializer(schema_registry_client_config=double.config(max_retries=1))
        made = Stage({"value_deserializer": reader}, on_consumer_error=skip)
        made.sdf.apply(lambda value: value)
        records = chunk(b"\0\0\0\0\7\2", b"\0\0\0\0\6\2", b"\0\0\0\0\7\4")
        away = run(made.app, records)
        assert (skipped, values(away), end(away)) == ([], [], 0)
        assert "could not get the schema with id 7: HTTP 503" in away.interrupted[TASK]
        broken[0] = False
        back = run(made.app, records)
        # The id that the registry does not know is bad input.
        assert (values(back), end(back)) == ([1, 2], 3)
        assert [type(error) for error in skipped] == [ValueDeserializationError]
        assert "in[0] at offset 1 cannot be deserialized: the schema registry" in str(skipped[0])


@pytest.mark.parametrize("headers", [None, [("a", b"1")]], ids=str)
def test_the_id_goes_into_the_headers_of_the_output_alone(headers: Headers | None) -> None:
    with RegistryDouble(always(200, {"id": 7})) as double:
        wishes = SchemaRegistrySerializationConfig(schema_id_location="header")
        settings: dict[str, Any] = {
            "schema_registry_client_config": double.config(),
            "schema_registry_serialization_config": wishes,
        }
        made = Stage(
            out={
                "value_serializer": AvroSerializer("int", **settings),
                "key_serializer": AvroSerializer("bytes", **settings),
            }
        )
        seen: list[Any] = []
        made.sdf.to_topic(made.out)
        made.sdf.apply(lambda value, key, timestamp, given: seen.append(given), metadata=True)
        writer = Writer()
        run(
            made.app,
            chunk(b"5", b"6", keys=[b"k", b"k"], headers=None if headers is None else [headers] * 2),
            writer=writer,
        )
        expected = [*(headers or []), ("__value_schema_id", b"\0\0\0\0\7"), ("__key_schema_id", b"\0\0\0\0\7")]
        assert [(value, key, found) for _, value, key, _, found in writer.records] == [
            (b"\x0a", b"k", expected),
            (b"\x0c", b"k", expected),
        ]
        assert seen == [headers, headers]
        message = made.out.serialize(b"k", 5, headers=headers)
        assert sorted(message.headers or []) == sorted(expected)
