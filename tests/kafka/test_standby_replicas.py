"""Standby replicas: an instance is killed, and another one goes on with the copies that it has of its state."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt import State
from streamrt.kafka import Producer
from tests.chaos import kill_tree
from tests.kafka.counting import counting_program
from tests.support import LONG, Kafka, Program, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
KEYS = 500
"""Of each partition."""
SETTINGS = 'standby_replicas=1, control="0"'
# Unit tests and the simulator have both.
GUARANTEES = ["at-least-once", "exactly-once"] if LONG else ["exactly-once"]


def count(value: Any, state: State) -> int:
    number: int = state.get("n", 0) + value
    state.set("n", number)
    return number


def produce(kafka: Kafka, topic: str) -> None:
    with Producer(kafka.address) as producer:
        for partition in range(PARTITIONS):
            for number in range(KEYS):
                producer.produce(topic, b"1", key=b"%d %d" % (partition, number), partition=partition)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_takeover_restores_only_what_the_copies_lack(
    kafka: Kafka,
    program: Callable[..., Program],
    tmp_path: Path,
    guarantee: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source, target, group = kafka.topic("in", PARTITIONS), kafka.topic("out", PARTITIONS), unique("group")
    other = program(
        counting_program(kafka, group, source, target, tmp_path / "other", guarantee=guarantee, settings=SETTINGS)
    )
    app = kafka.app(
        group,
        state_dir=tmp_path / "own",
        processing_guarantee=guarantee,
        processing_mode="resident",
        spark_master="processes[2]",
        standby_replicas=1,
        commit_interval=0.5,
        control="0",
        loglevel="INFO",
    )
    app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(target))
    # A lag of 0 says that a copy is complete only if all records were there before the copy.
    produce(kafka, source)
    kafka.receive(target, PARTITIONS * KEYS)
    with running(app):
        printed: list[str] = []

        def is_followed() -> bool:
            """Return whether there are complete copies of what the other instance has."""
            printed.append(capfd.readouterr().err)
            members = kafka.admin.group_members(group, 30)
            if [len(member.partitions) for member in members] != [1, 1, 1, 1]:
                return False
            (address,) = re.findall(r"control: listening at http://(\S+)", "".join(printed))
            others = {member.partitions[0].partition for member in members if address not in member.client_id}
            left = app._state.progress.meters.snapshot().standbys
            return {task.partition for task in left} == others and not any(left.values())

        wait_until(is_followed, what="copies of the other instance's state")
        kill_tree(other)
        produce(kafka, source)
        again = [one.value for one in kafka.receive(target, 2 * PARTITIONS * KEYS) if one.value != b"1"]
    # At least once, records that are repeated count once more.
    assert set(again) <= ({b"2"} if guarantee == "exactly-once" else {b"2", b"3"})
    since = capfd.readouterr().err
    assert "refuses connections: removing its members from the group" in since
    assert sum(map(int, re.findall(r"restored (\d+) records of changelog", since))) < KEYS


def test_without_state_a_control_server_is_enough_for_an_early_takeover(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target, group = kafka.topic("in", PARTITIONS), kafka.topic("out", PARTITIONS), unique("group")
    app = kafka.app(
        group,
        state_dir=tmp_path / "own",
        processing_mode="resident",
        spark_master="processes[2]",
        control="0",
        loglevel="INFO",
    )
    app.dataframe(app.topic(source)).to_topic(app.topic(target))
    other = program(
        counting_program(
            kafka,
            group,
            source,
            target,
            tmp_path / "other",
            guarantee="at-least-once",
            settings='control="0"',
            stateful=False,
        )
    )
    with running(app):
        wait_until(lambda: len(kafka.admin.group_members(group, 30)) == 4, what="the members of both instances")
        produce(kafka, source)
        kafka.receive(target, PARTITIONS * KEYS)
        printed: list[str] = []

        def is_watched() -> bool:
            printed.append(capfd.readouterr().err)
            return "answers at" in "".join(printed)

        wait_until(is_watched, what="an answer of the other instance's control server")
        kill_tree(other)
        produce(kafka, source)
        kafka.receive(target, 2 * PARTITIONS * KEYS)
    assert "refuses connections: removing its members from the group" in capfd.readouterr().err


def test_standbys_without_a_control_server_are_warned_of(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    app = kafka.app(
        unique("group"),
        processing_mode="resident",
        spark_master="processes[1]",
        standby_replicas=1,
        commit_interval=0.5,
    )
    source, target = kafka.topic("in"), kafka.topic("out")
    app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(target))
    kafka.produce(source, [1])
    with running(app):
        kafka.receive(target, 1)
    assert caplog.text.count("standby_replicas=1 without a control server") == 1
    assert "after its session of 45 s" in caplog.text
