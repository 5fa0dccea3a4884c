"""Work on a store partition before it is used: tables, and the replay itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamrt.errors import ChangelogError, StateError, TransactionError
from streamrt.models import TopicPartition
from streamrt.runtime.placement import ScopeInfo, StorePlacement
from streamrt.runtime.tasks.stores.changelog_restore import (
    RestoreAction,
    check_owner,
    check_partitions,
    check_position,
    plan_restore,
    refuse_without_changelog,
    replay,
)
from streamrt.state import MemoryStore, Stamp, StoreIdentity
from streamrt.state.changelog import POSITION_KEY, Position
from streamrt.state.spec import StoreSpec
from streamrt.testing.memory import MemoryClients

MINE = StoreIdentity("shop", "orders", 1, "default", "orders-id", "log-id", 4)
PLACE = TopicPartition("orders", 1)
HOME = StorePlacement(StoreSpec("default"), PLACE, (PLACE,), ScopeInfo())
LOG = TopicPartition("log", 1)
NOW = 1_000_000
ABSENCE = 1_000

READY, REPLAY, WIPE = RestoreAction.READY, RestoreAction.REPLAY, RestoreAction.WIPE


def stamp(at: int | None = 10, inputs: int | None = 5, written_at: int = NOW, **identity: object) -> Stamp:
    return Stamp(replace(MINE, **identity), inputs, at, 1, written_at)  # type: ignore[arg-type]


PLANS = {
    "a new store, an empty changelog": (None, (0, 0), 0, READY, 0),
    "a new store, an empty changelog whose beginning was deleted": (None, (7, 7), 0, READY, 7),
    "a new store": (None, (0, 10), 5, REPLAY, 0),
    "a new store, a changelog that begins later": (None, (3, 10), 5, REPLAY, 3),
    "a store at the end": (stamp(), (0, 10), 5, READY, 10),
    "at the end, however old": (stamp(written_at=0), (0, 10), 5, READY, 10),
    "at the end, and the group a marker further": (stamp(), (0, 10), 6, READY, 10),
    "at the end, but restored part-way": (stamp(inputs=None), (0, 10), 5, REPLAY, 10),
    "behind": (stamp(8), (0, 10), 5, REPLAY, 8),
    "behind, as old as it may be": (stamp(8, written_at=NOW - ABSENCE), (0, 10), 5, REPLAY, 8),
    "behind, and too old": (stamp(8, written_at=NOW - ABSENCE - 1), (0, 10), 5, WIPE, 0),
    "restored part-way, and too old": (stamp(8, None, written_at=0), (0, 10), 5, WIPE, 0),
    "exactly at the beginning": (stamp(3), (3, 10), 5, REPLAY, 3),
    "before the beginning": (stamp(2), (3, 10), 5, WIPE, 3),
    "another input topic of the same name": (stamp(topic_id="other"), (0, 10), 5, WIPE, 0),
    "another changelog of the same name": (stamp(changelog_id="other"), (0, 10), 5, WIPE, 0),
    "kept without a changelog": (stamp(None), (0, 10), 5, WIPE, 0),
    "far behind the end": (stamp(12, 4), (0, 10), 5, WIPE, 0),
}

EXACTLY_ONCE = {
    "the marker is not there yet": (stamp(11), (0, 10), 5, READY, 11),
    "the marker is not there yet, but the group is elsewhere": (stamp(11), (0, 10), 6, WIPE, 0),
    "two ahead": (stamp(12), (0, 10), 5, WIPE, 0),
    "ahead of the group": (stamp(10, 6), (0, 10), 5, WIPE, 0),
    "ahead of the group, behind the changelog": (stamp(8, 6), (0, 10), 5, WIPE, 0),
}

AT_LEAST_ONCE = {
    "one ahead of the end": (stamp(11), (0, 10), 5, WIPE, 0),
    "ahead of the group": (stamp(10, 6), (0, 10), 5, READY, 10),
    "ahead of the group, behind the changelog": (stamp(8, 6), (0, 10), 5, REPLAY, 8),
}

Row = tuple[Stamp | None, tuple[int, int], int, RestoreAction, int]


@pytest.mark.parametrize(
    ("transactional", "row"),
    [
        pytest.param(transactional, row, id=f"{'exactly' if transactional else 'at least'} once: {name}")
        for transactional, special in ((True, EXACTLY_ONCE), (False, AT_LEAST_ONCE))
        for name, row in {**PLANS, **special}.items()
    ],
)
def test_plan(transactional: bool, row: Row) -> None:
    found, bounds, committed, action, start = row
    plan = plan_restore(
        found, MINE, bounds, committed, transactional=transactional, now=NOW, longest_absence_ms=ABSENCE
    )
    assert (plan.action, plan.start) == (action, start)
    assert bool(plan.reason) == (action is WIPE)


@pytest.mark.parametrize("transactional", [True, False])
def test_fault_24_a_stamp_from_the_future_tells_no_age(transactional: bool) -> None:
    """The clock was set back, so a store of any age may look fresh: where it must catch up, it is restored as a whole."""

    def plan(found: Stamp) -> RestoreAction:
        return plan_restore(
            found, MINE, (0, 10), 5, transactional=transactional, now=NOW, longest_absence_ms=ABSENCE
        ).action

    assert plan(stamp(8, written_at=NOW + 60_001)) is WIPE
    assert plan(stamp(8, None, written_at=NOW + 3_600_000)) is WIPE
    # What has missed nothing is right at any age; and clocks are no more exact than that.
    assert plan(stamp(10, written_at=NOW + 3_600_000)) is READY
    assert plan(stamp(8, written_at=NOW + 60_000)) is REPLAY


# -- Position and committed offset -----------------------------------------------------------------------------------


class Group(MemoryClients):
    """Answers what the group's offset is, and which input offsets have records."""

    def __init__(self, committed: int = 0, records: tuple[int, ...] = ()) -> None:
        super().__init__(lambda: NOW)
        self.offsets[PLACE] = committed
        self._records = records

    def has_records(self, place: TopicPartition, start: int, end: int) -> bool:
        return any(start <= offset < end for offset in self._records)


