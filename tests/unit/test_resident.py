"""The resident task, step by step: where it begins, when it commits, and how it gives partitions back."""

import itertools
import math
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import (
    RunnerError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    Committed,
    Ended,
    Failed,
    Joined,
    LinkClosed,
    ProgressUpdate,
    Settle,
    Settled,
    StartPositions,
    Stop,
    Time,
    Welcome,
)
from streamrt.runtime.report import Report
from streamrt.runtime.resident.commit_schedule import CommitSchedule, ResidentSettings
from streamrt.runtime.tasks.work_cycle import WorkCycle
from tests.support import wait_until
from tests.unit.resident_world import (
    BOTH,
    FIRST,
    FIRST_TASK,
    GUARANTEES,
    METADATA,
    SECOND,
    World,
    committed,
    plain,
    seen,
    waiting_store,
    windows,
)

# -- Joining -----------------------------------------------------------------------------------------------------------


def test_a_task_joins_asks_where_to_begin_works_and_ends() -> None:
    world = World(plain)
    world.put(FIRST, 10, 11, 12)
    committed(world)[FIRST] = 1
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST, SECOND)
    world.feed.before_poll(3, lambda: world.link.inbox.append(Stop()))
    world.task.run()
    kinds = [type(message) for message in world.link.sent]
    assert kinds[:2] == [Joined, AssignmentRequest]
    assert kinds[-1] is Ended
    assert world.link.sent[0] == Joined(3, 1)
    assert world.link.told(AssignmentRequest) == [AssignmentRequest(1, BOTH)]
    assert world.outputs() == [11, 12]
    assert committed(world) == {FIRST: 3}
    assert world.member.started
    assert world.member.closed
    assert world.feed.closed
    assert world.feed.positions == {}


def test_a_task_that_is_told_to_stop_before_it_is_welcome_joins_no_group() -> None:
    world = World(plain)
    world.link.idle.append(Stop())
    world.task.run()
    assert not world.member.started
    assert [type(message) for message in world.link.sent] == [Joined, Ended]


def test_an_empty_assignment_is_asked_about_and_is_quiet() -> None:
    world = World(plain)
    world.member.assign()
    world.until(lambda: world.quiet)
    assert world.link.told(AssignmentRequest) == [AssignmentRequest(1, frozenset())]
    assert world.quiet == [True]


def test_an_answer_for_another_generation_is_not_heard() -> None:
    world = World(plain)
    world.link.begins = False
    world.member.assign(FIRST)
    world.until(lambda: world.link.told(AssignmentRequest))
    world.revoke()
    world.member.assign(SECOND)
    world.until(lambda: len(world.link.told(AssignmentRequest)) == 2)
    world.link.inbox.append(StartPositions(1, {FIRST: 0}))
    world.steps(2)
    assert world.feed.positions == {}
    world.link.inbox.append(StartPositions(2, {SECOND: 4}))
    world.until(lambda: world.feed.positions)
    assert world.feed.positions == {SECOND: 4}


