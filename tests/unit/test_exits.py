"""What a stop does to a start: work that waits is left alone, and a JVM that boots is killed."""

import subprocess
import sys
import threading

import pytest

from streamrt.runtime.driver.exits import StoppedError, unless_stopped
from streamrt.spark.gateway import Boot


def test_the_result_of_the_work_and_its_error_come_through() -> None:
    def fail() -> None:
        raise TimeoutError("no answer")

    stop = threading.Event()
    assert unless_stopped(stop, lambda: 7) == 7
    with pytest.raises(TimeoutError, match="no answer"):
        unless_stopped(stop, fail)


def test_a_stop_does_not_wait_for_the_work() -> None:
    stop, never = threading.Event(), threading.Event()

    def work() -> None:
        stop.set()
        never.wait(600)

    with pytest.raises(StoppedError):
        unless_stopped(stop, work)
    never.set()


def test_after_a_stop_no_work_is_begun() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        unless_stopped(stop, lambda: pytest.fail("it was begun"))


def process() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])


def test_a_process_that_boots_is_killed_before_and_after_it_is_known() -> None:
    boot = Boot()
    boot.begin(first := process())
    boot.give_up()
    assert first.wait(60) != 0
    boot.begin(second := process())
    assert second.wait(60) != 0


def test_a_process_that_has_booted_is_left_alone() -> None:
    boot = Boot()
    boot.begin(booted := process())
    boot.end()
    boot.give_up()
    assert booted.poll() is None
    booted.kill()
    booted.wait()


def test_a_signal_that_comes_inside_of_a_wait_for_the_stop_does_not_lock_the_process_up() -> None:
    # `Event.wait` holds this lock when it begins and when it ends; signals come there, too.
    code = (
        "import signal, threading\n"
        "from streamrt.runtime.driver.exits import stop_on_signals\n"
        "stop = threading.Event()\n"
        "with stop_on_signals(stop):\n"
        "    with stop._cond:\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "    assert stop.wait(60)\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout == "interrupted\n"