def check(position: int | None, committed: int, clients: Group, *, transactional: bool, topic_id: str | None) -> None:
    check_position(position, topic_id, PLACE, HOME, committed, MINE, clients, transactional=transactional)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(
    ("position", "committed", "records"),
    [(None, 5, (0, 1)), (5, 5, (4, 5)), (5, 7, (4, 7)), (0, 0, ())],
    ids=["no state yet", "equal", "only markers in between", "nothing processed"],
)
def test_position_fits(position: int | None, committed: int, records: tuple[int, ...], transactional: bool) -> None:
    check(position, committed, Group(committed, records), transactional=transactional, topic_id="orders-id")


@pytest.mark.parametrize("transactional", [True, False])
def test_records_between_state_and_offset_would_be_missing(transactional: bool) -> None:
    # After a rollback, if a process that had lost the partition wrote a later position, which the start found.
    advice = "`streamrt state forget --group shop --topic orders --store default`"
    with pytest.raises(
        ChangelogError, match=rf"orders\[1\].*up to offset 5.*'shop' is at 7.*lacks the records.*{advice}"
    ):
        check(5, 7, Group(7, (6,)), transactional=transactional, topic_id=None)


@pytest.mark.parametrize("transactional", [True, False])
def test_state_of_a_topic_that_was_made_anew_is_refused(transactional: bool) -> None:
    with pytest.raises(ChangelogError, match="deleted and created again"):
        check(None, 0, Group(), transactional=transactional, topic_id="former-id")


def test_state_may_be_ahead_of_the_group_at_least_once_only() -> None:
    check(8, 5, Group(5, (5, 6, 7)), transactional=False, topic_id=None)
    with pytest.raises(ChangelogError, match="would count twice"):
        check(8, 5, Group(5, (5, 6, 7)), transactional=True, topic_id=None)


@pytest.mark.parametrize(("position", "committed"), [(8, 5), (3, 5)])
def test_an_offset_that_moves_meanwhile_is_no_fault_of_the_state(position: int, committed: int) -> None:
    # Another process has taken the partition over after the offset was read.
    with pytest.raises(TransactionError, match="orders\\[1\\] was reassigned") as caught:
        check(position, committed, Group(9, (3, 4, 5, 6)), transactional=True, topic_id=None)
    assert caught.value.fenced


# -- Whose it is -----------------------------------------------------------------------------------------------------


def test_a_store_of_topics_that_were_made_anew_is_ours_nevertheless() -> None:
    check_owner(MINE, MINE)
    # After a repartition, the changelog is also another one.
    check_owner(replace(MINE, changelog_id="former", partitions=3), MINE)
    check_owner(replace(MINE, topic_id="x", changelog_id=None), MINE)


@pytest.mark.parametrize(
    ("field", "value"), [("group", "other"), ("topic", "other"), ("partition", 2), ("store", "other")]
)
def test_a_store_of_somebody_else_is_refused(field: str, value: object) -> None:
    with pytest.raises(StateError, match="a separate state_dir"):
        check_owner(replace(MINE, **{field: value}), MINE)  # type: ignore[arg-type]


def test_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(StateError, match="had 3 partitions, but now it has 4"):
        check_owner(replace(MINE, partitions=3), MINE)
    with pytest.raises(StateError, match="had 3 partitions"):
        check_partitions(3, MINE)
    check_partitions(4, MINE)


