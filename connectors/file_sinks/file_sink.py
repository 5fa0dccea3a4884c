"""Sinks of files: a file for each commit and input partition, or for several, next to the positions of the group."""

import abc
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from streamrt.connectors.argument_checks import checked_function, checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.failures import PassingError
from streamrt.connectors.file_sinks.file_closer import FileCloser
from streamrt.connectors.file_sinks.file_commits import FileCommits, OpenFile, OtherPositionError, Plan
from streamrt.connectors.file_sinks.file_stores import FileStore
from streamrt.connectors.file_sinks.rolling import Folders, Rolling, folder_of, planned
from streamrt.connectors.files import BatchFormat, BatchFormatName, resolve_batch_format
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.merged_batches import join_partitions
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import ArgumentValueError, SinkError

__all__ = ["FileSink"]

_RETRIES = Retries()
_POSITIONS = "_streamrt"
_LONGEST_PART = 100


class FileSink(TransactionalSink):
    """Base class of sinks that write a file for each commit and input partition.

    Files are `<directory>/<topic>/<partition>/<first offset>-<number>-<hash>.<extension>`: the offset of the first value,
    the number of the transaction, and a hash of the group and the sink. With `folders`, they are
    `<directory>/<topic>/<folder>/<partition>-<first offset>-...`. Readers see whole files only. Positions are below
    `<directory>/_streamrt`, and belong to the output: without them, values are written again.

    With `rolling`, a file grows over several commits. Until it is closed, its values are in hidden parts below `_streamrt`.

    Args:
        directory: path of the directory.
        format: "json" (JSON lines), "parquet", "csv", or a `BatchFormat`.
        exactly_once: whether positions are stored. Otherwise each value is written at least once.
        name: name of the sink, unique in the application; by default the `destination`.
        folders: `DateFolders`, `FieldFolders`, or a function of an item that returns the folder of its file.
        rolling: when a file is closed; by default, each commit closes its files. It needs `exactly_once`.
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
        folders: Folders | None = None,
        rolling: Rolling | None = None,
    ) -> None:
        super().__init__(name, on_client_connect_success, on_client_connect_failure)
        owner = type(self).__name__
        checked_type(owner, "directory", directory, str, "a path", lambda path: "\0" not in path)
        checked_type(owner, "exactly_once", exactly_once, bool, "a bool")
        checked_function(owner, "folders", folders, optional=True)
        checked_type(owner, "rolling", rolling, Rolling, "a Rolling", optional=True)
        if rolling is not None and not exactly_once:
            raise ArgumentValueError(
                f"{owner}(rolling=...) needs exactly_once=True: the open files are kept with the positions"
            )
        self._folders = folders
        self._rolling = rolling
        self._closer: FileCloser | None = None
        self._directory = directory
        self._format = resolve_batch_format(format)
        if rolling is not None and not self._format.can_merge:
            raise ArgumentValueError(
                f"{owner}(rolling=...) needs a format with merge() or supports_append, and "
                f"{type(self._format).__name__} has neither"
            )
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
        self._commits = FileCommits(self._store, self._format.merge)

    def close(self) -> None:
        """Close the open files of this process: they are committed, and become visible."""
        if self._closer is not None:
            self._closer.close()
            self._closer = None

    def finish(self, group: str, partitions: Collection[tuple[str, int]]) -> None:
        """Close open files that processes have left."""
        if self._rolling is not None:
            names = [self._position_name(group, partition) for partition in partitions]
            FileCommits(self._connect(), self._format.merge).close_files(names, lambda file: True)

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        if not self._exactly_once:
            return {}

        def read() -> dict[tuple[str, int], SinkPosition]:
            names = {partition: self._position_name(group, partition) for partition in partitions}
            found = {partition: self._commits.position(name) for partition, name in names.items()}
            # A former process may have left open files.
            self._watch_files(name for name in names.values() if self._commits.has_open_files(name))
            return {partition: position for partition, position in found.items() if position is not None}

        found: Mapping[tuple[str, int], SinkPosition] = self._request_retried(read, "reading positions from")
        return found

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        # Files have no order, and the first offset of a batch names its file.
        batches = join_partitions(batches)
        if not self._exactly_once or not commit.positions:
            for batch in batches:
                self._write_at_least_once(batch, commit)
            return
        partitions = {self._position_name(commit.group, partition): partition for partition in commit.positions}
        changes = {name: commit.positions[partition] for name, partition in partitions.items()}
        transaction = secrets.token_hex(8)
        try:
            plan = self._plan_files(batches, commit, transaction)
            self._request_retried(lambda: self._commits.write(transaction, changes, plan), "writing to")
            if self._rolling is not None:
                self._watch_files([min(changes)])
        except OtherPositionError as error:
            raise self._make_fenced_error(*partitions[error.args[0]]) from None

    def _plan_files(
        self, batches: Sequence[SinkBatch], commit: SinkCommit, transaction: str
    ) -> Callable[[tuple[OpenFile, ...]], Plan]:
        """Return the function that says what a commit does, from the files that are open."""
        if self._rolling is None:
            files = tuple(file for batch in batches for file in self._make_files(batch, commit))
            # Another version of the application may have left open files.
            return lambda opened: Plan(files, opened)
        groups = [group for batch in batches for group in self._group_values(batch)]
        now_ms = time.time_ns() // 1_000_000

        def named(prefix: str, part: SinkBatch, number: int) -> str:
            return self._file_name(prefix, part, commit, f"_{number}" if number else "")

        return lambda opened: planned(
            cast("Rolling", self._rolling),
            opened,
            groups,
            now_ms,
            named,
            self._format.serialize,
            lambda number: f"{_POSITIONS}/parts/{transaction}-{number}",
        )

    def _watch_files(self, names: Iterable[str]) -> None:
        """Have files closed that no commit closes, because no values come."""
        for name in names:
            if self._closer is None:
                self._closer = FileCloser(FileCommits(self._store, self._format.merge), self._rolling, self.name)
            self._closer.watch(name)

    def _write_at_least_once(self, batch: SinkBatch, commit: SinkCommit) -> None:
        for name, content in self._make_files(batch, commit):
            self._request_retried(partial(self._store.put, name, content), "writing to")

    def _group_values(self, batch: SinkBatch) -> list[tuple[str, SinkBatch]]:
        """Return the values of a batch in groups, each for one file, with the beginning of its name."""
        folders: dict[str, SinkBatch] = {}
        topic, partition = _topic_name(batch.topic), int(batch.partition)
        if self._folders is None:
            folders[f"{topic}/{partition}/"] = batch
        else:
            for item in batch:
                prefix = f"{topic}/{folder_of(self._folders, item, batch, _visible_part)}/{partition}-"
                folders.setdefault(prefix, SinkBatch(batch.topic, batch.partition)).append(*item)
        groups = []
        for prefix, whole in folders.items():
            for items in self._format.split(whole):
                part = SinkBatch(batch.topic, batch.partition)
                for item in items:
                    part.append(*item)
                groups.append((prefix, part))
        return groups

    def _make_files(self, batch: SinkBatch, commit: SinkCommit) -> list[tuple[str, bytes]]:
        """Return the names and the contents of the files of a batch: mostly one."""
        names: dict[str, int] = {}
        files = []
        for prefix, part in self._group_values(batch):
            number = names[prefix] = names.get(prefix, -1) + 1
            name = self._file_name(prefix, part, commit, f"_{number}" if number else "")
            files.append((name, self._format.serialize(part)))
        return files

    def _request_retried(self, request: Callable[[], Any], what: str) -> Any:
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

    def _folder_name(self, batch: SinkBatch) -> str:
        return f"{_topic_name(batch.topic)}/{int(batch.partition)}"

    def _file_name(self, prefix: str, batch: SinkBatch, commit: SinkCommit, suffix: str = "") -> str:
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
        return f"{prefix}{offset:020d}-{number}-{digest}{suffix}{self._format.file_extension}"

    def _position_name(self, group: str, partition: tuple[str, int]) -> str:
        parts = (group, self.name, partition[0], str(int(partition[1])))
        return "/".join((_POSITIONS, *map(_path_part, parts)))


def _topic_name(topic: str) -> str:
    """Return a topic as the name of a directory; what Kafka allows in names of topics is kept."""
    if topic == _POSITIONS:
        return f"{topic}="
    return topic if re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", topic) else _path_part(topic)


def _visible_part(text: str) -> str:
    """Return a text as one part of a path that readers do not pass over; `name=value` of Hive is kept."""
    name, equals, value = text.partition("=")
    if (
        equals
        and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._%-]{0,99}", name)
        and re.fullmatch(r"[A-Za-z0-9._%-]{1,200}", value)
    ):
        return text
    part = _path_part(text)
    return f"%5F{part[1:]}" if part.startswith("_") else part


def _path_part(text: str) -> str:
    """Return a string as one part of a path; different strings give different parts."""
    quoted = quote(text, safe="", errors="surrogatepass")
    if 0 < len(quoted) <= _LONGEST_PART and not quoted.startswith("."):
        return quoted
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{quoted.replace('.', '')[:_LONGEST_PART]}={digest[:32]}"
