"""Records that wait until their lookup finds something."""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.joins import BaseField, BaseLookup, LookupBuffer
from streamrt.joins.lookup import BufferedLookupJoin
from streamrt.models import Headers, Tick
from streamrt.state import MemoryStore
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Node, PartitionSender, RecordHandler, TaskAccess
from tests.unit.apps import START, Stage
from tests.unit.state_timed import Run

GRACE = 1_000
Output = tuple[Any, Any, int, Headers | None]


class Known(BaseLookup[BaseField]):
    """Finds what it is told to know, by the column `want`."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def join(
        self, fields: Mapping[str, BaseField], on: Any, value: dict[str, Any], key: Any, timestamp: int, headers: Any
    ) -> None:
        for column in fields:
            value[column] = self.known.get(on)


def resolved(value: dict[str, Any]) -> bool:
    return value["found"] is not None


class Buffered:
    """A buffered lookup with a store whose transactions begin and end when a test says so."""

    repeats_records = False

    def __init__(self, **settings: Any) -> None:
        self.lookup = Known()
        self.buffer = LookupBuffer(**{"grace_ms": GRACE, "is_resolved": resolved, **settings})
        spec = StoreSpec("lookup-buffer", MemoryStore, TimedTransaction)
        operator = BufferedLookupJoin(self.lookup, (("found", BaseField()),), "want", self.buffer, spec)
        self.run = Run(MemoryStore, Path("unused"))
        self.outputs: list[Output] = []
        self.transaction = self.run.begin()
        self.operator = operator
        self.build()

    def build(self) -> None:
        """Begin as another process does."""
        self.input = self.operator.build(self._take, Node(1, (0,), self.operator, "test.py:1"), self)

    def feed(self, want: Any, number: int, key: Any = b"k", headers: Headers | None = None) -> list[Output]:
        before = len(self.outputs)
        self.input({"want": want, "n": number}, key, number, headers)
        return self.outputs[before:]

    def tick(self, now: int) -> list[Output]:
        before = len(self.outputs)
        self.callback(Tick(now))
        return self.outputs[before:]

    def commit(self, then: Callable[[Run], None] | None = None) -> None:
        self.run.commit(self.transaction)
        if then is not None:
            then(self.run)
            self.build()
        self.transaction = self.run.begin()

    def _take(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        self.outputs.append((value, key, timestamp, headers))

    def store(self, store: StoreSpec) -> Callable[[], TimedTransaction]:
        return lambda: self.transaction

    def follow(self, store: StoreSpec, changed: Any) -> None:
        raise AssertionError("joins ask for their transaction")

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        self.callback = callback

    def side_output(self, tag: str) -> None:
        """No one reads it."""

    def hold_records(self, held: Any, child: RecordHandler) -> None:
        """Nothing is held."""

    def asynchronous(self, node: Node, calls: Any) -> RecordHandler:
        raise AssertionError("nothing is called")

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing ends."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Nothing is counted."""

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        work()

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        return lambda: False

    def access(self, store: StoreSpec) -> TaskAccess:
        return TaskAccess.of_test(store.name)

    def state(self, store: StoreSpec) -> Any:
        raise AssertionError("there is no State")

    def sender(self, topic: Any, copies: int = 0) -> RecordHandler:
        raise AssertionError("nothing is sent")

    def make_passage(self, topic: Any, node: Any, child: RecordHandler) -> RecordHandler:
        raise AssertionError("no test has an exchange")

    def partition_sender(self, topic: Any) -> tuple[PartitionSender, int]:
        raise AssertionError(f"no test has a partitioner for {topic}")

    def sink(self, sink: Any, check: Any = None) -> RecordHandler:
        raise AssertionError("there are no sinks")

    def show(self, node_id: int, item: Any) -> None:
        raise AssertionError("nothing is shown")


def numbers(outputs: list[Output]) -> list[int]:
    return [output[0]["n"] for output in outputs]


def test_what_is_resolved_goes_on_at_once() -> None:
    buffered = Buffered()
    buffered.lookup.known["x"] = 1
    assert buffered.feed("x", 5, headers=[("h", b"1")]) == [({"want": "x", "n": 5, "found": 1}, b"k", 5, [("h", b"1")])]


