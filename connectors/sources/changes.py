"""Common parts of sources of database changes: the shape of their records, when they flush, and how they wait for servers."""

import abc
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from streamrt.connectors.argument_checks import checked_count, checked_flag, checked_seconds
from streamrt.connectors.background import StoppedError
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import SerializationError, SourceError

__all__ = [
    "Change",
    "ChangeSource",
    "UnavailableError",
    "shaped",
]

logger = logging.getLogger("streamrt.connectors")

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
# A connection that lasted this long was a good one: the next wait is short again.
_GOOD_CONNECTION_S = 30.0


class UnavailableError(Exception):
    """The database cannot be used now, but may be later."""


class Change(NamedTuple):
    """A change of a row, or a row of a snapshot.

    Attributes:
        op: "r" for a row of a snapshot, "c" for an insert, "u" for an update, "d" for a delete, "t" for a truncate.
        table: name of the table, for errors.
        key: the key columns, or None if the table has no key.
        old_key: the key columns before an update, if they are known.
        before: the row before the change, as far as it is known.
        after: the row after the change.
        source: where the change comes from.
        timestamp: time of the commit, in milliseconds since the Unix epoch.
    """

    op: str
    table: str
    key: Mapping[str, Any] | None
    old_key: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    source: Mapping[str, Any]
    timestamp: int


def shaped(
    change: Change, flat: bool, tombstones: bool
) -> Iterator[tuple[Mapping[str, Any] | None, dict[str, Any] | None]]:
    """Yield the keys and values of the records of one change.

    An update that changes the key is a delete of the old key and an insert of the new one, because records of different
    keys are in different partitions.

    Args:
        change: the change.
        flat: make values that are only the row.
        tombstones: follow a delete with a tombstone.

    Example:
        >>> change = Change("d", "t", {"id": 1}, None, {"id": 1}, None, {}, 0)
        >>> list(shaped(change, flat=True, tombstones=False))
        [({'id': 1}, None)]
    """
    if change.op == "u" and change.old_key is not None and change.old_key != change.key:
        deleted = change._replace(op="d", key=change.old_key, old_key=None, after=None)
        created = change._replace(op="c", old_key=None, before=None)
        yield from shaped(deleted, flat, tombstones)
        yield from shaped(created, flat, tombstones)
        return
    if flat:
        if change.op != "t":
            yield change.key, None if change.after is None else dict(change.after)
        return
    yield (
        change.key,
        {"op": change.op, "before": change.before, "after": change.after, "source": change.source},
    )
    if tombstones and change.op == "d" and change.key is not None:
        yield change.key, None


class ChangeSource(StatefulSource):
    """A source that follows the changes of a database; subclasses define `_follow_changes`.

    Args:
        name: name of the source.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        commit_interval: seconds between flushes.
        commit_every: number of records after which it flushes earlier.
        heartbeat_interval: seconds between flushes of a position that moves without records.
        flat: produce rows without the envelope.
        tombstones: follow a delete with a tombstone.
    """

    # The source and its database, as the subject of errors and log lines.
    _described: str

    def __init__(
        self,
        name: str,
        shutdown_timeout: float,
        on_client_connect_success: ClientConnectSuccessCallback | None,
        on_client_connect_failure: ClientConnectFailureCallback | None,
        *,
        commit_interval: float,
        commit_every: int,
        heartbeat_interval: float,
        flat: bool,
        tombstones: bool,
    ) -> None:
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        owner = type(self).__name__
        self._commit_interval = checked_seconds(owner, "commit_interval", commit_interval, least=0)
        self._commit_every = checked_count(owner, "commit_every", commit_every)
        self._heartbeat_interval = checked_seconds(owner, "heartbeat_interval", heartbeat_interval, least=0)
        self._flat = checked_flag(owner, "flat", flat)
        self._tombstones = checked_flag(owner, "tombstones", tombstones)
        self._unflushed = 0
        self._flushed_at = 0.0

    def run(self) -> None:
        """Produce the snapshot, then the changes. While the database cannot be used, try again with growing waits.

        Raises:
            SourceError: if the source cannot go on.
        """
        wait = _FIRST_WAIT_S
        self._flushed_at = time.monotonic()
        while self.running:
            begun = time.monotonic()
            try:
                self._follow_changes()
            except StoppedError:
                return
            except UnavailableError as error:
                self._disconnect()
                if time.monotonic() - begun > _GOOD_CONNECTION_S:
                    wait = _FIRST_WAIT_S
                logger.warning("%s cannot go on: %s; it tries again in %.1f s", self._described, error, wait)
                self.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)

    def _wait_for_database(self, error: UnavailableError) -> None:
        """Leave it to `run` to connect, if the source has worked before: then its settings are right.

        Raises:
            SourceError: if it has not.
        """
        if self._stored_position() is None:
            raise SourceError(f"{self._described} cannot connect: {error}") from None
        logger.warning("%s cannot connect: %s; it waits for the database", self._described, error)

    def cleanup(self, failed: bool) -> None:
        """Flush, unless the source failed, and close the connections.

        Args:
            failed: whether `run` or `setup` raised.
        """
        try:
            super().cleanup(failed)
        finally:
            self._disconnect()

    @abc.abstractmethod
    def _stored_position(self) -> Any:
        """Return where the source goes on; None if it has not begun yet."""

    @abc.abstractmethod
    def _follow_changes(self) -> None:
        """Connect and produce until the source is stopped.

        Raises:
            UnavailableError: if the database goes away; called again later.
        """

    @abc.abstractmethod
    def _disconnect(self) -> None:
        """Close all connections; may be called at any time."""

    @abc.abstractmethod
    def _commit(self) -> None:
        """Put the position into the state, flush, and acknowledge it to the database."""

    def _produce_change(self, change: Change) -> None:
        if self._flat and change.key is None and change.op != "t":
            raise SourceError(
                f"{self._described} cannot produce a change of table {change.table} with flat=True: the table has no "
                "key, so deletes and updates could not be told from inserts"
            )
        if self._flat and change.op == "t":
            logger.warning(
                "%s leaves out a truncate of %s: flat=True has no form for it", self._described, change.table
            )
        for key, value in shaped(change, self._flat, self._tombstones):
            try:
                data = None if value is None else self.serialize(value=value).value
            except SerializationError as error:
                raise SourceError(
                    f"{self._described} cannot serialize a row of table {change.table} ({_format_place(change)}): "
                    f"{type(error).__name__}"
                ) from error
            self.produce(data, None if key is None else orjson.dumps(key), timestamp=change.timestamp)
            self._unflushed += 1

    def _is_due(self) -> bool:
        if self._unflushed >= self._commit_every:
            return True
        return self._unflushed > 0 and time.monotonic() - self._flushed_at >= self._commit_interval

    def _commit_if_due(self, moved: bool) -> None:
        """Flush if it is time to.

        Args:
            moved: whether the position has moved, possibly without records.
        """
        if self._is_due() or (moved and time.monotonic() - self._flushed_at >= self._heartbeat_interval):
            self._commit()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered, then make the position durable.

        Args:
            timeout: seconds, for each of the two; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        super().flush(timeout)
        self._unflushed = 0
        self._flushed_at = time.monotonic()


def _format_place(change: Change) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in change.source.items() if name in ("lsn", "file", "pos", "seq")
    )
