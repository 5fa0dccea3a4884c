"""The directory of one RocksDB store partition: its path, its owner, and the integrity of its files.

`<base_dir>/<topic>/<store>/<partition>/` is closed to other users (0700), as are the directories above it up to `base_dir`.
It holds the files of RocksDB and one of StreamRT, the *seal*, `streamrt-store`: a line with a checksum, and a line of
JSON with a version and one of three states:

```
new ----close----> closed ----open----> open ----close----> closed
```

- `new`: RocksDB was started here for the first time, and not closed yet;
- `open`: a process uses the directory, or died while it did;
- `closed`: with the names and sizes of the data files, and the digests of `CURRENT` and the manifests that list them.

**Integrity.** Stores are written without a write-ahead log. A write reaches the disk when RocksDB writes its buffer as
a data file and adds the file to its manifest. A batch of changes lies in one buffer together with its stamp, and
buffers are written in order. Any prefix of the manifest that survives therefore describes exactly the data of an
earlier stamp, including that stamp. Lost writes are replayed from the changelog. RocksDB reports missing or truncated
files and wrong checksums. After a clean shutdown the seal is also compared, which distinguishes a truncated manifest
from the manifest of a killed process.

RocksDB creates an empty database if `CURRENT` is missing, without an error; this module checks for that.

The owner holds a lock on the directory itself (`flock`), from before it reads the seal until after it writes it.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Any, Final

import orjson

from streamrt.common.backoff import Backoff
from streamrt.common.file_lock import FileLock
from streamrt.errors import StateError, StoreCorruptedError, StoreLockedError, StoreVersionError

__all__ = ["StoreDirectory", "escaped", "make_private", "remove_settings"]

SEAL: Final = "streamrt-store"
_NEW_SEAL: Final = "streamrt-store.tmp"
_VERSION: Final = 1

_DATA_FILE: Final = re.compile(r"\d+\.sst")
_MANIFEST: Final = re.compile(r"MANIFEST-\d+")
_LOG_FILE: Final = re.compile(r"\d+\.log")
_OTHERS: Final = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG|LOG\.old\.\d+|OPTIONS-\d+(\.dbtmp)?|\d+\.dbtmp|rocksdict-config\.json"
    rf"|{SEAL}|{re.escape(_NEW_SEAL)}|\.nfs\w+|\.DS_Store"
)
_ROCKSDICT_SETTINGS: Final = "rocksdict-config.json"

_ALLOWED: Final = re.compile(r"[a-z0-9_.-]")
_LONGEST_NAME: Final = 200
# How often another process may delete the directory during locking before this counts as a failure.
_RACES: Final = 100
_DELETE_S: Final = 10.0
_PAUSE_S: Final = 0.01


def escaped(name: str) -> str:
    """Return a safe directory name that is unique for each name, even if the file system ignores case.

    Example:
        >>> escaped("orders-v2"), escaped("Orders"), escaped("..")
        ('orders-v2', '%4frders', '%2e.')
    """
    out = "".join(
        char if _ALLOWED.fullmatch(char) else "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in name
    )
    if out.startswith("."):
        out = "%2e" + out[1:]
    if len(out) > _LONGEST_NAME or not out:
        # No other escaped name contains `%-`.
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        out = f"{out[: _LONGEST_NAME - 70]}%-{digest}"
    return out


def make_private(path: Path) -> None:
    """Create a directory that other users cannot enter, and its missing parents.

    An existing directory is also closed to others if this user owns it. Existing parents are not changed.

    Raises:
        OSError: if the directory cannot be created.
    """
    for missing in reversed([parent for parent in path.parents if not parent.exists()]):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(mode=0o700)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)


def remove_settings(folder: Path) -> None:
    """Delete what a checkpoint has besides data: an empty log, and the settings of the process that made it."""
    for path in folder.iterdir():
        if not (_DATA_FILE.fullmatch(path.name) or _MANIFEST.fullmatch(path.name) or path.name == "CURRENT"):
            path.unlink()


class StoreDirectory:
    """The directory of one store partition.

    Args:
        base_dir: directory of all stores of the application.
        topic: name of the source topic.
        store: name of the store.
        partition: number of the partition.
    """

    def __init__(self, base_dir: Path, topic: str, store: str, partition: int) -> None:
        self._parents = [base_dir / escaped(topic), base_dir / escaped(topic) / escaped(store)]
        self.path = self._parents[-1] / str(int(partition))
        self.name = f"store {store!r} of {topic}[{partition}] in {self.path}"
        self._lock: FileLock | None = None

    @classmethod
    def at(cls, path: Path) -> "StoreDirectory":
        """Return the store directory at a path, without its topic and store name."""
        found = cls(path.parents[2], path.parts[-3], path.parts[-2], int(path.name))
        found._parents, found.path, found.name = [path.parents[1], path.parents[0]], path, f"the store in {path}"
        return found

    def lock(self, retries: int, backoff: float, *, create: bool) -> bool:
        """Acquire the ownership of the directory.

        Args:
            retries: number of further attempts while another process or task owns it.
            backoff: seconds between the attempts.
            create: whether to create a missing directory; otherwise the result is False.

        Raises:
            StoreLockedError: if another owner still holds it after the last attempt.
            StateError: if the directory is unusable.
        """
        for trial in range(retries + 1):
            if trial:
                time.sleep(backoff)
            for _ in range(_RACES):
                try:
                    if create:
                        self._make_directory()
                    lock = FileLock.try_acquire(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                except FileNotFoundError:
                    if not create:
                        return False
                    continue  # deleted between creation and opening
                except OSError as error:
                    raise self._make_unusable_error(error) from error
                if lock is None:
                    break
                if self._is_here(lock):
                    self._lock = lock
                    return True
                lock.close()
        raise self.locked()

    def unlock(self) -> None:
        """Release the ownership."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            # A forked process may have inherited the descriptor, and with it the lock.
            lock.release()

    def begin(self) -> bool:
        """Check the contents of the directory, and mark it as in use.

        Returns:
            Whether the directory holds no data yet.

        Raises:
            StoreCorruptedError: if the files are damaged.
            StoreVersionError: if a newer version of StreamRT wrote the seal.
            StateError: if the directory holds foreign files.
        """
        try:
            files = self._list_files()
            fresh = self._is_fresh(files)
            for name in files:
                # Remains of an interrupted start, and rocksdict's settings file, which repeats the given options.
                if name == _ROCKSDICT_SETTINGS or (fresh and name not in ("LOCK", SEAL)):
                    (self.path / name).unlink()
            self._write_seal({"state": "new" if fresh else "open"})
        except OSError as error:
            raise self._make_unusable_error(error) from error
        return fresh

    def close_files(self) -> None:
        """Let no other user read the files. RocksDB makes them as the umask says, and copies of them keep their modes."""
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                # Compaction may delete it meanwhile.
                with contextlib.suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o077:
                        Path(entry).chmod(0o600)

    def seal(self) -> None:
        """Record the contents of the directory, after RocksDB was closed."""
        try:
            files = self._list_files()
            self._write_seal({"state": "closed", **self._read_contents(files)})
        except OSError as error:
            raise self._make_unusable_error(error) from error

    def delete(self) -> None:
        """Delete the directory; the caller must own it. Only files of a store are deleted.

        Raises:
            StateError: if the directory holds foreign files.
        """
        try:
            owned = None if self._lock is None else self._lock.fileno()
            backoff = Backoff(_PAUSE_S, time.monotonic() + _DELETE_S)
            while True:
                try:
                    # Delete the seal last, so that an interrupted deletion leaves a directory that is recognized as a
                    # damaged store.
                    for name in sorted(self._list_files(), key=lambda name: name == SEAL):
                        os.unlink(name, dir_fd=owned)
                    self.path.rmdir()
                except OSError as error:
                    # Threads of a store that was closed because of its damage may still write and delete files.
                    passing = error.errno == errno.ENOTEMPTY or (error.errno == errno.ENOENT and self.path.exists())
                    if not passing or not backoff.pause():
                        raise
                else:
                    return
        except OSError as error:
            raise self._make_unusable_error(error) from error

    def adopt(self, folder: Path) -> None:
        """Move the files of a checkpoint here; the caller must own the directory.

        Raises:
            StateError: if the directory holds data, or the files cannot be moved.
        """
        try:
            files = self._list_files()
            if not self._is_fresh(files):
                raise StateError(f"{self.name} holds data, so no snapshot can take its place")
            for name in files:
                (self.path / name).unlink()
            for path in sorted(folder.iterdir()):
                path.replace(self.path / path.name)
            # Last: files without a seal count as damaged.
            self._write_seal({"state": "open"})
        except OSError as error:
            raise self._make_unusable_error(error) from error

    def corrupted(self, reason: object) -> StoreCorruptedError:
        """Return the error for damaged files."""
        return StoreCorruptedError(f"{self.name} is damaged: {reason}")

    def locked(self) -> StoreLockedError:
        """Return the error for a directory that has another owner."""
        return StoreLockedError(
            f"{self.name} is in use by another process, or by another task of this one: wait until it ends, or give this "
            "application a separate state_dir"
        )

    def full(self, what: str, reason: object) -> StateError:
        """Return the error for a full disk.

        Args:
            what: the failed operation as a participle, such as `written`.
            reason: message of the operating system.
        """
        return StateError(
            f"{self.name} cannot be {what}, because its disk is full ({reason}): free space there, or move the state "
            "directory to a larger disk; then restart the application"
        )

    def _make_unusable_error(self, error: OSError) -> StateError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return self.full("written", error.strerror)
        reason = error.strerror or str(error)
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "it is a symbolic link, which StreamRT does not follow, or not a directory"
        return StateError(f"{self.name} cannot be used: {reason}")

    def _make_directory(self) -> None:
        base = self._parents[0].parent
        # The base directory may be a symbolic link that the user made; no link is allowed below it.
        make_private(base)
        for folder in (*self._parents, self.path):
            make_private(folder)
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(folder))

    def _is_here(self, lock: FileLock) -> bool:
        """Return whether a lock is on the directory at this path.

        The previous owner may have deleted it: then the lock is on a directory without a name.
        """
        try:
            return os.path.samestat(os.fstat(lock.fileno()), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _list_files(self) -> dict[str, int]:
        """Return the names of all files with their sizes in bytes.

        Raises:
            StateError: if the directory holds foreign files.
        """
        files: dict[str, int] = {}
        strange = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                known = any(kind.fullmatch(entry.name) for kind in (_DATA_FILE, _MANIFEST, _LOG_FILE, _OTHERS))
                if known and entry.is_file(follow_symlinks=False):
                    files[entry.name] = entry.stat(follow_symlinks=False).st_size
                else:
                    strange.append(entry.name)
        if strange:
            raise StateError(
                f"{self.name} holds files that are not part of a store, such as {sorted(strange)[0]!r}; nothing was "
                "changed or deleted: move these files away, or give the application another state_dir"
            )
        return files

    def _is_fresh(self, files: dict[str, int]) -> bool:
        seal = self._read_seal(files)
        if seal is None:
            data = [
                name for name in files if _DATA_FILE.fullmatch(name) or _MANIFEST.fullmatch(name) or name == "CURRENT"
            ]
            if data:
                raise self.corrupted(f"it has RocksDB files, such as {sorted(data)[0]}, but {SEAL} is missing")
            return True
        state = seal.get("state")
        if state == "new" and not any(_DATA_FILE.fullmatch(name) for name in files):
            # No data was ever written, so it does not matter whether CURRENT exists.
            return True
        if "CURRENT" not in files:
            raise self.corrupted("the file CURRENT is missing")
        # StreamRT never writes a write-ahead log, and RocksDB would replay it.
        if any(size and _LOG_FILE.fullmatch(name) for name, size in files.items()):
            raise self.corrupted("it has a write-ahead log that StreamRT did not write")
        if state == "closed":
            for name, now in self._read_contents(files).items():
                if seal.get(name) != now:
                    raise self.corrupted(f"its {name} changed since it was closed")
        return False

    def _read_contents(self, files: dict[str, int]) -> dict[str, Any]:
        """Return the contents that are compared between closing and opening."""
        important = sorted(name for name in files if name == "CURRENT" or _MANIFEST.fullmatch(name))
        return {
            "data files": {name: files[name] for name in sorted(files) if _DATA_FILE.fullmatch(name)},
            "manifests": {
                name: hashlib.blake2b((self.path / name).read_bytes(), digest_size=16).hexdigest() for name in important
            },
        }

    def _read_seal(self, files: dict[str, int]) -> dict[str, Any] | None:
        if SEAL not in files:
            return None
        data = (self.path / SEAL).read_bytes()
        if not data:
            # File systems leave an empty file when the machine loses power. It counts as unsealed, not as damaged.
            return {"state": "open"}
        checksum, _, text = data.partition(b"\n")
        try:
            whole = checksum == _compute_checksum(text)
            fields: dict[str, Any] = orjson.loads(text) if whole else {}
        except ValueError:
            whole = False
        if not whole:
            raise self.corrupted(f"the checksum of {SEAL} is wrong")
        version = fields.get("v", 0)
        if version > _VERSION:
            raise StoreVersionError(
                f"{self.name} has format version {version}, but this StreamRT supports versions up to {_VERSION}: a "
                "newer version wrote the state; upgrade StreamRT"
            )
        return fields

    def _write_seal(self, fields: dict[str, Any]) -> None:
        text = orjson.dumps({"v": _VERSION, **fields})
        fd = os.open(self.path / _NEW_SEAL, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            data = _compute_checksum(text) + b"\n" + text
            if os.write(fd, data) < len(data):
                # A full disk accepts only the beginning, and a truncated seal would count as damage.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)
        (self.path / _NEW_SEAL).replace(self.path / SEAL)


def _compute_checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()
