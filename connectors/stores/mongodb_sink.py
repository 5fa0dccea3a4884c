"""A sink of MongoDB: each value updates or replaces a document."""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from streamrt.arguments import type_name
from streamrt.connectors.argument_checks import (
    check_flags,
    check_texts,
    checked_choice,
    checked_count,
    checked_function,
)
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import ClientSettings, Credential, CredentialInput
from streamrt.connectors.failures import PassingError, first_line
from streamrt.connectors.libraries import require_library
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.client_sink import ClientSink
from streamrt.connectors.sinks.common import (
    Identity,
    bounded,
    identified,
    metadata,
    text_key,
)
from streamrt.errors import ArgumentValueError, SinkError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import pymongo
    from pymongo.collection import Collection

__all__ = ["MongoDBSink"]

UpdateMethod = Literal["UpdateOne", "UpdateMany", "ReplaceOne"]

_OPERATIONS = 1_000
# The second one is that of Atlas.
_CREDENTIALS = (18, 8000)
# Codes of errors that may pass, of servers that stop, step down or are too slow; see MongoDB's error_codes.yml.
_PASSING = frozenset({6, 7, 24, 50, 64, 79, 89, 91, 112, 189, 202, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436})
_NOT_IN_NAMES = re.compile(r'[ ./\\$"\0]')
_ADDRESS = re.compile(r"mongodb(?:\+srv)?://(?:[^@/]*@)?([^/?]+)")


def _by_key(item: SinkItem) -> dict[str, Any]:
    """Return the filter of the document whose `_id` is the key of the record."""
    key = text_key(item.key)
    # A key that is a dict could be read as an operator.
    return {"_id": {"$eq": key} if isinstance(key, Mapping) else key}


class _Operation(NamedTuple):
    """One write: its origin, the filter, what is written, and all as the client takes it."""

    item: SinkItem
    found: Mapping[str, Any]
    document: Mapping[str, Any]
    request: Any