def test_state_without_changelog_must_not_be_gone() -> None:
    refuse_without_changelog(None, PLACE, "default", has_committed_state=False)
    refuse_without_changelog(stamp(None), PLACE, "default", has_committed_state=True)
    with pytest.raises(StateError, match="missing in the state directory"):
        refuse_without_changelog(None, PLACE, "default", has_committed_state=True)


# -- The replay ------------------------------------------------------------------------------------------------------


class Changelog(MemoryClients):
    """Gives out one record at a time, at an hour that the test sets."""

    def __init__(self, now: int) -> None:
        self.hour = now
        super().__init__(lambda: self.hour)

    def add(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.produce(LOG.topic, value, key, timestamp, None, LOG.partition)

    def changelog(self, place: TopicPartition, start: int, end: int):  # type: ignore[no-untyped-def]
        for at in range(start, end):
            yield from super().changelog(place, at, at + 1)


def test_a_replay_that_is_interrupted_goes_on_although_the_records_are_old() -> None:
    # The data is as fresh as the moment at which it was read, not as the records: else each slice would begin from the start.
    clients = Changelog(NOW)
    for number in range(4):
        clients.add(b"\x01%d" % number, b"\x00x", 1)
    clients.add(POSITION_KEY, Position(7, None, 4, 3).encode(), 1)
    partition = MemoryStore("default", "orders", Path("unused")).open(1)
    starts = []
    while True:
        plan = plan_restore(
            partition.stamp,
            MINE,
            clients.bounds(LOG),
            7,
            transactional=True,
            now=clients.hour,
            longest_absence_ms=ABSENCE,
        )
        if plan.action is READY:
            break
        assert plan.action is REPLAY
        starts.append(plan.start)
        clients.hour += 10
        replay(partition, MINE, LOG, plan.start, 5, clients, lambda records, at: False)
    assert starts == [0, 1, 2, 3, 4]
    assert partition.stamp == Stamp(MINE, 7, 5, 3, clients.hour)
    assert [key for key, _ in partition.scan(b"", None)] == [b"\x010", b"\x011", b"\x012", b"\x013"]


def test_an_interrupted_replay_counts_from_its_beginning() -> None:
    # A deletion of what was read first may be forgotten before the replay goes on.
    clients = Changelog(NOW)
    for number in range(3):
        clients.add(b"\x01%d" % number, b"\x00x", NOW)
    partition = MemoryStore("default", "orders", Path("unused")).open(1)
    assert replay(partition, MINE, LOG, 0, 3, clients, lambda records, at: False) is None
    clients.hour += ABSENCE
    assert replay(partition, MINE, LOG, 1, 3, clients, lambda records, at: False) is None
    assert partition.stamp == Stamp(MINE, None, 2, None, NOW)
    clients.hour += 1
    plan = plan_restore(
        partition.stamp, MINE, (0, 3), 0, transactional=True, now=clients.hour, longest_absence_ms=ABSENCE
    )
    assert plan.action is WIPE


@pytest.mark.parametrize("behind", [0, 2], ids=["a marker", "values of a writer that died"])
@pytest.mark.parametrize("former", [False, True])
def test_a_replay_that_goes_on_behind_the_last_position_knows_it(former: bool, behind: int) -> None:
    # Nothing else would tell that the offsets of the group were set back.
    clients = Changelog(NOW)
    partition = MemoryStore("default", "orders", Path("unused")).open(1)
    if former:
        partition.write([(b"\x01a", b"\x00x")], stamp(0, 7))
    else:
        clients.add(b"\x01a", b"\x00x", NOW)
        clients.add(POSITION_KEY, Position(7, "orders-id", 4, 3).encode(), NOW)
    for number in range(behind):
        clients.add(b"\x01%d" % number, b"\x00x", NOW)
    end, found = clients.bounds(LOG)[1] + 1, None
    while found is None:
        # A process may end after any slice.
        begun = 0 if partition.stamp is None else Stamp.decode(partition.stamp.encode()).changelog_offset or 0
        found = replay(partition, MINE, LOG, begun, end, clients, lambda records, at: False)
    assert found.position is not None
    assert (found.position.input_offset, found.position.topic_id) == (7, "orders-id")
    assert partition.stamp is not None
    assert (partition.stamp.input_offset, partition.stamp.restored) == (7, None)


def test_a_replay_of_markers_only_keeps_what_the_stamp_says() -> None:
    partition = MemoryStore("default", "orders", Path("unused")).open(1)
    partition.write([(b"\x01a", b"\x00x")], stamp(8))
    clients = Changelog(NOW + 5)
    found = replay(partition, MINE, LOG, 8, 10, clients, lambda records, at: True)
    assert found is not None
    assert (found.records, found.position) == (0, Position.of(stamp(8)))
    assert partition.stamp == Stamp(MINE, 5, 10, 1, NOW + 5)
