"""`streamrt produce`: writes records to a topic."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer

from streamrt.cli.broker import BrokerOption, Cluster, ConfigOption, TimeoutOption, open_cluster, silent_logger
from streamrt.cli.interrupts import UntilInterrupted
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json
from streamrt.cli.records.record_values import KeyFormat, WriteFormat, parse_header, parse_time_ms, stored_form
from streamrt.cli.records.schema_writing import Encoder, KeySchemaOption, SchemaOption, encoders
from streamrt.cli.records.schemas import MessageOption, RegistryOption
from streamrt.errors import ProducerError, SerializationError, StreamRTError

__all__ = ["EXAMPLES", "produce"]

_FIELDS = frozenset(
    {"key", "key_format", "value", "value_format", "headers", "timestamp", "partition", "topic", "offset"}
    | {"timestamp_type"}
)
_INTERRUPTED = 130
EXAMPLES = examples(
    """streamrt produce orders '{"id": 1}' '{"id": 2}' --key ann --format json""",
    "streamrt produce texts --file lines.txt --header origin=file",
    "streamrt produce images --file cat.png --format bytes --key cat",
    "streamrt consume orders --json | streamrt produce copies --format records",
    "streamrt produce orders --file orders.jsonl --format avro --registry http://registry:8081 --schema order.avsc",
)


@dataclass
class _Outgoing:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


@dataclass
class _Written:
    """The outcome of the records so far."""

    accepted: int = 0
    offsets: dict[int, list[int]] = field(default_factory=dict)
    """For each partition: number of records, first and last offset."""
    failed: int = 0
    reason: str = ""

    @property
    def count(self) -> int:
        return sum(count for count, _, _ in self.offsets.values())

    def take(self, error: Any, message: Any) -> None:
        """Note the outcome of one record."""
        if error is not None:
            self.failed += 1
            self.reason = self.reason or f"{error.str()} ({error.name()})"
            return
        offset = message.offset()
        count, first, last = self.offsets.get(message.partition(), (0, offset, offset))
        self.offsets[message.partition()] = [count + 1, min(first, offset), max(last, offset)]


def produce(
    topic: Annotated[str, typer.Argument(help="Name of the topic, which must exist.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]...", help="The values; without them, --file or stdin is read."),
    ] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="File to read instead of stdin.")
    ] = None,
    write_format: Annotated[
        WriteFormat,
        typer.Option(
            "--format",
            help="string: each line is a value. json: the same, checked. bytes: the file or stdin is one value. records: "
            "each line is an object with key, value, headers, timestamp (ms), partition, as consume --json prints it. avro, "
            "json-schema, protobuf: each line is JSON, and written with a schema.",
        ),
    ] = WriteFormat.string,
    key: Annotated[str | None, typer.Option(help="Key of the records.")] = None,
    key_format: Annotated[
        KeyFormat, typer.Option(help="Format of the key; all but string are given as JSON.")
    ] = KeyFormat.string,
    registry: RegistryOption = None,
    schema: SchemaOption = None,
    key_schema: KeySchemaOption = None,
    message: MessageOption = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Header of the records; may be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition; by default the key determines it.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Milliseconds since 1970 or ISO 8601; by default now.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write records to a topic, and print how many were written, and their offsets.

    Empty lines are values like others in the formats string and bytes, and
    skipped in all others. With a schema, null is written as no value.
    """
    if values and file is not None:
        raise typer.BadParameter("pass values as arguments or in a file, not both", param_hint="--file")
    if values and write_format is WriteFormat.bytes:
        raise typer.BadParameter("bytes are read from --file or stdin, not from arguments", param_hint="--format")
    if key is None and key_format is not KeyFormat.string:
        raise typer.BadParameter("it has no effect without --key", param_hint="--key-format")
    if write_format is WriteFormat.records and any(each is not None for each in (key, header, partition, timestamp)):
        raise typer.BadParameter(
            "with records, keys, headers, partitions and times are in the lines", param_hint="--format"
        )
    headers: list[tuple[str, bytes | None]] = [*map(parse_header, header or ())]
    timestamp_ms = None if timestamp is None else _read_timestamp(timestamp)
    encode_value, encode_key = encoders(
        topic, write_format, WriteFormat(key_format.value), registry, config, schema, key_schema, message
    )
    common = _Outgoing(
        None, None if key is None else _encode_text_key(key, encode_key), headers, partition, timestamp_ms
    )
    written = _Written()
    with open_cluster(broker, config, timeout) as cluster, contextlib.ExitStack() as stack:
        cluster.partitions_of(topic, [] if partition is None else [partition])
        if values:
            given = (value.encode() for value in values)
            outgoing = _make_outgoing(given, "argument", write_format, encode_value, common)
        else:
            stream = sys.stdin.buffer if file is None else stack.enter_context(file.open("rb"))
            outgoing = _outgoing_of(stream, write_format, encode_value, common)
        try:
            interrupted = _write_records(cluster, topic, outgoing, written)
        except StreamRTError:
            if written.accepted:
                _report_written(topic, written, as_json)
            raise
    _report_written(topic, written, as_json)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)


