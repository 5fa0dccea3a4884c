"""Archives of loaded classes, with which Java starts in half of the time (class data sharing, JEP 350).

At its start, a JVM mostly finds, checks and links the same 10,000 classes. Java can map them from an archive instead,
which belongs to one Java and one class path. The second JVM of a kind writes its archive when it ends, which takes some
seconds; later JVMs use it. An archive is a cache: if none can be created or used, Java starts as usual.

Java writes the header of an archive last, so a file that begins with its magic number is complete.
"""

import contextlib
import hashlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamrt.jvm.java import Java

__all__ = ["ClassArchive", "cache_directory", "class_archive"]

logger = logging.getLogger(__name__)

_OFF = "STREAMRT_CLASS_ARCHIVES"
_CLAIM_S = 3_600.0
_CLAIMED = b"claimed\n"
_UNUSED_S = 30 * 24 * 3_600.0
_BASE_S = 60.0
_MAGIC = {0xF00BABA2, 0xF00BABA8}
_QUIET = ("-Xlog:cds*=off", "-Xlog:class+path*=off")
_QUIET_SINCE_24 = ("-Xlog:aot*=off",)


@dataclass(frozen=True)
class ClassArchive:
    """A JVM's use of an archive.

    Attributes:
        options: options for the command line of the JVM, before the main class.
        writes: whether the JVM writes an archive when it ends.
    """

    options: tuple[str, ...] = ()
    writes: bool = False


def cache_directory() -> Path:
    """Return the directory for StreamRT's caches: `STREAMRT_CACHE_DIR`, or a part of the user's cache directory."""
    chosen = os.environ.get("STREAMRT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamrt"


def class_archive(kind: str, java: Java, class_path: Iterable[Path | str], *, writes: bool = True) -> ClassArchive:
    """Return the use of the archive by a JVM that starts now.

    `STREAMRT_CLASS_ARCHIVES=off` turns archives off.

    Args:
        kind: kind of the JVM's program; part of the file names.
        java: the Java that runs it.
        class_path: its class path, in order; a directory name that ends with `/*` stands for the jars in it.
        writes: whether this JVM may write the archive.

    Example:
        >>> class_archive("shop", Java(Path("/nowhere/bin/java"), 17, Path("/nowhere"), full=True), [])
        ClassArchive(options=(), writes=False)
    """
    if os.environ.get(_OFF, "").lower() in ("0", "off", "false", "no"):
        return ClassArchive()
    try:
        return _class_archive(kind, java, class_path, writes=writes)
    except (OSError, subprocess.SubprocessError) as error:
        logger.debug("starting Java without a class archive: %s", error)
        return ClassArchive()


def _class_archive(kind: str, java: Java, class_path: Iterable[Path | str], *, writes: bool) -> ClassArchive:
    # Options of the environment also apply to the JVM, and may conflict with these.
    java_key = _archive_key([java.executable.resolve(), os.environ.get("JAVA_TOOL_OPTIONS", "")])
    key = _archive_key([java_key, *class_path])
    directory = cache_directory() / "classes"
    directory.mkdir(parents=True, exist_ok=True)
    quiet = _QUIET + (_QUIET_SINCE_24 if java.version >= 24 else ())
    base, archive = directory / f"java-{java_key}.jsa", directory / f"{kind}-{key}.jsa"
    _adopt_archive(archive)
    if archive.exists():
        os.utime(archive)
        used = os.pathsep.join(map(str, (*_base_options(java, base), archive)))
        return ClassArchive((f"-XX:SharedArchiveFile={used}", *quiet))
    if not writes or not _claim_archive(archive):
        return ClassArchive()
    _clean_directory(directory)
    own = [f"-XX:SharedArchiveFile={each}" for each in _base_options(java, base)]
    return ClassArchive((*own, f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}", *quiet), writes=True)


def _archive_key(parts: Iterable[Path | str]) -> str:
    """Return a key of the names, sizes and times of files: Java refuses an archive if they change."""
    digest = hashlib.sha256()
    for part in parts:
        files: Sequence[Path | str] = [part]
        if str(part).endswith(f"{os.sep}*"):
            files = sorted(Path(part).parent.glob("*.jar"))
        for file in files:
            digest.update(f"{file}\n".encode())
            if isinstance(file, Path):
                found = file.stat()
                digest.update(f"{found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _base_options(java: Java, archive: Path) -> tuple[str, ...]:
    """Return the archive of Java's base classes, created here if this Java has none; empty if Java includes one."""
    if any((java.home / "lib" / "server").glob("classes*.jsa")):
        return ()
    if not _is_whole(archive):
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch) / archive.name
            subprocess.run(  # noqa: S603 - the user's own Java
                [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={made}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_BASE_S,
                check=True,
            )
            made.replace(archive)
    os.utime(archive)
    return (str(archive),)


def _adopt_archive(archive: Path) -> None:
    """Rename an archive that a JVM has completed to its final name."""
    if archive.exists():
        return
    for made in archive.parent.glob(f"{archive.name}.*"):
        if _is_whole(made):
            made.replace(archive)
            return


def _claim_archive(archive: Path) -> bool:
    """Return whether the JVM that starts now writes the archive.

    The first JVM does not, because it may be the only one that ever uses this directory, as in a container. After a
    claim, no other JVM writes for an hour.
    """
    claim = archive.with_suffix(".claim")
    try:
        claimed = claim.read_bytes() == _CLAIMED and time.time() - claim.stat().st_mtime < _CLAIM_S
    except FileNotFoundError:
        claim.touch()
        return False
    if not claimed:
        claim.write_bytes(_CLAIMED)
    return not claimed


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return int.from_bytes(file.read(4), "little") in _MAGIC
    except FileNotFoundError:
        return False


def _clean_directory(directory: Path) -> None:
    """Delete files without recent use: archives of older versions, and files of killed JVMs."""
    now = time.time()
    for path in directory.iterdir():
        with contextlib.suppress(OSError):
            if path.is_file() and now - path.stat().st_mtime > _UNUSED_S:
                path.unlink()
