"""State queries of a real application, in both modes, from inside and outside. See also `test_state_queries_linear.py`."""

import pytest

from streamrt.control import Client
from streamrt.errors import ApplicationStateError, ArgumentValueError
from streamrt.kafka.partitioner import partition_for
from streamrt.records import TopicPartition
from streamrt.state import State
from tests.support import Kafka, unique, wait_until
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
            # The state of an application that is paused is there, too.
            client.pause(timeout=60)
            assert client.query_state("default", KEYS[0]).get("n") == 2
            client.resume(timeout=60)
            assert client.query_state("default", KEYS[0]).get("n") == 2
    finally:
        app.stop(wait=True)
        close_server(app)
