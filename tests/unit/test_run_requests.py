"""Two wishes of callers at once: stop, restart, pause, resume, checkpoint and SIGTERM, in each order."""

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from streamrt import Application, ApplicationStatus, RestartPolicy
from streamrt.errors import ApplicationStateError, TransactionError
from streamrt.runtime.driver.life.exits import stop_on_signals
from tests.support import replace_methods, wait_until

S = ApplicationStatus
SOON_S = 30.0


class Slow(Application):
    """An application that reads two topics, and whose runs end when a test lets them."""

    def __init__(self) -> None:
        super().__init__("unused.invalid:9092", consumer_group="group", loglevel=None)
        self.dataframe(self.topic("a"))
        self.dataframe(self.topic("b"))
        self.dataframe(self.topic("c"))
        self.attempts = 0
        self.ending = threading.Event()
        self.may_end = threading.Event()
        self.fails: BaseException | None = None
        self.discards: list[bool] = []
        replace_methods(self._execution, process=self._play)
        replace_methods(self._state, committed=lambda: None)

    def _play(self, timeout: float, count: int, *, collect: bool) -> list[Any]:
        self.attempts += 1
        self._state.control.works()
        while not self._state.stop.wait(0.002):
            if self.fails is not None:
                error, self.fails = self.fails, None
                self._state.stop.set()
                raise error
            self._state.control.mark_fulfilled(self._state.control.run_request)
        self.ending.set()
        assert self.may_end.wait(SOON_S)
        return []


def sigterm(app: Slow) -> None:
    """Have the signal come in the main thread, as while it waits there."""
    number = app._state.stop_request.number
    with stop_on_signals(app._state.stop_request):
        signal.raise_signal(signal.SIGTERM)
    wait_until(lambda: app._state.stop_request.number > number, SOON_S, "the signal")


WISHES: dict[str, Callable[[Slow], Any]] = {
    "stop": Slow.stop,
    "restart": Slow.restart,
    "pause": lambda app: app.pause("a", timeout=SOON_S),
    "resume": lambda app: app.resume("b", timeout=SOON_S),
    "checkpoint": lambda app: app.checkpoint(timeout=SOON_S).status,
    "SIGTERM": sigterm,
}
STOPS = {"stop", "SIGTERM"}


class Asking:
    """A request that is asked for in a thread, but for the signal."""

    def __init__(self, app: Slow, name: str) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self._run_request, self._app = WISHES[name], app
        self._thread = threading.Thread(target=self._ask, daemon=True)
        if name == "SIGTERM":
            self._ask()
        else:
            self._thread.start()

    def end(self) -> "Asking":
        """Wait until it is answered."""
        if self._thread.ident is not None:
            self._thread.join(SOON_S)
            assert not self._thread.is_alive()
        return self

    def _ask(self) -> None:
        try:
            self.result = self._run_request(self._app)
        except Exception as error:
            self.error = error


@pytest.fixture
def app() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.may_end.set()
    slow.stop(wait=True, timeout=SOON_S)


def outcome(first: str, second: str) -> str:
    """Return what becomes of the run: of a stop and a restart the later one counts, and a signal in any case."""
    both = [first, second]
    if "SIGTERM" in both or (second == "stop" and "restart" in both) or ("stop" in both and "restart" not in both):
        return "stopped"
    return "restarted" if "restart" in both else "goes on"


@pytest.mark.parametrize("policy", [None, RestartPolicy(max_failures=3)], ids=["", "policy"])
@pytest.mark.parametrize(("first", "second"), list(product(WISHES, WISHES)))
def test_a5_of_two_wishes_none_is_lost(app: Slow, first: str, second: str, policy: RestartPolicy | None) -> None:
    app.start(timeout=SOON_S, restart=policy)
    app.pause("b", timeout=SOON_S)
    asked = [Asking(app, first)]
    if first in STOPS | {"restart"}:
        assert app.ending.wait(SOON_S)
    else:
        asked[0].end()
    asked.append(Asking(app, second))
    if second in STOPS | {"restart"}:
        assert app.ending.wait(SOON_S)
    app.may_end.set()
    for each in asked:
        each.end()
    expected = outcome(first, second)
    if expected == "stopped":
        assert app.wait(SOON_S)
        assert (app.status, app.desired_status, app.attempts) == (S.STOPPED, S.STOPPED, 1)
        for name, each in zip((first, second), asked, strict=True):
            if name == "restart":
                assert isinstance(each.error, ApplicationStateError), "who wanted a restart is told"
        return
    restarts = [first, second].count("restart")
    wait_until(lambda: app.attempts == 1 + restarts, SOON_S, "the next run")
    wait_until(lambda: app.status is S.RUNNING, SOON_S, "the end of the start")
    paused = {"b"} | ({"a"} if "pause" in (first, second) else set())
    paused -= {"b"} if "resume" in (first, second) else set()
    assert app.paused_topics == paused
    assert [each.error for each in asked] == [None, None]
    assert all(
        each.result == "success" for each, name in zip(asked, (first, second), strict=True) if name == "checkpoint"
    )


def test_a5_the_policy_outlives_a_restart(app: Slow) -> None:
    app.may_end.set()
    app.start(timeout=SOON_S, restart=RestartPolicy(max_failures=1))
    app.restart(SOON_S)
    app.fails = TransactionError("gone")
    wait_until(lambda: app.attempts == 3, SOON_S, "the restart after the failure")
    wait_until(lambda: app.status is S.RUNNING, SOON_S, "the end of the start")
    app.fails = TransactionError("gone again")
    with pytest.raises(TransactionError, match="gone again"):
        app.wait(SOON_S)
    assert app.attempts == 3


def test_a5_a_restart_while_the_policy_waits_comes_at_once(app: Slow) -> None:
    app.may_end.set()
    app.start(timeout=SOON_S, restart=RestartPolicy(initial_delay=60))
    app.pause("a", timeout=SOON_S)
    app.fails = TransactionError("gone")
    wait_until(lambda: app.status is S.FAILED, SOON_S, "the failure")
    app.restart(SOON_S)
    assert (app.status, app.attempts, app.paused_topics) == (S.RUNNING, 2, frozenset("a"))


def test_a5_a_stop_while_the_policy_waits_beats_a_restart_before_it(app: Slow) -> None:
    app.may_end.set()
    app.start(timeout=SOON_S, restart=RestartPolicy(initial_delay=60))
    app.fails = TransactionError("gone")
    wait_until(lambda: app.status is S.FAILED, SOON_S, "the failure")
    app.stop(wait=True, timeout=SOON_S)
    assert (app.status, app.desired_status, app.attempts) == (S.FAILED, S.STOPPED, 1)
    app.restart(SOON_S)
    assert (app.status, app.attempts, app.paused_topics) == (S.RUNNING, 2, frozenset())


def test_a5_many_stops_and_restarts_end_as_the_last_one_wants(app: Slow) -> None:
    app.may_end.set()
    app.start(timeout=SOON_S)
    for _ in range(20):
        before = app._state.stop_request.number
        asking = [Asking(app, "restart") for _ in range(3)]
        app.stop(wait=True, timeout=SOON_S)
        refused = [isinstance(each.end().error, ApplicationStateError) for each in asking]
        # A thread may have been so slow that its restart comes after the stop.
        assert app.status is S.STOPPED or not all(refused)
        assert app._state.stop_request.number == before + 1
        if app.status is S.STOPPED:
            app.start(timeout=SOON_S)
    app.stop(wait=True, timeout=SOON_S)
    assert app.status is S.STOPPED
