"""Archives of classes: who makes them, who uses them, and what a change of Java or of its libraries does."""

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamrt.jvm.archive import ClassArchive, cache_directory, class_archive
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import Java, find_java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMRT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("STREAMRT_CLASS_ARCHIVES", raising=False)
    return tmp_path / "cache" / "classes"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "library.jar"
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("nothing", "")
    return path


def own_java(tmp_path: Path) -> Java:
    """Return a file that looks like a Java with an archive of its own classes; it is not run."""
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "bin").mkdir()
    (home / "bin" / "java").touch()
    return Java(home / "bin" / "java", 17, home, full=True)


def second(kind: str, java: Java, class_path: Sequence[Path | str]) -> ClassArchive:
    """Return what the second JVM of a kind does."""
    assert class_archive(kind, java, class_path) == ClassArchive(), (
        "it may be the only one that ever sees this directory"
    )
    return class_archive(kind, java, class_path)


def written_to(archive: ClassArchive) -> Path:
    (path,) = (option.partition("=")[2] for option in archive.options if "ArchiveClassesAtExit" in option)
    return Path(path)


def finish(path: Path) -> None:
    path.write_bytes((0xF00BABA8).to_bytes(4, "little") + b"classes")


def test_java_writes_an_archive_when_it_ends_and_uses_it_then(tmp_path: Path) -> None:
    java, jars, log = find_java(), fetch_jars("kafka"), tmp_path / "loaded"

    def run(archive: ClassArchive) -> str:
        command = [str(java.executable), "-cp", os.pathsep.join(map(str, jars)), *archive.options]
        command += [f"-Xlog:class+load:file={log}", "kafka.tools.StorageTool", "random-uuid"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len(done.stdout.split()) == 1
        assert "cds" not in done.stderr
        return log.read_text()

    first = second("test", java, jars)
    assert first.writes
    run(first)
    used = class_archive("test", java, jars)
    assert not used.writes
    assert "kafka.tools.StorageTool$ source: shared objects file (top)" in run(used)


def test_one_process_makes_an_archive_and_the_others_wait_for_nothing(tmp_path: Path, jar: Path, cache: Path) -> None:
    java = own_java(tmp_path)
    first = second("spark", java, [jar])
    assert first.writes
    assert class_archive("spark", java, [jar]) == ClassArchive()
    assert second("kafka", java, [jar]).writes, "each kind has its own"
    # Java writes the header last.
    made = written_to(first)
    made.write_bytes(bytes(4) + b"classes")
    assert class_archive("spark", java, [jar]) == ClassArchive()
    finish(made)
    found = class_archive("spark", java, [jar])
    assert not found.writes
    assert f"-XX:SharedArchiveFile={made.with_suffix('')}" in found.options
    assert not made.exists()


def test_a_claim_of_which_nothing_came_is_void_after_a_while(tmp_path: Path, jar: Path, cache: Path) -> None:
    java = own_java(tmp_path)
    second("spark", java, [jar])
    (claim,) = cache.glob("*.claim")
    long_ago = time.time() - 3 * 3_600
    os.utime(claim, (long_ago, long_ago))
    assert class_archive("spark", java, [jar], writes=False) == ClassArchive()
    assert class_archive("spark", java, [jar]).writes


@pytest.mark.parametrize("what", ["the library", "another library", "Java", "JAVA_TOOL_OPTIONS", "a directory"])
def test_other_classes_need_another_archive(
    tmp_path: Path, jar: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = own_java(tmp_path)
    directory = f"{tmp_path}/jars/*"
    (tmp_path / "jars").mkdir()
    class_path: list[Path | str] = [directory, jar]
    finish(written_to(second("spark", java, class_path)))
    used = class_archive("spark", java, class_path)
    assert used.options
    if what == "the library":
        jar.write_bytes(jar.read_bytes() + b"\0")
    elif what == "another library":
        class_path = [directory, jar, java.executable]
    elif what == "Java":
        java.executable.write_text("another")
    elif what == "a directory":
        (tmp_path / "jars" / "more.jar").touch()
    else:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dx=y")
    assert second("spark", java, class_path).writes


def test_what_was_not_used_for_long_is_deleted(tmp_path: Path, jar: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    month = 31 * 24 * 3_600
    for name, age in (("old.jsa", month), ("new.jsa", 0)):
        (cache / name).touch()
        os.utime(cache / name, (time.time() - age,) * 2)
    second("spark", own_java(tmp_path), [jar])
    assert [path.name for path in cache.glob("*.jsa")] == ["new.jsa"]


@pytest.mark.parametrize("off", ["off", "0", "False"])
def test_it_can_be_turned_off(tmp_path: Path, jar: Path, off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_CLASS_ARCHIVES", off)
    assert class_archive("spark", own_java(tmp_path), [jar]) == ClassArchive()


def test_where_nothing_can_be_kept_java_starts_as_ever(
    tmp_path: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = own_java(tmp_path)
    monkeypatch.setenv("STREAMRT_CACHE_DIR", str(jar))
    assert class_archive("spark", java, [jar]) == ClassArchive()
    monkeypatch.setenv("STREAMRT_CACHE_DIR", str(tmp_path / "cache"))
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert class_archive("spark", java, [jar]) == ClassArchive(), (
        "a Java that cannot be run makes none of its own classes"
    )


def test_the_cache_is_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_directory() == Path("/caches/streamrt")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "streamrt"


def test_the_process_that_workers_are_forked_from_has_one_thread() -> None:
    """Threads do not survive a fork, and locks that they hold stay held."""
    code = """
import os, streamrt.spark.workers.daemon
from streamrt.state.rocksdb import load_rocksdb
load_rocksdb()
import sys
print(len(os.listdir("/proc/self/task")), sorted({"numpy", "pyarrow"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "1 []"
