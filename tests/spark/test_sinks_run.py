"""Sinks on Spark and a real broker: written by tasks in worker processes, or by the process that called run()."""

import csv
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamrt import Application
from streamrt.connectors import (
    BatchingSink,
    CSVSink,
    DriverSink,
    ListSink,
    LocalFileSink,
    Rolling,
    SinkBatch,
    SparkSink,
)
from streamrt.errors import ConfigurationError, NoProgressError, SinkBackpressureError, SinkError
from tests.spark.stateful import GUARANTEES, count, feed
from tests.support import ONE_MODE, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


class FileSink(BatchingSink):
    """Appends each value to a file of its partition, with the time. Its state is in files: workers are processes.

    Args:
        directory: of the files.
        busy: partition whose first two batches are put off.
        pause_s: for so long.
        broken: while this file is there, nothing can be written.
    """

    def __init__(self, directory: Path, busy: int = -1, pause_s: float = 1.0, broken: Path | None = None) -> None:
        super().__init__()
        self._directory = directory
        self._busy = busy
        self._pause_s = pause_s
        self._broken = broken

    def write(self, batch: SinkBatch) -> None:
        if self._broken is not None and self._broken.exists():
            raise OSError(28, "No space left on device")
        tries = self._directory / "tries"
        if batch.partition == self._busy and (not tries.exists() or tries.stat().st_size < 2):
            with tries.open("a") as file:
                file.write("x")
            raise SinkBackpressureError(retry_after=self._pause_s)
        with (self._directory / f"{batch.partition}").open("a") as file:
            for item in batch:
                file.write(f"{time.time()} {item.key.decode()} {item.value}\n")

    def close(self) -> None:
        (self._directory / "closed").touch()


def written(directory: Path, partition: int) -> list[tuple[float, str, int]]:
    """Return time, key and value of what a `FileSink` wrote for a partition."""
    path = directory / f"{partition}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), key, int(value)) for at, key, value in map(str.split, lines)]


def committed(kafka: Kafka, group: str, topic: str, partitions: int) -> list[int | None]:
    return [kafka.committed(group, topic, number) for number in range(partitions)]


# -- Written by tasks -----------------------------------------------------------------------------------------------


@ONE_MODE
def test_a_csv_file_holds_each_record_once(kafka: Kafka, tmp_path: Path) -> None:
    source, group, path = kafka.topic("in", 2), unique("csv"), tmp_path / "out.csv"

    def run() -> None:
        app = kafka.app(group)
        app.dataframe(app.topic(source)).sink(CSVSink(path, key_serializer=bytes.decode))
        app.run(timeout=0.5)

    for partition in (0, 1):
        kafka.produce(source, [{"n": number, "text": 'a "b",\nc'} for number in range(50)], partition=partition)
    run()
    for partition in (0, 1):
        kafka.produce(source, [{"n": number, "text": ""} for number in range(50, 60)], partition=partition)
    run()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    for name in ("0", "1"):
        own = [row for row in rows if row["partition"] == name]
        assert [int(row["offset"]) for row in own] == list(range(60))
        assert own[7]["value"] == '{"n": 7, "text": "a \\"b\\",\\nc"}'
        assert {(row["key"], row["topic"]) for row in own} == {("key", source)}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_sink_that_wants_a_pause_stalls_its_partition_alone(kafka: Kafka, tmp_path: Path, guarantee: str) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("busy")
    app = kafka.app(group, processing_guarantee=guarantee)
    sdf = app.dataframe(app.topic(source)).apply(count, stateful=True)
    sdf.to_topic(app.topic(target))
    sdf.sink(FileSink(tmp_path, busy=0, pause_s=2.0))
    feed(kafka, source, "aaa", 0)
    with running(app):
        wait_until(lambda: (tmp_path / "tries").exists(), what="the first pause")
        rounds = 0
        while not written(tmp_path, 0):
            feed(kafka, source, "b", 1)
            rounds += 1
            wait_until(lambda: len(written(tmp_path, 1)) == rounds, what="the other partition")  # noqa: B023
            if rounds == 2:
                feed(kafka, source, "aa", 0)
        wait_until(lambda: len(written(tmp_path, 0)) == 5, what="the rest of the stalled partition")
        # A stop waits for some seconds only, which a busy machine may need for a micro-batch.
        ends = [(0, 5), (1, rounds)]
        wait_until(lambda: all(kafka.committed(group, source, number) == end for number, end in ends), what="commits")
    assert [value for _, _, value in written(tmp_path, 0)] == [1, 2, 3, 4, 5], "nothing lost, repeated or reordered"
    assert [value for _, _, value in written(tmp_path, 1)] == list(range(1, rounds + 1))
    resumed = written(tmp_path, 0)[0][0]
    assert sum(at < resumed for at, _, _ in written(tmp_path, 1)) >= 2, "the other partition did not wait"
    assert (tmp_path / "tries").stat().st_size == 2
    stored = [(number, kafka.committed(group, source, number)) for number in (0, 1)]
    assert [end or 0 for _, end in stored] == [5, rounds]
    outputs = [(record.key, record.value) for record in kafka.receive(target, 5 + rounds)]
    expected = [(b"a", b"%d" % n) for n in range(1, 6)] + [(b"b", b"%d" % n) for n in range(1, rounds + 1)]
    if guarantee == "exactly-once":
        assert sorted(outputs) == sorted(expected)
        assert len(kafka.receive(target, 6 + rounds, timeout_s=0.7)) == 5 + rounds, "aborted outputs are not seen"
    else:
        assert set(kafka_all(kafka, target)) == set(expected)


