"""`FileSource`: the records of files in a directory, on any file system of fsspec."""

import datetime
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, TypedDict

from streamrt.connectors.argument_checks import checked_choice, checked_flag, checked_function, checked_type
from streamrt.connectors.background import StoppedError, call_in_background, iterate_in_background
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings
from streamrt.connectors.file_sources.file_names import is_hidden, matcher, partition_count, split_pattern
from streamrt.connectors.file_sources.file_reading import (
    Chunk,
    FileEntry,
    FileReader,
    Position,
    default_key,
    default_timestamp,
    default_value,
)
from streamrt.connectors.files.compressions import CompressionName
from streamrt.connectors.files.formats import FileFormatError, Format, FormatName, resolve_format
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sources.bad_records import BadRecord, BadRecords, OnBadRecord
from streamrt.connectors.sources.stateful import StatefulSource
from streamrt.errors import ArgumentValueError, SerializationError, SourceError
from streamrt.kafka import TopicConfig
from streamrt.topics import Topic

__all__ = ["FileOptions", "FileSource"]

logger = logging.getLogger("streamrt.connectors")

_FLUSH_RECORDS = 5_000
_FLUSH_S = 2.0
_BLOCK_BYTES = 4 * 1024 * 1024
# Errors of file systems that further attempts do not change.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
# What file systems call the state of a file, the surest first.
_VERSIONS = ("etag", "ETag", "generation", "mtime", "LastModified", "last_modified", "modified", "created")


class FileOptions(TypedDict, total=False):
    """Arguments that all file sources have; see `FileSource`."""

    monitor_continuously: float | datetime.timedelta | None
    unfinished: Literal["wait", "read"]
    on_error: OnBadRecord


