"""Repartition and changelog topics: names, settings, creation and what is refused."""

import logging
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, InvalidOperationError, TopicConfigurationError, TopicNotFoundError
from streamrt.kafka import TopicConfig
from streamrt.serializers import BytesDeserializer, BytesSerializer, IntegerSerializer
from streamrt.topics import Topic, TopicManager, changelog_topic_name, repartition_topic_name
from streamrt.topics.internal import changelog_config, repartition_config
from tests.unit.cluster import MemoryCluster

UNLIMITED = "9223372036854775807"
REPARTITION = "repartition__group--in--a"
NESTED = "repartition__group--repartition.in.a--b"
CHANGELOG = "changelog__group--in--default"
GROUPED_CHANGELOG = "changelog__group--repartition.in.a--default"


def manage(cluster: MemoryCluster, **options: Any) -> TopicManager:
    manager = TopicManager(cluster, "group", **options)
    manager.topic("in")
    return manager


def compacted(partitions: int, **options: str) -> TopicConfig:
    return TopicConfig(partitions, 1, {"cleanup.policy": "compact", **options})


# -- Names -----------------------------------------------------------------------------------------------------------


def test_names_of_nested_groupings_and_their_changelogs() -> None:
    first = repartition_topic_name("my.group-1", "in", "a")
    second = repartition_topic_name("my.group-1", first, "b")
    assert (first, second) == (
        "repartition__my.group-1--in--a",
        "repartition__my.group-1--repartition.in.a--b",
    )
    assert changelog_topic_name("my.group-1", "in", "default") == "changelog__my.group-1--in--default"
    assert changelog_topic_name("my.group-1", first, "windows") == "changelog__my.group-1--repartition.in.a--windows"
    assert changelog_topic_name("my.group-1", second, "default") == (
        "changelog__my.group-1--repartition.repartition.in.a.b--default"
    )


@pytest.mark.parametrize(
    ("topic", "store", "changelog"),
    [
        # Behind a repartition topic, the name of the grouping is in the topic's.
        (REPARTITION, "default.a", "repartition.in.a--default"),
        (NESTED, "default.a.b", "repartition.repartition.in.a.b--default"),
        ("repartition__group--in--a.b", "default.a.b", "repartition.in.a.b--default"),
        ("repartition__group--in--a--b", "default.a--b", "repartition.in.a.b--default"),
        # On one partition it tells the stores of the input apart.
        ("in", "default", "in--default"),
        ("in", "default.a", "in--default.a"),
        ("in", "default.a.b", "in--default.a.b"),
        ("in.a", "default.a", "in.a--default.a"),
        # Names that only look like it.
        (REPARTITION, "default.b", "repartition.in.a--default.b"),
        (REPARTITION, "default.", "repartition.in.a--default."),
        ("repartition__group--in--ba", "default.a", "repartition.in.ba--default.a"),
        ("repartition__other--in--a", "default.a", "repartition__other--in--a--default.a"),
    ],
)
def test_names_of_changelogs_behind_groupings(topic: str, store: str, changelog: str) -> None:
    assert changelog_topic_name("group", topic, store) == f"changelog__group--{changelog}"


def test_a_repartition_topic_of_another_group_is_a_topic_like_any_other() -> None:
    assert changelog_topic_name("group", "repartition__other--in--a", "default") == (
        "changelog__group--repartition__other--in--a--default"
    )


def test_names_behind_many_groupings_have_a_digest() -> None:
    topic, store, names = "orders", "join", set[str]()
    for number in range(12):
        topic = repartition_topic_name("shop", topic, f"customer_{number}")
        store = f"{store}.customer_{number}"
        names |= {topic, changelog_topic_name("shop", topic, store), changelog_topic_name("shop", topic, f"{store}.x")}
        # Merged topics have the names of all of them.
        names.add(changelog_topic_name("shop", f"clicks--{topic}--{topic}", "join"))
    assert len(names) == 4 * 12
    assert all(len(name) <= 249 for name in names)
    end = "mer_6.customer_7.customer_8.customer_9.customer_10"
    assert topic == f"repartition__shop--repartition.300e72bff14706c4ff17._{end}--customer_11"
    # Those that Kafka takes stay as they are.
    assert len(repartition_topic_name("shop", "o" * 220, "customer")) == 249


