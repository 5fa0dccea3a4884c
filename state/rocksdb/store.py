"""On-disk stores: one RocksDB for each store partition.

This is the only module that imports rocksdict, and it does so only when a store is opened.

**No write-ahead log.** The changelog serves as one. With its WAL, RocksDB would write each change twice and replay it
into a data file at each opening, and there is one opening per micro-batch. Without it, damage also has fewer possible
effects; see `directory.py`. Writes reach the disk when the partition is closed, when the write buffer is full, when
`flush` is called, and at once if there is no changelog.

**Compaction** is RocksDB's universal style. It merges the small files of short openings with each other, which fits
into the short time that a store is open. Levels would rewrite large parts of the data for each small file.

**Memory**: one cache and one budget of write buffers for all stores of a process. Blocks, filters and indexes of files
stay in the cache until the next opening of a store. When the open stores have used half of the write-buffer budget, the
store with the largest buffer is flushed. RocksDB would flush the store that is being written to, even if its buffer is
tiny, as long as idle stores hold the budget.
"""
# ruff: noqa: BLE001 - rocksdict raises nothing more specific than Exception

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from weakref import WeakSet

from streamrt.errors import StateError
from streamrt.forks import ForkGuard, never_free_in_forks
from streamrt.state.identity import Stamp
from streamrt.state.options import RocksDBOptions
from streamrt.state.rocksdb.directory import StoreDirectory, remove_settings
from streamrt.state.store import Store, StorePartition

__all__ = ["RocksDBStore", "RocksDBStorePartition", "block_cache_usage", "delete_restorable"]

# Key of the stamp. Other keys are never empty, so it comes first, and scans start after it.
_STAMP_KEY = b""
_FIRST_KEY = b"\x00"
# Chunk sizes of scans, the first one small. No iterator is held between chunks, because it keeps the database open.
_FIRST_CHUNK, _LARGEST_CHUNK = 8, 1024
# Parts of RocksDB's error messages that concern the machine and not the files.
_FULL = ("no space left", "disk quota exceeded")
_SURROUNDINGS = (
    "too many open files",
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "cannot allocate memory",
    "file too large",
)
# Approximate overhead of a change in a write buffer, besides its bytes.
_CHANGE_BYTES = 64
# RocksDB allocates 1 MiB by default for the first changes; hundreds of stores would use up the budget with unused
# memory.
_ARENA_BYTES = 64 * 1024
# Properties of RocksDB that count the changes in write buffers.
_BUFFERED = (
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
)
_IN_FILES = re.compile(r"# entries=(\d+); # deletions=(\d+);")
_LOCK_TEXTS = ("lock hold by current process", "while lock file", "resource temporarily unavailable", "/lock:")


class _OpenPartitions(threading.local):
    """The open partitions of this thread: only the thread that uses a partition flushes it."""

    def __init__(self) -> None:
        self.all: WeakSet[RocksDBStorePartition] = WeakSet()


_open = _OpenPartitions()


class _ProcessMemory:
    """The cache and the budget of write buffers of this process."""

    def __init__(self, rocksdict: Any, options: RocksDBOptions) -> None:
        self.fork_guard = ForkGuard()
        self._cache_size = options.block_cache_size
        self._budget = options.write_buffer_budget
        self.cache = rocksdict.Cache(self._cache_size)
        self.buffers = rocksdict.WriteBufferManager(self._budget, False)

    def fit(self, options: RocksDBOptions) -> None:
        """Grow to the sizes that a store requests."""
        if options.block_cache_size > self._cache_size:
            self._cache_size = options.block_cache_size
            self.cache.set_capacity(self._cache_size)
        if options.write_buffer_budget > self._budget:
            self._budget = options.write_buffer_budget
            self.buffers.set_buffer_size(self._budget)

    def relieve(self) -> None:
        """Flush the partition with the most gathered bytes if the total exceeds half of the budget."""
        if sum(each.gathered for each in _open.all) * 2 > self._budget:
            largest = max(_open.all, key=lambda each: each.gathered)
            # The next use of that partition reports the error.
            with contextlib.suppress(StateError):
                largest.flush(wait=False)


_memory: _ProcessMemory | None = None


def _process_memory(rocksdict: Any, options: RocksDBOptions) -> _ProcessMemory:
    global _memory
    # A forked process must not share locks with its parent.
    if _memory is None or not _memory.fork_guard.is_own:
        _memory = _ProcessMemory(rocksdict, options)
    else:
        _memory.fit(options)
    return _memory


