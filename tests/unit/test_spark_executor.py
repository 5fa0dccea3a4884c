"""State that a Python worker keeps between Spark's tasks, where several applications take turns in it."""

import gc
import logging
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.common.logs import LogFormat
from streamrt.kafka import ConnectionConfig
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.task_executor import PRINTED, TaskExecutor
from streamrt.secret import Secret, collect_secrets
from streamrt.slots import worker_process
from streamrt.slots.worker_process import ClientSettings, HeldText, SpecReference, WorkerProcess
from streamrt.spark.workers.executor import work_of_worker
from tests.unit.apps import application


class _Value:
    """A broadcast variable as tasks see it."""

    def __init__(self, value: str) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker that keeps nothing yet, and does not keep what this process has."""
    # A collection would look at what all tests before have left.
    for function in ("collect", "freeze", "unfreeze", "set_threshold"):
        monkeypatch.setattr(gc, function, lambda *_: None)
    level = logging.getLogger("streamrt").level
    yield
    for process in list(WorkerProcess._kept.values()):
        process.forget()
    logging.getLogger("streamrt").setLevel(level)


def reference(
    name: str,
    loglevel: int | str | None = "INFO",
    secret: str | None = None,
    log_format: LogFormat = "text",
) -> SpecReference:
    app: Application = application(consumer_group=name)
    sdf = app.dataframe(app.topic("in"))
    if secret is not None:
        password = Secret(secret)
        sdf = sdf.apply(lambda value: (value, password.reveal()))
    sdf.to_topic(app.topic("out"))
    with collect_secrets() as collected:
        dumped = definition_of(app).task_spec().dumps()
    settings = ClientSettings(ConnectionConfig(bootstrap_servers="localhost:1"), name, {}, 0.0, secrets=collected)
    return SpecReference(name, dumped, HeldText(settings.to_json()), loglevel, Path, log_format)


def test_fault_15_applications_that_take_turns_keep_their_clients() -> None:
    first, second = reference("first"), reference("second")
    processes = [WorkerProcess.current(each) for each in (first, second)]
    for _ in range(3):
        assert [WorkerProcess.current(each) for each in (first, second)] == processes
    assert len({process.clients.worker for process in processes}) == 2


def test_fault_15_a_worker_keeps_a_few_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    close = KafkaTaskClients.close

    def note(clients: KafkaTaskClients) -> None:
        closed.append(clients)
        close(clients)

    monkeypatch.setattr(KafkaTaskClients, "close", note)
    references = [reference(f"app-{number}") for number in range(5)]
    processes = [WorkerProcess.current(each) for each in references[:4]]
    WorkerProcess.current(references[0])
    fifth = WorkerProcess.current(references[4])
    assert closed == [processes[1].clients]
    assert list(WorkerProcess._kept.values()) == [processes[2], processes[3], processes[0], fifth]
    assert WorkerProcess.current(references[1]) is not processes[1]


def test_fault_15_what_was_not_used_for_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ended, running = reference("ended"), reference("running")
    process = WorkerProcess.current(ended)
    for _ in range(3):
        now[0] += 30
        WorkerProcess.current(running)
    assert list(WorkerProcess._kept) == ["running"]
    assert WorkerProcess.current(ended) is not process


def test_fault_15_levels_secrets_and_lines_are_each_applications_own() -> None:
    loud = reference("loud", loglevel="DEBUG", secret="sesame")
    quiet = reference("quiet", loglevel="ERROR", secret="abracadabra")
    silent = reference("silent", loglevel=None)

    def print_level(tasks: TaskExecutor, context: BatchContext) -> Report:
        print(logging.getLevelName(logging.getLogger("streamrt").level))
        return Report()

    for _ in range(2):
        for each in (loud, quiet, silent):
            assert list(work_of_worker(each, BatchContext(), print_level)) == []
    for each, level in ((loud, "DEBUG"), (quiet, "ERROR"), (silent, "NOTSET")):
        assert WorkerProcess.current(each).tasks.drain_shown() == [(PRINTED, level)] * 2
    assert "sesame" not in repr(loud)
    assert WorkerProcess.current(loud).settings.secrets.keys().isdisjoint(WorkerProcess.current(quiet).settings.secrets)


def test_an_application_that_is_forgotten_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = reference("first"), reference("second")
    processes = [WorkerProcess.current(each) for each in (first, second)]
    processes[0].forget()
    processes[0].forget()
    assert WorkerProcess.current(second) is processes[1]
    assert WorkerProcess.current(first) is not processes[0]


def test_a_worker_may_open_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1_024, 4_096), (1_024, resource.RLIM_INFINITY), (100_000, 200_000), (4_096, 4_096)]
    for soft, hard in limits:
        found: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft, hard=hard: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _, wanted, found=found: found.append(wanted))
        worker_process._allow_files()
        expected = {1_024: [(4_096, hard)] if hard == 4_096 else [(65_536, hard)]}.get(soft, [])
        assert found == expected
