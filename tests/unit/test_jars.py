"""Java libraries are found, fetched and checked, against a Maven repository of this process."""

import hashlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args

import pytest

from streamrt.errors import JarError
from streamrt.jvm.jars import Jar, JarSet, locked_jars, provide_jars


class Server(ThreadingHTTPServer):
    # With the default, 5, connections that are made at once wait a second for their second attempt.
    request_queue_size = 64


class MavenRepository:
    """Serves files over HTTP and counts who asked for what.

    `broken` holds, by path, answers that are given once before the right one.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.broken: dict[str, list[bytes]] = {}
        self.requests: Counter[str] = Counter()
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.requests[self.path] += 1
                whole = repository.files.get(self.path)
                if whole is None:
                    self.send_error(404)
                    return
                answers = repository.broken.get(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(whole)))
                self.end_headers()
                # Shorter than announced, this is a connection that breaks down.
                self.wfile.write(answers.pop(0) if answers else whole)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, artifact: str, content: bytes) -> Jar:
        """Serve a library; return how a lock would describe it."""
        jar = Jar("org.example", artifact, "1.0", len(content), hashlib.sha256(content).hexdigest())
        self.files[self.path_of(jar)] = content
        return jar

    def path_of(self, jar: Jar) -> str:
        return f"/{jar.repository_path.as_posix()}"


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenRepository]:
    repository = MavenRepository()
    repository.thread.start()
    monkeypatch.setenv("STREAMRT_MAVEN_REPOSITORY", repository.address + "/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield repository
    repository.server.shutdown()
    repository.thread.join()
    repository.server.server_close()


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local Maven repository, empty."""
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.delenv("STREAMRT_JARS_DIR", raising=False)
    return tmp_path / "m2"


def test_missing_jars_are_fetched_once(maven: MavenRepository, local: Path, caplog: pytest.LogCaptureFixture) -> None:
    jars = [maven.add(name, name.encode() * 40_000) for name in ("alpha", "beta", "gamma", "delta", "epsilon")]
    with caplog.at_level(logging.INFO, logger="streamrt"):
        paths = provide_jars(jars, progress=False)
    assert paths == [local / jar.repository_path for jar in jars]
    assert [path.read_bytes() for path in paths] == [maven.files[maven.path_of(jar)] for jar in jars]
    assert [record.getMessage() for record in caplog.records] == ["Fetching 5 Java libraries (1.0 MB)"]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="streamrt"):
        assert provide_jars(jars, progress=False) == paths
    assert not caplog.records
    assert all(maven.requests[maven.path_of(jar)] == 1 for jar in jars)
    assert not list(local.glob(".streamrt-*")), "temporary files are left over"


def test_a_bar_is_shown_on_request(maven: MavenRepository, capsys: pytest.CaptureFixture[str]) -> None:
    provide_jars([maven.add("alpha", b"a" * 100)], progress=True)
    shown = capsys.readouterr()
    assert "Fetching 1 Java library" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "left_over", [b"", b"cut of", b"cut off", b"same 7!"], ids=["empty", "cut", "cut-by-one", "same-size"]
)
def test_a_damaged_file_is_replaced(
    maven: MavenRepository, local: Path, caplog: pytest.LogCaptureFixture, left_over: bytes
) -> None:
    jar = maven.add("alpha", b"cut off?" if left_over != b"same 7!" else b"content")
    path = local / jar.repository_path
    path.parent.mkdir(parents=True)
    path.write_bytes(left_over)
    assert provide_jars([jar]) == [path]
    assert path.read_bytes() == maven.files[maven.path_of(jar)]
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("answer", [b"half", b"wrong content"], ids=["cut", "wrong"])
def test_a_failed_download_is_repeated_once(maven: MavenRepository, answer: bytes) -> None:
    jar = maven.add("alpha", b"right content"[: len(answer)] if answer != b"half" else b"half and half")
    maven.broken[maven.path_of(jar)] = [answer]
    (path,) = provide_jars([jar])
    assert path.read_bytes() == maven.files[maven.path_of(jar)]
    assert maven.requests[maven.path_of(jar)] == 2


def test_a_wrong_checksum_is_an_error(maven: MavenRepository, local: Path) -> None:
    jar = maven.add("alpha", b"expected")
    forged = b"forged!!"
    maven.files[maven.path_of(jar)] = forged
    with pytest.raises(JarError) as caught:
        provide_jars([jar])
    message = str(caught.value)
    assert "org.example:alpha:1.0 could not be fetched" in message
    assert f"expected sha256 {jar.sha256}" in message
    assert f"found {hashlib.sha256(forged).hexdigest()}" in message
    assert "STREAMRT_JARS_DIR" in message
    assert str(local / jar.repository_path) in message
    assert not (local / jar.repository_path).exists()


