"""A sink of Redis: each value is stored under a key."""

import contextlib
import datetime
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streamrt.connectors.argument_checks import (
    check_flags,
    check_texts,
    checked_count,
    checked_function,
    checked_seconds,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError, first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import (
    ClientSettings,
    bounded,
    origin,
    type_name,
)
from streamrt.errors import ArgumentTypeError, SinkError, argument_error

if TYPE_CHECKING:
    import redis

__all__ = ["RedisSink"]

_COMMANDS = 1_000
_BYTES = 8 << 20
# Answers with these words in front come from a server that is busy, full or not the primary now.
_PASSING = ("LOADING", "BUSY", "OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")


class _Command(NamedTuple):
    """One SET, or one DEL if the value is None."""

    item: SinkItem
    key: str | bytes
    value: str | bytes | None


class RedisSink(BatchingSink):
    """Stores values in Redis, each under a key. A later value of the same key replaces the earlier one.

    The batch of a partition is sent in pipelines of at most 1,000 commands and about 8 MB. Values are sent again after a
    crash, under the same keys: each key holds its last value, and each value is stored once if each value has another key.
    What Redis has accepted survives a crash of Redis as its persistence settings (`appendonly`, `appendfsync`) say.
    Needs the extra `redis`.

    Args:
        host: host of the server.
        port: port of the server.
        db: number of the database.
        value_serializer: makes text or bytes from a value.
        key_serializer: makes text or bytes from the key and the value of a record. Without it, the key of the record is
            used as it is, and must be text, bytes or a number.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        socket_timeout: time limit in seconds for connecting and for each answer.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        ttl: lifetime of the stored values, in seconds or as a timedelta; None for ever. Every write of a key starts it
            again.
        delete_on_none: delete the key if the value is None. Otherwise, None is serialized like other values.
        kwargs: more settings of `redis.Redis`, such as `username` and `ssl`.

    Raises:
        ConfigurationError: if an argument cannot be used, or redis is not installed.

    Example:
        ```python
        sink = RedisSink("cache", 6379, 0, key_serializer=lambda key, value: f"order:{value['id']}", ttl=3600)
        sdf.sink(sink)
        ```
    """

    _retries: ClassVar[Retries] = Retries()
    _redis: "redis.Redis | None" = None

    def __init__(
        self,
        host: str,
        port: int,
        db: int,
        value_serializer: Callable[[Any], bytes | str] = json.dumps,
        key_serializer: Callable[[Any, Any], bytes | str] | None = None,
        password: CredentialInput | None = None,
        socket_timeout: float = 30.0,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        ttl: float | datetime.timedelta | None = None,
        delete_on_none: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("RedisSink", "redis", "redis")
        check_texts("RedisSink", host=host)
        checked_count("RedisSink", "port", port, 1, 65_535)
        checked_count("RedisSink", "db", db, 0)
        checked_function("RedisSink", "value_serializer", value_serializer)
        checked_function("RedisSink", "key_serializer", key_serializer, optional=True)
        checked_seconds("RedisSink", "socket_timeout", socket_timeout)
        check_flags("RedisSink", delete_on_none=delete_on_none)
        self._host, self._port, self._db = host, port, db
        self._value_serializer, self._key_serializer = value_serializer, key_serializer
        self._password = Credential.optional(password, "RedisSink(password=...)")
        self._socket_timeout = socket_timeout
        self._ttl_ms = _milliseconds(ttl)
        self._delete_on_none = delete_on_none
        self._settings = ClientSettings("RedisSink", kwargs)
        try:
            # It does not connect yet.
            self._client(None).close()
        except (TypeError, ValueError, AttributeError):
            # The text of the error would show values.
            names = ", ".join(kwargs)
            raise ArgumentTypeError(
                f"RedisSink got unsupported settings among {names}: it takes those of redis.Redis"
            ) from None

    def __repr__(self) -> str:
        return f"RedisSink({self._host!r}, {self._port}, {self._db})"

    def setup(self) -> None:
        """Connect to the server.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials or the database.
        """
        try:
            self._connected()
        except PassingError as error:
            raise SinkError(f"RedisSink cannot reach {self._target}: {error}") from None

    def write(self, batch: SinkBatch) -> None:
        """Store the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a key or a value cannot be stored.
        """
        commands = [self._command(batch, item) for item in batch]
        what = f"RedisSink's write of {batch.topic}[{batch.partition}] to {self._target}"
        for chunk in bounded(commands, _size, count=_COMMANDS, total=_BYTES):
            self._retries.write(lambda chunk=chunk: self._send(batch, chunk), passing=(PassingError,), what=what)  # type: ignore[misc]

    @property
    def _target(self) -> str:
        return f"database {self._db} of Redis at {self._host}:{self._port}"

    def _command(self, batch: SinkBatch, item: SinkItem) -> _Command:
        key = item.key
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(item.key, item.value)
            except Exception as error:
                raise SinkError(
                    f"RedisSink cannot make a key for {origin(batch, item)}: key_serializer raised {type_name(error)}",
                    batch.record_of(item),
                ) from error
        elif isinstance(key, int | float) and not isinstance(key, bool):
            key = repr(key)
        if not isinstance(key, str | bytes):
            made = "it has no key" if key is None else f"its key has the type {type_name(key)}"
            raise SinkError(
                f"RedisSink cannot store {origin(batch, item)} in {self._target}: {made}; give a key_serializer that "
                "returns text or bytes",
                batch.record_of(item),
            )
        if item.value is None and self._delete_on_none:
            return _Command(item, key, None)
        try:
            value = self._value_serializer(item.value)
        except Exception as error:
            raise SinkError(
                f"RedisSink cannot serialize the value of {origin(batch, item)}: value_serializer raised "
                f"{type_name(error)}",
                batch.record_of(item),
            ) from error
        if not isinstance(value, str | bytes):
            raise SinkError(
                f"RedisSink cannot store the value of {origin(batch, item)}: value_serializer returned "
                f"{type_name(value)}; let it return text or bytes",
                batch.record_of(item),
            )
        return _Command(item, *(_encoded(batch, item, part) for part in (key, value)))

    def _send(self, batch: SinkBatch, chunk: list[_Command]) -> None:
        import redis

        client = self._connected()
        try:
            if self._set_together(client, chunk):
                return
            pipeline = client.pipeline(transaction=False)
            for command in chunk:
                if command.value is None:
                    pipeline.delete(command.key)
                else:
                    pipeline.set(command.key, command.value, px=self._ttl_ms)
            answers = pipeline.execute(raise_on_error=False)
        except (redis.RedisError, OSError) as error:
            self._disconnect()
            raise self._translated(error) from None
        # Errors that may pass come first: a busy server refuses everything.
        refused = [
            (command, answer) for command, answer in zip(chunk, answers, strict=True) if isinstance(answer, Exception)
        ]
        for _, answer in refused:
            if self._passes(answer):
                raise PassingError(_words(answer))
        for command, answer in refused:
            raise SinkError(
                f"RedisSink cannot store {origin(batch, command.item)} in {self._target}: {_words(answer)}",
                batch.record_of(command.item),
            )

    def _set_together(self, client: "redis.Redis", chunk: list[_Command]) -> bool:
        """Set all keys with one command, which takes half of the time of one for each; return False if that cannot be.

        The last value of a key counts, as with one command for each.
        """
        import redis

        if self._ttl_ms is not None or any(command.value is None for command in chunk):
            return False
        try:
            client.execute_command("MSET", *(part for command in chunk for part in command[1:]))
        except redis.ResponseError as error:
            if self._passes(error):
                raise
            # It does not say which value is refused, or the user may run SET alone.
            return False
        return True

    def _connected(self) -> "redis.Redis":
        import redis

        if self._redis is None:
            client = self._client(None if self._password is None else self._password.reveal())
            try:
                client.ping()
            except (redis.RedisError, OSError) as error:
                client.close()
                raise self._translated(error) from None
            self._redis = client
        return self._redis

    def _client(self, password: str | None) -> "redis.Redis":
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        settings = {
            # Requests are repeated by this sink.
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": self._socket_timeout,
            **self._settings.reveal(),
        }
        return redis.Redis(
            host=self._host,
            port=self._port,
            db=self._db,
            password=password,
            socket_timeout=self._socket_timeout,
            **settings,
        )

    def close(self) -> None:
        """Close the connection; `start` opens another one."""
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._redis = self._redis, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _passes(self, error: Exception) -> bool:
        import redis

        if isinstance(error, redis.AuthenticationError):
            # The function may return another password now.
            return self._password is not None and self._password.changes
        # The library removes the code of answers that have a class.
        known = (
            redis.ConnectionError,
            redis.TimeoutError,
            redis.OutOfMemoryError,
            redis.ReadOnlyError,
            redis.exceptions.TryAgainError,
            redis.exceptions.ClusterDownError,
            OSError,
        )
        return isinstance(error, known) or str(error).startswith(_PASSING)

    def _translated(self, error: Exception) -> Exception:
        """Return an error that shows neither keys nor values."""
        if self._passes(error):
            return PassingError(_words(error))
        return SinkError(f"RedisSink cannot use {self._target}: {_words(error)}")


def _milliseconds(ttl: object) -> int | None:
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, datetime.timedelta) else ttl
    valid = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not isinstance(seconds, int | float) or not valid or not 0.001 <= seconds <= 1e12:
        raise argument_error(
            f"RedisSink(ttl=...) must be a number of seconds or a timedelta, 1 millisecond or more, got {ttl!r}",
            of_type=valid,
        )
    return round(seconds * 1_000)


def _encoded(batch: SinkBatch, item: SinkItem, text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Its text would show the value.
        raise SinkError(
            f"RedisSink cannot store {origin(batch, item)}: its key or its value contains half of a surrogate pair, "
            "which UTF-8 cannot express",
            batch.record_of(item),
        ) from None


def _size(command: _Command) -> int:
    return len(command.key) + len(command.value or b"")


def _words(error: Exception) -> str:
    """Return what the error says, without what the library adds to it: the command with its key and value."""
    import redis

    if isinstance(error, redis.AuthenticationError):
        return "it refuses the credentials"
    if isinstance(error, redis.ResponseError):
        # Arguments may follow a comma.
        text = str(error).partition(" of pipeline caused error: ")[2] or str(error)
        return f"it answers '{text.partition(',')[0].rstrip('.')}'"
    return first_line(error).rstrip(".")
