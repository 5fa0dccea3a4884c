"""Exceptions of StreamRT.

Every message says what happened, to which topic, partition, offset or operator, and what to do about it.
All classes derive from `StreamRTError`, so one `except` clause catches all errors of the library. An uncaught one ends a
program with one sentence, and a line that leads to its paragraph (`end_readably`).

The paragraphs are in `streamrt/cli/diagnosis/error_codes.md`, by the names of the classes.
"""

import difflib
import functools
import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import ParamSpec, TypeVar

__all__ = [
    "ApplicationStateError",
    "ApplicationTimeoutError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CatalogConflictError",
    "CatalogError",
    "ChangelogError",
    "ColumnTypeError",
    "ConfigurationError",
    "ConsumerError",
    "ControlRefusedError",
    "ControlUnavailableError",
    "DatabaseExistsError",
    "DatabaseNotEmptyError",
    "DatabaseNotFoundError",
    "DeliveryTimeoutError",
    "IgnoreMessage",
    "InvalidOperationError",
    "JarError",
    "JavaNotFoundError",
    "KafkaBrokerUnavailableError",
    "KafkaStartError",
    "KeyDeserializationError",
    "KeySerializationError",
    "LookupTimeoutError",
    "LookupUnavailableError",
    "MissingColumnError",
    "NoProgressError",
    "OffsetOutOfRangeError",
    "ProcessingError",
    "ProcessingTimeoutError",
    "ProducerError",
    "QueryError",
    "QueryTimeoutError",
    "ResultTooLargeError",
    "RunnerError",
    "SQLAnalysisError",
    "SQLError",
    "SQLNotSupportedError",
    "SQLSyntaxError",
    "SavepointError",
    "SchemaError",
    "SchemaEvolutionError",
    "SchemaMismatchError",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
    "SerializationError",
    "SinkBackpressureError",
    "SinkError",
    "SinkFencedError",
    "SourceError",
    "StaleTokenError",
    "StateError",
    "StateNotOwnedError",
    "StateQueryError",
    "StateUnavailableError",
    "StoreCorruptedError",
    "StoreLockedError",
    "StoreVersionError",
    "StreamRTError",
    "TableExistsError",
    "TableNotFoundError",
    "TokenVersionError",
    "TopicConfigurationError",
    "TopicCreationError",
    "TopicNotFoundError",
    "TransactionError",
    "UnfinishedWindowError",
    "UnpicklableOperatorError",
    "ValueDeserializationError",
    "ValueSerializationError",
    "WriterFencedError",
]


P = ParamSpec("P")
R = TypeVar("R")
_PACKAGE = __name__.partition(".")[0]


class StreamRTError(Exception):
    """Base class of all exceptions of StreamRT.

    Attributes:
        error_code: stable code of the class, such as "E801"; `streamrt explain E801` prints what it means. A class without
            a code of its own has that of its parent. A code stays with its class, and no other class ever gets it, even
            when the first one is gone.
        retriable: whether the same call may succeed later, with nothing changed.
    """

    error_code: str = "E001"
    retriable: bool = False


class ConfigurationError(StreamRTError, ValueError):
    """A parameter, an environment variable or a Kafka option has an unusable value."""

    error_code = "E101"


class InvalidOperationError(StreamRTError):
    """A call does not fit the object, or the moment, such as the truth value of a dataframe."""

    error_code = "E104"


class ApplicationStateError(InvalidOperationError):
    """The application is in a state in which it cannot do this."""

    error_code = "E106"


class ApplicationTimeoutError(StreamRTError, TimeoutError):
    """The application did not reach a state in time."""

    error_code = "E107"
    retriable = True


class NoProgressError(StreamRTError):
    """A partition with unprocessed records made no progress for `progress_timeout`, and `on_no_progress` is "fail"."""

    error_code = "E507"


class ControlUnavailableError(StreamRTError):
    """No application answers at a control address."""

    error_code = "E901"
    retriable = True


class ControlRefusedError(StreamRTError):
    """The control address of an application refuses a request: without the right token, or from a foreign web page."""

    error_code = "E902"


class StaleTokenError(StreamRTError):
    """A topic was deleted, or deleted and created again, since a token was made: its offsets mean other records."""

    error_code = "E207"


class TokenVersionError(ConfigurationError):
    """A newer version of StreamRT made the token."""

    error_code = "E208"


class UnfinishedWindowError(InvalidOperationError, AttributeError):
    """A window was used like a dataframe before its aggregation or its emission was defined."""

    error_code = "E105"


class ArgumentValueError(ConfigurationError, InvalidOperationError):
    """An argument has an invalid value."""

    error_code = "E102"


