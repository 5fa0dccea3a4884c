"""Facts that event time needs from Kafka: ends of repartition topics, and what other instances have committed."""

import pytest

from streamrt.event_time.event_time import EventTime, Peer
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.models import TopicPartition
from streamrt.operators.group_by import ColumnKey, Repartition
from streamrt.runs.time_requests import TimeRequests
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.sent import Sent
from streamrt.topics import Topic
from streamrt.topology import SourceOperator, TaskId, TopologyBuilder
from tests.support import Kafka, unique, wait_until
from tests.unit.test_event_time import Waiting

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_an_instance_knows_what_others_hold_back(kafka: Kafka) -> None:
    source, grouped, group = kafka.topic("in", 3), kafka.topic("grouped", 2), unique("group")
    builder = TopologyBuilder()
    builder.add(builder.add_source(SourceOperator(Topic(source))), Repartition(Topic(grouped), ColumnKey("k"), "k"))
    builder.add(builder.add_source(SourceOperator(Topic(grouped))), Waiting(100))
    topology = builder.build()
    event_time = EventTime(topology, {source: 3, grouped: 2})
    event_time.assign([TaskId(source, 0)])
    for partition, count in ((1, 5), (2, 7)):
        kafka.produce(source, list(range(count)), partition=partition)
    behind, ended = TopicPartition(source, 1), TopicPartition(source, 2)
    metadata = CommitMetadata()
    kafka.admin.set_committed(
        group,
        {behind: 4, ended: 7},
        {
            behind: metadata.encode(behind, sent={grouped: Sent(1_000)}),
            ended: metadata.encode(ended, sent={grouped: Sent(2_000, pending=True)}),
        },
    )
    requests = TimeRequests(TopicAdmin(ConnectionConfig(bootstrap_servers=kafka.address)), group, topology)
    foreign = requests.foreign(event_time)
    assert foreign == {TaskId(source, 1), TaskId(source, 2)}
    # Nothing is known while no broker answers in time.
    assert wait_until(lambda: requests.peers(foreign), what="an answer") == {
        TaskId(source, 1): Peer(False, {grouped: 1_000}, frozenset(), {behind: 4}),
        TaskId(source, 2): Peer(True, {grouped: 2_000}, frozenset({grouped}), {ended: 7}),
    }


def test_watermarks_ask_for_the_ends_behind_all_open_transactions(kafka: Kafka) -> None:
    source, grouped = kafka.topic("in"), kafka.topic("grouped", 2)
    builder = TopologyBuilder()
    builder.add(builder.add_source(SourceOperator(Topic(source))), Repartition(Topic(grouped), ColumnKey("k"), "k"))
    builder.add(builder.add_source(SourceOperator(Topic(grouped))), Waiting(100))
    event_time = EventTime(builder.build(), {source: 1, grouped: 2})
    task = TaskId(source, 0)
    event_time.assign([task, TaskId(grouped, 0), TaskId(grouped, 1)])
    requests = TimeRequests(
        TopicAdmin(ConnectionConfig(bootstrap_servers=kafka.address)), unique("group"), builder.build()
    )
    assert requests.barrier(event_time) is None, "nothing was sent"
    event_time.report({}, {(task, grouped): 5_000})
    kafka.produce(grouped, [1, 2, 3], partition=1)
    barrier = requests.barrier(event_time)
    assert barrier is not None
    ends = wait_until(lambda: requests.ends(barrier), what="an answer")
    assert ends == {TopicPartition(grouped, 0): 0, TopicPartition(grouped, 1): 3}
