"""Resident tasks across rebalances: what comes back goes on where it was, what does not is closed, and doubts close all."""

import pytest

from streamrt import Application
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.models import TopicPartition
from streamrt.runtime.link_messages import AssignmentRequest, ProgressUpdate, StartPositions, Stop, Time, Welcome
from streamrt.runtime.resident.parking import PARKED_S
from streamrt.topology import TaskId
from tests.unit.resident_world import (
    BOTH,
    FIRST,
    FIRST_TASK,
    GUARANTEES,
    SECOND,
    World,
    committed,
    seen,
    tally,
    waiting_store,
    windows,
)

OTHER = TopicPartition("other", 0)


def merging(app: Application) -> None:
    left, right = app.dataframe(app.topic("in")), app.dataframe(app.topic("other"))
    left.concat(right).apply(tally, stateful=True).to_topic(app.topic("out"))


def parked(transactional: bool, *partitions: TopicPartition) -> World:
    """Return a world whose task has processed two records of each partition and waits for its next assignment."""
    world = World(transactional=transactional)
    for place in partitions:
        world.put(place, 1, 2)
    world.begin(*partitions)
    world.until(lambda: seen(world) == 2 * len(partitions))
    world.revoke()
    assert committed(world) == dict.fromkeys(partitions, 2)
    world.catalog.opened.clear()
    return world


@GUARANTEES
def test_what_comes_back_goes_on_with_open_stores(transactional: bool) -> None:
    world = parked(transactional, FIRST, SECOND)
    inits = world.clients.calls.count("init")
    for place in (FIRST, SECOND):
        world.put(place, 3)
    world.member.assign(*BOTH, unbroken=True)
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 3})
    assert world.link.told(AssignmentRequest)[1:] == [AssignmentRequest(2, BOTH, BOTH)]
    assert world.catalog.opened == []
    assert world.clients.calls.count("init") == inits
    assert sorted(world.counts()) == sorted([(1, 1), (2, 2), (3, 3)] * 2)


def test_changelogs_of_all_partitions_are_asked_about_with_one_request() -> None:
    """At a rebalance and at a commit: one for each of a hundred partitions stopped them all for a tenth of a second."""
    world = parked(False, FIRST, SECOND)
    world.clients.requests.clear()
    world.member.assign(*BOTH, unbroken=True)
    world.until_begun()
    assert world.clients.requests == [2]
    for place in BOTH:
        world.put(place, 3)
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 3})
    assert world.clients.requests == [2, 2]


@GUARANTEES
def test_what_does_not_move_goes_on_while_partitions_are_added(transactional: bool) -> None:
    """In the group protocol `consumer`."""
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.member.assign(FIRST, held={FIRST: 1})
    world.until(lambda: seen(world) == 2)
    world.catalog.opened.clear()
    world.put(FIRST, 3)
    world.put(SECOND, 3)
    world.member.assign(FIRST, SECOND, held={FIRST: 1, SECOND: 2})
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 1})
    assert world.link.told(AssignmentRequest)[-1] == AssignmentRequest(2, BOTH, frozenset({FIRST}))
    assert world.catalog.opened == [1]
    assert sorted(world.counts()) == [(1, 1), (2, 2), (3, 1), (3, 3)]


@GUARANTEES
def test_what_does_not_move_goes_on_when_partitions_are_taken(transactional: bool) -> None:
    """In the group protocol `consumer`; what comes back later begins again, since others may have had it."""
    world = parked(transactional, FIRST, SECOND)
    world.put(FIRST, 3)
    world.member.assign(FIRST, held={FIRST: 1})
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 2})
    assert world.catalog.opened == []
    world.put(SECOND, 3)
    world.member.assign(FIRST, SECOND, held={FIRST: 1, SECOND: 3})
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 3})
    assert len(world.catalog.opened) == 1


