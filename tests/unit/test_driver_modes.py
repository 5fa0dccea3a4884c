"""`TopologyTestDriver` in the processing modes: what stays open from record to record, and what happens after troubles."""

from typing import Any

import pytest

from streamrt.connectors import BatchingSink, SinkBatch
from streamrt.errors import LookupUnavailableError, ProcessingError, RunnerError, SinkBackpressureError
from streamrt.state import MemoryStore, RocksDBStore, State, Store
from tests.unit.apps import START, Stage

pytestmark = pytest.mark.usefixtures("processing_mode")

TEXT = {"key_serializer": "str", "key_deserializer": "str"}
both_guarantees = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


def add_up(value: int, state: State) -> int:
    total: int = state.get("total", 0) + value
    state.set("total", total)
    return total


class CountedStore(MemoryStore):
    """Counts how often it was opened."""

    opened = 0

    def open(self, partition: int) -> Any:
        type(self).opened += 1
        return super().open(partition)


class StoreOnDisk(RocksDBStore):
    """The driver keeps data of `RocksDBStore` itself in memory."""


def adding(kind: type[Store], **settings: Any) -> Stage:
    """Return an application that adds up values in a store."""
    stage = Stage(TEXT, **settings)
    stage.sdf.register_store(kind)
    stage.sdf.apply(add_up, stateful=True)
    return stage


@both_guarantees
def test_a_resident_task_keeps_its_stores_open_and_micro_batches_do_not(guarantee: str, processing_mode: str) -> None:
    stage, CountedStore.opened = adding(CountedStore, processing_guarantee=guarantee), 0
    with stage.drive() as driver:
        for value in range(5):
            driver.pipe("in", value, key="k")
        assert CountedStore.opened == {"micro-batch": 5, "resident": 1}[processing_mode]
        assert [output[0] for output in driver.outputs()] == [0, 1, 3, 6, 10]
        assert len(driver._execution.clients.written("changelog__group--in--default")) == 10
    # Closed, it has let them go, and can go on.
    ((_, store),) = driver._execution.stores._stores.items()
    store.open(0).close()
    driver.pipe("in", 5, key="k")
    assert [output[0] for output in driver.outputs()] == [15]


@both_guarantees
@pytest.mark.parametrize("kind", [MemoryStore, StoreOnDisk])
def test_stores_of_any_kind_can_be_looked_at_between_records(kind: type[Store], guarantee: str) -> None:
    with adding(kind, processing_guarantee=guarantee).drive() as driver:
        view = driver.state("in", "k")
        assert view.get("total") is None
        for value, total in ((1, 1), (2, 3), (4, 7)):
            driver.pipe("in", value, key="k")
            assert (view.get("total"), view.exists("total"), driver.state("in", "other").exists("total")) == (
                *(total, True, False),
            )


@both_guarantees
def test_after_an_error_the_next_record_finds_the_state_as_it_was_committed(guarantee: str) -> None:
    stage = Stage(TEXT, processing_guarantee=guarantee)
    stage.sdf.apply(add_up, stateful=True).filter(lambda total: 6 / (total - 3)).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", 1, key="k")
    with pytest.raises(ProcessingError, match=r"in\[0\] at offset 1"):
        driver.pipe("in", 2, key="k")
    assert driver.state("in", "k").get("total") == 1
    driver.pipe("in", 5, key="k")
    assert [record.value for record in driver.read("out")] == [1, 6]
    assert driver.outputs() == [(1, "k", START, None), (6, "k", START, None)]


@both_guarantees
def test_what_another_attempt_may_not_meet_ends_the_call_and_not_the_driver(guarantee: str) -> None:
    moods = [LookupUnavailableError("the table is away")]

    def look_up(value: int) -> int:
        if moods:
            raise moods.pop()
        return value

    stage = Stage(TEXT, processing_guarantee=guarantee)
    stage.sdf.apply(add_up, stateful=True).apply(look_up).to_topic(stage.out)
    driver = stage.drive()
    with pytest.raises(RunnerError, match="the table is away"):
        driver.pipe("in", 1, key="k")
    driver.pipe("in", 2, key="k")
    assert [record.value for record in driver.read("out")] == [2]
    assert driver.state("in", "k").get("total") == 2


class Moody(BatchingSink):
    """Writes to a list of the test; wants no records as often as it is told."""

    def __init__(self, written: list[Any], pauses: list[float]) -> None:
        super().__init__()
        self.written, self.pauses = written, pauses

    def write(self, batch: SinkBatch) -> None:
        if self.pauses:
            raise SinkBackpressureError(self.pauses.pop(0))
        self.written.extend(item.value["value"] for item in batch)


@both_guarantees
def test_what_a_sink_does_not_take_when_time_passes_comes_when_it_passes_again(guarantee: str) -> None:
    written: list[Any] = []
    stage = Stage(TEXT, processing_guarantee=guarantee)
    counted = stage.sdf.tumbling_window(1_000).count().final(closing_strategy="watermark", idle_timeout_ms=5_000)
    counted.sink(Moody(written, [30.0, 3_000.0]))
    driver = stage.drive()
    driver.pipe("in", 1, key="k", timestamp=100)
    for wanted in ([], [], [1], [1]):
        driver.advance(60_000)
        assert written == wanted


@both_guarantees
def test_partitions_that_nobody_declared_may_come_at_any_time(guarantee: str) -> None:
    with adding(MemoryStore, processing_guarantee=guarantee).drive() as driver:
        for partition in (0, 2, 0, 5, 2):
            driver.pipe("in", 1, key="k", partition=partition)
        assert [output[0] for output in driver.outputs()] == [1, 1, 2, 1, 2]
        assert [driver.state("in", "k", partition=number).get("total") for number in (0, 2, 5)] == [2, 2, 1]


def test_the_mode_is_that_of_the_application(monkeypatch: pytest.MonkeyPatch, processing_mode: Any) -> None:
    monkeypatch.delenv("STREAMRT_PROCESSING_MODE")
    stage, CountedStore.opened = adding(CountedStore, processing_mode=processing_mode), 0
    driver = stage.drive()
    for _ in range(2):
        driver.pipe("in", 1, key="k")
    assert CountedStore.opened == {"micro-batch": 2, "resident": 1}[processing_mode]
