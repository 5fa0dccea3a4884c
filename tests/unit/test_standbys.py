"""Standby replicas: who follows what, when another instance counts as dead, and how much time copies get."""

import random
from collections.abc import Callable, Sequence

import pytest

from streamrt.common.addresses import HostPort
from streamrt.errors import ConfigurationError, StateError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runs.peers import Peers, connection_is_refused, find_remaining
from streamrt.runs.standby_watch import plan_standbys
from streamrt.runtime.driver.life.takeovers import predict_takeovers, share_out
from streamrt.runtime.resident.standbys import Standbys
from streamrt.slots.resident_task import member_of_slot
from streamrt.topology import TaskId
from tests.servers import free_port
from tests.unit.apps import application

UUID = "5f0c1a52-8d1f-4a9c-9a53-6a8a5d6f3c1"


def members_of(*instances: str, slots: int = 2, ports: Sequence[int] = (), join: int = 0) -> list[ListedMember]:
    announced = [f"@127.0.0.1:{port}" for port in ports] or [""] * len(instances)
    return [
        ListedMember(f"{member_of_slot(instance, slot)}-{UUID}{join}", f"{slot:03d}-streamrt{address}", "127.0.0.1", ())
        for instance, address in zip(instances, announced, strict=True)
        for slot in range(slots)
    ]


# -- Who follows what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_whoever_takes_a_partition_over_has_followed_it(seed: int) -> None:
    rng = random.Random(seed)
    instances = [f"shop-{number}" for number in range(rng.randint(2, 5))]
    slots = {instance: rng.randint(1, 3) for instance in instances}
    members = {member_of_slot(instance, slot): instance for instance in instances for slot in range(slots[instance])}
    topics = {"orders": rng.randint(1, 20), "bills": rng.randint(1, 20)}
    before = share_out(members, topics)
    gone = rng.choice(instances)
    after = share_out([member for member in members if members[member] != gone], topics)
    for instance in set(instances) - {gone}:
        own = [member for member in members if members[member] == instance]
        held = {place for member in own for place in before[member]}
        followed = predict_takeovers(members, topics, instance)
        for member in own:
            assert after[member] - held <= followed[member]
            assert not followed[member] & held


def test_all_partitions_are_shared_out_in_the_order_of_the_members() -> None:
    shares = share_out(["001-a", "000-b", "000-a"], {"orders": 4})
    assert {member: sorted(place.partition for place in share) for member, share in shares.items()} == {
        "000-a": [0, 1],
        "000-b": [2],
        "001-a": [3],
    }


def test_each_slot_follows_what_it_would_take_over() -> None:
    plan = plan_standbys(members_of("a", "b"), {"orders": 4}, "a")
    assert plan == {0: {TopicPartition("orders", 1)}, 1: {TopicPartition("orders", 3)}}


def test_an_instance_on_its_own_follows_nothing() -> None:
    assert plan_standbys(members_of("a"), {"orders": 4}, "a") == {0: frozenset(), 1: frozenset()}


# -- Which instances have died ---------------------------------------------------------------------------------------


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.answer: bool | None = False
        self.tried = 0
        self.peers = Peers("a", self.refuse, lambda: self.now)

    def refuse(self, address: HostPort) -> bool | None:
        assert address == HostPort("127.0.0.1", 7070)
        self.tried += 1
        return self.answer

    def look(self, answer: bool | None) -> list[str]:
        self.answer = answer
        self.now += 0.5
        return [each for ids in self.peers.find_dead().values() for each in sorted(ids.values())]


def test_an_instance_that_refuses_connections_for_a_second_is_dead_once() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    assert world.look(False) == world.look(True) == world.look(True) == []
    assert world.look(True) == ["000-b", "001-b"]
    assert world.look(True) == world.look(True) == world.look(True) == []


def test_an_instance_that_has_never_answered_is_left_alone() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    assert not any(world.look(True) for _ in range(10))


def test_a_server_that_is_back_in_time_starts_the_second_anew() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    assert not any(world.look(answer) for answer in (False, True, True, False, True, True))
    assert world.look(True) == ["000-b", "001-b"]


def test_an_instance_that_does_not_answer_is_left_to_the_coordinator() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    assert not any(world.look(answer) for answer in (False, True, None, *[True] * 9))
    assert world.tried == 3
    # A look after five seconds.
    assert [world.look(True) for _ in range(3)] == [[], [], ["000-b", "001-b"]]


def test_members_that_join_again_have_to_answer_again() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    assert world.look(False) == world.look(True) == []
    world.peers.see(members_of("a", "b", ports=(7069, 7070), join=1))
    assert not any(world.look(True) for _ in range(10))


def test_instances_without_an_address_are_left_alone() -> None:
    world = World()
    world.peers.see(members_of("a", "b"))
    assert world.look(True) == []
    assert world.tried == 0


def test_an_instance_that_was_started_again_is_not_removed() -> None:
    world = World()
    world.peers.see(members_of("a", "b", ports=(7069, 7070)))
    for answer in (False, True, True):
        world.look(answer)
    world.now += 0.5
    (dead,) = world.peers.find_dead().values()
    assert find_remaining(dead, members_of("a", "b")) == ["000-b", "001-b"]
    again = members_of("a", "b", join=1)
    assert find_remaining(dead, again) == []
    # One of its slots has not joined yet.
    assert find_remaining(dead, [*again[:3], members_of("b")[1]]) == []


