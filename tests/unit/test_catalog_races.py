"""Programs that change a catalogue at once, topics of catalogues that are not as they should be, and brokers that go away."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import (
    CatalogConflictError,
    CatalogError,
    ProducerError,
    TableExistsError,
    TableNotFoundError,
    TopicConfigurationError,
    TransactionError,
)
from streamrt.kafka import KafkaError, KafkaRequestError, TopicConfig
from streamrt.records import TopicPartition
from streamrt.tables import CatalogStore, KafkaCatalog, MemoryCatalog
from streamrt.tables.access.links import RecordSender
from streamrt.tables.catalogue import kafka_catalog
from streamrt.tables.catalogue.kafka_catalog import CATALOG_TOPIC
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic

KEY = "table/shop.orders"


class _Racing(MemoryCatalog):
    """A catalogue in memory in which another program does something before a change."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        self._act()
        return super().put(key, value, expected)

    def delete(self, key: str, expected: str) -> None:
        self._act()
        super().delete(key, expected)

    def _act(self) -> None:
        actions, self.before = self.before, []
        for act in actions:
            act()


@pytest.fixture
def store() -> _Racing:
    return _Racing()


def test_of_two_programs_that_create_a_table_one_wins(store: _Racing) -> None:
    links = MemoryLinks()
    one, other = Catalog(store=store, links=links), Catalog(store=store, links=links)
    store.before = [lambda: other.create_table("a", "id INT", num_partitions=2)]
    with pytest.raises(TableExistsError, match=r"'default.a' exists already"):
        one.create_table("a", "name STRING", num_partitions=3)
    assert one.table("a").schema.names == ("id",)
    store.before = [lambda: other.create_table("b", "id INT")]
    assert one.create_table("b", "name STRING", if_exists="ignore").schema.names == ("id",)
    store.before = [lambda: other.create_table("c", "id INT")]
    assert one.create_table("c", "name STRING", if_exists="replace").schema.names == ("name",)
    store.before = [lambda: other.alter_table("c", comment="x")]
    assert one.create_table("c", "id2 INT", if_exists="replace").schema.names == ("id2",)
    store.before = [lambda: other.drop_table("c")]
    assert one.create_table("c", "id3 INT", if_exists="replace").schema.names == ("id3",)
    assert one.table("c").schema.names == ("id3",)


def test_of_a_drop_and_a_change_one_wins(store: _Racing) -> None:
    one, other = Catalog(store=store), Catalog(store=store)
    one.create_table("a", "id INT")
    store.before = [lambda: other.alter_table("a", comment="x")]
    with pytest.raises(CatalogConflictError, match="read it again"):
        one.drop_table("a")
    assert one.load("a").comment == "x"
    store.before = [lambda: other.drop_table("a")]
    with pytest.raises(TableNotFoundError):
        one.alter_table("a", comment="y")


def test_a_topic_that_another_program_created_meanwhile_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    links = MemoryLinks()
    catalog = Catalog(store=MemoryCatalog(), links=links)
    admin = links.admin()
    create = admin.create_topics

    def after_another(topics: Any, *times: float) -> None:
        create([Topic("default.a", TopicConfig(1, 1, {"cleanup.policy": "delete"}))])
        create(topics, *times)

    monkeypatch.setattr(admin, "create_topics", after_another)
    monkeypatch.setattr(links, "admin", lambda: admin)
    with pytest.raises(TopicConfigurationError, match="would lose rows of the primary-key table"):
        catalog.create_table("a", "id INT, PRIMARY KEY (id)")
    assert catalog.tables() == []


# -- The topic ---------------------------------------------------------------------------------------------------------


