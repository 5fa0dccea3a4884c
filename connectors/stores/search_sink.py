"""The base of sinks of search engines that take documents in the bulk format of Elasticsearch."""

import abc
import datetime
import decimal
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, get_args
from urllib.parse import urlsplit

from streamrt.arguments import type_name
from streamrt.connectors.argument_checks import (
    check_flags,
    check_texts,
    checked_choice,
    checked_count,
    checked_function,
    checked_type,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings, Credential, CredentialInput
from streamrt.connectors.failures import PassingError
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientSink
from streamrt.connectors.sinks.common import Identity, bounded, identified, metadata, text_key
from streamrt.errors import ArgumentValueError, SinkError
from streamrt.secret import Secret

__all__ = ["SearchSink", "by_key"]

logger = logging.getLogger("streamrt.connectors")

# Half of what hosted services accept.
_BYTES = 5 << 20
_ID_BYTES = 512
_PASSING = frozenset({408, 409, 429, 502, 503, 504})
_ABOUT_VALUE = frozenset({400, 413})
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


class SearchSink(ClientSink):
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
        kwargs: more settings of the client.
    """

    # The names of the client.
    _system: ClassVar[str]
    _library: ClassVar[tuple[str, str]]
    _login_setting: ClassVar[str]

    def __init__(
        self,
        url: str,
        index: str,
        mapping: dict[str, Any] | None = None,
        document_id_setter: Callable[[SinkItem], str | None] | None = by_key,
        batch_size: int = 500,
        max_bulk_retries: int = 3,
        ignore_bulk_upload_errors: bool = False,
        add_message_metadata: bool = False,
        add_topic_metadata: bool = False,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        username: str | None = None,
        password: CredentialInput | None = None,
        identity: Identity = "key",
        delete_on_none: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        name = self._owner
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
        checked_type(name, "mapping", mapping, Mapping, "a dict", optional=True)
        if identity == "record" and document_id_setter is not by_key:
            raise ArgumentValueError(f'{name} takes either a document_id_setter or identity="record"')
        if (username is None) != (password is None):
            raise ArgumentValueError(f"{name} needs username and password, or neither of them")
        # The URL may contain a password.
        self._url = Secret(url)
        self._target = f"index {index} of {self._system} at {_check_address(name, url)}"
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
        self._settings = ClientSettings(name, kwargs)
        try:
            # It does not connect yet.
            self._make_client(self._login_settings(checked=True)).close()
        except (TypeError, ValueError, ImportError):
            # The text of the error would show values.
            raise self._make_unsupported_error(("url", *kwargs), "the client") from None

    @abc.abstractmethod
    def _make_client(self, login: Mapping[str, Any]) -> Any:
        """Return a client that is not connected."""

    @abc.abstractmethod
    def _send_bulk(self, client: Any, lines: bytes) -> Mapping[str, Any]:
        """Send a bulk request; return the answer."""

    @abc.abstractmethod
    def _describe_failure(self, error: Exception) -> tuple[int | None, str]:
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
            client = self._connect_client()
            if not client.indices.exists(index=self._index):
                self._create_index(client)
        except self._errors as error:
            translated = self._translate_error(error)
            raise (
                self._make_unreachable_error(translated) if isinstance(translated, PassingError) else translated
            ) from None

    def write(self, batch: SinkBatch) -> None:
        """Write the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a value cannot be written.
        """
        actions = [self._make_action(batch, identity, item) for identity, item in identified(batch)]
        # Each attempt at a chunk leaves in it what is to be repeated.
        chunks = bounded(actions, lambda action: len(action.lines), count=self._batch_size, total=_BYTES)
        self._write_chunks(batch, chunks)

    def _make_action(self, batch: SinkBatch, identity: str, item: SinkItem) -> _Action:
        document_id = identity if self._identity == "record" else self._document_id(batch, item)
        head: dict[str, Any] = {"_index": self._index}
        if document_id is not None:
            head["_id"] = document_id
        if item.value is None and self._delete_on_none:
            if document_id is None:
                raise self._make_rejection(batch, item, "it has no id", doing="delete a document for")
            return _Action(item, document_id, _encode_line(batch, item, {"delete": head}))
        columns = self._columns_of(batch, item)
        added = metadata(batch, item, message=self._message_metadata, topic=self._topic_metadata)
        if added.get("__headers"):
            added["__headers"] = [{"name": name, "value": _to_text(value)} for name, value in added["__headers"]]
        if isinstance(added.get("__key"), bytes):
            added["__key"] = _to_text(added["__key"])
        lines = _encode_line(batch, item, {"index": head}) + self._make_document(batch, item, {**columns, **added})
        return _Action(item, document_id, lines)

    def _document_id(self, batch: SinkBatch, item: SinkItem) -> str | None:
        if self._id_setter is None:
            return None
        made: Any = None
        try:
            made = self._id_setter(item)
        except Exception as error:
            reason = f"document_id_setter raised {type_name(error)}"
            raise self._make_rejection(batch, item, reason, doing="make an id for") from error
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
            reason = f"the id of its document {problem}; give another document_id_setter"
            raise self._make_rejection(batch, item, reason)
        return str(made)

    def _make_document(self, batch: SinkBatch, item: SinkItem, document: dict[str, Any]) -> bytes:
        try:
            return _encode_line(batch, item, document)
        except (TypeError, ValueError, RecursionError):
            pass
        for name, part in document.items():
            try:
                _encode_line(batch, item, {name: part})
            except (TypeError, ValueError, RecursionError) as error:
                reason = f"JSON cannot express it ({type_name(error)})"
                raise self._make_rejection(batch, item, reason, part=f"field {name!r} of ") from None
        raise self._make_rejection(batch, item, "JSON cannot express it")

    def _send_chunk(self, batch: SinkBatch, chunk: list[_Action]) -> None:
        try:
            answer = self._send_bulk(self._connect_client(), b"".join(action.lines for action in chunk))
        except self._errors as error:
            self._disconnect()
            raise self._translate_error(error) from None
        if not answer.get("errors"):
            return
        results = [next(iter(result.values())) for result in answer["items"]]
        failed = [(action, result) for action, result in zip(chunk, results, strict=True) if result.get("error")]
        repeated = [action for action, result in failed if result["status"] in _PASSING]
        refused = [(action, result) for action, result in failed if result["status"] not in _PASSING]
        for action, result in refused:
            problem = self._make_refusal(batch, action.item, result)
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

    def _make_refusal(self, batch: SinkBatch, item: SinkItem, result: Mapping[str, Any]) -> SinkError:
        """Return an error that names the field; the server's own text may show the value."""
        error = result["error"]
        field = _FIELD.search(str(error.get("reason", "")))
        return self._make_rejection(
            batch,
            item,
            f"it answers {result['status']} ({error.get('type')})",
            part=f"field {field[1]!r} of " if field else "",
            of_value=result["status"] in _ABOUT_VALUE,
        )

    def _create_index(self, client: Any) -> None:
        try:
            client.indices.create(index=self._index, body=self._mapping)
        except self._errors as error:
            # Another task may have made it meanwhile.
            if "resource_already_exists_exception" not in str(error):
                raise

    def _connect_client(self) -> Any:
        if self._client is None:
            self._keep_client(self._make_client(self._login_settings()))
        return self._client

    def _login_settings(self, *, checked: bool = False) -> dict[str, Any]:
        """Return the settings with credentials; without them, if the settings are to be checked only."""
        if self._password is None:
            return {}
        return {self._login_setting: (self._username, "unused" if checked else self._password.reveal())}

    def _translate_error(self, error: Exception) -> Exception:
        """Return an error that shows no values."""
        status, words = self._describe_failure(error)
        if status == 401:
            words = "it refuses the credentials"
        # The function may return another password now.
        if status is None or status in _PASSING or (status == 401 and self._renews_credentials):
            return PassingError(words)
        return self._make_unusable_error(words)


def _check_address(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # The URL may contain a password.
        raise ArgumentValueError(f"{name}(url=...) must be a URL such as https://search.example.com:9200")
    return parts.hostname + (f":{port}" if port else "")


def _encode_line(batch: SinkBatch, item: SinkItem, content: Mapping[str, Any]) -> bytes:
    # NaN and infinity are not JSON.
    return json.dumps(content, default=_plain_value, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return float(value)
    raise TypeError(f"{type_name(value)} is not JSON")


def _to_text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
