"""The Delta sink, on a local directory and on S3."""

import datetime
import decimal
import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import deltalake
import pyarrow
import pyarrow.parquet
import pytest

from streamrt import Application
from streamrt.connectors import DeltaSink, SinkCommit, SinkPosition
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors.lake_values import VALUES, commit_of, written
from tests.connectors.s3_server import KEY_ID, REGION, SECRET_KEY, S3Service, s3_service
from tests.connectors.sql_tables import batch_of


def rows_in_order(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table in the order of its commits."""
    found: list[dict[str, Any]] = []
    for log in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            found += pyarrow.parquet.read_table(path / add["path"]).to_pylist()
    return found


class TestDeltaSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "many"}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "a table"

    def make(self) -> DeltaSink:
        return DeltaSink(self.path)

    def written(self) -> list[Written]:
        return written(rows_in_order(self.path))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Service]:
    with s3_service() as service:
        yield service


def options(service: S3Service, **others: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": service.url,
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "1",
        "retry_timeout": "1s",
        **others,
    }


class TestDeltaSinkOnS3(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "many"}
    keys: ClassVar[Any] = (b"key", None)
    many = 1_000

    @pytest.fixture(autouse=True)
    def place(self, s3: S3Service) -> None:
        self.service, self.bucket = s3, f"lake-{uuid.uuid4().hex}"
        s3.make_bucket(self.bucket)

    def make(self) -> DeltaSink:
        return DeltaSink(f"s3://{self.bucket}/orders", storage_options=options(self.service))

    def written(self) -> list[Written]:
        keys = self.service.keys(self.bucket)
        found: list[dict[str, Any]] = []
        for log in sorted(key for key in keys if key.endswith(".json")):
            for line in self.service.read(self.bucket, log).splitlines():
                if "add" in (action := json.loads(line)):
                    data = self.service.read(self.bucket, f"orders/{action['add']['path']}")
                    found += pyarrow.parquet.read_table(pyarrow.BufferReader(data)).to_pylist()
        return written(found)


def sink_of(path: Path | str, **settings: Any) -> DeltaSink:
    sink = DeltaSink(path, **{"include_metadata": False, **settings})
    sink.start()
    return sink


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def test_columns_are_added_when_they_come(tmp_path: Path) -> None:
    sink, path = sink_of(tmp_path / "t"), tmp_path / "t"
    sink.write(batch_of({"a": 1, "empty": {}, "none": []}))
    sink.write(batch_of({"a": 2, "b": 1.0}, {"b": 0.5, "s": {"x": 1}, "d": decimal.Decimal("1.10")}))
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    sink.write(batch_of({"when": when, "s": {"y": [{"z": "text"}]}, "day": when.date(), "bytes": b"\0\xff", "b": 3}))
    # Without its time zone, a time is one of UTC.
    sink.write(batch_of({"when": when.replace(tzinfo=None), "empty": {}, "none": [], "d": decimal.Decimal(7)}, {}))
    columns = ("a", "b", "s", "d", "when", "day", "bytes")
    assert sorted((tuple(row[name] for name in columns) for row in rows(path)), key=repr) == sorted(
        [
            (1, None, None, None, None, None, None),
            (2, 1.0, None, None, None, None, None),
            (None, 0.5, {"x": 1, "y": None}, decimal.Decimal("1.10"), None, None, None),
            (None, 3.0, {"x": None, "y": [{"z": "text"}]}, None, when, when.date(), b"\0\xff"),
            (None, None, None, decimal.Decimal("7.00"), when, None, None),
            (None,) * 7,
        ],
        key=repr,
    )
    assert set(rows(path)[0]) == set(columns)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "of type NoneType: rows are made of dicts"),
        ({"n": 0.5}, "column 'n' of table .* of type float, and the column is int64"),
        ({"n": True}, "of type bool, and the column is int64"),
        ({"n": 1 << 70}, "of type int, and the column is int64"),
        ({"s": {"x": "text"}}, "of type dict"),
        ({"s": 3}, "of type int, and the column is struct"),
        ({"l": [1, "text"]}, "of type list"),
        ({"o": object()}, "of type object"),
        ({"o": datetime.timedelta(1)}, "of type timedelta"),
        ({"o": {1: 2}}, "of type dict"),
        ({"o": "\ud800"}, "of type str"),
        ({3: 1}, "no usable name of a column"),
        ({"": 1}, "no usable name of a column"),
        ({"N": 1}, "case-insensitive"),
    ],
)
def test_a_value_that_has_no_place_is_named_and_not_shown(tmp_path: Path, value: Any, reason: str) -> None:
    sink = sink_of(tmp_path / "t")
    sink.write(batch_of({"n": 1, "s": {"x": 1}}))
    place = r"orders\[0\] at offset 6"
    with pytest.raises(SinkError, match=reason) as caught:
        sink.write(batch_of({"n": 77}, value, start=5))
    assert caught.match(place)
    assert caught.value.record == ("orders", 0, 6)
    assert caught.value.__cause__ is None
    assert str(1 << 70) not in str(caught.value)
    sink.write(batch_of({"n": 2}))
    assert sorted(row["n"] for row in rows(tmp_path / "t")) == [1, 2]


def test_a_field_with_the_name_of_a_metadata_column_is_refused(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "t", include_metadata=True)
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 0 has the field '_key'") as caught:
        sink.write(batch_of({"_key": 1}))
    assert caught.value.record == ("orders", 0, 0)


def test_without_merging_a_new_column_is_refused(tmp_path: Path) -> None:
    schema = pyarrow.schema(
        [("n", pyarrow.float64()), ("country", pyarrow.string()), ("s", pyarrow.struct([("x", "f8")]))]
    )
    sink = sink_of(tmp_path / "t", schema=schema, schema_mode=None, partition_by="country", name="orders")
    sink.write(batch_of({"n": 1, "country": "de", "other": None}))
    for value in ({"other": 1}, {"s": {"y": 1}}):
        with pytest.raises(SinkError, match=r"orders\[0\] at offset 3") as caught:
            sink.write(batch_of(value, start=3))
        assert caught.value.record == ("orders", 0, 3)
    table = deltalake.DeltaTable(tmp_path / "t")
    assert table.metadata().partition_columns == ["country"]
    assert rows(tmp_path / "t") == [{"n": 1.0, "country": "de", "s": None}]


def test_positions_survive_checkpoints_and_the_cleanup_of_the_log(tmp_path: Path) -> None:
    settings = {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "true"}
    sink = sink_of(tmp_path / "t", configuration=settings)
    position = SinkPosition(5, 1, "a topic id", '{"replay": ["größer"]}')
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, position)))
    sink.write(batch_of({"n": 2}))
    table = deltalake.DeltaTable(tmp_path / "t")
    table.create_checkpoint()
    table.cleanup_metadata()
    for log in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    fresh = sink_of(tmp_path / "t")
    assert dict(fresh.positions("shop", [("orders", 0)])) == {("orders", 0): position}
    later = SinkPosition(9, 2, "a topic id", "x" * 1_000)
    fresh.write_transaction([batch_of({"n": 3})], commit_of((0, position, later)))
    # The text gets shorter, and the offset lower: the topic was deleted and created again.
    again = SinkPosition(2, 3, None, "y")
    sink.write_transaction([batch_of({"n": 4})], commit_of((0, later, again)))
    assert dict(fresh.positions("shop", [("orders", 0), ("orders", 1)])) == {("orders", 0): again}


@pytest.mark.slow
def test_writers_of_one_table_do_not_hinder_each_other(tmp_path: Path) -> None:
    sinks = [sink_of(tmp_path / "t") for _ in range(2)]
    problems: list[Exception] = []
    count = 12

    def write(partition: int) -> None:
        before = None
        try:
            for number in range(count):
                after = SinkPosition(number + 1, number + 1)
                # New columns change the schema below the feet of the other writer.
                value = {"n": number, f"column {partition}.{number % 4}": 1}
                batch = batch_of(value, partition=partition, start=number)
                sinks[partition].write_transaction([batch], commit_of((partition, before, after)))
                before = after
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(partition,)) for partition in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sorted(row["n"] for row in rows(tmp_path / "t")) == sorted([*range(count)] * 2)
    end = SinkPosition(count, count)
    assert dict(sinks[0].positions("shop", [("orders", 0), ("orders", 1)])) == {("orders", 0): end, ("orders", 1): end}


def test_a_zombie_between_its_check_and_its_commit_is_fenced(tmp_path: Path) -> None:
    sink_of(tmp_path / "t").write(batch_of({"n": 0}))
    zombie, successor = sink_of(tmp_path / "t"), sink_of(tmp_path / "t")
    check = zombie._check_table

    def check_and_be_suspended(table: Any, commit: SinkCommit) -> None:
        check(table, commit)
        if successor is not None and not dict(successor.positions("shop", [("orders", 0)])):
            successor.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))

    zombie._check_table = check_and_be_suspended  # type: ignore[method-assign]
    with pytest.raises(SinkFencedError, match=r"another position of orders\[0\]"):
        zombie.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    assert sorted(row["n"] for row in rows(tmp_path / "t")) == [0, 1]


def test_an_application_writes_each_value_once(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    app.dataframe(app.topic("orders")).sink(DeltaSink(tmp_path / "t"))
    with TopologyTestDriver(app) as driver:
        for number in range(3):
            driver.pipe("orders", {"n": number}, key="a key", timestamp=number)
    found = sorted(rows(tmp_path / "t"), key=lambda row: row["n"])
    assert [(row["n"], row["_key"], row["_timestamp"].microsecond) for row in found] == [
        (number, "a key", 1_000 * number) for number in range(3)
    ]


def test_a_service_that_is_away_pauses_the_partition_and_loses_nothing(tmp_path: Path) -> None:
    with s3_service() as service:
        service.make_bucket("delta-away")
        retries = Retries(attempts=2, first_wait_s=0.01, retry_after_s=7)
        sink = sink_of("s3://delta-away/orders", storage_options=options(service), retries=retries)
        sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
        service.stop()
        commit = commit_of((0, SinkPosition(1, 1), SinkPosition(2, 2)))
        with pytest.raises(SinkBackpressureError) as caught:
            sink.write_transaction([batch_of({"n": 2})], commit)
        assert caught.value.retry_after == 7
        assert SECRET_KEY not in str(caught.value)
        with pytest.raises(SinkError, match="DeltaSink cannot reach table 's3://delta-away/orders'"):
            sink_of("s3://delta-away/orders", storage_options=options(service))
        service.start()
        sink.write_transaction([batch_of({"n": 2})], commit)
        with pytest.raises(SinkFencedError):
            sink.write_transaction([batch_of({"n": 2})], commit)


def test_a_bucket_that_does_not_exist_is_named_and_secrets_are_not(s3: S3Service) -> None:
    sink = DeltaSink("s3://nowhere/orders", storage_options=lambda: options(s3))
    with pytest.raises(SinkError, match=r"'s3://nowhere/orders' cannot be written or read.*NoSuchBucket") as caught:
        sink.start()
    assert SECRET_KEY not in str(caught.value)
    plain = DeltaSink("s3://nowhere/orders", storage_options=options(s3))
    for each in (sink, plain):
        assert SECRET_KEY not in repr(each)
        assert SECRET_KEY.encode() not in cloudpickle.dumps(plain)
    again = pickle.loads(cloudpickle.dumps(plain))
    assert again.name == "s3://nowhere/orders"
    with pytest.raises(SinkError, match="NoSuchBucket"):
        again.start()


def test_a_file_in_place_of_the_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="it is not a directory"):
        sink_of(tmp_path / "file")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"table_uri": ""}, "a path or a URL"),
        ({"table_uri": 3}, "a path or a URL"),
        ({"table_uri": "s3://user:password@bucket/t"}, "must not contain credentials"),
        ({"schema_mode": "overwrite"}, "'merge' or None"),
        ({"partition_by": [1]}, "names of columns"),
        ({"schema": "n INT"}, "must be a pyarrow.Schema"),
        ({"storage_options": {"a": 1}}, "a dict of strings"),
        ({"name": ""}, "non-empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        DeltaSink(**{"table_uri": "t", **settings})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"DeltaSink needs the package deltalake: run .*delta"):
        DeltaSink("t")