def test_the_next_resolved_record_of_the_key_releases_those_that_wait() -> None:
    buffered = Buffered()
    headers: Headers = [("bytes", b"\xff"), ("text", "x"), ("none", None)]
    assert buffered.feed("x", 1, headers=headers) == []
    assert buffered.feed("y", 2) == []
    assert buffered.feed("x", 3) == []
    buffered.lookup.known["x"] = 7
    # Another key does not, and neither does a record that is not resolved itself.
    assert numbers(buffered.feed("x", 4, key=b"other")) == [4]
    assert buffered.feed("z", 5) == []
    assert buffered.feed("x", 6) == [
        ({"want": "x", "n": 1, "found": 7}, b"k", 1, headers),
        ({"want": "x", "n": 3, "found": 7}, b"k", 3, None),
        ({"want": "x", "n": 6, "found": 7}, b"k", 6, None),
    ]
    buffered.lookup.known |= {"y": 8, "z": 9}
    assert numbers(buffered.feed("x", 10)) == [2, 5, 10]
    assert numbers(buffered.feed("x", 11)) == [11]


def test_what_waits_too_long_goes_on_as_it_is() -> None:
    buffered = Buffered()
    buffered.tick(5_000)
    buffered.feed("x", 1, headers=[("h", b"1")])
    buffered.feed("x", 2)
    buffered.tick(5_500)
    buffered.feed("x", 3)
    buffered.feed("x", 4, key="other")
    assert buffered.tick(5_999) == []
    # Looking up again is what records do, not time.
    buffered.lookup.known["x"] = 1
    assert buffered.tick(6_000) == [
        ({"want": "x", "n": 1, "found": None}, b"k", 1, [("h", b"1")]),
        ({"want": "x", "n": 2, "found": None}, b"k", 2, None),
    ]
    assert numbers(buffered.tick(9_000)) in ([3, 4], [4, 3])
    assert buffered.tick(99_000) == []


def test_what_waits_too_long_is_dropped_if_wanted(caplog: pytest.LogCaptureFixture) -> None:
    buffered = Buffered(on_timeout="drop")
    buffered.feed("x", 1)
    assert buffered.tick(GRACE) == []
    assert "join_lookup-1" in caplog.text
    assert "dropped a record of key b'k' whose lookup was not resolved within 1000 ms" in caplog.text
    buffered.lookup.known["x"] = 1
    assert numbers(buffered.feed("x", 2)) == [2]


def test_a_full_buffer_drops_newer_records(caplog: pytest.LogCaptureFixture) -> None:
    buffered = Buffered(max_buffered_per_key=2)
    for number in range(4):
        buffered.feed("x", number)
    buffered.feed("x", 9, key=b"other")
    assert "dropped a record of key b'k': 2 records of this key already wait for their lookup" in caplog.text
    assert sorted(numbers(buffered.tick(GRACE))) == [0, 1, 9]


def test_all_keys_wait_none_too() -> None:
    buffered = Buffered()
    keys: list[Any] = [None, b"", "text", 7, [1, "a"]]
    for number, key in enumerate(keys):
        buffered.feed("x", number, key=key)
    assert {output[1] if not isinstance(output[1], list) else tuple(output[1]) for output in buffered.tick(GRACE)} == {
        *keys[:-1],
        (1, "a"),
    }


def test_nothing_stays_of_what_has_gone() -> None:
    buffered = Buffered()
    for number in range(100):
        buffered.feed("x", number, key=b"%d" % (number % 7))
    buffered.commit()
    buffered.tick(GRACE)
    buffered.commit()
    assert [key for key, _ in buffered.run.partition.scan(b"\x02", b"\x04")] == []


