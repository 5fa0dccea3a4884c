"""Leftovers of a former version of an application, and what the next one does about them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ChangelogError, ConfigurationError, TransactionError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runtime.driver.housekeeping.cleanup import StoreCleanup
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory, locked_parts
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, claimed
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.skipped import refuse_skipped_stores
from streamrt.runtime.tasks.fencing import fence_owners, take_inputs
from streamrt.runtime.tasks.stores.foreign import EpochFilter
from streamrt.state import RocksDBStore, Stamp, StoreIdentity
from streamrt.state.changelog import Position, epoch_of
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
TASK_A, TASK_B = TaskId("a", 0), TaskId("b", 0)
DAY = 86_400.0
NONE = CommitMetadata()
MERGED = CommitMetadata(owners={"b": "a"})


# -- 6: who may move the offset of an input --------------------------------------------------------------------------------


class Taken:
    """A transactional writer that notes what it commits."""

    usable = True

    def __init__(self, clients: "Clients", owner: TopicPartition) -> None:
        self._clients, self.owner = clients, owner

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: Any = None) -> None:
        self._clients.claims.append((self.owner, dict(offsets)))
        self._clients.commit_offsets(offsets, metadata)

    def produce(self, *_: Any) -> None: ...

    def flush(self) -> list[Exception]:
        return []

    def abort(self) -> None: ...


class Clients(MemoryClients):
    """Notes which ids are taken, in order."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.ids: list[TopicPartition] = []
        self.claims: list[tuple[TopicPartition, dict[TopicPartition, int]]] = []
        self.released: list[TaskId] = []

    def transactional(self, task: TaskId, owner: TopicPartition) -> Any:
        self.ids.append(owner)
        return Taken(self, owner)

    def claiming(self, owner: TopicPartition, topic: str) -> Any:
        import contextlib

        self.ids.append(owner)
        return contextlib.nullcontext(Taken(self, owner))

    def release(self, task: TaskId) -> None:
        self.released.append(task)


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_fault_6_a_single_input_takes_its_own_id_and_claims_nothing(clients: Clients) -> None:
    take_inputs(clients, TASK_A, [A], NONE, reuse=False)
    assert clients.ids == [A]
    assert clients.claims == []


def test_fault_6_a_merged_task_takes_all_ids_and_claims_its_inputs_once(clients: Clients) -> None:
    task = TaskId("a--b", 0)
    clients.offsets = {A: 3, B: 4}
    clients.metadata = {B: MERGED.followed(B, '{"streamrt":2,"stores":{"b":{"default":"x1"}}}')}
    writer = take_inputs(clients, task, [A, B], MERGED, reuse=False)
    # That of the merged task itself is what versions before this one had.
    assert clients.ids == [A, B, TopicPartition("a--b", 0)]
    assert clients.claims == [(B, {B: 4})]
    note = CommittedMetadata.decode(clients.metadata[B])
    assert note.owner == "a"
    assert note.names("b", "default")
    assert isinstance(writer, Taken)
    assert writer.owner == A
    clients.ids.clear()
    take_inputs(clients, task, [A, B], MERGED, reuse=False)
    assert clients.ids == [A, B]
    assert len(clients.claims) == 1


def test_fault_6_whoever_claims_an_input_is_fenced(clients: Clients) -> None:
    clients.offsets, clients.metadata = {B: 4}, {B: NONE.followed(B, claimed(None, owner="a"))}
    take_inputs(clients, TASK_B, [B], NONE, reuse=False)
    assert clients.ids == [B, A]
    assert clients.claims == [(B, {B: 4})]
    assert CommittedMetadata.decode(clients.metadata[B]).owner is None


def test_fault_6_a_task_that_was_followed_gives_up(clients: Clients) -> None:
    former = CommitMetadata({"b": {"default": "x1"}})
    clients.offsets, clients.metadata = {B: 4}, {B: former.encode(B) or ""}
    take_inputs(clients, TASK_B, [B], former, reuse=False)
    latter = CommitMetadata({"b": {"default": "x1", "more": "x2"}})
    fence_owners(clients, [B], latter)
    assert CommittedMetadata.decode(clients.metadata[B]).stores == {"b": {"default": "x1"}}, (
        "nothing was processed since"
    )
    take_inputs(clients, TASK_B, [B], latter, reuse=False)
    with pytest.raises(TransactionError, match=r"b\[0\] was taken over by another version of the application"):
        take_inputs(clients, TASK_B, [B], former, reuse=False)
    assert clients.released == [TASK_B]
    # The first one comes back.
    fence_owners(clients, [B], former)
    take_inputs(clients, TASK_B, [B], former, reuse=False)


