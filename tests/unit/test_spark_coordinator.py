"""The driver's side of resident tasks: what they are answered, when they count as quiet, and what they hear of event time."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamrt.config import ApplicationConfig
from streamrt.errors import (
    OffsetOutOfRangeError,
    ProcessingError,
    SinkError,
    StateNotOwnedError,
    StateUnavailableError,
)
from streamrt.event_time.event_time import EventTime
from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.kafka import ConnectionConfig, KafkaRequestError, TopicAdmin
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runs.coordinator import ResidentCoordinator
from streamrt.runs.formation import Formation
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.report_handler import ReportHandler
from streamrt.runs.runner_settings import StopConditions
from streamrt.runs.start_positions import Start, StartOffsets
from streamrt.runs.time_requests import TimeRequests
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.link_messages import (
    Ack,
    AssignmentRequest,
    BatchDone,
    CutRequest,
    Ended,
    Failed,
    IdleChanged,
    JoinAgain,
    Joined,
    LinkClosed,
    ProgressUpdate,
    StartPositions,
    StateRead,
    StateRows,
    Stop,
    Time,
    ToTask,
    Welcome,
)
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.runtime.report import Report, RestoredPart, StoreTime
from streamrt.runtime.spec import TaskSpec
from streamrt.slots.worker_link import DriverLink, LinkListener
from streamrt.state.reading import StoreRead
from streamrt.topics import Topic
from streamrt.topology import SourceOperator, TaskId, TopologyBuilder
from tests.support import wait_until
from tests.unit.test_event_time import STORE, Waiting
from tests.unit.test_exchange_cuts import both_grouped, topology

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
TASK_ZERO, TASK_ONE = TaskId("clicks", 0), TaskId("clicks", 1)
SOON_S = 60.0


class KnownOffsets(StartOffsets):
    """Offsets that a test has written down: each partition begins at 10 times its number plus 5."""

    def __init__(self, admin: TopicAdmin, spec: TaskSpec) -> None:
        super().__init__(
            ApplicationConfig(), ConnectionConfig(bootstrap_servers="unused"), spec, admin, lambda places: None
        )
        self.errors: list[Exception] = []
        self.asked = 0
        self.first_answer = threading.Event()
        self.first_answer.set()

    def find(self, assigned: Iterable[TopicPartition]) -> Start:
        self.asked += 1
        if self.asked == 1:
            assert self.first_answer.wait(SOON_S)
        if self.errors:
            raise self.errors.pop()
        return Start({place: 10 * place.partition + 5 for place in assigned}, {}, frozenset())


class Driver:
    """The driver's side, for an application with one topic of two partitions whose store wants a watermark."""

    def __init__(
        self,
        directory: Path,
        count: int = 2,
        on_processed: Callable[[str, int, int], None] | None = None,
        *,
        transactional: bool = False,
        patience_s: float = 0.0,
        cuts: MergeCuts | None = None,
    ) -> None:
        builder = TopologyBuilder()
        builder.add(builder.add_source(SourceOperator(Topic("clicks"))), Waiting(100))
        topology = builder.build()
        admin = TopicAdmin("unused.invalid:9092")
        self.stop = threading.Event()
        self.progress = Progress()
        self.results = ReportHandler(
            topology, StopConditions(), self.stop, self.progress, Display(topology), on_processed
        )
        self.offsets = KnownOffsets(admin, TaskSpec(topology))
        self.errors: list[BaseException] = []
        self.broker_asked = 0
        self.slots = ResidentCoordinator(
            Formation(count, ignored_after_s=60.0, patience_s=patience_s),
            topology,
            self.results,
            self.offsets,
            self.wait_for_broker,
            ProcessedPurge(admin, []),
            EventTime(topology, {"clicks": 2}),
            TimeRequests(admin, "group", topology),
            cuts or MergeCuts(admin, "group", topology, {"clicks": 2}, 5.0),
            self.errors.append,
            transactional=transactional,
        )
        self.listener = LinkListener(self.slots.serve, directory=directory)
        self.links: list[DriverLink] = []

    def wait_for_broker(self) -> None:
        self.broker_asked += 1

    def task(self, slot: int, *places: TopicPartition, attempt: int = 0, generation: int = 1) -> DriverLink:
        """Connect a task that was assigned some partitions, if any are named."""
        link = DriverLink(self.listener.address)
        self.links.append(link)
        link.send(Joined(slot, attempt))
        assert expect(link, Welcome) == Welcome(None)
        if places:
            link.send(AssignmentRequest(generation, frozenset(places)))
            assert set(expect(link, StartPositions).positions) == set(places)
        return link


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def run(count: int = 2, *args: Any, **options: Any) -> Driver:
        drivers.append(Driver(tmp_path, count, *args, **options))
        return drivers[-1]

    yield run
    for driver in drivers:
        driver.listener.close()


