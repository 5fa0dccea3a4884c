"""Broadcast frames: records that reach all partitions, and state that each partition has a copy of; in both modes."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, cast

import pytest

import streamrt.process.operator as operator_module
from streamrt import (
    Application,
    BroadcastContext,
    BroadcastProcessFunction,
    BroadcastTimerContext,
    Context,
    CoProcessFunction,
)
from streamrt.app import definition_of
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    ProcessingError,
    TopicConfigurationError,
)
from streamrt.kafka import ConnectionConfig, TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runs.start_positions import StartOffsets
from streamrt.runtime.driver.observation.outline import Outline
from streamrt.runtime.driver.starting.state_setup import refuse_grown
from streamrt.testing import TopologyTestDriver
from streamrt.topology import Topology
from tests.unit.apps import application
from tests.unit.test_process import gathered

pytestmark = pytest.mark.usefixtures("processing_mode")

BC = "repartition__{}--rules--broadcast"


class Rules(BroadcastProcessFunction):
    """Tells the rules that an order is subject to."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        rules = ctx.broadcast_state("rules")
        if value["minimum"] is None:
            rules.discard(value["id"])
        else:
            rules[value["id"]] = value["minimum"]

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        yield [name for name, minimum in ctx.broadcast_state("rules").items() if value["total"] >= minimum]


def frames(
    orders: int = 3, rules: int = 1, **settings: Any
) -> tuple[Application, StreamingDataFrame, StreamingDataFrame]:
    app = application(**settings)
    return (
        app,
        app.dataframe(app.topic("orders", key_deserializer="str", config=TopicConfig(orders, 1))),
        app.dataframe(app.topic("rules", key_deserializer="str", config=TopicConfig(rules, 1))),
    )


def rule(driver: TopologyTestDriver, name: str, minimum: int | None, timestamp: int, partition: int = 0) -> None:
    driver.pipe("rules", {"id": name, "minimum": minimum}, key=b"r", timestamp=timestamp, partition=partition)


def order(driver: TopologyTestDriver, total: int, timestamp: int, partition: int = 0) -> None:
    driver.pipe("orders", {"total": total, "g": f"g{total}"}, key=b"o", timestamp=timestamp, partition=partition)


def test_deleted_rules_apply_no_more() -> None:
    app, orders, rules = frames()
    results = gathered(orders.connect(rules.broadcast()).process(Rules()))
    driver = TopologyTestDriver(app)
    rule(driver, "big", 100, 1_000)
    rule(driver, "huge", 1_000, 5_000)
    order(driver, 2_000, 6_000)
    order(driver, 50, 6_000, 1)
    rule(driver, "big", None, 7_000)
    order(driver, 2_000, 8_000, 2)
    assert results == [("o", ["big", "huge"], 6_000), ("o", [], 6_000), ("o", ["huge"], 8_000)]


@pytest.mark.parametrize(("orders_count", "rules_count", "grouped"), list(product((1, 3), (1, 2), (False, True))))
def test_all_numbers_of_partitions(orders_count: int, rules_count: int, grouped: bool) -> None:
    app, orders, rules = frames(orders_count, rules_count)
    frame = orders.group_by("g", key_serializer="str", key_deserializer="str") if grouped else orders
    rules = rules.group_by("id", key_serializer="str", key_deserializer="str") if grouped else rules
    connected = frame.connect(rules.broadcast()).process(Rules())
    # State behind the operator has the same scope.
    counted = connected.apply(lambda value, state: [value, _next(state)], stateful=True)
    results = gathered(counted)
    driver = TopologyTestDriver(app)
    for number in range(rules_count):
        rule(driver, f"r{number}", 10 * number, 100 + number, number)
    for number in range(6):
        order(driver, number, 200 + number, number % orders_count)
    for number in range(6):
        order(driver, 100, 300 + number, number % orders_count)
    found = [value[0] for _, value, _ in results]
    everything = [f"r{number}" for number in range(rules_count)]
    assert found == [["r0"]] * 6 + [everything] * 6
    # With one partition, no internal topic is used.
    internal = [name for name in driver._execution.topology.exchanges if "broadcast" in name]
    assert len(internal) == (0 if orders_count == rules_count == 1 else 1)
    view = driver.state(counted.stream_id, "g100" if grouped else "o", store="default")
    assert view.get("count") in range(1, 13)
    assert driver.state(connected.stream_id, "o", store="process_Rules").timers() == []
    described = app.describe()
    assert "broadcast" in described
    assert app.topology.broadcasts == {name for name in app.topology.exchanges if "broadcast" in name}


def _next(state: Any) -> int:
    count: int = state.get("count", 0) + 1
    state.set("count", count)
    return count


def resolved(app: Application, **counts: int) -> Topology:
    return app.topology.resolve(counts)


