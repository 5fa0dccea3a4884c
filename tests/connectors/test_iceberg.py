"""The Iceberg sink, with a catalog in SQLite and with Glue and S3."""

import datetime
import functools
import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, LongType, NestedField, TimestamptzType

from streamrt import Application
from streamrt.connectors import AWSIcebergConfig, IcebergSink, SinkPosition
from streamrt.connectors.lakes import iceberg_sink as iceberg
from streamrt.connectors.retries import Retries
from streamrt.errors import ConfigurationError, SinkBackpressureError, SinkError, SinkFencedError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import TransactionalSinkConformance, Written
from tests.connectors.lake_values import VALUES, commit_of, written
from tests.connectors.s3_server import KEY_ID, REGION, SECRET_KEY, S3Service, s3_service
from tests.connectors.sql_tables import batch_of
from tests.support import LONG


def rows_in_order(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table in the order of its snapshots."""
    names = {str(field.field_id): field.name for field in table.schema().fields}
    found: list[dict[str, Any]] = []
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in manifest.fetch_manifest_entry(table.io):
                    with table.io.new_input(entry.data_file.file_path).open() as file:
                        rows = pyarrow.parquet.read_table(pyarrow.BufferReader(file.read()))
                    # Names of columns in files are escaped.
                    ids = [field.metadata[b"PARQUET:field_id"].decode() for field in rows.schema]
                    found += rows.rename_columns([names[number] for number in ids]).to_pylist()
    return found


@functools.cache
def catalog_of(properties: frozenset[tuple[str, str]]) -> Any:
    """Return a catalog; making one takes time."""
    return load_catalog("default", **dict(properties))


def table_of(properties: dict[str, str], name: str = "shop.orders") -> Any:
    """Return a table, or None."""
    try:
        return catalog_of(frozenset(properties.items())).load_table(name)
    except (NoSuchNamespaceError, NoSuchTableError):
        return None


def local_catalog(path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/warehouse"}


def test_a_closed_sink_closes_its_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[SqlCatalog] = []
    close = SqlCatalog.close

    def close_and_note(catalog: SqlCatalog) -> None:
        close(catalog)
        closed.append(catalog)

    monkeypatch.setattr(SqlCatalog, "close", close_and_note)
    sink = IcebergSink("shop.orders", catalog_properties=local_catalog(tmp_path))
    for number in (1, 2):
        sink.setup()
        sink.close()
        sink.close()
        assert len(closed) == number


class TestIcebergSink(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "many"}
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.properties = local_catalog(tmp_path)

    def make(self) -> IcebergSink:
        return IcebergSink("shop.orders", catalog_properties=self.properties)

    def written(self) -> list[Written]:
        table = table_of(self.properties)
        return [] if table is None else written(rows_in_order(table))


@pytest.fixture(scope="module")
def aws() -> Iterator[S3Service]:
    with s3_service() as service:
        yield service


def glue(service: S3Service) -> dict[str, str]:
    return {"glue.endpoint": service.url, "s3.endpoint": service.url}


def aws_config(location: str) -> AWSIcebergConfig:
    return AWSIcebergConfig(location, REGION, KEY_ID, SECRET_KEY)


WITH_GLUE = {
    "test_a_closed_sink_writes_again_after_its_next_start",
    "test_all_kinds_of_keys_and_values",
    "test_another_position_than_expected_refuses_the_values",
    "test_the_table_is_at_its_location",
    "test_two_sinks_may_write_to_one_destination",
    "test_values_and_positions_are_written_together",
}
"""Tests that ordinary runs also run with Glue: what goes through the catalog, and to S3."""


class TestIcebergSinkWithGlue(TransactionalSinkConformance):
    values = VALUES
    rejected: ClassVar[Any] = {"n": "many"}
    keys: ClassVar[Any] = (b"key", None)
    many = 100

    @pytest.fixture(autouse=True)
    def place(self, aws: S3Service, request: pytest.FixtureRequest) -> None:
        if not LONG and request.function.__name__ not in WITH_GLUE:
            pytest.skip("TestIcebergSink shows it with another catalog; make test-long shows it with Glue, too")
        self.service, self.name = aws, f"shop.orders_{uuid.uuid4().hex}"
        self.bucket = f"lake-{uuid.uuid4().hex}"
        aws.make_bucket(self.bucket)
        self.config = aws_config(f"s3://{self.bucket}/orders")

    def make(self) -> IcebergSink:
        return IcebergSink(self.name, self.config, "aws_glue", catalog_properties=glue(self.service))

    def written(self) -> list[Written]:
        table = table_of({"type": "glue", **self.config.auth, **glue(self.service)}, self.name)
        return [] if table is None else written(rows_in_order(table))

    def test_the_table_is_at_its_location(self) -> None:
        sink = self.transactional()
        sink.write(self._make_batch(0, 1))
        keys = self.service.keys(self.bucket)
        assert {key.split("/")[0] for key in keys} == {"orders"}


def sink_of(path: Path, **settings: Any) -> IcebergSink:
    sink = IcebergSink(
        **{
            "table_name": "shop.orders",
            "catalog_properties": local_catalog(path),
            "include_metadata": False,
            **settings,
        }
    )
    sink.start()
    return sink


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of(local_catalog(path)).scan().to_arrow().to_pylist()
    return found


def test_columns_are_added_when_they_come(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.write(batch_of({"a": 1, "empty": {}, "none": []}))
    sink.write(batch_of({"a": 2, "b": 1.0}, {"b": 0.5, "s": {"x": 1}}))
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    sink.write(batch_of({"when": when, "s": {"y": [{"z": "text"}]}, "time": when.time(), "bytes": b"\0\xff", "b": 3}))
    sink.write(batch_of({"s": {"x": 2, "y": [{"w": 1}]}}, {}))
    columns = ("a", "b", "s", "when", "time", "bytes")
    assert sorted((tuple(row[name] for name in columns) for row in rows(tmp_path)), key=repr) == sorted(
        [
            (1, None, None, None, None, None),
            (2, 1.0, None, None, None, None),
            (None, 0.5, {"x": 1, "y": None}, None, None, None),
            (None, 3.0, {"x": None, "y": [{"z": "text", "w": None}]}, when, when.time(), b"\0\xff"),
            (None, None, {"x": 2, "y": [{"z": None, "w": 1}]}, None, None, None),
            (None,) * 6,
        ],
        key=repr,
    )
    assert set(rows(tmp_path)[0]) == set(columns)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1], "of type list: rows are made of dicts"),
        ({"n": 0.5}, "of type float, and the column is int64"),
        ({"n": 1 << 70}, "of type int, and the column is int64"),
        ({"o": object()}, "of type object"),
    ],
)
def test_a_value_that_has_no_place_is_named_and_not_shown(tmp_path: Path, value: Any, reason: str) -> None:
    sink = sink_of(tmp_path)
    sink.write(batch_of({"n": 1}))
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 6") as caught:
        sink.write(batch_of({"n": 77}, value, start=5))
    assert reason in str(caught.value)
    assert caught.value.record == ("orders", 0, 6)
    assert str(1 << 70) not in str(caught.value)
    sink.write(batch_of({"n": 2}))
    assert sorted(row["n"] for row in rows(tmp_path)) == [1, 2]


def test_a_table_has_the_schema_and_the_partitions_that_were_asked_for(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "n", LongType(), required=True),
        NestedField(2, "when", TimestamptzType(), required=False),
        NestedField(3, "price", DoubleType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
    sink = sink_of(
        tmp_path, schema=schema, partition_spec=spec, schema_auto_update=False, table_properties={"owner": "shop"}
    )
    days = [datetime.datetime(2026, 1, day, tzinfo=datetime.timezone.utc) for day in (1, 2)]
    sink.write(batch_of(*({"n": 1, "when": day, "price": 1} for day in days)))
    with pytest.raises(
        SinkError, match=r"column 'other' does not exist in table 'shop.orders'.*orders\[0\] at offset 3"
    ):
        sink.write(batch_of({"n": 1, "other": 1}, start=3))
    with pytest.raises(SinkError, match=r"orders\[0\] at offset 4: it is null, and the column is required") as caught:
        sink.write(batch_of({"n": 1}, {"when": None}, start=3))
    assert caught.value.record == ("orders", 0, 4)
    table = table_of(local_catalog(tmp_path))
    assert table.properties["owner"] == "shop"
    assert len(list(table.scan().plan_files())) == 2
    assert sorted(row["when"] for row in rows(tmp_path)) == days


def test_positions_outlive_snapshots(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    position = SinkPosition(5, 1, "a topic id", '{"replay": ["größer"]}')
    sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, position)))
    sink.write(batch_of({"n": 2}))
    table = table_of(local_catalog(tmp_path))
    first = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert len(table_of(local_catalog(tmp_path)).snapshots()) == 1
    assert dict(sink.positions("shop", [("orders", 0), ("orders", 1)])) == {("orders", 0): position}


@pytest.mark.slow
def test_writers_of_one_table_do_not_hinder_each_other(tmp_path: Path) -> None:
    retries = Retries(attempts=20, first_wait_s=0.02)
    sinks = [sink_of(tmp_path, retries=retries) for _ in range(2)]
    problems: list[Exception] = []
    count = 6

    def write(partition: int) -> None:
        before = None
        try:
            for number in range(count):
                after = SinkPosition(number + 1, number + 1)
                value = {"n": number, f"column {partition} {number % 3}": 1}
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
    assert sorted(row["n"] for row in rows(tmp_path)) == sorted([*range(count)] * 2)
    end = SinkPosition(count, count)
    assert dict(sinks[0].positions("shop", [("orders", 0), ("orders", 1)])) == {("orders", 0): end, ("orders", 1): end}


def test_a_zombie_between_its_check_and_its_commit_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink_of(tmp_path).write(batch_of({"n": 0}))
    zombie, successor = sink_of(tmp_path), sink_of(tmp_path)
    commit = iceberg._commit_rows

    def be_suspended_and_commit(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(iceberg, "_commit_rows", commit)
        successor.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
        commit(*arguments, **options)

    monkeypatch.setattr(iceberg, "_commit_rows", be_suspended_and_commit)
    with pytest.raises(SinkFencedError, match=r"another position of orders\[0\]"):
        zombie.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
    assert sorted(row["n"] for row in rows(tmp_path)) == [0, 1]
    # How the library repeats commits of others is as it was.
    assert not [name for name in table_of(local_catalog(tmp_path)).properties if "retry" in name]


def test_an_application_writes_each_value_once(tmp_path: Path) -> None:
    app = Application("unused:9092", consumer_group="shop", processing_guarantee="exactly-once")
    app.dataframe(app.topic("orders")).sink(IcebergSink("shop.orders", catalog_properties=local_catalog(tmp_path)))
    with TopologyTestDriver(app) as driver:
        for number in range(3):
            driver.pipe("orders", {"n": number}, key="a key", timestamp=number)
    found = sorted(rows(tmp_path), key=lambda row: row["n"])
    assert [(row["n"], row["_key"], row["_timestamp"].microsecond) for row in found] == [
        (number, "a key", 1_000 * number) for number in range(3)
    ]


def test_a_catalog_that_is_away_pauses_the_partition_and_loses_nothing() -> None:
    with s3_service() as service:
        # All services of this process have the same buckets.
        service.make_bucket("iceberg-away")
        settings: dict[str, Any] = {
            "table_name": "shop.away",
            "config": aws_config("s3://iceberg-away/orders"),
            "data_catalog_spec": "aws_glue",
            "catalog_properties": lambda: {
                **glue(service),
                "glue.max-retries": "1",
                "s3.connect-timeout": "1",
                "s3.request-timeout": "2",
            },
            "include_metadata": False,
            "retries": Retries(attempts=2, first_wait_s=0.01, retry_after_s=7),
        }
        sink = IcebergSink(**settings)
        sink.start()
        sink.write_transaction([batch_of({"n": 1})], commit_of((0, None, SinkPosition(1, 1))))
        service.stop()
        commit = commit_of((0, SinkPosition(1, 1), SinkPosition(2, 2)))
        with pytest.raises(SinkBackpressureError) as caught:
            sink.write_transaction([batch_of({"n": 2})], commit)
        assert caught.value.retry_after == 7
        assert SECRET_KEY not in str(caught.value)
        with pytest.raises(SinkError, match=r"IcebergSink cannot reach the catalog of table 'shop.away'"):
            IcebergSink(**settings).start()
        service.start()
        sink.write_transaction([batch_of({"n": 2})], commit)
        with pytest.raises(SinkFencedError):
            sink.write_transaction([batch_of({"n": 2})], commit)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    config = aws_config("s3://lake/orders")
    properties = {**local_catalog(tmp_path), "uri": f"postgresql://user:{SECRET_KEY}@127.0.0.1:1/db"}
    sink = IcebergSink("shop.orders", config, catalog_properties=properties)
    assert SECRET_KEY not in f"{config!r} {sink!r}"
    pickled = cloudpickle.dumps(sink)
    assert SECRET_KEY.encode() not in pickled
    again = pickle.loads(pickled)
    assert again.name == "shop.orders"
    with pytest.raises(SinkError) as caught:
        again.start()
    assert SECRET_KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["header.X-Api-Key", "header.Authorization", "s3.access-key-id", "adls.sas-token"])
def test_properties_that_are_masked(name: str) -> None:
    # The library's error names the class.
    properties = {"py-catalog-impl": "sesame.Open", name: "sesame.Open"}
    with pytest.raises(SinkError) as caught:
        IcebergSink("shop.orders", None, catalog_properties=properties).start()
    assert "***" in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"table_name": "orders"}, "with its namespace"),
        ({"table_name": 3}, "with its namespace"),
        ({"config": {}}, "must be an AWSIcebergConfig"),
        ({"data_catalog_spec": "hive"}, "must be 'aws_glue'"),
        ({"catalog_properties": None}, "needs a data_catalog_spec or catalog_properties"),
        ({"catalog_properties": {"a": 1}}, "a dict of strings"),
        ({"table_properties": 3}, "a dict of strings"),
        ({"partition_spec": PartitionSpec()}, "needs a schema of pyiceberg"),
        ({"catalog_name": ""}, "non-empty"),
        ({"name": ""}, "non-empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        IcebergSink(**{"table_name": "shop.orders", "catalog_properties": {"type": "sql"}, **settings})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"aws_s3_uri": "lake/orders"}, "must begin with s3://"),
        ({"aws_s3_uri": 3}, "must be a str"),
        ({"aws_access_key_id": "id"}, "needs both"),
        ({"aws_region": 3}, "must be a str"),
    ],
)
def test_arguments_of_the_config_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=reason):
        AWSIcebergConfig(**{"aws_s3_uri": "s3://lake/orders", **settings})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"IcebergSink needs the package pyiceberg: run .*iceberg"):
        IcebergSink("shop.orders", catalog_properties={})