def _report_written(topic: str, written: _Written, as_json: bool) -> None:
    partitions = [
        {"partition": number, "records": count, "first_offset": first, "last_offset": last}
        for number, (count, first, last) in sorted(written.offsets.items())
    ]
    if as_json:
        print_json({"topic": topic, "written": written.count, "failed": written.failed, "partitions": partitions})
    else:
        echo(f"wrote {plural(written.count, 'record')} to {topic}")
        for at in partitions:
            first, last = at["first_offset"], at["last_offset"]
            where = f"offset {first}" if first == last else f"offsets {first} to {last}"
            echo(f"  partition {at['partition']}: {where}")
    if written.failed:
        raise ProducerError(
            f"{written.failed} of {plural(written.accepted, 'record')} for topic {topic} "
            f"{'was' if written.failed == 1 else 'were'} not written: {written.reason}",
            topic,
        )


def _encode_text_key(text: str, encode_key: Encoder) -> bytes | None:
    try:
        return encode_key(text.encode())
    except SerializationError as error:
        raise SerializationError(f"--key has the wrong format: {error}; nothing was written") from None


def _outgoing_of(
    stream: BinaryIO, write_format: WriteFormat, encode_value: Encoder, common: _Outgoing
) -> Iterator[_Outgoing]:
    if write_format is WriteFormat.bytes:
        return _make_outgoing([stream.read()], "input", write_format, encode_value, common)
    return _make_outgoing((line.rstrip(b"\r\n") for line in stream), "line", write_format, encode_value, common)


def _make_outgoing(
    values: Iterable[bytes], what: str, write_format: WriteFormat, encode_value: Encoder, common: _Outgoing
) -> Iterator[_Outgoing]:
    """Yield the records for what the user gives; `what` and its number name a wrong one."""
    for number, value in enumerate(values, 1):
        if not value.strip() and write_format not in (WriteFormat.string, WriteFormat.bytes):
            continue
        try:
            if write_format is WriteFormat.records:
                yield _read_record(value)
            else:
                yield _Outgoing(encode_value(value), common.key, common.headers, common.partition, common.timestamp)
        except SerializationError as error:
            raise SerializationError(
                f"{what} {number} has the wrong format: {error}; earlier ones were written"
            ) from None


def _read_record(line: bytes) -> _Outgoing:
    """Return the record that a JSON line describes."""
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise SerializationError(f"it is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SerializationError("it is not an object with key, value, headers, timestamp or partition")
    unknown = given.keys() - _FIELDS
    if unknown or "value" not in given:
        wrong = f"unknown: {', '.join(sorted(unknown))}" if unknown else "value is missing"
        raise SerializationError(f"{wrong}; the fields are key, value, headers, timestamp and partition")
    for name in ("timestamp", "partition"):
        number = given.get(name)
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
            raise SerializationError(f"{name} must be a number of 0 or more")
    return _Outgoing(
        stored_form(given["value"], given.get("value_format")),
        stored_form(given.get("key"), given.get("key_format")),
        _read_headers(given.get("headers")),
        # Lines of `consume` also name the topic; their partitions are those of that topic.
        None if "offset" in given else given.get("partition"),
        given.get("timestamp"),
    )


def _read_headers(given: Any) -> list[tuple[str, bytes | None]]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(name, stored_form(value, None)) for name, value in given.items()]
    if isinstance(given, list) and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in given):
        return [(each["name"], stored_form(each.get("value"), each.get("format"))) for each in given]
    raise SerializationError('headers must be an object, or a list such as [{"name": "a", "value": "b"}]')


def _read_timestamp(text: str) -> int:
    milliseconds = int(text) if text.isdecimal() else parse_time_ms(text)
    if milliseconds is None or milliseconds < 0:
        raise typer.BadParameter(f"{text!r} is neither milliseconds nor a time in ISO 8601", param_hint="--timestamp")
    return milliseconds


def _write_records(cluster: Cluster, topic: str, records: Iterator[_Outgoing], written: _Written) -> bool:
    """Write records, and note the outcome; return whether Ctrl+C ended the input."""
    from streamrt.kafka import KafkaException, Producer
    from streamrt.kafka.client import error_in
    from streamrt.kafka.writing.record_writer import refused_record

    # librdkafka gives up a record after this time, so the flush at the end ends.
    options = {"message.timeout.ms": max(1, round(cluster.timeout * 1000))}
    producer = Producer(cluster.connection, silent_logger(), extra_config=options)
    lines = UntilInterrupted(records)
    try:
        for record in lines:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.headers or None,
                record.partition,
                record.timestamp,
                poll_timeout=cluster.timeout,
                buffer_error_max_tries=1,
                on_delivery=written.take,
            )
            written.accepted += 1
    except KafkaException as error:
        raise refused_record(topic, record.value, record.key, error_in(error)) from None
    except BufferError:
        raise ProducerError(
            f"the brokers accepted no record for topic {topic} within {cluster.timeout:g} s: check their logs", topic
        ) from None
    finally:
        # Also after an error: what was accepted is written.
        producer.flush()
    return lines.interrupted
