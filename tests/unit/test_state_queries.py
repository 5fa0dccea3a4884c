"""State queries: reads of stores, keys and answers, owners, and the test driver in both modes."""

import pickle
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, RocksDBOptions
from streamrt.common.addresses import HostPort
from streamrt.config import ProcessingMode
from streamrt.dataframe.windows import Collect, Count, Sum
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    StateNotOwnedError,
    StateQueryError,
    StateUnavailableError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.kafka.partitioner import partition_for
from streamrt.queries.routing import QueryTarget, StateQueries
from streamrt.queries.stored_state import StateAnswer, no_state_key
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.owners import GroupOwners, announcement, url_of_member
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.state import MemoryStore, Stamp, State, StoreIdentity
from streamrt.state.layout import BYTES_KEY, JSON_KEY, after_prefix, record_prefix
from streamrt.state.reading import KeyRange, StoreRead, read_rows
from streamrt.state.store import StorePartition
from streamrt.testing import TopologyTestDriver
from streamrt.topics import Topic
from streamrt.windows import CountTrigger, EventTimeSessions, EventTimeTrigger, ProcessWindowFunction, PurgingTrigger
from tests.support import PROCESSING_MODES, wait_until

PLACE = TopicPartition("in", 0)
ALL = no_state_key()


def stamp(offset: int = 0, stream_time: int | None = None) -> Stamp:
    return Stamp(StoreIdentity("shop", "in", 0, "default", None, None, 1), offset, None, stream_time, 0)


def store_of(keys: Sequence[bytes]) -> StorePartition:
    partition = MemoryStore("default", "in", Path("unused")).open(0)
    partition.write([(key, b"\x00%d" % number) for number, key in enumerate(keys)], stamp())
    return partition


def all_rows(partition: StorePartition, read: StoreRead) -> list[bytes]:
    """Return the keys of a read that goes on until its end."""
    keys: list[bytes] = []
    while True:
        found = read_rows(partition, read)
        assert len(found.rows) <= read.limit
        keys += [key for key, _ in found.rows]
        if found.next is None:
            return keys
        read = read.continued(found.next)


# -- Ranges of keys ----------------------------------------------------------------------------------------------------


def test_ranges_find_what_a_naive_search_finds() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        tag = chance.choice([BYTES_KEY, JSON_KEY])
        names = {
            bytes(chance.choice(b"ab\x7f") for _ in range(chance.choice([0, 1, 2, 3, 4, 127, 128, 130])))
            for _ in range(40)
        }
        records = {name: name if tag == BYTES_KEY else b'"' + name + b'"' for name in names}
        others = [record_prefix(BYTES_KEY, b"ab"), record_prefix(JSON_KEY, b"12"), record_prefix(JSON_KEY, b'"ab"')]
        stored = [record_prefix(tag, each) + state for each in records.values() for state in (b'"n"', b'"t"')]
        partition = store_of([*stored, *(each + b'"x"' for each in others)])
        lead = b"" if tag == BYTES_KEY else b'"'
        low = lead + bytes(chance.choice(b"ab") for _ in range(chance.randrange(4)))
        high = chance.choice([None, after_prefix(low), lead + b"b" * chance.randrange(3)])
        present = {key for key, _ in partition.scan(b"", None)}
        expected = [key for key in sorted(present) if key[1] == tag and _in(key, tag, low, high)]
        read = StoreRead.of_space(1, chance.choice([1, 2, 1_000]), KeyRange(tag, low, high))
        assert all_rows(partition, read) == expected


def _in(key: bytes, tag: int, low: bytes, high: bytes | None) -> bool:
    length, at = key[2], 3
    if length > 127:
        length, at = (length & 127) | key[3] << 7, 4
    record = key[at : at + length]
    if tag == JSON_KEY:
        if not record.startswith(b'"'):
            return False
        record = record[:-1]
    return low <= record and (high is None or record < high)


def test_a_read_is_bounded_and_goes_on_where_it_ended() -> None:
    keys = sorted(record_prefix(BYTES_KEY, b"%05d" % number) + b'"n"' for number in range(5_000))
    partition = store_of(keys)
    # No key matches, and still the read ends after some of them.
    nothing = StoreRead.of_space(1, 10, KeyRange(BYTES_KEY, b"x", None))
    assert read_rows(partition, nothing).rows == ()
    everything = StoreRead.of_space(1, 1_000_000)
    first = read_rows(partition, everything)
    assert 0 < len(first.rows) < len(keys)
    assert first.next == keys[len(first.rows)]
    assert all_rows(partition, everything) == keys


