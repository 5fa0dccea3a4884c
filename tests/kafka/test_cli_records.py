"""`streamrt produce` and `streamrt consume` on a real broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamrt.kafka import Producer
from tests.command_line import Outcome, streamrt
from tests.support import Kafka, unique
from tests.unit.registries import Answer, KeepingRegistry, RegistryDouble, always

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DAY_MS = 86_400_000


def produce(kafka: Kafka, topic: str, *arguments: object, stdin: str | bytes | None = None) -> Outcome:
    return streamrt("produce", topic, *arguments, "--broker", kafka.address, stdin=stdin)


def consume(kafka: Kafka, topic: str, *arguments: object) -> Outcome:
    return streamrt("consume", topic, *arguments, "--broker", kafka.address)


def values(kafka: Kafka, topic: str, *arguments: object) -> list[str]:
    outcome = consume(kafka, topic, "--values", *arguments)
    assert outcome.code == 0, outcome
    return outcome.out.splitlines()


@contextmanager
def transaction(kafka: Kafka) -> Iterator[Producer]:
    options = {"transactional.id": unique("transaction")}
    with Producer(kafka.address, extra_config=options, transactional=True) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        yield producer


def test_what_is_written_is_printed(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    written = produce(
        kafka,
        topic,
        *('{"id": 1}', '{"id": 2}', "--format", "json", "--key", "ann", "--partition", 1),
        *("--header", "origin=a=b", "--header", "n=", "--timestamp", "1970-01-02T00:00:00Z"),
    )
    assert written.out == f"wrote 2 records to {topic}\n  partition 1: offsets 0 to 1\n"
    first, second = kafka.receive(topic, 2)
    assert (first.key, first.value, second.value) == (b"ann", b'{"id": 1}', b'{"id": 2}')
    assert (first.timestamp, first.headers, first.partition) == (DAY_MS, [("origin", b"a=b"), ("n", b"")], 1)
    shown = consume(kafka, topic)
    assert shown.out.splitlines()[0] == (
        f'{topic}[1]@0  1970-01-02T00:00:00.000Z  key=ann  origin=a=b  n=  {{"id": 1}}'
    )
    assert consume(kafka, topic, "--max", 1, "--json").lines == [
        {
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": DAY_MS,
            "timestamp_type": "create",
            "key": "ann",
            "key_format": "string",
            "value": {"id": 1},
            "value_format": "json",
            "headers": [
                {"name": "origin", "value": "a=b", "format": "string"},
                {"name": "n", "value": "", "format": "string"},
            ],
        }
    ]


def test_values_come_from_files_and_from_stdin(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    lines, image = tmp_path / "lines.txt", tmp_path / "image"
    lines.write_bytes(b"one\n\nthree\r\n")
    image.write_bytes(b"\x00\xff\n")
    assert produce(kafka, topic, "--file", lines, "--json").json == {
        "topic": topic,
        "written": 3,
        "failed": 0,
        "partitions": [{"partition": 0, "records": 3, "first_offset": 0, "last_offset": 2}],
    }
    assert produce(kafka, topic, "--file", image, "--format", "bytes").code == 0
    assert produce(kafka, topic, stdin="four").code == 0
    assert [record.value for record in kafka.receive(topic, 5)] == [b"one", b"", b"three", b"\x00\xff\n", b"four"]
    assert values(kafka, topic) == ["one", "", "three", "00ff0a", "four"]
    # What would control a terminal is shown in letters.
    produce(kafka, topic, "--format", "bytes", stdin=b"a\x1b[2J\nb")
    assert consume(kafka, topic, "--from", 5).out.endswith("a\\x1b[2J\\nb\n")


def test_the_lines_of_consume_are_a_copy(kafka: Kafka) -> None:
    topic, copy = kafka.topic(), kafka.topic()
    with Producer(kafka.address) as producer:
        producer.produce(topic, b'{"a": [1, 2.50]}', b"\xff\x00", headers=[("a", b"1"), ("a", b"\xfe"), ("b", None)])
        producer.produce(topic, None, b"17", timestamp=5)
        producer.produce(topic, "text é\n", None, timestamp=6)
        producer.produce(topic, b'"quoted"', b"")
        producer.produce(topic, b"null", b"null")
    lines = consume(kafka, topic, "--json")
    assert [line["value_format"] for line in lines.lines] == ["json", None, "string", "json", "json"]
    assert produce(kafka, copy, "--format", "records", stdin=lines.out).code == 0
    original, copied = kafka.receive(topic, 5), kafka.receive(copy, 5)
    assert original[0].value == b'{"a": [1, 2.50]}'
    assert copied[0].value == b'{"a":[1,2.5]}'
    assert [record._replace(value=None) for record in copied] == [record._replace(value=None) for record in original]
    assert [record.value for record in copied[1:]] == [record.value for record in original[1:]]
    exact = kafka.topic()
    lines = consume(kafka, topic, "--json", "--format", "base64", "--key-format", "hex")
    assert produce(kafka, exact, "--format", "records", stdin=lines.out).code == 0
    assert kafka.receive(exact, 5) == original


def test_a_wrong_line_is_named_and_those_before_it_are_written(kafka: Kafka) -> None:
    topic = kafka.topic()
    failed = produce(kafka, topic, "--format", "json", stdin='1\n{"a"\n3\n')
    assert "line 2 has the wrong format: it is not JSON" in failed.sentence
    assert failed.out.startswith(f"wrote 1 record to {topic}\n")
    for line, why in [
        ("[]", "it is not an object"),
        ('{"key": 1}', "value is missing"),
        ('{"value": 1, "colour": 2}', "unknown: colour"),
        ('{"value": 1, "timestamp": "now"}', "timestamp must be a number"),
        ('{"value": 1, "headers": [1]}', "headers must be an object"),
    ]:
        assert why in produce(kafka, topic, "--format", "records", stdin=line).sentence
    assert "argument 2 has the wrong format" in produce(kafka, topic, "1", "{", "--format", "json").sentence
    assert values(kafka, topic) == ["1", "1"]


def test_what_cannot_be_written_is_one_sentence(kafka: Kafka) -> None:
    missing = unique("missing")
    assert f"topic {missing} does not exist" in produce(kafka, missing, "1").sentence
    small = kafka.topic(config={"max.message.bytes": "200"})
    failed = produce(kafka, small, "x" * 1000)
    assert f"1 of 1 record for topic {small} was not written: " in failed.sentence
    assert "MSG_SIZE_TOO_LARGE" in failed.sentence
    assert (
        f"topic {small} has no partition 4: its partitions are 0 to 0"
        in produce(kafka, small, "1", "--partition", 4).sentence
    )
    assert "MSG_SIZE_TOO_LARGE" in produce(kafka, small, "x" * 3_000_000).sentence


def test_ranges_of_offsets_times_and_keys(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    for number in range(6):
        kafka.produce(topic, [number], key=b"ab"[number % 2 :][:1], partition=0, timestamp=number * DAY_MS + 1)
    kafka.produce(topic, ["other"], partition=1, timestamp=3 * DAY_MS)
    one = ("--partition", 0)
    assert values(kafka, topic, *one) == list("012345")
    assert values(kafka, topic, *one, "--from", 2, "--until", 4) == list("23")
    assert values(kafka, topic, *one, "--from", -2) == list("45")
    assert values(kafka, topic, *one, "--max", 2) == list("01")
    assert values(kafka, topic, *one, "--key", "b") == list("135")
    assert values(kafka, topic, *one, "--from", "latest", "--until", "end") == []
    assert sorted(values(kafka, topic, "--from", "1970-01-03", "--until", "1970-01-05")) == ['"other"', "2", "3"]
    assert values(kafka, topic, "--from", "2026-01-01") == []
    assert values(kafka, topic, *one, "--until", "2026-01-01") == list("012345")
    early = consume(kafka, topic, *one, "--from", 9, "--values")
    assert (early.code, early.out) == (0, "")
    assert f"{topic}[0] has the offsets 0 to 6: reading begins at 6" in early.err
    assert consume(kafka, topic, "--from", "soon").code == 2
    assert consume(kafka, topic, "--until", "soon").code == 2
    assert f"topic {topic} has no partition 2" in consume(kafka, topic, "--partition", 2).sentence
    wrong = consume(kafka, topic, "--partition", 1, "--format", "json", "--key-format", "json")
    assert f"the key of {topic}[1] at offset 0 does not have the format json" in wrong.sentence
    # A time in the future ends the command at that time.
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    assert values(kafka, topic, *one, "--until", until) == list("012345")


def test_transactions_are_read_when_they_are_committed(kafka: Kafka) -> None:
    topic = kafka.topic()
    with transaction(kafka) as producer:
        producer.produce(topic, b"aborted")
        producer.flush()
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"committed")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush()
        shown = consume(kafka, topic, "--values")
        assert shown.out == "committed\n"
        assert f"{topic}[0] ends at 5, but an open transaction holds back records from offset 4 on" in shown.err
        assert values(kafka, topic, "--isolation", "read_uncommitted") == ["aborted", "committed", "open"]
        producer.commit_transaction(30)
    # The end is a marker, which is not a record.
    assert values(kafka, topic) == ["committed", "open"]


def command(kafka: Kafka, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "streamrt.cli", *arguments, "--broker", kafka.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


def test_a_follower_prints_at_once_and_ctrl_c_ends_it_quietly(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    process = command(kafka, "consume", topic, "--until", "never", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == "before"
    kafka.produce(topic, ["after"])
    assert json.loads(process.stdout.readline())["value"] == "after"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_json_with_a_schema_is_shown_without_its_frame(kafka: Kafka) -> None:
    topic = kafka.topic()
    with RegistryDouble(always(200, {"schema": '{"type": "object"}', "schemaType": "JSON"})) as registry:
        with Producer(kafka.address) as producer:
            producer.produce(topic, b'\x00\x00\x00\x00\x07{"id": 1}')
        assert values(kafka, topic, "--format", "json-schema", "--registry", registry.url) == ['{"id":1}']


def test_lines_with_a_schema_are_written_and_shown_again(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(schema))
    with KeepingRegistry() as registry:
        registry.keep(f"{topic}-key", '"string"', "AVRO")
        avro = ("--format", "avro", "--key-format", "avro", "--registry", registry.url)
        written = produce(kafka, topic, *avro, "--key", '"ann"', "--schema", path, stdin='{"id": 1}\n\n{"id": 2}\n')
        assert written.out == f"wrote 2 records to {topic}\n  partition 0: offsets 0 to 1\n"
        assert [(line["key"], line["value"]) for line in consume(kafka, topic, *avro, "--json").lines] == [
            ("ann", {"id": 1}),
            ("ann", {"id": 2}),
        ]
        wrong = produce(kafka, topic, *avro, "--key", '"ann"', stdin='{"id": 3}\n{"no": 4}\n')
        assert "line 2 has the wrong format: the value does not fit the Avro schema of Order" in wrong.sentence
        assert "--key has the wrong format" in produce(kafka, topic, "{}", *avro, "--key", "ann").sentence
    assert len(kafka.receive(topic, 3)) == 3


def test_lines_are_written_as_they_come_and_ctrl_c_keeps_them(kafka: Kafka) -> None:
    topic = kafka.topic()
    process = command(kafka, "produce", topic)
    assert process.stdin is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    assert [record.value for record in kafka.receive(topic, 1)] == [b"one"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out == f"wrote 1 record to {topic}\n  partition 0: offset 0\n"


def test_a_closed_pipe_ends_it_quietly(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"text": "x" * 1000}] * 500)
    process = command(kafka, "consume", topic, "--until", "never")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(f"{topic}[0]@0  ")
    process.stdout.close()
    assert process.stdin is not None
    with process.stdin, process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


def test_values_with_a_schema_are_shown_as_json(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "photo", "type": "bytes"},
        ],
    }

    def answers(method: str, path: str, body: object) -> Answer:
        assert path == "/schemas/ids/7"
        return 200, {"schema": json.dumps(schema), "schemaType": "AVRO"}

    with RegistryDouble(answers) as registry, Producer(kafka.address) as producer:
        # Magic byte, schema id, 21 as a zigzag number, 12.50, and two bytes.
        producer.produce(topic, b"\x00\x00\x00\x00\x07" + b"\x2a" + b"\x04\x04\xe2" + b"\x04\xca\xfe", b"ann")
        producer.flush()
        avro = ("--format", "avro")
        [line] = consume(kafka, topic, *avro, "--registry", registry.url, "--json").lines
        assert (line["key"], line["value"], line["value_format"]) == (
            "ann",
            {"id": 21, "price": "12.50", "photo": "cafe"},
            "json",
        )
        path = tmp_path / "client.properties"
        path.write_text(f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info=shop:canary\n")
        assert json.loads(values(kafka, topic, *avro, "--config", path)[0])["id"] == 21
        assert registry.authorizations[-1] is not None
        path.write_text("schema.registry.url=http://a\nschema.registry.passwort=canary\n")
        wrong = consume(kafka, topic, *avro, "--config", path)
        assert "passwort: no such setting" in wrong.sentence
        assert "canary" not in wrong.sentence
        plain = consume(kafka, topic, *avro, "--key-format", "avro", "--registry", registry.url)
        assert f"the key of {topic}[0] at offset 0 does not have the format avro" in plain.sentence
    assert "the format avro needs a schema registry: pass --registry URL" in consume(kafka, topic, *avro).sentence
    assert consume(kafka, topic, *avro, "--registry", "http://shop:canary@registry").code == 2
    assert consume(kafka, topic, "--registry", "http://registry").code == 2
