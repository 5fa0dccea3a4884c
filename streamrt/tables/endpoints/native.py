"""The clients of other libraries for what a table is in."""

from typing import TYPE_CHECKING, Any

from streamrt.connectors.failures import RequestError
from streamrt.connectors.http.http_settings import HTTPSettings, refusal, request
from streamrt.connectors.libraries import require_library
from streamrt.errors import InvalidOperationError, SourceError
from streamrt.kafka import ConnectionConfig, Consumer, Producer
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.descriptions.connectors import HTTPSSE, SQSQueue
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.endpoints.endpoints import connected, credential, queue_name, sqs_settings

if TYPE_CHECKING:
    import httpx_sse

__all__ = ["consumer_of", "event_source_of", "native_of", "producer_of"]

_OWNER = "Table.native()"
_CONNECT_TIMEOUT_S = 10.0


def native_of(info: TableInfo, home: TableHome) -> Any:
    """Return the client for the system of an external table.

    Args:
        info: the table.
        home: the catalogue.

    Raises:
        InvalidOperationError: if there is none.
        SourceError: if a server refuses.
        ConfigurationError: if a library, a variable or a secret is missing.
    """
    if info.kind != "external":
        raise InvalidOperationError(
            f"table {info.name} is a topic of Kafka: use consumer(group) or producer(), which are clients for it"
        )
    connector = connected(info, home)
    if isinstance(connector, HTTPSSE):
        return event_source_of(connector)
    if isinstance(connector, SQSQueue):
        return _queue_of(info, connector, home)
    raise InvalidOperationError(f"table {info.name} ({info.connector}) has no client of another library")


def event_source_of(
    connector: HTTPSSE, last_event_id: str | None = None, silence: float | None = None
) -> "httpx_sse.EventSource":
    """Open an HTTP stream, and return its events.

    Args:
        connector: the stream, variables resolved.
        last_event_id: id of the event after which it begins.
        silence: seconds after which a server that sends nothing counts as gone; None waits.

    Raises:
        SourceError: if the server cannot be reached, or refuses.
        ConfigurationError: if a library or a secret is missing.
    """
    require_library(_OWNER, "httpx", "http")
    require_library(_OWNER, "httpx_sse", "http")
    import httpx
    import httpx_sse

    settings = HTTPSettings(_OWNER, connector.headers, credential(connector.auth), _CONNECT_TIMEOUT_S, True)
    headers: dict[str, Any] = {**settings.headers(), "Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    # Without a silence: events may come at any time.
    timeout = httpx.Timeout(_CONNECT_TIMEOUT_S, read=silence)
    transport = settings.transport(connector.url)
    try:
        response = request(transport, "GET", connector.url, headers=headers, timeout=timeout, stream=True)
    except RequestError as error:
        raise SourceError(f"the stream of events cannot be opened: {error}") from None
    if response.status_code != 200:
        text = refusal(response, connector.url)
        response.close()
        raise SourceError(f"the stream of events cannot be opened: {text}")
    return httpx_sse.EventSource(response)


def consumer_of(info: TableInfo, home: TableHome, group: str, options: dict[str, Any]) -> Consumer:
    """Return a consumer for the topic of a table.

    Args:
        info: the table.
        home: the catalogue.
        group: its consumer group.
        options: more options of librdkafka, with `_` for `.`.

    Raises:
        InvalidOperationError: if the table is not a topic of Kafka.
    """
    settings = {name.replace("_", "."): value for name, value in options.items()}
    reset = settings.pop("auto.offset.reset", "earliest")
    consumer = Consumer(_table_connection(info, home), group, reset, extra_config=settings)
    consumer.subscribe([info.topic or ""])
    return consumer


def producer_of(info: TableInfo, home: TableHome, options: dict[str, Any]) -> Producer:
    """Return a producer for the cluster of a table.

    Args:
        info: the table.
        home: the catalogue.
        options: more options of librdkafka, with `_` for `.`.

    Raises:
        InvalidOperationError: if the table is not a topic of Kafka.
    """
    settings = {name.replace("_", "."): value for name, value in options.items()}
    return Producer(_table_connection(info, home), extra_config=settings, transactional="transactional.id" in settings)


def _table_connection(info: TableInfo, home: TableHome) -> ConnectionConfig:
    if info.kind == "external":
        raise InvalidOperationError(
            f"table {info.name} ({info.connector}) is not a topic of Kafka: use native(), a client for its system"
        )
    links = home.links
    if not isinstance(links, KafkaLinks):
        raise InvalidOperationError(f"table {info.name} is in memory, where Kafka's clients do not reach it")
    return links.connection


def _queue_of(info: TableInfo, connector: SQSQueue, home: TableHome) -> Any:
    require_library(_OWNER, "boto3", "aws")
    import boto3

    given = sqs_settings(info, connector, home)
    endpoint = given.pop("aws_endpoint_url", None)
    queues = boto3.session.Session(**given).resource("sqs", endpoint_url=endpoint)
    name = queue_name(connector)
    return queues.Queue(name) if "://" in name else queues.get_queue_by_name(QueueName=name)
