"""Opens writers of tables: which tables can be written, and what options mean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamrt.errors import (
    ConfigurationError,
    InvalidOperationError,
    SchemaError,
    StaleTokenError,
    TopicNotFoundError,
)
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.feed_options import refusal_of
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.access.topic_watch import TopicWatch
from streamrt.tables.descriptions.changelog_tables import is_changelog, strip_changelog_suffix
from streamrt.tables.descriptions.info import TableInfo, require_keys_in_place, require_writable
from streamrt.tables.descriptions.maintenance import Maintenance
from streamrt.tables.rows.change_encoder import ChangeEncoder
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.rows.request_encoder import RequestEncoder, choose_columns
from streamrt.tables.rows.row_encoder import RowEncoder
from streamrt.tables.writing.further_topics import require_same_partitions
from streamrt.tables.writing.writer import TableWriter
from streamrt.tables.writing.writer_states import WriterStates
from streamrt.tables.writing.writer_transactions import WriterTransactions, check_writer_id

__all__ = ["open_writer"]

_ASSIGNERS = ("sticky", "round-robin")
_MAX_BYTES = 1_000_000
"""librdkafka's default of message.max.bytes."""
_REFUSED_OPTIONS = {
    "transactional.id": "give the writer an id instead: table.writer(id=...)",
    "partitioner": "rows of a key are where all programs look for them",
    "delivery.report.only.error": "flush() needs to know what was delivered",
    "on_delivery": "append() returns the outcome of each row",
    "dr_msg_cb": "append() returns the outcome of each row",
    "dr_cb": "append() returns the outcome of each row",
    "error_cb": "the log of StreamRT has what the client says",
    "logger": "the log of StreamRT has what the client says",
}


