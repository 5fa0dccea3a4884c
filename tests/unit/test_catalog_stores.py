"""Stores of catalogues."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamrt.common.file_lock import FileLock
from streamrt.errors import (
    CatalogConflictError,
    CatalogError,
    ConfigurationError,
    InvalidOperationError,
    TopicConfigurationError,
    TransactionError,
)
from streamrt.kafka import KafkaError, KafkaRequestError, TopicConfig
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.records import TopicPartition
from streamrt.tables import CatalogStore, FileCatalog, KafkaCatalog, MemoryCatalog
from streamrt.tables.access.links import RecordSender
from streamrt.tables.catalogue import kafka_catalog
from streamrt.tables.catalogue.kafka_catalog import CATALOG_TOPIC
from streamrt.testing.catalogs import CatalogStoreConformance
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic

KEY = "table/shop.orders"


class TestMemoryCatalog(CatalogStoreConformance):
    """A catalogue in memory."""

    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.store = MemoryCatalog()

    def make(self) -> CatalogStore:
        return self.store


class TestFileCatalog(CatalogStoreConformance):
    """A catalogue in files."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path / "catalog"

    def make(self) -> CatalogStore:
        return FileCatalog(self.path)


class TestTopicCatalog(CatalogStoreConformance):
    """A catalogue in a topic, of memory here; tests/kafka has the same over a broker."""

    @pytest.fixture(autouse=True)
    def topics(self) -> None:
        self.links = MemoryLinks()

    def make(self) -> CatalogStore:
        return connected(self.links)


def connected(links: MemoryLinks) -> KafkaCatalog:
    store = KafkaCatalog()
    store.connect(links, 30.0)
    return store


def test_files_are_for_people_and_git(tmp_path: Path) -> None:
    store = FileCatalog(tmp_path)
    version = store.put(KEY, b'{"v":1,"n":2}', None)
    path = tmp_path / "table" / "shop.orders.json"
    assert path.read_text() == '{\n  "v": 1,\n  "n": 2\n}\n'
    # Someone edits it: that is also a change.
    path.write_text('{"v": 1, "n": 3}')
    with pytest.raises(CatalogConflictError):
        store.put(KEY, b"{}", version)
    (tmp_path / "table" / "README.txt").write_text("not an object")
    (tmp_path / "table" / ".#shop.orders.json").write_text("an editor's")
    assert list(store.list()) == [KEY]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    store = FileCatalog(tmp_path)
    store.put(KEY, b"{}", None)
    (tmp_path / "table" / "shop.orders.json").chmod(0)
    with pytest.raises(CatalogError, match=r"shop.orders.json of the catalogue cannot be read: Permission denied"):
        store.get(KEY)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="choose a shorter name"):
        FileCatalog(tmp_path).put(f"usage/{'x' * 250}", b"{}", None)


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from streamrt.tables import FileCatalog\n"
        "with FileCatalog(Path(sys.argv[1]))._hold_lock(): print('locked', flush=True); time.sleep(600)"
    )
    store = FileCatalog(tmp_path)
    store.connect(None, 0.2)
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(
                CatalogError, match=rf"could not be changed for 0.2 s, because process {holder.pid} on .* has locked it"
            ):
                store.put(KEY, b"{}", None)
            # Readers need no lock.
            assert store.list() == {}
        finally:
            holder.kill()
    store.connect(None, 30.0)
    store.put(KEY, b"{}", None)
    assert list(store.list()) == [KEY]
    store.connect(None, 0.05)
    with FileLock.acquire(tmp_path / ".lock"):
        for note, shown in ((b"", "another program"), (b"\x00\x1b[31m", "another program"), (b"me\n", "me")):
            (tmp_path / ".lock").write_bytes(note)
            with pytest.raises(CatalogError, match=f"because {shown} has locked it"):
                store.delete(KEY, "x")


def test_a_child_that_was_forked_during_a_change_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileCatalog(tmp_path)
    store.connect(None, 5.0)
    acquired = FileCatalog._acquired
    inherited: list[int] = []

    def and_inherited(self: FileCatalog, path: Path) -> FileLock:
        lock = acquired(self, path)
        # As a child has it, which is forked now: the same open file.
        inherited.append(os.dup(lock.fileno()))
        return lock

    monkeypatch.setattr(FileCatalog, "_acquired", and_inherited)
    try:
        version = store.put(KEY, b"{}", None)
        store.put(KEY, b"[]", version)
    finally:
        for descriptor in inherited:
            os.close(descriptor)


def test_a_topic_is_created_by_the_first_change_alone() -> None:
    links = MemoryLinks()
    store = connected(links)
    assert store.get(KEY) is None
    assert store.list() == {}
    assert "no topic _streamrt_catalog yet" in str(store.note)
    assert links.admin().inspect_topics([CATALOG_TOPIC]) == {CATALOG_TOPIC: None}
    store.put(KEY, b"{}", None)
    assert links.admin().inspect_topics([CATALOG_TOPIC]) == {
        CATALOG_TOPIC: TopicConfig(1, 1, {"cleanup.policy": "compact"})
    }
    assert list(store.list()) == [KEY]
    assert store.note is None


def test_a_topic_that_would_forget_is_refused() -> None:
    links = MemoryLinks()
    links.admin().create_topics([Topic(CATALOG_TOPIC, TopicConfig(1, 1, {"cleanup.policy": "delete"}))])
    with pytest.raises(TopicConfigurationError, match=r"cleanup.policy=delete, and a catalogue needs 1 partition"):
        connected(links).put(KEY, b"{}", None)