@GUARANTEES
def test_the_answer_for_what_went_on_is_none_for_what_had_to_begin_again(transactional: bool) -> None:
    world = parked(transactional, FIRST, SECOND)
    world.link.begins = False
    for place in (FIRST, SECOND):
        world.put(place, 3)
    world.feed.troubles.append(KafkaRequestError("the leader moves", retriable=True))
    world.member.assign(*BOTH, unbroken=True)
    world.until(lambda: len(world.link.told(AssignmentRequest)) == 3)
    first, second = world.link.told(AssignmentRequest)[1:]
    assert (first.kept, second.kept) == (BOTH, frozenset())
    world.link.begin(first)
    world.link.begin(second)
    world.until(lambda: committed(world) == {FIRST: 3, SECOND: 3})


@GUARANTEES
def test_what_goes_to_another_member_is_closed_before_the_driver_hears_of_it(transactional: bool) -> None:
    world = parked(transactional, FIRST, SECOND)
    world.link.begins = False
    world.member.assign(FIRST, unbroken=True)
    world.steps()
    assert world.link.told(AssignmentRequest)[1:] == [AssignmentRequest(2, frozenset({FIRST}), frozenset({FIRST}))]
    assert world.counted(1) == 2
    assert world.feed.positions == {FIRST: 2}


@GUARANTEES
def test_what_stays_does_not_wait_for_what_comes(transactional: bool) -> None:
    world = parked(transactional, FIRST, SECOND)
    world.member.assign(FIRST, unbroken=True)
    world.until_begun()
    world.revoke()
    world.link.begins = False
    quiet = len(world.quiet)
    world.put(FIRST, 3)
    world.put(SECOND, 3)
    world.member.assign(FIRST, SECOND, unbroken=True)
    world.until(lambda: seen(world) == 5)
    world.steps(20)
    assert len(world.quiet) == quiet, "the other partition may have records"
    # A batch is under way.
    world.put(FIRST, 4)
    world.link.begin(world.link.told(AssignmentRequest)[2])
    world.until(lambda: committed(world) == {FIRST: 4, SECOND: 3})
    assert sorted(world.counts()) == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3), (3, 3), (4, 4)]
    assert world.catalog.opened == [1]


@GUARANTEES
@pytest.mark.parametrize("missed", ["generation of the group", "assignment of the member"])
def test_what_another_member_may_have_had_in_between_is_opened_anew(transactional: bool, missed: str) -> None:
    world = parked(transactional, FIRST)
    if missed == "assignment of the member":
        # It was taken again before the task has looked.
        world.member.assign(SECOND, unbroken=True)
        world.member._generation += 1
        world.member.current = GroupAssignment(world.member._generation, frozenset({FIRST}), True)
        world.member._owned = world.member.current
    else:
        world.member.assign(FIRST)
    world.put(FIRST, 3)
    world.until(lambda: committed(world)[FIRST] == 3)
    assert [wanted.kept for wanted in world.link.told(AssignmentRequest)] == [frozenset()] * 2
    assert world.catalog.opened == [0]
    assert world.counts() == [(1, 1), (2, 2), (3, 3)]


@GUARANTEES
def test_a_second_revocation_closes_what_was_not_in_the_assignment(transactional: bool) -> None:
    world = parked(transactional, FIRST, SECOND)
    # The task is slow: the group takes the next assignment before the task has seen it.
    world.member.assign(SECOND, unbroken=True)
    world.revoke()
    world.put(FIRST, 3)
    world.member.assign(FIRST, unbroken=True)
    world.until(lambda: committed(world)[FIRST] == 3)
    assert world.link.told(AssignmentRequest)[-1].kept == frozenset()
    assert world.catalog.opened == [0]


