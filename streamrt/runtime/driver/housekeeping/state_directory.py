"""The state directory of an application: its owner, and the part that this process uses.

```
<state_dir>/<group>/owner.json    format, consumer group and cluster: keeps out the state of other applications
<state_dir>/<group>/<n>.lock      held by the running instance number n
<state_dir>/<group>/<n>/          its store partitions
```

All of it is closed to other users (0700). The state directory itself is also closed if it holds nothing else; the
permissions of a shared directory such as `/tmp` are not changed.

Instances that share a state directory get numbers, each the lowest free one. A second process therefore never touches
the files of the first one, and a restarted process finds its files again.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from streamrt.common.file_lock import FileLock
from streamrt.errors import ConfigurationError, InvalidOperationError, StateError, StoreVersionError
from streamrt.state.rocksdb.directory import make_private

logger = logging.getLogger("streamrt")

_FORMAT = 1
_MOST = 1_000


class StateDirectory:
    """The part of a state directory that belongs to this process, by a file lock until the process ends.

    Args:
        path: directory of this instance's store partitions; created when it is needed.
        number: number of the instance.
        lock: lock of the part.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> first = StateDirectory.acquire(directory, "shop", "cluster-1")
        >>> second = StateDirectory.acquire(directory, "shop", "cluster-1")
        >>> first.number, second.number
        (0, 1)
        >>> first.release(), second.release()
        (None, None)
    """

    def __init__(self, path: Path, number: int, lock: FileLock) -> None:
        self.path = path
        self.number = number
        self._lock = lock

    @classmethod
    def acquire(cls, state_dir: Path, group: str, cluster: str) -> "StateDirectory":
        """Lock the first free part.

        Args:
            state_dir: the state directory; created if it does not exist.
            group: the consumer group.
            cluster: Kafka's id of the cluster.

        Raises:
            OSError: if the directory cannot be written or locked.
            StateError: if the directory belongs to another application or cluster.
            StoreVersionError: if a newer version of StreamRT wrote it.
            ConfigurationError: if 1,000 instances are running already.
        """
        root = group_directory(state_dir, group)
        make_private(root)
        if _has_only_applications(state_dir, root):
            make_private(state_dir)
        for number in range(_MOST):
            lock = _lock(root / f"{number}.lock")
            if lock is None:
                continue
            directory = cls(root / str(number), number, lock)
            try:
                _check_owner(root, group, cluster, alone=number == 0)
            except BaseException:
                directory.release()
                raise
            return directory
        raise ConfigurationError(f"{_MOST} instances already use {state_dir}: set another state_dir")

    def release(self) -> None:
        """Release the part."""
        self._lock.close()


@contextlib.contextmanager
def part_of_state_dir(state_dir: Path, group: str, cluster: str, *, needed: bool) -> Iterator[StateDirectory | None]:
    """Lock a part of the state directory for as long as the context lasts.

    Args:
        state_dir: the state directory.
        group: the consumer group.
        cluster: Kafka's id of the cluster.
        needed: whether the application has state.

    Yields:
        The part; None if the directory cannot be used and is not needed.

    Raises:
        StateError: if the directory cannot be used and is needed, or belongs to another application or cluster.
    """
    try:
        part = StateDirectory.acquire(state_dir, group, cluster)
    except OSError as error:
        if needed:
            raise StateError(
                f"the state directory {state_dir} cannot be used ({error}): set state_dir to a local directory"
            ) from error
        logger.warning(
            "state directory %s cannot be written (%s): after a crash, partitions wait until the session of the dead "
            "instance times out; set state_dir to a writable directory",
            state_dir,
            error,
        )
        yield None
        return
    try:
        yield part
    finally:
        part.release()


def instance_id(state_dir: Path, group: str, part: StateDirectory | None) -> str | None:
    """Return an id for static membership: the same after a restart, different for each instance on this machine.

    Args:
        state_dir: the state directory.
        group: the consumer group.
        part: the instance's part of the directory; None returns None.
    """
    if part is None:
        return None
    digest = hashlib.sha256(f"{socket.gethostname()}:{state_dir}:{group}".encode()).hexdigest()[:16]
    return f"{group}-{digest}-{part.number}"


def group_directory(state_dir: Path, group: str) -> Path:
    """Return the directory of a consumer group inside a state directory.

    Example:
        >>> group_directory(Path("state"), "../a b").as_posix()
        'state/%2E%2E%2Fa%20b'
    """
    return state_dir / quote(group, safe="").replace(".", "%2E")


def clear(state_dir: Path, group: str) -> None:
    """Delete the state of an application.

    Args:
        state_dir: the state directory.
        group: the consumer group.

    Raises:
        InvalidOperationError: if an instance of the application is running.
    """
    root = group_directory(state_dir, group)
    if not root.is_dir() or root.is_symlink():
        return
    with locked_parts(state_dir, group) as parts:
        # Delete only locked parts: an instance that starts now takes another one.
        for directory in parts:
            shutil.rmtree(directory)
        (root / "owner.json").unlink(missing_ok=True)


@contextlib.contextmanager
def locked_parts(state_dir: Path, group: str) -> Iterator[list[Path]]:
    """Lock all parts of an application's state directory for as long as the context lasts.

    Args:
        state_dir: the state directory.
        group: the consumer group.

    Yields:
        The directories of the parts.

    Raises:
        InvalidOperationError: if an instance of the application is running.
    """
    root = group_directory(state_dir, group)
    if not root.is_dir() or root.is_symlink():
        yield []
        return
    names = {lock.stem for lock in root.glob("*.lock")}
    names |= {child.name for child in root.iterdir() if child.is_dir() and not child.is_symlink()}
    with contextlib.ExitStack() as locks:
        for name in sorted(names):
            lock = _lock(root / f"{name}.lock")
            if lock is None:
                raise InvalidOperationError(
                    f"the state in {root} is in use by a running instance of the application: stop it first"
                )
            locks.enter_context(lock)
        parts = (root / name for name in sorted(names))
        yield [part for part in parts if part.is_dir() and not part.is_symlink()]


def free_parts(root: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield the parts of an application's directory that no running instance uses, each locked while it is yielded.

    Args:
        root: the directory of the consumer group.
        wanted: returns whether to lock and yield a part. An instance that starts meanwhile cannot take a locked part.
    """
    for path in sorted(root.glob("*.lock")):
        part = root / path.stem
        if not part.is_dir() or part.is_symlink() or not wanted(part):
            continue
        lock = _lock(path)
        if lock is not None:
            with lock:
                yield part


