"""Requests of connectors that are repeated when their failure may pass."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity

from streamrt.connectors.failures import named
from streamrt.errors import ArgumentValueError, SinkBackpressureError

__all__ = ["Retries", "RetryCounts", "retry_counts"]

logger = logging.getLogger("streamrt.connectors")

T = TypeVar("T")


class RetryCounts:
    """Counts the repeated requests of this process, for metrics; safe to use from any thread.

    Example:
        >>> counts = RetryCounts()
        >>> counts.add(0.5)
        >>> counts.take(), counts.take()
        ((1, 0.5), (0, 0.0))
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number, self._seconds = 0, 0.0

    def add(self, wait_s: float) -> None:
        """Count an attempt that follows a failed one after a wait."""
        with self._lock:
            self._number += 1
            self._seconds += wait_s

    def take(self) -> tuple[int, float]:
        """Return the number of repeated requests and the seconds of waits before them, since the last call."""
        with self._lock:
            taken = self._number, self._seconds
            self._number, self._seconds = 0, 0.0
        return taken


retry_counts = RetryCounts()
"""Those of this process."""


@dataclass(frozen=True)
class Retries:
    """How a connector repeats a request whose failure may pass: a broken connection, a busy server.

    A sink repeats it for a short time only, since its task waits meanwhile. Then it asks the application to pause the
    partition, so that others continue.

    Args:
        attempts: maximum number of attempts.
        first_wait_s: seconds before the second attempt; each further wait is twice as long, with up to a quarter of
            randomness.
        longest_wait_s: maximum of one wait.
        time_limit_s: seconds after which no further attempt begins.
        retry_after_s: seconds for which a sink asks to pause its partition after the last attempt.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> answers = iter([ConnectionError("busy"), "done"])
        >>> def request():
        ...     answer = next(answers)
        ...     if isinstance(answer, Exception):
        ...         raise answer
        ...     return answer
        >>> Retries(first_wait_s=0).call(request, passing=(ConnectionError,), what="the request")
        'done'
    """

    attempts: int = 4
    first_wait_s: float = 0.1
    longest_wait_s: float = 2.0
    time_limit_s: float = 10.0
    retry_after_s: float = 5.0

    def __post_init__(self) -> None:
        if (
            self.attempts < 1
            or self.first_wait_s < 0
            or min(self.longest_wait_s, self.time_limit_s, self.retry_after_s) < 0
        ):
            raise ArgumentValueError(f"{self} is out of range: give at least 1 attempt, and waits of 0 seconds or more")

    def call(
        self,
        request: Callable[[], T],
        *,
        passing: tuple[type[Exception], ...] | Callable[[BaseException], bool],
        what: str,
        before_retry: Callable[[], object] | None = None,
        words: Callable[[BaseException], str] | None = None,
    ) -> T:
        """Call a function until it succeeds.

        Args:
            request: the request; it must be safe to repeat.
            passing: the errors that may pass, as classes or as a function that recognizes them. Others propagate at
                once.
            what: the request in words for the log, such as "the insert into table orders".
            before_retry: called before each further attempt, for example to connect again. Its errors count as those of
                the attempt.
            words: returns the reason of an error for the log, without secrets; by default its class and first line.

        Returns:
            The result of the request.

        Raises:
            Exception: the error of the last attempt.
        """
        may_pass = (
            tenacity.retry_if_exception_type(passing)
            if isinstance(passing, tuple)
            else tenacity.retry_if_exception(passing)
        )
        waits = tenacity.wait_exponential(multiplier=self.first_wait_s, max=self.longest_wait_s)
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.attempts) | tenacity.stop_after_delay(self.time_limit_s),
            wait=waits + tenacity.wait_random(0, self.first_wait_s / 4),
            retry=may_pass,
            before_sleep=lambda state: _log_retry(what, state, words or named),
            reraise=True,
        )
        for attempt in retrying:
            with attempt:
                if attempt.retry_state.attempt_number > 1 and before_retry is not None:
                    before_retry()
                return request()
        raise AssertionError("tenacity ends with a result or an error")

    def write(
        self,
        request: Callable[[], T],
        *,
        passing: tuple[type[Exception], ...] | Callable[[BaseException], bool],
        what: str,
        before_retry: Callable[[], object] | None = None,
        words: Callable[[BaseException], str] | None = None,
    ) -> T:
        """Call a function of a sink until it succeeds; after the last attempt, ask to pause the partition.

        Args:
            request: see `call`.
            passing: see `call`.
            what: see `call`.
            before_retry: see `call`.
            words: see `call`.

        Returns:
            The result of the request.

        Raises:
            SinkBackpressureError: if the last attempt failed with an error that may pass.
            Exception: an error that does not pass.
        """
        try:
            return self.call(request, passing=passing, what=what, before_retry=before_retry, words=words)
        except Exception as error:
            recognized = isinstance(error, passing) if isinstance(passing, tuple) else passing(error)
            if not recognized:
                raise
            reason = f"{what} failed, also when it was repeated: {(words or named)(error)}"
            raise SinkBackpressureError(self.retry_after_s, reason) from error


def _log_retry(what: str, state: tenacity.RetryCallState, words: Callable[[BaseException], str]) -> None:
    error = None if state.outcome is None else state.outcome.exception()
    wait = 0.0 if state.next_action is None else state.next_action.sleep
    reason = "unknown" if error is None else words(error)
    retry_counts.add(wait)
    logger.info("%s failed (%s); attempt %d follows in %.1f s", what, reason, state.attempt_number + 1, wait)