@pytest.mark.parametrize(
    ("group", "store", "message"),
    [
        ("my group", "default", "use letters, digits, '.', '_' and '-' only in consumer_group"),
        ("group", "a b", "only in the name of the store"),
        (
            "x" * 230,
            "default",
            "would have a name of 254 characters, but Kafka allows 249: shorten consumer_group or the name",
        ),
    ],
)
def test_names_that_no_changelog_can_have(group: str, store: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        changelog_topic_name(group, "in", store)


# -- Settings --------------------------------------------------------------------------------------------------------


def test_a_repartition_topic_keeps_what_is_not_processed_and_takes_what_its_input_takes() -> None:
    source = TopicConfig(
        4,
        3,
        {
            "cleanup.policy": "compact",
            "retention.ms": "5",
            "retention.bytes": "6",
            "max.message.bytes": "2000000",
            "min.insync.replicas": "2",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.after.max.ms": "3600000",
            "message.timestamp.before.max.ms": UNLIMITED,
            "compression.type": "zstd",
        },
    )
    common = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "2",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": UNLIMITED,
        "message.timestamp.before.max.ms": UNLIMITED,
    }
    assert repartition_config(source) == TopicConfig(4, 3, {"cleanup.policy": "delete", **common})
    assert changelog_config(source) == TopicConfig(4, 3, {"cleanup.policy": "compact", **common})


def test_options_that_the_cluster_does_not_know_are_left_out() -> None:
    assert set(changelog_config(TopicConfig(1, 1)).extra_config) == {
        "cleanup.policy",
        "message.timestamp.type",
        "retention.ms",
        "retention.bytes",
    }


# -- Declaring -------------------------------------------------------------------------------------------------------


def test_internal_topics_are_listed_apart() -> None:
    manager = manage(MemoryCluster())
    repartition = manager.repartition_topic("a", "in", key_serializer="int")
    plain, grouped = manager.changelog_topic("in", "default"), manager.changelog_topic(REPARTITION, "default")
    assert isinstance(repartition.key_serializer, IntegerSerializer)
    assert list(manager.topics) == ["in"]
    assert manager.repartition_topics == {REPARTITION: repartition}
    assert list(manager.non_changelog_topics) == ["in", REPARTITION]
    assert manager.changelog_topics == {"in": {"default": plain}, REPARTITION: {"default": grouped}}
    assert manager.changelog_topics_list == [plain, grouped]
    assert list(manager.all_topics) == ["in", REPARTITION, CHANGELOG, GROUPED_CHANGELOG]


def test_changelogs_hold_bytes() -> None:
    changelog = manage(MemoryCluster()).changelog_topic("in", "default")
    assert isinstance(changelog.key_serializer, BytesSerializer)
    assert isinstance(changelog.value_deserializer, BytesDeserializer)


def test_declaring_the_same_internal_topic_again_gives_the_same_object() -> None:
    manager = manage(MemoryCluster())
    assert manager.repartition_topic("a", "in") is manager.repartition_topic("a", "in")
    assert manager.changelog_topic("in", "default") is manager.changelog_topic("in", "default")


def test_a_repartition_topic_with_other_serializers_is_refused() -> None:
    manager = manage(MemoryCluster())
    manager.repartition_topic("a", "in")
    with pytest.raises(ConfigurationError, match="group_by 'a' of topic in is declared twice with different value_ser"):
        manager.repartition_topic("a", "in", value_serializer="str")


def test_internal_topics_belong_to_topics_that_are_known() -> None:
    manager = manage(MemoryCluster())
    for declare in (manager.repartition_topic, manager.changelog_topic):
        with pytest.raises(InvalidOperationError, match="topic other is unknown to the application"):
            declare(*(("a", "other") if declare == manager.repartition_topic else ("other", "a")))


@pytest.mark.parametrize("taken", [REPARTITION, "repartition.in.a"])
def test_a_name_that_an_own_topic_has_is_refused(taken: str) -> None:
    manager = manage(MemoryCluster())
    manager.topic(taken)
    with pytest.raises(ConfigurationError, match=f"collides with topic {taken} in the names of internal topics"):
        manager.repartition_topic("a", "in")