# -- The test driver ---------------------------------------------------------------------------------------------------


def count(value: Any, state: State) -> Any:
    state.set("n", state.get("n", 0) + 1)
    return value


def driver(mode: ProcessingMode, **settings: Any) -> tuple[TopologyTestDriver, Topic]:
    app = Application("unused:9092", consumer_group="shop", processing_mode=mode, **settings)
    topic = app.topic("in")
    app.dataframe(topic).update(count, stateful=True)
    return TopologyTestDriver(app), topic


@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_a_query_has_the_state_of_a_key_and_its_position(mode: ProcessingMode) -> None:
    tested, topic = driver(mode)
    with tested:
        before = tested.query_state("default", "ann")
        assert (before.found, before.get("n"), before.position) == (False, None, {PLACE: 0})
        for total in range(1, 4):
            tested.pipe(topic, total, key="ann")
            answer = tested.query_state("default", b"ann", "n")
            assert ([entry.value for entry in answer.entries], answer.position) == ([total], {PLACE: total})
        tested.pipe(topic, 1, key="bob")
        assert tested.query_state("default", "ann").position == {PLACE: 4}
        page = tested.scan_state("default", limit=1)
        assert [entry.key for entry in page.entries] == [b"ann"]
        rest = tested.scan_state("default", limit=1, cursor=page.cursor)
        assert ([entry.key for entry in rest.entries], rest.cursor) == ([b"bob"], None)


@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_windows_are_what_would_be_emitted_now(mode: ProcessingMode) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_mode=mode)
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    sdf = app.dataframe(topic)
    sdf.tumbling_window(10, name="tumbling").agg(n=Count(), all=Collect()).final().to_topic(app.topic("out"))
    sdf.hopping_window(20, 10, name="hopping").sum().current().to_topic(app.topic("out"))
    sdf.session_window(5, name="session").agg(total=Sum(), all=Collect()).final().to_topic(app.topic("out"))
    sdf.sliding_window(10, name="sliding").collect().final().to_topic(app.topic("out"))
    sdf.tumbling_count_window(3, name="counted").collect().final().to_topic(app.topic("out"))
    tested = TopologyTestDriver(app)

    def store(name: str) -> str:
        return next(each.store for each in tested._states.queries.listing() if each.store.startswith(name))

    def windows(name: str, **times: Any) -> list[tuple[Any, ...]]:
        entries = tested.query_state(store(name), "ann", **times).entries
        return [(entry.start_ms, entry.end_ms, entry.value) for entry in entries]

    with tested:
        for value, time in ((1, 12), (2, 14), (5, 15)):
            tested.pipe(topic, value, key="ann", timestamp=time)
        tested.pipe(topic, 7, key="ann", timestamp=20)
        assert windows("tumbling") == [(20, 30, {"n": 1, "all": [7]})]
        assert windows("hopping", from_ms=10) == [(10, 30, 15), (20, 40, 7)]
        assert windows("hopping", to_ms=20) == [(10, 30, 15)]
        assert windows("session") == [(12, 21, {"total": 15, "all": [1, 2, 5, 7]})]
        assert windows("sliding")[-1] == (10, 20, [1, 2, 5, 7])
        assert windows("counted") == [(20, 20, [7])]
        scanned = tested.scan_state(store("tumbling"))
        assert [(entry.key, entry.value["n"]) for entry in scanned.entries] == [("ann", 1)]
        with pytest.raises(ArgumentValueError, match="holds windows, which have no state key"):
            tested.query_state(scanned.store, "ann", "n")


def test_expired_entries_are_gone_and_bytes_stay_bytes() -> None:
    from datetime import timedelta

    def remember(value: Any, state: State) -> None:
        state.set("short", 1, ttl=timedelta(milliseconds=10))
        state.set_bytes("raw", b"\xff")

    app = Application("unused:9092", consumer_group="shop")
    topic = app.topic("in")
    app.dataframe(topic).update(remember, stateful=True)
    with TopologyTestDriver(app) as tested:
        tested.pipe(topic, 1, key="ann", timestamp=100)
        assert tested.query_state("default", "ann").get("short") == 1
        tested.pipe(topic, 1, key="bob", timestamp=110)
        answer = tested.query_state("default", "ann")
        assert [(entry.state_key, entry.value) for entry in answer.entries] == [("raw", b"\xff")]


