"""Applications with state of all kinds on a real broker, whose tasks run without Spark: for savepoints and repartitions."""

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamrt import (
    Application,
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    ProcessFunction,
    State,
    StreamingDataFrame,
    TimerContext,
)
from streamrt.config import ProcessingGuarantee
from streamrt.kafka import Producer
from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.topics import repartition_topic_name
from streamrt.windows import CountTrigger
from tests.kafka.test_deployments import Version, World
from tests.support import Kafka, unique, wait_until

DAY_MS = 24 * 60 * 60 * 1_000
KEYS = [f"customer-{number}" for number in range(8)]


def by_number(key: str, partitions: int) -> int:
    return int(key.rpartition("-")[2]) % partitions


def count(what: str, value: dict[str, Any], state: State) -> dict[str, Any]:
    number = state.get("n", 0) + 1
    state.set("n", number)
    state.list("all").add(value["i"])
    return {**value, what: number, "all": list(state.list("all"))}


class Shop:
    """A group that counts the keys of an input of two partitions, and again behind a grouping."""

    def __init__(self, kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee) -> None:
        self.kafka, self.stack, self.guarantee = kafka, stack, guarantee
        self.source = kafka.topic("orders", 2)
        self.group, self.output = unique("group"), kafka.topic("out")
        self.written = 0
        # In the middle of a day, so that none ends meanwhile; brokers take no times that are to come.
        self.now = int(time.time() * 1_000) // DAY_MS * DAY_MS - 4 * DAY_MS + DAY_MS // 2
        self._runs = 0

    def fork(self, group: str) -> "Shop":
        """Return the same application with another group and another output."""
        other = object.__new__(Shop)
        other.__dict__.update(vars(self))
        other.group, other.output = group, self.kafka.topic("out")
        return other

    def produce(self, number: int, later_ms: int = 0) -> None:
        partitions = self.kafka.admin.inspect_topics([self.source])[self.source].num_partitions  # type: ignore[union-attr]
        with Producer(self.kafka.address, extra_config={"enable.idempotence": False}) as producer:
            for _ in range(number):
                key = KEYS[self.written % len(KEYS)].encode()
                value = json.dumps({"i": self.written, "c": f"c-{self.written % 5}"}).encode()
                producer.produce(
                    self.source,
                    value,
                    key=key,
                    partition=partition_for(key, partitions or 0),
                    timestamp=self.now + self.written + later_ms,
                )
                self.written += 1

    def app(self, group: str | None = None) -> Application:
        app = self.kafka.app(group or self.group, processing_guarantee=self.guarantee)
        self.build(app)
        return app

    def build(self, app: Application) -> None:
        frame = app.dataframe(app.topic(self.source, key_deserializer="str"))
        self.branch(app, frame)
        frame = frame.apply(partial(count, "n"), stateful=True)
        frame = frame.group_by("c", partitioner=by_number).apply(partial(count, "m"), stateful=True)
        frame.to_topic(app.topic(self.output))

    def branch(self, app: Application, frame: StreamingDataFrame) -> None:
        """Have no more operators."""

    def inputs(self, *, grouped: bool) -> list[str]:
        """Return the topics that tasks read, in the order in which they must have processed them."""
        return [self.source, repartition_topic_name(self.group, self.source, "c")][: 2 if grouped else 1]

    def commit(self, *arguments: Any) -> None:
        World.commit(self, *arguments)  # type: ignore[arg-type]

    def work(self, *, grouped: bool = True) -> None:
        """Process all that there is, by an instance that begins and ends."""
        self._runs += 1
        self.instance()(self, str(self._runs % 2)).run(grouped=grouped)

    def instance(self) -> "type[Instance]":
        """Return what runs the tasks."""
        return Instance

    def outputs(self, number: int) -> dict[int, dict[str, Any]]:
        found = [json.loads(record.value or b"") for record in self.kafka.receive_exactly(self.output, number, 60)]
        return {each["i"]: each for each in found}


class Remind(ProcessFunction):
    """Has a timer for each record, which fires long after it."""

    def process_element(self, value: Any, ctx: Context) -> None:
        ctx.state.list("all").add(value["i"])
        ctx.register_event_time_timer(ctx.timestamp + DAY_MS)

    def on_timer(self, timestamp: int, ctx: TimerContext) -> Iterator[Any]:
        yield {"all": list(ctx.state.list("all"))}
        ctx.state.clear()


