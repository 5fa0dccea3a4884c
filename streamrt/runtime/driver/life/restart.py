"""Restarts of an application after failures that may pass."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from streamrt.arguments import checked, type_name
from streamrt.config import require_amounts
from streamrt.errors import (
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    JavaNotFoundError,
    OffsetOutOfRangeError,
    StaleTokenError,
    StateError,
    StoreCorruptedError,
    StoreLockedError,
    TopicConfigurationError,
    TopicNotFoundError,
    UnpicklableOperatorError,
    reference_of,
)
from streamrt.kafka import KafkaRequestError
from streamrt.secret import masked_text

__all__ = ["STEADY_S", "Failures", "RestartPolicy", "may_pass", "require_policy"]

logger = logging.getLogger("streamrt")

STEADY_S = 300.0
"""Seconds that an application must have run for its earlier failures not to count any more."""

# The same program would fail with them again, until somebody changes the program, the topics or the state.
_LASTING = (
    ConfigurationError,
    InvalidOperationError,
    JavaNotFoundError,
    OffsetOutOfRangeError,
    StaleTokenError,
    StateError,
    TopicConfigurationError,
    TopicNotFoundError,
    UnpicklableOperatorError,
)
_PASSING = (StoreCorruptedError, StoreLockedError)


@dataclass(frozen=True)
class RestartPolicy:
    """How an application is started again after a failure, in the same process.

    Failures that another start would only repeat end it at once: wrong settings, topics that do not fit, state that
    cannot be used. After five minutes of running, earlier failures do not count any more.

    Args:
        max_failures: failures in a row after which it is started again; with one more, it ends. -1 for no limit.
        initial_delay: seconds until the first restart.
        delay_increment: seconds by which each further delay is longer.
        max_delay: maximum seconds until a restart.

    Raises:
        ArgumentTypeError: if a parameter is not a number.
        ArgumentValueError: if a parameter is negative, or the first delay is above the maximum.

    Example:
        >>> policy = RestartPolicy(initial_delay=1.0, delay_increment=10.0, max_delay=15.0)
        >>> [policy.delay(failures) for failures in (1, 2, 3)]
        [1.0, 11.0, 15.0]
    """

    max_failures: int = -1
    initial_delay: float = 0.0
    delay_increment: float = 0.0
    max_delay: float = 60.0

    def __post_init__(self) -> None:
        checked("RestartPolicy(max_failures=...)", self.max_failures, int, "an int")
        if self.max_failures < -1:
            raise ArgumentValueError(
                f"RestartPolicy(max_failures=...) must be -1, for no limit, or more, got {self.max_failures}"
            )
        delays = {"initial_delay": self.initial_delay, "delay_increment": self.delay_increment}
        require_amounts("RestartPolicy", **delays, max_delay=self.max_delay)
        if self.initial_delay > self.max_delay:
            raise ArgumentValueError(
                f"RestartPolicy(initial_delay={self.initial_delay:g}) is above max_delay={self.max_delay:g}"
            )

    def delay(self, failures: int) -> float:
        """Return the seconds until the restart.

        Args:
            failures: number of failures in a row, 1 or more.
        """
        return min(self.initial_delay + (failures - 1) * self.delay_increment, self.max_delay)


class Failures:
    """Counts the failures of an application, and decides about each.

    Args:
        policy: the policy; None for no restart.

    Example:
        >>> failures = Failures(RestartPolicy(max_failures=1))
        >>> failures.delay_after(OSError("disk"), 0.0), failures.delay_after(OSError("disk"), 0.0)
        (0.0, None)
    """

    def __init__(self, policy: RestartPolicy | None) -> None:
        self._policy = policy
        self._count = 0

    def delay_after(self, error: BaseException, steady_s: float) -> float | None:
        """Return the seconds until the restart after a failure; None if there is none.

        Args:
            error: the failure.
            steady_s: seconds that the application had been running.
        """
        policy = self._policy
        if policy is None or not isinstance(error, Exception):
            return None
        shown = masked_text(error)
        if not may_pass(error):
            logger.error(
                "the application has failed (%s); it is not restarted, because a restart would not help%s",
                shown,
                reference_of(error, "; "),
            )
            return None
        self._count = 1 if steady_s >= STEADY_S else self._count + 1
        if 0 <= policy.max_failures < self._count:
            logger.error(
                "the application has failed (%s); this is failure %d in a row, and it is not restarted after more than %d "
                "(max_failures)%s",
                shown,
                self._count,
                policy.max_failures,
                reference_of(error, "; "),
            )
            return None
        delay = policy.delay(self._count)
        at = datetime.now(timezone.utc) + timedelta(seconds=delay)
        limit = "" if policy.max_failures < 0 else f" of {policy.max_failures}"
        logger.error(
            "the application has failed (%s); restart %d%s follows in %g s, at %s",
            shown,
            self._count,
            limit,
            delay,
            at.isoformat(timespec="seconds"),
        )
        return delay


def may_pass(error: Exception) -> bool:
    """Return whether the same program may run without this failure later.

    Example:
        >>> may_pass(OSError("disk full")), may_pass(TopicNotFoundError("no topic"))
        (True, False)
    """
    if isinstance(error, KafkaRequestError):
        return error.retriable
    return isinstance(error, _PASSING) or not isinstance(error, _LASTING)


def require_policy(method: str, restart: RestartPolicy | None) -> None:
    """Refuse a parameter that is no `RestartPolicy`.

    Raises:
        ArgumentTypeError: if it is something else.
    """
    checked(f"{method}(restart=...)", restart, RestartPolicy, "a RestartPolicy", optional=True, show=type_name)
