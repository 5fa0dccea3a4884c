"""Lists the snapshots below a URL, and says what is wrong with them."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from streamrt.state.rocksdb.directory import escaped
from streamrt.state.snapshots.manifest import SnapshotManifest
from streamrt.state.snapshots.repository import SnapshotRepository, SnapshotStorage

__all__ = ["ListedSnapshot", "list_snapshots"]


@dataclass(frozen=True)
class ListedSnapshot:
    """A snapshot in an object store.

    Attributes:
        group: the consumer group, as its folder has it; likewise the four that follow.
        topic: the source topic.
        store: name of the store.
        changelog_id: Kafka's id of the changelog topic.
        partition: the partition.
        offset: its changelog offset.
        manifest: its description; None if it cannot be read.
        damage: what is wrong with it; empty for nothing.
    """

    group: str
    topic: str
    store: str
    changelog_id: str
    partition: int
    offset: int
    manifest: SnapshotManifest | None
    damage: str


def list_snapshots(
    storage: SnapshotStorage, group: str | None = None, *, verify: bool = False
) -> Iterator[ListedSnapshot]:
    """Yield snapshots by store partition, the newest first.

    Args:
        storage: where they are.
        group: only those of this consumer group.
        verify: whether to read all of their files, and to compare these with their digests.

    Example:
        >>> from streamrt.state.snapshots import StateSnapshots
        >>> list(list_snapshots(SnapshotStorage(StateSnapshots("memory://nothing"))))
        []
    """
    filesystem = storage.filesystem
    root = storage.root if group is None else f"{storage.root}/{escaped(group)}"
    filesystem.invalidate_cache()
    try:
        paths = filesystem.find(root)
    except FileNotFoundError:
        return
    folders = {path.rpartition("/manifests/")[0] for path in paths if "/manifests/" in path}
    for folder in sorted(folders, key=lambda path: (path.rpartition("/")[0], path.rpartition("/")[2].zfill(10))):
        *_, of_group, topic, store, changelog_id, partition = map(unquote, folder.split("/"))
        if not partition.isdecimal():
            continue
        for offset, manifest, damage in SnapshotRepository(filesystem, folder).examine(verify=verify):
            yield ListedSnapshot(of_group, topic, store, changelog_id, int(partition), offset, manifest, damage)
