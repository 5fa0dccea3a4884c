"""Tables in a running application: rows in by a topic and an HTTP stream, rows out to a topic and a queue."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamrt.secret import SecretRef
from streamrt.tables import HTTPSSE, AWSConnection, Catalog, SQSQueue
from tests.command_line import streamrt
from tests.connectors.aws_server import KEY_ID, REGION, SECRET, AWSServer, aws
from tests.connectors.test_server_sent_events import EventServer
from tests.connectors.test_sqs_sink import Reader
from tests.support import MASTER, ROOT, Kafka, RunningProgram, running, unique, wait_until

__all__ = ["aws"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_tables_in_and_out_and_again_in_the_other_mode(
    kafka: Kafka, aws: AWSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AWS_SECRET", SECRET)
    monkeypatch.setenv("TEST_RIDES_TOKEN", "sesame")
    secrets = ("TEST_AWS_SECRET", "TEST_RIDES_TOKEN")
    monkeypatch.setenv("STREAMRT_TABLES_ALLOW", " ".join(f"secret:env:{name}@127.0.0.1" for name in secrets))
    queue, database, group = f"{unique('jobs')}.fifo", unique("city").replace("-", "_"), unique("rides")
    aws.client("sqs").create_queue(QueueName=queue, Attributes={"FifoQueue": "true"})
    reader = Reader(aws, queue)
    with EventServer() as server, Catalog(kafka.address) as catalog:
        catalog.create_database(database)
        secret = SecretRef.env("TEST_AWS_SECRET")
        catalog.add_connection(f"aws-{database}", AWSConnection(REGION, KEY_ID, secret, endpoint_url=aws.url))
        auth = SecretRef.env("TEST_RIDES_TOKEN")
        catalog.create_table(
            f"{database}.rides", "id BIGINT", connector=HTTPSSE(server.http.url, auth=auth), key=["id"]
        )
        catalog.create_table(f"{database}.log", "id BIGINT, day DATE", key=["id"], num_partitions=2)
        catalog.create_table(f"{database}.jobs", "id BIGINT", connector=SQSQueue(queue, f"aws-{database}"), key=["id"])

        def app_in(mode: str) -> None:
            app = kafka.app(group, processing_mode=mode)
            rides = app.dataframe(f"{database}.rides")
            rides.to_table(f"{database}.log")
            rides.to_table(f"{database}.jobs")
            with running(app):
                wait_until(lambda: len(reader.messages()) >= len(server.events), 120, "the messages")

        server.add('{"id": 1}', '{"id": 2}')
        app_in("micro-batch")
        server.add('{"id": 3}')
        app_in("resident")
        assert server.http.requests[-1].headers["last-event-id"] == "2"
        assert sorted(json.loads(message["Body"])["id"] for message in reader.messages()) == [1, 2, 3]
        assert {message["Attributes"]["MessageGroupId"] for message in reader.messages()} == {"1", "2", "3"}
        records = kafka.receive(f"{database}.log", 3, 60)
        assert sorted((one.key, one.value) for one in records) == [
            (b"%d" % number, b'{"id":%d,"day":null}' % number) for number in (1, 2, 3)
        ]
        found = {
            (usage.kind, usage.table)
            for name in ("rides", "log", "jobs")
            for usage in catalog.usages(f"{database}.{name}")
        }
        assert found == {
            ("reads", f"{database}.rides"),
            ("writes", f"{database}.log"),
            ("writes", f"{database}.jobs"),
        }


def test_example_of_endpoints_as_a_program(kafka: Kafka, aws: AWSServer, hosted: Callable[..., RunningProgram]) -> None:
    queue, topic = f"{unique('jobs')}.fifo", "source__city.rides"
    aws.client("sqs").create_queue(QueueName=queue, Attributes={"FifoQueue": "true"})
    reader, path = Reader(aws, queue), ROOT / "examples" / "endpoints_sse.py"
    with EventServer() as server:
        environment = {
            "STREAMRT_BROKER_ADDRESS": kafka.address,
            "STREAMRT_STATE_DIR": str(kafka.state_dir),
            "RIDES_URL": f"{server.http.url}/rides",
            "JOBS_QUEUE": queue,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": aws.url,
        }
        server.first = "retry: 100\n\n: a comment\n\n"
        server.add('{"id": 1}', '{"id": 2}')
        first = hosted(path, **environment)
        wait_until(lambda: kafka.admin.inspect_topics([topic])[topic] is not None, 120, "the topic")
        wait_until(lambda: kafka.end(topic) == 2, 120, "two rows")
        server.drop()
        server.add('{"id": 3}')
        wait_until(lambda: len(reader.messages()) >= 3, 120, "the messages")
        assert first.end()[0] == 0, first.err
        assert [request.headers.get("last-event-id") for request in server.http.requests] == [None, "2"]

        # The application starts again.
        again = hosted(path, **environment)
        wait_until(lambda: len(server.http.requests) == 3 or again.process.poll() is not None, 120, "a connection")
        assert again.end()[0] == 0, again.err
        assert server.http.requests[-1].headers["last-event-id"] == "3"
    assert [(one.key, one.value) for one in kafka.receive_exactly(topic, 3, 60)] == [
        (b"%d" % number, b'{"id":%d}' % number) for number in (1, 2, 3)
    ]
    assert [
        (
            json.loads(message["Body"]),
            message["Attributes"]["MessageGroupId"],
            message["Attributes"]["MessageDeduplicationId"],
        )
        for message in sorted(reader.messages(), key=lambda message: message["Body"])
    ] == [({"id": number}, str(number), f"{topic}/0/{number - 1}/0") for number in (1, 2, 3)]


@pytest.mark.rows("DK-071")
def test_copies_by_a_command(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_CATALOG_DIR", raising=False)
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", kafka.address)
    monkeypatch.setenv("STREAMRT_SPARK_MASTER", MASTER)
    database = unique("copies").replace("-", "_")
    with Catalog(kafka.address) as catalog:
        catalog.create_database(database)
        source = catalog.create_table(f"{database}.orders", "id BIGINT, customer STRING, n INT", num_partitions=2)
        target = catalog.create_table(f"{database}.copies", "customer STRING, id BIGINT", key=["id"], num_partitions=2)

        def copy() -> list[int]:
            done = streamrt(
                *("table", "copy", source.name, target.name, "--column", "id", "--column", "customer"),
                *("--end", "--exactly-once", "--group", database, "--state-dir", tmp_path / "state"),
            )
            assert done.code == 0, done
            return sorted(row["id"] for row in target.scan().rows())

        source.append([[number, "ann", number] for number in range(20)])
        assert copy() == list(range(20))
        # It continues its copy.
        source.append([[20, "bob", 0]])
        assert copy() == list(range(21))
        assert {usage.kind for usage in source.usages()} == {"reads"}
    lacking = streamrt("table", "copy", source.name, target.name, "--end")
    assert f"table {target.name} has no column 'n': name the columns to copy with --column" in lacking.sentence
