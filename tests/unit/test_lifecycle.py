"""The states of an application, and the wishes of its callers."""

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Offsets
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, RunnerError
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus, LifeCycle, RunControl
from streamrt.testing import TopologyTestDriver
from tests.support import replace_methods
from tests.unit.played import Played

S = ApplicationStatus
STATES = [each for each in S if each is not S.UNREACHABLE]
ALLOWED = {
    (S.STOPPED, S.STARTING),
    (S.STARTING, S.RESTORING),
    (S.STARTING, S.RUNNING),
    (S.STARTING, S.PAUSED),
    (S.STARTING, S.STOPPING),
    (S.RESTORING, S.RUNNING),
    (S.RESTORING, S.PAUSED),
    (S.RESTORING, S.STOPPING),
    (S.RUNNING, S.PAUSED),
    (S.RUNNING, S.STOPPING),
    (S.PAUSED, S.RUNNING),
    (S.PAUSED, S.STOPPING),
    (S.STOPPING, S.STOPPED),
    (S.STOPPING, S.FAILED),
    (S.FAILED, S.STARTING),
}
WAYS = {
    S.STOPPED: [],
    S.STARTING: [S.STARTING],
    S.RESTORING: [S.STARTING, S.RESTORING],
    S.RUNNING: [S.STARTING, S.RUNNING],
    S.PAUSED: [S.STARTING, S.PAUSED],
    S.STOPPING: [S.STARTING, S.STOPPING],
    S.FAILED: [S.STARTING, S.STOPPING, S.FAILED],
}


def status_of(life: LifeCycle) -> ApplicationStatus:
    return life.status


def in_state(status: ApplicationStatus) -> LifeCycle:
    life = LifeCycle()
    for each in WAYS[status]:
        life.move(each)
    assert life.status is status
    return life


@pytest.mark.rows("FE-028", "FE-029", "FE-030", "FE-031", "FE-032", "FE-034", "FE-035")
@pytest.mark.parametrize(("former", "later"), list(itertools.permutations(STATES, 2)))
def test_each_transition_is_allowed_or_refused(former: ApplicationStatus, later: ApplicationStatus) -> None:
    life = in_state(former)
    since = life.since
    if (former, later) in ALLOWED:
        life.move(later)
        assert life.status is later
        assert life.since >= since
    else:
        with pytest.raises(ApplicationStateError, match=f"is {former.value} and cannot become {later.value}"):
            life.move(later)
        assert life.status is former


@pytest.mark.parametrize("status", STATES)
def test_begin(status: ApplicationStatus) -> None:
    life = in_state(status)
    if status.is_active:
        with pytest.raises(ApplicationStateError, match=f"already running; it is {status.value}") as raised:
            life.begin()
        assert ("resume()" in str(raised.value)) == (status is S.PAUSED)
    else:
        life.begin()
        assert status_of(life) == S.STARTING


@pytest.mark.parametrize("status", [each for each in STATES if each.is_active])
def test_end(status: ApplicationStatus) -> None:
    for error in (None, RunnerError("gone")):
        life = in_state(status)
        life.end(error)
        assert life.status is (S.FAILED if error else S.STOPPED)
        assert life.error is error
        life.begin()
        assert life.error is None


WHILE_IT_RUNS: dict[str, Callable[[Played], object]] = {
    "be paused": lambda app: app.pause(timeout=0),
    "be resumed": lambda app: app.resume(timeout=0),
    "checkpoint": lambda app: app.checkpoint(timeout=0),
}
"""Calls that need an application that runs, by what the error says."""
WAITS: dict[str, Callable[[Played], object]] = {
    "wait_for": lambda app: app.wait_for(Offsets({("orders", 0): 1}), timeout=0),
    "wait_for_idle": lambda app: app.wait_for_idle(idle_interval=0.01, timeout=0.02, poll_interval=0.01),
    "wait_for_completion": lambda app: app.wait_for_completion(timeout=0),
}
WHILE_IT_IS_STOPPED: dict[str, Callable[[Played], object]] = {
    "start": Played.start,
    "run": Played.run,
    "reset": Played.reset,
}


@pytest.mark.rows("DK-107", "FE-016", "FE-019", "FE-020", "FE-023")
@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("call", [*WHILE_IT_RUNS, *WAITS, *WHILE_IT_IS_STOPPED])
def test_each_call_is_allowed_or_refused_in_each_state(call: str, status: ApplicationStatus) -> None:
    app = Played(control=None)
    for each in WAYS[status]:
        app._state.life.move(each)
    runs = status.is_active and status is not S.STOPPING
    if status is S.STOPPING:
        app._state.stop_request.set()
    if call in WHILE_IT_IS_STOPPED:
        if not status.is_active:
            return
        with pytest.raises(ApplicationStateError, match=f"{status.value}|runs"):
            WHILE_IT_IS_STOPPED[call](app)
    elif not runs:
        with pytest.raises(ApplicationStateError, match=f"the application is {status.value} and cannot"):
            {**WHILE_IT_RUNS, **WAITS}[call](app)
    elif call in WHILE_IT_RUNS:
        # It is allowed, and nothing fulfils the request here.
        with pytest.raises(ApplicationTimeoutError):
            WHILE_IT_RUNS[call](app)
    assert app.status is status