def _rocksdb_options(rocksdict: Any, options: RocksDBOptions, *, fresh: bool) -> Any:
    memory = _process_memory(rocksdict, options)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(memory.cache)
    # Indexes and filters would otherwise lie outside the bound of the cache, and be read again at each opening. They
    # are partitioned, so that an opening with few reads of a large store loads only the necessary parts.
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(6)
    if options.bloom_filter_bits_per_key:
        table.set_bloom_filter(options.bloom_filter_bits_per_key, False)
        table.set_partition_filters(True)
    out = rocksdict.Options(raw_mode=True)
    # Only a fresh directory may get an empty database; RocksDB would create one for any missing database.
    out.create_if_missing(fresh)
    out.set_error_if_exists(fresh)
    out.set_block_based_table_factory(table)
    out.set_write_buffer_manager(memory.buffers)
    out.set_write_buffer_size(options.write_buffer_size)
    # RocksDB uses an eighth for small write buffers.
    out.set_arena_block_size(max(4096, min(_ARENA_BYTES, options.write_buffer_size // 8)))
    out.set_max_write_buffer_number(options.max_write_buffer_number)
    out.set_target_file_size_base(options.target_file_size_base)
    out.set_compression_type(getattr(rocksdict.DBCompressionType, options.compression_type)())
    out.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    out.set_max_background_jobs(2)
    out.set_max_open_files(options.max_open_files)
    out.set_use_fsync(options.use_fsync)
    out.set_paranoid_checks(True)
    out.set_skip_stats_update_on_db_open(True)
    out.set_manifest_preallocation_size(16 * 1024)
    out.set_keep_log_file_num(1)
    out.set_stats_dump_period_sec(0)
    out.set_stats_persist_period_sec(0)
    if options.db_log_dir is not None:
        try:
            Path(options.db_log_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"RocksDBOptions(db_log_dir={options.db_log_dir!r}) cannot be used: {error}") from error
        out.set_db_log_dir(str(options.db_log_dir))
    return out


def load_rocksdb() -> None:
    """Load the library, which takes some tenths of a second, before the first store is opened.

    Raises:
        ImportError: if the library is not installed.
    """
    import rocksdict  # noqa: F401 - imported only to load it


def block_cache_usage() -> int | None:
    """Return the bytes that the blocks of files take in the cache of this process; None before it has opened a store."""
    memory = _memory
    # A forked process has the variable of its parent.
    return None if memory is None or not memory.fork_guard.is_own else int(memory.cache.get_usage())


class RocksDBStorePartition(StorePartition):
    """A store partition on disk; see `RocksDBStore`.

    Args:
        directory: its directory, owned by the caller. Closing the partition releases it.
        options: settings of RocksDB.

    Raises:
        StoreCorruptedError: if the files are damaged.
        StoreLockedError: if RocksDB itself reports a lock.
        StoreVersionError: if a newer version of StreamRT wrote them.
        StateError: if they cannot be used for another reason.

    Attributes:
        gathered: approximate bytes in its write buffer since the last flush.
    """

    def __init__(self, directory: StoreDirectory, options: RocksDBOptions) -> None:
        import rocksdict

        self._rocksdict = rocksdict
        self._directory = directory
        self._fork_guard = ForkGuard()
        self._fresh = directory.begin()
        self._unflushed = False
        self.gathered = 0
        self._buffer_size = options.write_buffer_size
        self._db: Any = None
        settings = _rocksdb_options(rocksdict, options, fresh=self._fresh)
        try:
            # Name the column family: for others, rocksdict takes settings without cache and filters from a file of the
            # last opening.
            self._db = rocksdict.Rdict(str(directory.path), settings, column_families={"default": settings})
        except Exception as error:
            self._fail("opened", error)
        self._directory.close_files()
        self._memory = _process_memory(rocksdict, options)
        self._write_options = rocksdict.WriteOptions()
        self._write_options.disable_wal = True
        self._stamp: Stamp | None = None
        try:
            data = self.get(_STAMP_KEY)
            if data is not None:
                self._stamp = Stamp.decode(data)
            elif not self._fresh and next(self.scan(_FIRST_KEY, None), None) is not None:
                raise self._directory.corrupted("it has data without a stamp")
        except BaseException:
            self._close_database()
            raise
        _open.all.add(never_free_in_forks(self))

    @property
    def stamp(self) -> Stamp | None:  # noqa: D102
        return self._stamp

    @property
    def path(self) -> Path:
        """The directory of the files."""
        return self._directory.path

    def get(self, key: bytes) -> bytes | None:  # noqa: D102
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            self._fail("read", error)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:  # noqa: D102
        if not keys:
            return []
        try:
            values: list[bytes | None] = self._db.get(list(keys))
        except Exception as error:
            self._fail("read", error)
        return values

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:  # noqa: D102
        start = max(start, _FIRST_KEY)
        size = _FIRST_CHUNK
        while True:
            chunk = self._read_chunk(start, end, size, reverse=reverse)
            yield from chunk
            if len(chunk) < size:
                return
            if reverse:
                end = chunk[-1][0]
            else:
                start = chunk[-1][0] + b"\x00"
            size = min(size * 4, _LARGEST_CHUNK)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], stamp: Stamp) -> None:  # noqa: D102
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if not key:
                raise StateError(f"{self._directory.name} received an empty key, which is reserved for stores")
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(_STAMP_KEY, stamp.encode())
        size = batch.size_in_bytes() + _CHANGE_BYTES * batch.len()
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            self._fail("written", error)
        self._unflushed = True
        self._stamp = stamp
        if stamp.changelog_offset is None:
            # No changelog could restore the data.
            self.flush()
        else:
            # RocksDB flushes a full buffer automatically.
            self.gathered = self.gathered + size if self.gathered + size < self._buffer_size else 0
            self._memory.relieve()

    def approximate_size(self) -> int:  # noqa: D102
        try:
            return sum(
                self._db.property_int_value(f"rocksdb.{name}") or 0
                for name in ("estimate-live-data-size", "cur-size-all-mem-tables")
            )
        except Exception as error:
            self._fail("read", error)

    def approximate_entries(self) -> int | None:  # noqa: D102
        # RocksDB's own estimate would need statistics that are not read at the opening, so it would be 0 at first.
        try:
            files = self._db.property_value("rocksdb.aggregated-table-properties") or ""
            buffered = {name: self._db.property_int_value(f"rocksdb.{name}") or 0 for name in _BUFFERED}
        except Exception as error:
            self._fail("read", error)
        entries = sum(count for name, count in buffered.items() if "entries" in name)
        deletions = sum(count for name, count in buffered.items() if "deletes" in name)
        found = _IN_FILES.search(files)
        if found is not None:
            entries, deletions = entries + int(found[1]), deletions + int(found[2])
        # Whether a deletion hides an entry of another file is unknown, so deleted keys may count until files are merged.
        # One of the keys is that of the stamp.
        return max(0, entries - deletions - (self._stamp is not None))

    def flush(self, *, wait: bool = True) -> None:
        """Write the write buffer to disk.

        Args:
            wait: whether to wait until it is written; otherwise a RocksDB thread writes it in the background.

        Raises:
            StateError: if it cannot be written; the partition refuses further use.
        """
        try:
            self._db.flush(wait)
        except Exception as error:
            self._fail("written", error)
        self.gathered = 0
        # Without waiting, it is not yet certain that the data has reached the disk.
        self._unflushed = self._unflushed and not wait

    def checkpoint(self, folder: Path) -> bool:
        """Write the write buffer to disk, and link the data files into a folder; see `StorePartition.checkpoint`."""
        try:
            self._rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:
            raise StateError(f"{self._directory.name} has no checkpoint: {error}") from error
        remove_settings(folder)
        self.gathered, self._unflushed = 0, False
        return True

    def close(self) -> None:
        """Write the write buffer to disk, and release the files.

        Raises:
            StateError: if it cannot be written. The files are released nevertheless, with the data of an earlier stamp.
        """
        if not self._fork_guard.is_own:
            # The threads that would write it, and the lock, are those of the parent process.
            return
        try:
            if self._unflushed and not isinstance(self._db, _Closed):
                self.flush()
        finally:
            self._close_database()

    def _close_database(self) -> None:
        if isinstance(self._db, _Closed):
            return
        database, self._db = self._db, _Closed(self._directory.name)
        _open.all.discard(self)
        try:
            database.close()
            self._directory.close_files()
            self._directory.seal()
        except StateError:
            raise
        except Exception as error:
            text = str(error)
            if any(part in text.lower() for part in _FULL):
                raise self._directory.full("closed", text) from error
            raise StateError(f"{self._directory.name} cannot be closed: {text}") from error
        finally:
            self._directory.unlock()

    def _read_chunk(self, start: bytes, end: bytes | None, size: int, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        # Without a bound, a cursor that leaves the range passes all tombstones up to the next entry. Backward scans
        # still do: rocksdict 0.3.29 uses a lower bound as an upper one.
        bounds = self._rocksdict.ReadOptions()
        if end is not None:
            bounds.set_iterate_upper_bound(end)
        try:
            cursor = self._db.iter(bounds)
            if not reverse:
                cursor.seek(start)
            elif end is None:
                cursor.seek_to_last()
            else:
                cursor.seek_for_prev(end)
            step = cursor.prev if reverse else cursor.next
            while cursor.valid() and len(found) < size:
                key = cursor.key()
                if reverse and key < start:
                    break
                found.append((key, cursor.value()))
                step()
            # Damage ends a cursor early, as if there were no more entries.
            cursor.status()
        except Exception as error:
            self._fail("read", error)
        return found

    def _fail(self, what: str, error: Exception) -> NoReturn:
        """Raise the error for an exception of RocksDB; the partition is unusable afterwards."""
        if isinstance(error, StateError):
            raise error
        text = str(error)
        lower = text.lower()
        full = self._directory.full(what, text) if any(part in lower for part in _FULL) else None
        if self._db is None:
            self._directory.unlock()
            if any(part in lower for part in _LOCK_TEXTS):
                raise self._directory.locked() from error
        else:
            database, self._db = self._db, _Closed(self._directory.name, text, full)
            _open.all.discard(self)
            self._let_go(database)
        if full is not None:
            raise full from error
        if any(part in lower for part in _SURROUNDINGS) or (what == "opened" and self._fresh):
            raise StateError(f"{self._directory.name} cannot be {what}: {text}") from error
        raise self._directory.corrupted(text) from error

    def _let_go(self, database: Any) -> None:
        try:
            database.close()
        except Exception:  # noqa: S110 - repeats the error that is being reported
            pass
        finally:
            self._directory.unlock()


class _Closed:
    """Replace a closed database: each use raises an error, without a check at each use."""

    def __init__(self, name: str, reason: str = "", full: StateError | None = None) -> None:
        self._name = name
        self._reason = reason
        self._full = full

    def __getattr__(self, attribute: str) -> NoReturn:
        if self._full is not None:
            # The write that failed may have had no caller to report to.
            raise StateError(str(self._full))
        if self._reason:
            raise StateError(f"{self._name} failed and cannot be used until it is reopened: {self._reason}")
        raise StateError(f"{self._name} is closed")


class RocksDBStore(Store):
    """A store on disk with RocksDB, for state of any size that survives the process.

    Each partition has a directory, `<base_dir>/<topic>/<store>/<partition>`, with the permissions 0700. Names are
    escaped to avoid collisions.

    Example:
        >>> import tempfile
        >>> from streamrt.state import StoreIdentity
        >>> store = RocksDBStore("totals", "orders", Path(tempfile.mkdtemp()))
        >>> partition = store.open(0)
        >>> identity = StoreIdentity("shop", "orders", 0, "totals", None, None, 1)
        >>> partition.write([(b"key", b"value")], Stamp(identity, 1, None, None, 0))
        >>> partition.close()
        >>> store.open(0).get(b"key")
        b'value'
    """

    persistent: ClassVar[bool] = True
    adopts: ClassVar[bool] = True

    def open(self, partition: int) -> RocksDBStorePartition:  # noqa: D102
        directory = self._directory(partition)
        directory.lock(self.options.open_max_retries, self.options.open_retry_backoff, create=True)
        try:
            return RocksDBStorePartition(directory, self.options)
        except BaseException:
            directory.unlock()
            raise

    def destroy(self, partition: int) -> None:
        """Delete the data of a closed partition. Do nothing if there is no data.

        Raises:
            StoreLockedError: if it is in use.
            StateError: if its directory holds foreign files; in that case, nothing is deleted.
        """
        directory = self._directory(partition)
        if directory.lock(self.options.open_max_retries, self.options.open_retry_backoff, create=False):
            try:
                directory.delete()
            finally:
                directory.unlock()

    def adopt(self, partition: int, folder: Path) -> None:  # noqa: D102
        directory = self._directory(partition)
        directory.lock(self.options.open_max_retries, self.options.open_retry_backoff, create=True)
        try:
            directory.adopt(folder)
        finally:
            directory.unlock()

    def _directory(self, partition: int) -> StoreDirectory:
        return StoreDirectory(self.base_dir, self.topic, self.name, partition)


def delete_restorable(path: Path) -> bool:
    """Delete a store partition that its changelog can restore.

    Args:
        path: its directory.

    Returns:
        Whether it was deleted; a store without a changelog is kept.

    Raises:
        StoreLockedError: if it is in use.
        StateError: if it cannot be opened or deleted.
    """
    directory = StoreDirectory.at(path)
    if not directory.lock(0, 0.0, create=False):
        return False
    try:
        partition = RocksDBStorePartition(directory, RocksDBOptions())
    except BaseException:
        directory.unlock()
        raise
    stamp = partition.stamp
    # This unlocks the directory.
    partition.close()
    if stamp is None or stamp.identity.changelog_id is None or not directory.lock(0, 0.0, create=False):
        return False
    try:
        directory.delete()
    finally:
        directory.unlock()
    return True
