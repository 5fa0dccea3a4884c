"""Commits wait while it is open whether inputs are still the topics that were read."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from streamrt.errors import StaleTokenError
from streamrt.kafka import KafkaError, KafkaRequestError
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.models import TopicPartition
from streamrt.records import OffsetRange
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.start_positions import Start
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.link_messages import TopicsDoubted
from streamrt.runtime.report import Report
from streamrt.runtime.topic_identity import InputIdentity
from streamrt.spark.commits import Commits
from tests.unit.apps import Stage, completed
from tests.unit.resident_world import World, counting

PLACE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


class Cluster:
    """Tells the ids of topics, or does not answer."""

    def __init__(self, **ids: str | None) -> None:
        self.ids: dict[str, str | None] = dict(ids)
        self.error: KafkaRequestError | None = None
        self.asked: list[list[str]] = []
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, topics: list[str]) -> Mapping[str, str | None]:
        self.asked.append(sorted(topics))
        self.meanwhile()
        if self.error is not None:
            raise self.error
        return {topic: self.ids.get(topic) for topic in topics}

    def identity(self, ids: Mapping[str, str | None], limit_s: float = 120.0) -> InputIdentity:
        return InputIdentity(self, ids, limit_s, lambda: self.now)


def test_a3_without_errors_no_id_is_asked_for() -> None:
    cluster = Cluster()
    identity = cluster.identity({"orders": "x1"})
    identity.require()
    identity.doubt("the partition does not exist", ["results"])
    identity.require()
    assert not cluster.asked
    assert not identity.in_doubt


def test_a3_a_doubt_costs_one_request_if_the_topic_is_the_same() -> None:
    cluster = Cluster(orders="x1", rides="y1")
    identity = cluster.identity({"orders": "x1", "rides": "y1", "old": None})
    identity.doubt("the partition does not exist", ["orders", "old"])
    identity.require()
    identity.require()
    assert cluster.asked == [["orders"]]
    identity.doubt("the query ended")
    identity.require()
    assert cluster.asked[1:] == [["orders", "rides"]]


def test_a3_another_topic_refuses_each_commit() -> None:
    cluster = Cluster(orders="x2")
    identity = cluster.identity({"orders": "x1"})
    identity.doubt("the partition does not exist", ["orders"])
    for _ in range(2):
        with pytest.raises(
            StaleTokenError, match=r"topic 'orders' was .* created again: its id was x1 and is x2.*reset"
        ):
            identity.require()


@pytest.mark.parametrize("limit_s", [120.0, 0.0])
def test_a3_commits_wait_while_ids_cannot_be_read(limit_s: float) -> None:
    cluster = Cluster(orders="x1")
    identity = cluster.identity({"orders": "x1"}, limit_s)
    identity.doubt("[orders][0] is not known", ["orders"])
    cluster.error = KafkaRequestError("no broker answers", retriable=True)
    for seconds in (0.0, 0.1, 60.0, 119.0):
        cluster.now = seconds
        identity.doubt("again", ["orders"])
        with pytest.raises(
            KafkaRequestError, match=r"'orders' .*\(\[orders\]\[0\] is not known\).*no broker"
        ) as refusal:
            identity.require()
        assert refusal.value.retriable
    assert len(cluster.asked) == 3, "it does not ask ten times a second"
    cluster.now = 121.0
    with pytest.raises(KafkaRequestError, match="describe topics, and if the topic was deleted") as last:
        identity.require()
    assert last.value.retriable == (limit_s == 0)
    cluster.error, cluster.now = None, 122.0
    identity.require()
    assert not identity.in_doubt


def test_a3_a_user_that_may_not_describe_topics_hears_of_it_at_once() -> None:
    cluster = Cluster()
    identity = cluster.identity({"orders": "x1"})
    identity.doubt("unknown", ["orders"])
    cluster.error = KafkaRequestError("TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaRequestError, match="TOPIC_AUTHORIZATION_FAILED") as refusal:
        identity.require()
    assert not refusal.value.retriable


def test_a3_a_deleted_topic_is_waited_for_and_another_one_refused() -> None:
    cluster = Cluster(orders=None)
    identity = cluster.identity({"orders": "x1"})
    identity.doubt("unknown", ["orders"])
    with pytest.raises(KafkaRequestError, match="topic 'orders' does not exist any more") as refusal:
        identity.require()
    assert refusal.value.retriable
    cluster.ids["orders"], cluster.now = "x2", 1.0
    with pytest.raises(StaleTokenError):
        identity.require()


def test_a3_a_doubt_that_comes_during_the_answer_stays() -> None:
    cluster = Cluster(orders="x1")
    identity = cluster.identity({"orders": "x1"})
    identity.doubt("unknown", ["orders"])
    cluster.meanwhile = lambda: identity.doubt("unknown", ["orders"])
    identity.require()
    assert identity.in_doubt
    cluster.meanwhile = lambda: None
    identity.require()
    assert not identity.in_doubt


def test_doubts_can_be_handed_on() -> None:
    identity = Cluster().identity({"orders": "x1"})
    identity.doubt("unknown", ["orders"])
    assert identity.take() == {"orders": "unknown"}
    assert not identity.in_doubt


# -- The driver of micro-batches ---------------------------------------------------------------------------------------


class Member:
    """Implements what `Commits` needs of a group member."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.offsets: dict[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int], **options: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.offsets.update(offsets)