class TimedShop(Shop):
    """One that also has timers, a triggered window and a closed one for each key."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alarms, self.panes, self.days = (self.kafka.topic(name) for name in ("alarms", "panes", "days"))
        self.prices = self.kafka.topic("prices", 2)
        self.valid, self.pairs = (self.kafka.topic(name) for name in ("valid", "pairs"))

    def inputs(self, *, grouped: bool) -> list[str]:
        return [self.prices, *super().inputs(grouped=grouped)]

    def produce_prices(self, turn: int) -> None:
        """Produce a price for each key, older than all orders."""
        count = self.kafka.admin.inspect_topics([self.prices])[self.prices].num_partitions  # type: ignore[union-attr]
        for key in KEYS:
            place, time = partition_for(key.encode(), count or 0), self.now - 1_000 + turn
            self.kafka.produce(self.prices, [{"turn": turn}], key=key.encode(), partition=place, timestamp=time)

    def branch(self, app: Application, frame: StreamingDataFrame) -> None:
        to = partial(app.topic, key_serializer="str")
        frame.process(Remind(), clock="partition").to_topic(to(self.alarms))
        values = frame.apply(lambda value: value["i"])
        of_all = values.tumbling_window(1_000 * 365 * DAY_MS, name="all")
        of_all.collect().trigger(CountTrigger(3)).to_topic(to(self.panes))
        closed = values.tumbling_window(DAY_MS, name="days").collect().final(closing_strategy="partition")
        closed.to_topic(to(self.days))
        prices = app.dataframe(app.topic(self.prices, key_deserializer="str"))
        merge = lambda order, price: [order["i"], price["turn"]]  # noqa: E731
        frame.join_asof(prices, on_merge=merge, grace_ms=DAY_MS).to_topic(to(self.valid))
        pairs = frame.join_interval(prices, on_merge=merge, grace_ms=DAY_MS, backward_ms=DAY_MS)
        pairs.to_topic(to(self.pairs))


class Rules(BroadcastProcessFunction):
    """Counts the orders of a key, and tells the rules that there are."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        if value["on"]:
            ctx.broadcast_state("rules")[value["rule"]] = value
        else:
            ctx.broadcast_state("rules").discard(value["rule"])

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        count = ctx.state.value("n", default=0)
        count.update(count.value() + 1)
        yield {**value, "n": count.value(), "rules": list(ctx.broadcast_state("rules"))}


class OwnRules(Rules):
    """Also keeps what depends on the task."""

    calls = 0

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        self.calls += 1
        ctx.broadcast_state("rules")[value["rule"]] = self.calls


class RuledShop(Shop):
    """One with rules for all partitions; the topic of the rules has another number of partitions than the orders."""

    def __init__(self, *arguments: Any, rules: type[Rules] = Rules) -> None:
        super().__init__(*arguments)
        self.rules, self.function = self.kafka.topic("rules", 3), rules

    @property
    def broadcast(self) -> str:
        return repartition_topic_name(self.group, self.rules, "broadcast")

    def build(self, app: Application) -> None:
        orders = app.dataframe(app.topic(self.source, key_deserializer="str"))
        rules = app.dataframe(app.topic(self.rules)).broadcast()
        orders.connect(rules).process(self.function()).to_topic(app.topic(self.output))

    def inputs(self, *, grouped: bool) -> list[str]:
        return [self.rules, self.broadcast, self.source]

    def produce_rules(self, *rules: str, on: bool = True) -> None:
        for rule in rules:
            value = {"rule": rule, "on": on}
            self.kafka.produce(self.rules, [value], partition=ord(rule) % 3, timestamp=self.now - 1_000)


class Instance(Version):
    def __init__(self, shop: Shop, directory: str) -> None:
        super().__init__(shop, lambda _, app: shop.build(app), directory)  # type: ignore[arg-type]
        self._shop = shop

    def run(self, *, grouped: bool) -> None:
        kafka = self._shop.kafka
        names = self._shop.inputs(grouped=True)
        found = kafka.admin.inspect_topics(names)
        places = [TopicPartition(name, number) for name in names for number in range(found[name].num_partitions or 0)]  # type: ignore[union-attr]
        self.begin(*places)
        assert self.start is not None
        positions = {**self.start.positions}
        chosen = self._shop.inputs(grouped=grouped)
        for place in (each for each in places if each.topic in chosen):
            # Markers of the transactions before are written a moment after these are committed.
            at, end = positions[place], kafka.admin.bounds(place)[1]
            wait_until(lambda: self.clients.log_end(place) >= end, 60)  # noqa: B023 - called at once
            context = BatchContext({**positions}, stateful=self.start.stateful, claims=self.start.claims)
            batch = self.tasks.begin(context)
            batch.begin_slice()
            chunks = list(self.clients.read(place, at, end)) if at < end else []
            if chunks:
                left, _ = batch.take_turn(self.tasks.task_of(place), chunks)
                assert left == []
            assert batch.report.interrupted == {}
            assert batch.report.failure is None, batch.report.failure
            report = self.settle(batch)
            assert report.interrupted == {}
            # Tasks of several inputs also have records of the others.
            positions.update((each, done.end) for each, done in report.ranges.items())
        self.close()
