"""Scans of tables with a primary key: the current rows, and the log of upserts and deletes."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from streamrt.errors import SchemaError, SerializationError, StaleTokenError
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.reading import current_records, ranges
from streamrt.tables.rows.rows import ChangeType
from streamrt.tables.table import Table
from tests.keyed_tables import CompactingLinks, by_key, customer, keyed_table, put
from tests.table_home import created_again


def sample(partitions: int = 1) -> Table:
    """Return a table: one row updated, one deleted, one as it was written."""
    table = keyed_table(partitions)
    put(table, customer("FR", 1, "ann", 1.5), customer("DE", 2, "bob"), customer("FR", 3, "eve", 3.0))
    put(table, customer("FR", 1, "ann", 2.5), customer("FR", 3, "x"))
    put(table, customer("FR", 3), deletes=True)
    return table


@pytest.mark.rows("FL-171", "FL-172")
@pytest.mark.parametrize("partitions", [1, 3])
def test_current_rows_in_every_form(partitions: int, tmp_path: Path) -> None:
    customers = sample(partitions)
    scan = customers.scan()
    expected = by_key([customer("DE", 2, "bob"), customer("FR", 1, "ann", 2.5)])
    assert by_key(scan.rows()) == by_key(scan) == expected
    assert by_key(record.row for record in scan.records()) == expected
    assert {record.change_type for record in scan.records()} == {ChangeType.INSERT}
    assert by_key(row for each in scan.batches() for row in each.batch.to_pylist()) == expected
    assert by_key(scan.to_arrow().to_pylist()) == expected
    assert scan.to_arrow().schema == customers.schema.arrow
    assert scan.count() == 2
    assert sorted(scan.to_pandas()["id"]) == sorted(scan.to_polars()["id"]) == [1, 2]
    assert scan.to_parquet(tmp_path / "rows.parquet") == 2
    assert by_key(parquet.read_table(tmp_path / "rows.parquet").to_pylist()) == expected


def test_rows_are_in_the_order_of_their_last_records() -> None:
    records = list(sample().scan(["id"]).records())
    assert [(each.offset, each.row, each.key) for each in records] == [
        (1, {"id": 2}, b'["DE",2]'),
        (3, {"id": 1}, b'["FR",1]'),
    ]
    table = sample().scan(["id"], metadata=True).to_arrow()
    assert table.column_names == ["id", "_change_type", "_offset", "_timestamp", "_partition"]
    assert table["_change_type"].to_pylist() == ["+I", "+I"]


@pytest.mark.rows("FL-174")
def test_positions_and_limits() -> None:
    customers = sample()
    assert [row["id"] for row in customers.scan(until={0: 3}).rows()] == [1, 2, 3]
    assert [row["id"] for row in customers.scan(start={0: 3}).rows()] == [1]
    assert [row["id"] for row in customers.scan(limit=1).rows()] == [2]
    assert customers.scan(limit=1).count() == customers.scan(limit=1).to_arrow().num_rows == 1
    assert customers.scan(limit=0).count() == 0
    assert list(customers.scan(limit=0).rows()) == []
    end = customers.scan().end
    put(customers, customer("FR", 9))
    assert [row["id"] for row in customers.scan(start=end).rows()] == [9]


def test_a_limit_leaves_partitions_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    customers = keyed_table(4)
    for partition in range(4):
        put(customers, *(customer("FR", 10 * partition + number) for number in range(3)), partition=partition)
    monkeypatch.setattr(ranges, "_TURN_RECORDS", 3)
    monkeypatch.setattr(current_records, "_BATCH_RECORDS", 2)
    read: set[int] = set()
    original = ranges._find_within

    def noted(partition: TopicPartition, *rest: Any) -> Any:
        read.add(partition.partition)
        return original(partition, *rest)

    monkeypatch.setattr(ranges, "_find_within", noted)
    assert len(list(customers.scan(limit=4).rows())) == 4
    assert read == {0, 1}
    assert customers.scan(partitions=[1, 3]).count() == 6
    assert len(by_key(customers.scan().rows())) == 12


@pytest.mark.rows("FL-160", "FL-162", "FL-163")
def test_the_log_of_upserts_and_deletes() -> None:
    scan = sample().scan(changes=True)
    records = list(scan.records())
    assert [record.change_type.short for record in records] == ["+U", "+U", "+U", "+U", "+U", "-D"]
    assert records[-1].row == customer("FR", 3)
    table = scan.to_arrow()
    assert table["_change_type"].to_pylist() == ["+U", "+U", "+U", "+U", "+U", "-D"]
    assert table.drop_columns(["_change_type"]).to_pylist() == [record.row for record in records]
    assert scan.count() == 6
    assert sample().scan(["score"], changes=True).to_pandas()["score"].isna().sum() == 3


def test_deleted_rows_have_null_in_columns_that_have_no_null() -> None:
    schema = Schema("id BIGINT NOT NULL, n INT NOT NULL, PRIMARY KEY (id)")
    table = keyed_table(schema=schema)
    put(table, {"id": 1, "n": 5})
    put(table, {"id": 1}, deletes=True)
    assert table.scan(changes=True).to_arrow().to_pylist() == [
        {"id": 1, "n": 5, "_change_type": "+U"},
        {"id": 1, "n": None, "_change_type": "-D"},
    ]
    assert [field.nullable for field in table.scan(changes=True).arrow_schema] == [False, True, False]
    assert not table.scan().arrow_schema.field("n").nullable
    assert table.scan(changes=True).to_pandas()["n"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (None, b'{"country":"FR","id":7}', "the record has no key"),
        (None, None, "the record has no key"),
        (b'["FR",7]', b"[]", "must be a JSON object"),
        (b'["FR"]', None, "the key must be a JSON array with 2 values"),
    ],
)
def test_records_that_are_not_rows(key: bytes | None, value: bytes | None, fault: str) -> None:
    customers = sample()
    customers.home.links.sender().produce("customers", value, key, partition=0)
    scan = customers.scan(changes=True)
    for read in (lambda: list(scan.rows()), scan.to_arrow):
        with pytest.raises(
            SerializationError, match=rf"customers\[0\] at offset 6 is not a row of the table: .*{fault}"
        ):
            read()
    skipping = customers.scan(changes=True, on_error="skip")
    assert skipping.to_arrow().num_rows == len(list(skipping.rows())) == 6
    assert skipping.skipped == 1
    if value is not None or key is None:
        with pytest.raises(SerializationError, match=fault):
            customers.scan().to_arrow()
        assert customers.scan(on_error="skip").to_arrow().num_rows == 2


def test_transactions_count_as_a_whole() -> None:
    customers = sample()
    put(customers, customer("FR", 1, "aborted"), customer("IT", 8), abort=True)
    put(customers, customer("DE", 2), deletes=True, abort=True)
    assert by_key(customers.scan().rows()) == by_key([customer("DE", 2, "bob"), customer("FR", 1, "ann", 2.5)])
    put(customers, customer("FR", 1, "committed"), transactional=True)
    assert {row["name"] for row in customers.scan().rows()} == {"bob", "committed"}


def test_a_topic_that_is_created_again() -> None:
    customers = sample()
    scan = customers.scan()
    created_again(customers.home.links, customers)
    with pytest.raises(StaleTokenError):
        scan.to_arrow()
    assert customers.scan().count() == 0


def test_a_column_with_the_name_of_the_change() -> None:
    table = keyed_table(schema=Schema("id BIGINT, _change_type STRING, PRIMARY KEY (id)"))
    with pytest.raises(SchemaError, match="_change_type"):
        table.scan(changes=True)
    assert table.scan().count() == 0


KEYS = st.tuples(st.sampled_from(["", 'q"', "é", "FR"]), st.integers(-2, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("abort"), KEYS, st.integers(0, 3)),
        st.tuples(st.just("compact"), st.none(), st.lists(st.integers(0, 100), max_size=5)),
    ),
    max_size=40,
)


@given(partitions=st.integers(1, 4), steps=STEPS, size=st.integers(1, 5))
def test_a_scan_is_the_last_write_of_each_key(partitions: int, steps: list[Any], size: int) -> None:
    customers = keyed_table(partitions)
    model: dict[Any, dict[str, Any]] = {}
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    for what, key, more in steps:
        if what == "compact":
            links.compact("customers", more)
            continue
        country, number = key
        row = customer(country, number, None if more is None else str(more))
        put(customers, row, deletes=what == "delete", abort=what == "abort")
        if what == "put":
            model[key] = row
        elif what == "delete":
            model.pop(key, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_TURN_RECORDS", size)
        patch.setattr(current_records, "_BATCH_RECORDS", size)
        patch.setattr(ranges, "RECORDS", size)
        scan = customers.scan()
        assert by_key(scan.rows()) == by_key(scan.to_arrow().to_pylist()) == model
        assert scan.count() == len(model)
        folded: dict[Any, dict[str, Any]] = {}
        for record in customers.scan(changes=True).records():
            place = (record.row["country"], record.row["id"])
            if record.change_type is ChangeType.DELETE:
                folded.pop(place, None)
            else:
                folded[place] = record.row
        assert folded == model


def test_arrow_types_of_deleted_keys() -> None:
    schema = Schema("at TIMESTAMP, price DECIMAL(6, 2), d DATE, b BINARY, v ARRAY<INT>, PRIMARY KEY (at, price, d, b)")
    table = keyed_table(schema=schema)
    row = {"at": "2026-01-02T03:04:05", "price": Decimal("1.50"), "d": "2026-02-03", "b": b"\x00\xff", "v": [1, 2]}
    checked = schema.check(row)
    put(table, checked)
    put(table, checked, deletes=True)
    for result in (
        table.scan(changes=True).to_arrow().to_pylist(),
        [r.row for r in table.scan(changes=True).records()],
    ):
        assert [{name: each[name] for name in schema.names} for each in result] == [checked, {**checked, "v": None}]
    assert json.loads(list(table.scan(changes=True).records())[1].key or b"")[1] == "1.50"
    assert isinstance(table.scan(changes=True).to_arrow(), pa.Table)