@GUARANTEES
def test_what_is_lost_is_closed(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.begin()
    world.member.lose()
    world.steps()
    assert [world.counted(0), world.counted(1)] == [0, 0]
    world.member.assign(*BOTH, unbroken=True)
    world.until_begun()
    assert [wanted.kept for wanted in world.link.told(AssignmentRequest)] == [frozenset()] * 2


@GUARANTEES
def test_a_revocation_that_took_too_long_closes_all(transactional: bool) -> None:
    world = parked(transactional, FIRST)
    world.task._membership._lost.set()
    world.member.assign(FIRST, unbroken=True)
    world.until_begun()
    assert world.link.told(AssignmentRequest)[-1].kept == frozenset()
    assert world.catalog.opened == [0]


def test_what_is_not_committed_is_closed() -> None:
    world = World()
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.member.troubles.append(KafkaRequestError("the coordinator moves", retriable=True))
    world.member.troubles.append(KafkaRequestError("the coordinator moves", retriable=True))
    world.revoke()
    assert committed(world) == {}
    world.member.assign(FIRST, unbroken=True)
    world.until(lambda: committed(world) == {FIRST: 1})
    assert world.link.told(AssignmentRequest)[-1].kept == frozenset()
    assert world.catalog.opened == [0, 0]


def test_a_task_that_is_not_open_is_not_kept() -> None:
    world = World()
    world.link.begins = False
    world.member.assign(FIRST)
    world.steps()
    world.revoke()
    world.link.begins = True
    world.member.assign(FIRST, unbroken=True)
    world.until_begun()
    assert [wanted.kept for wanted in world.link.told(AssignmentRequest)] == [frozenset()] * 2


@GUARANTEES
def test_a_parked_task_does_nothing(transactional: bool) -> None:
    world = World(windows, transactional=transactional)
    world.put(FIRST, 1, timestamp=1_500)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.revoke()
    calls = list(world.clients.calls)
    world.put(FIRST, 2, timestamp=9_000)
    world.link.inbox.append(Time({FIRST_TASK: {waiting_store(world): 5_000}}, frozenset({FIRST_TASK})))
    # An answer to a question of before.
    world.link.inbox.append(StartPositions(1, {FIRST: 0}))
    world.steps(5)
    assert world.clients.calls == calls
    world.member.assign(FIRST, unbroken=True)
    world.until(lambda: committed(world)[FIRST] == 2)
    assert len(world.link.told(AssignmentRequest)) == 2


@GUARANTEES
def test_a_group_that_does_not_decide_in_time_gets_the_stores_closed(transactional: bool) -> None:
    world = parked(transactional, FIRST)
    begun = world.clock()
    world.until(lambda: not world.feed.positions, 1_000)
    assert world.clock() - begun == pytest.approx(PARKED_S, abs=0.2)
    assert world.counted(0) == 2
    world.member.assign(FIRST, unbroken=True)
    world.until_begun()
    assert world.link.told(AssignmentRequest)[-1].kept == frozenset()


@GUARANTEES
def test_a_stop_closes_what_is_parked(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)

    def take() -> None:
        world.task._membership._revoking.set()
        world.member.current = None
        world.link.idle.append(Stop())

    world.feed.before_poll(3, take)
    world.task.run()
    assert world.task._parked is None
    assert committed(world) == {FIRST: 1}
    assert world.counted(0) == 1


def test_a_task_stays_only_with_all_of_its_inputs() -> None:
    world = World(merging)
    world.put(FIRST, 1)
    world.put(OTHER, 2)
    world.begin(FIRST, OTHER)
    world.until(lambda: seen(world) == 2)
    world.revoke()
    world.member.assign(FIRST, unbroken=True)
    world.link.begins = False
    world.steps()
    assert world.link.told(AssignmentRequest)[1:] == [AssignmentRequest(2, frozenset({FIRST}))]
    assert world.feed.positions == {}
    world.link.begins = True
    world.begin(FIRST, OTHER)
    world.revoke()
    world.member.assign(FIRST, OTHER, unbroken=True)
    world.steps()
    assert world.link.told(AssignmentRequest)[-1].kept == {FIRST, OTHER}


def test_a_parked_task_is_not_at_the_end_of_its_input() -> None:
    world = World(windows)
    world.put(FIRST, 1, timestamp=1_500)
    world.begin(FIRST)
    world.until(lambda: ended(world) == frozenset({FIRST_TASK}))
    world.revoke()
    assert ended(world) == frozenset(), "records may come, and nobody reads them"
    world.member.assign(FIRST, unbroken=True)
    world.until(lambda: ended(world) == frozenset({FIRST_TASK}))


def ended(world: World) -> frozenset[TaskId] | None:
    """Return the tasks that were last told to be at the ends of their inputs."""
    told = [message.ended for message in world.link.told(ProgressUpdate) if message.ended is not None]
    return told[-1] if told else None
