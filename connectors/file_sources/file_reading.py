"""Reads files record by record, for file sources: in another thread than the one that produces.

A file is recognized by its content, not by its name: see `docs/decisions/0038-files-have-an-identity.md`. For each name, the
state has how far its file was read, with a mark of what was read. Each look at the files compares them with that:

```
size and version as before        nothing to do
the content fits the mark         the file has grown, or was touched: read on, if what was opened still fits it
another content                   the file was replaced. If a new file fits the mark, it is the former one with another name,
                                  and is read on; the replaced one is read from its beginning
```
"""

import contextlib
import copy
import io
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

from streamrt.connectors.file_sources.file_names import partition_of
from streamrt.connectors.files.compressions import compression_of, decompressed
from streamrt.connectors.files.marks import Mark, Observed
from streamrt.connectors.files.reading import FileFormatError, Format, PositionBeyondEndError, UnfinishedError
from streamrt.connectors.files.streams import StorageError, tagged
from streamrt.errors import SourceError

__all__ = [
    "Chunk",
    "FileEntry",
    "FileReader",
    "Files",
    "Position",
    "default_key",
    "default_timestamp",
    "default_value",
]

logger = logging.getLogger("streamrt.connectors")

T = TypeVar("T")

_CHUNK_RECORDS = 500
_CHUNK_BYTES = 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_LOOK_AGAIN_S = 0.05
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_GIVE_UP_S = 600.0


class Position(NamedTuple):
    """How far a file was read.

    Attributes:
        position: a position of its format.
        size: if it was read to its end, its size, or -1 if that was unknown; else None.
        version: its version at that time.
        mark: a mark of what was read.
    """

    position: int = 0
    size: int | None = None
    version: str | None = None
    mark: Mark | None = None

    @classmethod
    def stored(cls, fields: list[Any]) -> "Position":
        """Return the position of an entry of the state. Entries of former versions have no mark, and may have no size."""
        position = cls(*fields)
        return position if position.mark is None else position._replace(mark=Mark(*position.mark))

    def to_state(self) -> list[Any]:
        """Return the entry of the state."""
        return [self.position, self.size, self.version, None if self.mark is None else list(self.mark)]


class FileEntry(NamedTuple):
    """A file to read.

    Attributes:
        path: the path for `read_file`.
        size: its size in bytes, or None if it is not known. A file whose size has changed is read on.
        version: a text that is another one after each change of the file, such as an entity tag; None if there is none.
        identity: what stays if the file is renamed, such as its inode; None if the store has nothing of the kind.
    """

    path: str | Path
    size: int | None = None
    version: str | None = None
    identity: str | None = None


class Chunk(NamedTuple):
    """Records of a file, each with the position after it.

    Attributes:
        name: path of the file below the path of the source; empty between two looks at the files.
        partition: partition of the records without keys, or None.
        records: the records and positions. A FileFormatError is in the place of a record that cannot be read.
        at: how far the file was read before them, with a mark of what was read with them.
        end: at the end of the file, how far it was read; else None.
        error: why the rest of the file cannot be read, or None.
        identity: identity of the file.
        former: the name that the file had before, and that no other file has now, or None.
    """

    name: str
    partition: int | None
    records: list[tuple[Any, int]]
    at: Position = Position()
    end: Position | None = None
    error: SourceError | None = None
    identity: str | None = None
    former: str | None = None


class Files(Protocol):
    """A source as its reader sees it. Its methods are called in the thread of the reader."""

    name: str

    def entries(self) -> Iterator[FileEntry]:
        """Yield the files, in the order in which they are read."""

    def read_file(self, filepath: Any) -> BinaryIO:
        """Open a file."""

    def name_of(self, path: str) -> str:
        """Return the name under which the position in a file is kept."""

    def position_of(self, name: str) -> Position | None:
        """Return how far a file was read; None if it is new."""

    def name_by(self, identity: str) -> str | None:
        """Return the name that a file had when it was read."""

    def may_pass(self, error: BaseException) -> bool:
        """Return whether an error of the file system may pass."""

    def refused(self, error: BaseException, what: str | None = None) -> SourceError:
        """Return the error for a file that cannot be read."""

    def sleep(self, seconds: float) -> bool:
        """Wait, but no longer than until the source is stopped."""