def test_an_absent_jar_is_an_error(maven: MavenRepository, local: Path) -> None:
    present = maven.add("alpha", b"a")
    absent = Jar("org.example", "absent", "2.0", 1, "00")
    with pytest.raises(JarError, match=r"org\.example:absent:2\.0 could not be fetched: .*not found") as caught:
        provide_jars([present, absent])
    assert "put an intact absent-2.0.jar into the directory in STREAMRT_JARS_DIR" in str(caught.value)
    assert str(local / absent.repository_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_network_the_error_says_how_to_provide_the_jar(
    maven: MavenRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Port 1 is reserved and refuses connections.
    monkeypatch.setenv("STREAMRT_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    with pytest.raises(JarError, match="streamrt jars --directory DIR"):
        provide_jars([maven.add("alpha", b"a")])


def test_a_repository_that_cannot_be_written_is_an_error(
    maven: MavenRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("M2_REPO", str(tmp_path / "file" / "m2"))
    with pytest.raises(JarError, match=r"cannot be stored: .*set M2_REPO to a writable directory"):
        provide_jars([maven.add("alpha", b"a")])


def test_provided_jars_come_first(
    maven: MavenRepository, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta = maven.add("alpha", b"a"), maven.add("beta", b"b")
    provided = tmp_path / "jars"
    provided.mkdir()
    (provided / "alpha-1.0.jar").write_bytes(b"a")
    monkeypatch.setenv("STREAMRT_JARS_DIR", str(provided))
    assert provide_jars([alpha, beta]) == [provided / "alpha-1.0.jar", local / beta.repository_path]
    assert maven.path_of(alpha) not in maven.requests


def test_a_damaged_provided_jar_is_an_error_and_is_kept(
    maven: MavenRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = maven.add("alpha", b"good")
    (tmp_path / "alpha-1.0.jar").write_bytes(b"evil")
    monkeypatch.setenv("STREAMRT_JARS_DIR", str(tmp_path))
    with pytest.raises(JarError, match=r"alpha-1\.0\.jar, from STREAMRT_JARS_DIR, is damaged"):
        provide_jars([jar])
    assert (tmp_path / "alpha-1.0.jar").read_bytes() == b"evil"


def test_a_directory_is_filled_and_serves_offline(
    maven: MavenRepository, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, missing, damaged = (maven.add(name, name.encode()) for name in ("cached", "missing", "damaged"))
    provide_jars([cached])
    directory = tmp_path / "image" / "jars"
    directory.mkdir(parents=True)
    (directory / damaged.file_name).write_bytes(b"dam")
    paths = provide_jars([cached, missing, damaged], directory=directory)
    assert paths == [directory / jar.file_name for jar in (cached, missing, damaged)]
    assert [path.read_bytes() for path in paths] == [b"cached", b"missing", b"damaged"]
    assert sorted(path.name for path in directory.iterdir()) == sorted(path.name for path in paths)
    assert not (local / missing.repository_path).exists(), "an image needs each file once"

    monkeypatch.setenv("STREAMRT_MAVEN_REPOSITORY", "http://127.0.0.1:1")
    monkeypatch.setenv("M2_REPO", str(tmp_path / "none"))
    monkeypatch.setenv("STREAMRT_JARS_DIR", str(directory))
    assert provide_jars([cached, missing, damaged]) == paths


def test_fetching_at_the_same_time_does_no_harm(maven: MavenRepository, local: Path) -> None:
    jars = [maven.add(f"jar{number}", bytes([number]) * 50_000) for number in range(6)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: provide_jars(jars, progress=False), range(4)))
    assert results == [[local / jar.repository_path for jar in jars]] * 4
    assert [path.read_bytes() for path in results[0]] == [maven.files[maven.path_of(jar)] for jar in jars]
    assert not list(local.glob(".streamrt-*"))


def test_what_a_killed_download_left_is_removed_a_day_later(maven: MavenRepository, local: Path) -> None:
    old, new = local / ".streamrt-old", local / ".streamrt-new"
    for directory in (old, new):
        directory.mkdir(parents=True)
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    provide_jars([maven.add("alpha", b"a")])
    assert [path for path in (old, new) if path.exists()] == [new]


@pytest.mark.parametrize("set_name", get_args(JarSet))
def test_the_lock_is_complete(set_name: JarSet) -> None:
    jars = locked_jars(set_name)
    assert len({jar.file_name for jar in jars}) == len(jars), "plain names must not clash"
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in jars)
    assert len(jars) >= (1 if set_name == "registry" else 4)


def test_the_lock_has_the_tested_versions() -> None:
    coordinates = {jar.coordinates for jar in (*locked_jars("spark"), *locked_jars("kafka"))}
    assert {
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.kafka:kafka_2.13:4.4.0",
        "org.apache.kafka:kafka-clients:4.4.0",
    } <= coordinates


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match="spark, kafka"):
        locked_jars("flink")  # type: ignore[arg-type]
