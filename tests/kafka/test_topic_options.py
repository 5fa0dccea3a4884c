"""Clusters in memory refuse the options of topics that a broker refuses."""

import uuid
from dataclasses import dataclass

import pytest

from streamrt.errors import TopicCreationError
from streamrt.kafka import TopicAdmin, TopicConfig
from streamrt.kafka.cluster.topic_options import TOPIC_OPTIONS, option_fault
from streamrt.testing.cluster import MemoryCluster
from streamrt.testing.plugin import KafkaBroker

pytestmark = [pytest.mark.kafka]

VALUES = (
    "",
    "0",
    "1",
    "-1",
    "-2",
    "1.5",
    ".5",
    "2",
    " 5 ",
    "abc",
    "compact, delete",
    "delete",
    "zstd",
    "TRUE",
    "CreateTime",
)


@dataclass
class Definition:
    name: str
    config: TopicConfig | None = None


def test_d5_memory_refuses_what_a_broker_refuses(kafka_broker: KafkaBroker) -> None:
    admin = TopicAdmin(kafka_broker.bootstrap_servers)
    name = f"options-{uuid.uuid4().hex[:12]}"
    admin.create_topics([Definition(name, TopicConfig(1, 1))])
    found = admin.inspect_topics([name])[name]
    assert found is not None
    assert {each for each in found.extra_config if not each.startswith(("internal.", "errors."))} <= TOPIC_OPTIONS
    # Replica lists have a syntax of their own.
    tried = sorted(
        {*found.extra_config, "nothing.like.it"}
        & {*TOPIC_OPTIONS, "nothing.like.it"} - {each for each in TOPIC_OPTIONS if "throttled" in each}
    )
    cases = [(each, value) for each in tried for value in VALUES if each != "remote.storage.enable"]
    named = {f"{name}-{number}": case for number, case in enumerate(cases)}
    definitions = [Definition(each, TopicConfig(1, 1, {option: value})) for each, (option, value) in named.items()]
    refused = set()
    try:
        admin.create_topics(definitions)
    except TopicCreationError as error:
        refused = {case for each, case in named.items() if f"{each}: " in str(error)}
    finally:
        admin.delete_topics([name, *named])
    assert {case for case in cases if option_fault(*case) is not None} == refused


def test_d5_a_cluster_in_memory_names_the_option() -> None:
    with pytest.raises(TopicCreationError, match=r"orders: retention\.ms='1 day': it must be a whole number"):
        MemoryCluster().create_topics([Definition("orders", TopicConfig(1, 1, {"retention.ms": "1 day"}))])