def _has_only_applications(state_dir: Path, root: Path) -> bool:
    """Return whether a state directory holds only directories of this user's applications, such as `root`."""
    with os.scandir(state_dir) as entries:
        return all(
            entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            and (Path(entry.path) == root or Path(entry.path, "owner.json").is_file())
            for entry in entries
        )


def _lock(path: Path) -> FileLock | None:
    return FileLock.try_acquire(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def _check_owner(root: Path, group: str, cluster: str, *, alone: bool) -> None:
    path = root / "owner.json"
    mine = {"format": _FORMAT, "group": group, "cluster": cluster}
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        _write_file(path, json.dumps(mine))
        return
    try:
        found = json.loads(text)
        version, owner = int(found["format"]), (str(found["group"]), str(found["cluster"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        # A crash may truncate the file. Rewriting it is safe: each store records its owner.
        _write_file(path, json.dumps(mine))
        return
    if version > _FORMAT:
        raise StoreVersionError(
            f"the state directory {root} was written by a newer version of StreamRT (format {version}, this one knows "
            f"{_FORMAT}): upgrade StreamRT, or use another state_dir"
        )
    if owner != (group, cluster):
        if alone and not any(each.is_dir() for each in root.iterdir()):
            # There is no state of another owner yet, as after a new `streamrt dev kafka`.
            _write_file(path, json.dumps(mine))
            return
        raise StateError(
            f"the state directory {root} belongs to the application {owner[0]!r} on the Kafka cluster {owner[1]!r}, not "
            f"to {group!r} on {cluster!r}: give each application a separate state_dir, or delete this one with "
            "clear_state()"
        )


def _write_file(path: Path, text: str) -> None:
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
