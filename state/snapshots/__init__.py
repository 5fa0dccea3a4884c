"""Snapshots of store partitions in an object store: settings, manifests, and the repository that holds them."""

from streamrt.state.snapshots.downloads import FoundSnapshot, RestoreInterrupted, SnapshotChoice, SnapshotDownload
from streamrt.state.snapshots.listing import ListedSnapshot, list_snapshots
from streamrt.state.snapshots.manifest import NewerSnapshotError, SnapshotManifest, StoredFile, UnusableSnapshotError
from streamrt.state.snapshots.repository import SnapshotRepositories, SnapshotRepository, SnapshotStorage
from streamrt.state.snapshots.settings import StateSnapshots
from streamrt.state.snapshots.uploads import SnapshotUploads

__all__ = [
    "FoundSnapshot",
    "ListedSnapshot",
    "NewerSnapshotError",
    "RestoreInterrupted",
    "SnapshotChoice",
    "SnapshotDownload",
    "SnapshotManifest",
    "SnapshotRepositories",
    "SnapshotRepository",
    "SnapshotStorage",
    "SnapshotUploads",
    "StateSnapshots",
    "StoredFile",
    "UnusableSnapshotError",
    "list_snapshots",
]
