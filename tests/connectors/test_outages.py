"""A database that goes away in the middle of a run: the application waits, says so, and goes on by itself."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from streamrt.kafka import Producer
from tests.postgres import postgres
from tests.support import LONG, Kafka, RunningProgram, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

OUTAGE_S = 30.0 if LONG else 8.0
PROGRAM = """
from streamrt import Application
from streamrt.connectors import PostgreSQLSink

app = Application(
    {address!r}, consumer_group={group!r}, auto_offset_reset="earliest", spark_master="processes[2]", state_dir={state!r},
    processing_guarantee="exactly-once", processing_mode="resident",
)
sdf = app.dataframe(app.topic({source!r}))
sdf.sink(PostgreSQLSink(**{settings!r}, table_name="orders"))
other = app.dataframe(app.topic({free!r}))
other.to_topic(app.topic({target!r}))
app.run()
"""


def test_an_outage_of_the_database_delays_values_and_loses_none(
    kafka: Kafka, program: Callable[..., RunningProgram], tmp_path: Path
) -> None:
    source, free, target = kafka.topic("in", partitions=2), kafka.topic("free"), kafka.topic("out")
    count = 0

    def produce() -> None:
        nonlocal count
        with Producer(kafka.address) as producer:
            for number in range(count, count + 100):
                for topic in (source, free):
                    producer.produce(topic, json.dumps({"n": number}).encode(), key=b"%d" % number)
        count += 100

    with postgres() as server:

        def written() -> list[int]:
            with psycopg.connect(**server.settings) as connection:
                return [n for (n,) in connection.execute("SELECT n FROM orders ORDER BY n").fetchall()]

        source_code = PROGRAM.format(
            address=kafka.address,
            group=unique("group"),
            state=str(kafka.state_dir),
            source=source,
            free=free,
            target=target,
            settings={**server.settings, "connection_timeout_seconds": 2},
        )
        running = program(source_code)
        produce()
        running.wait_for("processing")
        wait_until(lambda: _there(server.settings) and len(written()) == 100, what="the first values")
        server.stop()
        gone = time.monotonic()
        produce()
        # What does not need the database goes on.
        assert len(kafka.receive(target, 200)) == 200
        running.wait_for("a sink paused")
        delays: list[float] = []
        while time.monotonic() < gone + OUTAGE_S:
            assert running.process.poll() is None, running.err
            sent = time.monotonic()
            kafka.produce(free, [{"n": -1}])
            assert len(kafka.receive(target, 201 + len(delays))) == 201 + len(delays)
            delays.append(time.monotonic() - sent)
        produce()
        server.start()
        back = time.monotonic()
        wait_until(lambda: len(written()) >= 300, what="the values of the outage")
        took = time.monotonic() - back
        assert written() == list(range(300))
        code, _ = running.end()
    middle, longest = sorted(delays)[len(delays) // 2], max(delays)
    print(
        f"{OUTAGE_S:g} s without the database: others wait {middle:.1f} s, at most {longest:.1f} s; back in {took:.1f} s"
    )
    assert code == 0, running.err
    (told, *_) = [line for line in running.err if "a sink paused" in line]
    assert (
        "the sink public.orders: writing to table 'orders' failed, also when it was repeated: OperationalError" in told
    )
    assert server.password not in "".join(running.err)


def _there(settings: dict[str, object]) -> bool:
    with psycopg.connect(**settings) as connection:  # type: ignore[arg-type]
        return bool(connection.execute("SELECT 1 FROM pg_tables WHERE tablename = 'orders'").fetchall())