def commits(cluster: Cluster, member: Member, identity: InputIdentity) -> Commits:
    stage = Stage()
    stage.sdf.to_topic(stage.out)
    admin = cast("Any", None)
    made = Commits(
        stage.app.config,
        completed(stage.app),
        Progress(),
        ProcessedPurge(admin, ()),
        threading.Event(),
        admin,
        identity,
    )
    made.start(cast("GroupMember", member), 1, Start({PLACE: 30}, {}, frozenset()))
    return made


def test_a3_a_commit_that_a_topic_refused_is_not_repeated_for_another_one() -> None:
    cluster, member = Cluster(**{"in": "x1"}), Member()
    made = commits(cluster, member, cluster.identity({"in": "x1"}))
    made.report(Report(ranges={PLACE: OffsetRange(*PLACE, 30, 31)}))
    member.errors.append(KafkaRequestError("unknown", KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True))
    assert not made.commit()
    # Brokers were about to start.
    assert made.commit()
    assert member.offsets == {PLACE: 31}
    made.report(Report(ranges={PLACE: OffsetRange(*PLACE, 31, 40)}))
    member.errors.append(KafkaRequestError("unknown", KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True))
    assert not made.commit()
    cluster.ids["in"] = "x2"
    with pytest.raises(StaleTokenError):
        made.commit()
    assert member.offsets == {PLACE: 31}


def test_a3_the_driver_commits_nothing_while_ids_cannot_be_read() -> None:
    cluster, member = Cluster(**{"in": "x1"}), Member()
    identity = cluster.identity({"in": "x1"})
    made = commits(cluster, member, identity)
    made.report(Report(ranges={PLACE: OffsetRange(*PLACE, 30, 40)}))
    identity.doubt("Spark gave the query up")
    cluster.error = KafkaRequestError("no broker answers", retriable=True)
    assert not made.commit()
    assert not member.offsets
    cluster.error, cluster.now = None, 10.0
    assert made.commit()
    assert member.offsets == {PLACE: 40}


# -- Resident tasks ----------------------------------------------------------------------------------------------------


def world_of(cluster: Cluster, *, transactional: bool) -> World:
    world = World(counting, transactional=transactional, commits={"commit_interval": 60.0, "commit_every": 0})
    identity = cluster.identity({"in": "x1"})
    world.task._identity = world.task._membership._identity = identity
    world.put(PLACE, 1, 2, 3)
    world.begin()
    world.until(lambda: world.task._cycle is not None)
    return world


@pytest.mark.parametrize("transactional", [False, True])
def test_a3_resident_tasks_commit_nothing_for_another_topic(transactional: bool) -> None:
    cluster = Cluster(**{"in": "x2"})
    world = world_of(cluster, transactional=transactional)
    before = dict(world.clients.offsets)
    world.link.inbox.append(TopicsDoubted({"in": "a broker does not know it"}))
    with pytest.raises(StaleTokenError):
        world.steps(3)
    with pytest.raises(StaleTokenError):
        world.task._commit_all()
    assert world.clients.offsets == before
    assert world.clients.written("out") == [] or not transactional


@pytest.mark.parametrize("transactional", [False, True])
def test_a3_resident_tasks_wait_until_ids_can_be_read(transactional: bool) -> None:
    cluster = Cluster(**{"in": "x1"})
    world = world_of(cluster, transactional=transactional)
    before = dict(world.clients.offsets)
    cluster.error = KafkaRequestError("no broker answers", retriable=True)
    world.task._identity.doubt("unknown", ["in"])
    world.steps(5)
    # What a rebalance takes away is dropped, and others process it again.
    world.revoke()
    assert world.clients.offsets == before
    assert not world.tasks.assigned
    cluster.error, cluster.now = None, 10.0
    world.begin()
    world.until(lambda: world.task._cycle is not None)
    world.task._commit_all()
    assert world.clients.offsets[PLACE] == 3
