"""Exceptions of state, under their names in Quix Streams."""

from streamrt.errors import ChangelogError as ChangelogFlushError
from streamrt.errors import ChangelogError as InvalidChangelogOffset
from streamrt.errors import ConfigurationError as StoreAlreadyRegisteredError
from streamrt.errors import ConfigurationError as StoreNotRegisteredError
from streamrt.errors import StateError
from streamrt.errors import StateError as InvalidStoreTransactionStateError
from streamrt.errors import StateError as StateSerializationError
from streamrt.errors import StateError as StateTransactionError
from streamrt.errors import StateError as StoreTransactionFailed
from streamrt.errors import StoreVersionError as IncompatibleStateStoreError

__all__ = [
    "ChangelogFlushError",
    "IncompatibleStateStoreError",
    "InvalidChangelogOffset",
    "InvalidStoreTransactionStateError",
    "StateError",
    "StateSerializationError",
    "StateTransactionError",
    "StoreAlreadyRegisteredError",
    "StoreNotRegisteredError",
    "StoreTransactionFailed",
]