class Noting(Played):
    """Notes whether what was processed is committed at the end."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.discards: bool | None = None
        self._end = self._state.end
        replace_methods(self._state, end=self._note)

    def _note(self, error: BaseException | None) -> None:
        self.discards = self._state.discard.is_set()
        self._end(error)


@pytest.mark.rows("DK-106", "DK-107", "DK-108", "FE-021", "FE-022", "FE-023")
@pytest.mark.parametrize("status", [S.STARTING, S.RUNNING, S.PAUSED])
@pytest.mark.parametrize("aborts", [False, True])
def test_a_stop_ends_an_application_in_each_state(status: ApplicationStatus, aborts: bool) -> None:
    app = Noting(control=None)

    def start() -> None:
        # A start that is stopped says so.
        with contextlib.suppress(ApplicationStateError):
            app.start(paused=status is S.PAUSED, timeout=30)

    starter = threading.Thread(target=start)
    if status is S.STARTING:
        app.works.clear()
    starter.start()
    assert app._state.life.wait([status], 30)
    app.stop(fail=aborts, wait=True, timeout=30)
    starter.join(30)
    assert (app.status, app.desired_status, app.error) == (S.STOPPED, S.STOPPED, None)
    assert app.discards is aborts
    app.works.set()
    app.start(timeout=30)
    assert status_of(app._state.life) == S.RUNNING
    app.stop(wait=True, timeout=30)
    assert app.discards is False


def test_an_application_in_the_test_driver_is_not_running() -> None:
    app = Played(control=None)
    with TopologyTestDriver(app) as driver:
        for call in {**WHILE_IT_RUNS, **WAITS}.values():
            with pytest.raises(ApplicationStateError, match=r"is stopped and cannot .*: start\(\) it first"):
                call(app)
        driver.pipe("orders", {"total": 1})
        assert len(driver.read("large-orders")) == 1
    assert (app.status, app.desired_status) == (S.STOPPED, S.STOPPED)


@pytest.mark.rows("FE-017")
def test_wait() -> None:
    life = in_state(S.RUNNING)
    assert life.wait([S.RUNNING], 0)
    assert not life.wait([S.PAUSED], 0.01)
    mover = threading.Timer(0.05, lambda: life.move(S.PAUSED))
    mover.start()
    assert life.wait([S.PAUSED], 30)
    mover.join()


@pytest.fixture
def running() -> tuple[LifeCycle, RunControl]:
    life = LifeCycle()
    life.begin()
    control = RunControl(life, lambda: ["a", "b"])
    control.reset()
    control.works()
    assert status_of(life) == S.RUNNING
    return life, control


def test_a_pause_counts_once_it_is_fulfilled(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    before = control.run_request
    number = control.pause(["a", "b"])
    assert status_of(life) == S.RUNNING
    control.mark_fulfilled(before)
    assert not control.wait(number, 0)
    assert status_of(life) == S.RUNNING
    control.mark_fulfilled(control.run_request)
    assert control.wait(number, 0)
    assert status_of(life) == S.PAUSED
    control.resume(["a", "b"])
    assert status_of(life) == S.RUNNING


def test_a_pause_of_some_topics_does_not_pause_the_application(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    control.pause(["a"])
    control.mark_fulfilled(control.run_request)
    assert status_of(life) == S.RUNNING
    assert control.run_request.paused == {"a"}
    control.pause(["b"])
    control.mark_fulfilled(control.run_request)
    assert status_of(life) == S.PAUSED
    control.resume(["a"])
    assert status_of(life) == S.RUNNING


def test_an_older_wish_does_not_count(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    control.pause(["a", "b"])
    paused = control.run_request
    control.resume(["a", "b"])
    control.mark_fulfilled(paused)
    assert status_of(life) == S.RUNNING
    assert control.pending
    assert control.is_fulfilled(paused.number)
    control.mark_fulfilled(control.run_request)
    assert not control.pending


@pytest.mark.rows("FE-030", "FE-041")
def test_a_start_that_is_paused_and_one_that_restores() -> None:
    life = LifeCycle()
    life.begin()
    control = RunControl(life, lambda: ["a"])
    control.reset(["a"])
    control.restores()
    assert status_of(life) == S.RESTORING
    control.works()
    assert status_of(life) == S.RESTORING
    control.mark_fulfilled(control.run_request)
    assert status_of(life) == S.PAUSED
    control.restores()
    assert status_of(life) == S.PAUSED
    control.resume(["a"])
    assert status_of(life) == S.RUNNING


def test_wishes_end_with_the_run(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    number = control.commit()
    ender = threading.Timer(0.05, lambda: life.end(None))
    ender.start()
    assert not control.wait(number, None)
    ender.join()
    control.mark_fulfilled(control.run_request)
    assert status_of(life) == S.STOPPED


def test_an_application_without_dataframes_is_never_paused() -> None:
    life = LifeCycle()
    life.begin()
    control = RunControl(life, list)
    control.reset()
    control.works()
    control.mark_fulfilled(control.run_request)
    assert status_of(life) == S.RUNNING
