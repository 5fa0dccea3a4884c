"""The snapshots of one store partition in an object store, on any file system of fsspec.

Layout below the URL of the settings::

    <group>/<topic>/<store>/<changelog id>/<partition>/manifests/<offset>-<time>-<random>.manifest
    <group>/<topic>/<store>/<changelog id>/<partition>/files/<digest>

The rules that let several processes write here without a lock:

- a file is never changed: its name is the digest of its content;
- a manifest is written after its files, and is never changed; what no manifest names does not exist;
- the collection deletes manifests before files, and a file only after this process has seen it without a reference for an
  hour;
- an uploader lists the files again after its manifest is written, and withdraws the manifest if one has gone.
"""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.rocksdb.directory import escaped
from streamrt.state.snapshots.manifest import (
    NewerSnapshotError,
    SnapshotManifest,
    StoredFile,
    UnusableSnapshotError,
    offset_in_name,
)
from streamrt.state.snapshots.settings import StateSnapshots

__all__ = ["SnapshotRepositories", "SnapshotRepository", "SnapshotStorage"]

_CHUNK: Final = 4 * 1024 * 1024
_GRACE_S: Final = 3_600.0
_LARGEST_MANIFEST: Final = 64 * 1024 * 1024


class SnapshotStorage:
    """The file system of the snapshots of all stores of a process; made on first use, in the process that uses it.

    Args:
        settings: where it is.

    Attributes:
        filesystem: a file system of fsspec.
        root: the folder of all snapshots in it.
    """

    def __init__(self, settings: StateSnapshots) -> None:
        import fsspec

        options = {"skip_instance_cache": True, "use_listings_cache": False, **settings.options}
        if settings.url.startswith(("file:", "local:")):
            options.setdefault("auto_mkdir", True)
        self.filesystem, root = fsspec.core.url_to_fs(settings.url, **options)
        self.root = root.rstrip("/")

    def repository(self, identity: StoreIdentity) -> "SnapshotRepository":
        """Return the snapshots of a store partition."""
        parts = (identity.group, identity.topic, identity.store, identity.changelog_id or "none")
        folder = "/".join((self.root, *map(escaped, parts), str(identity.partition)))
        return SnapshotRepository(self.filesystem, folder)


class SnapshotRepositories:
    """The repositories that a process uses. Any thread may ask for one.

    Args:
        settings: where they are.

    Example:
        >>> repositories = SnapshotRepositories(StateSnapshots("memory://snapshots"))
        >>> identity = StoreIdentity("shop", "orders", 0, "default", None, None, 1)
        >>> repositories.find(identity) is repositories.find(identity)
        True
    """

    def __init__(self, settings: StateSnapshots) -> None:
        self._settings = settings
        self._storage: SnapshotStorage | None = None
        self._repositories: dict[StoreIdentity, SnapshotRepository] = {}
        # A lock of its own: the first use of an object store may wait for credentials.
        self._lock = threading.Lock()

    def find(self, identity: StoreIdentity) -> "SnapshotRepository":
        """Return the repository of a store partition; the first call connects to the object store."""
        with self._lock:
            repository = self._repositories.get(identity)
            if repository is None:
                self._storage = self._storage or SnapshotStorage(self._settings)
                repository = self._repositories[identity] = self._storage.repository(identity)
            return repository


