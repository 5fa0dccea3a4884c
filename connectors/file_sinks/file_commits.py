"""Transactions of a file sink: files and positions become visible together, in a store that can compare and set one object.

For each position there is an object, below `_streamrt/<group>/<sink>/<topic>/`, named by the partition. Writing it is
conditional: it must not have changed since it was read. It is in one of three states:

```
settled     position                           nothing is left to do
committed   position, files, others            a transaction is durable; its files may not be at their places yet
pending     position, transaction, primary     a transaction wants to move the position; whether it did, the primary tells
```

A transaction of one position:

1. compare the position with `before`; write the object as committed, with the content of the files in it: this decides
2. write the files to their places
3. write the object as settled, without the files

A file that grows over several transactions (`Rolling`) has a hidden part for each of them. The object lists open files with
their parts. A transaction that closes a file writes its own parts in step 2, then puts the file together from all of its
parts; the parts are removed after step 3. Files that are old enough are closed in the same way, by a change that moves no
position; any process may make it.

Another process that finds a committed object does steps 2 and 3, so a crash in between is completed by the next reader of
the position. A process that was suspended fails at step 1, since the object has changed.

A transaction of several positions makes all but the first one pending before step 1; the first one is the primary. After
step 1 the others become settled with their new positions, then step 2 follows. A process that finds a pending object looks
at the primary. If that holds the transaction, the object is settled with the new position. If not, the process first
changes the primary, so that the transaction cannot be decided any more, and then settles the object with the old position.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamrt.common.untrusted import json_object, malformed_as, read_field, read_field_or_none
from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_stores import ChangedError, FileStore
from streamrt.connectors.sinks.transactional import PositionChange, SinkPosition
from streamrt.errors import SinkError

__all__ = ["FileCommits", "OpenFile", "OtherPositionError", "Plan"]

_FORMAT = 1
_FORMAT_WITH_PARTS = 2
"""Of objects with open files, which versions that do not know them must not replace."""
_ATTEMPTS = 20
"""Other processes may change an object while this one settles it; each such change is progress of theirs."""


class OtherPositionError(Exception):
    """A stored position is not the expected one; its argument is the name of the object."""


@dataclass(frozen=True)
class OpenFile:
    """A file that grows.

    Attributes:
        prefix: the beginning of its name, which says what belongs into it.
        name: its name.
        parts: names of its parts, in their order.
        size: bytes of the parts.
        records: number of records in them.
        began_ms: time of its first transaction, in milliseconds since the Unix epoch.
        touched_ms: time of its last one.
    """

    prefix: str
    name: str
    parts: tuple[str, ...]
    size: int
    records: int
    began_ms: int
    touched_ms: int


@dataclass(frozen=True)
class Plan:
    """Changes that a transaction makes to files.

    Attributes:
        files: names and contents of files and parts to write.
        closing: files to put together from their parts.
        opened: files that are open afterwards.
    """

    files: tuple[tuple[str, bytes], ...] = ()
    closing: tuple[OpenFile, ...] = ()
    opened: tuple[OpenFile, ...] = ()


@dataclass(frozen=True)
class _Entry:
    """The content of an object.

    Attributes:
        position: the position; None if there is none yet.
        transaction: id of the transaction that has set the position.
        files: names and contents of files that are to be at their places; None if they are.
        others: names of objects with their new positions, which this transaction also moves.
        pending: id of a transaction that wants to move the position, the name of its primary, and the new position.
        opened: files that grow.
        closing: files that are to be put together.
        garbage: names of parts that are not needed any more.
    """

    position: SinkPosition | None = None
    transaction: str = ""
    files: tuple[tuple[str, bytes], ...] | None = None
    others: tuple[tuple[str, SinkPosition], ...] = ()
    pending: tuple[str, str, SinkPosition] | None = None
    opened: tuple[OpenFile, ...] = ()
    closing: tuple[OpenFile, ...] = ()
    garbage: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the content: a line of JSON that never occurs twice, then the contents of the files."""
        header = {
            "format": _FORMAT,
            "written": secrets.token_hex(8),
            "position": self.position,
            "transaction": self.transaction,
            "files": None if self.files is None else [(name, len(content)) for name, content in self.files],
            "others": self.others,
            "pending": self.pending,
        }
        if self.opened or self.closing or self.garbage:
            header["format"] = _FORMAT_WITH_PARTS
            header["opened"] = [asdict(file) for file in self.opened]
            header["closing"] = [asdict(file) for file in self.closing]
            header["garbage"] = self.garbage
        return b"".join((json.dumps(header).encode(), b"\n", *(content for _, content in self.files or ())))

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> "_Entry":
        """Return the entry of a content."""
        line, _, contents = data.partition(b"\n")
        damaged = lambda wrong: SinkError(  # noqa: E731
            f"the object {name}, which holds a position of the group, is damaged: it {wrong}"
        )
        with malformed_as(damaged):
            header = json_object(line)
            version = read_field(header, "format", int)
        if version not in (_FORMAT, _FORMAT_WITH_PARTS):
            raise SinkError(f"the object {name} was written by a newer version of StreamRT")
        with malformed_as(damaged):
            files: list[tuple[str, bytes]] = []
            start = 0
            for each in read_field_or_none(header, "files", list) or ():
                length = read_field(each, 1, int)
                files.append((_read_name(each), contents[start : start + length]))
                start += length
            if start != len(contents):
                raise ValueError(f"has {len(contents)} bytes of files, and should have {start}")
            pending = read_field_or_none(header, "pending", list)
            garbage = read_field_or_none(header, "garbage", list) or []
            return cls(
                None if header["position"] is None else _read_position(header, "position"),
                read_field(header, "transaction", str),
                None if header["files"] is None else tuple(files),
                tuple((_read_name(each), _read_position(each, 1)) for each in read_field(header, "others", list)),
                None
                if pending is None
                else (read_field(pending, 0, str), _read_name(pending, 1), _read_position(pending, 2)),
                tuple(map(_open_file, read_field_or_none(header, "opened", list) or ())),
                tuple(map(_open_file, read_field_or_none(header, "closing", list) or ())),
                tuple(_read_name(garbage, number) for number in range(len(garbage))),
            )