@GUARANTEES
def test_offsets_that_the_group_does_not_know_are_committed_before_the_first_record(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.link.initial_offsets = frozenset({FIRST})
    world.put(FIRST, 1)
    world.begin()
    assert world.member.commits == [{FIRST: 0}]
    assert world.link.told(Committed) == [Committed({FIRST: 0})]


def test_fresh_offsets_that_could_not_be_committed_are_asked_for_again() -> None:
    world = World(transactional=True)
    world.link.initial_offsets = frozenset({FIRST})
    world.member.troubles.append(KafkaRequestError("the coordinator moves", retriable=True))
    world.member.assign(FIRST)
    world.until(lambda: len(world.link.told(AssignmentRequest)) == 2)
    world.until(lambda: world.member.commits)
    assert world.member.commits[0] == {FIRST: 0}


@GUARANTEES
def test_exactly_once_writers_of_several_tasks_start_at_once(transactional: bool) -> None:
    world = World(transactional=transactional, partitions=11)
    world.begin(*(TopicPartition("in", number) for number in range(11)))
    assert world.clients.prepared == ([8, 3] if transactional else [])


# -- Commits -----------------------------------------------------------------------------------------------------------


@GUARANTEES
def test_state_and_outputs_of_interleaved_partitions_are_each_right(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.begin()
    for number in range(4):
        world.put(FIRST, number)
        world.put(SECOND, 100 + number)
        world.steps(2)
        if number % 2:
            world.commit()
    assert sorted(world.counts()) == [*((n, n + 1) for n in range(4)), *((100 + n, n + 1) for n in range(4))]
    assert committed(world) == {FIRST: 4, SECOND: 4}
    # Open from the first record to the last.
    assert sorted(world.catalog.opened) == [0, 1]
    world.let_go()
    assert [world.counted(0), world.counted(1)] == [4, 4]


@GUARANTEES
def test_another_assignment_opens_the_stores_anew(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.commit()
    world.let_go()
    assert world.counted(0) == 2
    world.catalog.opened.clear()
    world.put(FIRST, 3)
    world.begin(FIRST)
    world.commit()
    assert world.catalog.opened == [0]
    assert world.counts() == [(1, 1), (2, 2), (3, 3)]
    assert world.feed.assigned == [{FIRST: 0}, {}, {FIRST: 2}]


def test_a_commit_is_due_an_interval_after_the_first_record() -> None:
    world = World(plain, commits={"commit_interval": 2.0})
    world.begin()
    world.clock.wait(100)
    world.put(FIRST, 1)
    world.until(lambda: world.outputs())
    begun = world.clock()
    world.commit()
    assert 1.9 <= world.clock() - begun <= 2.2
    assert [report.records + seen(world) for report in world.reports] == [1]


def test_exactly_once_a_transaction_lasts_as_long_as_it_may() -> None:
    world = World(plain, transactional=True, commits={"transaction_interval": 0.3})
    world.begin()
    world.put(FIRST, 1)
    world.until(lambda: "out" in world.clients.calls)
    begun = world.clock()
    world.commit()
    assert 0.1 <= world.clock() - begun <= 0.5


def test_exactly_once_a_record_that_comes_alone_is_committed_at_once() -> None:
    world = World(plain, transactional=True, commits={"transaction_interval": None})
    world.begin()
    for value in range(3):
        world.clock.wait(1.0)
        world.put(FIRST, value)
        world.until(lambda: "out" in world.clients.calls)
        begun = world.clock()
        world.until(lambda: "commit" in world.clients.calls)
        assert world.clock() - begun < 0.01
        world.clients.calls.clear()


def test_exactly_once_a_backlog_is_committed_in_transactions_as_long_as_they_may_be() -> None:
    now = [0.0]
    schedule = CommitSchedule(ResidentSettings(0), lambda: now[0], transactional=True)

    def left_s(*, caught_up: bool) -> float:
        schedule.caught_up = caught_up
        return round(schedule.left_s, 6)

    schedule.begin()
    assert (left_s(caught_up=True), left_s(caught_up=False)) == (-math.inf, 0.05)
    now[0] = 1.0
    schedule.record_commit(begun=0.996)
    schedule.begin()
    # The former commit began 4 ms ago.
    assert (left_s(caught_up=True), left_s(caught_up=False)) == (0.016, 0.096)


@pytest.mark.parametrize("caught_up", [True, False])
def test_exactly_once_commits_leave_time_for_records(caught_up: bool) -> None:
    now = [0.0]
    # One commit is very slow.
    commits = (*[0.01] * 30, *[0.06] * 30, 60.0, *[0.06] * 2)
    schedule = CommitSchedule(ResidentSettings(0), lambda: now[0], transactional=True)
    schedule.caught_up = caught_up
    waits = []
    for took in commits:
        schedule.begin()
        begun = now[0] = now[0] + max(0.0, schedule.left_s)
        waits.append(round(begun, 6))
        now[0] += took
        schedule.record_commit(begun)
    gaps = [later - former for former, later in itertools.pairwise(waits)]
    assert gaps[0] == pytest.approx(0.02 if caught_up else 0.1)
    assert gaps[28] == pytest.approx(0.06 if caught_up else 0.1, rel=0.01)
    assert gaps[30] == pytest.approx(0.11)
    assert gaps[58] == pytest.approx(0.36, rel=0.01)
    assert gaps[60] == pytest.approx(60.0, abs=0.1)
    assert 0.36 < gaps[61] < 2.0


@pytest.mark.parametrize(
    ("settings", "transactional", "named"),
    [
        (ResidentSettings(0, transaction_interval=0.2), True, "transaction_interval=0.2"),
        (ResidentSettings(0, commit_interval=0.05), True, "commit_interval=0.05"),
        (ResidentSettings(0, commit_interval=0.05), False, "commit_interval=0.05"),
        (ResidentSettings(0, transaction_interval=0.5), True, None),
        (ResidentSettings(0, transaction_interval=0.2), False, None),
        (ResidentSettings(0, commit_interval=0), True, None),
        (ResidentSettings(0), True, None),
        (ResidentSettings(0, transaction_timeout=0.2), True, None),
    ],
)
def test_commits_that_take_longer_than_their_interval_are_told(
    settings: ResidentSettings, transactional: bool, named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    schedule = CommitSchedule(settings, lambda: now[0], transactional=transactional)
    # One slow commit is an accident.
    for took in (5.0, *[0.01] * 10, *[0.3] * 20):
        schedule.begin()
        begun = now[0]
        now[0] += took
        schedule.record_commit(begun)
    assert [record.getMessage().partition(", which")[0] for record in caplog.records] == (
        [] if named is None else [f"commits take 0.3 s, longer than {named} s"]
    )


def test_transactions_are_never_open_for_more_than_half_of_their_timeout() -> None:
    now = [0.0]
    schedule = CommitSchedule(ResidentSettings(0, transaction_timeout=2.0), lambda: now[0], transactional=True)
    for took in [5.0] * 20:
        schedule.begin()
        begun = now[0]
        now[0] += took
        schedule.record_commit(begun)
    now[0] = begun
    schedule.begin()
    assert schedule.left_s == pytest.approx(1.0)


def test_a_commit_is_due_after_so_many_records() -> None:
    world = World(plain, commits={"commit_every": 3, "commit_interval": 100.0})
    world.put(FIRST, *range(10))
    world.begin(FIRST)
    begun = world.clock()
    for _ in range(3):
        world.commit()
    assert world.clock() - begun < 1.0
    assert [report.ranges[FIRST] for report in world.reports] == [
        OffsetRange("in", 0, 0, 3),
        OffsetRange("in", 0, 3, 6),
        OffsetRange("in", 0, 6, 9),
    ]
    assert committed(world) == {FIRST: 9}


def test_memory_is_bounded_by_a_hundred_thousand_records() -> None:
    def dropping(app: Application) -> None:
        app.dataframe(app.topic("in", value_deserializer="bytes")).filter(_never).to_topic(app.topic("out"))

    world = World(dropping, commits={"commit_interval": 1_000.0})
    world.put(FIRST, *[1] * 150_000)
    world.begin(FIRST)
    world.until(lambda: world.reports)
    assert world.reports[0].ranges[FIRST].end == 100_000


def _never(value: Any) -> bool:
    return False


def test_at_least_once_offsets_are_committed_when_the_driver_has_taken_the_report() -> None:
    world = World(plain, commits={"commit_every": 1})
    world.link.takes = False
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: world.reports)
    world.steps(5)
    assert committed(world) == {}
    assert "flush" in world.clients.calls
    world.link.inbox.append(Ack(1))
    world.steps()
    assert committed(world) == {FIRST: 1}
    assert world.member.metadata == {METADATA}
    assert world.link.told(Committed) == [Committed({FIRST: 1})]


def test_exactly_once_offsets_are_in_the_transaction() -> None:
    world = World(commits={"commit_every": 2}, transactional=True)
    world.link.takes = False
    world.put(FIRST, 1, 2)
    world.begin(FIRST)
    world.until(lambda: world.reports)
    assert committed(world) == {FIRST: 2}
    assert world.member.commits == []
    assert world.link.told(Committed) == [Committed({FIRST: 2})]


def test_a_session_that_follows_takes_no_new_transactional_id() -> None:
    world = World(commits={"commit_every": 1}, transactional=True)
    world.put(FIRST, 1, 2, 3)
    world.begin(FIRST)
    for _ in range(3):
        world.commit()
    assert world.clients.calls.count("init") == 1
    assert world.clients.calls.count("committed") == 1
    assert world.clients.calls.count("commit") == 3


def test_a_driver_that_takes_nothing_stops_the_work() -> None:
    world = World(plain, commits={"commit_every": 1})
    world.link.takes = False
    world.put(FIRST, *range(10))
    world.begin(FIRST)
    world.steps(30)
    assert world.outputs() == [0, 1, 2, 3]
    assert len(world.reports) == 4
    world.link.inbox.append(Ack(2))
    world.steps(30)
    assert committed(world) == {FIRST: 2}
    assert world.outputs() == [0, 1, 2, 3, 4, 5]


def test_offsets_that_could_not_be_committed_are_committed_later() -> None:
    world = World(plain, commits={"commit_every": 1, "commit_interval": 1.0})
    world.member.troubles.append(KafkaRequestError("the coordinator moves", retriable=True))
    world.put(FIRST, 1)
    world.begin()
    world.until(lambda: committed(world) == {FIRST: 1})
    assert not world.member.troubles
    assert world.link.told(Committed) == [Committed({FIRST: 1})]


def test_a_commit_that_kafka_refuses_for_good_ends_the_application() -> None:
    world = World(plain, commits={"commit_every": 1})
    world.member.troubles.append(KafkaRequestError("not allowed"))
    world.put(FIRST, 1)
    world.begin(FIRST)
    with pytest.raises(KafkaRequestError, match="not allowed"):
        world.steps(5)


# -- Partitions come and go --------------------------------------------------------------------------------------------


@GUARANTEES
def test_before_partitions_are_given_back_all_is_committed_and_closed(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.put(SECOND, 3)
    world.begin()
    world.until(lambda: seen(world) == 3)
    assert committed(world) == {}
    with world.member.revoking():
        while world.task._membership.revocation_pending:
            world.task.step()
        assert committed(world) == {FIRST: 2, SECOND: 1}
    world.member.assign()
    world.steps()
    assert [world.counted(0), world.counted(1)] == [2, 1]
    assert world.feed.positions == {}


def test_partitions_are_given_back_only_when_the_driver_has_taken_the_reports() -> None:
    world = World(plain)
    world.link.takes = False
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    with world.member.revoking() as thread:
        world.link.idle.append(Ack(1))
        while thread.is_alive():
            world.task.step()
    assert committed(world) == {FIRST: 1}


def test_a_driver_that_does_not_take_reports_does_not_hold_the_group_up_for_ever() -> None:
    world = World(plain)
    world.link.takes = False
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    begun = world.clock()
    world.revoke()
    assert world.clock() - begun > 29
    assert committed(world) == {}
    world.link.inbox.append(Ack(1))
    world.member.assign(FIRST)
    world.until(lambda: world.feed.positions)
    assert committed(world) == {}, "it belongs to the assignment before"


def test_a_stop_that_discards_ends_the_wait_for_the_driver() -> None:
    world = World(plain)
    world.link.takes = False
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    begun = world.clock()
    with world.member.revoking() as thread:
        world.link.idle.append(Stop(discard=True))
        world.task.step()
        thread.join(60)
        assert not thread.is_alive()
    assert world.clock() - begun < 1


@GUARANTEES
def test_no_time_passes_while_partitions_are_given_back(transactional: bool) -> None:
    world = World(windows, transactional=transactional)
    world.link.takes = False
    world.put(FIRST, 1, timestamp=1_500)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    with world.member.revoking() as thread:
        world.link.idle.append(Time({FIRST_TASK: {waiting_store(world): 2_000}}, frozenset({FIRST_TASK})))
        world.link.idle.append(Ack(1))
        while thread.is_alive():
            world.task.step()
    # At least once, the next owner would deliver it again.
    assert world.clients.calls.count("out") == 0
    assert committed(world) == {FIRST: 1}


@GUARANTEES
def test_what_is_lost_is_not_committed(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1)
    world.begin()
    world.until(lambda: seen(world) == 1)
    world.member.lose()
    world.steps(3)
    assert world.reports == []
    assert committed(world) == {}
    assert world.counted(0) == 0
    world.begin()
    world.commit()
    assert committed(world) == {FIRST: 1}
    # At least once, the output of before is also there.
    assert world.counts() == ([(1, 1)] if transactional else [(1, 1), (1, 1)])


@GUARANTEES
def test_a_question_that_was_asked_twice_is_answered_once(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.begin(FIRST)
    world.put(FIRST, 1)
    world.until(lambda: seen(world) == 1)
    world.link.begins = False
    settle = world.tasks.end

    def settle_too_slowly(cycle: WorkCycle) -> Report:
        # The member has let go, and has an assignment again, before the task finds out.
        report = settle(cycle)
        world.task._membership._lost.set()
        world.member.assign(FIRST)
        return report

    world.tasks.end = settle_too_slowly  # type: ignore[method-assign]
    world.task._membership._revoking.set()
    world.steps(3)
    world.tasks.end = settle  # type: ignore[method-assign]
    at = committed(world).get(FIRST, 0)
    assert world.link.told(AssignmentRequest)[1:] == [AssignmentRequest(2, frozenset({FIRST}))] * 2
    world.link.inbox.append(StartPositions(2, {FIRST: at}))
    world.put(FIRST, 2)
    world.until(lambda: seen(world) > 1)
    world.link.inbox.append(StartPositions(2, {FIRST: at}))
    world.put(FIRST, 3)
    world.until(lambda: committed(world).get(FIRST) == 3)
    assert not any(message.report.interrupted for message in world.link.told(ProgressUpdate))
    assert [value for value, _ in world.counts()] == ([1, 2, 3] if transactional else [1, 1, 2, 3])


def test_after_a_loss_the_member_joins_again_when_the_task_has_accepted_it() -> None:
    world = World(plain)
    world.begin(FIRST)
    thread = threading.Thread(target=world.member.lose)
    thread.start()
    wait_until(lambda: world.task._membership.lost, what="the loss")
    assert thread.is_alive()
    world.steps()
    thread.join(60)
    assert not thread.is_alive()
    assert world.feed.positions == {}


def test_a_task_that_was_given_up_while_it_was_frozen_does_not_join_again() -> None:
    world = World(plain)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)
    closed: list[bool] = []

    def lose() -> None:
        world.member.lose()
        closed.append(world.member.closed or world.task._membership._closing.is_set())

    def wake_up() -> None:
        world.link.close()
        thread.start()
        wait_until(lambda: world.task._membership.lost, what="the loss")

    thread = threading.Thread(target=lose)
    world.feed.before_poll(2, wake_up)
    with pytest.raises(LinkClosed):
        world.task.run()
    thread.join(60)
    assert closed == [True]


def test_a_fenced_commit_lets_everything_go() -> None:
    world = World(plain, commits={"commit_every": 1})
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.link.takes = False
    world.until(lambda: world.reports)
    world.member.assign(FIRST)
    world.link.inbox.append(Ack(1))
    world.link.takes = True
    world.until(lambda: committed(world) == {FIRST: 1})
    assert world.outputs() == [1, 1]


@GUARANTEES
def test_partitions_taken_before_the_answer_came_are_let_go(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.link.begins = False
    world.member.assign(FIRST)
    world.until(lambda: world.link.told(AssignmentRequest))
    world.revoke()
    world.link.begin(world.link.told(AssignmentRequest)[0])
    world.put(FIRST, 1)
    world.steps(5)
    assert world.clients.calls.count("out") == 0
    world.link.begins = True
    world.begin(SECOND)
    assert world.feed.positions.keys() == {SECOND}


def test_a_member_that_failed_ends_the_application() -> None:
    world = World(plain)
    world.begin()
    world.member.error = RunnerError("the group is gone")
    with pytest.raises(RunnerError):
        world.steps()


def test_a_failed_task_tells_and_closes_all() -> None:
    world = World(plain)
    world.link.inbox.append(Welcome())
    world.member.error = RunnerError("the group is gone")
    world.task.run()
    assert [type(message) for message in world.link.sent] == [Joined, Failed, Ended]
    assert str(world.link.told(Failed)[0].error) == "the group is gone"
    assert world.member.closed
    assert world.feed.closed


def test_what_made_a_task_fail_is_told_also_if_the_feed_fails_with_it() -> None:
    world = World(plain)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)
    remove = world.feed.remove

    def lose_the_feed() -> None:
        world.member.error = RunnerError("the group is gone")
        world.feed.remove = refuse  # type: ignore[method-assign]

    def refuse(places: Iterable[TopicPartition]) -> None:
        raise KafkaRequestError("the client is broken")

    world.feed.before_poll(2, lose_the_feed)
    with pytest.raises(KafkaRequestError):
        world.task.run()
    world.feed.remove = remove  # type: ignore[method-assign]
    assert [str(message.error) for message in world.link.told(Failed)] == ["the group is gone"]
    assert world.member.closed
    assert world.feed.closed


# -- The end -----------------------------------------------------------------------------------------------------------


@GUARANTEES
@pytest.mark.parametrize("discard", [False, True])
def test_a_stop_commits_or_discards(transactional: bool, discard: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1, 2)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)
    world.feed.before_poll(3, lambda: world.link.inbox.append(Stop(discard)))
    world.task.run()
    assert committed(world) == ({} if discard else {FIRST: 2})
    assert world.counted(0) == (0 if discard else 2)
    assert world.member.closed


@GUARANTEES
def test_without_a_driver_what_is_not_committed_is_dropped(transactional: bool) -> None:
    world = World(transactional=transactional)
    world.put(FIRST, 1)
    world.link.inbox.append(Welcome())
    world.member.assign(FIRST)

    world.feed.before_poll(2, world.link.close)
    with pytest.raises(LinkClosed):
        world.task.run()
    assert committed(world) == {}
    assert world.counted(0) == 0
    assert world.member.closed
    assert world.feed.closed


def test_a_revocation_that_comes_while_the_task_ends_is_not_held_up() -> None:
    world = World(plain)
    world.link.inbox.append(Welcome())
    world.link.idle.append(Stop())
    world.task.run()
    world.member.assign(FIRST)
    with world.member.revoking() as thread:
        thread.join(60)
        assert not thread.is_alive()


def test_a_limit_of_outputs_is_exact() -> None:
    world = World(plain, commits={"commit_every": 2})
    world.link.inbox.append(Welcome(outputs=5))
    world.put(FIRST, *range(10))
    world.put(SECOND, *range(10))
    world.begin()
    world.steps(40)
    assert sum(report.outputs for report in world.reports) == 5
    assert len(world.outputs()) == 5
    assert sum(committed(world).values()) == 5
    # It has halted, and obeys still.
    world.revoke()
    assert world.feed.positions == {}


def test_a_limit_is_exact_also_if_work_is_taken_back() -> None:
    world = World(transactional=True)
    world.link.inbox.append(Welcome(outputs=3))
    world.put(FIRST, 1)
    world.begin(FIRST)
    world.until(lambda: seen(world) == 1)
    world.clients.troubles["out"] = TransactionError("injected")
    world.put(FIRST, 2, 3, 4, 5)
    world.until(lambda: world.reports and world.reports[-1].outputs == 3)
    world.steps(20)
    assert world.counts() == [(1, 1), (2, 2), (3, 3)]
    assert committed(world) == {FIRST: 3}
    assert seen(world) + sum(report.records for report in world.reports) == 3


# -- Rest --------------------------------------------------------------------------------------------------------------


def resting() -> World:
    """Return a task that has had nothing to do for so long that it only waits."""
    world = World(plain)
    world.put(FIRST, 1)
    world.begin()
    world.commit()
    world.until(lambda: world.task._rests_until > world.clock())
    world.steps()
    return world


def test_a_record_ends_the_rest_of_a_task() -> None:
    world = resting()
    world.put(FIRST, 2)
    world.steps()
    assert world.outputs() == [1, 2]


def test_a_message_ends_the_rest_of_a_task() -> None:
    world = resting()
    world.link.inbox.append(Settle(7))
    world.steps()
    assert world.link.told(Settled) == [Settled(7)]


def test_a_revocation_ends_the_rest_of_a_task() -> None:
    world = resting()
    with world.member.revoking():
        world.steps()
        assert not world.task._membership.revocation_pending


def test_an_error_ends_the_rest_of_a_task() -> None:
    world = resting()
    world.feed.troubles += [KafkaRequestError("the leader moves", retriable=True)] * 2
    world.steps()
    assert len(world.link.told(AssignmentRequest)) == 2


def test_a_new_end_of_a_partition_ends_the_rest_of_a_task() -> None:
    world = resting()
    world.put(FIRST, None)
    world.steps()
    assert world.task._rests_until < world.clock()
