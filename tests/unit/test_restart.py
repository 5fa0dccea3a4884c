"""Restarts after failures, by a real application whose runs do as the test says."""

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, RestartPolicy
from streamrt.errors import (
    ApplicationStateError,
    ArgumentTypeError,
    ArgumentValueError,
    ChangelogError,
    ConfigurationError,
    NoProgressError,
    ProcessingError,
    RunnerError,
    StaleTokenError,
    StoreLockedError,
    StreamRTError,
    TransactionError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.runtime.driver.life import restart as module
from streamrt.runtime.driver.life.exits import StoppedError
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.restart import Failures, may_pass
from tests.support import replace_methods, wait_until

S = ApplicationStatus


class Scripted(Application):
    """An application whose n-th attempt runs the n-th function, and the last one again and again."""

    def __init__(self, *attempts: Callable[["Scripted"], None]) -> None:
        super().__init__("unused.invalid:9092", consumer_group="group", loglevel=None)
        self.dataframe(self.topic("in"))
        self._script = attempts
        self.attempts = 0
        self.paused_at: list[bool] = []
        replace_methods(self._execution, process=self._play)

    def _play(self, timeout: float, count: int, *, collect: bool) -> list[Any]:
        self.attempts += 1
        self.paused_at.append(self._state.control.all_paused)
        self._script[min(self.attempts, len(self._script)) - 1](self)
        return []

    def work(self) -> None:
        """Process nothing until the application is stopped."""
        self._state.control.works()
        while not self._state.stop.wait(0.01):
            self._state.control.mark_fulfilled(self._state.control.run_request)


def fail(error: BaseException) -> Callable[[Scripted], None]:
    def attempt(app: Scripted) -> None:
        # As a run does that has failed: no task goes on.
        app._state.stop.set()
        raise error

    return attempt


def now(app: Application) -> ApplicationStatus:
    return app.status


def wanted(app: Application) -> ApplicationStatus:
    return app.desired_status


@pytest.mark.rows("PF-A3", "PF-A5", "PF-A14", "PF-L5")
@pytest.mark.rows("DK-105")
def test_it_is_restarted_until_it_works(caplog: pytest.LogCaptureFixture) -> None:
    app = Scripted(fail(TransactionError("gone")), fail(OSError("disk full")), Scripted.work)
    with caplog.at_level(logging.ERROR, "streamrt"):
        app.start(timeout=30, restart=RestartPolicy())
    assert now(app) == S.RUNNING
    assert app.attempts == 3
    first, second = (record.getMessage() for record in caplog.records)
    assert "has failed (TransactionError: gone); restart 1 follows in 0 s, at 20" in first
    assert "has failed (OSError: disk full); restart 2 follows in 0 s" in second
    app.stop(wait=True, timeout=30)
    assert now(app) == S.STOPPED
    assert app.wait()


def test_without_a_policy_it_fails() -> None:
    app = Scripted(fail(TransactionError("gone")), Scripted.work)
    with pytest.raises(TransactionError):
        app.run()
    assert now(app) == S.FAILED
    assert app.attempts == 1


@pytest.mark.rows("PF-A14", "PF-L5")
@pytest.mark.rows("DK-105")
def test_it_gives_up_after_failures_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    app = Scripted(fail(RunnerError("no")))
    with caplog.at_level(logging.ERROR, "streamrt"), pytest.raises(RunnerError):
        app.run(restart=RestartPolicy(max_failures=2))
    assert app.attempts == 3
    assert "restart 2 of 2 follows" in caplog.text
    assert "failure 3 in a row, and it is not restarted after more than 2" in caplog.text
    assert now(app) == S.FAILED
    assert isinstance(app.error, RunnerError)


def test_a_failure_that_lasts_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    app = Scripted(fail(ConfigurationError("wrong")))
    with caplog.at_level(logging.ERROR, "streamrt"), pytest.raises(ConfigurationError):
        app.run(restart=RestartPolicy())
    assert app.attempts == 1
    assert "it is not restarted, because a restart would not help" in caplog.text
    interrupted = Scripted(fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(restart=RestartPolicy())
    assert interrupted.attempts == 1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ProcessingError("x"), True),
        (TransactionError("x"), True),
        (StoreLockedError("x"), True),
        (NoProgressError("x"), True),
        (KafkaRequestError("x", retriable=True), True),
        (ValueError("x"), True),
        (KafkaRequestError("x"), False),
        (ChangelogError("x"), False),
        # Another start would go on at offsets of the former topic.
        (StaleTokenError("x"), False),
        (ArgumentTypeError("x"), False),
        (ApplicationStateError("x"), False),
    ],
)
def test_which_failures_pass(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes


def test_earlier_failures_are_forgotten_after_a_while() -> None:
    failures = Failures(RestartPolicy(max_failures=2, initial_delay=1, delay_increment=1))
    error = RunnerError("no")
    assert [failures.delay_after(error, 0) for _ in range(3)] == [1, 2, None]
    assert failures.delay_after(error, module.STEADY_S) == 1
    assert [failures.delay_after(error, module.STEADY_S - 1) for _ in range(2)] == [2, None]
    assert Failures(None).delay_after(error, 0) is None


def test_the_time_that_counts_begins_when_the_start_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEADY_S", 0.05)

    def work_and_fail(app: Scripted) -> None:
        app._state.control.works()
        wait_until(lambda: app._state.life.steady_s > 0.06)
        raise RunnerError("late")

    app = Scripted(*[work_and_fail] * 3, fail(ConfigurationError("end")))
    with pytest.raises(ConfigurationError):
        app.run(restart=RestartPolicy(max_failures=1))
    assert app.attempts == 4


def test_a_stop_before_the_restart() -> None:
    app = Scripted(fail(RunnerError("no")))
    ended: list[BaseException] = []

    def run() -> None:
        try:
            app.run(restart=RestartPolicy(initial_delay=60))
        except StreamRTError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: app.status is S.FAILED)
    assert wanted(app) == S.RUNNING
    for again in (app.start, app.run):
        with pytest.raises(ApplicationStateError, match=r"will be restarted: stop\(\) it before you start it"):
            again()
    app.stop(wait=True)
    thread.join(30)
    assert not thread.is_alive()
    assert wanted(app) == S.STOPPED
    assert app.attempts == 1
    assert [str(error) for error in ended] == ["no"]
    # The stop was for that run.
    app._script = (fail(StoppedError()),)
    app.run()
    assert app.attempts == 2
    assert now(app) == S.STOPPED


