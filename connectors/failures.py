"""Failures of requests to external systems, described without secrets and without values.

Messages of client libraries may hold both, so connectors translate their errors at once.
"""

from streamrt.errors import StreamRTError

__all__ = ["PassingError", "RequestError", "first_line", "named"]


class RequestError(StreamRTError):
    """A request failed. The text contains neither secrets nor values.

    Args:
        reason: what happened, as a clause.
        code: name that the system gives to the failure, if any.
    """

    def __init__(self, reason: str, *, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


class PassingError(RequestError):
    """A request failed, and the same request may succeed later.

    Args:
        reason: what happened, as a clause.
        retry_after: seconds to wait, if the system names them.
        code: name that the system gives to the failure, if any.
    """

    def __init__(self, reason: str, retry_after: float | None = None, *, code: str = "") -> None:
        super().__init__(reason, code=code)
        self.retry_after = retry_after


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its type if it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def named(error: BaseException) -> str:
    """Return type and first line of an error."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"