def test_fault_6_the_names_of_format_1_tell_of_merged_tasks(clients: Clients) -> None:
    text = '{"streamrt":1,"stores":{"a--b":{"default":"x1"},"c":{"default":"x2"},"c--d":{}}}'
    clients.metadata = dict.fromkeys([A, C], text)
    fence_owners(clients, [A, C], NONE)
    assert clients.ids == [A, TopicPartition("a--b", 0), C, TopicPartition("c--d", 0)]


def test_fault_6_claims_that_change_all_the_time_are_given_up(clients: Clients) -> None:
    names = iter("bcdefghijklmn")

    def noted(partitions: Any, *, stable: bool) -> dict[TopicPartition, CommittedOffset]:
        return {each: CommittedOffset(1, claimed(None, owner=next(names))) for each in partitions}

    clients.noted = noted  # type: ignore[method-assign]
    with pytest.raises(TransactionError, match="other processes claim the inputs of a\\[0\\] at the same time"):
        take_inputs(clients, TASK_A, [A], NONE, reuse=False)
    assert clients.released == [TASK_A]


# -- 7: whose changelog records count ----------------------------------------------------------------------------------------


class Records:
    def __init__(self, *records: tuple[bytes, bytes, bytes | None]) -> None:
        self.keys = [key for key, _, _ in records]
        self.values = [value for _, value, _ in records]
        self.epochs = [epoch for _, _, epoch in records]
        self.timestamps = [0] * len(records)
        self.next_offset = len(records)


def test_fault_7_records_of_a_lower_epoch_than_one_before_do_not_count() -> None:
    old, new = epoch_of(5, 9), epoch_of(6, 0)
    sifted = EpochFilter()
    batch = Records((b"a", b"1", old), (b"b", b"1", new), (b"a", b"0", old), (b"c", b"7", None), (b"d", b"1", new))
    assert list(sifted.filter(batch)) == [(b"a", b"1"), (b"b", b"1"), (b"c", b"7"), (b"d", b"1")]
    assert sifted.passed_over == {b"a"}
    assert sifted.newest == new
    assert list(EpochFilter(new).filter(Records((b"a", b"0", old)))) == []
    assert list(EpochFilter(old).filter(Records((b"a", b"0", old), (b"b", b"0", old)))) == [(b"a", b"0"), (b"b", b"0")]


# -- 14: stores that a version without them has passed by --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "records", "refused"),
    [
        ('{"streamrt":2,"stores":{"orders":{"other":"x2"}}}', 10, True, True),
        ("", 10, True, True),
        ('{"streamrt":2,"stores":{"orders":{"other":"x2"}}}', 10, False, False),
        ('{"streamrt":2,"stores":{"orders":{"other":"x2"}}}', 30, True, False),
        ('{"streamrt":2,"stores":{"orders":{"other":"x2"}}}', None, True, False),
        ('{"streamrt":2,"stores":{"orders":{"totals":"x1"}}}', 10, True, False),
    ],
    ids=["rolled back", "no metadata", "markers only", "up to date", "new", "named: looked at when it is opened"],
)
def test_fault_14_a_store_that_was_passed_by_is_refused_by_name(
    text: str, position: int | None, records: bool, refused: bool
) -> None:
    place = TopicPartition("orders", 1)
    state = StateSettings(
        "shop", Path("s"), None, {"orders": ScopeInfo("t1", 2, {"totals": ChangelogSettings("log", "x1")})}
    )

    def check() -> None:
        refuse_skipped_stores(
            state,
            {place: 30},
            {place: CommittedMetadata.decode(text)},
            lambda log: None if position is None else Position(position, "t1", 2, None),
            lambda asked, start, end: records and (asked, start, end) == (place, 10, 30),
        )

    if not refused:
        check()
        return
    with pytest.raises(ChangelogError) as error:
        check()
    assert (
        "'totals' of orders[1] contains the records of orders[1] up to offset 10, but the consumer group 'shop' is at 30"
        in str(error.value)
    )
    assert "`streamrt state forget --group shop --topic orders --store totals`" in str(error.value)