def test_the_topology_knows_where_partitions_come_from() -> None:
    app, orders, rules = frames()
    by_total = orders.group_by("g", name="g")
    by_total.connect(rules.broadcast()).process(Rules())
    name = BC.format(app.config.consumer_group)
    topology = app.topology
    assert topology.origin(name) == "orders"
    assert topology.broadcasts == {name}
    assert resolved(app, orders=1, rules=1).exchanges == {}
    mixed = resolved(app, orders=1, rules=2)
    assert list(mixed.exchanges) == [name]
    assert mixed.origin(name) == "orders"
    assert sorted(mixed.streams) == [f"orders--{name}", "rules"]
    assert len(resolved(app, orders=2, rules=1).exchanges) == 2
    scope = topology.scope(topology.nodes[-1])
    assert topology.resolved_scope(scope, mixed) == f"orders--{name}"


class Timed(BroadcastProcessFunction):
    outputs: ClassVar[tuple[str, ...]] = ("side",)

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        ctx.broadcast_state("all")[value["id"]] = value["minimum"]
        ctx.output("side", value["id"])
        yield [value["id"], ctx.key]

    def process_element(self, value: Any, ctx: BroadcastContext) -> None:
        ctx.state.set("total", value["total"])
        ctx.register_event_time_timer(ctx.timestamp + 100)

    def on_timer(self, timestamp: int, ctx: BroadcastTimerContext) -> Iterator[Any]:
        with pytest.raises(Exception, match="is read-only for records and timers"):
            ctx.broadcast_state("all").clear()
        yield [ctx.state.get("total"), dict(ctx.broadcast_state("all").items())]


@pytest.mark.rows("PF-I9", "PF-H2")
@pytest.mark.parametrize("clock", ["watermark", "partition"])
def test_timers_and_results_of_both_sides(clock: Any) -> None:
    app, orders, rules = frames(2)
    frame = orders.connect(rules.broadcast()).process(Timed(), clock=clock)
    results, side = gathered(frame), gathered(frame.side_output("side"))
    driver = TopologyTestDriver(app)
    rule(driver, "a", 1, 1_000)
    order(driver, 7, 1_500, 1)
    # A broadcast record moves the time of all partitions.
    rule(driver, "b", 2, 2_000)
    assert sorted(results) == [
        ("o", [7, {"a": 1, "b": 2}], 1_600),
        ("r", ["a", "r"], 1_000),
        ("r", ["a", "r"], 1_000),
        ("r", ["b", "r"], 2_000),
        ("r", ["b", "r"], 2_000),
    ]
    assert [value for _, value, _ in side] == ["a", "a", "b", "b"]


WRONG = {
    "set": lambda ctx: ctx.broadcast_state("rules").__setitem__("a", 1),
    "delete": lambda ctx: ctx.broadcast_state("rules").__delitem__("a"),
    "pop": lambda ctx: ctx.broadcast_state("rules").pop("a"),
    "discard": lambda ctx: ctx.broadcast_state("rules").discard("a"),
    "put all": lambda ctx: ctx.broadcast_state("rules").put_all({}),
    "clear": lambda ctx: ctx.broadcast_state("rules").clear(),
}
WRONG_IN_BROADCAST = {
    "state": lambda ctx: ctx.state,
    "timer": lambda ctx: ctx.register_event_time_timer(1),
    "processing timer": lambda ctx: ctx.register_processing_time_timer(1),
    "delete timer": lambda ctx: ctx.delete_event_time_timer(1),
    "delete processing timer": lambda ctx: ctx.delete_processing_time_timer(1),
}


class Wrong(BroadcastProcessFunction):
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        WRONG_IN_BROADCAST[value](ctx)

    def process_element(self, value: Any, ctx: BroadcastContext) -> None:
        WRONG[value](ctx)

    def on_timer(self, timestamp: int, ctx: BroadcastTimerContext) -> None: ...


@pytest.mark.rows("PF-I9")
def test_what_a_side_may_not_do() -> None:
    app, orders, rules = frames(2)
    orders.connect(rules.broadcast()).process(Wrong()).update(print)
    driver = TopologyTestDriver(app)
    for wrong in WRONG:
        with pytest.raises(ProcessingError, match=r"process_element.*'rules' is read-only for records and timers"):
            driver.pipe("orders", wrong, key=b"o", timestamp=1)
        driver = TopologyTestDriver(app)
    for wrong in WRONG_IN_BROADCAST:
        with pytest.raises(ProcessingError, match=r"process_broadcast_element has no (state of a key|timers)"):
            driver.pipe("rules", wrong, key=b"o", timestamp=1)
        driver = TopologyTestDriver(app)