def test_two_stores_cannot_share_a_changelog() -> None:
    manager = manage(MemoryCluster())
    for topic in ("in--b", "in--b.x"):
        manager.topic(topic)
        manager.changelog_topic(topic, "c")
    assert manager.changelog_topic("in", "b--c").name != manager.changelog_topic("in--b", "c").name
    # Names of groupings, which StreamRT joins itself, stay as they are.
    with pytest.raises(
        ConfigurationError, match=r"changelog topic of store 'b\.x--c' of topic in would be changelog__group"
    ):
        manager.changelog_topic("in", "b.x--c")


# -- Creating --------------------------------------------------------------------------------------------------------


def test_repartition_topics_are_made_as_their_inputs_really_are() -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(5, 2, {"max.message.bytes": "77"})})
    manager = manage(cluster)
    manager.repartition_topic("a", "in")
    manager.repartition_topic("b", REPARTITION)
    manager.create_all_topics()
    assert cluster.asked_to_create == [REPARTITION, NESTED]
    for name in (REPARTITION, NESTED):
        created = cluster.topics[name]
        assert (created.num_partitions, created.replication_factor) == (5, 2)
        assert created.extra_config.items() >= {"cleanup.policy": "delete", "max.message.bytes": "77"}.items()


def test_an_input_that_is_made_too_comes_first() -> None:
    cluster = MemoryCluster()
    manager = TopicManager(cluster, "group")
    manager.topic("in", config=TopicConfig(3, 1))
    manager.repartition_topic("a", "in")
    manager.create_all_topics()
    assert cluster.asked_to_create == ["in", REPARTITION]
    assert cluster.topics[REPARTITION].num_partitions == 3


def test_an_input_of_one_partition_needs_no_repartition_topic() -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(1, 1)})
    manager = manage(cluster)
    manager.repartition_topic("a", "in")
    manager.repartition_topic("b", REPARTITION)
    manager.create_all_topics()
    manager.validate_all_topics()
    assert cluster.asked_to_create == []
    assert manager.partition_counts() == {"in": 1}


def test_changelogs_are_created_apart_and_by_name() -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(3, 1, {"min.insync.replicas": "1"})})
    manager = manage(cluster)
    manager.repartition_topic("a", "in")
    manager.changelog_topic("in", "default")
    manager.changelog_topic(REPARTITION, "default")
    manager.create_all_topics()
    manager.validate_all_topics()
    assert cluster.asked_to_create == [REPARTITION]
    assert manager.missing_changelog_topics() == [CHANGELOG, GROUPED_CHANGELOG]
    manager.create_changelog_topics([GROUPED_CHANGELOG])
    assert manager.missing_changelog_topics() == [CHANGELOG]
    manager.create_changelog_topics()
    assert cluster.asked_to_create == [REPARTITION, GROUPED_CHANGELOG, CHANGELOG]
    manager.validate_changelog_topics()
    for name in (CHANGELOG, GROUPED_CHANGELOG):
        assert manager.broker_config(name).num_partitions == 3
        assert manager.broker_config(name).extra_config["cleanup.policy"] == "compact"
    assert manager.partition_counts() == dict.fromkeys(["in", REPARTITION, CHANGELOG, GROUPED_CHANGELOG], 3)


def test_changelogs_wait_for_what_is_known_of_their_inputs() -> None:
    manager = manage(MemoryCluster())
    manager.changelog_topic("in", "default")
    for method in (manager.create_changelog_topics, manager.validate_changelog_topics):
        with pytest.raises(InvalidOperationError, match="settings of topic in in the cluster are unknown"):
            method()


def test_without_changelogs_there_is_nothing_to_do() -> None:
    cluster = MemoryCluster()
    manager = manage(cluster)
    assert manager.missing_changelog_topics() == []
    manager.create_changelog_topics()
    manager.validate_changelog_topics()
    assert cluster.asked_to_create == []


def test_without_permission_internal_topics_must_exist_and_are_named_with_what_they_need() -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(3, 1)})
    manager = manage(cluster, auto_create_topics=False)
    manager.repartition_topic("a", "in")
    manager.changelog_topic("in", "default")
    manager.create_all_topics()
    with pytest.raises(TopicNotFoundError) as caught:
        manager.validate_all_topics()
    assert str(caught.value) == (
        f"these topics do not exist: {REPARTITION} (num_partitions=3, cleanup.policy=delete, retention.ms=-1); "
        "create them manually, or set auto_create_topics=True"
    )
    cluster.topics[REPARTITION] = TopicConfig(3, 1, {"cleanup.policy": "delete", "retention.ms": "-1"})
    manager.validate_all_topics()
    manager.create_changelog_topics()
    with pytest.raises(TopicNotFoundError) as caught:
        manager.validate_changelog_topics()
    assert str(caught.value) == (
        f"these topics do not exist: {CHANGELOG} (num_partitions=3, cleanup.policy=compact, retention.ms=-1); "
        "create them manually, or set auto_create_topics=True"
    )
    assert cluster.asked_to_create == []


