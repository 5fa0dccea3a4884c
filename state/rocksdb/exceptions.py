"""Exceptions of stores on disk, under their names in Quix Streams."""

from streamrt.errors import StoreCorruptedError as RocksDBCorruptedError
from streamrt.errors import StoreVersionError as IncompatibleStateStoreError

__all__ = ["IncompatibleStateStoreError", "RocksDBCorruptedError"]