def test_a_broadcast_frame_goes_to_one_place() -> None:
    app, orders, rules = frames()
    others = app.dataframe(app.topic("others"))
    shared = rules.broadcast()
    first = gathered(orders.connect(shared).process(Rules(), name="first"))
    second = gathered(orders.filter(lambda value: value["total"] > 5).connect(shared).process(Rules(), name="second"))
    with pytest.raises(InvalidOperationError, match=r"broadcast\(\.\.\., name='\.\.\.'\)"):
        orders.connect(rules.broadcast()).process(Rules(), name="third")
    with pytest.raises(
        InvalidOperationError, match="is connected with a frame of orders, and cannot reach others, too"
    ):
        others.connect(shared).process(Rules())
    with pytest.raises(ConfigurationError, match=r"of broadcast 'broadcast' on topic rules .*broadcast\(name='...'\)"):
        others.connect(rules.broadcast()).process(Rules())
    third = gathered(others.connect(rules.broadcast("again")).process(Rules()))
    driver = TopologyTestDriver(app)
    rule(driver, "any", 0, 1)
    order(driver, 3, 2, 1)
    order(driver, 9, 3, 2)
    driver.pipe("others", {"total": 1}, timestamp=4)
    assert [[value for _, value, _ in each] for each in (first, second, third)] == [[["any"]] * 2, [["any"]], [["any"]]]
    assert len(driver._execution.clients.written(BC.format(app.config.consumer_group))) == 3


def test_a_frame_connected_with_a_broadcast_of_itself() -> None:
    app, orders, _ = frames()

    class Seen(BroadcastProcessFunction):
        def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
            ctx.broadcast_state("totals")[value["total"]] = True

        def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
            yield list(ctx.broadcast_state("totals").keys())

    results = gathered(orders.connect(orders.broadcast()).process(Seen()))
    driver = TopologyTestDriver(app)
    for number in range(4):
        order(driver, number, number, number % 3)
    assert [value for _, value, _ in results] == [[], [0], [0, 1], [0, 1, 2]]


def test_values_and_keys_of_other_types() -> None:
    app = application()
    orders = app.dataframe(app.topic("orders", config=TopicConfig(2, 1)))
    rules = app.dataframe(app.topic("rules", key_deserializer="int", key_serializer="int", value_deserializer="bytes"))

    class Keys(BroadcastProcessFunction):
        def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
            yield value, ctx.key, ctx.headers

        def process_element(self, value: Any, ctx: BroadcastContext) -> None: ...

    plain = rules.broadcast("plain", value_serializer="bytes", value_deserializer="bytes")
    results = gathered(orders.connect(plain).process(Keys()))
    driver = TopologyTestDriver(app)
    driver.pipe_bytes("rules", b"\xff", key=(5).to_bytes(4, "big"), headers=[("h", b"1")])
    driver.pipe_bytes("rules", b"\xfe", key=None)
    assert [value for _, value, _ in results] == [(b"\xff", 5, [("h", b"1")])] * 2 + [(b"\xfe", None, None)] * 2


def test_a_warning_of_much_broadcast_state(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_module, "_LARGE_BYTES", 2_000)
    monkeypatch.setattr(operator_module, "_MEASURED_BYTES", 100)
    app, orders, rules = frames(2)

    class Texts(BroadcastProcessFunction):
        def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
            ctx.broadcast_state("texts").put_all({value: "x" * 90})

        def process_element(self, value: Any, ctx: BroadcastContext) -> None: ...

    orders.connect(rules.broadcast()).process(Texts()).update(print)
    driver = TopologyTestDriver(app)
    for number in range(30):
        # Overwritten values do not count.
        driver.pipe("rules", number % 5, timestamp=number)
    assert "broadcast state" not in caplog.text
    for number in range(30):
        driver.pipe("rules", number, timestamp=number)
    assert caplog.text.count("keeps more than 64 MiB of broadcast state") == 1


def test_what_is_refused() -> None:
    app, orders, rules = frames()
    _, _, foreign = frames()

    class Plain(CoProcessFunction):
        def process_element1(self, value: Any, ctx: Context) -> None: ...

        def process_element2(self, value: Any, ctx: Context) -> None: ...

    shared = rules.broadcast()
    with pytest.raises(ArgumentTypeError, match="subclass of BroadcastProcessFunction, got Plain"):
        orders.connect(shared).process(Plain())
    with pytest.raises(ArgumentTypeError, match="subclass of CoProcessFunction, got Rules"):
        orders.connect(rules).process(Rules())
    with pytest.raises(ArgumentValueError, match="another application"):
        orders.connect(foreign.broadcast())
    with pytest.raises(ArgumentTypeError, match="broadcast"):
        rules.broadcast(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="got BroadcastFrame"):
        orders.concat(shared)  # type: ignore[arg-type]
    assert repr(shared) == "BroadcastFrame(rules, 'broadcast')"
    assert app.topology.broadcasts == frozenset()
    with pytest.raises(ArgumentValueError, match="idle_timeout_ms"):
        orders.connect(shared).process(Rules(), clock="partition", idle_timeout_ms=1)


