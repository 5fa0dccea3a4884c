"""A sink of Redis: each value is stored under a key."""

import datetime
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from streamrt.arguments import type_name
from streamrt.connectors.argument_checks import (
    check_flags,
    check_texts,
    checked_count,
    checked_function,
    checked_seconds,
    checked_type,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings, Credential, CredentialInput
from streamrt.connectors.failures import PassingError, first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientSink
from streamrt.connectors.sinks.common import bounded
from streamrt.connectors.tls import TLS, check_tls, speaks_redis_without_tls

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


class RedisSink(ClientSink):
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
        tls: True for TLS with a certificate that the system trusts, the path of a file of trusted certificates, or False
            for none (default).
        kwargs: more settings of `redis.Redis`, such as `username`, or `ssl_certfile` for a certificate of the client.

    Raises:
        ConfigurationError: if an argument cannot be used, or redis is not installed.

    Example:
        ```python
        sink = RedisSink("cache", 6379, 0, key_serializer=lambda key, value: f"order:{value['id']}", ttl=3600)
        sdf.sink(sink)
        ```
    """

    _owner = "RedisSink"
    _verb, _preposition = "store", "in"
    _client: "redis.Redis | None" = None

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
        tls: TLS = None,
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
        self._target = f"database {db} of Redis at {host}:{port}"
        self._value_serializer, self._key_serializer = value_serializer, key_serializer
        self._password = Credential.optional(password, "RedisSink(password=...)")
        self._socket_timeout = socket_timeout
        self._ttl_ms = _to_milliseconds(ttl)
        self._delete_on_none = delete_on_none
        check_tls("RedisSink", tls, kwargs, ("ssl", "ssl_ca_certs"))
        if tls is not None:
            kwargs |= {"ssl": bool(tls), **({"ssl_ca_certs": tls} if isinstance(tls, str) else {})}
        self._uses_tls = bool(kwargs.get("ssl"))
        self._settings = ClientSettings("RedisSink", kwargs)
        try:
            # It does not connect yet.
            self._made(None).close()
        except (TypeError, ValueError, AttributeError):
            # The text of the error would show values.
            raise self._make_unsupported_error(kwargs, "redis.Redis") from None

    def __repr__(self) -> str:
        return f"RedisSink({self._host!r}, {self._port}, {self._db})"

    def setup(self) -> None:
        """Connect to the server.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials or the database.
        """
        if self._uses_tls and speaks_redis_without_tls(self._host, self._port):
            # It would wait for the rest of the handshake, and the client for an answer.
            raise self._make_unreachable_error("the server has no TLS at this port: use tls=False")
        super().setup()

    def write(self, batch: SinkBatch) -> None:
        """Store the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a key or a value cannot be stored.
        """
        commands = [self._make_command(batch, item) for item in batch]
        self._write_chunks(batch, bounded(commands, _command_size, count=_COMMANDS, total=_BYTES))

    def _make_command(self, batch: SinkBatch, item: SinkItem) -> _Command:
        key = item.key
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(item.key, item.value)
            except Exception as error:
                reason = f"key_serializer raised {type_name(error)}"
                raise self._make_rejection(batch, item, reason, doing="make a key for") from error
        elif isinstance(key, int | float) and not isinstance(key, bool):
            key = repr(key)
        if not isinstance(key, str | bytes):
            made = "it has no key" if key is None else f"its key has the type {type_name(key)}"
            raise self._make_rejection(batch, item, f"{made}; give a key_serializer that returns text or bytes")
        if item.value is None and self._delete_on_none:
            return _Command(item, key, None)
        try:
            value = self._value_serializer(item.value)
        except Exception as error:
            reason = f"value_serializer raised {type_name(error)}"
            raise self._make_rejection(batch, item, reason, doing="serialize the value of") from error
        if not isinstance(value, str | bytes):
            raise self._make_rejection(
                batch,
                item,
                f"value_serializer returned {type_name(value)}; let it return text or bytes",
                doing="store the value of",
            )
        try:
            return _Command(item, *(part if isinstance(part, bytes) else part.encode() for part in (key, value)))
        except UnicodeEncodeError:
            # Its text would show the value.
            reason = "its key or its value contains half of a surrogate pair, which UTF-8 cannot express"
            raise self._make_rejection(batch, item, reason, doing="store") from None

    def _send_chunk(self, batch: SinkBatch, chunk: list[_Command]) -> None:
        import redis

        client = self._connect_client()
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
            raise self._translate_error(error) from None
        # Errors that may pass come first: a busy server refuses everything.
        refused = [
            (command, answer) for command, answer in zip(chunk, answers, strict=True) if isinstance(answer, Exception)
        ]
        for _, answer in refused:
            if self._passes(answer):
                raise PassingError(_error_words(answer))
        for command, answer in refused:
            raise self._make_rejection(batch, command.item, _error_words(answer))

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
            # It does not say which value is refused, or the user may run only SET.
            return False
        return True

    def _connect_client(self) -> "redis.Redis":
        import redis

        if self._client is None:
            client = self._made(None if self._password is None else self._password.reveal())
            try:
                client.ping()
            except (redis.RedisError, OSError) as error:
                client.close()
                raise self._translate_error(error) from None
            self._keep_client(client)
        return self._client

    def _made(self, password: str | None) -> "redis.Redis":
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

    def _passes(self, error: Exception) -> bool:
        import redis

        if isinstance(error, redis.AuthenticationError):
            # The function may return another password now.
            return self._renews_credentials
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

    def _translate_error(self, error: Exception) -> Exception:
        """Return an error that shows neither keys nor values."""
        if self._passes(error):
            return PassingError(_error_words(error))
        return self._make_unusable_error(_error_words(error))


def _to_milliseconds(ttl: float | datetime.timedelta | None) -> int | None:
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, datetime.timedelta) else ttl
    wanted = "a number of seconds or a timedelta, 1 millisecond or more"
    checked_type("RedisSink", "ttl", seconds, int | float, wanted, lambda seconds: 0.001 <= seconds <= 1e12)
    return round(seconds * 1_000)


def _command_size(command: _Command) -> int:
    return len(command.key) + len(command.value or b"")


def _error_words(error: Exception) -> str:
    """Return what the error says, without what the library adds to it: the command with its key and value."""
    import redis

    if isinstance(error, redis.AuthenticationError):
        return "it refuses the credentials"
    if isinstance(error, redis.ResponseError):
        # Arguments may follow a comma.
        text = str(error).partition(" of pipeline caused error: ")[2] or str(error)
        return f"it answers '{text.partition(',')[0].rstrip('.')}'"
    return first_line(error).rstrip(".")
