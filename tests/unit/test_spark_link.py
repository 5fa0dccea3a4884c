"""The link between resident tasks and the driver: what arrives, who is let in, and what happens when an end is gone."""

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import RunnerError
from streamrt.models import OffsetRange, TopicPartition
from streamrt.runtime.link_messages import (
    Ack,
    BatchDone,
    Committed,
    Ended,
    Failed,
    FromTask,
    Joined,
    LinkClosed,
    ProgressUpdate,
    StartPositions,
    Stop,
    Welcome,
)
from streamrt.runtime.report import Failure, Output, Report
from streamrt.secret import conceal
from streamrt.slots.worker_link import DriverLink, LinkAddress, LinkListener, TaskLink
from tests.support import wait_until

PLACE = TopicPartition("in", 3)
SOON_S = 60.0


class Driver:
    """A driver that keeps what tasks tell it, and answers as a test wants it to."""

    def __init__(self, directory: Path | None, answer: Callable[[TaskLink, FromTask], None] | None = None) -> None:
        self.received: list[FromTask] = []
        self.links: list[TaskLink] = []
        self.changed = threading.Condition()
        self.ended = 0
        self.answer = answer
        self.listener = LinkListener(self.serve, directory=directory)

    def serve(self, link: TaskLink) -> None:
        self.links.append(link)
        for message in link.messages():
            with self.changed:
                self.received.append(message)
                self.changed.notify_all()
            if self.answer is not None:
                self.answer(link, message)
        with self.changed:
            self.ended += 1
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON_S)


Start = Callable[..., Driver]