def test_an_internal_topic_of_another_size_is_refused() -> None:
    app, orders, rules = frames()
    orders.connect(rules.broadcast()).process(Rules()).update(print)
    # As if it had been created by hand.
    app.topic(BC.format(app.config.consumer_group), config=TopicConfig(2, 1))
    with pytest.raises(TopicConfigurationError, match="has 2"):
        TopologyTestDriver(app)


@pytest.mark.parametrize(("orders", "rules"), [(2, 1), (1, 2)])
def test_state_of_a_broadcast_in_memory_is_not_left_behind(orders: int, rules: int) -> None:
    app, left, right = frames()
    left.connect(right.broadcast()).process(Rules())
    text = '{"streamrt":1,"stores":{"orders--rules":{"process_Rules.--broadcast":"x1"}}}'
    committed = {TopicPartition(name, 0): CommittedOffset(7, text) for name in ("orders", "rules")}
    refuse_grown(app.topology, {"orders": 1, "rules": 1}, committed)
    with pytest.raises(TopicConfigurationError, match=r"behind its group_by\(\) or broadcast\(\) was made"):
        refuse_grown(app.topology, {"orders": orders, "rules": rules}, committed)


def test_state_beside_a_broadcast_topic_is_not_left_behind() -> None:
    app, orders, rules = frames()
    orders.group_by("g").connect(rules.broadcast()).process(Rules())
    scope = "orders--" + BC.format(app.config.consumer_group)
    text = json.dumps({"streamrt": 1, "stores": {scope: {"process_Rules.g--broadcast": "x1"}}})
    committed = {TopicPartition("orders", 0): CommittedOffset(7, text)}
    refuse_grown(app.topology, {"orders": 1, "rules": 3}, committed)
    with pytest.raises(TopicConfigurationError, match="'orders' has 2 partitions now"):
        refuse_grown(app.topology, {"orders": 2, "rules": 3}, committed)


def test_topics_begin_where_they_say() -> None:
    app = application(auto_offset_reset="latest")
    rules = app.dataframe(app.topic("rules", auto_offset_reset="earliest"))
    app.dataframe(app.topic("orders")).connect(rules.broadcast()).process(Rules())
    spec: Any = definition_of(app).task_spec()
    offsets = StartOffsets(
        app.config, ConnectionConfig(bootstrap_servers="unused:9092"), spec, cast("Any", None), lambda partitions: None
    )
    resets = [offsets._make_rules(TopicPartition(name, 0), CommittedOffset(None)).reset for name in ("rules", "orders")]
    assert resets == ["earliest", "latest"]


def test_an_outline_names_where_partitions_come_from() -> None:
    app, orders, rules = frames()
    orders.group_by("g").connect(rules.broadcast()).process(Rules())
    topics = {topic.name: topic.settings for topic in Outline.of(definition_of(app), "").topics}
    group = app.config.consumer_group
    assert topics[BC.format(group)] == "like orders; none if orders and rules have 1 partition"
    assert topics[f"repartition__{group}--orders--g"] == "like orders; none if that has 1 partition"


def test_a_dataframe_under_test_has_all_in_memory() -> None:
    _, orders, rules = frames(3, 2)
    frame = orders.connect(rules.broadcast()).process(Rules(), clock="partition")
    assert frame.test({"id": "big", "minimum": 5}, topic=rules.topics[0]) == []
    assert [output[0] for output in frame.test({"total": 7}, topic=orders.topics[0])] == [["big"]]


@pytest.mark.parametrize("orders_count", [1, 3])
def test_functions_and_groupings_behind_one_another(orders_count: int) -> None:
    app, orders, rules = frames(orders_count, 2)
    shared = rules.broadcast()

    class More(Rules):
        def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
            yield {"total": 0, "g": [*value, *ctx.broadcast_state("rules").keys()]}

    twice = orders.connect(shared).process(Rules()).connect(shared).process(More())
    grouped = twice.group_by(lambda value: "+".join(value["g"]), name="all")
    again = (
        grouped.connect(rules.broadcast("again"))
        .process(Rules())
        .apply(lambda value, state: [*value, _next(state)], stateful=True)
    )
    results = gathered(again)
    driver = TopologyTestDriver(app)
    rule(driver, "a", 0, 1)
    rule(driver, "b", 100, 2, 1)
    for number in range(3):
        order(driver, 7, 3 + number, number % orders_count)
    assert [(key, value) for key, value, _ in results] == [("a+a+b", ["a", count]) for count in (1, 2, 3)]
    assert driver.state(again.stream_id, "a+a+b", store="default").get("count") == 3
