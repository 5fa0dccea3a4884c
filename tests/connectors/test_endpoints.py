"""External tables in applications: events of an HTTP stream in, messages of a queue out and in."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import ConfigurationError, InvalidOperationError, SinkError, SourceError
from streamrt.secret import SecretRef
from streamrt.tables.descriptions.connections import AWSConnection
from streamrt.tables.descriptions.connectors import HTTPSSE, SQSQueue
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import MemorySourceStore, SourceRecord
from tests.connectors.aws_server import KEY_ID, REGION, SECRET, AWSServer, aws
from tests.connectors.http_server import Answer
from tests.connectors.sources import Run
from tests.connectors.test_server_sent_events import EventServer
from tests.connectors.test_sqs_sink import Reader
from tests.support import unique
from tests.unit.table_homes import Tables

__all__ = ["aws"]


@pytest.fixture
def server() -> Iterator[EventServer]:
    with EventServer() as running:
        yield running


@pytest.fixture
def tables(aws: AWSServer, monkeypatch: pytest.MonkeyPatch) -> Tables:
    monkeypatch.setenv("TEST_AWS_SECRET", SECRET)
    monkeypatch.setenv("TEST_RIDES_TOKEN", "sesame")
    secret = SecretRef.env("TEST_AWS_SECRET")
    return Tables({"aws": AWSConnection(REGION, KEY_ID, secret, endpoint_url=aws.url)})


def make_app(tables: Tables) -> Application:
    return Application("unused:9092", consumer_group="city", catalog=tables)  # type: ignore[arg-type]


class SourceRun(Run):
    """A run of the source of an application, with the topic that it has there."""

    def __init__(self, app: Application, store: MemorySourceStore | None = None) -> None:
        (process,) = definition_of(app).sources.processes
        super().__init__(process.source, store)
        more = {} if store is None else {"store_partition": self.store}
        self.source.configure(process.topic, self.producer, **more)


def pipe(driver: TopologyTestDriver, records: list[SourceRecord]) -> None:
    for each in records:
        driver.pipe_bytes(each.topic, each.value, key=each.key, headers=each.headers, timestamp=each.timestamp)


def queue_in(aws: AWSServer, *, fifo: bool) -> str:
    name = unique("jobs")
    attributes: dict[str, Any] = {"Attributes": {"FifoQueue": "true"}} if fifo else {}
    aws.client("sqs").create_queue(QueueName=f"{name}.fifo" if fifo else name, **attributes)
    return name


@pytest.mark.rows("DK-098", "DK-099", "DK-100")
def test_events_go_through_a_topic_to_a_queue(
    server: EventServer, tables: Tables, aws: AWSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_RIDES_URL", server.http.url)
    queue = queue_in(aws, fifo=True)
    rides = tables.add(
        "city.rides",
        "id BIGINT NOT NULL, city STRING",
        HTTPSSE("${env:TEST_RIDES_URL}/stream", event="count", auth=SecretRef.env("TEST_RIDES_TOKEN")),
        key=("city", "id"),
    )
    jobs = tables.add("ops.jobs", "id BIGINT, city STRING", SQSQueue(queue, "aws", fifo=True), key=("city",))
    app = make_app(tables)
    app.dataframe(rides).to_table(jobs)
    assert "sesame" not in app.describe()
    server.add('{"id": 1, "city": "Lyon"}', '{"id": 2, "city": "Nice", "more": 1}')
    store = MemorySourceStore()
    with SourceRun(app, store) as run:
        run.has(2)
        server.drop()
        server.add('{"id": 3, "city": "Lyon"}')
        run.has(3)
    assert [(record.topic, record.key, record.value) for record in run.records] == [
        ("source__city.rides", b'["Lyon",1]', b'{"id":1,"city":"Lyon"}'),
        ("source__city.rides", b'["Nice",2]', b'{"id":2,"city":"Nice"}'),
        ("source__city.rides", b'["Lyon",3]', b'{"id":3,"city":"Lyon"}'),
    ]
    assert store.state().get("last_event_id") == "3"
    assert [request.headers.get("last-event-id") for request in server.http.requests] == [None, "2"]
    assert server.http.requests[0].headers["authorization"] == "Bearer sesame"

    # The application starts again.
    again = make_app(tables)
    again.dataframe(rides)
    with SourceRun(again, store) as run_again:
        server.add('{"id": 4, "city": "Nice"}')
        assert run_again.wait_for(1) == [{"id": 4, "city": "Nice"}]
    assert server.http.requests[-1].headers["last-event-id"] == "3"

    driver = TopologyTestDriver(app)
    pipe(driver, run.records)
    messages = Reader(aws, f"{queue}.fifo").messages()
    found = {each["Attributes"]["MessageDeduplicationId"]: each for each in messages}
    assert [
        (json.loads(each["Body"])["id"], each["Attributes"]["MessageGroupId"]) for _, each in sorted(found.items())
    ] == [
        (1, "Lyon"),
        (2, "Nice"),
        (3, "Lyon"),
    ]
    assert sorted(found) == [f"source__city.rides/0/{offset}/0" for offset in range(3)]


def test_messages_are_rows_with_the_key_of_their_columns(tables: Tables, aws: AWSServer) -> None:
    queue = queue_in(aws, fifo=False)
    jobs = tables.add("ops.jobs", "id BIGINT, body STRING", SQSQueue(queue, "aws", wait_time_s=1), key=("id",))
    app = make_app(tables)
    seen: list[Any] = []
    app.dataframe(jobs).update(lambda *record: seen.append(record[:2]), metadata=True)
    client = aws.client("sqs")
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody='{"id": 7, "body": "wash"}')
    client.send_message(QueueUrl=url, MessageBody="no row")
    with SourceRun(app) as run:
        run.has(2)
    row, other = sorted(run.records, key=lambda record: record.value == b"no row")
    assert (other.value, other.key) == (b"no row", None)
    pipe(TopologyTestDriver(app), [row])
    assert seen == [({"id": 7, "body": "wash"}, 7)]


def test_a_row_that_does_not_fit_names_column_and_record(tables: Tables, aws: AWSServer) -> None:
    jobs = tables.add("ops.jobs", "id BIGINT", SQSQueue(queue_in(aws, fifo=False), "aws"))
    app = make_app(tables)
    app.dataframe(app.topic("in")).to_table(jobs)
    with pytest.raises(
        SinkError, match=r"in\[0\] offset 0: the row does not fit table ops\.jobs: column 'id' \(BIGINT\)"
    ):
        TopologyTestDriver(app).pipe("in", {"id": "secret"})


def test_a_stream_that_does_not_resume_asks_for_no_event(server: EventServer, tables: Tables) -> None:
    rides = tables.add("city.rides", "id BIGINT", HTTPSSE(server.http.url, last_event_id=False))
    app = make_app(tables)
    app.dataframe(rides)
    server.add('{"id": 1}')
    store = MemorySourceStore()
    with SourceRun(app, store) as run:
        run.has(1)
        server.drop()
        run.has(2)
    assert {request.headers.get("last-event-id") for request in server.http.requests} == {None}
    assert store.state().get("last_event_id") is None


def test_an_event_that_is_no_row_ends_the_source_with_its_position(server: EventServer, tables: Tables) -> None:
    app = make_app(tables)
    app.dataframe(tables.add("city.rides", "id BIGINT", HTTPSSE(server.http.url)))
    server.add('{"id": 1}', '{"id": "secret"}')
    failure = SourceRun(app, MemorySourceStore()).failure()
    assert "after id '1'" in str(failure)
    assert "secret" not in str(failure)


def test_a_variable_or_secret_that_is_missing_is_named(tables: Tables) -> None:
    app = make_app(tables)
    tables.add("city.rides", "id BIGINT", HTTPSSE("${env:TEST_NOT_SET}/stream"))
    with pytest.raises(ConfigurationError, match="TEST_NOT_SET"):
        app.dataframe("city.rides")


@pytest.mark.rows("DK-014", "DK-015")
def test_clients_of_other_libraries(server: EventServer, tables: Tables, aws: AWSServer) -> None:
    server.add('{"id": 1}')
    auth = SecretRef.env("TEST_RIDES_TOKEN")
    events = tables.add("city.rides", "id BIGINT", HTTPSSE(server.http.url, auth=auth)).native()
    try:
        event = next(each for each in events.iter_sse() if each.data)
    finally:
        events.response.close()
    assert (event.id, event.data) == ("1", '{"id": 1}')
    assert server.http.requests[0].headers["authorization"] == "Bearer sesame"
    name = queue_in(aws, fifo=True)
    queue = tables.add("ops.jobs", "id BIGINT", SQSQueue(name, "aws", fifo=True)).native()
    queue.send_message(MessageBody='{"id": 1}', MessageGroupId="g", MessageDeduplicationId="d")
    (message,) = queue.receive_messages()
    assert message.body == '{"id": 1}'
    with pytest.raises(InvalidOperationError, match=r"use consumer\(group\) or producer\(\)"):
        tables.add("shop.orders", "id BIGINT").native()
    with pytest.raises(InvalidOperationError, match=r"use native\(\)"):
        tables.table("ops.jobs").producer()
    with pytest.raises(InvalidOperationError, match="in memory"):
        tables.table("shop.orders").consumer("readers")
    server.http.answer, server.http.serve = (lambda request: Answer(403)), None
    with pytest.raises(SourceError, match=r"cannot be opened: .*403"):
        tables.table("city.rides").native()


@pytest.mark.rows("DK-047", "DK-048")
def test_a_schema_is_detected_in_events(server: EventServer, tables: Tables) -> None:
    rides = tables.add("city.rides", "id BIGINT, zip STRING", HTTPSSE(server.http.url, event="count"))
    assert rides.detect_schema(timeout=0.2).schema is None
    server.add('{"id": 1, "km": 2.5}', "no row", '{"id": 2}')
    found = rides.detect_schema(limit=3, timeout=60, types=True)
    assert found.schema is not None
    assert found.schema.types == ("BIGINT", "DOUBLE")
    assert (found.new_columns, found.missing_columns, found.skipped) == (["km"], ["zip"], 1)
    with pytest.raises(InvalidOperationError, match="begins now"):
        rides.detect_schema(start="earliest")
    with pytest.raises(InvalidOperationError, match="would take messages"):
        tables.add("ops.jobs", "id BIGINT", SQSQueue("jobs")).detect_schema()
