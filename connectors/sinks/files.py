"""Sinks of files: a file for each commit and input partition, with the positions of the group beside them."""

import abc
import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import PassingError
from streamrt.connectors.files import BatchFormat, BatchFormatName, resolve_batch_format
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.file_commits import FileCommits, OtherPositionError
from streamrt.connectors.sinks.file_stores import FileStore
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import ArgumentValueError, SinkError, SinkFencedError, argument_error

__all__ = ["FileSink"]

_RETRIES = Retries()
_POSITIONS = "_streamrt"
_LONGEST_PART = 100


class FileSink(TransactionalSink):
    """Base class of sinks that write a file for each commit and input partition.

    Files are `<directory>/<topic>/<partition>/<first offset>-<number>-<hash>.<extension>`: the offset of the first value,
    the number of the transaction, and a hash of the group and the sink. Readers see whole files only. Positions are below
    `<directory>/_streamrt`, and belong to the output: without them, values are written again.

    Args:
        directory: path of the directory.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        exactly_once: whether positions are stored. Otherwise each value is written at least once.
        name: name of the sink, unique in the application; by default the `destination`.
        retries: how requests are repeated.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.

    Raises:
        ConfigurationError: if an argument cannot be used.
    """

    def __init__(
        self,
        directory: str = "",
        format: BatchFormatName | BatchFormat = "json",  # noqa: A002 - the name is that of Quix Streams
        *,
        exactly_once: bool,
        name: str | None,
        retries: Retries | None,
        on_client_connect_success: ClientConnectSuccessCallback | None,
        on_client_connect_failure: ClientConnectFailureCallback | None,
    ) -> None:
        super().__init__(name, on_client_connect_success, on_client_connect_failure)
        if not isinstance(directory, str) or "\0" in directory:
            raise argument_error(
                f"{type(self).__name__}(directory=...) must be a path, got {directory!r}",
                of_type=isinstance(directory, str),
            )
        if not isinstance(exactly_once, bool):
            raise argument_error(
                f"{type(self).__name__}(exactly_once=...) must be a bool, got {exactly_once!r}", of_type=False
            )
        self._directory = directory
        self._format = resolve_batch_format(format)
        self._exactly_once = exactly_once
        self._retries = retries or _RETRIES
        self._store: Any = None
        self._commits: Any = None

    @abc.abstractmethod
    def _connect(self) -> FileStore:
        """Return the store, after a look whether it can be reached.

        Raises:
            PassingError: if it cannot be reached now.
            SinkError: if it cannot be used.
        """

    def setup(self) -> None:
        """Connect.

        Raises:
            SinkError: if the directory cannot be used.
        """
        try:
            self._store = self._connect()
        except PassingError as error:
            raise SinkError(f"{type(self).__name__} cannot reach {self.destination}: {error}") from None
        self._commits = FileCommits(self._store)

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        if not self._exactly_once:
            return {}

        def read() -> dict[tuple[str, int], SinkPosition]:
            found = {
                partition: self._commits.position(self._position_name(group, partition)) for partition in partitions
            }
            return {partition: position for partition, position in found.items() if position is not None}

        found: Mapping[tuple[str, int], SinkPosition] = self._requested(read, "reading positions from")
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        if not self._exactly_once or not commit.positions:
            for batch in batches:
                self._write_at_least_once(batch, commit)
            return
        files = [(self._file_name(batch, commit), self._format.serialize(batch)) for batch in batches]
        partitions = {self._position_name(commit.group, partition): partition for partition in commit.positions}
        changes = {name: commit.positions[partition] for name, partition in partitions.items()}
        transaction = secrets.token_hex(8)
        try:
            self._requested(lambda: self._commits.write(transaction, changes, files), "writing to")
        except OtherPositionError as error:
            topic, number = partitions[error.args[0]]
            raise SinkFencedError(
                f"the sink {self.name} has another position of {topic}[{number}] than expected: another process has written "
                "to it"
            ) from None

    def _write_at_least_once(self, batch: SinkBatch, commit: SinkCommit) -> None:
        name, content = self._file_name(batch, commit), self._format.serialize(batch)
        self._requested(lambda: self._store.put(name, content), "writing to")

    def _requested(self, request: Callable[[], Any], what: str) -> Any:
        return self._retries.write(
            request, passing=(PassingError,), words=str, what=f"the sink {self.name}: {what} {self.destination}"
        )

    def _prefix_of(self, directory: str) -> str:
        """Return a directory of an object store, without slashes around it."""
        parts = [part for part in directory.split("/") if part]
        if ".." in parts or "." in parts:
            raise ArgumentValueError(
                f"{type(self).__name__}(directory=...) must not have the parts . and .., got {directory!r}"
            )
        return "/".join(parts)

    # -- Names ---------------------------------------------------------------------------------------------------------

    def _folder(self, batch: SinkBatch) -> str:
        return f"{_topic_name(batch.topic)}/{int(batch.partition)}"

    def _file_name(self, batch: SinkBatch, commit: SinkCommit) -> str:
        """Return the name of the file of a batch, which no other transaction has."""
        offset = batch.first_offset
        change = commit.positions.get((batch.topic, batch.partition))
        if change is not None and self._exactly_once:
            number = f"{change.after.version:010d}"
            offset = offset if offset >= 0 else change.after.offset
        elif offset >= 0:
            # A commit that is repeated with the same first record replaces its file.
            number = "0" * 10
        else:
            # Time has caused the values, and another tick may have had the same number.
            number, offset = secrets.token_hex(5), 0
        topic_id = None if change is None else change.after.topic_id
        identity = [commit.group, self.name, *([] if self._exactly_once else [str(topic_id)])]
        digest = hashlib.sha256("\0".join(identity).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{self._folder(batch)}/{offset:020d}-{number}-{digest}{self._format.file_extension}"

    def _position_name(self, group: str, partition: tuple[str, int]) -> str:
        parts = (group, self.name, partition[0], str(int(partition[1])))
        return "/".join((_POSITIONS, *map(_part, parts)))


def _topic_name(topic: str) -> str:
    """Return a topic as the name of a directory; what Kafka allows in names of topics is kept."""
    if topic == _POSITIONS:
        return f"{topic}="
    return topic if re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", topic) else _part(topic)


def _part(text: str) -> str:
    """Return a text as one part of a path; different texts give different parts."""
    quoted = quote(text, safe="", errors="surrogatepass")
    if 0 < len(quoted) <= _LONGEST_PART and not quoted.startswith("."):
        return quoted
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{quoted.replace('.', '')[:_LONGEST_PART]}={digest[:32]}"
