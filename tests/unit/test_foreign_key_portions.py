"""A row with very many subscribers is passed on in portions, across commits, restarts and failures."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import streamrt.runtime.tasks.chain.collector as collector_module
from streamrt import Application
from streamrt.config import ProcessingMode
from streamrt.kafka.partitioner import partition_for
from streamrt.models import Headers, TopicConfig
from streamrt.relations import Change, MatchForeignKeys
from streamrt.state import MemoryStore, RocksDBStore, Store
from streamrt.state.journal import Journal
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Node
from tests.sim.simulation import replaced
from tests.support import LONG
from tests.unit.joined import Joined
from tests.unit.state_timed import Run

SUBSCRIBERS = 200_000 if LONG else 40_000
PORTION = 5_000


class ProcessRun(Run):
    """A store partition of state and timers."""

    def begin(self) -> Any:
        return ProcessTransaction(self.partition, self.options)


class Matched(Joined):
    """The operator with a store whose transactions begin and end when a test says so.

    Args:
        portion: after how many steps it must stop.
        kind: the kind of store.
        folder: where the store is.
    """

    def __init__(self, portion: int, kind: type[Store] = MemoryStore, folder: Path = Path("unused")) -> None:
        self.portion, self.unfinished, self.sent = portion, False, 0
        self.fails_at: Any = None
        spec = StoreSpec("match", kind, ProcessTransaction)
        with replaced(Joined, "_take", self._take_match):
            super().__init__(MatchForeignKeys(spec))
        self.run = ProcessRun(kind, folder)
        self.transaction = self.run.begin()

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        left = self.portion

        def must_stop() -> bool:
            nonlocal left
            left -= 1
            self.unfinished = self.unfinished or left < 0
            return self.unfinished

        return must_stop

    def change(self, before: Any, after: Any, key: Any = b"f", timestamp: int = 10) -> None:
        """Change a right row."""
        self.unfinished = False
        self.inputs[1](Change(before, after), key, timestamp, None)

    def turn(self) -> None:
        """Commit, and tick if there is work left."""
        self.commit()
        self.unfinished = False
        self.tick()

    def drain(self) -> None:
        """Take turns until no work is left."""
        while self.unfinished:
            self.turn()

    def _take_match(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        if key == self.fails_at:
            self.fails_at = None
            raise ValueError(f"{key} is refused")
        self.sent += 1
        if self.sent <= 1_000:
            self.outputs.append((value, key, timestamp, headers))


@pytest.mark.slow
def test_what_a_turn_does_and_keeps_does_not_grow_with_the_subscribers(tmp_path: Path) -> None:
    matched = Matched(PORTION, RocksDBStore, tmp_path)
    for number in range(SUBSCRIBERS):
        matched.inputs[0]([number, True], b"f", 1, None)
        if number % 20_000 == 0:
            matched.commit()
    matched.commit()
    matched.sent = 0
    matched.change(None, {"n": 1})
    turns = [matched.sent]
    tracemalloc.start()
    try:
        while turns[-1]:
            before = matched.sent
            matched.turn()
            turns.append(matched.sent - before)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not matched.unfinished
    assert sum(turns) == SUBSCRIBERS
    assert max(turns) == PORTION
    assert most < 1 << 20
    # The row is stored as it always is.
    state = cast("Any", matched.transaction).state_of(b"f", 0)
    assert state.get_bytes("right") == (10).to_bytes(8, "big") + b'{"n":1}'


def subscribed(count: int, portion: int, kind: type[Store] = MemoryStore, folder: Path = Path("unused")) -> Matched:
    matched = Matched(portion, kind, folder)
    for number in range(count):
        matched.inputs[0]([number, True], b"f", 1, None)
    matched.commit()
    matched.outputs.clear()
    return matched


@pytest.mark.parametrize(
    ("kind", "then"),
    [(MemoryStore, None), (MemoryStore, Run.move), (RocksDBStore, Run.reopen), (RocksDBStore, Run.move)],
)
def test_portions_go_on_after_restarts(kind: type[Store], then: Callable[[Run], None] | None, tmp_path: Path) -> None:
    matched = subscribed(7, 2, kind, tmp_path)
    for after in ({"n": 1}, None):
        matched.outputs.clear()
        matched.change(None, after, timestamp=20)
        while matched.unfinished:
            matched.commit(then)
            matched.unfinished = False
            matched.tick()
        assert sorted(key for _, key, _, _ in matched.outputs) == list(range(7))
        assert all(value == [b"f", after, 20] for value, *_ in matched.outputs)
        matched.commit(then)
        assert matched.tick() == []


def test_a_subscriber_that_comes_and_goes_meanwhile_has_the_row_that_it_should() -> None:
    matched = subscribed(6, 2)
    matched.change(None, {"n": 1})
    assert len(matched.outputs) == 2
    # A record above may become several: these come before the next tick.
    assert matched.feed(0, [9, True], b"f", 11) == [([b"f", {"n": 1}, 10], 9, 11, None)]
    assert matched.feed(0, [5, False], b"f", 11) == [([b"f"], 5, 11, None)]
    # The next row is for all of them.
    matched.unfinished = True
    matched.inputs[1](Change({"n": 1}, {"n": 2}), b"f", 12, None)
    matched.outputs.clear()
    matched.drain()
    assert [(value[1]["n"], key) for value, key, _, _ in matched.outputs] == [(2, key) for key in (0, 1, 2, 3, 4, 9)]


def test_rows_of_several_keys_wait() -> None:
    matched = subscribed(3, 2)
    for number in range(3):
        matched.inputs[0]([10 + number, True], "g", 1, None)
    matched.outputs.clear()
    matched.change(None, {"n": 1})
    matched.inputs[1](Change(None, {"n": 2}), "g", 10, None)
    matched.drain()
    found = [(value[0], key) for value, key, _, _ in matched.outputs]
    expected: list[Any] = [(b"f", 0), (b"f", 1), (b"f", 2), ("g", 10), ("g", 11), ("g", 12)]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_subscriber_that_fails_is_skipped_once() -> None:
    matched = subscribed(6, 2)
    matched.transaction.follow(Journal())
    matched.change(None, {"n": 1})
    matched.commit()
    matched.transaction.follow(Journal())
    matched.unfinished, matched.fails_at = False, 3
    with pytest.raises(ValueError, match="3 is refused"):
        matched.tick()
    matched.unfinished = True
    matched.drain()
    assert [key for _, key, _, _ in matched.outputs] == [0, 1, 2, 4, 5]


def test_a_record_that_is_repeated_passes_on_what_a_crash_has_left() -> None:
    """At least once, a part of a commit may be in the changelog: the entry of the row, and not its timer."""
    matched = subscribed(6, 2)
    matched.change(None, {"n": 1})
    cast("Any", matched.transaction).event_timers.delete(cast("Any", matched.transaction).prefix_of(b"f"), 0)
    matched.commit()
    matched.outputs.clear()
    matched.change({"n": 1}, {"n": 1})
    matched.drain()
    assert [key for _, key, _, _ in matched.outputs] == list(range(6))


def test_a_timer_without_a_row_on_its_way_is_forgotten() -> None:
    matched = subscribed(2, 5)
    cast("Any", matched.transaction).event_timers.register(cast("Any", matched.transaction).prefix_of(b"f"), 0)
    assert matched.tick() == []
    assert cast("Any", matched.transaction).event_timers.next_time is None


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_driver_does_all_portions(processing_mode: ProcessingMode, partitions: int) -> None:
    app = Application("localhost:9092", consumer_group="shop", processing_mode=processing_mode)
    config = TopicConfig(partitions, 1)
    orders, customers = (
        app.topic(name, key_deserializer="str", key_serializer="str", config=config) for name in ("orders", "customers")
    )
    joined = app.table(orders).join(app.table(customers), on="customer", on_merge=lambda order, other: other["n"])
    joined.to_stream().to_topic(app.topic("out", key_serializer="str"))
    driver = TopologyTestDriver(app)
    with replaced(collector_module, "_PORTION_S", -1.0):
        for number in range(20):
            driver.pipe(
                "orders", {"customer": "ann"}, key=f"{number}", partition=partition_for(b"%d" % number, partitions)
            )
        for n in (1, 2):
            driver.pipe("customers", {"n": n}, key="ann", partition=partition_for(b"ann", partitions))
            found = [(record.key, record.value) for record in driver.read("out")]
            assert sorted(found) == sorted((f"{number}".encode(), n) for number in range(20))