def test_what_was_paused_stays_paused() -> None:
    def fail_when_paused(app: Scripted) -> None:
        app._state.control.works()
        while not app._state.control.all_paused:
            app._state.stop.wait(0.01)
        raise RunnerError("no")

    app = Scripted(fail_when_paused, Scripted.work)
    app.start(timeout=30, restart=RestartPolicy())
    app._state.control.pause(["in"])
    wait_until(lambda: app.status is S.PAUSED)
    assert app.paused_at == [False, True]
    assert app.paused_topics == {"in"}
    app.restart(timeout=30)
    assert now(app) == S.PAUSED
    app.stop(wait=True)


def test_a_signal_during_the_start_stops_it() -> None:
    main, before = threading.main_thread().ident, signal.getsignal(signal.SIGINT)
    assert main is not None

    def interrupted(app: Scripted) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        app._state.stop.wait()

    app = Scripted(interrupted)
    app.start(timeout=30)
    assert now(app) == S.STOPPED
    assert app.wait(0)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"max_failures": -2}, ArgumentValueError),
        ({"max_failures": 1.0}, ArgumentTypeError),
        ({"max_failures": True}, ArgumentTypeError),
        ({"initial_delay": -1}, ArgumentValueError),
        ({"delay_increment": "1"}, ArgumentTypeError),
        ({"initial_delay": 61}, ArgumentValueError),
    ],
)
def test_wrong_policies(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match="RestartPolicy"):
        RestartPolicy(**arguments)


def test_runs_that_take_no_policy() -> None:
    app = Scripted(fail(RunnerError("no")))
    for timeout, count in ((1, 0), (0, 1)):
        with pytest.raises(ArgumentValueError, match="only without timeout and count"):
            app.run(timeout=timeout, count=count, restart=RestartPolicy())
    with pytest.raises(ArgumentTypeError, match="must be a RestartPolicy, got int"):
        app.run(restart=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="must be a RestartPolicy, got int"):
        app.start(restart=3)  # type: ignore[arg-type]
    assert app.attempts == 0