class ArgumentTypeError(ConfigurationError, InvalidOperationError, TypeError):
    """An argument has an invalid type."""

    error_code = "E103"


def code_of(error: BaseException) -> str | None:
    """Return the code of an error; None if it is not an error of StreamRT.

    Args:
        error: the error.

    Example:
        >>> code_of(ConfigurationError("no broker")), code_of(OSError("disk full"))
        ('E101', None)
    """
    return error.error_code if isinstance(error, StreamRTError) else None


def reference_of(error: BaseException, before: str = "") -> str:
    """Return the words that lead from an error to its paragraph; an empty string if it is not an error of StreamRT.

    Args:
        error: the error.
        before: what stands in front of these words.

    Example:
        >>> reference_of(ConfigurationError("no broker"))
        'streamrt explain E101 says more'
    """
    code = code_of(error)
    return f"{before}streamrt explain {code} says more" if code else ""


def argument_error(message: str, *, of_type: bool) -> ArgumentValueError | ArgumentTypeError:
    """Return the error for an invalid argument.

    Args:
        message: description of the problem.
        of_type: whether the argument has a valid type, so that its value is wrong.

    Example:
        >>> type(argument_error("n must be positive", of_type=isinstance("1", int))).__name__
        'ArgumentTypeError'
    """
    return ArgumentValueError(message) if of_type else ArgumentTypeError(message)


class MissingColumnError(StreamRTError, KeyError):
    """A column operation read a column that the value does not have.

    Args:
        column: name of the missing column.
        available: names of the columns of the value.
    """

    error_code = "E504"

    def __init__(self, column: object, available: tuple[object, ...]) -> None:
        super().__init__(column, available)
        self.column = column
        self.available = available
        self.advice = ""

    def __str__(self) -> str:
        names = ", ".join(repr(name) for name in self.available) or "no columns at all"
        return f"column {self.column!r} is missing; the value has {names}{self.advice}"


class ColumnTypeError(StreamRTError, TypeError):
    """A column operation got a value without columns, or a column of an unsupported type."""

    error_code = "E505"


class KafkaBrokerUnavailableError(StreamRTError):
    """No Kafka broker answered within `broker_availability_timeout`."""

    error_code = "E201"
    retriable = True


class KafkaStartError(StreamRTError):
    """The embedded Kafka broker did not start."""

    error_code = "E209"


class TopicNotFoundError(StreamRTError):
    """A topic does not exist and may not be created."""

    error_code = "E203"


class TopicCreationError(StreamRTError):
    """A topic could not be created."""

    error_code = "E204"


class TopicConfigurationError(StreamRTError):
    """The settings of an existing topic conflict with the requirements of the application."""

    error_code = "E205"


class OffsetOutOfRangeError(StreamRTError):
    """The committed offset of a partition is no longer, or not yet, in the topic."""

    error_code = "E206"


class SerializationError(StreamRTError):
    """A value could not be serialized, or bytes could not be deserialized."""

    error_code = "E301"


class KeyDeserializationError(SerializationError):
    """The key of a record could not be deserialized."""

    error_code = "E302"


class ValueDeserializationError(SerializationError):
    """The value of a record could not be deserialized."""

    error_code = "E303"


class KeySerializationError(SerializationError):
    """The key of a record could not be serialized."""

    error_code = "E304"


class ValueSerializationError(SerializationError):
    """The value of a record could not be serialized."""

    error_code = "E305"


class SchemaError(StreamRTError, ValueError):
    """A schema cannot be used: a string that is not a schema, a type that columns cannot have, a name twice."""

    error_code = "E311"


class SchemaMismatchError(SchemaError):
    """A row does not fit its schema; the message names column, type and rule, and no value."""

    error_code = "E312"


class SchemaEvolutionError(SchemaError):
    """A schema cannot take the place of another one: rows that exist would not fit."""

    error_code = "E313"


class CatalogError(StreamRTError):
    """The catalogue of tables cannot be read or changed: a record of it is damaged, or a newer version wrote it."""

    error_code = "E401"


class CatalogConflictError(CatalogError):
    """Another program has changed the same object of the catalogue in the meantime; read it again, and repeat the change."""

    error_code = "E402"
    retriable = True


class TableNotFoundError(CatalogError, LookupError):
    """The catalogue has no table of this name."""

    error_code = "E404"


class TableExistsError(CatalogError):
    """The catalogue has a table of this name already."""

    error_code = "E403"


class DatabaseNotFoundError(CatalogError, LookupError):
    """The catalogue has no database of this name."""

    error_code = "E406"


