"""Requirements of StreamRT for a broker, with brokers of several versions: one run of it for each.

Ordinary runs take the oldest version and the newest, and `make test-long` all of `tests.kafka_versions`.
"""

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamrt.cli.diagnosis.findings import Status
from streamrt.cli.diagnosis.findings_cluster import check_cluster
from streamrt.errors import ConfigurationError, TransactionError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.checks import REQUESTS, require_consumer_protocol
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter
from streamrt.records import TopicPartition
from tests.kafka_versions import EMBEDDED, OLDEST, VERSIONS, broker_of
from tests.support import LONG, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

QUICK: dict[str, str | int | bool] = {
    # The cleaner compacts what is not in the active segment.
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": 0,
}
# The broker logs each request.
REQUEST_LOG = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
REQUEST = re.compile(r'"requestApiVersion":(\d+).*?"requestApiKeyName":"(\w+)"')
KIP_890 = 5
"""Version of EndTxn from which on each transaction has an epoch of its own."""
# Names that librdkafka abbreviates.
NAMES = {"ApiVersions": "ApiVersion", "IncrementalAlterConfigs": "IncrementalAlterConfigsRequest"}
# What brokers send to themselves, and what only Java's client sends, which Spark brings along.
OTHERS = {
    "AllocateProducerIds",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "DescribeAcls",
    "FetchSnapshot",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "WriteTxnMarkers",
}


@dataclass
class Versioned:
    """A broker of a version."""

    version: str
    kafka: Kafka
    log: Path

    @property
    def has_consumer_protocol(self) -> bool:
        return int(self.version.partition(".")[0]) >= 4

    def requests(self) -> dict[str, int]:
        """Return the requests that clients have sent, with the highest version of each."""
        found: dict[str, int] = {}
        for line in self.log.read_text(errors="replace").splitlines():
            if (match := REQUEST.search(line)) is not None:
                words = "".join(word.capitalize() for word in match[2].split("_"))
                name = NAMES.get(words, words)
                found[name] = max(found.get(name, 0), int(match[1]))
        return {name: version for name, version in found.items() if name not in OTHERS}


@pytest.fixture(scope="module", params=VERSIONS if LONG else (OLDEST, EMBEDDED))
def versioned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versioned]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", REQUEST_LOG)
        broker = broker_of(request.param, QUICK)
        broker.start()
    with broker:
        state = tmp_path_factory.mktemp("state")
        yield Versioned(request.param, Kafka(broker.bootstrap_servers, state), broker.data_dir / "kafka.log")


def test_topics_are_made_changed_and_told_apart(versioned: Versioned) -> None:
    admin = versioned.kafka.admin
    topic = versioned.kafka.topic("orders", 2, {"retention.ms": "3600000"})
    config = admin.inspect_topics([topic])[topic]
    assert config is not None
    assert (config.num_partitions, config.extra_config.get("retention.ms")) == (2, "3600000")
    admin.add_partitions(topic, 3)
    admin.change_settings(topic, {"retention.ms": "7200000"})
    wait_until(lambda: (found := admin.inspect_topics([topic])[topic]) is not None and found.num_partitions == 3)
    former = admin.topic_ids([topic])[topic]
    assert former
    admin.delete_topics([topic])
    wait_until(lambda: admin.inspect_topics([topic])[topic] is None)
    assert topic not in admin.list_topics(30)


def test_records_have_times_and_can_be_deleted(versioned: Versioned) -> None:
    kafka = versioned.kafka
    place = TopicPartition(kafka.topic(), 0)
    kafka.produce(place.topic, [1, 2, 3], key=b"a", timestamp=1_000)
    kafka.produce(place.topic, [4], key=b"a", timestamp=5_000)
    assert [record.timestamp for record in kafka.receive_committed(place.topic)] == [1_000, 1_000, 1_000, 5_000]
    assert kafka.admin.offsets_at([place], 2_000) == {place: 3}
    kafka.admin.delete_records({place: 2})
    assert kafka.admin.bounds(place) == (2, 4)


def test_topics_are_compacted(versioned: Versioned) -> None:
    kafka = versioned.kafka
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    place = TopicPartition(kafka.topic("changelog", 1, config), 0)
    numbers = itertools.count()

    def compacted() -> bool:
        kafka.produce(place.topic, [next(numbers)], key=b"a")
        time.sleep(0.3)
        return len(kafka.receive_committed(place.topic)) < kafka.end(place.topic) - 1

    wait_until(compacted)