class SnapshotRepository:
    """The snapshots of one store partition; see the module.

    Args:
        filesystem: a file system of fsspec.
        folder: the folder of the store partition.
        clock: returns seconds, for the hour that files without a reference stay; only differences count.

    Example:
        >>> import fsspec
        >>> SnapshotRepository(fsspec.filesystem("memory"), "/snapshots/none").names()
        []
    """

    def __init__(self, filesystem: Any, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._filesystem = filesystem
        self._manifests, self._files = f"{folder}/manifests", f"{folder}/files"
        self._clock = clock
        self._read: dict[str, SnapshotManifest] = {}
        # Digests of files on the local disk, by inode, size and time of change. Checkpoints share inodes with the store.
        self._digests: dict[tuple[str, int, int, int], str] = {}
        self._unreferenced: dict[str, float] = {}
        self._damaged: set[str] = set()

    def names(self) -> list[str]:
        """Return the names of all manifests, the one of the newest state first."""
        return sorted((name for name in self._list(self._manifests) if offset_in_name(name) is not None), reverse=True)

    def read(self, name: str) -> SnapshotManifest:
        """Read a manifest.

        Raises:
            NewerSnapshotError: if a newer version of StreamRT wrote it.
            UnusableSnapshotError: if it is damaged or gone.
        """
        known = self._read.get(name)
        if known is None:
            try:
                data = self._filesystem.cat_file(f"{self._manifests}/{name}", end=_LARGEST_MANIFEST)
            except FileNotFoundError:
                raise UnusableSnapshotError("it was deleted meanwhile") from None
            known = SnapshotManifest.decode(data)
            if known.stamp.changelog_offset != offset_in_name(name):
                raise UnusableSnapshotError("its manifest has the name of another one")
            self._read[name] = known
        return known

    def upload(self, folder: Path, stamp: Stamp, created_at: int) -> tuple[SnapshotManifest, int]:
        """Upload a checkpoint: files that are not there yet, then the manifest.

        Args:
            folder: the files of the checkpoint.
            stamp: the stamp in them.
            created_at: wall clock of the checkpoint, in milliseconds.

        Returns:
            The manifest, and the number of bytes sent for files.

        Raises:
            UnusableSnapshotError: if another process has deleted a file meanwhile; the snapshot is withdrawn.
        """
        present, sent = self._list(self._files), 0
        files: dict[str, StoredFile] = {}
        for path in sorted(folder.iterdir()):
            file = files[path.name] = StoredFile(path.stat().st_size, self._digest(path))
            if present.get(file.digest) != file.size or file.digest in self._damaged:
                self._write(f"{self._files}/{file.digest}", partial(self._filesystem.put_file, str(path)))
                self._damaged.discard(file.digest)
                sent += file.size
        self._digests = {key: digest for key, digest in self._digests.items() if key[0] in files}
        manifest = SnapshotManifest(stamp, created_at, files)
        name, data = manifest.new_name(), manifest.encode()
        self._write(f"{self._manifests}/{name}", lambda target: self._filesystem.pipe_file(target, data))
        if not self._is_whole(manifest, self._list(self._files)):
            self.withdraw(name)
            raise UnusableSnapshotError("another process has deleted a file of it during the upload")
        self._read[name] = manifest
        return manifest, sent

    def download(self, manifest: SnapshotManifest, folder: Path, on_bytes: Callable[[int], None]) -> None:
        """Download the files of a snapshot; those that are in the folder already are kept.

        Args:
            manifest: the snapshot.
            folder: an existing folder with nothing but files of this snapshot that this method has written.
            on_bytes: called with the number of new bytes, now and then; may raise to end the download.

        Raises:
            UnusableSnapshotError: if a file is missing or damaged.
        """
        for name, file in manifest.files.items():
            target = folder / name
            if target.exists():
                # Files get their names after their digests were compared.
                on_bytes(file.size)
                continue
            part = folder / f"{name}.part"
            try:
                self._download_file(name, file, part, on_bytes)
            except FileNotFoundError:
                raise UnusableSnapshotError(f"its file {name} is missing") from None
            part.replace(target)

    def examine(self, *, verify: bool) -> Iterator[tuple[int, SnapshotManifest | None, str]]:
        """Yield the changelog offset of each snapshot, its manifest, and what is wrong with it; the newest first.

        Args:
            verify: whether to compare the files with their digests, and not only their sizes.
        """
        present = self._list(self._files)
        damages: dict[str, str] = {}
        for name in self.names():
            manifest, damage = None, ""
            try:
                manifest = self.read(name)
                for file_name, file in manifest.files.items():
                    if file.digest not in damages:
                        damages[file.digest] = self._find_damage(file, present.get(file.digest), verify=verify)
                    if damages[file.digest]:
                        raise UnusableSnapshotError(f"its file {file_name} is {damages[file.digest]}")
            except UnusableSnapshotError as error:
                damage = str(error)
            yield offset_in_name(name) or 0, manifest, damage

    def _find_damage(self, file: StoredFile, size: int | None, *, verify: bool) -> str:
        if size is None or size != file.size:
            return "missing" if size is None else "damaged"
        try:
            for _ in self._read_file(file) if verify else ():
                pass
        except FileNotFoundError:
            return "missing"
        except UnusableSnapshotError:
            return "damaged"
        return ""

    def withdraw(self, name: str) -> None:
        """Delete a manifest."""
        self._read.pop(name, None)
        self._delete([f"{self._manifests}/{name}"])

    def collect(self, keep: int) -> int:
        """Delete what is older than the newest complete snapshots; return the number of deleted manifests and files.

        Args:
            keep: the number of snapshots to keep.
        """
        names, present, kept = self.names(), self._list(self._files), list[SnapshotManifest]()
        doomed: list[str] = []
        for number, name in enumerate(names):
            if len(kept) == keep:
                doomed = names[number:]
                break
            try:
                manifest = self.read(name)
            except NewerSnapshotError:
                # Which files it needs is unknown.
                return 0
            except UnusableSnapshotError:
                continue
            if self._is_whole(manifest, present):
                kept.append(manifest)
        for name in doomed:
            self._read.pop(name, None)
        self._delete(f"{self._manifests}/{name}" for name in doomed)
        now, referenced = self._clock(), {file.digest for each in kept for file in each.files.values()}
        since = self._unreferenced
        self._unreferenced = {name: since.get(name, now) for name in present if name not in referenced}
        old = [name for name, seen_at in self._unreferenced.items() if now - seen_at >= _GRACE_S]
        self._delete(f"{self._files}/{name}" for name in old)
        return len(doomed) + len(old)

    @staticmethod
    def _is_whole(manifest: SnapshotManifest, present: dict[str, int]) -> bool:
        return all(present.get(file.digest) == file.size for file in manifest.files.values())

    def _download_file(self, name: str, file: StoredFile, part: Path, on_bytes: Callable[[int], None]) -> None:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as written:
                for chunk in self._read_file(file):
                    written.write(chunk)
                    on_bytes(len(chunk))
        except UnusableSnapshotError:
            # The next upload of this process sends the file again.
            self._damaged.add(file.digest)
            raise UnusableSnapshotError(f"its file {name} is damaged") from None

    def _read_file(self, file: StoredFile) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            FileNotFoundError: if there is none.
            UnusableSnapshotError: at the end, if it is another content.
        """
        hashed, size = hashlib.blake2b(digest_size=32), 0
        with self._filesystem.open(f"{self._files}/{file.digest}", "rb", cache_type="none") as read:
            while chunk := read.read(_CHUNK):
                hashed.update(chunk)
                size += len(chunk)
                if size > file.size:
                    break
                yield chunk
        if (size, hashed.hexdigest()) != (file.size, file.digest):
            raise UnusableSnapshotError("it is damaged")

    def _digest(self, path: Path) -> str:
        found = path.stat()
        key = path.name, found.st_ino, found.st_size, found.st_mtime_ns
        digest = self._digests.get(key)
        if digest is None:
            hashed = hashlib.blake2b(digest_size=32)
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    hashed.update(chunk)
            digest = hashed.hexdigest()
            if path.suffix == ".sst":
                # Others are copied for each checkpoint.
                self._digests[key] = digest
        return digest

    def _list(self, folder: str) -> dict[str, int]:
        """Return names and sizes of the objects of a folder."""
        self._filesystem.invalidate_cache(folder)
        try:
            entries = self._filesystem.ls(folder, detail=True)
        except FileNotFoundError:
            return {}
        return {str(entry["name"]).rpartition("/")[2]: entry["size"] for entry in entries if entry["type"] == "file"}

    def _write(self, target: str, write: Callable[[str], None]) -> None:
        # Object stores show an object once all of it is there, directories before.
        part = f"{target}.part" if "file" in self._filesystem.protocol else target
        try:
            write(part)
        except FileNotFoundError:
            # A file system with directories, unlike object stores.
            self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            write(part)
        if part != target:
            self._filesystem.mv(part, target)

    def _delete(self, targets: Iterable[str]) -> None:
        for target in targets:
            # Another process may have deleted it.
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.rm_file(target)