def open_writer(
    info: TableInfo,
    links: TableLinks,
    rows_as: Callable[[TableInfo], RowFormat],
    keys_as: Callable[[TableInfo], KeyFormat | None],
    timeout: float,
    *,
    columns: Sequence[str | int] | None = None,
    writer_id: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> TableWriter:
    """Return a writer of a table; see `Table.writer`."""
    topic, schema = _check_writable(info)
    of_rows = str(info.topic)
    chosen = dict(options or {})
    assigner = _assigner_of(chosen.pop("assigner", None), info)
    _refuse_options(chosen, is_keyed=info.kind == "primary-key")
    if info.maintenance is None:
        encoder = _encoder_of(info, topic, schema, rows_as(info), keys_as(info), columns, _max_bytes(chosen))
    else:
        encoder = _encoder_of_requests(info, topic, schema, info.maintenance, keys_as, columns, _max_bytes(chosen))
    if writer_id is not None:
        check_writer_id(writer_id)
    admin = links.admin()
    found = admin.inspect_topics(list(dict.fromkeys([topic, of_rows])), timeout)
    config = found[topic]
    if config is None:
        raise TopicNotFoundError(
            f"topic {topic!r} of table {info.name!r} does not exist: create it, or the table again"
        )
    rows_config = found[of_rows]
    rows_count = None if rows_config is None else rows_config.num_partitions
    require_keys_in_place(info, rows_count)
    if info.maintenance is not None:
        require_same_partitions(info, topic, config.num_partitions, rows_count)
    topic_id = admin.topic_ids([topic], timeout)[topic]
    transactions = None
    if writer_id is not None:
        states = WriterStates(links, info.name, writer_id, topic, topic_id, timeout)
        states.prepare(config.replication_factor)
        transactions = WriterTransactions(links, info.name, topic, writer_id, states, chosen)
    return TableWriter(
        info,
        topic,
        links.sender(chosen) if transactions is None else transactions.begin(),
        encoder,
        around=None if assigner == "sticky" else config.num_partitions or 1,
        watch=TopicWatch(
            TopicPositions(admin, topic, info.name, timeout),
            topic_id,
            partial(_make_stale_error, topic, info.name, has_id=writer_id is not None),
        ),
        timeout=timeout,
        transactions=transactions,
    )


def _make_stale_error(topic: str, table: str, *, has_id: bool) -> StaleTokenError:
    """Return the error for a topic that was created again; a writer with an id has transactions."""
    consequence = (
        "its transaction is aborted, and all rows before are gone: make a new writer with this id, which has no state, "
        "and begin from the start"
        if has_id
        else "rows from before are gone, and later ones are in the new topic: make another writer, and write what is lost"
    )
    return StaleTokenError(
        f"topic {topic!r} of table {table!r} was deleted and created again while a writer was open; {consequence}"
    )


def _check_writable(info: TableInfo) -> tuple[str, Schema]:
    if info.kind == "external" or info.topic is None:
        raise InvalidOperationError(
            f"table {info.name!r} is external ({info.connector}) and has no topic to write to: an application writes to it"
        )
    if info.schema is None:
        raise SchemaError(f"table {info.name!r} has no schema: set one by set_schema(), or see detect_schema()")
    if is_changelog(info.name):
        raise InvalidOperationError(
            f"{info.name!r} is written by the application that maintains table {strip_changelog_suffix(info.name)!r}: "
            "write to that table"
        )
    require_writable(info)
    return info.requests_topic or info.topic, info.schema


def _encoder_of(
    info: TableInfo,
    topic: str,
    schema: Schema,
    rows_as: RowFormat,
    keys_as: KeyFormat | None,
    columns: Sequence[str | int] | None,
    max_bytes: int,
) -> ChangeEncoder:
    encoder = RowEncoder(info.name, topic, schema, rows_as, keys_as, columns, max_bytes)
    if info.kind != "primary-key" or keys_as is None:
        return ChangeEncoder(info.name, encoder, None)
    if encoder.left_out:
        raise InvalidOperationError(
            f"writer(columns=...) leaves out the column {encoder.left_out[0]!r} of table {info.name!r}, and upserts replace "
            "whole rows: give all columns, in any order, or create the table with maintained=True, which takes partial "
            "updates"
        )
    return ChangeEncoder(info.name, encoder, KeyEncoder(info.name, keys_as))


def _encoder_of_requests(
    info: TableInfo,
    topic: str,
    schema: Schema,
    rules: Maintenance,
    keys_as: Callable[[TableInfo], KeyFormat | None],
    columns: Sequence[str | int] | None,
    max_bytes: int,
) -> ChangeEncoder:
    given = schema
    if columns is not None:
        given = choose_columns("writer(columns=...)", info.name, schema, rules, columns)
    # A whole row has the columns of the writer.
    keys = keys_as(replace(info, schema=given))
    if keys is None:
        raise InvalidOperationError(f"table {info.name!r} is maintained, and has no primary key")
    requests = RequestEncoder(info.name, topic, schema, info.schema_version, rules, given, keys, max_bytes)
    return ChangeEncoder(info.name, requests.rows, KeyEncoder(info.name, keys), requests)


def _assigner_of(assigner: object, info: TableInfo) -> str:
    if assigner is None:
        return "sticky"
    if assigner not in _ASSIGNERS:
        raise ConfigurationError(
            f"writer(options=...): assigner must be one of {', '.join(_ASSIGNERS)}, got {assigner!r}"
        )
    if info.key:
        raise ConfigurationError(
            f"writer(options=...): assigner is for tables without a key, and that of {info.name!r} decides on partitions"
        )
    return str(assigner)


def _refuse_options(options: Mapping[str, Any], *, is_keyed: bool) -> None:
    for name in options:
        advice = _REFUSED_OPTIONS.get(name) or refusal_of(name)
        if advice is not None:
            raise ConfigurationError(f"writer(options=...): {name} is not supported: {advice}")
    for name in ("acks", "request.required.acks"):
        if str(options.get(name)) == "0":
            raise ConfigurationError(f"writer(options=...): {name}=0 is not supported: flush() waits for brokers")
    if is_keyed and str(options.get("enable.idempotence")).lower() == "false":
        raise ConfigurationError(
            "writer(options=...): enable.idempotence=false is not supported for tables with a primary key: a row that is "
            "sent again could replace a newer one with its key"
        )


def _max_bytes(options: Mapping[str, Any]) -> int:
    given = options.get("message.max.bytes", _MAX_BYTES)
    # The client refuses what is not a number.
    return int(given) if str(given).isdecimal() else _MAX_BYTES