def test_transactions_are_whole_and_fence(versioned: Versioned) -> None:
    kafka = versioned.kafka
    source, target = TopicPartition(kafka.topic(), 0), TopicPartition(kafka.topic(), 0)
    group = unique("group")
    with ExitStack() as stack:

        def writer() -> KafkaTransactionalWriter:
            made = KafkaTransactionalWriter(ConnectionConfig(bootstrap_servers=kafka.address), group, group)
            stack.callback(made.close)
            made.init(60, source.topic)
            return made

        first = writer()
        first.produce(target.topic, b"aborted", b"key", None, None)
        first.flush()
        first.abort()
        for number in (1, 2):
            first.produce(target.topic, b"%d" % number, b"key", None, None)
            first.commit({source: number}, f"text {number}")
        assert kafka.admin.committed_stable(group, [source])[source] == CommittedOffset(2, "text 2")
        first.produce(target.topic, b"fenced", b"key", None, None)
        first.flush()
        second = writer()
        with pytest.raises(TransactionError) as caught:
            first.commit({source: 3})
        assert caught.value.fenced
        second.produce(target.topic, b"3", b"key", None, None)
        second.commit({source: 3})
        wait_until(lambda: [record.value for record in kafka.receive_committed(target.topic)] == [b"1", b"2", b"3"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_a_group(versioned: Versioned, protocol: str) -> None:
    if protocol == "consumer" and not versioned.has_consumer_protocol:
        pytest.skip("brokers from 4.0 on have it")
    kafka, group = versioned.kafka, unique("group")
    topic = kafka.topic("orders", 4)
    places = frozenset(TopicPartition(topic, number) for number in range(4))

    def member(name: str) -> GroupMember:
        options = {"group.protocol": protocol, "client.id": f"{name}@shop:7070"}
        return GroupMember(kafka.address, group, [topic], member_options=options, on_revoke=lambda partitions: None)

    with member("one") as one:
        wait_until(lambda: one.assignment(300) == places)
        one.commit(dict.fromkeys(places, 1), metadata="text")
        with member("two") as two:
            wait_until(lambda: len(one.assignment(300) or ()) == len(two.assignment(300) or ()) == 2)
            wait_until(lambda: {len(each.partitions) for each in kafka.admin.group_members(group)} == {2})
            members = kafka.admin.group_members(group)
            assert {each.client_id for each in members} == {"one@shop:7070", "two@shop:7070"}
            assert kafka.admin.group_is_active(group)
            assert kafka.admin.list_groups()[group].protocol == protocol
            two.commit(dict.fromkeys(two.assignment(300) or (), 2))
    wait_until(lambda: not kafka.admin.group_is_active(group))
    assert set(kafka.admin.committed(group, places).values()) == {1, 2}
    kafka.admin.set_committed(group, dict.fromkeys(places, 0))
    assert set(kafka.admin.committed(group, places).values()) == {0}


def test_a_group_of_the_new_protocol_is_refused_where_there_is_none(versioned: Versioned) -> None:
    connection = ConnectionConfig(bootstrap_servers=versioned.kafka.address)
    if versioned.has_consumer_protocol:
        require_consumer_protocol(connection, 30)
        return
    with pytest.raises(
        ConfigurationError, match=r"needs brokers of Kafka 4\.0 or newer; .* lack ConsumerGroupHeartbeat"
    ):
        require_consumer_protocol(connection, 30)


def test_the_doctor_says_what_a_broker_lacks(versioned: Versioned) -> None:
    found = {each.name: each for each in check_cluster(versioned.kafka.address, None, 30, None, transactions=True)}
    assert [each for each in found.values() if each.status is Status.problem] == []
    assert found["broker version"].status is Status.ok, found["broker version"]
    release = versioned.version.rpartition(".")[0]
    assert release in found["broker version"].detail or (release, found["broker version"].detail) == (
        EMBEDDED.rpartition(".")[0],
        f"Kafka {release} or newer",
    )
    assert ("exactly-once" in found) is not versioned.has_consumer_protocol
    assert ("consumer" in found["group protocol"].detail.split()) is versioned.has_consumer_protocol


def test_all_requests_are_listed_with_what_brokers_must_support(versioned: Versioned) -> None:
    """The list is in the documentation; this test comes last, and sees what the others have sent."""
    sent = versioned.requests()
    assert {"Produce", "Fetch", "EndTxn", "JoinGroup"} <= sent.keys()
    assert sent.keys() <= REQUESTS.keys()
    below = {name for name, version in sent.items() if version < REQUESTS[name].version}
    # Spark's client removes static members, which takes a higher one.
    assert below <= {"LeaveGroup"}, "lower versions than the list says are enough"
    # docs/exactly-once.md says what librdkafka lacks.
    assert sent["EndTxn"] < KIP_890