class DatabaseExistsError(CatalogError):
    """The catalogue has a database of this name already."""

    error_code = "E405"


class DatabaseNotEmptyError(CatalogError):
    """A database that is to be dropped has tables."""

    error_code = "E407"


class ResultTooLargeError(StreamRTError):
    """Rows would take more memory than the call allows."""

    error_code = "E408"


class SQLError(StreamRTError, ValueError):
    """A text in SQL cannot be used.

    Args:
        text: what is wrong, and what to write instead.
        line: line of the text at which it is wrong, from 1; 0 if there is none.
        column: column in this line, from 1; 0 if there is none.

    Attributes:
        line: the line.
        column: the column.

    Example:
        >>> str(SQLError("there is no column 'amont'; did you mean amount?", 3, 8))
        "line 3, column 8: there is no column 'amont'; did you mean amount?"
    """

    error_code = "E411"

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {text}" if line else text)
        self._text = text
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type["SQLError"], tuple[str, int, int]]:
        return type(self), (self._text, self.line, self.column)


class SQLSyntaxError(SQLError):
    """A text is not SQL: it cannot be read."""

    error_code = "E412"


class SQLAnalysisError(SQLError):
    """A text in SQL names what does not exist, or has types that do not fit."""

    error_code = "E413"


class SQLNotSupportedError(SQLError):
    """A text in SQL asks for what StreamRT refuses: it has no result that could be kept up to date, or is not allowed."""

    error_code = "E414"


class QueryError(StreamRTError):
    """A query failed while it ran: a value could not be computed, or it was cancelled."""

    error_code = "E415"


class QueryTimeoutError(StreamRTError, TimeoutError):
    """A query worked longer than its `timeout`."""

    error_code = "E416"
    retriable = True


class LookupTimeoutError(StreamRTError, TimeoutError):
    """A copy of a table was not up to date in time, so that rows could not be looked up by their keys."""

    error_code = "E409"
    retriable = True


class SchemaRegistryError(StreamRTError):
    """The schema registry refuses a request of the application. No record caused this, so none is skipped."""

    error_code = "E321"


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The schema registry did not answer within its retries; processing is retried from the last commit."""

    error_code = "E322"
    retriable = True


class LookupUnavailableError(StreamRTError):
    """The source of a lookup did not answer within its retries. No record caused this, so none is skipped."""

    error_code = "E506"
    retriable = True


class IgnoreMessage(StreamRTError):  # noqa: N818 - the name is part of the public API
    """Raised by a deserializer to skip a record deliberately; no error callback is called."""

    error_code = "E306"


class ConsumerError(StreamRTError):
    """A record could not be consumed and no `on_consumer_error` callback chose to skip it."""

    error_code = "E503"


class ProcessingError(StreamRTError):
    """An operator raised and no `on_processing_error` callback chose to skip the record."""

    error_code = "E501"


class ProcessingTimeoutError(StreamRTError, TimeoutError):
    """A function processed a record for longer than `processing_timeout`."""

    error_code = "E502"


class ProducerError(StreamRTError):
    """A record could not be produced and no `on_producer_error` callback chose to skip it.

    Args:
        message: one sentence.
        topic: the topic of the record, if known.
        refused: whether brokers reject the record itself, so that they would reject it again.
    """

    error_code = "E601"

    def __init__(self, message: str, topic: str | None = None, refused: bool = False) -> None:
        super().__init__(message)
        self.topic = topic
        self.refused = refused

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.topic, self.refused)


class DeliveryTimeoutError(ProducerError, TimeoutError):
    """Rows that a table's writer has accepted were not delivered in time; they still may be."""

    error_code = "E602"


class TransactionError(StreamRTError):
    """A Kafka transaction was aborted, fenced, or has an unknown outcome; processing is retried from the last commit.

    Args:
        message: one sentence.
        fenced: whether another producer with the same transactional id has taken over.
    """

    error_code = "E603"
    retriable = True

    def __init__(self, message: str, fenced: bool = False) -> None:
        super().__init__(message)
        self.fenced = fenced

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.fenced)


class WriterFencedError(TransactionError):
    """Another writer with the same id writes to the table now: what this one wrote since its last checkpoint is dropped."""

    error_code = "E604"


class StateError(StreamRTError):
    """State cannot be used without the risk of wrong results."""

    error_code = "E701"


class SavepointError(StateError):
    """A savepoint cannot be made or used without the risk of wrong results, or cannot be read."""

    error_code = "E706"


class StateQueryError(StreamRTError):
    """State could not be queried: the store has another kind, or its data cannot be read."""

    error_code = "E911"