@pytest.mark.parametrize(("instances", "ports"), [("ab", (7070, 7070)), ("abc", (7069, 7070, 7070))])
def test_an_address_that_several_instances_share_proves_nothing(instances: str, ports: tuple[int, ...]) -> None:
    # A load balancer, or an address translation in front of containers.
    world = World()
    world.peers.see(members_of(*instances, ports=ports))
    assert not any(world.look(answer) for answer in (False, True, True, True))
    assert world.tried == 0


def test_a_port_without_a_server_refuses_connections() -> None:
    assert connection_is_refused(HostPort("127.0.0.1", free_port())) is True
    assert connection_is_refused(HostPort("nowhere.invalid", 1)) is None


# -- How much time copies get ----------------------------------------------------------------------------------------


class Copies:
    """A double of the copies of a task: it takes time."""

    def __init__(self, world: "Slot", rest: int = 0, took_s: float = 0.0) -> None:
        self.world = world
        self.rest = rest
        self.took_s = took_s
        self.trouble: Exception | None = None
        self.looks = 0
        self.closed = False
        self.waits = False

    def catch_up(self, in_time: Callable[[], bool]) -> int:
        self.looks += 1
        if self.trouble is not None:
            raise self.trouble
        self.world.now += self.took_s
        while self.rest and not self.waits and in_time():
            self.world.now += 0.01
            self.rest -= 1
        return self.rest

    def close(self) -> None:
        self.closed = True


class Slot:
    def __init__(self) -> None:
        self.now = 0.0
        self.copies: dict[TaskId, Copies] = {}
        self.standbys = Standbys(lambda task: self.copies[task], lambda: self.now)

    def follow(self, *rests: int) -> list[Copies]:
        tasks = [TaskId("orders", number) for number in range(len(rests))]
        self.copies = {task: Copies(self, rest) for task, rest in zip(tasks, rests, strict=True)}
        self.standbys.follow(tasks)
        return list(self.copies.values())


def test_own_tasks_have_four_times_what_copies_take() -> None:
    slot = Slot()
    (copies,) = slot.follow(10)
    assert slot.standbys.step()
    assert slot.now == pytest.approx(0.05)
    assert copies.rest == 5
    slot.now += 0.19
    assert not slot.standbys.step()
    slot.now += 0.02
    assert slot.standbys.step()
    assert slot.standbys.left == {TaskId("orders", 0): 0}


def test_a_changelog_that_is_followed_to_its_end_is_looked_at_each_second() -> None:
    slot = Slot()
    first, second = slot.follow(0, 0)
    assert slot.standbys.step()
    slot.now += 0.9
    assert not slot.standbys.step()
    slot.now += 0.2
    # Nothing is new.
    assert not slot.standbys.step()
    assert (first.looks, second.looks) == (2, 2)


def test_looks_that_take_long_are_rarer() -> None:
    slot = Slot()
    (copies,) = slot.follow(0)
    copies.took_s = 0.5
    slot.standbys.step()
    slot.now += 9.9
    slot.standbys.step()
    assert copies.looks == 1
    slot.now += 0.2
    slot.standbys.step()
    assert copies.looks == 2


def test_a_copy_that_cannot_be_used_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    slot = Slot()
    first, second = slot.follow(0, 0)
    first.trouble = StateError("the disk is full")
    assert slot.standbys.step()
    assert (first.closed, second.closed, second.looks) == (True, False, 1)
    assert list(slot.standbys.left) == [TaskId("orders", 1)]
    slot.now += 59.0
    slot.standbys.step()
    assert (first.looks, second.looks) == (1, 2)
    slot.now += 2.0
    slot.standbys.step()
    assert first.looks == 2
    assert caplog.text.count("the disk is full") == 1, "the same trouble is reported once"
    first.trouble = None
    slot.now += 61.0
    slot.standbys.step()
    assert slot.standbys.left == dict.fromkeys(slot.copies, 0)


def test_brokers_that_do_not_answer_are_asked_again() -> None:
    slot = Slot()
    first, _ = slot.follow(0, 0)
    first.trouble = KafkaRequestError("away", retriable=True)
    slot.standbys.step()
    first.trouble = None
    slot.now += 1.1
    slot.standbys.step()
    assert slot.standbys.left == dict.fromkeys(slot.copies, 0)


def test_a_copy_whose_snapshot_is_on_its_way_holds_up_no_other() -> None:
    slot = Slot()
    first, second = slot.follow(3, 3)
    first.waits = True
    slot.standbys.step()
    slot.now += 0.5
    assert not slot.standbys.step()
    assert slot.standbys.left == {TaskId("orders", 0): 3, TaskId("orders", 1): 0}
    first.waits = False
    slot.now += 1.0
    assert slot.standbys.step()
    assert slot.standbys.left == dict.fromkeys(slot.copies, 0)
    assert second.looks == 2


def test_files_are_closed_before_partitions_move() -> None:
    slot = Slot()
    first, second = slot.follow(5, 5)
    slot.standbys.step()
    slot.standbys.close()
    assert first.closed
    assert second.closed
    assert slot.standbys.left == {}
    assert not slot.standbys.step()


# -- The setting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "needs processing_mode='resident'"),
        ({"processing_mode": "resident", "group_protocol": "consumer"}, "needs group_protocol='classic'"),
        ({"processing_mode": "resident", "use_changelog_topics": False}, "needs use_changelog_topics=True"),
    ],
)
def test_standbys_are_refused_where_there_are_none(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        application(**settings, standby_replicas=1)
    assert "parameter 'standby_replicas'" in str(caught.value)
    assert reason in str(caught.value)
