"""`GroupMember` against a real broker: sharing, revoking, committing, static members, fencing."""

import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamrt.errors import InvalidOperationError, KafkaBrokerUnavailableError, StreamRTError
from streamrt.kafka import KafkaError, KafkaRequestError, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.membership import group_member as group_module
from streamrt.kafka.membership.group_member import GroupMember
from streamrt.kafka.membership.group_state import GroupAssignment, GroupFencedError, GroupState
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.testing.plugin import KafkaBroker
from tests.processes import freeze, process_tree, thaw
from tests.support import LONG, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SLEEPER = """
import sys, threading, time
from streamrt.kafka.membership.group_member import GroupMember

class SlowMember(GroupMember):
    def _leave_group(self):
        time.sleep(1)
        super()._leave_group()

lost = threading.Event()

def on_lost(partitions):
    print("lost", flush=True)
    member.close()
    lost.set()

# Its session times out before it is told that it is fenced.
options = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 2900}
if sys.argv[3] == "consumer":
    options = {"group.protocol": "consumer"}
member = SlowMember(
    sys.argv[1], sys.argv[2], [sys.argv[2]],
    member_options=options, group_instance_id="one", on_revoke=lambda partitions: None, on_lost=on_lost,
)
member.start()
assert member.assignment(300)
print("assigned", flush=True)
lost.wait()
member.close()
"""
FAST = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
PARTITIONS = 4


@dataclass
class Definition:
    name: str
    config: TopicConfig | None = None


@dataclass
class Group:
    """A group of its own with a topic of its own, and the members that a test starts in it."""

    address: str
    name: str
    stack: ExitStack
    protocol: str = "classic"
    admin: TopicAdmin = field(init=False)

    def __post_init__(self) -> None:
        self.admin = TopicAdmin(self.address)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self.name, number) for number in range(PARTITIONS))

    def member(
        self,
        on_revoke: Callable[[frozenset[TopicPartition]], None] = lambda partitions: None,
        *,
        kind: type[GroupMember] = GroupMember,
        start: bool = True,
        options: dict[str, Any] | None = None,
        **more: Any,
    ) -> GroupMember:
        settings = {**FAST, **(options or {})}
        if self.protocol == "consumer":
            settings = {name: value for name, value in settings.items() if name not in FAST}
            settings["group.protocol"] = "consumer"
        member = kind(
            self.address,
            self.name,
            [self.name],
            member_options=settings,
            poll_timeout=0.1,
            on_revoke=on_revoke,
            **more,
        )
        self.stack.callback(member.close)
        if start:
            member.start()
        return member

    def committed(self) -> dict[int, int | None]:
        offsets = self.admin.committed(self.name, self.partitions)
        return {partition.partition: offset for partition, offset in offsets.items()}


classic_only = pytest.mark.parametrize("group", ["classic"], indirect=True)
consumer_only = pytest.mark.parametrize("group", ["consumer"], indirect=True)


in_both = pytest.mark.parametrize("group", ["classic", "consumer"], indirect=True)
"""Ordinary runs show the rest only in the protocol `classic`, since groups of the other one take seconds to settle."""


@pytest.fixture(params=("classic", "consumer") if LONG else ("classic",))
def group(request: pytest.FixtureRequest, kafka_broker: KafkaBroker) -> Iterator[Group]:
    """A group of each protocol."""
    with ExitStack() as stack:
        group = Group(kafka_broker.bootstrap_servers, f"group-{uuid.uuid4().hex[:12]}", stack, request.param)
        group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
        yield group


def test_a_lone_member_owns_everything_and_commits(group: Group) -> None:
    member = group.member()
    wait_until(lambda: member.assignment(300) == group.partitions)
    assert member.generation == 1
    member.commit({TopicPartition(group.name, 2): 17})
    assert group.committed() == {0: None, 1: None, 2: 17, 3: None}
    member.commit({})
    member.close()
    assert member.state is GroupState.CLOSED
    assert member.error is None


