"""Provide the Java libraries that Spark's Kafka connector, the embedded broker and the embedded schema registry need.

`jars.json` locks every library with its SHA-256. `fetch_jars` looks for each of them in

1. the target directory, if there is one,
2. the directory in `STREAMRT_JARS_DIR`, which holds jars under their plain names,
3. the local Maven repository (`M2_REPO`, or `~/.m2/repository`),

and downloads missing ones. A download is checked before it is renamed to its final name, so neither a killed process
nor two concurrent ones leave a broken file behind. Broken files of other tools are replaced.
"""

import functools
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from streamrt.errors import JarError

__all__ = ["Jar", "JarSet", "fetch_jars", "locked_jars", "missing_jars", "provide_jars"]

logger = logging.getLogger(__name__)

JarSet = Literal["spark", "kafka", "registry"]

_THREADS = 4
_ATTEMPTS = 2
_TIMEOUT_S = 30
_LEFT_OVER_S = 24 * 3600

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Jar:
    """A Java library of the lock.

    Args:
        group: Maven group.
        artifact: Maven artifact.
        version: version.
        size: size in bytes.
        sha256: checksum in hexadecimal.
        packaging: file extension.
        classifier: Maven classifier, for one of several files of the artifact; empty for the main one.

    Example:
        >>> jar = Jar("org.apache.kafka", "kafka-clients", "3.9.2", 9, "ab")
        >>> jar.coordinates, jar.file_name
        ('org.apache.kafka:kafka-clients:3.9.2', 'kafka-clients-3.9.2.jar')
    """

    group: str
    artifact: str
    version: str
    size: int
    sha256: str
    packaging: str = "jar"
    classifier: str = ""

    @property
    def coordinates(self) -> str:
        """Name in Maven's notation."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """Plain name of the file."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.packaging}"

    @property
    def repository_path(self) -> Path:
        """Path of the file in a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, self.file_name)


def locked_jars(set_name: JarSet) -> tuple[Jar, ...]:
    """Return the libraries of a set without looking for their files.

    Args:
        set_name: "spark" (for `spark.jars`), "kafka" (the embedded broker) or "registry" (the embedded schema registry).

    Returns:
        The locked libraries, in class path order.

    Example:
        >>> [jar.artifact for jar in locked_jars("spark")][2:]
        ['kafka-clients', 'commons-pool2']
    """
    if set_name not in get_args(JarSet):
        raise ValueError(f"set_name must be one of {', '.join(get_args(JarSet))}, not {set_name!r}")
    return _read_lock()[set_name]


def fetch_jars(set_name: JarSet, *, progress: bool | None = None, directory: Path | None = None) -> list[Path]:
    """Return the files of a set of Java libraries, and download those that are missing on this machine.

    Every call compares all files with their locked checksums (0.05 s for the larger set). To use another Maven
    repository than the default, set `STREAMRT_MAVEN_REPOSITORY` to its address.

    Args:
        set_name: "spark" (for `spark.jars`), "kafka" (the embedded broker) or "registry" (the embedded schema registry).
        progress: whether to show a progress bar on stderr during downloads; by default only if stderr is a terminal.
            Without a bar, one line is logged.
        directory: directory for all files of the set under their plain names, for an image without network access; set
            `STREAMRT_JARS_DIR` to it there.

    Returns:
        The files, in class path order.

    Raises:
        JarError: if a library cannot be downloaded, or its file is not the locked one.

    Example:
        >>> [path.name for path in fetch_jars("spark", progress=False)][2:]
        ['kafka-clients-3.9.2.jar', 'commons-pool2-2.13.1.jar']
    """
    return provide_jars(locked_jars(set_name), progress=progress, directory=directory)


def missing_jars(set_name: JarSet) -> list[Jar]:
    """Return the libraries of a set that `fetch_jars` would have to download.

    Args:
        set_name: see `fetch_jars`.

    Raises:
        JarError: if a file in `STREAMRT_JARS_DIR` is not the locked one.

    Example:
        >>> missing_jars("spark")  # doctest: +SKIP
        []
    """
    return [jar for jar in locked_jars(set_name) if _find_jar(jar, None) is None]


def provide_jars(jars: Sequence[Jar], *, progress: bool | None = None, directory: Path | None = None) -> list[Path]:
    """Provide libraries like `fetch_jars`, even if they are not in the lock.

    Args:
        jars: the libraries.
        progress: see `fetch_jars`.
        directory: see `fetch_jars`.

    Returns:
        The files, in the order of `jars`.

    Raises:
        JarError: if a library cannot be downloaded, or its file is not the expected one.

    Example:
        >>> provide_jars([])
        []
    """
    found = {jar: _find_jar(jar, directory) for jar in jars}
    missing = [jar for jar in jars if found[jar] is None]
    if missing:
        found.update(_download_all(missing, directory, progress))
    paths = [path for path in found.values() if path is not None]
    if directory is None:
        return paths
    return [_put_file(path, directory) for path in paths]


@functools.cache
def _read_lock() -> dict[JarSet, tuple[Jar, ...]]:
    content = json.loads(Path(__file__).with_name("jars.json").read_text(encoding="utf-8"))
    return {name: tuple(Jar(**entry) for entry in entries) for name, entries in content.items()}


def _repository_directory() -> Path:
    return Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")


def _find_jar(jar: Jar, directory: Path | None) -> Path | None:
    """Return an intact file of `jar` on this machine, or None."""
    if directory is not None and _is_intact(directory / jar.file_name, jar):
        return directory / jar.file_name
    provided = os.environ.get("STREAMRT_JARS_DIR")
    if provided:
        path = Path(provided) / jar.file_name
        if _is_intact(path, jar):
            return path
        if path.exists():
            # StreamRT does not own this directory; silently using another file would hide the mistake.
            raise JarError(
                f"{path}, from STREAMRT_JARS_DIR, {_describe_difference(path, jar)}: {_describe_remedy(jar)}"
            )
    path = _repository_directory() / jar.repository_path
    if _is_intact(path, jar):
        return path
    if path.exists():
        logger.warning("%s %s and will be replaced", path, _describe_difference(path, jar))
    return None


def _is_intact(path: Path, jar: Jar) -> bool:
    try:
        return path.stat().st_size == jar.size and _hash_file(path) == jar.sha256
    except OSError:
        return False


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _describe_difference(path: Path, jar: Jar) -> str:
    return (
        f"is damaged (expected sha256 {jar.sha256} and {jar.size} bytes, "
        f"found {_hash_file(path)} and {path.stat().st_size} bytes)"
    )


def _describe_remedy(jar: Jar) -> str:
    return (
        f"put an intact {jar.file_name} into the directory in STREAMRT_JARS_DIR "
        "(`streamrt jars --directory DIR` fills one on a machine with network access) or at "
        f"{_repository_directory() / jar.repository_path}"
    )


def _put_file(path: Path, directory: Path) -> Path:
    target = directory / path.name
    if path == target:
        return path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".streamrt-") as staging:
            shutil.copyfile(path, Path(staging, path.name)).replace(target)
    except OSError as error:
        raise JarError(f"{path.name} cannot be written to {directory}: {error}") from error
    return target


def _download_all(jars: list[Jar], directory: Path | None, progress: bool | None) -> dict[Jar, Path | None]:
    root = _repository_directory() if directory is None else directory
    targets = {jar: root / (jar.repository_path if directory is None else jar.file_name) for jar in jars}
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(root)
        # In the same file system as the targets, because a rename is atomic only there.
        staging = tempfile.TemporaryDirectory(dir=root, prefix=".streamrt-")
    except OSError as error:
        raise JarError(
            f"{jars[0].coordinates} cannot be stored: {error}; set M2_REPO to a writable directory, "
            f"or {_describe_remedy(jars[0])}"
        ) from error
    with (
        staging as folder,
        _report_progress(jars, sys.stderr.isatty() if progress is None else progress) as advance,
        ThreadPoolExecutor(_THREADS, thread_name_prefix="streamrt-jars") as pool,
    ):
        downloads = [pool.submit(_download_jar, jar, targets[jar], Path(folder), advance) for jar in jars]
        try:
            for download in as_completed(downloads):
                download.result()
        except BaseException:
            # If one library is unavailable, the others are useless.
            pool.shutdown(cancel_futures=True)
            raise
    return dict(targets)


def _remove_left_overs(root: Path) -> None:
    """Remove downloads that killed processes left at least a day ago."""
    for path in root.glob(".streamrt-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFT_OVER_S:
                shutil.rmtree(path)


def _download_jar(jar: Jar, target: Path, staging: Path, advance: Advance) -> None:
    # Imported here, because jgo takes a quarter of a second to import and only downloads need it.
    from jgo.maven import MavenContext, PythonResolver

    received = 0

    @contextmanager
    def follow(_name: str, _size: int) -> Iterator[Advance]:
        def count(size: int) -> None:
            nonlocal received
            received += size
            advance(size)

        yield count

    mirror = os.environ.get("STREAMRT_MAVEN_REPOSITORY")
    context = MavenContext(
        resolver=PythonResolver(progress_callback=follow),
        repo_cache=staging,
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=_TIMEOUT_S,
    )
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version)
    artifact = artifact.artifact(classifier=jar.classifier, packaging=jar.packaging)
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            fetched: Path = artifact.resolve()
            if _is_intact(fetched, jar):
                target.parent.mkdir(parents=True, exist_ok=True)
                fetched.replace(target)
                advance(jar.size - received)
                return
            problem = f"the downloaded file {_describe_difference(fetched, jar)}"
        except (OSError, RuntimeError) as error:  # raised by requests and jgo
            problem = str(error)
        logger.debug("%s: %s", jar.coordinates, problem)
        (staging / jar.repository_path).unlink(missing_ok=True)
        advance(-received)
        received = 0
    raise JarError(f"{jar.coordinates} could not be fetched: {problem}; {_describe_remedy(jar)}")


@contextmanager
def _report_progress(jars: list[Jar], visible: bool) -> Iterator[Advance]:
    total = sum(jar.size for jar in jars)
    label = f"Fetching {len(jars)} Java {'library' if len(jars) == 1 else 'libraries'}"
    if not visible:
        logger.info("%s (%.1f MB)", label, total / 1e6)
        yield lambda _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda size: bar.advance(task, size)