# -- 21: groups that the client refuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["caf\xe9", "a\tb", "a\x7fb", "\u20ac"])
def test_fault_21_a_group_that_transactions_do_not_take_is_refused_at_construction(group: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"'processing_guarantee'.*'exactly-once' is not possible with consumer_group="
    ):
        Application("unused.invalid:9092", consumer_group=group, processing_guarantee="exactly-once", loglevel=None)
    assert Application("unused.invalid:9092", consumer_group=group, loglevel=None).config.consumer_group == group


def test_fault_21_odd_names_of_printable_characters_are_taken() -> None:
    app = Application("unused.invalid:9092", consumer_group="a b!~", processing_guarantee="exactly-once", loglevel=None)
    assert app.config.consumer_group == "a b!~"


def test_fault_21_no_group_ends_in_the_middle() -> None:
    with pytest.raises(ConfigurationError, match=r"'consumer_group'.*must not contain the character NUL"):
        Application("unused.invalid:9092", consumer_group="shop\0x", loglevel=None)


# -- 22: files that nothing uses ---------------------------------------------------------------------------------------------


class Disk:
    """A state directory with the parts of two instances, the first one of which runs."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.part = StateDirectory.acquire(base, "shop", "cluster")
        self.other = StateDirectory.acquire(base, "shop", "cluster")
        self.other.release()
        self.progress = Progress()

    def store(
        self, part: StateDirectory, topic: str = "orders", number: int = 0, *, changelog: str | None = "x1"
    ) -> Path:
        """Make a store partition that was used last 8 days ago."""
        identity = StoreIdentity("shop", topic, number, "totals", "t1", changelog, 2)
        partition = RocksDBStore("totals", topic, part.path).open(number)
        partition.write([(b"\x01key", b"\x00value")], Stamp(identity, 1, 0 if changelog else None, None, 0))
        partition.close()
        for path in (partition.path, *partition.path.iterdir()):
            os.utime(path, times=(self.now() - 8 * DAY,) * 2)
        return partition.path

    @staticmethod
    def now() -> float:
        return 2_000_000_000.0

    def clean(self, delay_s: float | None = 7 * DAY) -> list[Path]:
        return StoreCleanup(self.part, delay_s, self.progress, self.now).clean()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.part.release()


def test_fault_22_what_nothing_has_used_for_long_is_deleted(disk: Disk) -> None:
    paths = {disk.store(disk.part), disk.store(disk.part, "Gone topic", 1), disk.store(disk.other)}
    assert set(disk.clean()) == paths
    assert not any(path.exists() for path in paths)
    assert list(disk.part.path.iterdir()) == []
    with locked_parts(disk.base, "nobody") as parts:
        assert parts == []


@pytest.mark.parametrize("delay_s", [0.0, None, 9 * DAY])
def test_fault_22_nothing_is_deleted_before_its_time(disk: Disk, delay_s: float | None) -> None:
    path = disk.store(disk.part)
    assert disk.clean(delay_s) == []
    assert path.exists()


def test_fault_22_what_may_be_needed_stays(disk: Disk) -> None:
    running = StateDirectory.acquire(disk.base, "shop", "cluster")
    assigned = disk.store(disk.part, number=1)
    merged = disk.store(disk.part, "a--orders", 1)
    alone = disk.store(disk.part, changelog=None)
    others = disk.store(running)
    held = disk.store(disk.part, "held")
    disk.progress.assigned({TopicPartition("orders", 1): 5})
    partition = RocksDBStore("totals", "held", disk.part.path).open(0)
    for path in (held, *held.iterdir()):
        os.utime(path, times=(disk.now() - 8 * DAY,) * 2)
    strange = disk.part.path / "orders" / "totals" / "7"
    strange.mkdir()
    (strange / "notes.txt").write_text("mine")
    for path in (strange, strange / "notes.txt"):
        os.utime(path, times=(disk.now() - 8 * DAY,) * 2)
    assert disk.clean() == []
    partition.close()
    running.release()
    assert all(path.exists() for path in (assigned, merged, alone, others, held, strange / "notes.txt"))


def test_fault_22_a_cleanup_ends_with_its_application(disk: Disk) -> None:
    with StoreCleanup(disk.part, 1.0, disk.progress) as cleanup:
        assert cleanup._thread.is_alive()
    cleanup._thread.join(60)
    assert not cleanup._thread.is_alive()


def test_all_inputs_of_a_stream_have_the_same_owner() -> None:
    metadata = CommitMetadata.of(None, {"a--b--c": ("a", "b", "c")})
    assert [CommittedMetadata.decode(metadata.encode(place)).owner for place in (A, B, C)] == [None, "a", "a"]
