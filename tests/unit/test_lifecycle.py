"""The states of an application, and the wishes of its callers."""

import itertools
import threading

import pytest

from streamrt.errors import ApplicationStateError, RunnerError
from streamrt.runtime.driver.lifecycle import ApplicationStatus, LifeCycle, RunControl

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
    control.reset(paused=False)
    control.works()
    assert status_of(life) == S.RUNNING
    return life, control


def test_a_pause_counts_once_it_is_fulfilled(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    before = control.wish
    number = control.pause(["a", "b"])
    assert status_of(life) == S.RUNNING
    control.fulfilled(before)
    assert not control.wait(number, 0)
    assert status_of(life) == S.RUNNING
    control.fulfilled(control.wish)
    assert control.wait(number, 0)
    assert status_of(life) == S.PAUSED
    control.resume(["a", "b"])
    assert status_of(life) == S.RUNNING


def test_a_pause_of_some_topics_does_not_pause_the_application(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    control.pause(["a"])
    control.fulfilled(control.wish)
    assert status_of(life) == S.RUNNING
    assert control.wish.paused == {"a"}
    control.pause(["b"])
    control.fulfilled(control.wish)
    assert status_of(life) == S.PAUSED
    control.resume(["a"])
    assert status_of(life) == S.RUNNING


def test_an_older_wish_does_not_count(running: tuple[LifeCycle, RunControl]) -> None:
    life, control = running
    control.pause(["a", "b"])
    paused = control.wish
    control.resume(["a", "b"])
    control.fulfilled(paused)
    assert status_of(life) == S.RUNNING
    assert control.pending
    assert control.is_fulfilled(paused.number)
    control.fulfilled(control.wish)
    assert not control.pending


def test_a_start_that_is_paused_and_one_that_restores() -> None:
    life = LifeCycle()
    life.begin()
    control = RunControl(life, lambda: ["a"])
    control.reset(paused=True)
    control.restores()
    assert status_of(life) == S.RESTORING
    control.works()
    assert status_of(life) == S.RESTORING
    control.fulfilled(control.wish)
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
    control.fulfilled(control.wish)
    assert status_of(life) == S.STOPPED


def test_an_application_without_dataframes_is_never_paused() -> None:
    life = LifeCycle()
    life.begin()
    control = RunControl(life, list)
    control.reset(paused=False)
    control.works()
    control.fulfilled(control.wish)
    assert status_of(life) == S.RUNNING
