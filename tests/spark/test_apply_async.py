"""Asynchronous calls on Kafka and Spark: several requests at once to a server, with each result once across a restart."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from streamrt import Application, Retry, message_context
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

AT_ONCE = 3
RECORDS = 30


class Service:
    """Answers numbers by their squares; breaks off each fifth connection at its first request.

    It does not answer before several requests have been open at the same time.
    """

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.open = self.most = self.port = 0
        self.loop = asyncio.new_event_loop()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = int(await reader.readline())
        self.requests[number] += 1
        self.open += 1
        self.most = max(self.most, self.open)
        while self.most < AT_ONCE:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001 * (number % 7))
        self.open -= 1
        if number % 5 or self.requests[number] > 1:
            writer.write(b"%d\n" % number**2)
            await writer.drain()
        writer.close()


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()
    server = service.loop.run_until_complete(asyncio.start_server(service.answer, "127.0.0.1", 0))
    service.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=service.loop.run_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.loop.call_soon_threadsafe(service.loop.stop)
        thread.join(60)
        server.close()
        service.loop.run_until_complete(server.wait_closed())
        service.loop.close()


async def squared(value: Any, *, port: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"%d\n" % value["n"])
        reply = await reader.readline()
    finally:
        writer.close()
    if not reply:
        raise ConnectionError("the server broke off")
    context = message_context()
    return {"n": value["n"], "square": int(reply), "partition": context.partition, "offset": context.offset}


def test_each_result_comes_once_and_in_order(kafka: Kafka) -> None:
    source, results, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("squares")

    def build(port: int) -> Application:
        app = kafka.app(group, processing_guarantee="exactly-once")
        frame = app.dataframe(app.topic(source)).apply_async(
            partial(squared, port=port), timeout=timedelta(seconds=60), capacity=10, retry=Retry(3, on_error=OSError)
        )
        frame.to_topic(app.topic(results))
        return app

    def produce(start: int) -> None:
        for partition in range(2):
            values = [{"n": 1_000 * partition + number} for number in range(start, start + RECORDS)]
            kafka.produce(source, values, key=b"%d" % partition, partition=partition)

    def reached(partition: int, end: int) -> bool:
        return (kafka.committed(group, source, partition) or 0) >= end

    with serving() as service:
        for number in range(2):
            produce(number * RECORDS)
            with running(build(service.port)):
                for partition in range(2):
                    wait_until(partial(reached, partition, (number + 1) * RECORDS), what="the commit of all records")
    found = [json.loads(record.value or b"") for record in kafka.receive_exactly(results, 4 * RECORDS)]
    for partition in range(2):
        own = [value for value in found if value["partition"] == partition]
        assert [value["n"] for value in own] == [1_000 * partition + number for number in range(2 * RECORDS)]
        assert [value["offset"] for value in own] == sorted(value["offset"] for value in own)
    assert all(value["square"] == value["n"] ** 2 for value in found)
    assert AT_ONCE <= service.most <= 20
    assert all(count == (2 if number % 5 == 0 else 1) for number, count in service.requests.items())
