"""State queries of a real application, in both modes, from inside and outside. See also `test_state_queries_linear.py`."""

import contextlib
import time

import pytest

from streamrt.control import Client
from streamrt.errors import ApplicationStateError, ArgumentValueError, StateUnavailableError, StreamRTError
from streamrt.kafka import Consumer
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.state import State
from tests.support import LONG, Kafka, unique, wait_until
from tests.unit.played import close_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("processing_mode")]

PARTITIONS = 2
KEYS = [b"key-%d" % number for number in range(20)]


def count(value: int, state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    state.set_bytes("raw", b"\xff")
    return number


def test_state_is_queried_from_inside_and_outside(kafka: Kafka) -> None:
    source, group = kafka.topic("in", PARTITIONS), unique("group")
    for partition in range(PARTITIONS):
        for key in KEYS:
            if partition_for(key, PARTITIONS) == partition:
                kafka.produce(source, [1, 2], key=key, partition=partition, timestamp=1_500)
    app = kafka.app(group, control="0", control_token="sesame", processing_guarantee="exactly-once")
    sdf = app.dataframe(app.topic(source))
    sdf.apply(count, stateful=True)
    sdf.tumbling_window(1_000).count().final()
    with pytest.raises(ApplicationStateError, match="has no state to query"):
        app.query_state("default", KEYS[0])
    app.start(timeout=180)
    try:
        with Client(str(app.location), "sesame") as client:
            for key in KEYS:
                wait_until(lambda: app.query_state("default", key).get("n") == 2, what="the count of the key")  # noqa: B023
            place = TopicPartition(source, partition_for(KEYS[0], PARTITIONS))
            records = sum(2 for key in KEYS if partition_for(key, PARTITIONS) == place.partition)
            inside = app.query_state("default", KEYS[0])
            assert inside.position[place] >= records
            assert inside.get("raw") == b"\xff"
            outside = client.query_state("default", KEYS[0])
            assert outside == inside
            assert client.query_state("default", "key-0", "n").entries == inside.entries[:1]
            assert not client.query_state("default", "nobody").found
            # Scans go on where they ended.
            seen: list[bytes] = []
            for partition in range(PARTITIONS):
                cursor: str | None = None
                while True:
                    page = client.scan_state("default", partition, prefix="key-", limit=3, cursor=cursor)
                    seen += [entry.key for entry in page.entries if entry.state_key == "n"]
                    cursor = page.cursor
                    if cursor is None:
                        break
            assert sorted(seen) == sorted(KEYS)
            window = client.query_state("tumbling_window_1000_count", KEYS[0])
            assert [(each.start_ms, each.end_ms, each.value) for each in window.entries] == [(1_000, 2_000, 2)]
            assert not client.query_state("tumbling_window_1000_count", KEYS[0], from_ms=2_000).found
            with pytest.raises(ArgumentValueError, match="has no store 'other'"):
                client.query_state("other", KEYS[0])
            assert {(each.store, each.kind) for each in client.state_stores()} == {
                ("default", "state"),
                ("tumbling_window_1000_count", "windows"),
            }
            # The state of an application that is paused is there as well.
            client.pause(timeout=60)
            assert client.query_state("default", KEYS[0]).get("n") == 2
            client.resume(timeout=60)
            assert client.query_state("default", KEYS[0]).get("n") == 2
    finally:
        app.stop(wait=True)
        close_server(app)


def test_an_instance_that_has_lost_its_place_without_knowing_does_not_answer(
    kafka: Kafka, processing_mode: str
) -> None:
    if processing_mode != "resident" and not LONG:
        pytest.skip("STREAMRT_LONG_TESTS is not set")
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [1, 2], key=KEYS[0])
    # The instance hears nothing from its group for ten seconds.
    options = {"heartbeat.interval.ms": 10_000, "session.timeout.ms": 30_000}
    app = kafka.app(group, consumer_extra_config=options)
    app.dataframe(app.topic(source)).update(count, stateful=True)
    app.start(timeout=180)
    try:
        wait_until(lambda: app.query_state("default", KEYS[0]).get("n") == 2, what="the count")
        (member,) = [each for each in kafka.admin.group_members(group) if each.partitions]
        assert app.query_state("default", KEYS[0]).member == member.member_id
        # Another process takes the place, as the successor of one that is thought to be dead. The id of a static member is
        # its name, and a UUID.
        place = {"group.instance.id": member.member_id[:-37], "partition.assignment.strategy": "range", **options}
        with Consumer(kafka.address, group, "earliest", auto_commit_enable=False, extra_config=place) as successor:
            successor.subscribe([source])
            wait_until(lambda: successor.poll(0.1) is None and successor.assignment(), what="the place")
            taken = time.monotonic()
            with pytest.raises(StateUnavailableError, match="does not confirm that this instance owns"):
                app.query_state("default", KEYS[0], timeout=1.0)
            assert time.monotonic() - taken < 8, "the instance may have heard of it by then"
    finally:
        with contextlib.suppress(StreamRTError):
            app.stop(wait=True, timeout=60)
            app.wait(0)
