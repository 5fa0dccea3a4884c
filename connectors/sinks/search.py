"""The base of sinks of search engines that take documents in the bulk format of Elasticsearch."""

import abc
import contextlib
import datetime
import decimal
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, get_args
from urllib.parse import urlsplit

from streamrt.connectors.argument_checks import (
    check_flags,
    check_texts,
    checked_choice,
    checked_count,
    checked_function,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import (
    ClientSettings,
    Identity,
    bounded,
    identified,
    metadata,
    origin,
    text_key,
    type_name,
)
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SinkError
from streamrt.secret import Secret

__all__ = ["SearchSink", "by_key"]

logger = logging.getLogger("streamrt.connectors")

# Half of what hosted services accept.
_BYTES = 5 << 20
_ID_BYTES = 512
_PASSING = frozenset({408, 409, 429, 502, 503, 504})
_INDEX = re.compile(r'[^-_+\s\\/*?"<>|,#:A-Z][^\s\\/*?"<>|,#:A-Z]*')
_FIELD = re.compile(r"(?:field|object mapping for|mapper) \[([^\]]{1,200})\]")


def by_key(item: SinkItem) -> str | None:
    """Return the key as the id of a document, or None if the record has no key."""
    key = text_key(item.key)
    return str(key) if isinstance(key, int | float) and not isinstance(key, bool) else key


class _Action(NamedTuple):
    """One action of a bulk request."""

    item: SinkItem
    document_id: str | None
    lines: bytes


class SearchSink(BatchingSink):
    """Writes values as documents, in bulk requests. Subclasses bring the client.

    Args:
        url: URL of the server.
        index: name of the index.
        mapping: see the subclasses.
        document_id_setter: see the subclasses.
        batch_size: see the subclasses.
        max_bulk_retries: see the subclasses.
        ignore_bulk_upload_errors: see the subclasses.
        add_message_metadata: see the subclasses.
        add_topic_metadata: see the subclasses.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        username: name of the user.
        password: the password, or a function that returns it.
        identity: see the subclasses.
        delete_on_none: see the subclasses.
        settings: more settings of the client.
    """

    # The name of the class is part of messages, the others are those of the client.
    _name: ClassVar[str]
    _system: ClassVar[str]
    _library: ClassVar[tuple[str, str]]
    _login_setting: ClassVar[str]
    _client: Any = None

    def __init__(
        self,
        url: str,
        index: str,
        mapping: Mapping[str, Any] | None,
        document_id_setter: Callable[[SinkItem], str | None] | None,
        batch_size: int,
        max_bulk_retries: int,
        ignore_bulk_upload_errors: bool,
        add_message_metadata: bool,
        add_topic_metadata: bool,
        on_client_connect_success: ClientConnectSuccessCallback | None,
        on_client_connect_failure: ClientConnectFailureCallback | None,
        username: str | None,
        password: CredentialInput | None,
        identity: Identity,
        delete_on_none: bool,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        name = self._name
        require_library(name, *self._library)
        check_texts(name, url=url, index=index)
        if _INDEX.fullmatch(index) is None:
            raise ArgumentValueError(f"{name}(index=...) got {index!r}, which {self._system} cannot take as a name")
        checked_function(name, "document_id_setter", document_id_setter, optional=True)
        checked_count(name, "batch_size", batch_size)
        checked_count(name, "max_bulk_retries", max_bulk_retries, 0)
        check_flags(name, ignore_bulk_upload_errors=ignore_bulk_upload_errors, delete_on_none=delete_on_none)
        check_flags(name, add_message_metadata=add_message_metadata, add_topic_metadata=add_topic_metadata)
        checked_choice(name, "identity", identity, get_args(Identity))
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ArgumentTypeError(f"{name}(mapping=...) must be a dict, got {type_name(mapping)}")
        if identity == "record" and document_id_setter is not by_key:
            raise ArgumentValueError(f'{name} takes either a document_id_setter or identity="record"')
        if (username is None) != (password is None):
            raise ArgumentValueError(f"{name} needs username and password, or neither of them")
        # The URL may contain a password.
        self._url = Secret(url)
        self._target = f"index {index} of {self._system} at {_address(name, url)}"
        self._index = index
        body = {"dynamic": True} if mapping is None else dict(mapping)
        self._mapping = body if "mappings" in body else {"mappings": body}
        self._id_setter = document_id_setter
        self._batch_size = batch_size
        self._retries = Retries(attempts=max_bulk_retries + 1)
        self._ignore_errors = ignore_bulk_upload_errors
        self._message_metadata, self._topic_metadata = add_message_metadata, add_topic_metadata
        self._identity, self._delete_on_none = identity, delete_on_none
        self._username, self._password = username, Credential.optional(password, f"{name}(password=...)")
        self._settings = ClientSettings(name, settings)
        try:
            # It does not connect yet.
            self._made(self._login(checked=True)).close()
        except (TypeError, ValueError, ImportError):
            # The text of the error would show values.
            raise ArgumentTypeError(
                f"{name} got unsupported settings among url, {', '.join(settings)}: it takes those of the client"
            ) from None

    def __repr__(self) -> str:
        return f"{self._name}({self._target})"

    @abc.abstractmethod
    def _made(self, login: Mapping[str, Any]) -> Any:
        """Return a client that is not connected."""

    @abc.abstractmethod
    def _bulk(self, client: Any, lines: bytes) -> Mapping[str, Any]:
        """Send a bulk request; return the answer."""

    @abc.abstractmethod
    def _failure(self, error: Exception) -> tuple[int | None, str]:
        """Return the HTTP status of an error of the client, or None without an answer, and words without values."""

    @property
    @abc.abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """The errors of the client."""

    def setup(self) -> None:
        """Connect to the server, and make the index if it does not exist.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials or the index.
        """
        try:
            client = self._connected()
            if not client.indices.exists(index=self._index):
                self._create(client)
        except self._errors as error:
            translated = self._translated(error)
            reason = f"{self._name} cannot reach {self._target}: {translated}"
            raise (SinkError(reason) if isinstance(translated, PassingError) else translated) from None

    def write(self, batch: SinkBatch) -> None:
        """Write the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a value cannot be written.
        """
        actions = [self._action(batch, identity, item) for identity, item in identified(batch)]
        what = f"{self._name}'s write of {batch.topic}[{batch.partition}] to {self._target}"
        for chunk in bounded(actions, lambda action: len(action.lines), count=self._batch_size, total=_BYTES):
            # Each attempt leaves what is to be repeated.
            self._retries.write(lambda chunk=chunk: self._send(batch, chunk), passing=(PassingError,), what=what)  # type: ignore[misc]

    def _action(self, batch: SinkBatch, identity: str, item: SinkItem) -> _Action:
        document_id = identity if self._identity == "record" else self._id(batch, item)
        head: dict[str, Any] = {"_index": self._index}
        if document_id is not None:
            head["_id"] = document_id
        if item.value is None and self._delete_on_none:
            if document_id is None:
                raise SinkError(
                    f"{self._name} cannot delete a document for {origin(batch, item)}: it has no id",
                    batch.record_of(item),
                )
            return _Action(item, document_id, _line(batch, item, {"delete": head}))
        if not isinstance(item.value, Mapping):
            raise SinkError(
                f"{self._name} cannot write {origin(batch, item)} to {self._target}: its value has the type "
                f"{type_name(item.value)}; make it a dict before the sink",
                batch.record_of(item),
            )
        added = metadata(batch, item, message=self._message_metadata, topic=self._topic_metadata)
        if added.get("__headers"):
            added["__headers"] = [{"name": name, "value": _text(value)} for name, value in added["__headers"]]
        if isinstance(added.get("__key"), bytes):
            added["__key"] = _text(added["__key"])
        lines = _line(batch, item, {"index": head}) + self._document(batch, item, {**item.value, **added})
        return _Action(item, document_id, lines)

    def _id(self, batch: SinkBatch, item: SinkItem) -> str | None:
        if self._id_setter is None:
            return None
        made: Any = None
        try:
            made = self._id_setter(item)
        except Exception as error:
            raise SinkError(
                f"{self._name} cannot make an id for {origin(batch, item)}: document_id_setter raised "
                f"{type_name(error)}",
                batch.record_of(item),
            ) from error
        if made is None:
            return None
        problem = ""
        if not isinstance(made, str):
            problem = f"has the type {type_name(made)}, not str"
        elif not 1 <= len(made.encode(errors="replace")) <= _ID_BYTES:
            problem = f"must have 1 to {_ID_BYTES} bytes"
        elif any("\ud800" <= character <= "\udfff" for character in made):
            problem = "contains half of a surrogate pair"
        if problem:
            raise SinkError(
                f"{self._name} cannot write {origin(batch, item)} to {self._target}: the id of its document {problem}; "
                "give another document_id_setter",
                batch.record_of(item),
            )
        return str(made)

    def _document(self, batch: SinkBatch, item: SinkItem, document: dict[str, Any]) -> bytes:
        try:
            return _line(batch, item, document)
        except (TypeError, ValueError, RecursionError):
            pass
        for name, part in document.items():
            try:
                _line(batch, item, {name: part})
            except (TypeError, ValueError, RecursionError) as error:
                raise SinkError(
                    f"{self._name} cannot write field {name!r} of {origin(batch, item)} to {self._target}: JSON cannot "
                    f"express it ({type_name(error)})",
                    batch.record_of(item),
                ) from None
        raise SinkError(
            f"{self._name} cannot write {origin(batch, item)} to {self._target}: JSON cannot express it",
            batch.record_of(item),
        )

    def _send(self, batch: SinkBatch, chunk: list[_Action]) -> None:
        try:
            answer = self._bulk(self._connected(), b"".join(action.lines for action in chunk))
        except self._errors as error:
            self._disconnect()
            raise self._translated(error) from None
        if not answer.get("errors"):
            return
        results = [next(iter(result.values())) for result in answer["items"]]
        failed = [(action, result) for action, result in zip(chunk, results, strict=True) if result.get("error")]
        repeated = [action for action, result in failed if result["status"] in _PASSING]
        refused = [(action, result) for action, result in failed if result["status"] not in _PASSING]
        for action, result in refused:
            problem = self._refusal(batch, action.item, result)
            if not self._ignore_errors:
                raise problem
            logger.error("%s; it is left out", problem)
        if repeated:
            ids = {action.document_id for action in repeated} - {None}
            first = chunk.index(repeated[0])
            # Later states of the same documents follow again, so that they remain the last.
            chunk[:] = [
                action
                for number, action in enumerate(chunk)
                if action in repeated or (number > first and action.document_id in ids)
            ]
            raise PassingError(f"it answers {failed[0][1]['status']} ({failed[0][1]['error'].get('type')})")

    def _refusal(self, batch: SinkBatch, item: SinkItem, result: Mapping[str, Any]) -> SinkError:
        """Return an error that names the field; the server's own text may show the value."""
        error = result["error"]
        field = _FIELD.search(str(error.get("reason", "")))
        where = f"field {field[1]!r} of {origin(batch, item)}" if field else origin(batch, item)
        return SinkError(
            f"{self._name} cannot write {where} to {self._target}: it answers {result['status']} ({error.get('type')})"
        )

    def _create(self, client: Any) -> None:
        try:
            client.indices.create(index=self._index, body=self._mapping)
        except self._errors as error:
            # Another task may have made it meanwhile.
            if "resource_already_exists_exception" not in str(error):
                raise

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._made(self._login())
        return self._client

    def _login(self, *, checked: bool = False) -> dict[str, Any]:
        """Return the settings with credentials; without them, if the settings are to be checked only."""
        if self._password is None:
            return {}
        return {self._login_setting: (self._username, "unused" if checked else self._password.reveal())}

    @property
    def _renews(self) -> bool:
        """Whether a function returns the credentials, so that the next ones may differ."""
        return self._password is not None and self._password.changes

    def close(self) -> None:
        """Close the connection; `start` opens another one."""
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _translated(self, error: Exception) -> Exception:
        """Return an error that shows no values."""
        status, words = self._failure(error)
        if status == 401:
            words = "it refuses the credentials"
        # The function may return another password now.
        if status is None or status in _PASSING or (status == 401 and self._renews):
            return PassingError(words)
        return SinkError(f"{self._name} cannot use {self._target}: {words}")


def _address(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # The URL may contain a password.
        raise ArgumentValueError(f"{name}(url=...) must be a URL such as https://search.example.com:9200")
    return parts.hostname + (f":{port}" if port else "")


def _line(batch: SinkBatch, item: SinkItem, content: Mapping[str, Any]) -> bytes:
    # NaN and infinity are no JSON.
    return json.dumps(content, default=_plain, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return float(value)
    raise TypeError(f"{type_name(value)} is not JSON")


def _text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