class MongoDBSink(ClientSink):
    """Writes values, which must be dicts, into documents of a collection of MongoDB.

    By default, a value updates the document whose `_id` is the key of the record, or makes it: its columns are set, and other
    fields of the document stay. Writes repeat after a crash with the same outcome, so that each document holds the last
    values. With `identity="record"`, each value has a document, and is stored once.

    A batch is written in order, in chunks of 1,000, and acknowledged by the majority of a replica set. Needs the extra
    `mongodb`.

    Args:
        host: host of the server, or a connection string: `mongodb://...` or `mongodb+srv://...`.
        db: name of the database.
        collection: name of the collection; it is made by the first write.
        username: name of the user.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        port: port of the server, unless `host` is a connection string.
        document_matcher: makes the filter that finds the document from a `SinkItem`. By default it compares `_id` with the
            key; bytes of UTF-8 are compared as text.
        update_method: "UpdateOne" and "UpdateMany" set the columns of the value in the first or in all documents found;
            "ReplaceOne" replaces the document.
        upsert: make a document if none is found.
        add_message_metadata: add the fields `__key`, `__timestamp` and `__headers`.
        add_topic_metadata: add the fields `__topic`, `__partition` and `__offset`.
        authentication_timeout_ms: time limit for finding a server, in milliseconds.
        value_selector: makes the document from the value and its metadata, for example without columns that only
            `document_matcher` needs.
        identity: "key", or "record" for an `_id` of topic, partition, offset and the number of the value within its offset.
        delete_on_none: delete the document if the value is None. Otherwise, None is refused like other values that are not
            dicts.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        kwargs: more settings of `pymongo.MongoClient`, such as `tls` and `authSource`.

    Raises:
        ConfigurationError: if an argument cannot be used, or pymongo is not installed.

    Example:
        ```python
        sink = MongoDBSink("db", "shop", "customers", username="writer", password=lambda: os.environ["DB_PASSWORD"])
        sdf.sink(sink)
        ```
    """

    _owner = "MongoDBSink"
    # The client itself looks for a server for some seconds.
    _retries = Retries(attempts=2)

    def __init__(
        self,
        host: str,
        db: str,
        collection: str,
        username: str | None = None,
        password: CredentialInput | None = None,
        port: int = 27017,
        document_matcher: Callable[[SinkItem], Mapping[str, Any]] = _by_key,
        update_method: UpdateMethod = "UpdateOne",
        upsert: bool = True,
        add_message_metadata: bool = False,
        add_topic_metadata: bool = False,
        authentication_timeout_ms: int = 15_000,
        value_selector: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        *,
        identity: Identity = "key",
        delete_on_none: bool = False,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(on_client_connect_success, on_client_connect_failure)
        require_library("MongoDBSink", "pymongo", "mongodb")
        check_texts("MongoDBSink", host=host, db=db, collection=collection)
        if _NOT_IN_NAMES.search(db) or "$" in collection or "\0" in collection:
            raise ArgumentValueError(f"MongoDBSink got the names {db!r} and {collection!r}: MongoDB cannot take them")
        if username is not None:
            check_texts("MongoDBSink", username=username)
        checked_count("MongoDBSink", "port", port, 1, 65_535)
        checked_function("MongoDBSink", "document_matcher", document_matcher)
        checked_function("MongoDBSink", "value_selector", value_selector, optional=True)
        checked_count("MongoDBSink", "authentication_timeout_ms", authentication_timeout_ms)
        check_flags("MongoDBSink", upsert=upsert, delete_on_none=delete_on_none)
        check_flags("MongoDBSink", add_message_metadata=add_message_metadata, add_topic_metadata=add_topic_metadata)
        checked_choice("MongoDBSink", "update_method", update_method, get_args(UpdateMethod))
        checked_choice("MongoDBSink", "identity", identity, get_args(Identity))
        if identity == "record" and document_matcher is not _by_key:
            raise ArgumentValueError('MongoDBSink takes either a document_matcher or identity="record"')
        if (username is None) != (password is None):
            raise ArgumentValueError("MongoDBSink needs username and password, or neither of them")
        # Connection strings may contain a password.
        self._host = Secret(host)
        found = _ADDRESS.match(host)
        self._target = f"{db}.{collection} of MongoDB at {found[1] if found else f'{host}:{port}'}"
        self._port, self._db, self._collection, self._username = port, db, collection, username
        self._password = Credential.optional(password, "MongoDBSink(password=...)")
        self._matcher, self._method, self._upsert = document_matcher, update_method, upsert
        self._message_metadata, self._topic_metadata = add_message_metadata, add_topic_metadata
        self._timeout_ms = authentication_timeout_ms
        self._selector = value_selector
        self._identity = identity
        self._delete_on_none = delete_on_none
        self._settings = ClientSettings("MongoDBSink", kwargs)
        if not host.startswith("mongodb+srv:"):
            # With this scheme, the client would ask the DNS.
            self._check_settings(kwargs)

    def write(self, batch: SinkBatch) -> None:
        """Write the values of a batch.

        Args:
            batch: the values of one partition.

        Raises:
            SinkBackpressureError: if the server is away or busy.
            SinkError: if a value cannot be written.
        """
        operations = [self._make_operation(batch, identity, item) for identity, item in identified(batch)]
        self._write_chunks(batch, bounded(operations, lambda _: 1, count=_OPERATIONS, total=_OPERATIONS))

    def _make_operation(self, batch: SinkBatch, identity: str, item: SinkItem) -> _Operation:
        from pymongo import DeleteOne, ReplaceOne, UpdateMany, UpdateOne

        found = {"_id": identity} if self._identity == "record" else self._make_filter(batch, item)
        if item.value is None and self._delete_on_none:
            return _Operation(item, found, {}, DeleteOne(found))
        document = self._make_document(batch, item)
        if self._method == "ReplaceOne":
            self._check_names(batch, item, (name for name in document if str(name).startswith("$")))
            return _Operation(item, found, document, ReplaceOne(found, document, upsert=self._upsert))
        # Within $set, such names would be paths and operators.
        self._check_names(batch, item, (name for name in document if str(name).startswith("$") or "." in str(name)))
        update = UpdateOne if self._method == "UpdateOne" else UpdateMany
        return _Operation(item, found, document, update(found, {"$set": document}, upsert=self._upsert))

    def _make_filter(self, batch: SinkBatch, item: SinkItem) -> Mapping[str, Any]:
        if self._matcher is _by_key and item.key is None:
            raise self._make_rejection(batch, item, 'it has no key; give a document_matcher, or identity="record"')
        try:
            found = self._matcher(item)
        except Exception as error:
            reason = f"document_matcher raised {type_name(error)}"
            raise self._make_rejection(batch, item, reason, doing="match a document with") from error
        if not isinstance(found, Mapping):
            raise self._make_rejection(
                batch,
                item,
                f"document_matcher returned {type_name(found)}; let it return a dict",
                doing="match a document with",
            )
        return found

    def _make_document(self, batch: SinkBatch, item: SinkItem) -> dict[str, Any]:
        added = metadata(batch, item, message=self._message_metadata, topic=self._topic_metadata)
        document = {**self._columns_of(batch, item), **added}
        if self._selector is None:
            return document
        try:
            document = self._selector(document)
        except Exception as error:
            reason = f"value_selector raised {type_name(error)}"
            raise self._make_rejection(batch, item, reason, doing="write") from error
        if not isinstance(document, dict):
            raise self._make_rejection(
                batch, item, f"value_selector returned {type_name(document)}; let it return a dict", doing="write"
            )
        return document

    def _check_names(self, batch: SinkBatch, item: SinkItem, refused: Iterable[Any]) -> None:
        for name in refused:
            reason = f"{self._method} cannot take this name; rename the column before the sink"
            raise self._make_rejection(batch, item, reason, part=f"field {name!r} of ")

    def _send_chunk(self, batch: SinkBatch, chunk: list[_Operation]) -> None:
        from bson.errors import BSONError
        from pymongo.errors import BulkWriteError, DocumentTooLarge, PyMongoError

        collection = self._connect_client()
        try:
            collection.bulk_write([operation.request for operation in chunk], ordered=True)
        except BulkWriteError as error:
            raise self._make_refusal(batch, chunk, error.details or {}) from None
        except (BSONError, DocumentTooLarge, OverflowError, UnicodeError, TypeError, ValueError) as error:
            refused = f"the client raises {type_name(error)}"
            raise self._find_unwritable(batch, chunk) or self._make_unusable_error(refused) from None
        except (PyMongoError, OSError) as error:
            self._disconnect()
            # Servers cut connections that bring too much.
            raise self._find_unwritable(batch, chunk) or self._translate_error(error) from None

    def _make_refusal(self, batch: SinkBatch, chunk: list[_Operation], details: Mapping[str, Any]) -> Exception:
        """Return an error for the first write that failed; the server's own text may show values."""
        errors = details.get("writeErrors") or details.get("writeConcernErrors") or [{}]
        code = errors[0].get("code")
        name = errors[0].get("codeName") or "an error"
        if not details.get("writeErrors") or code in _PASSING:
            return PassingError(f"it answers {name} ({code})")
        item = chunk[errors[0]["index"]].item
        fields = ", ".join(errors[0].get("keyPattern") or ())
        return self._make_rejection(batch, item, f"it answers {name} ({code})" + (f" for {fields}" if fields else ""))

    def _find_unwritable(self, batch: SinkBatch, chunk: list[_Operation]) -> SinkError | None:
        """Return an error for the first value that BSON cannot express, or None."""
        import bson

        for item, found, document, _ in chunk:
            for name, part in document.items():
                try:
                    bson.encode({name: part})
                except Exception as error:  # noqa: BLE001 - its text shows the value
                    reason = f"BSON cannot express it ({type_name(error)})"
                    return self._make_rejection(batch, item, reason, part=f"field {name!r} of ")
            try:
                size = len(bson.encode(document)) + len(bson.encode(found))
            except Exception as error:  # noqa: BLE001 - its text shows the value
                return self._make_rejection(batch, item, f"BSON cannot express its filter ({type_name(error)})")
            if size > 16 << 20:
                reason = f"its document has {size} bytes, and MongoDB takes 16 MiB at most"
                return self._make_rejection(batch, item, reason)
        return None

    def _connect_client(self) -> "Collection[dict[str, Any]]":
        from pymongo import WriteConcern
        from pymongo.errors import PyMongoError

        if self._client is None:
            client = self._make_client(None if self._password is None else self._password.reveal(), connect=True)
            try:
                client.admin.command("ping")
            except (PyMongoError, OSError) as error:
                client.close()
                raise self._translate_error(error) from None
            self._keep_client(client)
        concern = self._client.write_concern
        # What only the primary has is lost if it dies.
        return self._client[self._db].get_collection(
            self._collection, write_concern=WriteConcern("majority") if concern.is_server_default else concern
        )

    def _make_client(self, password: str | None, *, connect: bool) -> "pymongo.MongoClient[dict[str, Any]]":
        import pymongo

        host, given = self._host.reveal(), self._settings.reveal()
        settings: dict[str, Any] = {"serverSelectionTimeoutMS": self._timeout_ms, "socketTimeoutMS": 30_000}
        if self._username is not None:
            settings |= {"username": self._username, "password": password}
        return pymongo.MongoClient(host, self._port, connect=connect, **{**settings, **given})

    def _check_settings(self, kwargs: Mapping[str, Any]) -> None:
        from pymongo.errors import InvalidName, PyMongoError

        try:
            with contextlib.closing(self._make_client("unused", connect=False)) as client:
                client[self._db].get_collection(self._collection)
        except InvalidName as error:
            raise ArgumentValueError(f"MongoDBSink cannot write to {self._target}: {error}") from None
        except (PyMongoError, TypeError, ValueError):
            # The text of the error would show values.
            raise self._make_unsupported_error(("host", *kwargs), "pymongo.MongoClient") from None

    def _translate_error(self, error: Exception) -> Exception:
        """Return an error that shows no values."""
        from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

        code = getattr(error, "code", None)
        labelled = isinstance(error, PyMongoError) and error.has_error_label("RetryableWriteError")
        if code in _CREDENTIALS:
            return self._refused_credentials()
        if isinstance(error, ConnectionFailure | OSError) or labelled or code in _PASSING:
            return PassingError(_error_words(error))
        if isinstance(error, OperationFailure):
            name = (error.details or {}).get("codeName") or "an error"
            return self._make_unusable_error(f"it answers {name} ({code})")
        return self._make_unusable_error(f"the client raised {type_name(error)}")


def _error_words(error: Exception) -> str:
    # What follows repeats the settings and the state of the client.
    text = re.split(r" \(configured timeouts|,? ?Timeout: | Topology Description", first_line(error))[0]
    return text.rstrip("., ") or type_name(error)