def test_a_record_that_fails_below_is_not_released_again() -> None:
    buffered = Buffered()
    for number in range(3):
        buffered.feed("x", number)
    take, buffered.outputs = buffered._take, []

    def picky(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        if value["n"] == 1:
            raise ValueError("one")
        take(value, key, timestamp, headers)

    buffered.input = buffered.operator.build(picky, Node(1, (0,), buffered.operator, "test.py:1"), buffered)
    with pytest.raises(ValueError, match="one"):
        buffered.tick(GRACE)
    assert numbers(buffered.outputs) == [0]
    assert numbers(buffered.tick(GRACE)) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    most = rng.choice((3, 100))
    buffered = Buffered(max_buffered_per_key=most)
    waiting: dict[bytes, list[tuple[int, str, int]]] = {}
    now = 0
    for number in range(60):
        what = rng.random()
        if what < 0.15:
            buffered.lookup.known["xyz"[rng.randrange(3)]] = rng.choice((None, 1))
        elif what < 0.3:
            now += rng.randrange(400)
            gone = {key: [one for one in ones if one[0] + GRACE <= now] for key, ones in waiting.items()}
            found = buffered.tick(now)
            for key, ones in gone.items():
                assert [output[0]["n"] for output in found if output[1] == key] == [one[2] for one in ones]
                waiting[key] = waiting[key][len(ones) :]
            assert len(found) == sum(map(len, gone.values()))
        elif what < 0.45:
            buffered.commit(rng.choice((None, Run.reopen, Run.move)))
            buffered.tick(now)
        else:
            key, want = rng.choice((b"a", b"b")), rng.choice("xyz")
            ones = waiting.setdefault(key, [])
            expected = []
            if buffered.lookup.known.get(want) is not None:
                expected = [one[2] for one in ones if buffered.lookup.known.get(one[1]) is not None] + [number]
                waiting[key] = [one for one in ones if buffered.lookup.known.get(one[1]) is None]
            elif len(ones) < most:
                ones.append((now, want, number))
            assert numbers(buffered.feed(want, number, key)) == expected


@pytest.mark.usefixtures("processing_mode")
def test_in_an_application() -> None:
    stage = Stage()
    known = Known()
    buffer = LookupBuffer(timedelta(minutes=1), lambda value: value["found"] is not None)
    stage.sdf.join_lookup(known, {"found": BaseField()}, on="want", buffer=buffer)
    with TopologyTestDriver(stage.app, start=START) as driver:
        driver.pipe(stage.source, {"want": "x"}, key="k", timestamp=1, headers=[("h", b"1")])
        driver.advance(timedelta(seconds=59))
        assert driver.outputs() == []
        driver.advance(timedelta(seconds=1))
        assert driver.outputs() == [({"want": "x", "found": None}, b"k", 1, [("h", b"1")])]
        driver.pipe(stage.source, {"want": "y"}, key="k", timestamp=2)
        driver.advance(timedelta(minutes=1))
        assert [output[2] for output in driver.outputs()] == [2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grace_ms": 0}, r"LookupBuffer\(grace_ms=\.\.\.\) must be 1 ms or more, got 0"),
        ({"is_resolved": None}, "is_resolved=.* must be a function of the value, got NoneType"),
        ({"on_timeout": "wait"}, "on_timeout=.* must be 'emit' or 'drop', got 'wait'"),
        ({"max_buffered_per_key": 0}, "max_buffered_per_key=.* must be 1 or more, got 0"),
        ({"store_name": "a/b"}, "'a/b' is not a valid store name"),
    ],
)
def test_settings_that_cannot_be_used(settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LookupBuffer(**{"grace_ms": 1, "is_resolved": resolved, **settings})


def test_two_buffers_need_two_stores() -> None:
    sdf = Stage().sdf
    arguments: dict[str, Any] = {"lookup": Known(), "fields": {"found": BaseField()}, "on": "want"}
    sdf.join_lookup(**arguments, buffer=LookupBuffer(1, resolved))
    with pytest.raises(
        InvalidOperationError, match=r"store 'lookup-buffer' .* give one of the buffers another store_name"
    ):
        sdf.join_lookup(**arguments, buffer=LookupBuffer(1, resolved))
    sdf.join_lookup(**arguments, buffer=LookupBuffer(1, resolved, store_name="second"))