def test_a_missing_input_is_reported_before_what_depends_on_it() -> None:
    manager = manage(MemoryCluster(), auto_create_topics=False)
    manager.repartition_topic("a", "in")
    with pytest.raises(TopicNotFoundError, match="these topics do not exist: in;"):
        manager.validate_all_topics()


# -- Checking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (
            compacted(3),
            f"repartition topic {REPARTITION} has cleanup.policy=compact, which removes unprocessed records",
        ),
        (TopicConfig(3, 1, {"cleanup.policy": "compact,delete"}), "cleanup.policy=compact,delete"),
    ],
)
def test_a_repartition_topic_that_does_not_fit_is_refused(actual: TopicConfig, message: str) -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1), REPARTITION: actual}))
    manager.repartition_topic("a", "in")
    with pytest.raises(TopicConfigurationError, match=message):
        manager.validate_all_topics()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fault_5_a_repartition_topic_may_have_another_number_of_partitions_than_its_input(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1), REPARTITION: repartition_config(TopicConfig(count, 1))}))
    manager.repartition_topic("a", "in")
    with caplog.at_level(logging.INFO, "streamrt.topics"):
        manager.validate_all_topics()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert f"{REPARTITION} has {count} partitions, its input in has 3" in caplog.text
    assert manager.partition_counts() == {"in": 3, REPARTITION: count}


def test_a_repartition_topic_that_forgets_records_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1), REPARTITION: TopicConfig(3, 1, settings)}))
    manager.repartition_topic("a", "in")
    with caplog.at_level(logging.WARNING, "streamrt.topics"):
        manager.validate_all_topics()
    assert [message.split(". ")[0] for message in caplog.messages] == [
        f"Topic {REPARTITION} differs from its declaration: retention.ms declared -1, actual 604800000"
    ]


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (
            compacted(2),
            (
                f"changelog topic {CHANGELOG} has 2 partitions and topic in has 3 partitions: keys have moved to other "
                "partitions than their state, so give the state as many with `streamrt repartition --partitions 3`, or run "
                "under a new consumer_group"
            ),
        ),
        (
            compacted(4),
            (
                f"changelog topic {CHANGELOG} has 4 partitions and topic in has 3 partitions: keys have moved to other "
                "partitions than their state, so recreate the input topic with 4 partitions"
            ),
        ),
        (TopicConfig(3, 1, {"cleanup.policy": "delete"}), f"changelog topic {CHANGELOG} has cleanup.policy=delete"),
        (compacted(3, **{"cleanup.policy": "compact,delete"}), "which deletes state: set it to compact"),
    ],
)
def test_a_changelog_that_does_not_fit_is_refused(actual: TopicConfig, message: str) -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1), CHANGELOG: actual}))
    manager.changelog_topic("in", "default")
    manager.validate_all_topics()
    with pytest.raises(TopicConfigurationError, match=message):
        manager.validate_changelog_topics()


def test_all_changelogs_that_do_not_fit_are_named() -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1), CHANGELOG: compacted(1), f"{CHANGELOG}2": compacted(2)}))
    manager.changelog_topic("in", "default")
    manager.changelog_topic("in", "default2")
    manager.validate_all_topics()
    with pytest.raises(
        TopicConfigurationError, match=f"{CHANGELOG} has 1 partition and .*; changelog.*2 has 2 partitions"
    ):
        manager.validate_changelog_topics()