class _Work(NamedTuple):
    """A file to read on from a position."""

    entry: FileEntry
    name: str
    position: Position
    former: str | None = None


class FileReader:
    """Reads the files of a source that are not read yet.

    Args:
        files: the source.
        file_format: the format of the files.
        partitioned: whether each file lies in a folder whose name is a partition number.
        ended: whether files are complete when they appear. Otherwise, what is unfinished at their ends waits.
        interval_s: seconds between two looks at the files; None for a single look.
    """

    def __init__(
        self,
        files: Files,
        file_format: Format,
        partitioned: bool,
        *,
        ended: bool = True,
        interval_s: float | None = None,
    ) -> None:
        self._files = files
        self._format = file_format
        self._partitioned = partitioned
        self._ended = ended
        self._interval_s = interval_s
        # Size and version of the files as they were read in this process.
        self._read: dict[str, tuple[int | None, str | None]] = {}
        self._named: set[tuple[str, int]] = set()
        # Whether a file changed after the look that found it.
        self._look_again = False
        # How far this process has read, which the source may not have in its state yet; and the names by identities.
        self._positions: dict[str, Position | None] = {}
        self._names: dict[str, str] = {}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records that are not produced yet. Files that cannot be reached now are tried again."""
        found = False
        while True:
            named = self._named_entries()
            if not named and not found:
                logger.warning("the source %s has found no files", self._files.name)
            found, self._look_again = True, False
            for work in self._find_work(named):
                for chunk in self._chunks_of(work):
                    self._note_chunk(chunk)
                    yield chunk
            if self._interval_s is None and not self._look_again:
                return
            # The source makes durable what was read.
            yield Chunk("", None, [])
            if not self._files.sleep(_LOOK_AGAIN_S if self._interval_s is None else self._interval_s):
                return

    def _named_entries(self) -> dict[str, FileEntry]:
        """Return the files by the names under which their positions are kept."""
        named: dict[str, FileEntry] = {}
        for entry in self._request_retried(lambda: list(self._files.entries())) or ():
            named.setdefault(self._files.name_of(str(entry.path)), entry)
        return named

    def _note_chunk(self, chunk: Chunk) -> None:
        """Note how far a file was read."""
        position = chunk.records[-1][1] if chunk.records else chunk.at.position
        self._positions[chunk.name] = chunk.end or chunk.at._replace(position=position)
        if chunk.former is not None:
            self._positions[chunk.former] = None
        if chunk.identity is not None:
            self._names[chunk.identity] = chunk.name

    def _position_of(self, name: str) -> Position | None:
        return self._positions[name] if name in self._positions else self._files.position_of(name)

    def _name_by(self, identity: str) -> str | None:
        return self._names.get(identity) or self._files.name_by(identity)

    # -- Which files to read, and from where ---------------------------------------------------------------------------

    def _find_work(self, named: Mapping[str, FileEntry]) -> list[_Work]:
        """Return what is to be read: renamed files first, since others have taken their names."""
        work, replaced = self._compare_files(named)
        if replaced:
            # What was there may have got another name since the files were listed.
            work, replaced = self._compare_files(self._named_entries())
        for name in replaced:
            logger.warning(
                "%s was replaced since the source %s has read it: it is read from its beginning", name, self._files.name
            )
        return work

    def _compare_files(self, named: Mapping[str, FileEntry]) -> tuple[list[_Work], list[str]]:
        """Compare files with what was read of them; return what is to be read, and which files were replaced."""
        known: list[_Work] = []
        beginning: list[str] = []
        orphans: dict[str, Position] = {}
        for name, entry in named.items():
            if name in self._read and self._read[name] == (entry.size, entry.version):
                continue
            stored = self._position_of(name)
            if stored is None:
                beginning.append(name)
            elif _is_unchanged(entry, stored):
                self._read[name] = entry.size, entry.version
            elif self._is_same(entry, stored):
                known.append(_Work(entry, name, stored))
            else:
                beginning.append(name)
                orphans[name] = stored
        changed = set(orphans)
        moved, new = [], []
        for name in beginning:
            former = self._former_name(named[name], named, orphans)
            if former is not None:
                logger.info("the source %s reads on %s, which was %s", self._files.name, name, former)
                position = orphans.pop(former)._replace(size=None)
                moved.append(_Work(named[name], name, position, None if former in named else former))
                continue
            new.append(_Work(named[name], name, Position()))
        order = {name: number for number, name in enumerate(named)}
        work = moved + sorted(known + new, key=lambda each: order[each.name])
        return work, [each.name for each in new if each.name in changed]

    def _is_same(self, entry: FileEntry, stored: Position) -> bool:
        """Return whether a file that has changed begins with what was read."""
        if stored.version is not None and entry.version == stored.version:
            return True
        if stored.mark is not None:
            return self._fits_mark(entry, stored.mark)
        if not stored.position or stored.version is None:
            # Nothing was read, or a former version of StreamRT has read it, which knew only sizes.
            return True
        grown = None not in (entry.size, stored.size) and cast("int", entry.size) > cast("int", stored.size)
        return grown and self._format.grows

    def _former_name(
        self, entry: FileEntry, named: Mapping[str, FileEntry], orphans: dict[str, Position]
    ) -> str | None:
        """Return the name of which a file has the content, among names that are gone or have another content."""
        former = None if entry.identity is None else self._name_by(entry.identity)
        if former is not None and former not in named and former not in orphans:
            stored = self._position_of(former)
            if stored is not None:
                orphans[former] = stored
        likely = [former] if former in orphans else []
        for name in (*likely, *(name for name in orphans if name != former)):
            mark = orphans[name].mark
            if mark is not None and self._fits_mark(entry, mark):
                return name
        return None

    def _fits_mark(self, entry: FileEntry, mark: Mark) -> bool:
        """Return whether the content of a file fits a mark."""
        if not self._format.grows and entry.size not in (None, mark.end):
            return False

        def compare() -> bool:
            with self._open_file(entry.path) as raw:
                return self._content_fits(raw, entry, mark)

        return bool(self._request_retried(compare, str(entry.path)))

    def _content_fits(self, raw: BinaryIO, entry: FileEntry, mark: Mark) -> bool:
        try:
            return mark.fits(self._open_content(raw, entry) if self._format.grows else raw)
        except (StorageError, FileNotFoundError):
            raise
        except Exception:  # noqa: BLE001 - decompressors have many errors
            return False

    # -- Reading -------------------------------------------------------------------------------------------------------

    def _chunks_of(self, work: _Work) -> Iterator[Chunk]:
        entry, name, stored, former = work
        partition = partition_of(self._files.name, name, str(entry.path)) if self._partitioned else None
        chunk = Chunk(name, partition, [], identity=entry.identity, former=former)
        at = Position(stored.position, None, entry.version, stored.mark)
        position = begun = at.position
        records: list[tuple[Any, int]] = []
        size = -1 if entry.size is None else entry.size
        patience = _Patience(self._files)
        while True:
            try:
                with self._open_file(entry.path) as raw:
                    marks = _Marks(raw, self._open_content(raw, entry), self._plain_format, position)
                    marked, at = at.mark, at._replace(mark=marks.whole or at.mark)
                    items = self._iterate_items(raw, entry, marks.stream, position, marked)
                    for item, position in items:
                        records.append((item, position))
                        if len(records) >= _CHUNK_RECORDS or position - begun >= _CHUNK_BYTES:
                            at = at._replace(mark=marks.at(position) or at.mark)
                            yield chunk._replace(records=records, at=at)
                            records, begun, at = [], position, at._replace(position=position)
                            patience.renew()
                    end = Position(position, size, entry.version, marks.at(position) or at.mark)
                yield chunk._replace(records=records, at=at._replace(mark=end.mark), end=end)
                self._read[name] = entry.size, entry.version
                return
            except _ReplacedError:
                logger.info(
                    "%s changed after the source %s had found it: it is looked at again", name, self._files.name
                )
                self._look_again = True
                if records:
                    yield chunk._replace(records=records, at=at._replace(mark=marked))
                return
            except PositionBeyondEndError:
                logger.warning(
                    "%s is shorter than at the last start of the source %s: it is read from its beginning",
                    name,
                    self._files.name,
                )
                position, begun, at = 0, 0, Position(0, None, entry.version)
            except UnfinishedError as error:
                self._note_unfinished(name, position, str(error))
                end = Position(position, None, entry.version, marks.at(position) or at.mark)
                yield chunk._replace(records=records, at=at._replace(mark=end.mark), end=end)
                if entry.version is not None:
                    self._read[name] = entry.size, entry.version
                return
            except StorageError as failure:
                cause = failure.__cause__ or failure
                if isinstance(cause, FileNotFoundError):
                    logger.warning("%s was deleted before the source %s had read it", name, self._files.name)
                    yield chunk._replace(records=records, at=at)
                    return
                patience.spend(cause, name)
            except Exception as error:  # noqa: BLE001 - errors of any format
                reason = (
                    str(error)
                    if isinstance(error, FileFormatError)
                    else f"its format failed with {type(error).__name__}"
                )
                refusal = SourceError(f"the source {self._files.name} cannot read {name}: {reason}")
                refusal.__cause__ = error
                end = Position(position, size, entry.version, at.mark)
                yield chunk._replace(records=records, at=at, end=end, error=refusal)
                self._read[name] = entry.size, entry.version
                return

    def _iterate_items(
        self, raw: BinaryIO, entry: FileEntry, stream: BinaryIO, position: int, marked: Mark | None
    ) -> Iterator[tuple[Any, int]]:
        """Yield the records behind a position of an opened file, with the positions after them.

        Args:
            raw: the file.
            entry: its entry.
            stream: its content, which has been read up to the position when the first record is here.
            position: the position.
            marked: a mark of what was read before.

        Raises:
            _ReplacedError: if the file does not fit that mark any more.
        """
        items = self._plain_format.items_from(stream, position, ended=self._ended)
        first: list[tuple[Any, int]] = []
        try:
            first.extend(itertools.islice(items, 1))
        finally:
            # Now, not before: what the new mark covers has been read from what is compared here.
            if marked is not None and not self._still_fits(raw, entry, marked):
                raise _ReplacedError
        yield from first
        yield from items

    def _still_fits(self, raw: BinaryIO, entry: FileEntry, mark: Mark) -> bool:
        """Return whether the content of an opened file fits a mark. Reading goes on where it is."""
        if not raw.seekable():
            return self._fits_mark(entry, mark)
        at = raw.tell()
        raw.seek(0)
        try:
            return self._content_fits(raw, entry, mark)
        finally:
            raw.seek(at)

    @property
    def _plain_format(self) -> Format:
        """The format for content that is decompressed."""
        plain = copy.copy(self._format)
        plain._compression = None
        return plain

    def _open_content(self, raw: BinaryIO, entry: FileEntry) -> BinaryIO:
        """Return the decompressed content of a file."""
        return decompressed(raw, self._format.compression or compression_of(str(entry.path)))

    @contextlib.contextmanager
    def _open_file(self, path: str | Path) -> Iterator[BinaryIO]:
        try:
            stream = self._files.read_file(path)
        except Exception as error:
            raise StorageError from error
        try:
            yield tagged(stream)
        finally:
            with contextlib.suppress(Exception):
                stream.close()

    def _note_unfinished(self, name: str, position: int, reason: str) -> None:
        if (name, position) in self._named:
            return
        self._named.add((name, position))
        if self._interval_s is not None:
            logger.info("%s is read up to position %d, since %s", name, position, reason)
            return
        logger.warning(
            "the source %s has read %s up to position %d, since %s: the rest is read at the next start if it is complete "
            'then; unfinished="read" reads it as it is',
            self._files.name,
            name,
            position,
            reason,
        )

    def _request_retried(self, request: Callable[[], T], path: str | None = None) -> T | None:
        """Return the answer of the file system, after some attempts; None if the file is gone."""
        patience = _Patience(self._files)
        while True:
            try:
                return request()
            except SourceError:
                raise
            except Exception as failure:  # noqa: BLE001 - errors of any library
                error = failure.__cause__ or failure if isinstance(failure, StorageError) else failure
            if path is not None and isinstance(error, FileNotFoundError):
                return None
            patience.spend(error, None if path is None else self._files.name_of(path))


class _ReplacedError(Exception):
    """A file does not begin any more with what was read."""


class _Marks:
    """The content of a file, and marks of what was read of it.

    Args:
        raw: the file.
        content: its decompressed content.
        file_format: its format.
        position: where reading begins.

    Attributes:
        stream: the content.
        whole: the mark of a file that does not grow.
    """

    def __init__(self, raw: BinaryIO, content: BinaryIO, file_format: Format, position: int) -> None:
        self.whole: Mark | None = None
        self._counts_bytes = file_format.counts_bytes
        if not file_format.grows and raw.seekable():
            # Such files are not read from beginning to end.
            self.whole = Mark.of_end(raw)
            raw.seek(0)
        self._observed = Observed(content, seekable=content is raw and raw.seekable())
        if file_format.counts_bytes:
            self._observed.look_at(position)
        self._grows = file_format.grows
        self.stream = cast("BinaryIO", io.BufferedReader(self._observed, _BUFFER_BYTES))

    def at(self, position: int) -> Mark | None:
        """Return the mark of what was read up to a position."""
        if not self._grows:
            return self.whole
        return self._observed.mark(position if self._counts_bytes else None)


class _Patience:
    """Waits between attempts to reach a file system, each longer than the one before it.

    Args:
        files: the source.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.renew()

    def renew(self) -> None:
        """Note that the file system answers."""
        self._wait_s = _FIRST_WAIT_S
        self._deadline: float | None = None

    def spend(self, error: BaseException, what: str | None = None) -> None:
        """Wait before the next attempt.

        Args:
            error: why one is needed.
            what: what is read; None for the list of files.

        Raises:
            SourceError: if the error will not pass, or has not for long.
        """
        now = time.monotonic()
        self._deadline = now + _GIVE_UP_S if self._deadline is None else self._deadline
        if not self._files.may_pass(error) or now > self._deadline:
            # No cause: libraries put credentials into errors and their frames.
            raise self._files.refused(error, what) from None
        logger.warning("%s; it is tried again in %.1f s", self._files.refused(error, what), self._wait_s)
        self._files.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)


def _is_unchanged(entry: FileEntry, stored: Position) -> bool:
    """Return whether a file that was read to its end is as it was."""
    if stored.size is None or entry.size not in (None, stored.size):
        return False
    return stored.version is None or entry.version in (None, stored.version)


def default_key(record: Any) -> Any:
    """Return the key of a record that a file sink wrote.

    Args:
        record: the record.
    """
    return record.get("_key") if isinstance(record, dict) else None


def default_timestamp(record: Any) -> Any:
    """Return the timestamp of a record that a file sink wrote.

    Args:
        record: the record.
    """
    return record.get("_timestamp") if isinstance(record, dict) else None


def default_value(record: Any) -> Any:
    """Return the value of a record that a file sink wrote, or of any other one.

    Args:
        record: the record.
    """
    if not isinstance(record, dict):
        return record
    if "_value" in record:
        return record["_value"]
    return {name: field for name, field in record.items() if name not in ("_key", "_timestamp")}