class FileSource(StatefulSource):
    """Produces the records of a file, of all files in a directory, or of those that a pattern names, on any file system.

    Files are read in the order of their paths, as streams. The position in each file is in the state of the source, so a
    restart continues; after a crash, the records since the last flush are produced again, unless the application has
    `processing_guarantee="exactly-once"`. Files are recognized by what was read of them: a file that grows is read on, also
    if it was renamed; one that was replaced is read from its beginning. Files and directories whose names begin with "." or
    "_" are left out. The source ends after the last file, unless it monitors them.

    By default, records have the form that file sinks write: the fields `_key`, `_timestamp` and `_value`. Without
    `_value`, the value is the record without `_key` and `_timestamp`. So other files work as well.

    To read from elsewhere, derive a class and define `get_file_list`, `read_file` and `file_partition_counter`.

    Args:
        filepath: the file, the directory or a pattern such as `logs/**/*.jsonl`, as a URL of fsspec such as
            `sftp://host/orders`, or a path in `filesystem`.
        key_setter: function from a record to its key; bytes are produced as they are, other keys are serialized.
        value_setter: function from a record to its value.
        timestamp_setter: function from a record to its timestamp: milliseconds since the Unix epoch, a datetime, or None for
            the time of producing.
        file_format: "json" (one document on each line), "csv", "text" (lines), "parquet", "avro", or a `Format`.
        compression: "gzip", "bz2", "xz", "zstd" or "none"; by default, the extension of each file decides.
        has_partition_folders: whether each file lies in a folder whose name is a partition number, as file sinks write them.
            The default topic then has as many partitions, and records without a key go to the partition of their folder.
        replay_speed: factor of the time between two records of a folder: 0 for no waits, 1 for the original time, 0.5 for
            half of it.
        name: name of the source, unique in the application; by default the last part of `filepath`.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        monitor_continuously: seconds, or a timedelta, between two looks for new files and records; by default, the source
            ends after the last file.
        unfinished: what becomes of a record at the end of a file that may not be complete, such as a last line without a
            line end: "wait" for the rest, or "read" it as it is.
        on_error: what becomes of a record, or the rest of a file, that cannot be read or produced: "fail", "skip", or a
            function of the error, a `BadRecord` and a logger that returns whether to skip it.
        filesystem: a file system of fsspec; by default that of the URL. It is sent to the process of the source as a secret.
        storage_options: settings of the URL's file system, such as credentials; they are sent as a secret.

    Raises:
        ConfigurationError: if an argument cannot be used, or fsspec is not installed.

    Example:
        ```python
        orders = FileSource("sftp://files/orders", replay_speed=0, storage_options={"username": "shop", "password": password})
        sdf = app.dataframe(source=orders)
        ```
    """

    _fs: Any = None
    _root = ""
    _partition: int | None = None

    def __init__(
        self,
        filepath: str | Path,
        key_setter: Callable[[Any], Any] | None = None,
        value_setter: Callable[[Any], Any] | None = None,
        timestamp_setter: Callable[[Any], Any] | None = None,
        file_format: Format | FormatName = "json",
        compression: CompressionName | None = None,
        has_partition_folders: bool = False,
        replay_speed: float = 1.0,
        name: str | None = None,
        shutdown_timeout: float = 30,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        monitor_continuously: float | datetime.timedelta | None = None,
        unfinished: Literal["wait", "read"] = "wait",
        on_error: OnBadRecord = "fail",
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        kind = type(self).__name__
        checked_type(kind, "filepath", filepath, str | Path, "a str or a Path")
        if re.search(r"//[^/]*:[^/]*@", str(filepath)):
            raise ArgumentValueError(f"{kind}(filepath=...) must not contain a password: give it in storage_options")
        base, pattern = split_pattern(str(filepath))
        if name is None:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(base).name).strip(".-") or "files"
        super().__init__(name, shutdown_timeout, on_client_connect_success, on_client_connect_failure)
        self._key_setter = checked_function(kind, "key_setter", key_setter, optional=True) or default_key
        self._value_setter = checked_function(kind, "value_setter", value_setter, optional=True) or default_value
        self._timestamp_setter = (
            checked_function(kind, "timestamp_setter", timestamp_setter, optional=True) or default_timestamp
        )
        checked_flag(kind, "has_partition_folders", has_partition_folders)
        checked_type(kind, "replay_speed", replay_speed, int | float, "0 or more", lambda speed: 0 <= speed < math.inf)
        if filesystem is not None and storage_options is not None:
            raise ArgumentValueError(
                f"{kind} got both filesystem and storage_options: give the settings to the file system"
            )
        if type(self).read_file is FileSource.read_file:
            require_library(kind, "fsspec", "files")
        checked_choice(kind, "unfinished", unfinished, ("wait", "read"))
        self._filepath, self._pattern = base, pattern
        self._interval_s = _check_interval(kind, monitor_continuously)
        self._ended = unfinished == "read"
        self._bad = BadRecords(kind, name, on_error)
        self._format = resolve_format(file_format, compression)
        self._has_partition_folders = has_partition_folders
        self._replay_speed = replay_speed
        # Both may hold credentials, in any form.
        self._settings = ClientSettings(
            kind, {"filesystem": filesystem, "storage_options": dict(storage_options or {})}
        )
        self._changes: dict[str, Position | None] = {}
        self._identities: dict[str, str] = {}
        self._folder: str | None = None
        self._replay_began: tuple[float, int] | None = None
        self._unflushed = 0
        self._flushed_at = 0.0

    # -- Where files are -----------------------------------------------------------------------------------------

    def connect_filesystem(self) -> tuple[Any, str]:
        """Return the file system of fsspec and the path in it. Called in each process that reads.

        Raises:
            Exception: any error that explains why there is no connection.
        """
        import fsspec

        filesystem, options = self._settings.reveal().values()
        if filesystem is not None:
            return filesystem, filesystem._strip_protocol(self._filepath)
        # Listings in a cache would hide new files.
        filesystem, path = fsspec.core.url_to_fs(
            self._filepath, **{"use_listings_cache": False, "skip_instance_cache": True, **options}
        )
        return filesystem, path

    def list_entries(self, path: str) -> Iterator[FileEntry]:
        """Yield the files below a path, with their sizes and versions, ordered by path.

        Args:
            path: the path.
        """
        if self._fs.isfile(path):
            yield _make_entry(path, self._fs.info(path))
            return
        for entry in sorted(self._fs.ls(path, detail=True), key=lambda entry: str(entry["name"])):
            found = str(entry["name"])
            # Object stores list a directory as an empty object in itself.
            is_directory = entry["type"] == "directory"
            if (found.endswith("/") and not is_directory) or found.rstrip("/") == path.rstrip("/") or is_hidden(found):
                continue
            if is_directory:
                yield from self.list_entries(found.rstrip("/"))
            else:
                yield _make_entry(found, entry)

    def get_file_list(self, filepath: Path) -> Iterable[str | Path]:
        """Return the files to read, in their order.

        Args:
            filepath: the path of the source.
        """
        return (entry.path for entry in self.list_entries(str(filepath)))

    def read_file(self, filepath: Any) -> BinaryIO:
        """Open a file.

        Args:
            filepath: a path of `get_file_list`.
        """
        stream: BinaryIO = self._fs.open(
            str(filepath), "rb", block_size=_BLOCK_BYTES, cache_type="readahead", compression=None
        )
        return stream

    def file_partition_counter(self) -> int:
        """Return the number of partitions that the folders need: the largest number, plus 1."""
        filesystem, root = self.connect_filesystem()
        names = [entry["name"] for entry in filesystem.ls(root, detail=True) if entry["type"] == "directory"]
        return partition_count(self.name, (PurePosixPath(str(name)).name for name in names))

    def default_topic(self) -> Topic:
        """Return a topic with the name of the source. With partition folders, it has a partition for each folder.

        Raises:
            ConfigurationError: if the name is not valid in a topic name.
            SourceError: if the folders cannot be listed.
        """
        topic = super().default_topic()
        if not self._has_partition_folders:
            return topic
        try:
            count = self.file_partition_counter()
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - errors of any library
            raise self.refused(error) from None
        return topic.with_config(TopicConfig(count, None))

    def setup(self) -> None:
        """Connect to the file system, and check that the path exists.

        Raises:
            SourceError: if there is no such file or directory, or it cannot be reached.
        """
        try:
            call_in_background(self.check, lambda: self.running)
        except StoppedError:
            return
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - errors of any library
            # No cause: libraries put credentials into errors and their frames.
            raise self.refused(error) from None

    def check(self) -> None:
        """Connect, and raise an error if the path cannot be read."""
        if type(self).read_file is not FileSource.read_file:
            return
        self._fs, self._root = self.connect_filesystem()
        try:
            # Not exists(), which takes some errors of connections for an answer.
            self._fs.info(self._root)
        except FileNotFoundError:
            raise self.missing() from None

    def missing(self) -> SourceError:
        """Return the error for a path that does not exist."""
        return SourceError(f"there is no file and no directory {self._filepath} for the source {self.name}")

    def may_pass(self, error: BaseException) -> bool:
        """Return whether an error of the file system may pass, so that the file is read on later.

        Args:
            error: the error of `get_file_list`, `read_file`, or its stream.
        """
        return not isinstance(error, _FINAL)

    def masked(self, text: str) -> str:
        """Return an error text of a library without what may be secret: the queries of URLs and their passwords.

        Args:
            text: the text.
        """
        return re.sub(r"//[^/\s@]*@", "//***@", re.sub(r"\?\S+", "?***", text))

    def run(self) -> None:
        """Produce the records of the files.

        Raises:
            SourceError: if a file cannot be read, or a record cannot be produced; the message names both.
        """
        self._flushed_at = time.monotonic()
        reader = FileReader(
            self, self._format, self._has_partition_folders, ended=self._ended, interval_s=self._interval_s
        )
        for chunk in iterate_in_background(reader.chunks, lambda: self.running):
            if not chunk.name:
                if self._changes:
                    self.flush()
                continue
            if not self._produce_chunk(chunk):
                return

    def _produce_chunk(self, chunk: Chunk) -> bool:
        """Produce the records of a part of a file; return whether to go on."""
        self._partition = chunk.partition
        folder = str(PurePosixPath(chunk.name).parent)
        if folder != self._folder:
            self._folder, self._replay_began = folder, None
        if chunk.former is not None:
            self._changes[chunk.former] = None
        if chunk.identity is not None:
            self._identities[chunk.identity] = chunk.name
        for record, position in chunk.records:
            try:
                if isinstance(record, FileFormatError):
                    raise record
                if not self._wait_for_turn(record):
                    return False
                self.process_record(record)
            except (SerializationError, _RecordError, FileFormatError) as error:
                self._bad.decide(
                    SourceError(
                        f"the record that ends at position {position} of {chunk.name} cannot be produced by the source "
                        f"{self.name}: {error}"
                        if record is not error
                        else f"the source {self.name} cannot read {chunk.name}: {error}"
                    ),
                    error,
                    BadRecord(chunk.name, position, error.data if isinstance(error, FileFormatError) else record),
                )
            self._changes[chunk.name] = chunk.at._replace(position=position)
            self._unflushed += 1
            if self._unflushed >= _FLUSH_RECORDS or time.monotonic() - self._flushed_at >= _FLUSH_S:
                self.flush()
        if chunk.error is not None:
            end = chunk.end or chunk.at
            self._bad.decide(
                chunk.error, chunk.error.__cause__ or chunk.error, BadRecord(chunk.name, end.position, None)
            )
        if chunk.end is not None:
            self._changes[chunk.name] = chunk.end
            self._bad.report(chunk.name)
            logger.debug("source %s has read %s", self.name, chunk.name)
        return True

    def process_record(self, record: Any) -> None:
        """Serialize and produce one record.

        Args:
            record: the record, as the format returns it.

        Raises:
            SerializationError: if its key or value cannot be serialized.
        """
        key = self._call_setter("key_setter", self._key_setter, record)
        value = self._call_setter("value_setter", self._value_setter, record)
        message = self.serialize(None if isinstance(key, bytes) else key, value, timestamp_ms=self._timestamp(record))
        raw_key = key if isinstance(key, bytes) else message.key
        partition = self._partition if raw_key is None else None
        self.produce(message.value, raw_key, message.headers, partition, message.timestamp)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are delivered, then make the positions of their files durable.

        Args:
            timeout: seconds, for each of the two; None means 30, -1 means no limit.

        Raises:
            ProducerError: if a record was not delivered, or the changelog was not written, in time.
        """
        with self._state_lock:
            for identity, name in self._identities.items():
                self.state.set(["file", identity], name)
            for name, position in self._changes.items():
                if position is None:
                    self.state.delete(name)
                else:
                    self.state.set(name, position.to_state())
            self._changes, self._identities = {}, {}
            super().flush(timeout)
        self._unflushed, self._flushed_at = 0, time.monotonic()

    def configure(self, *args: Any, **kwargs: Any) -> None:  # noqa: D102
        super().configure(*args, **kwargs)
        # The reading thread looks positions up. Made here, because a lock cannot be pickled.
        self._state_lock = threading.Lock()

    def _wait_for_turn(self, record: Any) -> bool:
        """Wait until the record is due; return whether to produce it."""
        timestamp = self._timestamp(record) if self._replay_speed else None
        if timestamp is None:
            return self.running
        if self._replay_began is None:
            self._replay_began = time.monotonic(), timestamp
        begun, first = self._replay_began
        due = begun + (timestamp - first) / 1000 * self._replay_speed
        if self._unflushed and due - time.monotonic() > _FLUSH_S:
            self.flush()
        return self.sleep(due - time.monotonic())

    def _timestamp(self, record: Any) -> int | None:
        found = self._call_setter("timestamp_setter", self._timestamp_setter, record)
        if isinstance(found, datetime.datetime):
            return round((found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)).timestamp() * 1000)
        if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
            raise _RecordError(
                f"timestamp_setter returned a {type(found).__name__}, not an integer (milliseconds), a datetime or None"
            )
        return found

    def _call_setter(self, what: str, setter: Callable[[Any], Any], record: Any) -> Any:
        try:
            return setter(record)
        except Exception as error:
            # Without the text of the error, which may quote the record.
            raise _RecordError(f"{what} failed with {type(error).__name__}") from error

    # -- For the reader, in another thread -----------------------------------------------------------------------

    def entries(self) -> Iterator[FileEntry]:
        """Yield the files, in the order in which they are read."""
        if type(self).get_file_list is not FileSource.get_file_list:
            yield from (FileEntry(path) for path in self.get_file_list(Path(self._filepath)))
            return
        wanted = None if self._pattern is None else matcher(self._pattern)
        try:
            for entry in self.list_entries(self._root or self._filepath):
                if wanted is None or wanted.fullmatch(self.name_of(str(entry.path))):
                    yield entry
        except FileNotFoundError:
            # A file that is rotated has no name for a moment.
            if self._interval_s is None:
                raise

    def name_of(self, path: str) -> str:
        """Return the path of a file below that of the source: the name under which its position is kept.

        Args:
            path: path of the file.
        """
        root = (self._root or self._filepath).rstrip("/")
        if path == root and root:
            return PurePosixPath(path).name
        return path[len(root) :].lstrip("/") if path.startswith(f"{root}/") else path

    def position_of(self, name: str) -> Position | None:
        """Return how far a file was read; None if it is new.

        Args:
            name: result of `name_of`.
        """
        with self._state_lock:
            stored = self.state.get(name)
        return None if stored is None else Position.stored(stored)

    def name_by(self, identity: str) -> str | None:
        """Return the name that a file had when it was read.

        Args:
            identity: its identity.
        """
        with self._state_lock:
            name: str | None = self.state.get(["file", identity])
        return name

    def refused(self, error: BaseException, what: str | None = None) -> SourceError:
        """Return the error for a file or directory that cannot be read.

        Args:
            error: the error of the file system.
            what: what cannot be read; by default the path of the source.
        """
        lines = self.masked(str(error)).splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
        return SourceError(f"the source {self.name} cannot read {what or self._filepath}: {reason}")


class _RecordError(Exception):
    """A record cannot be produced."""


def _make_entry(path: str, info: Mapping[str, Any]) -> FileEntry:
    """Return the entry of a file in a listing of fsspec."""
    version = next((str(info[name]) for name in _VERSIONS if info.get(name) is not None), None)
    return FileEntry(path, info.get("size"), version)


def _check_interval(kind: str, interval: float | datetime.timedelta | None) -> float | None:
    if interval is None:
        return None
    seconds = interval.total_seconds() if isinstance(interval, datetime.timedelta) else interval
    wanted = "seconds above 0 or a timedelta"
    checked_type(kind, "monitor_continuously", seconds, int | float, wanted, lambda seconds: 0 < seconds < math.inf)
    return float(seconds)
