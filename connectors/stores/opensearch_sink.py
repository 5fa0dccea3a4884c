"""A sink of OpenSearch."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from streamrt.connectors.stores.search_sink import SearchSink

__all__ = ["OpenSearchSink"]


class OpenSearchSink(SearchSink):
    """Writes values, which must be dicts, as documents of an index of OpenSearch.

    By default, the id of a document is the key of the record, and a later value replaces the document: each document
    holds its last value, also when records repeat after a crash. Records without a key get new ids, and repeat. With
    `identity="record"`, each value has a document, and is stored once. Needs the extra `opensearch`.

    Args:
        url: URL of the server, such as `https://search.example.com:9200`.
        index: name of the index; `setup` makes it if it does not exist.
        mapping: the mapping of an index that `setup` makes. By default, fields are mapped when they first occur.
        document_id_setter: makes the id of the document from a `SinkItem`; None lets OpenSearch choose one. By default, the
            id is the key.
        batch_size: maximum number of documents in a request, which has about 5 MB at most.
        max_bulk_retries: number of repetitions of a request whose failure may pass.
        ignore_bulk_upload_errors: log documents that OpenSearch refuses, and continue without them. Otherwise, they end the
            application.
        add_message_metadata: add the fields `__key`, `__timestamp` and `__headers`.
        add_topic_metadata: add the fields `__topic`, `__partition` and `__offset`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        username: name of the user.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        identity: "key", or "record" for ids of topic, partition, offset and the number of the value within its offset.
        delete_on_none: delete the document if the value is None. Otherwise, None is refused like other values that are not
            dicts.
        kwargs: more settings of `opensearchpy.OpenSearch`, such as `ca_certs` and `timeout`.

    Raises:
        ConfigurationError: if an argument cannot be used, or opensearch-py is not installed.

    Example:
        ```python
        sink = OpenSearchSink("https://search:9200", "orders", username="writer", password=lambda: os.environ["PASSWORD"])
        sdf.sink(sink)
        ```
    """

    _owner: ClassVar[str] = "OpenSearchSink"
    _system: ClassVar[str] = "OpenSearch"
    _library: ClassVar[tuple[str, str]] = ("opensearchpy", "opensearch")
    _login_setting: ClassVar[str] = "http_auth"

    def _make_client(self, login: Mapping[str, Any]) -> Any:
        from opensearchpy import Connection, OpenSearch, Transport, Urllib3HttpConnection

        given = self._settings.reveal()
        if "connection_class" not in given:
            # The client ignores names that it does not know.
            owners = (OpenSearch, Transport, Connection, Urllib3HttpConnection)
            known = {name for owner in owners for name in inspect.signature(owner.__init__).parameters}
            if not given.keys() <= known:
                raise TypeError
        # Requests are repeated by this sink.
        settings = {"max_retries": 0, "timeout": 30, **given, **login}
        return OpenSearch(hosts=[self._url.reveal()], **settings)

    def _send_bulk(self, client: Any, lines: bytes) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = client.bulk(body=lines)
        return answer

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        from opensearchpy.exceptions import OpenSearchException

        return (OpenSearchException,)

    def _describe_failure(self, error: Exception) -> tuple[int | None, str]:
        from opensearchpy.exceptions import ConnectionError as NoConnectionError
        from opensearchpy.exceptions import TransportError

        if isinstance(error, TransportError) and isinstance(error.status_code, int):
            return error.status_code, f"it answers {error.status_code} ({str(error.error)[:80]})"
        if isinstance(error, NoConnectionError):
            return None, f"{type(error).__name__}: {type(error.info).__name__}"
        return 0, f"the client raised {type(error).__name__}"
