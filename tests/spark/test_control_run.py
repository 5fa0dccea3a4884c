"""A real application that is seen and moved by a client, in both modes."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamrt import ApplicationStatus, Offsets
from streamrt.control import Client
from streamrt.errors import ApplicationTimeoutError, ArgumentValueError
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.stats import ApplicationStats
from tests.support import Kafka, wait_until
from tests.unit.played import close_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("processing_mode")]

S = ApplicationStatus
MEBIBYTE = 1 << 20


@pytest.mark.both_modes
def test_an_application_is_controlled_from_outside(kafka: Kafka) -> None:
    source, out = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, [1, 2, 3])
    app = kafka.app(control="0", control_token="sesame", commit_interval=60)
    app.dataframe(app.topic(source)).to_topic(app.topic(out))

    def values(name: str) -> list[float]:
        return [
            sample.value
            for family in text_string_to_metric_families(client.metrics())
            for sample in family.samples
            if sample.name == name
        ]

    def metric(name: str) -> float | None:
        """Return the value of a metric, which has one at most here."""
        found = values(name)
        assert len(found) <= 1
        return found[0] if found else None

    app.start(timeout=180)
    try:
        with Client(str(app.location), "sesame") as client:
            assert client.ready() == (True, [])
            assert kafka.values(out, 3) == [1, 2, 3]
            wait_until(lambda: metric("streamrt_records_total") == 3, what="the records in the metrics")
            # The interval is a minute: only the pause and the checkpoint commit.
            client.pause(timeout=60)
            assert metric("streamrt_position_offset") == 3
            assert metric("streamrt_produced_records_total") == 3
            assert (metric("streamrt_read_bytes_total"), metric("streamrt_produced_bytes_total")) == (12, 12)
            assert (metric("streamrt_commit_duration_seconds_count") or 0) >= 1
            assert (metric("streamrt_rebalances_total") or 0) >= 1
            # One of the workers has worked. The JVM is asked every ten seconds.
            assert any(value > MEBIBYTE for value in values("streamrt_worker_resident_memory_bytes"))
            wait_until(lambda: values("streamrt_jvm_heap_used_bytes"), what="the memory of the JVM in the metrics")
            for name in ("heap_used", "heap_max", "resident_memory"):
                assert (metric(f"streamrt_jvm_{name}_bytes") or 0) > MEBIBYTE
            assert (app.status, client.status, client.desired_status) == (S.PAUSED, S.PAUSED, S.PAUSED)
            # The lag comes from Kafka, which is also asked while the application is paused.
            kafka.produce(source, [4, 5])
            wait_until(lambda: metric("streamrt_lag_offsets") == 2, what="the lag in the metrics")
            assert (metric("streamrt_committed_offset"), metric("streamrt_end_offset")) == (3, 5)
            assert client.checkpoint(timeout=60).status == "success"
            client.resume(timeout=60)
            assert kafka.values(out, 5) == [1, 2, 3, 4, 5]
            made = client.checkpoint(timeout=60)
            assert (made.status, list(made.offsets.values())) == ("success", [5])
            client.wait_for(made.offsets, timeout=60)
            later = Offsets({(source, 0): 6})
            with pytest.raises(ApplicationTimeoutError, match=source):
                client.wait_for(later, timeout=0.2)
            with pytest.raises(ArgumentValueError, match="missing"):
                client.wait_for(Offsets({("missing", 0): 1}))
            stats = client.stats()
            numbers = stats.partitions[TopicPartition(source, 0)]
            assert (numbers.committed, numbers.end, numbers.lag, stats.records, stats.lag) == (5, 5, 0, 5, 0)
            assert stats.status is S.RUNNING
            assert stats.as_dict() == ApplicationStats.of_dict(stats.as_dict()).as_dict()
            assert metric("streamrt_position_offset") == 5
            # What the dashboard draws.
            seconds = client._connection.ask("GET", "/overview").json()["seconds"]
            assert sum(second[2] for second in seconds) == 5
            assert sum(second[1] for second in seconds) >= 2
            wait_until(lambda: metric("streamrt_lag_offsets") == 0, what="the end of the lag")
            client.stop(wait=True, timeout=60)
            assert (app.status, client.status) == (S.STOPPED, S.STOPPED)
            assert kafka.committed(app.config.consumer_group, source) == 5
            assert metric("streamrt_records_total") == 5
            assert metric("streamrt_lag_offsets") is None
    finally:
        app.stop(wait=True)
        close_server(app)
