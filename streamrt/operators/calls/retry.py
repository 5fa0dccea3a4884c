"""How an asynchronous call is repeated."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from streamrt.arguments import checked, refuse_async, type_name
from streamrt.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Retry"]

_LONGEST_S = 86_400.0

Passing = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


@dataclass(frozen=True)
class Retry:
    """How `apply_async` repeats a call that failed. The waits are in the event loop: other calls go on meanwhile.

    Args:
        attempts: maximum number of attempts.
        backoff: seconds before the second attempt.
        multiplier: each further wait is so many times as long as the one before; 1 for equal waits.
        longest: maximum of one wait in seconds; None for no limit.
        on_error: the errors that may pass: a class, several classes, or a function that recognizes them. Others fail at
            once.
        on_result: function of the result that returns whether to try again; None accepts each result. The result of the
            last attempt is accepted.

    Raises:
        ArgumentTypeError: if an argument is of a wrong type.
        ArgumentValueError: if a number is out of range.

    Example:
        >>> Retry(3, backoff=0.2, multiplier=2.0, on_error=ConnectionError).attempts
        3
    """

    attempts: int
    backoff: float = 0.0
    multiplier: float = 1.0
    longest: float | None = None
    on_error: Passing = Exception
    on_result: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        checked("Retry(attempts=...)", self.attempts, int, "an int", show=type_name)
        numbers = (self.backoff, self.multiplier, 0.0 if self.longest is None else self.longest)
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise ArgumentTypeError("Retry(backoff=..., multiplier=..., longest=...) must be numbers")
        if self.attempts < 1 or not 0 <= self.backoff <= _LONGEST_S or self.multiplier < 1 or numbers[2] < 0:
            raise ArgumentValueError(
                f"Retry(attempts={self.attempts}, backoff={self.backoff}, multiplier={self.multiplier}, "
                f"longest={self.longest}) is out of range: give at least 1 attempt, a multiplier of 1 or more, and waits "
                "of 0 seconds or more, up to a day"
            )
        classes = self.on_error if isinstance(self.on_error, tuple) else (self.on_error,)
        if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes) and not (
            callable(self.on_error) and not isinstance(self.on_error, type)
        ):
            raise ArgumentTypeError(
                f"Retry(on_error=...) must be a class of exceptions, a tuple of them, or a function, got {self.on_error!r}"
            )
        if self.on_result is not None and not callable(self.on_result):
            raise ArgumentTypeError(f"Retry(on_result=...) must be a function, got {self.on_result!r}")
        for name in ("on_error", "on_result"):
            refuse_async(f"Retry({name}=...)", getattr(self, name))

    def wrap(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return an asynchronous function that repeats a function."""
        # Imported on use: it imports asyncio, which few applications need.
        import tenacity

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=tenacity.wait_exponential(
                multiplier=self.backoff, exp_base=self.multiplier, max=min(_LONGEST_S, self.longest or _LONGEST_S)
            )
            if self.longest != 0
            else tenacity.wait_none(),
            retry=tenacity.retry_if_exception(self._may_pass)
            if self.on_result is None
            else tenacity.retry_if_exception(self._may_pass) | tenacity.retry_if_result(self.on_result),
            # The outcome of the last attempt, as if it were the only one.
            retry_error_callback=lambda state: None if state.outcome is None else state.outcome.result(),
        )

        async def call(*arguments: Any) -> Any:
            # An object of tenacity keeps the state of one call.
            return await retrying.copy()(function, *arguments)

        return call

    def _may_pass(self, error: BaseException) -> bool:
        if not isinstance(error, Exception):
            return False
        if isinstance(self.on_error, type | tuple):
            return isinstance(error, self.on_error)
        return self.on_error(error)