def test_a_topic_that_was_created_again_is_read_again() -> None:
    links = MemoryLinks()
    store, other = connected(links), connected(links)
    store.put(KEY, b'{"n":1}', None)
    assert other.get(KEY) is not None
    links.admin().delete_topics([CATALOG_TOPIC])
    assert other.get(KEY) is None
    store.put("database/a", b"{}", None)
    store.put("database/b", b"{}", None)
    assert list(other.list()) == ["database/a", "database/b"]


def test_records_that_are_no_objects_are_passed_over() -> None:
    links = MemoryLinks()
    store = connected(links)
    store.put(KEY, b"{}", None)
    sender = links.sender()
    sender.produce(CATALOG_TOPIC, b"x", None)
    sender.produce(CATALOG_TOPIC, b"x", b"\xff\xfe")
    assert KEY in store.list()
    assert list(store.list("table/")) == [KEY]


def test_records_of_aborted_changes_are_not_seen() -> None:
    links = MemoryLinks()
    store = connected(links)
    store.put(KEY, b'{"n":1}', None)
    sender = links.sender(transactional_id="someone")
    sender.produce(CATALOG_TOPIC, b'{"n":2}', KEY.encode())
    sender.abort()
    stored = store.get(KEY)
    assert stored is not None
    assert stored.value == b'{"n":1}'


def test_a_reader_without_rights_sees_an_empty_catalogue_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    links = MemoryLinks()
    connected(links).put(KEY, b"{}", None)
    store = connected(links)
    admin = links.admin()

    def refuse(*_: object) -> None:
        raise KafkaRequestError("not authorized", KafkaError.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(admin, "topic_ids", refuse)
    monkeypatch.setattr(links, "admin", lambda: admin)
    assert store.list() == {}
    assert store.note == "this user may not read the topic _streamrt_catalog of the catalogue: grant READ and DESCRIBE"


def test_a_store_in_kafka_needs_a_cluster() -> None:
    with pytest.raises(InvalidOperationError, match="needs the address of a broker"):
        KafkaCatalog().connect(None, 30.0)
    with pytest.raises(InvalidOperationError, match="is not connected"):
        KafkaCatalog().get(KEY)
    store = connected(MemoryLinks())
    with pytest.raises(InvalidOperationError, match="belongs to another Catalog"):
        store.connect(MemoryLinks(), 30.0)
    store.close()
    store.connect(MemoryLinks(), 30.0)
    assert store.list() == {}


class _Interfering(MemoryLinks):
    """Topics in memory, in which something happens at a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.at_commit: list[Callable[[RecordSender], None]] = []

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        made = super().sender(options, transactional_id)
        commit = made.commit

        def committing() -> None:
            if self.at_commit:
                self.at_commit.pop()(made)
            commit()

        made.commit = committing  # type: ignore[method-assign]
        return made


def test_a_change_between_the_look_and_the_commit_is_not_overwritten() -> None:
    links = _Interfering()
    store, other = connected(links), connected(links)
    version = store.put(KEY, b'{"n":1}', None)
    # It is fenced by a change of the same object, and loses.
    links.at_commit = [lambda _: void(other.put(KEY, b'{"n":2}', version))]
    with pytest.raises(CatalogConflictError):
        store.put(KEY, b'{"n":3}', version)
    stored = store.get(KEY)
    assert stored is not None
    assert stored.value == b'{"n":2}'
    # By a change of another object, it is not held up.
    links.at_commit = [lambda _: void(other.put("database/a", b"{}", None))]
    assert store.put(KEY, b'{"n":3}', stored.version) != stored.version
    assert {key: each.value for key, each in store.list().items()} == {KEY: b'{"n":3}', "database/a": b"{}"}


def test_a_commit_whose_answer_was_lost_counts_once() -> None:
    links = _Interfering()
    store = connected(links)

    def lose_the_answer(sender: RecordSender) -> None:
        type(sender).commit(sender)
        raise TransactionError("the outcome is not known")

    links.at_commit = [lose_the_answer]
    version = store.put(KEY, b'{"n":1}', None)
    links.at_commit = [lose_the_answer]
    second = store.put(KEY, b'{"n":2}', version)
    links.at_commit = [lose_the_answer]
    store.delete(KEY, second)
    assert store.get(KEY) is None
    values = [value for _, batch in everything(links) for value in batch.values]
    assert values == [b'{"n":1}', b'{"n":2}', None]


def test_a_writer_that_died_holds_readers_up_for_a_moment_and_writers_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_catalog, "_OPEN_TRANSACTION_S", 0.05)
    links = MemoryLinks()
    store = connected(links)
    version = store.put(KEY, b'{"n":1}', None)
    died = links.sender(transactional_id="streamrt.catalog")
    died.produce(CATALOG_TOPIC, b'{"n":9}', KEY.encode(), partition=0)
    stored = connected(links).get(KEY)
    assert stored is not None
    assert stored.value == b'{"n":1}'
    store.put(KEY, b'{"n":2}', version)
    assert [each.value for each in connected(links).list().values()] == [b'{"n":2}']


def test_a_change_that_was_interrupted_is_not_in_the_next_one() -> None:
    links = _Interfering()
    store = connected(links)
    version = store.put(KEY, b'{"n":1}', None)

    def interrupt(_: RecordSender) -> None:
        raise KeyboardInterrupt

    links.at_commit = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        store.put(KEY, b'{"n":2}', version)
    store.put("database/a", b"{}", None)
    assert {key: each.value for key, each in store.list().items()} == {KEY: b'{"n":1}', "database/a": b"{}"}


def everything(links: MemoryLinks) -> list[tuple[TopicPartition, InputBatch]]:
    feed = links.feed()
    feed.add({TopicPartition(CATALOG_TOPIC, 0): 0})
    feed.resume([TopicPartition(CATALOG_TOPIC, 0)])
    return feed.poll(0, 100)


def void(_: object) -> None:
    """Drop a result."""