def receive(link: DriverLink, timeout_s: float) -> list[ToTask]:
    """Return the next messages, except that a task should join again while it waits for the others."""
    until = time.monotonic() + timeout_s
    received: list[ToTask] = []
    while not received and (left_s := until - time.monotonic()) > 0:
        received = [message for message in link.receive(left_s) if not isinstance(message, JoinAgain)]
    return received


def expect(link: DriverLink, kind: type[Any]) -> Any:
    """Return the next message, which must be of a kind."""
    received = list(link.receive(SOON_S)) if kind is JoinAgain else receive(link, SOON_S)
    assert [type(message) for message in received] == [kind]
    return received[0]


def seen(task: TaskId, observed: int | None, deadline: int | None = None) -> ProgressUpdate:
    return ProgressUpdate(Report(times={(task, STORE): StoreTime(observed, deadline)}))


def test_tasks_are_told_where_to_begin_and_progress_shows_all_of_them(make: Callable[..., Driver]) -> None:
    driver = make()
    link = driver.task(0)
    link.send(AssignmentRequest(7, frozenset({ZERO})))
    assert expect(link, StartPositions) == StartPositions(7, {ZERO: 5}, {}, frozenset())
    driver.task(1, ONE)
    assert driver.progress.snapshot().positions == {ZERO: 5, ONE: 15}
    link.send(AssignmentRequest(8, frozenset()))
    assert expect(link, StartPositions) == StartPositions(8, {}, {}, frozenset())
    assert driver.progress.snapshot().positions == {ONE: 15}


def test_questions_are_asked_again_when_the_trouble_may_pass_and_end_the_application_when_not(
    make: Callable[..., Driver],
) -> None:
    driver = make()
    driver.offsets.errors = [KafkaRequestError("away", -195, True)]
    driver.task(0, ZERO)
    assert driver.broker_asked == 1
    hopeless = driver.offsets.errors = [OffsetOutOfRangeError("gone")]
    told = hopeless[0]
    driver.task(1).send(AssignmentRequest(1, frozenset({ONE})))
    wait_until(lambda: driver.errors == [told], SOON_S)