def kafka_all(kafka: Kafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of all records of a topic that was not written by transactions."""
    return [(record.key, record.value) for record in kafka.receive(topic, kafka.end(topic))]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_sink_that_fails_ends_the_application_and_the_same_records_come_again(
    kafka: Kafka, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, group, broken = kafka.topic("in", 2), unique("broken"), tmp_path / "broken"

    def run() -> None:
        app = kafka.app(group, processing_guarantee=guarantee)
        sdf = app.dataframe(app.topic(source)).apply(count, stateful=True)
        sdf.sink(FileSink(tmp_path, broken=broken))
        app.run(timeout=0.5)

    feed(kafka, source, "aa", 0)
    feed(kafka, source, "b", 1)
    run()
    before = committed(kafka, group, source, 2)
    feed(kafka, source, "aa", 0)
    broken.touch()
    for _ in range(2):
        with pytest.raises(SinkError) as caught:
            run()
        message = str(caught.value)
        assert (
            message
            == f"the sink FileSink failed on records of {source}[0]: OSError: [Errno 28] No space left on device"
        )
        assert committed(kafka, group, source, 2) == before
    broken.unlink()
    run()
    values = [value for _, _, value in written(tmp_path, 0)]
    if "was interrupted" in caplog.text:
        # As on a machine that is too busy for a transaction. This sink then writes the same records again.
        values = list(dict.fromkeys(values))
    assert values == [1, 2, 3, 4]
    assert [value for _, _, value in written(tmp_path, 1)] == [1]


@ONE_MODE
def test_a_sink_that_cannot_start_ends_the_application(kafka: Kafka, tmp_path: Path) -> None:
    source, group = kafka.topic("in"), unique("start")
    feed(kafka, source, "a")
    app = kafka.app(group)
    app.dataframe(app.topic(source)).sink(CSVSink(tmp_path / "missing" / "out.csv"))
    with pytest.raises(SinkError, match=r"the sink CSVSink cannot start: .*there is no directory .*create it first"):
        app.run(timeout=1)
    assert kafka.committed(group, source) == 0


def test_a_sink_may_stand_after_group_by_and_end_two_branches(
    kafka: Kafka, tmp_path: Path, processing_mode: str
) -> None:
    source, group = kafka.topic("in", 2), unique("branches")
    for partition in (0, 1):
        kafka.produce(source, [{"who": who} for who in "abab"], partition=partition)
    app = kafka.app(group)
    sdf = app.dataframe(app.topic(source))
    seen = ListSink(metadata=True)
    sdf[sdf["who"] == "a"].sink(seen)
    sdf.apply(lambda value: {"who": value["who"].upper()}).sink(seen)
    counted = sdf.group_by("who", key_serializer="str", key_deserializer="bytes").apply(count, stateful=True)
    counted.sink(FileSink(tmp_path))
    with running(app):
        wait_until(lambda: len(written(tmp_path, 0)) + len(written(tmp_path, 1)) == 8, what="the counts")
        wait_until(lambda: len(seen) == 12, what="both branches")
        assert not (tmp_path / "closed").exists()
    # Spark ends the processes of micro-batches without a word.
    assert (tmp_path / "closed").exists() or processing_mode == "micro-batch"
    # Each record of "a" reaches the sink twice, first by the branch that was defined first.
    for partition in (0, 1):
        rows = [(row["_offset"], row["who"]) for row in seen if row["_partition"] == partition]
        assert rows == [(0, "a"), (0, "A"), (1, "B"), (2, "a"), (2, "A"), (3, "B")]
    found = [(key, value) for number in (0, 1) for _, key, value in written(tmp_path, number)]
    assert sorted(found) == sorted((key, value) for key in "ab" for value in range(1, 5))


# -- Written by the process that called run() -----------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_list_holds_the_values_of_several_runs(kafka: Kafka, guarantee: str) -> None:
    source, group = kafka.topic("in", 2), unique("list")
    plain, full = ListSink(), ListSink(metadata=True)
    app = kafka.app(group, processing_guarantee=guarantee)
    sdf = app.dataframe(app.topic(source, key_deserializer="str"))
    sdf.sink(plain)
    sdf.sink(full)
    kafka.produce(source, [{"n": 1}, {"n": 2}], partition=0, timestamp=1_000, headers=[("h", b"1")])
    kafka.produce(source, [3], partition=1, timestamp=2_000)
    app.run(timeout=0.5)
    assert sorted(plain, key=str) == [3, {"n": 1}, {"n": 2}]
    kafka.produce(source, [{"n": 4}], partition=0)
    app.run(timeout=0.5)
    assert len(plain) == 4
    assert plain[-1] == {"n": 4}
    first = next(row for row in full if row.get("n") == 1)
    assert first == {
        "n": 1,
        "_key": "key",
        "_timestamp": 1_000,
        "_headers": [("h", b"1")],
        "_topic": source,
        "_partition": 0,
        "_offset": 0,
    }
    assert next(row["value"] for row in full if row["_partition"] == 1) == 3


@pytest.mark.only_mode("resident", reason="micro-batches can be Spark DataFrames")
def test_a_sink_that_needs_micro_batches_is_refused(kafka: Kafka) -> None:
    app = kafka.app()
    app.dataframe(app.topic(kafka.topic("in"))).sink(SparkSink(lambda frame: None))
    with pytest.raises(ConfigurationError, match=r"the sink SparkSink .* writes each micro-batch as a Spark DataFrame"):
        app.run(timeout=1)


@pytest.mark.only_mode("micro-batch", reason="Spark DataFrames are made of micro-batches")
def test_spark_writes_parquet(kafka: Kafka, tmp_path: Path) -> None:
    source, group = kafka.topic("in", 2), unique("parquet")
    typed, plain = str(tmp_path / "typed"), str(tmp_path / "plain")

    def app() -> Application:
        made = kafka.app(group)
        sdf = made.dataframe(made.topic(source))
        schema = "sku STRING, price DOUBLE, tags ARRAY<STRING>"
        sdf.sink(SparkSink(lambda frame: frame.write.mode("append").parquet(typed), schema=schema, metadata=True))
        sdf.sink(SparkSink(lambda frame: frame.coalesce(1).write.mode("append").parquet(plain)))
        return made

    values = [{"sku": f"p{number}", "price": number / 4, "tags": ["ü", str(number)]} for number in range(40)]
    kafka.produce(source, values[:20], partition=0, timestamp=1_000, headers=[("h", b"1")])
    kafka.produce(source, values[20:30], partition=1, key=None)
    app().run(timeout=0.5)
    kafka.produce(source, [*values[30:], {"sku": "bare", "extra": 1}], partition=1)
    app().run(timeout=0.5)
    rows = pq.read_table(typed).to_pylist()
    rows.sort(key=lambda row: (row["_partition"], row["_offset"]))
    assert [{name: row[name] for name in ("sku", "price", "tags")} for row in rows] == [
        *values,
        {"sku": "bare", "price": None, "tags": None},
    ]
    assert [(row["_partition"], row["_offset"]) for row in rows] == [(0, n) for n in range(20)] + [
        (1, n) for n in range(21)
    ]
    assert (rows[0]["_topic"], rows[0]["_key"], rows[0]["_timestamp"]) == (source, b"key", 1_000)
    assert rows[0]["_headers"] == '[["h","1"]]'
    assert (rows[20]["_key"], rows[20]["_headers"]) == (None, None)
    assert Counter(row["offset"] for row in pq.read_table(plain).to_pylist()) == Counter([*range(20), *range(21)])


@pytest.mark.only_mode("micro-batch", reason="Spark DataFrames are made of micro-batches")
def test_a_spark_sink_whose_function_fails_ends_the_application(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("spark")
    kafka.produce(source, [{"sku": "a"}])

    def refuse(frame: Any) -> None:
        frame.select("no_such_column").collect()

    app = kafka.app(group)
    app.dataframe(app.topic(source)).sink(SparkSink(refuse))
    with pytest.raises(SinkError) as caught:
        app.run(timeout=1)
    message = str(caught.value)
    assert message.startswith(f"the sink SparkSink failed on records of {source}[0]: ")
    assert "no_such_column" in message
    assert "\n" not in message
    assert kafka.committed(group, source) == 0


class Reluctant(DriverSink):
    """Puts the first batches off."""

    def __init__(self, times: int, pause_s: float) -> None:
        super().__init__()
        self.left = times
        self.pause_s = pause_s
        self.values: list[Any] = []

    def write(self, batch: SinkBatch) -> None:
        if self.left:
            self.left -= 1
            raise SinkBackpressureError(retry_after=self.pause_s)
        self.values += [item.value for item in batch]


def test_a_sink_of_the_driver_gets_its_pause_and_then_the_same_batch(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("reluctant")
    kafka.produce(source, list(range(10)))
    sink = Reluctant(2, 0.3)
    app = kafka.app(group)
    app.dataframe(app.topic(source)).sink(sink)
    app.run(timeout=0.5)
    assert sink.left == 0
    assert sink.values == list(range(10))
    assert kafka.committed(group, source) == 10


def test_an_application_stops_while_a_sink_of_the_driver_pauses(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("stop")
    kafka.produce(source, list(range(10)))
    sink = Reluctant(1, 600)
    app = kafka.app(group)
    app.dataframe(app.topic(source)).sink(sink)
    with running(app):
        wait_until(lambda: sink.left == 0, what="the pause")
    # It does not wait for the end of the pause.
    assert sink.values == []
    assert kafka.committed(group, source) == 0
    app.run(timeout=0.5)
    assert sink.values == list(range(10))


class AwaySink(BatchingSink):
    """Its system is away."""

    def write(self, batch: SinkBatch) -> None:
        raise SinkBackpressureError(retry_after=0.2, reason="it is away")


def test_an_application_that_makes_no_progress_may_end_with_a_sentence(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [1, 2, 3])
    app = kafka.app(unique("stuck"), progress_timeout=3, on_no_progress="fail")
    app.dataframe(app.topic(source)).sink(AwaySink())
    message = rf"{source}\[0\] has 3 unprocessed offsets, and nothing was committed for \d+ s: see the log"
    with pytest.raises(NoProgressError, match=message):
        app.run()
    assert app.error is not None
    assert any(record.levelname == "ERROR" and "3 unprocessed offsets" in record.message for record in caplog.records)


def test_c11_files_that_grow_are_whole_at_the_end(kafka: Kafka, tmp_path: Path) -> None:
    source, group = kafka.topic("in", 2), unique("rolling")
    path = tmp_path / "out"
    for partition in (0, 1):
        kafka.produce(source, [{"n": number} for number in range(300)], partition=partition)

    def run() -> None:
        app = kafka.app(group, processing_guarantee="exactly-once", commit_interval=0.2)
        app.dataframe(app.topic(source)).sink(
            LocalFileSink(path, format="parquet", rolling=Rolling(max_records=250, max_age=3_600))
        )
        app.run(timeout=0.5)

    run()
    kafka.produce(source, [{"n": number} for number in range(300, 320)], partition=0)
    run()
    files = sorted(path.glob("*/*/*.parquet"))
    rows = Counter((file.parent.name, row["n"]) for file in files for row in pq.read_table(file).to_pylist())
    assert rows == Counter([(str(partition), n) for partition in (0, 1) for n in range(320 if partition == 0 else 300)])
    assert len(files) == 5
    assert list(path.glob("_streamrt/parts/*")) == []
