"""Checks at the start: an application that would go on with wrong state refuses, in one sentence."""

import json
import shutil
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from streamrt import Application
from streamrt.connectors import SparkSink
from streamrt.errors import (
    ChangelogError,
    ConfigurationError,
    StateError,
    StoreVersionError,
    TopicConfigurationError,
)
from streamrt.kafka import Producer, TopicConfig
from streamrt.models import TopicPartition
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory, group_directory
from streamrt.state import RocksDBStore, Stamp
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.topics import Topic
from tests.spark.stateful import (
    GUARANTEES,
    Counts,
    admin_client,
    changelog,
    count,
    counting,
    counts,
    feed,
    refused,
    set_offset,
)
from tests.support import Kafka, unique, wait_until

pytestmark = [
    pytest.mark.usefixtures("processing_mode"),
    pytest.mark.only_mode(
        "resident", reason="a start checks before its mode begins; make test-long runs both", always=False
    ),
    pytest.mark.spark,
    pytest.mark.slow,
]


@dataclass
class Shop:
    """An application that counts, with what it has done so far."""

    kafka: Kafka
    source: str
    group: str
    settings: dict[str, Any]

    @classmethod
    def opened(cls, kafka: Kafka, keys: str = "aab", **settings: Any) -> "Shop":
        """Return an application that has counted some keys already."""
        shop = cls(kafka, kafka.topic("in"), unique("shop"), settings)
        feed(kafka, shop.source, keys)
        assert len(shop.run()) == len(keys)
        return shop

    @property
    def changelog(self) -> str:
        return changelog(self.group, self.source)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.source, 0)

    def app(self, **settings: Any) -> Application:
        return counting(self.kafka, self.group, self.source, **{**self.settings, **settings})

    def run(self) -> Counts:
        return counts(self.app())

    def feed(self, keys: str) -> None:
        feed(self.kafka, self.source, keys)

    def refuses(self, error: type[Any], *words: str, **settings: Any) -> str:
        """Assert that a run is refused and leaves everything as it was."""
        before = self.kafka.committed(self.group, self.source)
        message = refused(self.app(**settings), error, *words)
        # Where nothing was committed, the offset to begin with may be.
        assert (self.kafka.committed(self.group, self.source) or 0) == (before or 0)
        return message


def remake(kafka: Kafka, topic: str, config: dict[str, str] | None = None) -> None:
    """Delete a topic and make it again."""
    kafka.admin.delete_topics([topic])
    wait_until(lambda: kafka.admin.topic_ids([topic])[topic] is None, what="the deletion")
    kafka.admin.create_topics([Topic(topic, TopicConfig(1, 1, config or {}))])


def set_policy(kafka: Kafka, topic: str, policy: str) -> None:
    """Set the cleanup.policy of a topic."""
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_client(kafka)
    admin.incremental_alter_configs([resource])[resource].result(20)


# -- Topics that are not what they were -----------------------------------------------------------------------------


