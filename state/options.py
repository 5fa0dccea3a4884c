"""Settings of RocksDB, as plain data without a dependency on RocksDB."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from streamrt.errors import argument_error

__all__ = ["CompressionType", "RocksDBOptions"]

CompressionType = Literal["none", "snappy", "zlib", "bz2", "lz4", "lz4hc", "zstd"]
"""Compression of RocksDB's data files."""

_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class RocksDBOptions:
    """Settings of `RocksDBStore`, and of the value encoding and caching of all stores.

    All settings except `dumps` and `loads` may change between runs, because the files stay readable. The new `loads`
    must read the output of the old `dumps`, and keys must keep the same bytes.

    Attributes:
        write_buffer_size: bytes of changes that a store partition gathers in memory before it writes a file.
        target_file_size_base: size of a data file in bytes.
        max_write_buffer_number: maximum number of write buffers of a store partition.
        block_cache_size: bytes of decompressed data cached for reads, shared by all stores of a process. If stores
            request different sizes, the largest applies.
        write_buffer_budget: bytes of write buffers, shared by all stores of a process; buffers are written early as the
            total approaches it. The largest requested value applies.
        object_cache_size: approximate bytes of decoded values that all stores of a process keep between commits. The
            largest requested value applies. It also applies to other kinds of stores.
        bloom_filter_bits_per_key: size of the filters that avoid reads of missing keys; 0 for none.
        compression_type: `none`, `snappy`, `zlib`, `bz2`, `lz4`, `lz4hc` or `zstd`.
        db_log_dir: directory for RocksDB's diagnostic log files, which are for its developers; None keeps a short one
            next to the data.
        use_fsync: whether files are synchronized by `fsync` instead of `fdatasync`.
        max_open_files: number of data files that a store partition keeps open; -1 for all.
        open_max_retries: number of further attempts to open a store that another process uses; 0 for none.
        open_retry_backoff: seconds between these attempts.
        on_corrupted_recreate: whether a damaged store is deleted and restored from its changelog; otherwise the
            application ends with `StoreCorruptedError`.
        max_evictions_per_flush: maximum number of expired entries that one commit deletes.
        dumps: function from an object to JSON, as bytes or str; None for orjson. It also encodes keys, so it must be
            deterministic.
        loads: function from these bytes to the object; None for orjson.

    Raises:
        ConfigurationError: if a value is invalid.

    Example:
        >>> RocksDBOptions(compression_type="zstd").compression_type
        'zstd'
    """

    write_buffer_size: int = 16 * _MIB
    target_file_size_base: int = 64 * _MIB
    max_write_buffer_number: int = 3
    block_cache_size: int = 256 * _MIB
    write_buffer_budget: int = 128 * _MIB
    object_cache_size: int = 128 * _MIB
    bloom_filter_bits_per_key: int = 10
    compression_type: CompressionType = "lz4"
    db_log_dir: str | None = None
    use_fsync: bool = True
    max_open_files: int = -1
    open_max_retries: int = 10
    open_retry_backoff: float = 3.0
    on_corrupted_recreate: bool = True
    max_evictions_per_flush: int = 150_000
    dumps: Callable[[Any], bytes | str] | None = None
    loads: Callable[[bytes], Any] | None = None

    def __post_init__(self) -> None:
        for name in (
            "write_buffer_size",
            "target_file_size_base",
            "max_write_buffer_number",
            "block_cache_size",
            "write_buffer_budget",
            "object_cache_size",
            "max_evictions_per_flush",
        ):
            self._check_option(
                name, _is_int(getattr(self, name)) and getattr(self, name) >= 1, "a whole number above 0"
            )
        for name in ("bloom_filter_bits_per_key", "open_max_retries"):
            self._check_option(
                name, _is_int(getattr(self, name)) and getattr(self, name) >= 0, "a whole number, 0 or more"
            )
        self._check_option(
            "max_open_files",
            _is_int(self.max_open_files) and (self.max_open_files == -1 or self.max_open_files >= 20),
            "-1, or at least 20",
        )
        self._check_option(
            "open_retry_backoff",
            isinstance(self.open_retry_backoff, int | float) and self.open_retry_backoff >= 0,
            "a number of seconds, 0 or more",
        )
        self._check_option(
            "compression_type",
            self.compression_type in get_args(CompressionType),
            f"one of {get_args(CompressionType)}",
        )
        for name in ("use_fsync", "on_corrupted_recreate"):
            self._check_option(name, isinstance(getattr(self, name), bool), "True or False")
        for name in ("dumps", "loads"):
            self._check_option(
                name, getattr(self, name) is None or callable(getattr(self, name)), "a function, or None"
            )
        self._check_option(
            "db_log_dir", self.db_log_dir is None or isinstance(self.db_log_dir, str | Path), "a directory, or None"
        )

    def _check_option(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            kinds = (int, float) if _is_number(default) else type(default)
            of_type = isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)
            raise argument_error(f"RocksDBOptions({name}={value!r}): expected {expected}", of_type=of_type)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
