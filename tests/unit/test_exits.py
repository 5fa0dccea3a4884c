"""Effects of a stop on a start: work that waits is left as it is, and a JVM that boots is killed."""

import subprocess
import sys
import threading

import pytest

from streamrt.runtime.driver.life.exits import SignalSafeEvent, StoppedError, StopRequest, unless_stopped
from streamrt.spark.sessions.gateway import Boot


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
    # `Event.wait` holds this lock when it begins and when it ends; signals also come there.
    code = (
        "import signal, threading\n"
        "from streamrt.runtime.driver.life.exits import stop_on_signals\n"
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


def test_handlers_of_users_may_stop_an_application_whatever_the_main_thread_does() -> None:
    # The main thread holds the locks of all three events when the signal comes, as inside of `wait` and `set`.
    code = (
        "import contextlib, signal\n"
        "from streamrt import Application\n"
        "app = Application('unused.invalid:9092', consumer_group='handler', loglevel=None)\n"
        "signal.signal(signal.SIGTERM, lambda *_: app.stop(fail=True))\n"
        "events = app._state.stop, app._state.stop_request, app._state.discard\n"
        "with contextlib.ExitStack() as held:\n"
        "    for event in events:\n"
        "        held.enter_context(event._cond)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    assert all(event.is_set() and event.wait(60) for event in events)\n"
        "print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout == "stopped\n"


def test_signals_that_come_while_the_main_thread_waits_again_and_again_end_each_wait() -> None:
    # Signals come some microseconds later each time, so that many come where the thread holds the lock.
    code = (
        "import signal\n"
        "from streamrt.runtime.driver.life.exits import SignalSafeEvent\n"
        "event = SignalSafeEvent()\n"
        "signal.signal(signal.SIGALRM, lambda *_: event.set())\n"
        "for each in range(2_000):\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.000001 * (1 + each % 100))\n"
        # Python itself may handle a signal only after a wait that begins at the same moment.
        "    while not event.wait(0.01):\n"
        "        pass\n"
        "    event.clear()\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=120, check=True, capture_output=True, text=True)
    assert done.stdout == "done\n"


def test_an_event_that_the_main_thread_sets_wakes_other_threads_and_can_be_taken_back() -> None:
    run = SignalSafeEvent()
    request = StopRequest(run)
    woken = [threading.Event(), threading.Event()]

    def wait(event: threading.Event, then: threading.Event) -> None:
        if event.wait(60):
            then.set()

    for event, then in zip((run, request), woken, strict=True):
        threading.Thread(target=wait, args=(event, then)).start()
    request.set()
    assert all(each.wait(60) for each in woken)
    request.clear()
    assert not any((request.is_set(), run.is_set(), request.wait(0)))
    run.set()
    assert not request.is_set()
    request.set()
    request.renew()
    assert run.is_set()


def test_a_set_that_was_taken_back_before_its_thread_came_to_it_ends_no_later_wait() -> None:
    """A restart by the main thread also stopped the next run, where that thread was late."""
    event = SignalSafeEvent()
    event.set()
    event.clear()
    threading.Event.set(event)
    assert not event.wait(0.01)
    event.set()
    assert event.wait()
