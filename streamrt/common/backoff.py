"""Pauses between the attempts of a request that may succeed later."""

import time

__all__ = ["Backoff"]


class Backoff:
    """Sleep between attempts, until a deadline.

    The caller decides which errors are worth another attempt, and raises the last one.

    Args:
        pause_s: seconds of the first pause.
        deadline: value of `time.monotonic()` from which on no attempt begins.
        longest_s: maximum of a pause: each is twice as long as the one before it, up to this. By default, all have the
            same length.
        attempts: maximum number of attempts; None for no maximum.

    Example:
        >>> backoff = Backoff(0.001, time.monotonic() + 60, attempts=3)
        >>> [backoff.pause() for _ in range(3)]
        [True, True, False]
    """

    def __init__(
        self, pause_s: float, deadline: float, *, longest_s: float | None = None, attempts: int | None = None
    ) -> None:
        self._pause_s = pause_s
        self._deadline = deadline
        self._longest_s = pause_s if longest_s is None else longest_s
        self._attempts = attempts

    def pause(self) -> bool:
        """Sleep until the next attempt. Return False at once if no further attempt may begin."""
        if self._attempts is not None:
            self._attempts -= 1
            if self._attempts <= 0:
                return False
        if time.monotonic() + self._pause_s >= self._deadline:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return True