class StateNotOwnedError(StateQueryError):
    """Another instance owns the partition of the key.

    Attributes:
        owner: URL of its control address; None if it has none, or it is unknown.
    """

    error_code = "E912"
    owner: str | None = None


class StateUnavailableError(StateQueryError):
    """The partition of the key moves, or its state is being restored: the same query may succeed soon.

    Attributes:
        retry_after_s: seconds after which to ask again.
    """

    error_code = "E913"
    retriable = True
    retry_after_s: float = 1.0


class ChangelogError(StateError):
    """A changelog topic does not match the state or the committed offsets."""

    error_code = "E702"


class StoreCorruptedError(StateError):
    """The files of a store partition are damaged; it is restored from its changelog."""

    error_code = "E703"


class StoreLockedError(StateError):
    """Another process uses the files of a store partition."""

    error_code = "E704"
    retriable = True


class StoreVersionError(StateError):
    """A newer version of StreamRT wrote the state."""

    error_code = "E705"


class SinkError(StreamRTError):
    """A sink failed to write.

    Args:
        message: what happened.
        record: topic, partition and offset of the record whose value the sink rejects; None if it is not a single record.
            `on_error` may then skip this record, or make it a dead letter.

    Attributes:
        sink: name of the sink; empty if it is unknown.
    """

    error_code = "E801"
    sink: str = ""

    def __init__(self, message: str = "", record: "tuple[str, int, int] | None" = None) -> None:
        super().__init__(message)
        self.record = record


class SinkBackpressureError(StreamRTError):
    """Raised by a sink that cannot accept data now: the batch is dropped, and its partition is retried later.

    Args:
        retry_after: seconds until the partition is retried.
        reason: why, for the log.

    Attributes:
        sink: name of the sink; empty if it is unknown.
    """

    error_code = "E802"
    retriable = True
    sink: str = ""

    def __init__(self, retry_after: float, reason: str = "") -> None:
        why = f": {reason}" if reason else ""
        super().__init__(f"the sink requests backpressure: its partition is retried after {retry_after:g} s{why}")
        self.retry_after = retry_after
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.retry_after, self.reason)


class SinkFencedError(StreamRTError):
    """A sink found another position in its system than expected; processing is retried from the last commit."""

    error_code = "E803"
    retriable = True


class SourceError(StreamRTError):
    """A source ended with an exception."""

    error_code = "E851"


class UnpicklableOperatorError(StreamRTError):
    """The function of an operator cannot be pickled for the processes that run it."""

    error_code = "E108"


class RunnerError(StreamRTError):
    """Spark could not start or continue."""

    error_code = "E951"


class JavaNotFoundError(StreamRTError):
    """No Java 17 or newer was found."""

    error_code = "E952"


class JarError(StreamRTError):
    """A Java library could not be fetched or is damaged."""

    error_code = "E953"


def suggest_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a call with an unknown argument fail with the nearest known name.

    Example:
        >>> @suggest_arguments
        ... def connect(broker_address: str) -> None: ...
        >>> connect(broker_adress="kafka:9092")
        Traceback (most recent call last):
        streamrt.errors.ArgumentTypeError: connect() has no argument 'broker_adress'; did you mean 'broker_address'?
    """
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                advice = f"; did you mean {near[0]!r}?" if near else ""
                raise ArgumentTypeError(f"{called}() has no argument {name!r}{advice}")
        return function(*args, **kwargs)

    return call


def end_readably() -> None:
    """Make a script end with one sentence instead of a stack trace on an uncaught StreamRT error or an interrupt.

    A second line leads to the paragraph of the error.

    With log level DEBUG, and in an interactive Python, the stack trace is shown. A `sys.excepthook` that the user has
    set is kept.
    """
    if sys.excepthook is sys.__excepthook__ and not hasattr(sys, "ps1"):
        sys.excepthook = _show_error


def _show_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not isinstance(error, StreamRTError | KeyboardInterrupt) or logging.getLogger("streamrt").isEnabledFor(
        logging.DEBUG
    ):
        sys.__excepthook__(kind, error, traceback)
        return
    sentence = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{kind.__name__}: {error}"
    shown = f"streamrt: {sentence}{_find_location(traceback)}" + reference_of(error, "\n")
    print(shown, file=sys.stderr)  # noqa: T201 - the process ends


def _find_location(traceback: TracebackType | None) -> str:
    """Return the line of the user's program with the failed call; an empty string for errors inside `run()`."""
    location = ""
    for frame, line in walk_tb(traceback):
        code = frame.f_code
        if frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            return "" if code.co_name == "run" else location
        location = f" ({Path(code.co_filename).name}:{line})"
    return location