def test_a20_a_task_that_lost_its_partition_does_not_speak_for_it_any_more(
    make: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The former owner is suspended for longer.
    monkeypatch.setattr("streamrt.runs.coordinator.HANDOVER_S", 0.0)
    driver, task = make(), TaskId("clicks", 0)
    suspended = driver.task(0, ZERO)
    link = driver.task(1, ZERO, generation=2)
    link.send(seen(task, 1_000, 2_000))
    wait_until(lambda: driver.slots._time.watermarks() == {task: {STORE: 1_000}}, SOON_S)
    # It goes on, and does not know yet that another one has reported event times in between, which it does not repeat.
    suspended.send(ProgressUpdate(Report(times={(task, STORE): StoreTime(9_000, None)})))
    suspended.send(ProgressUpdate(Report(interrupted={task: "it lost the partition"}), frozenset()))
    suspended.send(BatchDone(1, Report()))
    assert expect(suspended, Ack) == Ack(1)
    assert driver.slots._time.watermarks() == {task: {STORE: 1_000}}
    assert driver.slots._time._tasks[task].stores[STORE].next_deadline == 2_000


def test_a20_a_task_that_is_gone_owns_nothing(make: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.runs.coordinator.HANDOVER_S", 0.0)
    driver, task = make(), TaskId("clicks", 0)
    owner = driver.task(1, ZERO, generation=2)
    # The request of a former owner that was suspended comes late, and then its machine is lost.
    driver.task(0, ZERO).close()
    wait_until(lambda: not driver.slots._time._owners, SOON_S)
    owner.send(seen(task, 1_000, 2_000))
    wait_until(lambda: driver.slots._time.watermarks() == {task: {STORE: 1_000}}, SOON_S)


def test_reports_are_answered_when_they_are_taken(make: Callable[..., Driver]) -> None:
    driver = make()
    link = driver.task(0, ZERO)
    link.send(ProgressUpdate(Report(records=3)))
    link.send(BatchDone(4, Report(records=2, ranges={ZERO: OffsetRange(*ZERO, 5, 10)})))
    assert expect(link, Ack) == Ack(4)
    snapshot = driver.progress.snapshot()
    assert (snapshot.records, snapshot.batches, snapshot.positions) == (5, 1, {ZERO: 10})


class SlowBrokers(TopicAdmin):
    """Brokers that answer when a test lets them."""

    def __init__(self) -> None:
        super().__init__("unused.invalid:9092")
        self.asked, self.answer, self.answered = (threading.Event() for _ in range(3))

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> dict[TopicPartition, CommittedOffset]:
        self.asked.set()
        assert self.answer.wait(SOON_S)
        self.answered.set()
        raise KafkaRequestError("away", -195, True)


def test_a19_no_cut_is_made_for_a_job_that_is_over(make: Callable[..., Driver]) -> None:
    """It would be one that the next job waits for."""
    brokers, merges = SlowBrokers(), topology(both_grouped)
    cuts = MergeCuts(brokers, "group", merges, dict.fromkeys(merges.sources, 2), 5.0)
    driver = make(1, cuts=cuts)
    driver.task(0, ZERO).send(CutRequest(1, cuts.streams[0]))
    assert brokers.asked.wait(SOON_S)
    later = threading.Timer(0.2, brokers.answer.set)
    later.start()
    driver.slots.close()
    assert brokers.answered.is_set()
    later.join()


def test_a_failure_of_a_sink_ends_the_application_and_the_task_gets_no_answer(make: Callable[..., Driver]) -> None:
    driver = make()

    def fail(report: Report) -> None:
        raise SinkError("full")

    driver.results.write = fail  # type: ignore[method-assign]
    link = driver.task(0, ZERO)
    link.send(BatchDone(1, Report()))
    wait_until(lambda: [str(error) for error in driver.errors] == ["full"], SOON_S)
    assert driver.slots.empty(SOON_S)


def test_what_a_task_fails_with_ends_the_application(make: Callable[..., Driver]) -> None:
    driver = make()
    driver.task(0).send(Failed(SinkError("told")))
    wait_until(lambda: [str(error) for error in driver.errors] == ["told"], SOON_S)


def join(driver: Driver, slot: int) -> DriverLink:
    """Connect a task, and wait until the driver knows of it; it may have to wait for its welcome."""
    link = DriverLink(driver.listener.address)
    driver.links.append(link)
    link.send(Joined(slot))
    wait_until(lambda: slot in driver.slots._slots, SOON_S)
    return link


def test_fault_27_tasks_join_the_group_together(make: Callable[..., Driver]) -> None:
    driver = make(patience_s=60.0)
    first = join(driver, 0)
    assert first.receive(0.2) == [], "alone, it would be given all partitions"
    second = join(driver, 1)
    expect(first, Welcome)
    expect(second, Welcome)


def test_fault_27_nobody_waits_for_ever_for_a_task_that_spark_does_not_start(make: Callable[..., Driver]) -> None:
    driver = make(patience_s=0.3)
    expect(join(driver, 0), Welcome)
    driver.task(1, ONE)


def test_fault_27_no_task_begins_before_the_others_know_their_shares(make: Callable[..., Driver]) -> None:
    driver = make(patience_s=60.0)
    first, second = join(driver, 0), join(driver, 1)
    expect(first, Welcome)
    expect(second, Welcome)
    # Its JoinGroup was answered before the broker had heard of the other one.
    first.send(AssignmentRequest(1, frozenset({ZERO, ONE})))
    expect(first, JoinAgain)
    expect(second, JoinAgain)
    first.send(AssignmentRequest(2, frozenset({ZERO})))
    assert receive(first, 0.2) == []
    second.send(AssignmentRequest(1, frozenset({ONE})))
    assert expect(first, StartPositions) == StartPositions(2, {ZERO: 5})
    assert expect(second, StartPositions) == StartPositions(1, {ONE: 15})
    assert driver.offsets.asked == 2


def test_fault_27_a_stop_ends_the_wait_for_the_others(make: Callable[..., Driver]) -> None:
    driver = make(patience_s=60.0)
    link = join(driver, 0)
    driver.slots.stop(discard=False)
    received: list[ToTask] = []
    while Welcome(None) not in received:
        received += link.receive(SOON_S)
    assert received[0] == Stop()


def test_a_task_begins_with_a_partition_when_the_one_before_has_let_go_of_it(make: Callable[..., Driver]) -> None:
    driver = make()
    first, second = driver.task(0, ZERO, ONE), driver.task(1)
    second.send(AssignmentRequest(1, frozenset({ONE})))
    assert second.receive(0.2) == [], "the store may be open in the other task"
    first.send(AssignmentRequest(2, frozenset({ZERO})))
    assert expect(first, StartPositions) == StartPositions(2, {ZERO: 5})
    assert expect(second, StartPositions) == StartPositions(1, {ONE: 15})
    first.close()
    wait_until(lambda: driver.slots._slots[0].link is None, SOON_S)
    second.send(AssignmentRequest(2, frozenset({ZERO, ONE})))
    assert expect(second, StartPositions) == StartPositions(2, {ZERO: 5, ONE: 15}), "a task that is gone holds nothing"


def test_a_task_is_told_nothing_of_partitions_that_it_goes_on_with(make: Callable[..., Driver]) -> None:
    driver = make(1)
    link = driver.task(0, ZERO)
    link.send(seen(TASK_ZERO, 1_000))
    link.send(BatchDone(1, Report(ranges={ZERO: OffsetRange(*ZERO, 5, 9)})))
    expect(link, Ack)
    driver.slots.tick()
    marks = expect(link, Time).watermarks
    assert marks[TASK_ZERO] == {STORE: 1_000}
    link.send(AssignmentRequest(2, frozenset({ZERO}), frozenset({ZERO})))
    assert expect(link, StartPositions) == StartPositions(2, kept=frozenset({ZERO}))
    assert driver.progress.snapshot().positions == {ZERO: 9}
    driver.slots.tick()
    assert link.receive(0.05) == [], "what its store has seen is known still"
    link.send(AssignmentRequest(3, frozenset({ZERO, ONE}), frozenset({ZERO})))
    assert expect(link, StartPositions) == StartPositions(3, {ONE: 15}, kept=frozenset({ZERO}))
    assert driver.progress.snapshot().positions == {ZERO: 9, ONE: 15}


def test_all_is_quiet_when_all_tasks_are_there_and_say_so(make: Callable[..., Driver]) -> None:
    driver = make()
    first = driver.task(0, ZERO)
    first.send(IdleChanged(True))
    second = driver.task(1)
    second.send(IdleChanged(True))
    second.send(BatchDone(1, Report()))
    expect(second, Ack)
    assert not driver.slots.quiet, "the second one has not told what is assigned to it"
    second.send(AssignmentRequest(1, frozenset({ONE})))
    expect(second, StartPositions)
    assert not driver.slots.quiet, "a question is the end of quiet"
    second.send(IdleChanged(True))
    wait_until(lambda: driver.slots.quiet, SOON_S)
    second.send(IdleChanged(False))
    wait_until(lambda: not driver.slots.quiet, SOON_S)
    second.send(IdleChanged(True))
    wait_until(lambda: driver.slots.quiet, SOON_S)
    second.close()
    wait_until(lambda: not driver.slots.quiet, SOON_S)


def test_a_stop_reaches_those_who_are_there_and_those_who_come_later(make: Callable[..., Driver]) -> None:
    driver = make()
    link = driver.task(0, ZERO)
    driver.slots.stop(discard=True)
    assert expect(link, Stop) == Stop(discard=True)
    late = DriverLink(driver.listener.address)
    late.send(Joined(1))
    received: list[ToTask] = []
    while len(received) < 2:
        received += late.receive(SOON_S)
    assert received == [Welcome(None), Stop(discard=True)]
    for each in (link, late):
        each.send(Ended())
        each.close()
    assert driver.slots.empty(SOON_S)
    assert not driver.slots.moved()


def test_the_next_attempt_takes_the_place_of_a_task(make: Callable[..., Driver]) -> None:
    driver = make(count=1)
    first = driver.task(0, ZERO)
    second = driver.task(0, ZERO, attempt=1)
    with pytest.raises(LinkClosed):
        first.receive(SOON_S)
    second.send(BatchDone(1, Report(ranges={ZERO: OffsetRange(*ZERO, 5, 6)})))
    expect(second, Ack)
    assert driver.errors == []
    second.close()
    assert driver.slots.empty(SOON_S)
    assert driver.slots.moved()


def test_the_task_that_was_lost_first_is_to_blame(make: Callable[..., Driver]) -> None:
    driver = make()
    healthy, broken = driver.task(0, ZERO), driver.task(1, ONE)
    healthy.send(BatchDone(1, Report(ranges={ZERO: OffsetRange(*ZERO, 5, 6)})))
    expect(healthy, Ack)
    broken.close()
    wait_until(lambda: driver.slots._slots[1].link is None, SOON_S)
    healthy.close()
    assert driver.slots.empty(SOON_S)
    assert not driver.slots.moved()


def test_watermarks_wait_for_all_tasks_and_are_told_when_they_change(make: Callable[..., Driver]) -> None:
    driver = make()
    first = driver.task(0, ZERO)
    first.send(seen(TASK_ZERO, 1_000, deadline=1_500))
    first.send(BatchDone(1, Report()))
    expect(first, Ack)
    driver.slots.tick()
    assert first.receive(0.05) == [], "the other task may have records that are older"
    second = driver.task(1, ONE)
    second.send(seen(TASK_ONE, 2_000))
    second.send(BatchDone(1, Report()))
    expect(second, Ack)
    driver.slots.tick()
    for link, task, others in ((first, TASK_ZERO, 2_000), (second, TASK_ONE, 1_000)):
        assert expect(link, Time) == Time(
            {task: {STORE: 1_000}}, frozenset(), others={task: {STORE: others}}, rewinds=0
        )
    driver.slots.tick()
    assert first.receive(0.05) == [], "nothing is new"
    first.send(seen(TASK_ZERO, 3_000, deadline=1_500))
    first.send(BatchDone(2, Report()))
    expect(first, Ack)
    driver.slots.tick()
    marks = {STORE: 2_000}
    others_of_first, others_of_second = {TASK_ZERO: {STORE: 2_000}}, {TASK_ONE: {STORE: 3_000}}
    assert expect(first, Time) == Time({TASK_ZERO: marks}, frozenset({TASK_ZERO}), others=others_of_first, rewinds=0)
    assert expect(second, Time) == Time({TASK_ONE: marks}, frozenset(), others=others_of_second, rewinds=0)


def test_a_partition_that_goes_from_task_to_task_is_told_no_more_than_its_own_time(make: Callable[..., Driver]) -> None:
    driver = make()
    first, second = driver.task(0, ZERO, ONE), driver.task(1)
    second.send(AssignmentRequest(1, frozenset()))
    expect(second, StartPositions)
    first.send(AssignmentRequest(2, frozenset({ZERO})))
    expect(first, StartPositions)
    first.send(seen(TASK_ZERO, 9_000))
    first.send(BatchDone(1, Report()))
    expect(first, Ack)
    driver.slots.tick()
    assert expect(first, Time).watermarks == {TASK_ZERO: {STORE: 9_000}}
    second.send(AssignmentRequest(2, frozenset({ONE})))
    expect(second, StartPositions)
    driver.slots.tick()
    others = {TASK_ONE: {STORE: 9_000}}
    assert expect(second, Time) == Time({TASK_ONE: {}}, frozenset({TASK_ONE}), others=others, rewinds=0), (
        "nobody knows yet where it is"
    )
    second.send(seen(TASK_ONE, 5_000))
    second.send(BatchDone(1, Report()))
    expect(second, Ack)
    driver.slots.tick()
    assert expect(second, Time).watermarks == {TASK_ONE: {STORE: 5_000}}


def test_a20_a_task_that_is_rewound_is_told_no_time_of_its_lost_work(make: Callable[..., Driver]) -> None:
    driver = make()
    first, second = driver.task(0, ZERO), driver.task(1, ONE)
    for link, task in ((first, TASK_ZERO), (second, TASK_ONE)):
        link.send(seen(task, 9_000))
        link.send(BatchDone(1, Report()))
        expect(link, Ack)
    driver.slots.tick()
    assert [expect(link, Time).rewinds for link in (first, second)] == [0, 0]
    first.send(ProgressUpdate(Report(), rewound=frozenset({TASK_ZERO}), rewinds=1))
    first.send(seen(TASK_ZERO, 1_000))
    first.send(BatchDone(2, Report()))
    expect(first, Ack)
    driver.slots.tick()
    told = expect(first, Time)
    assert (told.watermarks, told.rewinds) == ({TASK_ZERO: {STORE: 1_000}}, 1)
    # Tasks that have not lost anything stay where they are, or windows would come twice.
    assert TASK_ONE in driver.slots._slots[1].times.watermarks


def test_a_quiet_partition_is_idle_while_another_task_is_busy(make: Callable[..., Driver]) -> None:
    driver = make()
    first, second = driver.task(0, ZERO), driver.task(1, ONE)
    for link, task in ((first, TASK_ZERO), (second, TASK_ONE)):
        link.send(seen(task, 1_000))
    second.send(ProgressUpdate(Report(), ended=frozenset({TASK_ONE})))
    watermarks: list[int] = []

    def busy() -> bool:
        first.send(seen(TASK_ZERO, 2_000 + len(watermarks)))
        driver.slots.tick()
        for message in first.receive(0.02):
            assert isinstance(message, Time)
            watermarks.extend(message.watermarks[TASK_ZERO].values())
        return bool(watermarks) and watermarks[-1] >= 2_000

    # Its idle timeout is 100 ms.
    wait_until(busy, SOON_S)


def test_an_attempt_that_wakes_up_late_does_not_take_the_place_of_the_next_one(make: Callable[..., Driver]) -> None:
    driver = make(count=1)
    second = driver.task(0, ZERO, attempt=1)
    first = DriverLink(driver.listener.address)
    first.send(Joined(0, attempt=0))
    with pytest.raises(LinkClosed):
        first.receive(SOON_S)
    second.send(BatchDone(1, Report()))
    assert expect(second, Ack) == Ack(1)


def test_an_answer_to_the_attempt_before_changes_nothing(make: Callable[..., Driver]) -> None:
    driver = make(count=1)
    driver.offsets.first_answer.clear()
    first = DriverLink(driver.listener.address)
    first.send(Joined(0))
    expect(first, Welcome)
    first.send(AssignmentRequest(1, frozenset({ZERO})))
    wait_until(lambda: driver.offsets.asked == 1, SOON_S)
    second = driver.task(0, attempt=1)
    second.send(AssignmentRequest(1, frozenset({ZERO, ONE})))
    expect(second, StartPositions)
    driver.offsets.first_answer.set()
    wait_until(lambda: threads_of_tasks() == 1, SOON_S)
    assert driver.progress.snapshot().positions == {ZERO: 5, ONE: 15}
    second.send(seen(TASK_ZERO, 1_000))
    second.send(seen(TASK_ONE, 1_000, deadline=500))
    second.send(BatchDone(1, Report()))
    expect(second, Ack)
    driver.slots.tick()
    assert expect(second, Time).due == {TASK_ONE}


def threads_of_tasks() -> int:
    return sum(thread.name == "streamrt-link-task" for thread in threading.enumerate())


@pytest.mark.parametrize("transactional", [True, False], ids=["exactly once", "at least once"])
def test_what_a_dead_attempt_has_committed_is_told_before_what_the_next_one_does(
    make: Callable[..., Driver], transactional: bool
) -> None:
    told: list[int] = []
    slow = threading.Event()

    def hear(_topic: str, _partition: int, offset: int) -> None:
        assert slow.wait(SOON_S)
        told.append(offset)

    driver = make(1, hear, transactional=transactional)
    first = driver.task(0, ZERO)
    for number in (1, 2, 3):
        first.send(BatchDone(number, Report(records=1, processed={ZERO: [number]})))
    first.close()
    second = DriverLink(driver.listener.address)
    second.send(Joined(0, attempt=1))
    if transactional:
        # Transactions have moved the offsets: no one will process these records again.
        assert second.receive(0.2) == [], "it must wait until they are told"
        slow.set()
    expect(second, Welcome)
    slow.set()
    second.send(BatchDone(1, Report(records=1, processed={ZERO: [4]})))
    expect(second, Ack)
    wait_until(lambda: threads_of_tasks() == 1, SOON_S)
    assert driver.errors == []
    assert sorted(told) in ([1, 2, 3, 4], *([[1, 4]] if not transactional else []))
    assert not transactional or told == [1, 2, 3, 4]


def test_those_who_are_there_go_on_without_a_task_that_never_begins(make: Callable[..., Driver]) -> None:
    driver = make()
    link = driver.task(0, ZERO, ONE)
    for task, observed in ((TASK_ZERO, 3_000), (TASK_ONE, 1_000)):
        link.send(seen(task, observed))
    link.send(IdleChanged(True))
    link.send(BatchDone(1, Report(ranges={ZERO: OffsetRange(*ZERO, 5, 6)})))
    expect(link, Ack)
    driver.slots.tick()
    assert not driver.slots.quiet, "the other one may be about to begin"
    assert link.receive(0.05) == []
    driver.slots._formation._ignored_from = time.monotonic()
    wait_until(lambda: driver.slots.quiet, SOON_S)
    driver.slots.tick()
    assert expect(link, Time).watermarks == {TASK_ZERO: {STORE: 1_000}, TASK_ONE: {STORE: 1_000}}
    link.close()
    assert driver.slots.empty(SOON_S)
    assert driver.slots.moved()


@pytest.mark.parametrize("how", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("oops")])
def test_a_callback_that_ends_the_program_ends_the_application(make: Callable[..., Driver], how: BaseException) -> None:
    def leave(_topic: str, _partition: int, offset: int) -> None:
        raise how

    driver = make(1, leave)
    words = rf"on_message_processed failed for clicks\[0\] at offset 5: {type(how).__name__}"
    driver.task(0, ZERO).send(BatchDone(1, Report(records=2, processed={ZERO: [5, 6]})))
    assert driver.stop.wait(SOON_S)
    with pytest.raises(ProcessingError, match=words):
        driver.results.raise_failure()


def test_a_sink_that_ends_the_program_ends_the_application(make: Callable[..., Driver]) -> None:
    driver = make()
    leave = SystemExit(3)

    def write(report: Report) -> None:
        raise leave

    driver.results.write = write  # type: ignore[method-assign]
    driver.task(0, ZERO).send(BatchDone(1, Report()))
    wait_until(lambda: driver.errors == [leave], SOON_S)


def test_restores_that_another_instance_goes_on_with_are_shown_no_longer(make: Callable[..., Driver]) -> None:
    driver = make(1)
    link = driver.task(0, ZERO, ONE)
    display = driver.slots._restores
    link.send(ProgressUpdate(Report(restores={(TASK_ONE, STORE): RestoredPart(50, 100, 50, finished=False)})))
    link.send(AssignmentRequest(2, frozenset({ZERO, ONE})))
    expect(link, StartPositions)
    assert driver.slots._restores is display
    link.send(AssignmentRequest(3, frozenset({ZERO})))
    expect(link, StartPositions)
    assert driver.slots._restores is not display


def test_a_read_goes_to_the_task_that_owns_the_partition(make: Callable[..., Driver]) -> None:
    driver = make(patience_s=0.0)
    read = TaskRead(TASK_ZERO, "default", StoreRead(b"\x01", b"\x02", 1))
    with pytest.raises(StateUnavailableError, match="are moving"):
        driver.slots.read(read)
    first, second = driver.task(0, ZERO), driver.task(1)
    with pytest.raises(StateUnavailableError):
        driver.slots.read(replace(read, task=TASK_ONE))
    second.send(AssignmentRequest(1, frozenset()))
    expect(second, StartPositions)
    with pytest.raises(StateNotOwnedError):
        driver.slots.read(replace(read, task=TASK_ONE))
    asked = driver.slots.read(read)
    sent = expect(first, StateRead)
    assert sent.read == read
    first.send(StateRows(sent.number, TaskRows(None, trouble="moving")))
    assert asked.result(SOON_S).trouble == "moving"
    # The process of the task ends.
    asked = driver.slots.read(read)
    first.close()
    assert "has ended" in asked.result(SOON_S).trouble
    with pytest.raises(StateUnavailableError):
        driver.slots.read(read)