@classic_only
def test_a3_a_commit_that_a_deleted_topic_refuses_is_not_repeated(group: Group) -> None:
    member = group.member()
    wait_until(lambda: member.assignment(300) == group.partitions)
    group.admin.delete_topics([group.name])
    refusals: list[StreamRTError] = []

    def commit() -> bool:
        try:
            member.commit({TopicPartition(group.name, 2): 17})
        except (GroupFencedError, KafkaRequestError) as refusal:
            refusals.append(refusal)
        return bool(refusals)

    wait_until(commit)
    # The member may have heard of the deletion first.
    fenced = isinstance(refusals[0], GroupFencedError)
    assert fenced or (getattr(refusals[0], "code", 0), getattr(refusals[0], "retriable", False)) == (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        True,
    )
    group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
    assert group.committed()[2] is None


def test_no_assignment_in_time_is_none(group: Group) -> None:
    member = group.member(start=False)
    assert member.assignment(0) is None
    member.close()
    assert member.state is GroupState.CLOSED


def test_a_member_starts_once(group: Group) -> None:
    member = group.member()
    with pytest.raises(InvalidOperationError, match="cannot become joining"):
        member.start()


def test_no_record_is_delivered_and_none_is_committed(group: Group) -> None:
    with Producer(group.address) as producer:
        for number in range(PARTITIONS):
            producer.produce(group.name, value=b"v", partition=number)
    member = group.member()
    wait_until(lambda: member.assignment(300) == group.partitions)
    polled = threading.Event()
    examined: list[object] = []
    examine = member._handle_polled

    def spy(message: object) -> None:
        examined.append(message)
        if len(examined) >= 10:
            polled.set()
        examine(message)

    member._handle_polled = spy  # type: ignore[method-assign]
    assert polled.wait(300)
    assert examined == [None] * len(examined)
    member.close()
    assert set(group.committed().values()) == {None}


@in_both
def test_two_members_share_the_partitions(group: Group) -> None:
    revoked: list[frozenset[TopicPartition]] = []
    first = group.member(revoked.append)
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    theirs = second.assignment(300)
    mine = first.assignment(300)
    assert mine is not None
    assert theirs is not None
    assert len(mine) == len(theirs) == PARTITIONS // 2
    assert mine | theirs == group.partitions
    assert revoked == [group.partitions if group.protocol == "classic" else theirs]
    assert first.generation == 2
    second.close()
    wait_until(lambda: first.assignment(300) == group.partitions)