@pytest.fixture(params=["unix", "tcp"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start drivers, at both kinds of addresses."""
    drivers: list[Driver] = []

    def run(answer: Callable[[TaskLink, FromTask], None] | None = None) -> Driver:
        drivers.append(Driver(tmp_path if request.param == "unix" else None, answer))
        return drivers[-1]

    yield run
    for driver in drivers:
        driver.listener.close()


def received(link: DriverLink, count: int) -> list[Any]:
    """Return the next messages of a link."""
    messages: list[Any] = []
    while len(messages) < count:
        more = link.receive(SOON_S)
        assert more
        messages += more
    return messages


def test_messages_arrive_in_order_on_both_ends(start: Start) -> None:
    def answer(link: TaskLink, message: FromTask) -> None:
        if isinstance(message, Joined):
            link.send(Welcome(outputs=5))
        elif isinstance(message, BatchDone):
            link.send(Ack(message.number))

    driver = start(answer)
    task = DriverLink(driver.listener.address)
    sent: list[FromTask] = [
        Joined(2, attempt=1),
        Committed({PLACE: 7}),
        *(BatchDone(n, Report(records=n)) for n in range(9)),
    ]
    for message in [*sent, Ended()]:
        task.send(message)
    assert received(task, 10) == [Welcome(outputs=5), *map(Ack, range(9))]
    assert task.receive() == []
    task.close()
    driver.wait_for(lambda: driver.ended == 1)
    assert driver.received == [*sent, Ended()]


def test_what_waits_is_woken_by_a_message_and_by_the_end(start: Start) -> None:
    driver = start()
    task = DriverLink(driver.listener.address)
    task.send(Joined(0))
    driver.wait_for(lambda: bool(driver.received))
    begin = StartPositions(1, {PLACE: 5}, {PLACE: 5}, frozenset({PLACE}))
    threading.Timer(0.02, driver.links[0].send, [begin]).start()
    assert received(task, 1) == [begin]
    threading.Timer(0.02, driver.listener.close).start()
    with pytest.raises(LinkClosed):
        task.receive(SOON_S)
    with pytest.raises(LinkClosed):
        task.send(Ended())


def test_what_the_driver_has_sent_before_it_went_is_returned_first(start: Start) -> None:
    def answer(link: TaskLink, _message: FromTask) -> None:
        link.send(Welcome())
        link.send(Stop())

    driver = start(answer)
    task = DriverLink(driver.listener.address)
    task.send(Joined(0))
    driver.wait_for(lambda: bool(driver.received))
    assert received(task, 1)[:1] == [Welcome()]
    driver.listener.close()
    with contextlib.suppress(LinkClosed):
        assert task.receive(SOON_S) == [Stop()]
    with pytest.raises(LinkClosed):
        task.receive(SOON_S)


def test_a_driver_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    for directory, kind, words in ((tmp_path, LinkClosed, "the driver is gone"), (None, RunnerError, "driver.host")):
        driver = Driver(directory)
        driver.listener.close()
        with pytest.raises(kind, match=words):
            DriverLink(driver.listener.address)


def test_large_reports_arrive_while_nobody_reads_the_answers(start: Start) -> None:
    def answer(link: TaskLink, message: FromTask) -> None:
        for number in range(2_000):
            link.send(StartPositions(number, {TopicPartition("t" * 200, 0): number}))

    driver = start(answer)
    task = DriverLink(driver.listener.address)
    report = Report(
        collected=[Output("x" * 5_000_000, None, 0, None, "in", 0, 1)], ranges={PLACE: OffsetRange(*PLACE, 0, 2)}
    )
    task.send(BatchDone(1, report))
    task.send(Ended())
    driver.wait_for(lambda: len(driver.received) == 2)
    assert driver.received == [BatchDone(1, report), Ended()]
    assert len(received(task, 4_000)) == 4_000


class StubbornError(Exception):
    """Can be pickled, but not be opened again."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Locked:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_what_cannot_travel_is_left_out_of_messages(start: Start) -> None:
    driver = start()
    task = DriverLink(driver.listener.address)
    failure = Failure("processing", PLACE, 5, "it failed", StubbornError(1, 2), "trace")
    good, bad = (Output(value, None, 0, None, "in", 3, 1) for value in ("good", Locked()))
    task.send(ProgressUpdate(Report(records=2, failure=failure, collected=[good, bad])))
    task.send(Failed(StubbornError(1, 2)))
    driver.wait_for(lambda: len(driver.received) == 2)
    seen, failed = driver.received
    assert seen == ProgressUpdate(Report(records=2, failure=replace(failure, cause=None), collected=[good]))
    assert isinstance(failed, Failed)
    assert str(failed.error) == "StubbornError: 1 and 2"


def test_errors_of_tasks_leave_their_process_without_secrets(start: Start) -> None:
    conceal("canary-31f0")
    driver = start()
    task = DriverLink(driver.listener.address)
    error = ConnectionError("login with canary-31f0")
    error.__cause__ = OSError(2, "no file", "/run/canary-31f0")
    task.send(Failed(error))
    task.send(Failed(FileNotFoundError(2, "no file", "/run/canary-31f0")))
    driver.wait_for(lambda: len(driver.received) == 2)
    first, second = (message.error for message in driver.received if isinstance(message, Failed))
    assert isinstance(first, ConnectionError)
    assert str(first) == "login with ***"
    assert first.__cause__ is None
    assert str(second) == "FileNotFoundError: [Errno 2] no file: '/run/***'"


def test_what_cannot_be_read_ends_the_application_with_a_reason(start: Start) -> None:
    driver = start()
    task = DriverLink(driver.listener.address)
    task._connection.send_bytes(b"no pickle")
    driver.wait_for(lambda: bool(driver.received))
    assert isinstance(driver.received[0], Failed)
    assert "cannot be read" in str(driver.received[0].error)


def test_whoever_does_not_know_the_key_is_not_let_in(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    driver = start()
    address = driver.listener.address
    with pytest.raises(RunnerError, match="is not the driver of this task"):
        DriverLink(LinkAddress(address.endpoint, b"another key"))
    stranger = Client(address.endpoint)
    stranger.recv_bytes()
    stranger.send_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    with contextlib.suppress(EOFError, OSError):
        # What comes is a refusal; nothing is opened.
        assert stranger.recv_bytes() == b"#FAILURE#"
    stranger.close()
    task = DriverLink(address)
    task.send(Joined(0))
    driver.wait_for(lambda: bool(driver.received))
    assert driver.received == [Joined(0)]
    assert len(driver.links) == 1
    assert any("rejected" in record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert address.key.hex() not in caplog.text


def test_one_that_never_answers_holds_up_nobody(start: Start) -> None:
    driver = start()
    silent = [Client(driver.listener.address.endpoint) for _ in range(5)]
    task = DriverLink(driver.listener.address)
    task.send(Joined(1))
    driver.wait_for(lambda: driver.received == [Joined(1)])
    for connection in silent:
        connection.close()


def test_a_task_that_never_reads_holds_up_nobody(start: Start) -> None:
    driver = start()
    task = DriverLink(driver.listener.address)
    task.send(Joined(0))
    driver.wait_for(lambda: bool(driver.links))
    link = driver.links[0]
    # No one reads here: the reader of the task cannot get at its list.
    with task._changed:
        for number in range(5_000):
            link.send(StartPositions(number, {TopicPartition("t" * 200, 0): number}))
        driver.listener.close()
    assert driver.ended == 1


def test_a_failure_of_who_serves_drops_that_connection_alone(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    def answer(_link: TaskLink, message: FromTask) -> None:
        if message == Joined(0):
            raise ValueError("a mistake")

    driver = start(answer)
    bad, good = DriverLink(driver.listener.address), DriverLink(driver.listener.address)
    bad.send(Joined(0))
    with pytest.raises(LinkClosed):
        bad.receive(SOON_S)
    good.send(Joined(1))
    driver.wait_for(lambda: Joined(1) in driver.received)
    # The log wakes no one.
    wait_until(lambda: "a mistake" in caplog.text, SOON_S)


def test_the_key_is_in_no_representation(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    address = driver.listener.address
    assert len(address.key) == 32
    for shown in (repr(address), str(address), address.words, repr(driver.listener)):
        assert address.key.hex() not in shown
        assert repr(address.key)[2:-1] not in shown
    assert LinkAddress.from_document(address.to_document()) == address
    assert LinkAddress.from_document({**address.to_document(), "endpoint": ["h", 5]}).endpoint == ("h", 5)
    driver.listener.close()


def test_a_path_that_is_too_long_for_a_socket_gives_a_port_of_this_machine(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    driver = Driver(directory)
    assert driver.listener.address.endpoint[0] == "127.0.0.1"
    DriverLink(driver.listener.address).close()
    driver.listener.close()


def test_an_address_that_cannot_be_used_is_named() -> None:
    with pytest.raises(RunnerError, match=r"cannot listen for its tasks at 192\.0\.2\.1: .*spark\.driver\.bindAddress"):
        LinkListener(lambda link: None, host="driver", bind="192.0.2.1")


def test_tcp_sends_small_messages_at_once() -> None:
    driver = Driver(None)
    task = DriverLink(driver.listener.address)
    with socket.socket(fileno=os.dup(task._connection.fileno())) as own:
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # No one asks whether the other end is alive while something is on its way to it.
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    driver.listener.close()


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET], ids=["unix", "tcp"])
def test_a_driver_that_is_frozen_is_not_taken_for_gone(
    family: socket.AddressFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A task that ends without an error is not started again.
    monkeypatch.setattr("streamrt.slots.worker_link._AUTHENTICATION_S", 0.05)
    with socket.socket(family) as frozen:
        frozen.bind(str(tmp_path / "frozen") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        frozen.listen()
        with pytest.raises(RunnerError, match=r"did not answer") as caught:
            DriverLink(LinkAddress(frozen.getsockname(), b"key"))
    assert "spark.driver.host" not in str(caught.value)


def test_what_is_no_driver_is_told_as_such(tmp_path: Path) -> None:
    with Listener(str(tmp_path / "other")) as other:

        def answer() -> None:
            with other.accept() as connection:
                connection.send_bytes(b"hello, this is something else")
                with contextlib.suppress(EOFError, OSError):
                    connection.recv_bytes()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(RunnerError, match="is not the driver of this task"):
            DriverLink(LinkAddress(str(tmp_path / "other"), b"key"))


def test_a_scan_of_ports_is_one_line_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    driver = start()
    endpoint = driver.listener.address.endpoint
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 12, b"\x00\x00"):
        caplog.clear()
        with socket.socket(socket.AF_UNIX if isinstance(endpoint, str) else socket.AF_INET) as scanner:
            scanner.connect(endpoint)
            scanner.sendall(words)
            # The driver may have closed the connection at the first wrong byte.
            with contextlib.suppress(OSError):
                scanner.shutdown(socket.SHUT_WR)
            wait_until(lambda: caplog.records, SOON_S)
        (record,) = caplog.records
        assert (record.levelno, record.exc_info) == (logging.WARNING, None)
        assert re.search(r"authentication failed: \S", record.getMessage())
    assert driver.links == []


def test_an_answer_that_cannot_be_read_is_the_end_of_the_link(start: Start) -> None:
    driver = start(lambda link, _message: link._connection.send_bytes(b"no pickle"))
    task = DriverLink(driver.listener.address)
    task.send(Joined(0))
    with pytest.raises(LinkClosed):
        task.receive(SOON_S)


def test_the_end_does_not_wait_for_each_of_many_who_are_busy(start: Start) -> None:
    busy = threading.Event()
    driver = start(lambda _link, _message: busy.wait(60.0))
    tasks = [DriverLink(driver.listener.address) for _ in range(8)]
    for number, task in enumerate(tasks):
        task.send(Joined(number))
    driver.wait_for(lambda: len(driver.received) == 8)
    waits: list[float | None] = []
    join = threading.Thread.join

    def wait(thread: threading.Thread, timeout: float | None = None) -> None:
        waits.append(timeout)
        join(thread, timeout)

    threads = [thread for thread in threading.enumerate() if thread.name == "streamrt-link-task"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "join", wait)
        driver.listener.close(0.2)
    assert len(waits) > 8
    assert sum(wait or 0 for wait in waits) < 8 * 0.2
    busy.set()
    for thread in threads:
        thread.join()