def _read_position(document: Any, field: str | int) -> SinkPosition:
    items = read_field(document, field, list)
    return SinkPosition(
        read_field(items, 0, int),
        read_field(items, 1, int),
        None if items[2:3] == [None] else read_field(items, 2, str),
        read_field(items, 3, str),
    )


def _read_name(document: Any, field: str | int = 0) -> str:
    """Return the name of an object or file, which must be below the root of the store."""
    name = read_field(document, field, str)
    if not name or name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        raise ValueError("names an object outside of the store")
    return name


class FileCommits:
    """Reads positions, and writes transactions.

    Args:
        store: the store.
        merge: puts the contents of parts together; several files if one cannot hold all.
    """

    def __init__(self, store: FileStore, merge: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None) -> None:
        self._store = store
        self._merge = merge or (lambda parts: [b"".join(parts)])
        # Objects as this process has left them, which need not be read again.
        self._settled: dict[str, tuple[_Entry, Any]] = {}

    def position(self, name: str) -> SinkPosition | None:
        """Return the position of an object, after all of its transactions are completed.

        Args:
            name: name of the object.

        Raises:
            PassingError: if the store cannot answer now.
        """
        self._settled.pop(name, None)
        entry, _ = self._settle_object(name)
        return entry.position

    def has_open_files(self, name: str) -> bool:
        """Return whether an object has open files, as this process knows it.

        Args:
            name: name of the object.
        """
        known = self._settled.get(name)
        return known is not None and bool(known[0].opened)

    def write(
        self,
        transaction: str,
        changes: Mapping[str, PositionChange],
        plan: Callable[[tuple[OpenFile, ...]], Plan],
    ) -> None:
        """Write files and move positions. It can be repeated after an error.

        Args:
            transaction: an id that no other transaction has.
            changes: changes of positions by the names of their objects, at least one.
            plan: returns what to do, from the files that are open.

        Raises:
            OtherPositionError: if a stored position is not the expected one; nothing was written.
            PassingError: if the store cannot answer now. The transaction may be durable.
        """
        names = sorted(changes)
        for _ in range(_ATTEMPTS):
            try:
                if not self._is_done(names[0], transaction):
                    self._decide_transaction(transaction, names, changes, plan)
                self._settle_object(names[0])
            except ChangedError:
                self._forget_entries(names)
            except PassingError:
                self._forget_entries(names)
                raise
            else:
                return
        raise PassingError("other processes change the positions all the time")

    def _is_done(self, primary: str, transaction: str) -> bool:
        """Return whether an earlier attempt was durable after all, although its answer was lost."""
        entry, _ = self._settled.get(primary) or self._settle_object(primary)
        return entry.transaction == transaction

    def _decide_transaction(
        self,
        transaction: str,
        names: Sequence[str],
        changes: Mapping[str, PositionChange],
        plan: Callable[[tuple[OpenFile, ...]], Plan],
    ) -> None:
        primary, *others = names
        # The primary is the last one: objects that an earlier attempt has left pending change it when they are settled.
        entries = {name: self._expect_entry(name, changes[name].before) for name in (*others, primary)}
        for name in others:
            entry, token = entries[name]
            self._settled.pop(name, None)
            self._store.replace(
                name, replace(entry, pending=(transaction, primary, changes[name].after)).to_bytes(), token
            )
        after = {name: changes[name].after for name in others}
        entry = entries[primary][0]
        todo = plan(entry.opened)
        committed = _Entry(
            changes[primary].after,
            transaction,
            todo.files,
            tuple(after.items()),
            opened=todo.opened,
            closing=todo.closing,
            garbage=entry.garbage,
        )
        self._settled.pop(primary, None)
        token = self._store.replace(primary, committed.to_bytes(), entries[primary][1])
        self._complete_transaction(primary, committed, token)

    def _expect_entry(self, name: str, before: SinkPosition | None) -> tuple[_Entry, Any]:
        """Return a settled object with an expected position."""
        version = None if before is None else before.version
        # What this process knows may be old, so a difference is looked at again.
        for known in (self._settled.pop(name, None), None):
            entry, token = known or self._settle_object(name)
            if (None if entry.position is None else entry.position.version) == version:
                return entry, token
        raise OtherPositionError(name)

    def _settle_object(self, name: str) -> tuple[_Entry, Any]:
        """Return an object after its transactions are completed, and its token."""
        known = self._settled.get(name)
        for _ in range(_ATTEMPTS):
            if known is not None:
                return known
            entry, token = self._load_entry(name)
            try:
                if entry.pending is not None:
                    self._resolve_pending(name, entry, token)
                elif entry.files is not None:
                    self._complete_transaction(name, entry, token)
                elif token is None:
                    # There is nothing yet.
                    return entry, None
                else:
                    self._settled[name] = self._remove_parts(entry), token
            except ChangedError:
                continue
            known = self._settled.get(name)
        raise PassingError("other processes change the positions all the time")

    def _complete_transaction(self, name: str, entry: _Entry, token: Any) -> None:
        """Do what is left of a committed transaction."""
        for other, position in entry.others:
            self._advance_position(other, entry.transaction, position)
        parts = tuple(part for file in entry.closing for part in file.parts)
        settled = replace(entry, files=None, others=(), closing=(), garbage=(*entry.garbage, *parts))
        token = self._store.publish(name, self._read_contents(entry), settled.to_bytes(), token)
        self._settled[name] = self._remove_parts(settled), token

    def _read_contents(self, entry: _Entry) -> Iterator[tuple[str, bytes]]:
        """Yield the files that a transaction has decided on."""
        yield from entry.files or ()
        for file in entry.closing:
            parts = []
            for part in file.parts:
                found = self._store.read(part)
                if found is None:
                    # Another process has completed the transaction.
                    raise ChangedError
                parts.append(found[0])
            folder, slash, base = file.name.rpartition("/")
            stem, dot, extension = base.partition(".")
            for number, content in enumerate(self._merge(parts)):
                yield f"{folder}{slash}{stem}{f'_{number}' if number else ''}{dot}{extension}", content

    def _remove_parts(self, entry: _Entry) -> _Entry:
        """Remove the parts that are not needed any more."""
        with contextlib.suppress(PassingError):
            for part in entry.garbage:
                self._store.remove(part)
            return replace(entry, garbage=())
        return entry

    def close_files(self, names: Collection[str], is_due: Callable[[OpenFile], bool]) -> set[str]:
        """Close open files. No position moves.

        Args:
            names: names of the objects.
            is_due: returns whether to close a file.

        Returns:
            The names of the objects that still have open files.

        Raises:
            PassingError: if the store cannot answer now.
        """
        opened = set()
        for name in names:
            for _ in range(_ATTEMPTS):
                self._settled.pop(name, None)
                try:
                    entry, token = self._settle_object(name)
                    due = tuple(file for file in entry.opened if is_due(file))
                    if entry.opened != due:
                        opened.add(name)
                    if not due:
                        break
                    left = tuple(file for file in entry.opened if file not in due)
                    committed = replace(entry, files=(), closing=due, opened=left)
                    self._settled.pop(name, None)
                    self._complete_transaction(name, committed, self._store.replace(name, committed.to_bytes(), token))
                except ChangedError:
                    opened.add(name)
                    continue
                break
        return opened

    def _advance_position(self, name: str, transaction: str, position: SinkPosition) -> None:
        """Settle a pending object with its new position, unless another process has done so."""
        entry, token = self._load_entry(name)
        if entry.pending is not None and entry.pending[0] == transaction:
            settled = replace(entry, position=position, transaction=transaction, pending=None)
            self._settled[name] = settled, self._store.replace(name, settled.to_bytes(), token)

    def _resolve_pending(self, name: str, entry: _Entry, token: Any) -> None:
        """Find out what became of the transaction of a pending object, and settle it."""
        assert entry.pending is not None  # noqa: S101 - for type checkers
        transaction, primary, position = entry.pending
        decided, primary_token = self._load_entry(primary)
        if decided.transaction == transaction:
            settled = replace(entry, position=position, transaction=transaction, pending=None)
        else:
            self._settled.pop(primary, None)
            self._store.replace(primary, decided.to_bytes(), primary_token)
            settled = replace(entry, pending=None)
        self._settled[name] = settled, self._store.replace(name, settled.to_bytes(), token)

    def _load_entry(self, name: str) -> tuple[_Entry, Any]:
        found = self._store.read(name)
        return (_Entry(), None) if found is None else (_Entry.from_bytes(name, found[0]), found[1])

    def _forget_entries(self, names: Sequence[str]) -> None:
        for name in names:
            self._settled.pop(name, None)


def _open_file(fields: Any) -> OpenFile:
    parts = read_field(fields, "parts", list)
    prefix = read_field(fields, "prefix", str)
    numbers = (read_field(fields, number, int) for number in ("size", "records", "began_ms", "touched_ms"))
    return OpenFile(
        _read_name(fields, "prefix") if prefix else "",
        _read_name(fields, "name"),
        tuple(_read_name(parts, number) for number in range(len(parts))),
        *numbers,
    )
