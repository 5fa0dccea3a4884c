"""The stores that come with StreamRT, each against the suite that all stores must pass."""

from pathlib import Path

import pytest

from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Store
from streamrt.testing.stores import StoreConformance


@pytest.mark.rows("PF-L9", "PF-L11")
class TestMemoryStore(StoreConformance):
    def make(self, name: str, topic: str, base_dir: Path) -> Store:
        return MemoryStore(name, topic, base_dir)


@pytest.mark.rows("PF-L9", "PF-L12")
class TestRocksDBStore(StoreConformance):
    def make(self, name: str, topic: str, base_dir: Path) -> Store:
        return RocksDBStore(name, topic, base_dir, RocksDBOptions(open_max_retries=0))


class TestRocksDBStoreWithSmallBuffers(StoreConformance):
    """Writes of files and merges of them happen all the time."""

    def make(self, name: str, topic: str, base_dir: Path) -> Store:
        options = RocksDBOptions(
            open_max_retries=0,
            write_buffer_size=64 * 1024,
            target_file_size_base=32 * 1024,
            block_cache_size=1024 * 1024,
            bloom_filter_bits_per_key=0,
            compression_type="none",
            use_fsync=False,
        )
        return RocksDBStore(name, topic, base_dir, options)
