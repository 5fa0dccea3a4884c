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

Another process that finds a committed object does steps 2 and 3, so a crash in between is completed by the next reader of
the position. A process that was suspended fails at step 1, since the object has changed.

A transaction of several positions makes all but the first one pending before step 1; the first one is the primary. After
step 1 the others become settled with their new positions, then step 2 follows. A process that finds a pending object looks
at the primary. If that holds the transaction, the object is settled with the new position. If not, the process first
changes the primary, so that the transaction cannot be decided any more, and then settles the object with the old position.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamrt.connectors.failures import PassingError
from streamrt.connectors.sinks.file_stores import ChangedError, FileStore
from streamrt.connectors.sinks.transactional import PositionChange, SinkPosition
from streamrt.errors import SinkError

__all__ = ["FileCommits", "OtherPositionError"]

_FORMAT = 1
_ATTEMPTS = 20
"""Other processes may change an object while this one settles it; each such change is progress of theirs."""


class OtherPositionError(Exception):
    """A stored position is not the expected one; its argument is the name of the object."""


@dataclass(frozen=True)
class _Entry:
    """The content of an object.

    Attributes:
        position: the position; None if there is none yet.
        transaction: id of the transaction that has set the position.
        files: names and contents of files that are to be at their places; None if they are.
        others: names of objects with their new positions, which this transaction moves, too.
        pending: id of a transaction that wants to move the position, the name of its primary, and the new position.
    """

    position: SinkPosition | None = None
    transaction: str = ""
    files: tuple[tuple[str, bytes], ...] | None = None
    others: tuple[tuple[str, SinkPosition], ...] = ()
    pending: tuple[str, str, SinkPosition] | None = None

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
        return b"".join((json.dumps(header).encode(), b"\n", *(content for _, content in self.files or ())))

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> "_Entry":
        """Return the entry of a content."""
        line, _, contents = data.partition(b"\n")
        try:
            header = json.loads(line)
            if header["format"] != _FORMAT:
                raise SinkError(f"the object {name} was written by a newer version of StreamRT")
            files, start = [], 0
            for file, length in header["files"] or ():
                files.append((file, contents[start : start + length]))
                start += length
            if start != len(contents):
                raise ValueError
            pending = header["pending"]
            return cls(
                header["position"] and SinkPosition(*header["position"]),
                header["transaction"],
                None if header["files"] is None else tuple(files),
                tuple((other, SinkPosition(*position)) for other, position in header["others"]),
                pending and (pending[0], pending[1], SinkPosition(*pending[2])),
            )
        except (ValueError, KeyError, TypeError, IndexError):
            raise SinkError(f"the object {name}, which holds a position of the group, is damaged") from None


class FileCommits:
    """Reads positions, and writes transactions.

    Args:
        store: the store.
    """

    def __init__(self, store: FileStore) -> None:
        self._store = store
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
        entry, _ = self._settle(name)
        return entry.position

    def write(
        self, transaction: str, changes: Mapping[str, PositionChange], files: Sequence[tuple[str, bytes]]
    ) -> None:
        """Write files and move positions. It can be repeated after an error.

        Args:
            transaction: an id that no other transaction has.
            changes: changes of positions by the names of their objects, at least one.
            files: names and contents.

        Raises:
            OtherPositionError: if a stored position is not the expected one; nothing was written.
            PassingError: if the store cannot answer now. The transaction may be durable.
        """
        names = sorted(changes)
        for _ in range(_ATTEMPTS):
            try:
                if not self._is_done(names[0], transaction):
                    self._decide(transaction, names, changes, files)
                self._settle(names[0])
            except ChangedError:
                self._forget(names)
            except PassingError:
                self._forget(names)
                raise
            else:
                return
        raise PassingError("other processes change the positions all the time")

    def _is_done(self, primary: str, transaction: str) -> bool:
        """Return whether an earlier attempt was durable after all, although its answer was lost."""
        entry, _ = self._settled.get(primary) or self._settle(primary)
        return entry.transaction == transaction

    def _decide(
        self,
        transaction: str,
        names: Sequence[str],
        changes: Mapping[str, PositionChange],
        files: Sequence[tuple[str, bytes]],
    ) -> None:
        primary, *others = names
        # The primary is the last one: objects that an earlier attempt has left pending change it when they are settled.
        entries = {name: self._expected(name, changes[name].before) for name in (*others, primary)}
        for name in others:
            entry, token = entries[name]
            self._settled.pop(name, None)
            self._store.replace(
                name, replace(entry, pending=(transaction, primary, changes[name].after)).to_bytes(), token
            )
        after = {name: changes[name].after for name in others}
        committed = _Entry(changes[primary].after, transaction, tuple(files), tuple(after.items()))
        self._settled.pop(primary, None)
        token = self._store.replace(primary, committed.to_bytes(), entries[primary][1])
        self._complete(primary, committed, token)

    def _expected(self, name: str, before: SinkPosition | None) -> tuple[_Entry, Any]:
        """Return a settled object with an expected position."""
        version = None if before is None else before.version
        # What this process knows may be old, so a difference is looked at again.
        for known in (self._settled.pop(name, None), None):
            entry, token = known or self._settle(name)
            if (None if entry.position is None else entry.position.version) == version:
                return entry, token
        raise OtherPositionError(name)

    def _settle(self, name: str) -> tuple[_Entry, Any]:
        """Return an object after its transactions are completed, and its token."""
        known = self._settled.get(name)
        for _ in range(_ATTEMPTS):
            if known is not None:
                return known
            entry, token = self._load(name)
            try:
                if entry.pending is not None:
                    self._resolve(name, entry, token)
                elif entry.files is not None:
                    self._complete(name, entry, token)
                elif token is None:
                    # There is nothing yet.
                    return entry, None
                else:
                    self._settled[name] = entry, token
            except ChangedError:
                continue
            known = self._settled.get(name)
        raise PassingError("other processes change the positions all the time")

    def _complete(self, name: str, entry: _Entry, token: Any) -> None:
        """Do what is left of a committed transaction."""
        for other, position in entry.others:
            self._advance(other, entry.transaction, position)
        settled = _Entry(entry.position, entry.transaction)
        self._settled[name] = settled, self._store.publish(name, entry.files or (), settled.to_bytes(), token)

    def _advance(self, name: str, transaction: str, position: SinkPosition) -> None:
        """Settle a pending object with its new position, unless another process has done so."""
        entry, token = self._load(name)
        if entry.pending is not None and entry.pending[0] == transaction:
            settled = _Entry(position, transaction)
            self._settled[name] = settled, self._store.replace(name, settled.to_bytes(), token)

    def _resolve(self, name: str, entry: _Entry, token: Any) -> None:
        """Find out what became of the transaction of a pending object, and settle it."""
        assert entry.pending is not None  # noqa: S101 - for type checkers
        transaction, primary, position = entry.pending
        decided, primary_token = self._load(primary)
        if decided.transaction == transaction:
            settled = _Entry(position, transaction)
        else:
            self._settled.pop(primary, None)
            self._store.replace(primary, decided.to_bytes(), primary_token)
            settled = _Entry(entry.position, entry.transaction)
        self._settled[name] = settled, self._store.replace(name, settled.to_bytes(), token)

    def _load(self, name: str) -> tuple[_Entry, Any]:
        found = self._store.read(name)
        return (_Entry(), None) if found is None else (_Entry.from_bytes(name, found[0]), found[1])

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._settled.pop(name, None)