def test_groupings_have_the_partition_of_their_key() -> None:
    app = Application("unused:9092", consumer_group="shop")
    from streamrt.kafka import TopicConfig

    topic = app.topic("in", config=TopicConfig(num_partitions=4, replication_factor=1))
    grouped = app.dataframe(topic).group_by("name")
    grouped.update(count, stateful=True)
    with TopologyTestDriver(app) as tested:
        for number, name in enumerate(["ann", "bob", "carl", "dora"]):
            tested.pipe(topic, {"name": name}, key=b"x", partition=number % 4)
        for name in ["ann", "bob", "carl", "dora"]:
            answer = tested.query_state("default", name)
            assert (answer.get("n"), answer.topic) == (1, grouped.topics[0].name)
            assert answer.partition == partition_for(b'"%s"' % name.encode(), 4)


def test_what_cannot_be_queried_is_refused() -> None:
    app = Application("unused:9092", consumer_group="shop")
    left, right = app.topic("left"), app.topic("right")
    first, second = app.dataframe(left).update(count, stateful=True), app.dataframe(right).update(count, stateful=True)
    first.join_asof(second)
    tested = TopologyTestDriver(app)
    with tested:
        with pytest.raises(
            ArgumentValueError, match="the application has no store 'other'; its stores: 'default' of left"
        ):
            tested.query_state("other", "ann")
        with pytest.raises(ArgumentValueError, match=r"there are several stores 'default'.*give the topic"):
            tested.query_state("default", "ann")
        assert tested.query_state("default", "ann", topic=right).topic == "right"
        with pytest.raises(ArgumentValueError, match="the application has no topic 'missing'"):
            tested.query_state("default", "ann", topic="missing")
        (joined,) = [each.store for each in tested._states.queries.listing() if each.kind == "other"]
        with pytest.raises(StateQueryError, match="holds the data of a join or of another operator"):
            tested.query_state(joined, "ann")
        with pytest.raises(ArgumentValueError, match="and no partition 7"):
            tested.scan_state("default", 7, topic=left)
        with pytest.raises(ArgumentValueError, match="holds no windows"):
            tested.query_state("default", "ann", topic=left, from_ms=1)
        with pytest.raises(ArgumentValueError, match="limit must be from 1 to 1000"):
            tested.query_state("default", "ann", topic=left, limit=0)
        with pytest.raises(ArgumentValueError, match="cursor is not one of an answer"):
            tested.scan_state("default", topic=left, cursor="no cursor!")
        with pytest.raises(ArgumentValueError, match="not both"):
            tested.scan_state("default", topic=left, prefix="a", start="b")
        bounds: Any = {"start": 1}
        with pytest.raises(ArgumentTypeError, match="all str, or all bytes"):
            tested.scan_state("default", topic=left, **bounds)


def test_users_encodings_are_used() -> None:
    import json

    options = RocksDBOptions(dumps=lambda value: json.dumps(value).encode(), loads=lambda data: json.loads(data))
    tested, topic = driver("micro-batch", rocksdb_options=options)
    with tested:
        tested.pipe(topic, 1, key="ann")
        assert tested.query_state("default", "ann").get("n") == 1


# -- Owners ------------------------------------------------------------------------------------------------------------

MEMBER = ListedMember("000-streamrt-5c", "000-streamrt@:7070", "10.0.0.7", (PLACE,))


@pytest.mark.parametrize(
    ("client_id", "url"),
    [
        ("000-streamrt", None),
        ("000-streamrt@:7070", "http://10.0.0.7:7070"),
        ("streamrt@shop-0:7070", "http://shop-0:7070"),
        ("streamrt@127.0.0.1:7070/another machine", None),
        ("streamrt@127.0.0.1:7070", None),
        ("streamrt@127.0.0.1:0", None),
        ("ann@example.org", None),
        ("streamrt@shop/../x:7070", None),
    ],
)
def test_members_announce_addresses(client_id: str, url: str | None) -> None:
    assert url_of_member(ListedMember("id", client_id, "10.0.0.7", ())) == url


