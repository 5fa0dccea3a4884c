"""Values of Avro that are deserialized many at once have the results and errors of those that are deserialized one by one."""

import random
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pytest

from streamrt import DeadLetters
from streamrt.config import ProcessingMode
from streamrt.errors import StreamRTError
from streamrt.schema import Schema
from streamrt.serializers import AvroDeserializer, BatchDeserializer, Deserializer, MessageField
from streamrt.serializers.avro import AvroSerializer
from streamrt.serializers.row_formats import row_format
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.testing.row_formats import ROW_EXAMPLES
from tests.unit.apps import application

FLAT = [word for word in ROW_EXAMPLES if not word.startswith(("MAP", "STRUCT", "ARRAY"))]
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["double", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "half", "type": "float"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
RECURSIVE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
NUMBERS = (
    0,
    -1,
    1,
    63,
    64,
    -64,
    -65,
    8_191,
    8_192,
    2**27,
    2**31 - 1,
    -(2**31),
    2**55 - 1,
    2**55,
    2**62,
    -(2**63),
    2**63 - 1,
)


def make_order(chosen: random.Random) -> dict[str, Any]:
    return {
        "id": chosen.choice(NUMBERS),
        "name": chosen.choice((None, "", "Ann", "Zoë \U0001f600", "x" * 200)),
        "price": chosen.choice((None, -0.0, 1.5, float("nan"), float("inf"), 1e300)),
        "kind": chosen.choice("AB"),
        "at": chosen.choice((0, 1_700_000_000_123, -62_135_596_800_000)),
        "half": chosen.choice((0.1, -0.0, float("-inf"))),
        "tags": chosen.choice(([], ["a"], ["", "é"])),
    }


def break_value(value: bytes, chosen: random.Random) -> bytes:
    place = chosen.randrange(len(value))
    return chosen.choice(
        (
            value[:place],
            value + b"\0",
            value[:place] + bytes([chosen.randrange(256)]) + value[place + 1 :],
            b"\xff" * 11,
        )
    )


def assert_same(deserializer: Deserializer, values: list[bytes], *, usual: bool) -> None:
    """Compare both ways, also in the types of what they return."""
    one, many = deserializer.bind("t", MessageField.VALUE), deserializer.bind_batch("t", MessageField.VALUE)
    assert many is not None
    loaded = many(values)
    assert loaded is not None or not usual
    if loaded is not None:
        assert list(map(repr, loaded)) == [repr(one(value, None)) for value in values]


@pytest.mark.parametrize("seed", range(3))
def test_many_records_are_what_each_of_them_is(seed: int) -> None:
    chosen = random.Random(seed)
    write = AvroSerializer(AVRO).bind("t", MessageField.VALUE)
    values = [write(make_order(chosen), None) or b"" for _ in range(300)]
    read = AvroDeserializer(AVRO)
    assert_same(read, values, usual=True)
    for _ in range(100):
        assert_same(read, [values[0], break_value(chosen.choice(values), chosen)], usual=False)


@pytest.mark.parametrize("nullable", [True, False])
def test_many_rows_are_what_each_of_them_is(nullable: bool) -> None:
    columns = [{"name": f"c{number}", "type": word, "nullable": nullable} for number, word in enumerate(FLAT)]
    made = row_format("avro", Schema(columns))
    full = {f"c{number}": ROW_EXAMPLES[word] for number, word in enumerate(FLAT)}
    rows = [full, dict.fromkeys(full) if nullable else full]
    rows += [{**full, name: None} for name in full] if nullable else []
    values = [made.encode(row, "t") for row in rows]
    assert_same(made.deserializer, values, usual=True)
    chosen = random.Random(nullable)
    for _ in range(100):
        assert_same(made.deserializer, [values[0], break_value(chosen.choice(values), chosen)], usual=False)


def test_subclasses_with_results_of_their_own_read_one_by_one() -> None:
    class Tagged(AvroDeserializer):
        def __call__(self, value: bytes, ctx: Any) -> Any:
            return {**super().__call__(value, ctx), "tagged": True}

    assert Tagged(AVRO).bind_batch("t", MessageField.VALUE) is None
    assert AvroDeserializer(AVRO, reader_schema=AVRO).bind_batch("t", MessageField.VALUE) is None
    for schema in ("string", {"type": "record", "name": "Empty", "fields": []}, RECURSIVE):
        assert AvroDeserializer(schema).bind_batch("t", MessageField.VALUE) is None


class Counted(AvroDeserializer):
    """Counts the blocks that were deserialized together."""

    blocks: ClassVar[list[int]] = []

    def bind_batch(self, topic: str, field: MessageField) -> BatchDeserializer | None:
        load = super().bind_batch(topic, field)

        def counted(values: Sequence[bytes]) -> Iterable[dict[str, Any]] | None:
            loaded = None if load is None else load(values)
            self.blocks.extend([] if loaded is None else [len(values)])
            return loaded

        return counted


def run(policy: str, values: list[bytes | None], mode: ProcessingMode, *, closures: bool) -> list[Any]:
    """Return all that an application makes of values; closures deserialize one by one."""
    policies: dict[str, dict[str, Any]] = {
        "fail": {},
        "skip": {"on_error": "skip"},
        "keep": {"on_error": DeadLetters("letters")},
    }
    processed = (lambda *place: None) if closures else None
    app = application(**policies[policy], processing_mode=mode, on_message_processed=processed)
    frame = app.dataframe(app.topic("in", value_serializer="bytes", value_deserializer=Counted(AVRO)))
    frame = frame[frame["id"] > 0]
    frame["half"] = frame["id"] / 2
    frame[["half", "name", "price"]].to_topic(app.topic("out"))
    driver, seen = TopologyTestDriver(app), []
    try:
        driver.pipe_many([InputRecord("in", value, "k", number) for number, value in enumerate(values)], chunk=3_000)
    except StreamRTError as error:
        seen.append((repr(error), repr(error.__cause__)))
    letters = driver.read("letters") if policy == "keep" else []
    return [*seen, repr(driver.read("out")), letters, driver.status]


@pytest.mark.parametrize("policy", ["fail", "skip", "keep"])
def test_chunks_have_the_results_and_errors_of_their_records(
    policy: str, processing_mode: ProcessingMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamrt.runtime.tasks.chain.load_ahead._BLOCK", 400)
    chosen = random.Random(policy)
    write = AvroSerializer(AVRO).bind("t", MessageField.VALUE)
    values = [write(make_order(chosen), None) for _ in range(700)]
    # A tombstone has no columns, and the bytes are in the second block.
    values[440], values[450] = None, b"\xff"
    closures = run(policy, values, processing_mode, closures=True)
    Counted.blocks.clear()
    assert run(policy, values, processing_mode, closures=False) == closures
    assert sum(Counted.blocks) >= 400
