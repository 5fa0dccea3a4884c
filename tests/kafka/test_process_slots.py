"""Resident tasks in processes of this machine, without Spark: what they do, and what happens when processes die."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamrt import Application, State
from streamrt.errors import ProcessingError, RunnerError
from streamrt.slots.fork_client import prepare_fork_server
from tests.support import GROUP_PROTOCOLS, LONG, Kafka, Program, program_environment, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GUARANTEES = ["at-least-once", "exactly-once"]
SERVER = "streamrt fork server"


def app_without_spark(kafka: Kafka, group: str | None = None, **settings: Any) -> Application:
    return kafka.app(group, spark_master="processes[2]", processing_mode="resident", **settings)


def count(value: str, state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


def counting(kafka: Kafka, group: str, source: str, target: str, guarantee: str, **settings: Any) -> Application:
    app = app_without_spark(kafka, group, processing_guarantee=guarantee, **settings)
    app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(target))
    return app


def produce(kafka: Kafka, topic: str, records: int) -> None:
    for partition, key in enumerate((b"a", b"b")):
        kafka.produce(topic, ["x"] * records, key=key, partition=partition)


def counted(kafka: Kafka, topic: str, records: int) -> Counter[tuple[Any, Any]]:
    return Counter((one.key, one.value) for one in kafka.receive(topic, records))


def expected(last: int) -> Counter[tuple[Any, Any]]:
    return Counter((key, b"%d" % n) for key in (b"a", b"b") for n in range(1, last + 1))


def servers_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the fork servers of a process."""
    found = []
    for child in process.children():
        try:
            if SERVER in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def tasks_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the processes of a process's slots."""
    return [task for server in servers_of(process) for task in server.children()]