def test_another_number_of_partitions_is_refused_as_keys_move_away_from_their_state(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    admin = admin_client(kafka)
    admin.create_partitions([NewPartitions(shop.source, 2)])[shop.source].result(20)
    wait_until(lambda: len(kafka.admin.list_topics()[shop.source].partitions) == 2, what="the new partition")
    words = (shop.changelog, "1 partition", "2 partitions", "consumer_group")
    shop.refuses(TopicConfigurationError, shop.source, *words)
    # Giving the changelog more partitions as well has not moved any key: local state knows, and so does the changelog.
    admin.create_partitions([NewPartitions(shop.changelog, 2)])[shop.changelog].result(20)
    wait_until(lambda: len(kafka.admin.list_topics()[shop.changelog].partitions) == 2, what="the new partition")
    shop.feed("a")
    for _ in range(2):
        shop.refuses(StateError, "'default'", shop.source, "1 partition", "2 partitions", "consumer_group")
        shop.app().clear_state()


def test_an_input_topic_that_was_made_anew_is_refused_until_the_state_is_given_up(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    remake(kafka, shop.source)
    shop.feed("ab")
    for _ in range(2):
        shop.refuses(ChangelogError, f"'default' of {shop.source}[0]", "created again", "delete the changelog topic")
        shop.app().clear_state()
    # What the sentence advises.
    kafka.admin.delete_topics([shop.changelog])
    assert shop.run() == [("a", 1), ("b", 1)]


@pytest.mark.rows("FE-056", "FE-123")
def test_a_missing_changelog_is_refused(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    kafka.admin.delete_topics([shop.changelog])
    wait_until(lambda: kafka.admin.topic_ids([shop.changelog])[shop.changelog] is None, what="the deletion")
    shop.refuses(ChangelogError, shop.changelog, f"{shop.source}[0]", "missing", "consumer_group")
    assert kafka.admin.topic_ids([shop.changelog])[shop.changelog] is None, "it is not made anew"


def test_a_changelog_that_was_made_anew_is_refused(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    remake(kafka, shop.changelog, {"cleanup.policy": "compact"})
    for _ in range(2):
        shop.refuses(
            ChangelogError, shop.changelog, f"{shop.source}[0]", "'default'", "created again", "consumer_group"
        )
        shop.app().clear_state()


def test_a_changelog_without_its_first_records_serves_only_those_who_need_them_no_more(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    # Brokers refuse to delete records of a topic that is only compacted, so it takes somebody who is in earnest.
    set_policy(kafka, shop.changelog, "delete")
    kafka.admin.delete_records({TopicPartition(shop.changelog, 0): 2})
    set_policy(kafka, shop.changelog, "compact")
    shop.feed("a")
    assert shop.run() == [("a", 3)], "the local state is complete"
    shop.app().clear_state()
    shop.feed("a")
    shop.refuses(ChangelogError, f"{shop.changelog}[0]", f"{shop.source}[0]", "below offset 2", "consumer_group")


def test_a_changelog_whose_policy_deletes_state_is_refused(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    set_policy(kafka, shop.changelog, "delete")
    shop.refuses(TopicConfigurationError, shop.changelog, "cleanup.policy=delete", "compact")


# -- State of others, and of other versions ------------------------------------------------------------------------


def test_a_state_directory_of_others_is_refused(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    path = group_directory(kafka.state_dir, shop.group) / "owner.json"
    mine = json.loads(path.read_text())
    for changed, error, words in (
        ({"group": "theirs"}, StateError, ("'theirs'", "state_dir")),
        ({"cluster": "elsewhere"}, StateError, ("'elsewhere'", "state_dir")),
        ({"format": 99}, StoreVersionError, ("format 99", "upgrade StreamRT")),
    ):
        path.write_text(json.dumps({**mine, **changed}))
        shop.refuses(error, str(path.parent), *words)
    path.write_text(json.dumps(mine))
    shop.feed("a")
    assert shop.run() == [("a", 3)]


def test_a_second_instance_beside_the_first_one_has_files_of_its_own(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    first = StateDirectory.acquire(kafka.state_dir, shop.group, kafka.admin.cluster_id())
    try:
        assert first.number == 0
        shop.feed("ab")
        assert shop.run() == [("a", 3), ("b", 2)], "restored from the changelog"
        assert (group_directory(kafka.state_dir, shop.group) / "1").is_dir()
    finally:
        first.release()
    shop.feed("ab")
    assert shop.run() == [("a", 4), ("b", 3)], "the first copy's files have caught up"


def test_state_of_a_newer_version_is_refused(kafka: Kafka) -> None:
    class NewerStamp(Stamp):
        def encode(self) -> bytes:
            return super().encode().replace(b'"v":4', b'"v":9')

    shop = Shop.opened(kafka)
    shop.feed("a")
    with Producer(kafka.address) as producer:
        newer = Position(3, None, 1, None).encode().replace(b'"v":1', b'"v":9')
        producer.produce(shop.changelog, newer, key=POSITION_KEY, partition=0)
    shop.refuses(StoreVersionError, "position record", "version 9", "upgrade StreamRT")
    other = Shop.opened(kafka)
    other.feed("a")
    base = group_directory(kafka.state_dir, other.group) / "0"
    partition = RocksDBStore("default", other.source, base).open(0)
    assert partition.stamp is not None
    partition.write((), NewerStamp(**vars(partition.stamp)))
    partition.close()
    other.refuses(StoreVersionError, "stamp", "version 9", "upgrade StreamRT")


# -- Offsets that do not fit ------------------------------------------------------------------------------------------


def test_offsets_set_back_are_refused_where_records_must_not_count_twice(kafka: Kafka) -> None:
    shop = Shop.opened(kafka, processing_guarantee="exactly-once")
    state_at = kafka.committed(shop.group, shop.source)
    set_offset(kafka, shop.group, shop.source, 1)
    words = (f"'default' of {shop.source}[0]", f"offset {state_at}", "is at 1", "count twice")
    for _ in range(2):
        shop.refuses(ChangelogError, *words)
        shop.app().clear_state()
    assert state_at is not None
    set_offset(kafka, shop.group, shop.source, state_at)
    shop.feed("a")
    assert shop.run() == [("a", 3)], "what the sentence advises"


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_offsets_set_past_records_that_the_state_lacks_are_refused(kafka: Kafka, guarantee: str) -> None:
    shop = Shop.opened(kafka, processing_guarantee=guarantee)
    shop.feed("aaaa")
    set_offset(kafka, shop.group, shop.source, 5)
    for _ in range(2):
        shop.refuses(ChangelogError, f"'default' of {shop.source}[0]", "offset 3", "is at 5", "the state lacks")
        shop.app().clear_state()
    set_offset(kafka, shop.group, shop.source, 3)
    assert shop.run() == [("a", 3), ("a", 4), ("a", 5), ("a", 6)]


@pytest.mark.rows("FE-123")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_fault_14_a_rollback_to_a_version_with_another_store_is_refused_by_name(kafka: Kafka, guarantee: str) -> None:
    shop = Shop.opened(kafka, processing_guarantee=guarantee)
    shop.feed("aa")
    between = kafka.app(shop.group, **shop.settings)
    between.dataframe(between.topic(shop.source))
    assert len(between.run(timeout=0.5)) == 2
    shop.feed("a")
    command = f"streamrt state forget --group {shop.group} --topic {shop.source} --store default"
    shop.refuses(ChangelogError, f"'default' of {shop.source}[0]", "offset 3", "is at 5", "rollback", command)
    told = shop.app().forget_store(shop.source)
    assert f"the topic {shop.changelog}" in told
    wait_until(lambda: kafka.admin.topic_ids([shop.changelog])[shop.changelog] is None, what="the deletion")
    assert shop.run() == [("a", 1)], "the store begins where the group is"


def test_fault_18_a_renamed_grouping_with_records_in_flight_is_refused_by_name(kafka: Kafka) -> None:
    group, source = unique("shop"), kafka.topic("in", 2)

    def app(name: str) -> Application:
        made = kafka.app(group)
        made.dataframe(made.topic(source)).group_by(lambda value: value, name=name).apply(count, stateful=True)
        return made

    feed(kafka, source, "ab", None)
    assert len(app("letter").run(timeout=1)) == 2
    # What the former version had put there when it was stopped.
    left = f"repartition__{group}--{source}--letter"
    kafka.produce(left, ["c"], key=b'"c"', partition=0)
    refused(
        app("sign"),
        TopicConfigurationError,
        f"{left}[0] has unprocessed records",
        "renamed or removed",
        f"delete the topic {left}",
    )
    assert len(app("letter").run(timeout=1)) == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_group_that_kafka_has_forgotten_goes_on_where_its_state_is(kafka: Kafka, guarantee: str) -> None:
    shop = Shop.opened(kafka, processing_guarantee=guarantee)
    admin = admin_client(kafka)
    for wiped in (False, True):
        admin.delete_consumer_groups([shop.group])[shop.group].result(20)
        assert kafka.committed(shop.group, shop.source) is None
        if wiped:
            shop.app().clear_state()
        shop.feed("ab")
        assert shop.run() == ([("a", 4), ("b", 3)] if wiped else [("a", 3), ("b", 2)])
    assert kafka.committed(shop.group, shop.source) == 7


# -- What cannot be had together ---------------------------------------------------------------------------------------


def test_exactly_once_refuses_what_it_cannot_protect(kafka: Kafka, processing_mode: str) -> None:
    source, group = kafka.topic("in"), unique("shop")
    feed(kafka, source, "a")
    app = counting(kafka, group, source, processing_guarantee="exactly-once", use_changelog_topics=False)
    refused(app, ConfigurationError, "exactly-once", "use_changelog_topics=True")
    app = kafka.app(group, processing_guarantee="exactly-once")
    app.dataframe(app.topic(source)).sink(SparkSink(print))
    advice = (
        "processing_guarantee='at-least-once'" if processing_mode == "micro-batch" else "processing_mode='micro-batch'"
    )
    refused(app, ConfigurationError, "SparkSink", advice)
    assert kafka.committed(group, source) is None


def test_without_changelogs_state_lives_and_dies_with_its_directory(kafka: Kafka) -> None:
    shop = Shop.opened(kafka, use_changelog_topics=False)
    shop.feed("a")
    assert shop.run() == [("a", 3)]
    assert kafka.admin.topic_ids([shop.changelog])[shop.changelog] is None
    shop.feed("b")
    kept = kafka.state_dir.with_name("kept")
    shutil.copytree(kafka.state_dir, kept)
    shutil.rmtree(kafka.state_dir)
    words = (f"'default' of {shop.source}[0]", "use_changelog_topics=False", "bring the directory back")
    shop.refuses(StateError, *words)
    shop.refuses(StateError, *words)
    shutil.rmtree(kafka.state_dir)
    kept.rename(kafka.state_dir)
    assert shop.run() == [("b", 2)]


def test_a_second_stateful_dataframe_may_come_later(kafka: Kafka) -> None:
    shop = Shop.opened(kafka)
    other = kafka.topic("in")
    feed(kafka, other, "a")
    app = shop.app()
    app.dataframe(app.topic(other, key_deserializer="str")).apply(count, stateful=True)
    shop.feed("a")
    assert sorted(counts(app)) == [("a", 1), ("a", 3)]
