"""Checks of `streamrt doctor` on this machine: Python, packages, Java, jars and the state directory."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from streamrt.cli.diagnosis.findings import Finding, ok, problem, warning
from streamrt.config import names_processes
from streamrt.errors import JarError, JavaNotFoundError
from streamrt.extras import install_command

__all__ = ["check_machine"]

_OLDEST_PYTHON = (3, 10)
_NEWEST_PYTHON = (3, 13)
"""The newest version that the tests run with."""
_LOW_BYTES = 5 * 2**30
_TOO_LOW_BYTES = 500 * 2**20
_REMOTE = frozenset({"9p", "ceph", "cifs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"})
_WITHOUT_SPARK = "not needed: STREAMRT_SPARK_MASTER names processes, which run without Spark"


def check_machine(state_dir: Path) -> Iterator[Finding]:
    """Yield what the checks of this machine find.

    Args:
        state_dir: the state directory of applications.
    """
    yield _check_python()
    yield _check_system()
    yield from _check_packages()
    yield _check_java()
    yield _check_jars()
    yield from _state_directory(state_dir.absolute())


def _check_python() -> Finding:
    version = platform.python_version()
    found = f"{platform.python_implementation()} {version} in {sys.prefix}"
    if platform.python_implementation() != "CPython" or sys.version_info[:2] < _OLDEST_PYTHON:
        return problem("Python", found, "use CPython 3.10 or newer")
    if sys.version_info[:2] > _NEWEST_PYTHON:
        newest = ".".join(map(str, _NEWEST_PYTHON))
        return warning(
            "Python", found, f"the tests of StreamRT run with 3.10 to {newest}: prefer one of these versions"
        )
    return ok("Python", found)


def _check_system() -> Finding:
    found = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if platform.system() != "Linux":
        return warning("system", found, "StreamRT is tested on Linux alone: use a container for production")
    return ok("system", found)


def _check_packages() -> Iterator[Finding]:
    try:
        own = importlib.metadata.distribution("streamrt")
    except importlib.metadata.PackageNotFoundError:
        yield warning("StreamRT", "run from a source tree that is not installed", "pip install . in the source tree")
        return
    yield ok("StreamRT", own.version)
    versions: dict[str, str] = {}
    wrong: list[str] = []
    for requirement in map(Requirement, own.requires or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            versions[requirement.name] = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(versions[requirement.name], prereleases=True):
            wrong.append(f"{requirement.name} is {versions[requirement.name]}, but must be {requirement.specifier}")
    if wrong:
        yield problem("packages", "; ".join(wrong), "pip install --force-reinstall streamrt, in an empty environment")
    else:
        shown = ("pyspark", "confluent-kafka", "pyarrow", "rocksdict")
        yield ok("packages", ", ".join(f"{name} {versions[name]}" for name in shown if name in versions))


def _check_java() -> Finding:
    from streamrt.jvm.java import find_java

    try:
        java = find_java()
    except JavaNotFoundError as error:
        if names_processes(os.environ):
            return ok("Java", f"not found, and {_WITHOUT_SPARK}")
        return problem("Java", str(error), f"{install_command('local')}, or install a JDK and set JAVA_HOME to it")
    return ok("Java", f"{java.version} in {java.home}")


def _check_jars() -> Finding:
    from streamrt.jvm.jars import locked_jars, missing_jars

    try:
        missing = missing_jars("spark")
        # Only development and tests need those of the embedded broker.
        missing_broker = missing_jars("kafka")
    except JarError as error:
        return problem("jars", str(error), "streamrt jars --directory DIR, and set STREAMRT_JARS_DIR to it")
    if missing and names_processes(os.environ):
        return ok("jars", f"those of Spark are not here, and {_WITHOUT_SPARK}")
    if missing:
        size = sum(jar.size for jar in missing) / 1e6
        return warning(
            "jars",
            f"{len(missing)} of {len(locked_jars('spark'))} libraries for Spark are not on this machine ({size:.0f} MB)",
            "streamrt jars downloads them; otherwise the first start does, and needs a network",
        )
    if missing_broker:
        return ok("jars", "those of Spark are here; those of the embedded broker are downloaded at its first start")
    return ok("jars", "those of Spark and of the embedded broker are here, with the right checksums")


def _state_directory(directory: Path) -> Iterator[Finding]:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "state directory",
            f"{existing} cannot be written by the user of this process",
            "set STREAMRT_STATE_DIR to a directory that it can write, on a local disk",
        )
        return
    kind = _file_system(existing)
    if kind in _REMOTE:
        yield problem(
            "state directory",
            f"{directory} is on a file system of type {kind}, where locks and stores do not work reliably",
            "set STREAMRT_STATE_DIR to a directory on a local disk",
        )
    free = shutil.disk_usage(existing).free
    found = f"{free / 2**30:.1f} GiB are free for {directory}"
    remedy = "free some space, or set STREAMRT_STATE_DIR to a directory on a larger disk"
    if free < _TOO_LOW_BYTES:
        yield problem("disk space", found, remedy)
    elif free < _LOW_BYTES:
        yield warning("disk space", found, remedy)
    else:
        yield ok("disk space", found)


def _file_system(directory: Path) -> str | None:
    """Return the type of the file system that a directory is on, as Linux names it."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    resolved = directory.resolve()
    deepest, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # The kernel writes a space in a path as \040.
        point = Path(fields[1].replace("\\040", " "))
        # Of two mounts at the same place, the later one hides the earlier one.
        if resolved.is_relative_to(point) and len(point.parts) >= deepest:
            deepest, kind = len(point.parts), fields[2]
    return kind