@pytest.mark.parametrize("guarantee", GUARANTEES if LONG else ["at-least-once"])
def test_state_is_kept_from_run_to_run(kafka: Kafka, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    for run in (1, 2):
        produce(kafka, source, 3)
        app = counting(kafka, group, source, target, guarantee)
        app.run(timeout=0.5)
        assert counted(kafka, target, 6 * run) == expected(3 * run)
        assert servers_of(psutil.Process()) == []


@pytest.mark.parametrize("variable", ["ANSWER", "MALLOC_ANSWER"])
def test_a_prepared_fork_server_has_the_environment_of_the_run(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    source, target = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, ["x"])
    prepare_fork_server()
    # It has its name once it runs Python.
    wait_until(lambda: servers_of(psutil.Process()) != [])
    [prepared] = servers_of(psutil.Process())
    monkeypatch.setenv(variable, "7")
    app = app_without_spark(kafka)
    sdf = app.dataframe(app.topic(source)).apply(lambda _: [os.environ[variable], os.getppid()])
    sdf.to_topic(app.topic(target))
    app.run(count=1)
    [record] = kafka.receive(target, 1)
    answer, server = json.loads(record.value or b"")
    assert answer == "7"
    # What counts only when a process starts needs another one.
    assert (server == prepared.pid) is (variable == "ANSWER")
    assert servers_of(psutil.Process()) == []


@pytest.mark.parametrize("guarantee", GUARANTEES if LONG else ["exactly-once"])
def test_a_slot_whose_process_is_killed_gets_another_one(
    kafka: Kafka, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    app = counting(kafka, group, source, target, guarantee)
    with running(app):
        for kill in (1, 2):
            produce(kafka, source, 50)
            counted(kafka, target, 100 * kill)
            before = tasks_of(psutil.Process())
            assert len(before) == 2
            before[kill - 1].kill()
        produce(kafka, source, 50)
        if guarantee == "exactly-once":
            assert counted(kafka, target, 300) == expected(150)
        else:
            # Records since the last commit are delivered again, and may count again.
            wait_until(lambda: set(counted(kafka, target, kafka.end(target))) >= set(expected(150)), what="all counts")
    assert "starting the task of slot 0 again: a process that runs tasks ended unexpectedly" in caplog.text


def test_the_application_outlives_the_fork_server(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    app = counting(kafka, group, source, target, "exactly-once")
    with running(app):
        produce(kafka, source, 50)
        counted(kafka, target, 100)
        (server,) = servers_of(psutil.Process())
        orphans = server.children()
        server.kill()
        produce(kafka, source, 50)
        assert counted(kafka, target, 200) == expected(100)
        _, alive = psutil.wait_procs(orphans, timeout=60)
        assert alive == []
    assert "gave the tasks up (the process that starts those of tasks ended unexpectedly" in caplog.text


@pytest.mark.parametrize("code", [0, 3])
def test_functions_that_end_their_process_end_the_application(kafka: Kafka, code: int) -> None:
    source = kafka.topic("in")
    kafka.produce(source, ["x"])
    app = app_without_spark(kafka)
    app.dataframe(app.topic(source)).apply(lambda value: os._exit(code))
    with pytest.raises(
        RunnerError, match=r"processes\[2\] gave the tasks up 3 times without progress: a process that runs"
    ):
        app.run()


def test_an_error_of_a_function_has_its_cause(kafka: Kafka) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [0])
    app = app_without_spark(kafka)
    app.dataframe(app.topic(source)).apply(lambda value: 1 / value)
    with pytest.raises(ProcessingError, match="offset 0") as raised:
        app.run()
    assert "ZeroDivisionError" in str(raised.value)


def test_two_applications_run_in_one_process(kafka: Kafka) -> None:
    source, targets = kafka.topic("in", 2), [kafka.topic("out", 2) for _ in range(2)]
    apps = [counting(kafka, unique("group"), source, target, "exactly-once") for target in targets]
    with running(apps[0]), running(apps[1]):
        produce(kafka, source, 10)
        for target in targets:
            assert counted(kafka, target, 20) == expected(10)


PROGRAM = """
import os, subprocess, sys
from streamrt import Application

OF_SPARK = {{"pyspark", "py4j", "pyarrow", "streamrt.spark"}}

def act(value):
    print("printed by", value)
    sys.stderr.write("written by %s\\n" % value)
    return {{"value": value, "spark": sorted(OF_SPARK & sys.modules.keys())}}

app = Application({address!r}, consumer_group={group!r}, auto_offset_reset="earliest", commit_interval=0.5,
                  spark_master="processes[2]", processing_mode="resident", state_dir={state_dir!r})
app.dataframe(app.topic({source!r})).apply(act).to_topic(app.topic({target!r}))
app.run()
print(sorted(OF_SPARK & sys.modules.keys()))
"""


def start_program(kafka: Kafka, program: Callable[..., Program], group: str | None = None) -> tuple[Program, str, str]:
    source, target = kafka.topic("in", 2), kafka.topic("out")
    text = PROGRAM.format(
        address=kafka.address,
        group=group or unique("group"),
        state_dir=str(kafka.state_dir),
        source=source,
        target=target,
    )
    # Neither Java nor Python's modules of Spark are needed.
    return program(text, JAVA_HOME="/nowhere"), source, target


def test_a_program_needs_no_java_and_its_functions_print(kafka: Kafka, program: Callable[..., Program]) -> None:
    started, source, target = start_program(kafka, program)
    kafka.produce(source, ["x"])
    (received,) = kafka.receive(target, 1)
    assert received.value == b'{"value":"x","spark":[]}'
    started.wait_for("printed by x")
    started.wait_for("written by x")
    assert "printed by x\n" in started.out
    assert "written by x\n" in started.err
    assert started.end()[0] == 0
    assert started.out[-1] == "[]\n"


def test_a_successor_takes_over_the_members_of_a_program(kafka: Kafka, program: Callable[..., Program]) -> None:
    """It has one slot less, whose member would keep its partition for a whole session."""
    group, source, target = unique("group"), kafka.topic("in", 2), kafka.topic("out")
    text = PROGRAM.format(
        address=kafka.address, group=group, state_dir=str(kafka.state_dir), source=source, target=target
    )
    text = text.replace(
        "commit_interval=0.5,", 'commit_interval=0.5, consumer_extra_config={"session.timeout.ms": 300_000},'
    )
    expects = "from streamrt.runs.succession import expect_successor\nexpect_successor()\n"
    first = program(expects + text)
    kafka.produce(source, ["x"])
    kafka.receive(target, 1)
    assert first.end()[0] == 0
    left = {member.member_id for member in kafka.admin.group_members(group, 30)}
    assert len(left) == 2
    program(text.replace("processes[2]", "processes[1]"))
    for partition in range(2):
        kafka.produce(source, ["y"], partition=partition)
    assert len(kafka.receive(target, 3)) == 3
    (member,) = kafka.admin.group_members(group, 30)
    assert len(member.partitions) == 2


def test_a_program_that_is_interrupted_ends_with_its_processes(kafka: Kafka, program: Callable[..., Program]) -> None:
    started, source, target = start_program(kafka, program)
    kafka.produce(source, ["x"])
    kafka.receive(target, 1)
    children = psutil.Process(started.process.pid).children(recursive=True)
    assert len(children) == 3
    started.end(signal.SIGINT)
    assert all(not child.is_running() for child in children)


def test_a_task_that_hangs_ends_with_the_fork_server(kafka: Kafka, tmp_path: Path) -> None:
    """Its function would never see that the link to the driver has ended."""
    source, begun = kafka.topic("in"), tmp_path / "begun"
    kafka.produce(source, ["x"])

    def hang(value: str) -> None:
        begun.touch()
        threading.Event().wait(3_600)

    app = app_without_spark(kafka)
    app.dataframe(app.topic(source)).update(hang)
    with running(app):
        wait_until(begun.exists, what="the function")
        (server,) = servers_of(psutil.Process())
        orphans = server.children()
        server.kill()
        _, alive = psutil.wait_procs(orphans, timeout=60)
        assert alive == []


def test_a_program_with_closed_streams_ends_well(kafka: Kafka, tmp_path: Path) -> None:
    """As under cron, or as a daemon."""
    source, target = kafka.topic("in", 2), kafka.topic("out")
    path = tmp_path / "program.py"
    path.write_text(
        PROGRAM.format(
            address=kafka.address, group=unique("group"), state_dir=str(kafka.state_dir), source=source, target=target
        ).replace('sys.stderr.write("written by %s\\n" % value)', "")
    )
    process = subprocess.Popen(
        ["sh", "-c", f"exec {sys.executable} -W ignore {path} >&- 2>&-"], env=program_environment({})
    )
    try:
        kafka.produce(source, ["x"])
        assert len(kafka.receive(target, 1)) == 1
        process.terminate()
        assert process.wait(300) == 0
    finally:
        process.kill()
        process.wait()


def test_processes_end_when_their_application_is_killed(kafka: Kafka, program: Callable[..., Program]) -> None:
    started, source, target = start_program(kafka, program)
    kafka.produce(source, ["x"])
    kafka.receive(target, 1)
    children = psutil.Process(started.process.pid).children(recursive=True)
    started.process.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


@pytest.mark.parametrize("group_protocol", GROUP_PROTOCOLS, indirect=True)
@pytest.mark.usefixtures("group_protocol")
def test_partitions_of_an_instance_that_stops_are_free_at_once(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    """Its members are static: they would stay in the group for 45 s."""
    group = unique("group")
    started, source, target = start_program(kafka, program, group)
    kafka.produce(source, ["x"])
    kafka.receive(target, 1)
    app = app_without_spark(kafka, group, state_dir=tmp_path / "other")
    app.dataframe(app.topic(source)).to_topic(app.topic(target))
    with running(app):
        wait_until(lambda: len(kafka.admin.group_members(group, 30)) == 4, what="the members of both instances")
        assert started.end()[0] == 0
        members = kafka.admin.group_members(group, 30)
        assert len(members) == 2
        produce(kafka, source, 5)
        kafka.receive(target, 11)


def test_a_function_that_does_not_return_is_interrupted(kafka: Kafka) -> None:
    source, target = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, ["hang", "go"])
    app = app_without_spark(kafka, processing_timeout=1.0, on_processing_error=lambda error, row, logger: True)

    def wait(value: str) -> str:
        if value == "hang":
            threading.Event().wait()
        return value

    app.dataframe(app.topic(source)).apply(wait).to_topic(app.topic(target))
    with running(app):
        assert [one.value for one in kafka.receive(target, 1)] == [b'"go"']