def test_state_of_a_grouping_is_not_left_behind_when_the_input_gets_a_second_partition() -> None:
    former = "changelog__group--in--default.a"
    cluster = MemoryCluster(
        **{"in": TopicConfig(2, 1), REPARTITION: TopicConfig(2, 1), former: compacted(1)},
        **{GROUPED_CHANGELOG: compacted(2)},
    )
    manager = manage(cluster)
    manager.repartition_topic("a", "in")
    # Only what comes after the grouping has state; with one partition it was kept with the input.
    assert manager.changelog_topic(REPARTITION, "default.a").name == GROUPED_CHANGELOG
    manager.validate_all_topics()
    with pytest.raises(TopicConfigurationError, match=f"changelog topic {former} has 1 partition and topic in has 2"):
        manager.validate_changelog_topics()
    cluster.topics[former] = compacted(2)
    manager.validate_changelog_topics()
    # That of the input is not the business of a grouping.
    cluster.topics[CHANGELOG] = compacted(1)
    manager.validate_changelog_topics()


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("stateful_since", [2, 5])
def test_state_behind_a_grouping_stays_when_the_input_gets_more_partitions(merged: bool, stateful_since: int) -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(2, 1), "other": TopicConfig(2, 1)})
    for count in (2, 5):
        cluster.topics["in"] = TopicConfig(count, 1)
        manager = manage(cluster)
        scope = manager.repartition_topic("a", "in").name
        if merged:
            scope = manager.merged_topics(manager.non_changelog_topics[scope], manager.topic("other"))
        if count >= stateful_since:
            changelog = manager.changelog_topic(scope, "default").name
        manager.create_all_topics()
        manager.validate_all_topics()
        manager.create_changelog_topics()
        manager.validate_changelog_topics()
    assert [cluster.topics[name].num_partitions for name in (REPARTITION, changelog)] == [2, 2]
    # It is that of the repartition topic that counts.
    cluster.topics[changelog] = compacted(5)
    with pytest.raises(TopicConfigurationError, match=f"{changelog} has 5 partitions and topic {scope} has 2"):
        manager.validate_changelog_topics()


def test_on_one_partition_all_stores_have_changelogs_of_their_own() -> None:
    cluster = MemoryCluster(**{"in": TopicConfig(1, 1)})
    manager = manage(cluster)
    manager.repartition_topic("a", "in")
    manager.repartition_topic("b", "in")
    names = [manager.changelog_topic("in", store).name for store in ("default", "default.a", "default.b")]
    assert len(set(names)) == 3
    manager.validate_all_topics()
    manager.create_changelog_topics()
    manager.validate_changelog_topics()
    assert cluster.asked_to_create == names


def test_stores_whose_changelog_would_be_one_are_refused() -> None:
    manager = manage(MemoryCluster())
    manager.repartition_topic("a", "in")
    manager.changelog_topic(REPARTITION, "default.a")
    with pytest.raises(ConfigurationError, match=f"would be {GROUPED_CHANGELOG}, which is another topic"):
        manager.changelog_topic(REPARTITION, "default")


@pytest.mark.parametrize(
    ("first", "second"),
    [([("a.b", "in")], [("a", "in"), ("b", REPARTITION)]), ([("a", "in"), ("b", REPARTITION)], [("a.b", "in")])],
)
def test_groupings_whose_stores_would_be_one_are_refused(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    manager = manage(MemoryCluster())
    for operation, topic in (*first, *second[:-1]):
        manager.repartition_topic(operation, topic)
    with pytest.raises(ConfigurationError, match="in the names of internal topics and stores: choose another name"):
        manager.repartition_topic(*second[-1])


# -- Co-partitioned topics -------------------------------------------------------------------------------------------


def test_topics_of_equal_partitions_are_copartitioned() -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1)}, a=TopicConfig(3, 2), b=TopicConfig(4, 2)))
    manager.validate_all_topics()
    manager.ensure_topics_copartitioned(Topic("in"), Topic("a"))
    manager.ensure_topics_copartitioned(Topic("in"))
    manager.ensure_topics_copartitioned()
    with pytest.raises(TopicConfigurationError) as caught:
        manager.ensure_topics_copartitioned(Topic("in"), Topic("a"), Topic("b"))
    assert "same number of partitions (in has 3, a has 3, b has 4)" in str(caught.value)
    assert "copy one of them, with to_topic()" in str(caught.value)


def test_topics_that_do_not_exist_are_not_copartitioned() -> None:
    manager = manage(MemoryCluster(**{"in": TopicConfig(3, 1)}))
    with pytest.raises(TopicNotFoundError, match="these topics do not exist: b"):
        manager.ensure_topics_copartitioned(Topic("in"), Topic("b"))
