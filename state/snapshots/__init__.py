"""Snapshots of store partitions in an object store: settings, manifests, and the repository that holds them."""

from streamrt.state.snapshots.listing import ListedSnapshot, list_snapshots
from streamrt.state.snapshots.manifest import NewerSnapshotError, SnapshotManifest, StoredFile, UnusableSnapshotError
from streamrt.state.snapshots.repository import SnapshotRepository, SnapshotStorage
from streamrt.state.snapshots.settings import StateSnapshots

__all__ = [
    "ListedSnapshot",
    "NewerSnapshotError",
    "SnapshotManifest",
    "SnapshotRepository",
    "SnapshotStorage",
    "StateSnapshots",
    "StoredFile",
    "UnusableSnapshotError",
    "list_snapshots",
]
