"""The test driver has the life cycle of an application: pause, resume, checkpoint, stop and start, in both modes."""

from typing import Any

import pytest

from streamrt import Application, ApplicationStatus, Offsets, State
from streamrt.connectors import BatchingSink
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    ArgumentTypeError,
    ArgumentValueError,
    ProcessingError,
    SinkBackpressureError,
    StaleTokenError,
)
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver
from streamrt.topics import Topic

S = ApplicationStatus
pytestmark = pytest.mark.usefixtures("processing_mode")


def count(value: Any, state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


class World:
    """An application that reads two topics: one is counted by customer, the other one is copied."""

    def __init__(self, **settings: Any) -> None:
        self.app = Application(broker_address="unused:9092", loglevel=None, **settings)
        self.calls = calls = []  # type: ignore[var-annotated]

        def see(value: Any) -> None:
            if value == "bad":
                raise ValueError("bad")
            calls.append(value)

        orders = self.app.topic("orders")
        self.counted: Topic = self.app.topic("counted")
        by_customer = self.app.dataframe(orders).update(see).group_by("customer")
        by_customer.apply(count, stateful=True).to_topic(self.counted)
        self.app.dataframe(self.app.topic("prices")).update(see).to_topic(self.app.topic("copied"))
        self.driver = TopologyTestDriver(self.app)

    def order(self, number: int) -> None:
        self.driver.pipe("orders", {"customer": "ann", "id": number})

    def values(self, topic: str) -> list[Any]:
        return [record.value for record in self.driver.read(topic)]


def test_the_states_are_those_of_an_application() -> None:
    world = World()
    driver = world.driver
    seen = [driver.status]
    for move in (driver.pause, driver.resume, driver.stop, driver.start):
        move()
        seen.append(driver.status)
    assert seen == [S.RUNNING, S.PAUSED, S.RUNNING, S.STOPPED, S.RUNNING]
    assert driver.desired_status is S.RUNNING
    driver.close()
    assert (driver.status, driver.desired_status) == (S.STOPPED, S.STOPPED)
    assert world.app.status is S.STOPPED


def test_records_wait_for_the_end_of_a_pause_in_the_order_in_which_they_came() -> None:
    world = World()
    driver = world.driver
    world.order(1)
    driver.pause()
    assert (driver.status, driver.desired_status) == (S.PAUSED, S.PAUSED)
    assert driver.paused_topics >= {"orders", "prices"}
    world.order(2)
    driver.pipe("prices", 3)
    driver.pipe_all("orders", [{"customer": "ann", "id": 4}, {"customer": "bob", "id": 5}])
    driver.advance(60_000)
    assert world.values("counted") == [1]
    assert world.calls == [{"customer": "ann", "id": 1}]
    assert driver.checkpoint().offsets["orders", 0] == 1
    driver.resume()
    assert driver.status is S.RUNNING
    assert [each if each == 3 else each["id"] for each in world.calls] == [1, 2, 3, 4, 5]
    assert world.values("counted") == [2, 3, 1]
    assert world.values("copied") == [3]
    assert driver.checkpoint().offsets["orders", 0] == 4


def test_one_topic_pauses_alone() -> None:
    world = World()
    driver = world.driver
    driver.pause("orders")
    assert (driver.status, set(driver.paused_topics)) == (S.RUNNING, {"orders"})
    world.order(1)
    driver.pipe("prices", 2)
    assert (world.values("counted"), world.values("copied")) == ([], [2])
    driver.pause("prices")
    # What is below the group_by is not paused.
    assert driver.status is S.RUNNING
    driver.resume("orders")
    driver.pipe("prices", 3)
    assert (world.values("counted"), world.values("copied")) == ([1], [])
    driver.pause()
    driver.resume("prices")
    world.order(4)
    assert (world.values("counted"), world.values("copied")) == ([], [3])
    driver.resume()
    assert world.values("counted") == [2]


@pytest.mark.rows("FE-066")
def test_merged_topics_pause_together() -> None:
    app = Application(broker_address="unused:9092", loglevel=None)
    left, right = app.dataframe(app.topic("left")), app.dataframe(app.topic("right"))
    left.concat(right).apply(lambda value, state: value, stateful=True).to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pause("left")
    assert driver.paused_topics == {"left", "right"}
    driver.pipe("right", 1)
    driver.pipe("left", 2)
    assert driver.read("out") == []
    driver.resume("left")
    assert [record.value for record in driver.read("out")] == [1, 2]


def test_watermarks_wait_for_a_paused_topic() -> None:
    app = Application(broker_address="unused:9092", loglevel=None)
    frame = app.dataframe(app.topic("in"))
    frame.tumbling_window(1_000).count().final(closing_strategy="watermark").to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    driver.pipe("in", 1, key="k", timestamp=100)
    driver.pause()
    driver.pipe("in", 2, key="k", timestamp=200)
    driver.pipe("in", 3, key="k", timestamp=5_000)
    driver.advance(600_000)
    assert driver.read("out") == []
    with pytest.raises(ApplicationStateError, match="paused, so the inputs cannot end"):
        driver.end()
    driver.resume()
    driver.end()
    assert [record.value["value"] for record in driver.read("out")] == [2, 1]


@pytest.mark.rows("FE-050")
def test_checkpoints_are_tokens() -> None:
    world = World()
    driver = world.driver
    world.order(1)
    checkpoint = driver.checkpoint()
    assert (checkpoint.number, checkpoint.status, checkpoint.error) == (1, "success", "")
    assert isinstance(checkpoint.offsets, Offsets)
    assert checkpoint.offsets.partition_map("orders") == {0: 1}
    assert set(checkpoint.offsets.ids) == {partition.topic for partition in checkpoint.offsets}
    assert Offsets.parse(str(checkpoint.offsets)) == checkpoint.offsets
    driver.wait_for(checkpoint.offsets)
    driver.wait_for(str(checkpoint.offsets))
    assert driver.checkpoint().number == 2
    with pytest.raises(StaleTokenError):
        World().driver.wait_for(checkpoint.offsets)


def test_what_is_missing_below_a_token_is_named() -> None:
    world = World()
    driver = world.driver
    token = Offsets({("orders", 0): 2})
    world.order(1)
    with pytest.raises(ApplicationTimeoutError, match=r"is behind; orders\[0\] is committed up to 1 of 2$"):
        driver.wait_for(token)
    driver.pause("orders")
    world.order(2)
    with pytest.raises(ApplicationTimeoutError, match=r"1 of 2; orders paused: resume\(\) them"):
        driver.wait_for(token)
    driver.pause()
    with pytest.raises(ApplicationTimeoutError, match=r"it is paused: resume\(\) it"):
        driver.wait_for(token)
    driver.resume()
    driver.wait_for(token)
    with pytest.raises(ArgumentValueError, match="unknown"):
        driver.wait_for(Offsets({("unknown", 0): 1}))


@pytest.mark.rows("FE-042")
def test_an_error_ends_the_application_and_the_next_record_starts_it_again() -> None:
    world = World()
    driver = world.driver
    with pytest.raises(ProcessingError) as raised:
        driver.pipe("prices", "bad")
    assert (driver.status, driver.error) == (S.FAILED, raised.value)
    with pytest.raises(ApplicationStateError, match=r"is failed and cannot be paused: start\(\) it first"):
        driver.pause()
    driver.pipe("prices", 1)
    assert (driver.status, driver.error) == (S.RUNNING, None)
    assert world.values("copied") == [1]


def test_records_behind_one_that_fails_still_wait() -> None:
    world = World()
    driver = world.driver
    driver.pause("prices")
    for value in (1, "bad", 2):
        driver.pipe("prices", value)
    with pytest.raises(ProcessingError):
        driver.resume("prices")
    assert world.values("copied") == [1]
    driver.pipe("prices", 3)
    assert world.values("copied") == [2, 3]
    assert driver.checkpoint().offsets["prices", 0] == 4


def test_what_was_paused_is_paused_after_an_error() -> None:
    world = World()
    driver = world.driver
    driver.pause("orders")
    with pytest.raises(ProcessingError):
        driver.pipe("prices", "bad")
    world.order(1)
    assert (driver.status, set(driver.paused_topics)) == (S.RUNNING, {"orders"})
    assert world.values("counted") == []
    driver.stop()
    # A start begins with nothing paused.
    driver.start()
    assert world.values("counted") == [1]


def test_a_stopped_application_processes_nothing() -> None:
    world = World()
    driver = world.driver
    driver.pause()
    world.order(1)
    driver.stop()
    driver.stop()
    calls: dict[str, Any] = {
        "be paused": driver.pause,
        "be resumed": driver.resume,
        "checkpoint": driver.checkpoint,
        "wait for a token": lambda: driver.wait_for(Offsets({("orders", 0): 1})),
        "process records": lambda: world.order(2),
        "end its inputs": driver.end,
    }
    for what, call in calls.items():
        with pytest.raises(ApplicationStateError, match=rf"is stopped and cannot {what}: start\(\) it first"):
            call()
    driver.advance(1_000)
    assert driver.now == 1_000
    driver.start(paused=True)
    assert driver.status is S.PAUSED
    assert world.values("counted") == []
    with pytest.raises(ApplicationStateError, match=r"already running; it is paused: resume\(\)"):
        driver.start()
    driver.resume()
    assert world.values("counted") == [1]
    # Checkpoints are counted in each run.
    assert driver.checkpoint().number == 1


class Slow(BatchingSink):
    """Pauses while `busy`."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = True
        self.values: list[Any] = []

    def write(self, batch: Any) -> None:
        if self.busy:
            raise SinkBackpressureError(1.0)
        self.values += [item.value for item in batch]


def test_a_record_that_has_waited_is_not_lost_when_a_sink_pauses() -> None:
    app = Application(broker_address="unused:9092", loglevel=None)
    sink = Slow()
    app.dataframe(app.topic("in")).sink(sink)
    driver = TopologyTestDriver(app)
    driver.pause()
    driver.pipe("in", 1)
    driver.pipe("in", 2)
    with pytest.raises(SinkBackpressureError):
        driver.resume()
    for _ in range(2):
        # What is piped behind it is not accepted.
        with pytest.raises(SinkBackpressureError):
            driver.pipe("in", 3)
        assert driver.status is S.RUNNING
    sink.busy = False
    driver.pipe("in", 4)
    assert sink.values == [1, 2, 4]
    assert driver.checkpoint().offsets["in", 0] == 3


def test_topics_that_are_none() -> None:
    driver = World().driver
    with pytest.raises(
        ArgumentValueError, match=r"pause\(\) got the topic 'copied', which the application does not read"
    ):
        driver.pause("copied")
    with pytest.raises(ArgumentTypeError, match=r"resume\(topic=\.\.\.\) must be a name or a Topic"):
        driver.resume(5)  # type: ignore[arg-type]


def test_rows_of_tables_wait_for_the_end_of_a_pause() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    catalog.create_table("shop.orders", "id BIGINT")
    catalog.create_table("shop.seen", "id BIGINT")
    app = Application("unused:9092", loglevel=None, catalog=catalog)
    app.dataframe("shop.orders").to_table("shop.seen")
    driver = TopologyTestDriver(app)
    orders = app.catalog.load("shop.orders").topic
    driver.pause()
    driver.table("shop.orders").append([{"id": 1}])
    driver.pipe(str(orders), {"id": 2})
    driver.table("shop.orders").append([{"id": 3}])
    assert [row["id"] for row in driver.table("shop.orders").scan().rows()] == [1, 2, 3]
    assert list(driver.table("shop.seen").scan().rows()) == []
    driver.resume()
    assert [row["id"] for row in driver.table("shop.seen").scan().rows()] == [1, 2, 3]
