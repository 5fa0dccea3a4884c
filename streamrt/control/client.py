"""A client for the control server of an application, with the words of `Application`."""

import math
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from streamrt.config import require_amounts
from streamrt.control.client_state import StateClient, name_of
from streamrt.control.connection import LONGEST_WAIT_S, LOOK_S, checked_wait_s, decoded
from streamrt.control.problems import error_of
from streamrt.errors import ApplicationTimeoutError, ControlUnavailableError, StreamRTError
from streamrt.kafka.token import Offsets
from streamrt.runtime.driver.checkpoints import Checkpoint
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.progress import ProgressSnapshot
from streamrt.runtime.driver.stats import ApplicationStats
from streamrt.runtime.driver.waits import Deadline
from streamrt.topics import Topic
from streamrt.topology.diagram import TopologyData

__all__ = ["Client"]

_WAIT_S = 30.0
"""Seconds that one of the requests of `wait` takes at most: proxies drop those that take a minute."""
_DROPPED = (502, 503, 504)


class Client(StateClient):
    """A running application, seen from another process. Safe to use from several threads.

    Nothing is kept here: each call and each property asks the application.

    Args:
        url: the control address: `Application.location`.
        token: its `control_token`: a text, a `Secret`, or a function that returns it. None takes that of the environment
            variable `STREAMRT_CONTROL_TOKEN`, if it is set.
        timeout: seconds to wait for an answer, beyond the time that a call waits for the application.

    Raises:
        ConfigurationError: if the URL or the token cannot be used, or httpx is not installed.

    Example:
        ```python
        with Client("http://127.0.0.1:7070") as app:
            app.pause()
            print(app.checkpoint().offsets)
            app.resume()
        ```
    """

    # -- Reading -----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application; UNREACHABLE if it does not answer."""
        try:
            return ApplicationStatus(self.describe_status()["status"])
        except ControlUnavailableError:
            return ApplicationStatus.UNREACHABLE

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that callers have asked for last.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return ApplicationStatus(self.describe_status()["desired_status"])

    @property
    def status_since(self) -> datetime:
        """When the current state began, in UTC.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return datetime.fromisoformat(self.describe_status()["since"])

    @property
    def paused_topics(self) -> frozenset[str]:
        """The input topics that are not read.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return frozenset(self.describe_status()["paused_topics"])

    @property
    def error(self) -> StreamRTError | None:
        """The error that has ended the application, with the same text; None if there is none.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        found = self.describe_status()["error"]
        return None if found is None else error_of(500, found)

    def describe_status(self) -> dict[str, Any]:
        """Return what `/status` answers: the state and the wanted state, since when, the error, and what is paused.

        Raises:
            ControlUnavailableError: if the application does not answer.
            ControlRefusedError: if it wants another token.
        """
        return self._document(self._ask("GET", "/status"))

    def ready(self) -> tuple[bool, list[str]]:
        """Return whether the application works, and the reasons if it does not.

        Raises:
            ControlUnavailableError: if it does not answer.
        """
        answer = self._send("GET", "/ready", {}, 0.0)
        found = self._document(answer)
        if "ready" not in found:
            raise error_of(answer.status_code, found)
        return bool(found["ready"]), list(found.get("reasons", ()))

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the application, by name; secrets are masked.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return self._document(self._ask("GET", "/config"))

    @property
    def topology(self) -> TopologyData:
        """The operators, streams and stores of the application, as data; `as_mermaid()` draws it.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return TopologyData.of_dict(self._document(self._ask("GET", "/topology", {"format": "json"})))

    def describe(self) -> str:
        """Return the topology as text, as `Application.describe` does.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        text: str = self._ask("GET", "/topology", {"format": "text"}).text
        return text

    def progress(self) -> ProgressSnapshot:
        """Return the counters of the current or last run.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return ProgressSnapshot.of_dict(self._document(self._ask("GET", "/progress")))

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        text: str = self._ask("GET", "/metrics").text
        return text

    # -- Changing ----------------------------------------------------------------------------------------------------

    def pause(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Stop reading, and return when everything that was read is processed or put back, and committed.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the pause still comes.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._change(_path_of("topics", name_of(topic), "pause"), "paused", timeout)

    def resume(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Read again after a pause. Without a pause, nothing happens.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._change(_path_of("topics", name_of(topic), "resume"), "resumed", timeout)

    def pause_source(self, name: str) -> None:
        """Stop a source after it has flushed.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._ask("POST", _path_of("sources", name, "pause"), wait_s=LONGEST_WAIT_S)

    def resume_source(self, name: str) -> None:
        """Start a source again that was paused.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._ask("POST", _path_of("sources", name, "resume"))

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Stop the application at the next boundary. An application that has ended is left as it is.

        Args:
            fail: do not commit; the next run processes all records since the last commit again.
            wait: wait until it has ended, or does not answer any more because its process has ended.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationTimeoutError: if it has not ended in time. It is still being stopped.
            ControlUnavailableError: if it does not answer.
        """
        if timeout is not None:
            require_amounts("stop", timeout=timeout)
        self._ask("POST", "/stop", {"fail": str(fail).lower()})
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED, ApplicationStatus.UNREACHABLE)
        while wait and self.status not in ended:
            if time.monotonic() >= deadline:
                raise ApplicationTimeoutError(
                    f"the application has not stopped within {timeout:g} s; it is still stopping"
                )
            time.sleep(LOOK_S)

    def restart(self, timeout: float | None = None) -> None:
        """Stop the application, with a commit, and start it again, paused if it was paused.

        Args:
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the restart goes on.

        Raises:
            ApplicationStateError: if it was not started by `start()`.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the start.
        """
        self._change("/restart", "restarted", timeout)

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """Commit everything that was processed, now instead of at the next interval.

        Args:
            wait: wait for the commit.
            timeout: seconds to wait, an hour at most; None for an hour.

        Returns:
            The checkpoint.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        wait_s = checked_wait_s(timeout) if wait else 0.0
        checkpoint = _checkpoint_of(self._document(self._ask("POST", "/checkpoint", {"wait": f"{wait_s:g}"}, wait_s)))
        if wait and checkpoint.status == "in progress":
            raise ApplicationTimeoutError(f"checkpoint {checkpoint.number} is not done after {wait_s:g} s: it goes on")
        return checkpoint

    def checkpoint_status(self, number: int) -> Checkpoint:
        """Return what is known about a checkpoint of the current or last run.

        Args:
            number: its number.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return _checkpoint_of(self._document(self._ask("GET", f"/checkpoints/{int(number)}")))

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """Return the state of the application, its counters, and the lag of all partitions that it reads.

        Args:
            timeout: seconds that the application waits for each answer of Kafka.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        wait_s = checked_wait_s(timeout)
        # It asks Kafka several times.
        return ApplicationStats.of_dict(self._document(self._ask("GET", "/stats", {"wait": f"{wait_s:g}"}, 5 * wait_s)))

    # -- Waiting -----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the application has ended. A restart is no end.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            Whether it has ended, or does not answer any more, because its process has ended.

        Raises:
            ControlUnavailableError: if it does not answer at the call.
            StreamRTError: the error that ended it.
        """
        deadline = Deadline(timeout)
        if timeout is not None:
            require_amounts("wait", timeout=timeout)
        wait_s = 0.0
        while True:
            try:
                found = self._end(wait_s)
            except StreamRTError:
                # The first request does not wait. A server that closes during a later one may answer anything.
                time.sleep(LOOK_S)
                if not wait_s or self.status is not ApplicationStatus.UNREACHABLE:
                    raise
                return True
            if found is None:
                time.sleep(LOOK_S)
                if self.status is ApplicationStatus.UNREACHABLE:
                    return True
                found = {"error": None, "ended": False}
            if found["error"] is not None:
                raise error_of(500, found["error"])
            if found["ended"] or deadline.over:
                return bool(found["ended"])
            wait_s = max(LOOK_S, min(deadline.left, _WAIT_S))

    def _end(self, wait_s: float) -> dict[str, Any] | None:
        """Return what `/end` answers; None if a proxy drops a request that waits, or the server has no room for it now."""
        try:
            answer = self._send("GET", "/end", {"wait": f"{wait_s:g}"}, wait_s)
        except ControlUnavailableError:
            if not wait_s:
                raise
            return None
        if wait_s and answer.status_code in _DROPPED:
            return None
        if not answer.is_success:
            raise error_of(answer.status_code, decoded(answer.text))
        return self._document(answer)

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """Wait until all records are processed and no new ones have come for some time; see `Application.wait_for_idle`.

        Args:
            idle_interval: seconds without a new record.
            timeout: seconds to wait, an hour at most; None for an hour.
            poll_interval: seconds between two looks.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if an interval is longer than the timeout, or `poll_interval` longer than `idle_interval`.
            ControlUnavailableError: if the application does not answer.
        """
        require_amounts("wait_for_idle", idle_interval=idle_interval, poll_interval=poll_interval)
        self._wait_at("/idle", {"idle_interval": f"{idle_interval:g}", "poll_interval": f"{poll_interval:g}"}, timeout)

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until the sources have ended, and everything is processed; see `Application.wait_for_completion`.

        Args:
            until: process up to these offsets instead, and do not wait for the end of sources.
            stop: stop the application then, with a commit, and wait until it has ended.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if the application does not answer.
            StaleTokenError: if a topic was deleted since `until` was made.
        """
        deadline = Deadline(timeout)
        self._wait_at("/completion", {"sources": "true"} if until is None else {"token": str(until)}, timeout)
        if stop:
            self.stop(wait=True, timeout=None if timeout is None else deadline.left)

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """Wait until all records below a token are processed and durable; see `Application.wait_for`.

        Args:
            token: the next offset of input partitions, or its text.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if the application does not answer.
            StaleTokenError: if a topic was deleted since the token was made.
        """
        self._wait_at("/completion", {"token": str(token)}, timeout)

    def _wait_at(self, path: str, query: Mapping[str, str], timeout: float | None) -> None:
        wait_s = checked_wait_s(timeout)
        found = self._document(self._ask("GET", path, {**query, "wait": f"{wait_s:g}"}, wait_s))
        if not found["done"]:
            raise ApplicationTimeoutError(found["reason"])

    def _change(self, path: str, done: str, timeout: float | None) -> None:
        wait_s = checked_wait_s(timeout)
        answer = self._document(self._ask("POST", path, {"wait": f"{wait_s:g}"}, wait_s))
        if not answer["done"]:
            raise ApplicationTimeoutError(
                f"the application is not {done} after {wait_s:g} s; it is {answer['status']}, and will be {done} later"
            )


def _path_of(kind: str, name: str | None, verb: str) -> str:
    return f"/{verb}" if name is None else f"/{kind}/{quote(name, safe='')}/{verb}"


def _checkpoint_of(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(found["number"], found["status"], Offsets.parse(found["token"]), found["error"])