def test_a_loopback_address_counts_on_its_machine() -> None:
    said = announcement(HostPort("127.0.0.1", 7070))
    assert url_of_member(ListedMember("id", "streamrt" + said, "10.0.0.7", ())) == "http://127.0.0.1:7070"


def test_one_request_confirms_all_that_wait_but_never_one_that_was_under_way() -> None:
    answers: list[tuple[ListedMember, ...]] = []
    begun, go = threading.Semaphore(0), threading.Semaphore(0)

    def members() -> tuple[ListedMember, ...]:
        found = (MEMBER,) if len(answers) != 1 else ()
        answers.append(found)
        begun.release()
        assert go.acquire(timeout=60)
        return found

    owners = GroupOwners(members)
    found: list[bool] = []

    def confirm() -> None:
        found.append(owners.confirm(b"000-streamrt-5c", [PLACE]))

    threads = [threading.Thread(target=confirm) for _ in range(6)]
    threads[0].start()
    assert begun.acquire(timeout=60)
    for thread in threads[1:]:
        thread.start()
    go.release()
    wait_until(lambda: found == [True])
    assert begun.acquire(timeout=60)
    go.release()
    for thread in threads:
        thread.join(60)
    # The second answer knows no member, and was for all five that had come after the first request.
    assert (found, len(answers)) == ([True, *[False] * 5], 2)


# -- What leaves as an answer ------------------------------------------------------------------------------------------


class Served:
    """Queries over a store in memory, whose owner and members a test plays."""

    def __init__(self) -> None:
        self.tested, self.topic = driver("micro-batch")
        self.members: tuple[ListedMember, ...] = (MEMBER,)
        self.refusals: list[Exception | TaskRows] = []
        self.away = False
        self.queries = StateQueries()
        target = self.tested._states.queries._serving_target()
        self._read = target.read
        owners = GroupOwners(self._list)
        self.serving = self.queries.serving(QueryTarget(target.stored, target.inputs, self._answer, owners))

    def _list(self) -> tuple[ListedMember, ...]:
        if self.away:
            raise KafkaRequestError("away", -195, True)
        return self.members

    def _answer(self, read: TaskRead) -> "Future[TaskRows]":
        if self.refusals:
            refusal = self.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            answer: Future[TaskRows] = Future()
            answer.set_result(refusal)
            return answer
        rows = self._read(read).result()
        answer = Future()
        answer.set_result(rows.of_member(b"000-streamrt-5c", {PLACE: 0}))
        return answer

    def ask(self, timeout: float = 30.0) -> StateAnswer:
        return self.queries.query("default", "ann", state_key=ALL, timeout=timeout)


def test_only_what_the_group_confirms_leaves() -> None:
    served = Served()
    with pytest.raises(StateUnavailableError, match="starting or stopping"):
        served.ask()
    with served.tested, served.serving:
        served.tested.pipe(served.topic, 1, key="ann")
        assert (served.ask().get("n"), served.ask().member) == (1, "000-streamrt-5c")
        # Another member owns the partition, such as one with a new id after a loss.
        served.members = (ListedMember("000-streamrt-77", MEMBER.client_id, MEMBER.host, (PLACE,)),)
        with pytest.raises(StateUnavailableError, match="does not confirm that this instance owns in"):
            served.ask(0.2)
        served.members = ()
        with pytest.raises(StateUnavailableError):
            served.ask(0.2)
        served.away = True
        with pytest.raises(StateUnavailableError, match="the group does not tell who owns"):
            served.ask(0.2)


def test_a_query_waits_while_the_partition_moves_and_names_the_other_owner() -> None:
    served = Served()
    with served.tested, served.serving:
        served.tested.pipe(served.topic, 1, key="ann")
        served.refusals = [StateUnavailableError("moving"), TaskRows.refused("being restored")]
        assert served.ask().get("n") == 1
        served.refusals = [TaskRows.refused("damaged", lasting=True)]
        with pytest.raises(StateQueryError, match="damaged"):
            served.ask()
        served.refusals = [StateNotOwnedError("in[0] belongs to another instance of the application")]
        with pytest.raises(StateNotOwnedError, match=r"ask http://10\.0\.0\.7:7070") as foreign:
            served.ask()
        assert foreign.value.owner == "http://10.0.0.7:7070"
        served.members = ()
        served.refusals = [StateNotOwnedError("in[0] belongs to another instance of the application")]
        with pytest.raises(StateNotOwnedError, match="announces no control address") as foreign:
            served.ask()
        assert foreign.value.owner is None


