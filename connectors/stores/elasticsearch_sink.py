"""A sink of Elasticsearch."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import first_line
from streamrt.connectors.sinks.batch import SinkItem
from streamrt.connectors.sinks.common import Identity
from streamrt.connectors.stores.search_sink import SearchSink, by_key
from streamrt.errors import ArgumentValueError

__all__ = ["ElasticsearchSink"]


class ElasticsearchSink(SearchSink):
    """Writes values, which must be dicts, as documents of an index of Elasticsearch.

    By default, the id of a document is the key of the record, and a later value replaces the document: each document
    holds its last value, also when records repeat after a crash. Records without a key get new ids, and repeat. With
    `identity="record"`, each value has a document, and is stored once. Needs the extra `elasticsearch`.

    Args:
        url: URL of the server, such as `https://search.example.com:9200`.
        index: name of the index; `setup` makes it if it does not exist.
        mapping: the mapping of an index that `setup` makes. By default, fields are mapped when they first occur.
        document_id_setter: makes the id of the document from a `SinkItem`; None lets Elasticsearch choose one. By default,
            the id is the key.
        batch_size: maximum number of documents in a request, which has about 5 MB at most.
        max_bulk_retries: number of repetitions of a request whose failure may pass.
        ignore_bulk_upload_errors: log documents that Elasticsearch refuses, and continue without them. Otherwise, they end
            the application.
        add_message_metadata: add the fields `__key`, `__timestamp` and `__headers`.
        add_topic_metadata: add the fields `__topic`, `__partition` and `__offset`.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        username: name of the user.
        password: the password, or a function that returns it. The process that connects calls the function. A string
            reaches tasks by a broadcast of Spark.
        api_key: the encoded API key, or a function that returns it, instead of `username` and `password`.
        identity: "key", or "record" for ids of topic, partition, offset and the number of the value within its offset.
        delete_on_none: delete the document if the value is None. Otherwise, None is refused like other values that are not
            dicts.
        kwargs: more settings of `elasticsearch.Elasticsearch`, such as `ca_certs` and `request_timeout`.

    Raises:
        ConfigurationError: if an argument cannot be used, or elasticsearch is not installed.

    Example:
        ```python
        sink = ElasticsearchSink("https://search:9200", "orders", api_key=lambda: os.environ["SEARCH_KEY"])
        sdf.sink(sink)
        ```
    """

    _owner: ClassVar[str] = "ElasticsearchSink"
    _system: ClassVar[str] = "Elasticsearch"
    _library: ClassVar[tuple[str, str]] = ("elasticsearch", "elasticsearch")
    _login_setting: ClassVar[str] = "basic_auth"

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
        api_key: CredentialInput | None = None,
        identity: Identity = "key",
        delete_on_none: bool = False,
        **kwargs: Any,
    ) -> None:
        if api_key is not None and username is not None:
            raise ArgumentValueError("ElasticsearchSink takes either an api_key or username and password")
        self._api_key = Credential.optional(api_key, "ElasticsearchSink(api_key=...)")
        super().__init__(
            url,
            index,
            mapping,
            document_id_setter,
            batch_size,
            max_bulk_retries,
            ignore_bulk_upload_errors,
            add_message_metadata,
            add_topic_metadata,
            on_client_connect_success,
            on_client_connect_failure,
            username=username,
            password=password,
            identity=identity,
            delete_on_none=delete_on_none,
            **kwargs,
        )

    def _make_client(self, login: Mapping[str, Any]) -> Any:
        from elasticsearch import Elasticsearch

        # Requests are repeated by this sink.
        settings = {"max_retries": 0, "request_timeout": 30, **self._settings.reveal(), **login}
        return Elasticsearch(self._url.reveal(), **settings)

    def _login_settings(self, *, checked: bool = False) -> dict[str, Any]:
        login = super()._login_settings(checked=checked)
        return login if self._api_key is None or checked else {**login, "api_key": self._api_key.reveal()}

    @property
    def _renews_credentials(self) -> bool:
        return super()._renews_credentials or (self._api_key is not None and self._api_key.changes)

    def _send_bulk(self, client: Any, lines: bytes) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = client.bulk(operations=lines.splitlines())
        return answer

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        from elasticsearch import ApiError, TransportError

        return (ApiError, TransportError)

    def _describe_failure(self, error: Exception) -> tuple[int | None, str]:
        from elasticsearch import ApiError, UnsupportedProductError

        if isinstance(error, UnsupportedProductError):
            return 0, "it is another product; for OpenSearch, use OpenSearchSink"
        if isinstance(error, ApiError):
            return error.meta.status, f"it answers {error.meta.status} ({str(error.message)[:80]})"
        return None, first_line(error).rstrip(".")
