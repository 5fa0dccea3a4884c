"""From messages of `pgoutput` to changes, for `PostgresCdcSource`; and the position that its state keeps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamrt.connectors.postgresql import pgoutput
from streamrt.connectors.postgresql.pgoutput import lsn_text
from streamrt.connectors.postgresql.postgres_catalog import Slot, TableName
from streamrt.connectors.postgresql.postgres_rows import Rows
from streamrt.connectors.sources.changes import Change
from streamrt.errors import SourceError

__all__ = ["LostSlot", "Position", "Stream", "next_step"]

LostSlot = Literal["fail", "snapshot"]
Step = Literal["create", "adopt", "stream", "restart"]


@dataclass(frozen=True)
class Position:
    """How far a source has read.

    Attributes:
        system: identity of the database cluster.
        slot: name of the slot.
        lsn: position after the last whole transaction; None while the slot is being created.
        transaction: position of the commit of a transaction that was read in part, and number of its changes that were.
        tables: progress of the snapshot: True for a whole table, else the last key that was read.
    """

    system: str
    slot: str
    lsn: int | None = None
    transaction: tuple[int, int] | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        partial = None if self.transaction is None else list(self.transaction)
        return {
            "system": self.system,
            "slot": self.slot,
            "lsn": self.lsn,
            "transaction": partial,
            "tables": dict(self.tables),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Position":
        """Return the position of a JSON value.

        Args:
            value: the result of `to_json`.
        """
        partial = value["transaction"]
        transaction = None if partial is None else (int(partial[0]), int(partial[1]))
        return cls(value["system"], value["slot"], value["lsn"], transaction, value["tables"])

    def with_table(self, table: TableName, progress: bool | list[str] | None) -> "Position":
        """Return the position with the progress of a table.

        Args:
            table: the table.
            progress: see `tables`.
        """
        return replace(self, tables={**self.tables, str(table): progress})


def next_step(
    position: Position | None,
    slot: Slot | None,
    *,
    system: str,
    name: str,
    create: bool,
    lost: LostSlot,
    described: str,
) -> Step:
    """Decide how a source begins.

    "create" creates the slot and takes a snapshot; "adopt" takes over a slot and takes a snapshot; "stream" goes on at
    the position; "restart" drops the slot, if there is one, and creates another.

    Args:
        position: position of the source.
        slot: the slot.
        system: identity of the database cluster.
        name: name of the slot.
        create: whether the source may create slots.
        lost: what to do if changes are lost.
        described: the source, as the subject of errors.

    Raises:
        SourceError: if it cannot begin.
    """
    if slot is not None and slot.plugin != "pgoutput":
        raise SourceError(
            f"{described} cannot use the slot {name!r}: its plug-in is {slot.plugin or 'none'}, not pgoutput"
        )
    if slot is None and not create:
        raise SourceError(f"{described} found no slot {name!r}, and create_slot is False: create the slot")
    if position is None or position.lsn is None:
        if slot is None:
            return "create"
        if position is None and create:
            raise SourceError(
                f"{described} found the slot {name!r}, but has no position: the slot belongs to another program, or the "
                "state of the source was deleted; drop the slot, or set create_slot=False to use it"
            )
        return "restart" if slot.lost and create else "adopt"
    reason = _describe_lost(position, slot, system, name)
    if reason is None:
        return "stream"
    if lost == "fail":
        raise SourceError(
            f"{described} has lost changes: {reason}; set lost_slot='snapshot' to begin again with a snapshot"
        )
    return "restart" if create else "adopt"


def _describe_lost(position: Position, slot: Slot | None, system: str, name: str) -> str | None:
    assert position.lsn is not None  # noqa: S101 - the caller sees to it
    if position.system != system:
        return "the server is not the one whose changes it has read"
    if position.slot != name:
        return f"its position is one of the slot {position.slot!r}, not {name!r}"
    if slot is None:
        return f"the slot {name!r} no longer exists"
    if slot.lost:
        return f"the server has deleted log that the slot {name!r} needs (max_slot_wal_keep_size)"
    if slot.confirmed > position.lsn:
        return (
            f"the slot {name!r} was advanced to {lsn_text(slot.confirmed)} by another program, beyond the position "
            f"{lsn_text(position.lsn)}"
        )
    return None


class Stream:
    """Turns messages into changes, and follows the position.

    Args:
        position: where it begins.
        rows: returns what makes rows of a table, or None for a table that is left out.
        source: fields that all changes have in `source`.
    """

    def __init__(
        self,
        position: Position,
        rows: Callable[[pgoutput.Relation], Rows | None],
        source: Mapping[str, Any],
    ) -> None:
        self.position = position
        self._rows = rows
        self._source = source
        self._tables: dict[int, Rows | None] = {}
        self._begin: pgoutput.Begin | None = None
        self._count = 0
        self._skipped = 0

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._begin is not None

    def advance(self, lsn: int) -> None:
        """Note that there are no changes before a position.

        Args:
            lsn: the position.
        """
        if not self.in_transaction and lsn > (self.position.lsn or 0):
            # A transaction that was read in part may still be ahead.
            partial = self.position.transaction
            rest = None if partial is None or partial[0] < lsn else partial
            self.position = replace(self.position, lsn=lsn, transaction=rest)

    def changes(self, data: bytes) -> Iterator[Change]:
        """Yield the changes of a message; the position includes a change when the next one is asked for.

        Args:
            data: the message.
        """
        message = pgoutput.decode(data)
        if isinstance(message, pgoutput.Begin):
            self._begin = message
            self._count = 0
            partial = self.position.transaction
            self._skipped = partial[1] if partial is not None and partial[0] == message.lsn else 0
        elif isinstance(message, pgoutput.Commit):
            self._begin = None
            self.advance(message.end)
        elif isinstance(message, pgoutput.Relation):
            self._tables[message.number] = self._rows(message)
        elif message is not None:
            self._count += 1
            if self._count > self._skipped:
                yield from self._message_changes(message)
                assert self._begin is not None  # noqa: S101 - changes are in transactions
                self.position = replace(self.position, transaction=(self._begin.lsn, self._count))

    def _message_changes(
        self, message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete | pgoutput.Truncate
    ) -> Iterator[Change]:
        if isinstance(message, pgoutput.Truncate):
            for number in message.relations:
                rows = self._tables.get(number)
                if rows is not None:
                    yield self._make_change("t", rows, None, None, None, None)
            return
        rows = self._tables[message.relation]
        if rows is None:
            return
        if isinstance(message, pgoutput.Insert):
            after = rows.row(message.new)
            yield self._make_change("c", rows, rows.key(after), None, None, after)
        elif isinstance(message, pgoutput.Delete):
            before = rows.row(message.old) if message.whole else rows.part(message.old)
            yield self._make_change("d", rows, rows.key(before), None, before, None)
        else:
            after = rows.row(message.new, message.old)
            old = None
            if message.old is not None:
                old = rows.row(message.old) if message.whole else rows.part(message.old)
            yield self._make_change("u", rows, rows.key(after), None if old is None else rows.key(old), old, after)

    def _make_change(
        self,
        op: str,
        rows: Rows,
        key: dict[str, Any] | None,
        old_key: dict[str, Any] | None,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> Change:
        assert self._begin is not None  # noqa: S101 - changes are in transactions
        source = {
            **self._source,
            "schema": rows.table.schema,
            "table": rows.table.table,
            "snapshot": False,
            "ts_ms": self._begin.timestamp,
            "lsn": lsn_text(self._begin.lsn),
            "seq": self._count,
            "xid": self._begin.xid,
        }
        return Change(op, str(rows.table), key, old_key, before, after, source, self._begin.timestamp)