def test_members_that_are_told_of_each_other_do_not_wait_for_heartbeats(group: Group) -> None:
    rarely = {"session.timeout.ms": 290_000, "heartbeat.interval.ms": 280_000}
    members = [group.member(options=rarely)]
    wait_until(lambda: members[0].assignment(300) == group.partitions)
    members.append(group.member(options=rarely))

    def have_shares() -> bool:
        for member in members:
            member.join_again()
        # Both shares at one moment: a member that rejoins after it may have to wait for the other's heartbeat.
        shares = [member.assignment(0.2) or frozenset() for member in members]
        return all(len(share) == PARTITIONS // 2 for share in shares) and shares[0] | shares[1] == group.partitions

    wait_until(have_shares)


@classic_only
def test_a_member_knows_whether_the_group_had_another_generation_in_between(group: Group) -> None:
    """No other member can have owned what a member owned in the generation before, and owns again."""
    first = group.member()
    second: GroupMember | None = None

    def assigned(count: int) -> GroupAssignment:
        found: list[GroupAssignment] = []

        def look() -> bool:
            current = first.current_assignment(300)
            found[:] = [] if current is None else [current]
            return bool(found) and len(found[0].partitions) == count

        wait_until(look)
        return found[0]

    assert not assigned(PARTITIONS).unbroken, "it had none before"
    second = group.member()
    shared = assigned(PARTITIONS // 2)
    assert shared.unbroken
    second.close()
    alone = assigned(PARTITIONS)
    assert alone.unbroken
    assert alone.generation == shared.generation + 1


@classic_only
def test_a_member_that_missed_a_generation_knows_it(group: Group) -> None:
    first, lost = group.member(start=False), threading.Event()
    first._on_lost = lambda partitions: lost.set()
    first.start()
    wait_until(lambda: first.assignment(300) == group.partitions)
    # As if it had been frozen until its session was over, and another one had the partitions meanwhile.
    assert first._place is not None
    first._place = first._place._replace(generation=first._place.generation - 1)
    second = group.member()
    wait_until(lambda: first.generation == 2)
    current = first.current_assignment(300)
    assert current is not None
    assert not current.unbroken
    second.close()
    wait_until(lambda: first.generation == 3)
    current = first.current_assignment(300)
    assert current is not None
    assert current.unbroken


def test_more_members_than_partitions_leave_one_without(group: Group) -> None:
    members = [group.member() for _ in range(PARTITIONS + 1)]

    def sizes() -> list[int]:
        found = [member.assignment(300) for member in members]
        return sorted(len(partitions) for partitions in found if partitions is not None)

    wait_until(lambda: sizes() == [0, 1, 1, 1, 1])


@in_both
def test_on_revoke_blocks_the_others_and_commits(group: Group) -> None:
    entered, proceed = threading.Event(), threading.Event()
    problems: list[Exception] = []

    def on_revoke(partitions: frozenset[TopicPartition]) -> None:
        entered.set()
        assert proceed.wait(300)
        try:
            first.commit(dict.fromkeys(partitions, 5))
        except Exception as error:
            problems.append(error)

    first = group.member(on_revoke)
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    assert entered.wait(300)
    assert first.state is GroupState.REVOKING
    # No member gets partitions while their owner is still at work, and none deadlocks.
    assert second.assignment(0.5) is None
    assert first.assignment(0) is None
    # Another thread may commit too.
    first.commit({TopicPartition(group.name, 0): 4})
    proceed.set()
    theirs = wait_until(lambda: second.assignment(300))
    assert problems == []
    moved = group.partitions if group.protocol == "classic" else theirs
    assert {each for each in group.partitions if group.committed()[each.partition] == 5} == moved


class UnluckyMember(GroupMember):
    """A member whose commits meet a coordinator that moves, or another error, until the test lets them through."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.trouble = KafkaError.NOT_COORDINATOR
        self.begun, self.proceed = threading.Event(), threading.Event()

    def _next_request(self, timeout: float) -> Any:
        request = super()._next_request(timeout)
        if request is None:
            return None
        self.begun.set()
        if not self.proceed.is_set():
            request.finish(KafkaError(self.trouble))
            return None
        return request


@in_both
def test_the_partitions_are_not_given_back_under_a_commit(group: Group) -> None:
    """A commit that another thread has begun, and that is retried, ends before the generation does."""
    first = group.member(kind=UnluckyMember)
    assert isinstance(first, UnluckyMember)
    wait_until(lambda: first.assignment(300) == group.partitions)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(first.commit, {TopicPartition(group.name, 1): 9})
        assert first.begun.wait(300)
        second = group.member()
        wait_until(lambda: first.state is GroupState.REVOKING)
        assert second.assignment(0.5) is None
        first.proceed.set()
        commit.result(300)
    assert second.assignment(300) is not None
    assert group.committed()[1] == 9


def test_a_commit_that_cannot_succeed_in_time_says_so(group: Group) -> None:
    """Nor does a rebalance that lasts longer end the application: the same commit may succeed after it."""
    member = group.member(kind=UnluckyMember)
    assert isinstance(member, UnluckyMember)
    wait_until(lambda: member.assignment(300) == group.partitions)
    for trouble in ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"):
        member.trouble = getattr(KafkaError, trouble)
        with pytest.raises(KafkaRequestError, match=trouble) as caught:
            member.commit({TopicPartition(group.name, 1): 9}, timeout=0.2)
        assert caught.value.retriable


def test_the_runner_thread_commits_while_on_revoke_waits_for_it(group: Group) -> None:
    """As a runner does: the callback only signals; the thread that drains commits and lets it go on."""
    revoking, drained = threading.Event(), threading.Event()

    def on_revoke(_: frozenset[TopicPartition]) -> None:
        revoking.set()
        assert drained.wait(300)

    first = group.member(on_revoke)
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    assert revoking.wait(300)
    first.commit(dict.fromkeys(group.partitions, 6), timeout=10)
    drained.set()
    assert second.assignment(300) is not None
    assert set(group.committed().values()) == {6}


def test_a_callback_may_close_the_member(group: Group) -> None:
    first = group.member(lambda _: first.close())
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    wait_until(lambda: first.state is GroupState.CLOSED)
    wait_until(lambda: second.assignment(300) == group.partitions)


def test_commits_do_not_wait_for_a_poll(group: Group) -> None:
    member = group.member()
    wait_until(lambda: member.assignment(300) == group.partitions)
    member._poll_timeout = 1.0
    times = []
    for offset in range(20):
        started = time.monotonic()
        member.commit({TopicPartition(group.name, 0): offset})
        times.append(time.monotonic() - started)
    assert statistics.median(times) < 0.5


@classic_only
def test_a_commit_of_a_former_generation_is_refused(group: Group) -> None:
    first = group.member()
    wait_until(lambda: first.assignment(300) == group.partitions)
    former = first.generation
    second = group.member()
    wait_until(lambda: len(first.assignment(300) or ()) == 2 and len(second.assignment(300) or ()) == 2)
    mine = first.assignment(300)
    assert mine is not None
    kept, given = min(mine), min(group.partitions - mine)
    with pytest.raises(GroupFencedError, match="generation"):
        first.commit({kept: 1}, generation=former)
    with pytest.raises(GroupFencedError, match="reassigned"):
        first.commit({given: 1})
    first.commit({kept: 1}, generation=first.generation)
    assert group.committed()[given.partition] is None


@consumer_only
def test_a_member_keeps_what_does_not_move(group: Group) -> None:
    """Only what moves is revoked, and commits of the rest hold across generations."""
    revoked: list[frozenset[TopicPartition]] = []
    first = group.member(revoked.append)
    wait_until(lambda: first.assignment(300) == group.partitions)
    former = first.generation
    second = group.member()
    theirs = wait_until(lambda: second.assignment(300))
    wait_until(lambda: first.assignment(300) == group.partitions - theirs)
    assert revoked == [theirs]
    kept = group.partitions - theirs
    current = first.current_assignment(300)
    assert current is not None
    assert current.kept(former) == kept
    assert current.holds(former, kept)
    first.commit(dict.fromkeys(kept, 1), generation=former)
    with pytest.raises(GroupFencedError, match="reassigned"):
        first.commit({min(theirs): 1}, generation=former)
    second.close()
    wait_until(lambda: first.assignment(300) == group.partitions)
    current = first.current_assignment(300)
    assert current is not None
    assert current.kept(former) == kept, "others had the rest in the meantime"
    with pytest.raises(GroupFencedError, match="reassigned"):
        first.commit({min(theirs): 1}, generation=former)
    first.commit(dict.fromkeys(group.partitions, 2), generation=first.generation)
    assert set(group.committed().values()) == {2}


@consumer_only
def test_the_id_of_a_dead_static_member_passes_on_when_its_session_is_over(group: Group) -> None:
    program = [sys.executable, "-c", SLEEPER, group.address, group.name, group.protocol]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"assigned\n"
        old.kill()
    new = group.member(group_instance_id="one")
    wait_until(lambda: new.assignment(300) == group.partitions)
    new.commit({TopicPartition(group.name, 0): 1})


@consumer_only
def test_a_static_id_of_a_living_member_is_refused(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "_UNRELEASED_S", 0.5)
    old = group.member(group_instance_id="one")
    wait_until(lambda: old.assignment(300) == group.partitions)
    new = group.member(group_instance_id="one")
    wait_until(lambda: new.error is not None)
    with pytest.raises(KafkaRequestError, match="another process has the same group_instance_id"):
        new.assignment(1)
    old.commit({TopicPartition(group.name, 0): 1})


def test_an_error_in_on_revoke_ends_the_member(group: Group) -> None:
    def on_revoke(_: frozenset[TopicPartition]) -> None:
        raise ValueError("cannot drain")

    first = group.member(on_revoke)
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    wait_until(lambda: first.error is not None)
    with pytest.raises(ValueError, match="cannot drain"):
        first.assignment(1)
    wait_until(lambda: second.assignment(1) == group.partitions)
    with pytest.raises(GroupFencedError):
        first.commit({TopicPartition(group.name, 0): 1})


class RefusedMember(GroupMember):
    """A member whose client does not take what it is assigned: it was fenced right before."""

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_unassign(partitions)


def test_an_error_of_the_client_in_a_callback_ends_the_member(group: Group) -> None:
    member = group.member(kind=RefusedMember)
    with pytest.raises(KafkaRequestError, match="the membership in the consumer group ended"):
        wait_until(lambda: member.assignment(1))
    wait_until(lambda: member.state is GroupState.CLOSED)


@in_both
def test_closing_revokes_and_commits(group: Group) -> None:
    def on_revoke(partitions: frozenset[TopicPartition]) -> None:
        member.commit(dict.fromkeys(partitions, 3))

    member = group.member(on_revoke)
    wait_until(lambda: member.assignment(300) == group.partitions)
    member.close()
    member.close()
    assert set(group.committed().values()) == {3}
    assert member.assignment(0) is None
    with pytest.raises(GroupFencedError):
        member.commit({TopicPartition(group.name, 0): 4})


def test_a_static_member_that_comes_back_gets_its_partitions_at_once(group: Group) -> None:
    revoked: list[frozenset[TopicPartition]] = []
    # It must not wait for the old session to time out.
    first = group.member(group_instance_id="first", options={"session.timeout.ms": 120_000})
    second = group.member(revoked.append, group_instance_id="second")
    wait_until(lambda: len(first.assignment(300) or ()) == 2 and len(second.assignment(300) or ()) == 2)
    theirs = second.assignment(0)
    mine = first.assignment(0)
    revoked.clear()
    generation = second.generation
    first.close()
    again = group.member(group_instance_id="first")
    assert again.assignment(300) == mine
    # The other member did not notice anything.
    assert second.assignment(0) == theirs
    assert (revoked, second.generation) == ([], generation)


@classic_only
def test_a_member_whose_static_id_is_taken_ends(group: Group) -> None:
    lost: list[frozenset[TopicPartition]] = []
    old = group.member(group_instance_id="one", on_lost=lost.append)
    wait_until(lambda: old.assignment(300) == group.partitions)
    new = group.member(group_instance_id="one")
    wait_until(lambda: new.assignment(300) == group.partitions)
    wait_until(lambda: old.error is not None)
    with pytest.raises(KafkaRequestError, match="group_instance_id"):
        old.assignment(1)
    wait_until(lambda: lost == [group.partitions])
    with pytest.raises(GroupFencedError):
        old.commit({TopicPartition(group.name, 0): 1})
    wait_until(lambda: old.state is GroupState.CLOSED)


@classic_only
def test_a_static_member_that_wakes_up_late_can_leave_its_place_to_its_successor(group: Group) -> None:
    program = [sys.executable, "-c", SLEEPER, group.address, group.name, group.protocol]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as old:
        assert old.stdout is not None
        try:
            assert old.stdout.readline() == b"assigned\n"
            freeze(process_tree(old.pid))
            new = group.member(group_instance_id="one")
            wait_until(lambda: new.assignment(300) == group.partitions)
            # Until its session has timed out: then librdkafka joins under the same id again, if it is let.
            time.sleep(7)
            thaw(process_tree(old.pid))
            assert old.stdout.readline() == b"lost\n"
            assert old.wait(300) == 0
        finally:
            old.kill()
    new.commit({TopicPartition(group.name, 0): 1})
    assert (new.error, new.generation) == (None, 1)


def test_a_static_member_that_takes_its_time_after_a_loss_does_not_fence_itself(mortal_broker: EmbeddedKafka) -> None:
    lost, proceed = threading.Event(), threading.Event()

    def on_lost(_partitions: frozenset[TopicPartition]) -> None:
        lost.set()
        assert proceed.wait(120)

    with ExitStack() as stack:
        group = Group(mortal_broker.bootstrap_servers, "patient", stack)
        group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
        options = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
        member = group.member(on_lost=on_lost, options=options, group_instance_id="one")
        wait_until(lambda: member.assignment(300) == group.partitions)
        mortal_broker.kill()
        assert lost.wait(300)
        mortal_broker.restart()
        wait_until(group.committed)
        # For some heartbeats, which no other member sees.
        time.sleep(2)
        proceed.set()
        assert member.assignment(300) == group.partitions, member.error
        assert member.generation == 2


def test_a_static_member_that_hears_late_of_its_own_loss_is_not_its_own_successor(mortal_broker: EmbeddedKafka) -> None:
    """Its client sends heartbeats without a member id until then, and brokers refuse them for good."""
    proceed = threading.Event()
    proceed.set()
    lost: list[frozenset[TopicPartition]] = []

    class SlowMember(GroupMember):
        def _probe_brokers(self) -> None:
            assert proceed.wait(120)

    with ExitStack() as stack:
        group = Group(mortal_broker.bootstrap_servers, "deaf", stack)
        group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
        member = group.member(kind=SlowMember, on_lost=lost.append, group_instance_id="one")
        wait_until(lambda: member.assignment(300) == group.partitions)
        proceed.clear()
        mortal_broker.kill()
        # The session is over for the client; for the brokers it begins again when they start.
        time.sleep(6.5)
        mortal_broker.restart()
        wait_until(group.committed)
        # For some heartbeats.
        time.sleep(1)
        proceed.set()
        wait_until(lambda: member.error or lost == [group.partitions])
        wait_until(lambda: member.assignment(300) == group.partitions)
        member.commit({TopicPartition(group.name, 0): 1})


def test_a_member_that_outstays_its_poll_interval_is_fenced(group: Group) -> None:
    """The group moves on without a member that drains for too long; its late commit must not count."""
    problems: list[Exception] = []
    proceed = threading.Event()

    def on_revoke(partitions: frozenset[TopicPartition]) -> None:
        assert proceed.wait(300)
        try:
            first.commit(dict.fromkeys(partitions, 99))
        except Exception as error:
            problems.append(error)

    first = group.member(on_revoke, options={"max.poll.interval.ms": 6000})
    wait_until(lambda: first.assignment(300) == group.partitions)
    second = group.member()
    wait_until(lambda: second.assignment(40) == group.partitions)
    second.commit(dict.fromkeys(group.partitions, 7))
    proceed.set()
    wait_until(lambda: problems)
    assert isinstance(problems[0], GroupFencedError), problems
    assert set(group.committed().values()) == {7}
    # It joins again by itself.
    wait_until(lambda: len(first.assignment(300) or ()) == 2)


def test_a_commit_does_not_wait_for_a_broker_longer_than_asked(mortal_broker: EmbeddedKafka) -> None:
    """Also right after the broker went away, when the client does not know it yet."""
    with ExitStack() as stack:
        group = Group(mortal_broker.bootstrap_servers, "gone", stack)
        group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
        member = group.member(options={"session.timeout.ms": 45_000})
        wait_until(lambda: member.assignment(300) == group.partitions)
        member.commit(dict.fromkeys(group.partitions, 1))
        mortal_broker.kill()
        started = time.monotonic()
        with pytest.raises(KafkaRequestError):
            member.commit(dict.fromkeys(group.partitions, 2), timeout=0.5)
        assert time.monotonic() - started < 15
        member.close()
        # Less than the session.
        assert time.monotonic() - started < 40


def test_a_broker_that_stays_away_ends_the_member(mortal_broker: EmbeddedKafka) -> None:
    with ExitStack() as stack:
        group = Group(mortal_broker.bootstrap_servers, "away", stack)
        group.admin.create_topics([Definition(group.name, TopicConfig(PARTITIONS, 1))])
        patient = group.member(broker_availability_timeout=120, options={"session.timeout.ms": 45_000})
        impatient = group.member(broker_availability_timeout=2)
        wait_until(lambda: len(patient.assignment(300) or ()) == len(impatient.assignment(300) or ()) == 2)
        mortal_broker.kill()
        wait_until(lambda: impatient.error is not None)
        assert isinstance(impatient.error, KafkaBrokerUnavailableError)
        assert group.address in str(impatient.error)
        wait_until(lambda: impatient.state is GroupState.CLOSED)
        mine = min(patient.assignment(0) or group.partitions)
        started = time.monotonic()
        with pytest.raises((KafkaRequestError, GroupFencedError)):
            patient.commit({mine: 1}, timeout=0.5)
        assert time.monotonic() - started < 20
        mortal_broker.start()
        wait_until(lambda: patient.assignment(300) == group.partitions)
        assert patient.error is None
        patient.commit({TopicPartition(group.name, 0): 2}, timeout=30)
        assert group.committed()[0] == 2
