"""Broadcast records on Kafka and Spark, exactly once; in long tests across a restart on an empty disk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, BroadcastContext, BroadcastProcessFunction
from tests.support import LONG, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3


class Rules(BroadcastProcessFunction):
    """Tells each rule in each partition, and how often the partition got the rules when it gets an order."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        rules = ctx.broadcast_state("rules")
        rules[value] = rules.get(value, 0) + 1
        yield ["rule", value]

    def process_element(self, value: Any, ctx: BroadcastContext) -> Iterator[Any]:
        yield ["order", value, list(ctx.broadcast_state("rules").items())]


@pytest.mark.both_modes
def test_each_partition_gets_each_rule_exactly_once(kafka: Kafka, tmp_path: Path) -> None:
    orders, rules, results = kafka.topic("orders", PARTITIONS), kafka.topic("rules", 2), kafka.topic("out")
    group = unique("shop")

    def build() -> Application:
        app = kafka.app(
            group,
            processing_guarantee="exactly-once",
            auto_offset_reset="latest",
            state_dir=tmp_path / "state",
        )
        broadcast = app.dataframe(app.topic(rules, auto_offset_reset="earliest")).broadcast()
        frame = app.dataframe(app.topic(orders)).connect(broadcast).process(Rules(), clock="partition")
        frame.to_topic(app.topic(results))
        return app

    def wait_for(count: int, what: str) -> None:
        wait_until(lambda: len(kafka.receive(results, count, 1)) == count, what=what)

    def send(value: str) -> None:
        for partition in range(PARTITIONS):
            kafka.produce(orders, [value], partition=partition, timestamp=2_000)

    # Orders of before are not read, but rules are.
    send("before")
    for partition, rule in enumerate("ab"):
        kafka.produce(rules, [rule], partition=partition, timestamp=1_000)
    app = build()
    app.start(paused=True, timeout=180)
    try:
        send("first")
        # All rules arrive before the first order is processed.
        app.resume(rules)
        wait_until(lambda: all(kafka.committed(group, rules, each) or 0 for each in range(2)), what="the rules")
        app.resume()
        wait_for(3 * PARTITIONS, "both rules and an order in all partitions")
    finally:
        app.stop(wait=True)
    internal = kafka.admin.inspect_topics([f"repartition__{group}--{rules}--broadcast"])
    assert [config and config.num_partitions for config in internal.values()] == [PARTITIONS]
    found = [json.loads(record.value or b"") for record in kafka.receive_exactly(results, 3 * PARTITIONS)]
    assert sorted(value[1] for value in found if value[0] == "rule") == sorted("ab" * PARTITIONS)
    told = [(value[1], dict(value[2])) for value in found if value[0] == "order"]
    assert told == [("first", {"a": 1, "b": 1})] * PARTITIONS
    if not LONG:
        return
    # All state comes from the changelog.
    shutil.rmtree(tmp_path / "state")
    kafka.produce(rules, ["c"], partition=1)
    with running(build()):
        wait_for(4 * PARTITIONS, "the new rule in all partitions")
        send("second")
        wait_for(5 * PARTITIONS, "the orders that all rules apply to")
    found = [json.loads(record.value or b"") for record in kafka.receive_exactly(results, 5 * PARTITIONS)]
    assert sorted(value[1] for value in found if value[0] == "rule") == sorted("abc" * PARTITIONS)
    told = [(value[1], dict(value[2])) for value in found if value[:2] == ["order", "second"]]
    assert told == [("second", {"a": 1, "b": 1, "c": 1})] * PARTITIONS
