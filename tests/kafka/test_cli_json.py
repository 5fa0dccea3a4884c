"""JSON output of commands that need a broker."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from streamrt.kafka import Consumer
from streamrt.records import TopicPartition
from streamrt.topics import DeadLetter
from tests.cli_json import check, run
from tests.command_line import streamrt
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(autouse=True)
def environment(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", kafka.address)
    monkeypatch.setenv("STREAMRT_CATALOG_DIR", str(tmp_path / "catalog"))


def test_commands_of_topics_and_records() -> None:
    name = unique("orders")
    run("topics create", name, "--partitions", 2)
    run("topics list", "--prefix", name)
    assert run("produce", name, '{"id": 1}', "x", "--key", "ann", "--header", "origin=shell")["written"] == 2
    lines: list[Any] = streamrt("consume", name, "--json").lines
    assert len(lines) == 2
    for line in lines:
        check("consume", line)
    assert len(run("topics show", name)["partitions"]) == 2
    run("topics delete", name, "--yes")


def test_commands_of_groups(kafka: Kafka) -> None:
    group, topic = unique("group"), kafka.topic("orders", 2)
    kafka.produce(topic, [1], partition=0)
    kafka.admin.set_committed(group, {TopicPartition(topic, 0): 0})
    assert [each["lag"] for each in run("lag", group)["partitions"]] == [1, None]
    run("groups list", "--prefix", group)
    with contextlib.closing(Consumer(kafka.address, group, "earliest", auto_commit_enable=False)) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None)
        assert run("groups show", group)["members"]
    assert run("savepoint list", "--group", group) == {"savepoints": []}


def test_commands_of_dead_letters(kafka: Kafka) -> None:
    source, letters = kafka.topic("orders"), kafka.topic("letters")
    for number in range(3):
        why = DeadLetter("process", "KeyError", "'price'", "apply-1 (price)", source, 0, number, "shop")
        kafka.produce(letters, [{"n": number}], headers=why.headers([("trace", b"x")]))
    run("dlq list", letters)
    for letter in streamrt("dlq", "list", letters, "--each", "--json").json["letters"]:
        check("dlq show", letter)
    run("dlq show", letters, "0:1")
    assert run("dlq replay", letters, "--limit", 1, "--yes")["topics"] == {source: 1}
    assert run("dlq drop", letters, "--yes")["done"] == 2


def test_commands_of_rows() -> None:
    name = unique("orders")
    run("table create", name, "id BIGINT, customer STRING")
    assert run("table write", name, '{"id": 1, "customer": "ann"}')["written"] == 1
    assert run("table schema detect", name, "--wait", 10)["records"] == 1
    run("table drop", name, "--delete-data", "--yes")