class _Links(MemoryLinks):
    """Topics in memory, whose administration fails as it is told to, and in which something happens at a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.at_commit: list[Callable[[RecordSender], object]] = []
        self.failures: dict[str, Exception] = {}

    def admin(self) -> Any:
        return _Admin(super().admin(), self.failures)

    def sender(self, *arguments: Any, **options: Any) -> RecordSender:
        if "sender" in self.failures:
            raise self.failures["sender"]
        made = super().sender(*arguments, **options)
        commit = made.commit

        def committing() -> None:
            if self.at_commit:
                self.at_commit.pop(0)(made)
            commit()

        made.commit = committing  # type: ignore[method-assign]
        return made


class _Admin:
    def __init__(self, admin: Any, failures: dict[str, Exception]) -> None:
        self._admin = admin
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        if name in self._failures:
            raise self._failures[name]
        return getattr(self._admin, name)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> _Links:
    # Pauses between attempts.
    monkeypatch.setattr(kafka_catalog, "_RETRY_S", 0.01)
    return _Links()


def connected(links: MemoryLinks) -> KafkaCatalog:
    store = KafkaCatalog()
    store.connect(links, 30.0)
    return store


def denied(what: str = "no right") -> KafkaRequestError:
    return KafkaRequestError(what, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    "config", [TopicConfig(3, 1, {"cleanup.policy": "compact"}), TopicConfig(1, 1, {"cleanup.policy": "delete"})]
)
def test_readers_of_a_topic_that_may_have_lost_objects_say_so(
    links: _Links, config: TopicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    links.admin().create_topics([Topic(CATALOG_TOPIC, config)])
    catalog = Catalog(links=links)
    message = r"a catalogue needs 1 partition and cleanup.policy=compact"
    with caplog.at_level(logging.WARNING, "streamrt.tables"), pytest.raises(TableNotFoundError, match=message):
        catalog.table("shop.orders")
    assert caplog.text.count("Objects of the catalogue may be missing: topic _streamrt_catalog has") == 1
    store = connected(links)
    with pytest.raises(TopicConfigurationError, match="change the topic, or choose another one"):
        store.put(KEY, b"{}", None)
    if config.num_partitions == 1:
        # Once it is mended, it is used.
        links.admin().change_settings(CATALOG_TOPIC, {"cleanup.policy": "compact"})
        store.put(KEY, b"{}", None)


def test_a_topic_whose_settings_may_not_be_seen_is_used(links: _Links) -> None:
    connected(links).put(KEY, b"{}", None)
    links.failures["inspect_topics"] = denied()
    store = connected(links)
    assert list(store.list()) == [KEY]
    store.put("database/a", b"{}", None)


@pytest.mark.parametrize("call", ["topic_ids", "offset_bounds"])
def test_a_writer_that_may_not_read_overwrites_nothing(links: _Links, call: str) -> None:
    connected(links).put(KEY, b'{"n":1}', None)
    store = connected(links)
    links.failures[call] = denied()
    message = "grant READ and DESCRIBE, without which objects would be overwritten unseen"
    with pytest.raises(CatalogError, match=message):
        store.put(KEY, b'{"n":2}', None)
    assert store.list() == {}
    links.failures.clear()
    assert [each.value for each in connected(links).list().values()] == [b'{"n":1}']


def test_the_version_of_a_former_topic_fits_nothing_in_a_new_one(links: _Links) -> None:
    store = connected(links)
    version = store.put(KEY, b'{"n":1}', None)
    links.admin().delete_topics([CATALOG_TOPIC])
    other = connected(links)
    # At the same offset.
    assert other.put(KEY, b'{"n":2}', None).split("@")[0] == version.split("@")[0]
    with pytest.raises(CatalogConflictError):
        store.put(KEY, b'{"n":3}', version)


def test_a_topic_that_is_deleted_during_a_change_is_no_success(links: _Links) -> None:
    store = connected(links)
    store.put(KEY, b'{"n":1}', None)
    version = store.get(KEY)
    assert version is not None
    original = links.sender

    def delete_then_send(*arguments: Any, **options: Any) -> RecordSender:
        links.admin().delete_topics([CATALOG_TOPIC])
        return original(*arguments, **options)

    store._drop_sender()
    links.sender = delete_then_send  # type: ignore[method-assign]
    with pytest.raises(CatalogConflictError):
        store.put(KEY, b'{"n":2}', version.version)


def test_tombstones_and_records_that_were_compacted_away_are_followed(links: _Links) -> None:
    store, reader = connected(links), connected(links)
    version = store.put(KEY, b"{}", None)
    assert reader.get(KEY) is not None
    store.delete(KEY, version)
    store.put("database/a", b"{}", None)
    # The log was cut below what the reader knows, tombstone included.
    end = links.admin().offset_bounds([TopicPartition(CATALOG_TOPIC, 0)])[TopicPartition(CATALOG_TOPIC, 0)][1]
    links.admin().delete_records({TopicPartition(CATALOG_TOPIC, 0): end - 2})
    assert list(reader.list()) == ["database/a"]


# -- Brokers that go away ----------------------------------------------------------------------------------------------


def lose_the_answer(sender: RecordSender) -> None:
    type(sender).commit(sender)
    raise TransactionError("the brokers did not answer")


def lose_the_request(sender: RecordSender) -> None:
    raise TransactionError("the brokers did not answer")


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("call", ["topic_ids", "sender"])
def test_a_change_whose_outcome_is_not_known_says_so(links: _Links, is_committed: bool, call: str) -> None:
    store = connected(links)
    version = store.put(KEY, b'{"n":1}', None)
    gone = KafkaRequestError("no broker answers") if call == "topic_ids" else TransactionError("no broker answers")

    def go_away(sender: RecordSender) -> None:
        links.failures.update({call: gone, "topic_ids": KafkaRequestError("no broker answers")})
        (lose_the_answer if is_committed else lose_the_request)(sender)

    links.at_commit = [go_away]
    with pytest.raises(
        CatalogError,
        match=r"^it is not known whether table 'shop.orders' was changed, .*: read it when they answer again",
    ) as caught:
        store.put(KEY, b'{"n":2}', version)
    assert not isinstance(caught.value, CatalogConflictError)
    links.failures.clear()
    stored = store.get(KEY)
    assert stored is not None
    assert stored.value == (b'{"n":2}' if is_committed else b'{"n":1}')


def test_brokers_that_go_away_after_the_commit_change_nothing(links: _Links) -> None:
    store = connected(links)

    def commit_and_go_away(sender: RecordSender) -> None:
        type(sender).commit(sender)
        links.failures["topic_ids"] = KafkaRequestError("no broker answers")

    links.at_commit = [commit_and_go_away]
    version = store.put(KEY, b'{"n":1}', None)
    links.failures.clear()
    stored = store.get(KEY)
    assert stored is not None
    assert stored.version == version


def test_brokers_that_go_away_before_the_commit_leave_the_object(links: _Links) -> None:
    store = connected(links)
    version = store.put(KEY, b'{"n":1}', None)
    store._drop_sender()
    links.failures["sender"] = TransactionError("no broker answers")
    with pytest.raises(CatalogError, match="could not be changed: no broker answers"):
        store.put(KEY, b'{"n":2}', version)


def test_a_record_that_brokers_refuse_is_tried_once(links: _Links, monkeypatch: pytest.MonkeyPatch) -> None:
    store: CatalogStore = connected(links)
    store.put(KEY, b"{}", None)
    tries: list[int] = []
    made = links.sender(transactional_id="streamrt.catalog")

    def refuse(*_: Any, **options: Any) -> None:
        tries.append(1)
        raise ProducerError("the record is too large for topic _streamrt_catalog", refused=True)

    monkeypatch.setattr(made, "produce", refuse)
    monkeypatch.setattr(links, "sender", lambda *_, **__: made)
    with pytest.raises(CatalogError, match="could not be changed: the record is too large"):
        store.put("database/a", b"{}", None)
    assert len(tries) == 1
