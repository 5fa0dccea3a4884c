"""Errors as JSON: what the server answers for an exception, and what the client raises for an answer."""

from collections.abc import Mapping
from typing import Any

from streamrt import errors
from streamrt.common.texts import one_line
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    CatalogError,
    ConfigurationError,
    ControlRefusedError,
    DatabaseNotFoundError,
    InvalidOperationError,
    KafkaBrokerUnavailableError,
    QueryError,
    QueryTimeoutError,
    ResultTooLargeError,
    SchemaError,
    SQLError,
    StaleTokenError,
    StateUnavailableError,
    StreamRTError,
    TableNotFoundError,
    code_of,
)
from streamrt.kafka import KafkaRequestError

__all__ = ["MEDIA_TYPE", "Problem", "error_of", "problem_of"]

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):  # noqa: N818 - an answer, of which the other side makes an error
    """An answer that is not a success.

    Args:
        status: the status of HTTP.
        error: name of the class of errors.
        message: what happened, in one sentence.
        advice: what to do.
        code: code of the error; None if it is not an error of StreamRT.
        retriable: whether the same request may succeed later.
        retry_after_s: seconds after which it may; None if that is not known.

    Attributes:
        place: line and column of a statement at which it is wrong; None for all others.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        advice: str,
        *,
        code: str | None = None,
        retriable: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message
        self.advice = advice
        self.code = code
        self.retriable = retriable
        self.retry_after_s = retry_after_s
        self.place: tuple[int, int] | None = None

    @classmethod
    def from_error(
        cls,
        error: Exception,
        status: int,
        advice: str,
        *,
        retriable: bool = False,
        retry_after_s: int | None = None,
    ) -> "Problem":
        """Return the answer with class, code and message of an exception.

        Args:
            error: the exception.
            status: see `Problem`.
            advice: see `Problem`.
            retriable: see `Problem`.
            retry_after_s: see `Problem`.
        """
        made = cls(
            status,
            type(error).__name__,
            str(error),
            advice,
            code=code_of(error),
            retriable=retriable,
            retry_after_s=retry_after_s,
        )
        if isinstance(error, SQLError) and error.line:
            made.place = error.line, error.column
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {
            "error": self.error,
            "code": self.code,
            "message": self.message,
            "advice": self.advice,
            "retriable": self.retriable,
            **({} if self.place is None else {"line": self.place[0], "column": self.place[1]}),
        }


def problem_of(error: BaseException) -> Problem:
    """Return the answer for an exception.

    Args:
        error: the exception.

    Example:
        >>> problem = problem_of(ApplicationStateError("the application is stopped and cannot be paused"))
        >>> problem.status, problem.error, problem.code, problem.retriable
        (409, 'ApplicationStateError', 'E106', False)
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, ApplicationStateError):
        return Problem.from_error(error, 409, "see GET /status, and send the request in a state that allows it")
    if isinstance(error, ControlRefusedError):
        return Problem.from_error(error, 403, "use another token, or name what this one may use: see system.tables")
    if isinstance(error, ApplicationTimeoutError):
        return Problem.from_error(error, 503, "wait longer, and see GET /status", retriable=True)
    if isinstance(error, StateUnavailableError):
        return Problem.from_error(error, 503, "ask again soon", retriable=True)
    if isinstance(error, StaleTokenError):
        return Problem.from_error(error, 410, "make another token, for example with POST /checkpoint")
    if isinstance(error, TableNotFoundError | DatabaseNotFoundError):
        return Problem.from_error(error, 404, "see system.tables for the tables")
    if isinstance(error, CatalogError):
        return Problem.from_error(error, 409, "see system.tables, and send a statement that fits what is there")
    if isinstance(error, QueryTimeoutError):
        return Problem.from_error(error, 504, "allow more time, or read less", retriable=True)
    if isinstance(error, QueryError | ResultTooLargeError):
        return Problem.from_error(error, 422, "correct the statement")
    if isinstance(error, ConfigurationError | SQLError | SchemaError):
        return Problem.from_error(error, 400, "correct the request")
    if isinstance(error, KafkaBrokerUnavailableError | KafkaRequestError):
        retriable = not isinstance(error, KafkaRequestError) or error.retriable
        return Problem.from_error(error, 503, "see whether the brokers can be reached", retriable=retriable)
    if isinstance(error, InvalidOperationError):
        return Problem.from_error(error, 422, "do what the message says")
    if isinstance(error, StreamRTError):
        return Problem.from_error(error, 503, "see GET /status and the log of the application")
    # Its text is not StreamRT's, so it may hold anything.
    name = type(error).__name__
    return Problem(500, name, f"an unexpected {name}", "see the log of the application")


def error_of(status: int, body: object) -> StreamRTError:
    """Return the exception for an answer.

    Args:
        status: the status of HTTP.
        body: the decoded answer.

    Example:
        >>> error_of(409, {"error": "ApplicationStateError", "message": "the application is stopped"})
        ApplicationStateError('the application is stopped')
    """
    document: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    name, message = str(document.get("error", "")), str(document.get("message", ""))
    if not message:
        return StreamRTError(f"the control address answered with status {status}, and no reason: is it an application?")
    if status in (401, 403):
        return ControlRefusedError(f"{message}: {document.get('advice', '')}".removesuffix(": "))
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    if isinstance(kind, type) and issubclass(kind, StreamRTError) and _has_only_a_text(kind):
        return kind(message)
    if isinstance(kind, type) and issubclass(kind, SQLError):
        line, column = (place if isinstance(place := document.get(word), int) else 0 for word in ("line", "column"))
        return kind(message.removeprefix(f"line {line}, column {column}: "), line, column)
    other = StreamRTError(f"{name}: {message}" if name else message)
    other.error_code = one_line(document.get("code") or other.error_code)
    return other


def _has_only_a_text(kind: type[StreamRTError]) -> bool:
    return not any("__init__" in vars(each) for each in kind.__mro__ if issubclass(each, StreamRTError))