class Told(ProcessWindowFunction):
    """Has state of the window and of the key, which are not windows."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> list[Any]:
        ctx.window_state.set("fired", ctx.window_state.get("fired", 0) + 1)
        ctx.global_state.set("fired", True)
        return [sum(elements)]


@pytest.mark.parametrize("mode", PROCESSING_MODES)
def test_windows_with_triggers_are_what_they_would_emit_now(mode: ProcessingMode) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_mode=mode)
    topic = app.topic("in", key_deserializer="str", key_serializer="str")
    sdf = app.dataframe(topic)
    by_records: dict[str, Any] = {"closing_strategy": "partition"}
    sdf.tumbling_window(10, name="sums").sum().trigger(EventTimeTrigger(), **by_records)
    sdf.hopping_window(20, 10, name="named").agg(n=Count(), all=Collect()).trigger(CountTrigger(9), **by_records)
    sdf.window(EventTimeSessions(5), 90, name="sessions").collect().trigger(EventTimeTrigger(), **by_records)
    sdf.tumbling_window(10, grace_ms=90, name="told").process(Told()).trigger(CountTrigger(2), **by_records)
    sdf.global_window(name="global").sum().trigger(PurgingTrigger(CountTrigger(4)))
    tested = TopologyTestDriver(app)

    def store(name: str) -> str:
        return next(each.store for each in tested._states.queries.listing() if each.store.startswith(name))

    def windows(name: str, key: str = "ann", **times: Any) -> list[tuple[Any, ...]]:
        entries = tested.query_state(store(name), key, **times).entries
        return [(entry.start_ms, entry.end_ms, entry.value) for entry in entries]

    with tested:
        assert {each.kind for each in tested._states.queries.listing()} == {"windows"}
        assert windows("sums") == []
        # The sessions of 12 and 20 merge with that of 16, and with their lists of elements.
        for value, time in ((1, 12), (5, 20), (2, 16)):
            tested.pipe(topic, value, key="ann", timestamp=time)
        for number in range(3):
            tested.pipe(topic, number, key=f"bob{number}" * (number + 1), timestamp=20)
        assert windows("sums") == [(20, 30, 5)]
        assert windows("named") == [(10, 30, {"n": 3, "all": [1, 5, 2]}), (20, 40, {"n": 1, "all": [5]})]
        assert windows("named", from_ms=15) == [(20, 40, {"n": 1, "all": [5]})]
        assert windows("sessions") == [(12, 25, [1, 5, 2])]
        assert windows("told") == [(10, 20, [1, 2]), (20, 30, [5])]
        assert windows("global") == [(12, 20, 8)]
        assert windows("sums", "eve") == []
        with pytest.raises(ArgumentValueError, match="holds windows, which have no state key"):
            tested.query_state(store("sums"), "ann", "n")

        def keys(name: str, **options: Any) -> list[Any]:
            return [(entry.key, entry.start_ms) for entry in tested.scan_state(store(name), **options).entries]

        bobs = [("bob0", 20), ("bob1bob1", 20), ("bob2bob2bob2", 20)]
        assert keys("sums") == [("ann", 20), *bobs]
        assert keys("told") == [("ann", 10), ("ann", 20), *bobs]
        assert keys("told", prefix="bob") == bobs
        assert keys("told", start="ann", end="bob1") == [("ann", 10), ("ann", 20), ("bob0", 20)]
        first = tested.scan_state(store("told"), limit=1)
        found = [*first.entries]
        while first.cursor is not None:
            first = tested.scan_state(store("told"), limit=1, cursor=first.cursor)
            found += first.entries
        assert [(entry.key, entry.value) for entry in found][:2] == [("ann", [1, 2]), ("ann", [5])]
        assert len(found) == 5
        # Reads go to the processes of tasks.
        stored = tested._states.queries._serving_target().stored
        read = stored.read_of_range(stored.find(store("told")), "b", None, None, 5)
        assert pickle.loads(pickle.dumps(read)) == read
        # A window that was purged has no records, and one that is over does not exist.
        tested.pipe(topic, 9, key="ann", timestamp=200)
        assert windows("global") == []
        assert windows("told") == [(200, 210, [9])]
        assert windows("sums") == [(200, 210, 9)]
