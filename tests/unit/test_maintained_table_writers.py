"""Writers of maintained tables send requests."""

import datetime
import decimal
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import Catalog
from streamrt.errors import (
    ArgumentTypeError,
    InvalidOperationError,
    SchemaError,
    SchemaMismatchError,
    TopicConfigurationError,
    TopicNotFoundError,
)
from streamrt.kafka import TopicConfig
from streamrt.records import TopicPartition
from streamrt.tables import MemoryCatalog, SequenceGroups, Table, Versioned
from streamrt.testing.memory_topics import MemoryLinks
from tests.unit.test_maintained_tables import NewTopic

COLUMNS = "id BIGINT, country STRING, name STRING, age INT, must INT NOT NULL, PRIMARY KEY (country, id)"
SIMPLE = "id BIGINT, name STRING, age INT DEFAULT 18, at TIMESTAMP, PRIMARY KEY (id)"


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks) -> Catalog:
    return Catalog(store=MemoryCatalog(), links=links)


def requests(links: MemoryLinks, table: Table) -> list[tuple[str, bytes | None, Any]]:
    """Return what was written to the requests: operation, key, and columns."""
    topic = str(table.info.requests_topic)
    count = links.admin().inspect_topics([topic])[topic]
    assert count is not None
    found = []
    for number in range(count.num_partitions or 1):
        for entry in links._topics[topic].partitions[number].entries:
            if entry.is_marker or (entry.transaction is not None and entry.transaction.aborted):
                continue
            headers = dict(entry.headers or ())
            assert headers["streamrt-schema"] == str(table.info.schema_version).encode()
            op = headers["streamrt-op"]
            assert isinstance(op, bytes)
            found.append((op.decode(), entry.key, None if entry.value is None else orjson.loads(entry.value)))
    return found


def test_whole_rows_and_deletes_are_requests(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", COLUMNS, maintained=True)
    with people.writer() as writer:
        result = writer.upsert({"id": 1, "country": "FR", "must": 5})
        writer.upsert([2, "DE", "Bob", 30, 6])
        writer.delete(("FR", 1))
        token = writer.flush()
    assert result.wait().topic == "default.people.requests"
    assert token.partition_map("default.people.requests") == {0: 3}
    whole = {"id": 1, "country": "FR", "name": None, "age": None, "must": 5}
    assert requests(links, people) == [
        ("u", b'["FR",1]', whole),
        ("u", b'["DE",2]', {"id": 2, "country": "DE", "name": "Bob", "age": 30, "must": 6}),
        ("d", b'["FR",1]', None),
    ]
    assert list(people.scan().rows()) == []


@pytest.mark.rows("FL-065", "FL-066")
@pytest.mark.parametrize("columns", [["id", "age"], [0, 2]])
def test_columns_of_a_writer(catalog: Catalog, links: MemoryLinks, columns: list[Any]) -> None:
    people = catalog.create_table("people", SIMPLE, maintained=True)
    with people.writer(columns=columns) as writer:
        assert writer.schema.names == ("id", "age")
        writer.upsert({"id": 1, "age": 27})
        writer.upsert([2, None])
        writer.upsert({"id": 3})
        writer.delete(1)
        writer.delete({"id": 2, "age": 5})
    assert requests(links, people) == [
        ("u", b"1", {"id": 1, "age": 27}),
        ("u", b"2", {"id": 2, "age": None}),
        ("u", b"3", {"id": 3, "age": 18}),
        ("d", b"1", {"id": 1, "age": None}),
        ("d", b"2", {"id": 2, "age": None}),
    ]


@pytest.mark.rows("FL-165", "FL-166")
def test_what_cannot_count_is_refused(catalog: Catalog) -> None:
    people = catalog.create_table("people", COLUMNS, maintained=True)
    for columns, message in (
        (["country", "must"], "leaves out the column 'id' of table 'default.people', which is in the primary key"),
        (
            ["id", "country"],
            "leaves out the column 'must' of table 'default.people', which must not be null and has no",
        ),
        (["id", "country", "must", "gone"], "there is no column 'gone'"),
        ([0, 1, 4, 9], "9"),
    ):
        with pytest.raises(SchemaError, match=message):
            people.writer(columns=columns)
    with pytest.raises(ArgumentTypeError, match="must be a list of names or numbers"):
        people.writer(columns="id")
    with people.writer(columns=["id", "country", "must"]) as writer:
        with pytest.raises(
            InvalidOperationError, match=r"would set the column 'must' .* to null, which must not be null"
        ):
            writer.delete(("FR", 1))
        with pytest.raises(SchemaMismatchError, match=r"column 'must' must not be null|'must' .*is missing"):
            writer.upsert({"id": 1, "country": "FR"})
        with pytest.raises(SchemaMismatchError, match="'name'"):
            writer.upsert({"id": 1, "country": "FR", "must": 1, "name": "Ann"})
        with pytest.raises(InvalidOperationError, match="rows are not appended"):
            writer.append([1, "FR", 2])
    newer = catalog.create_table("newer", SIMPLE, merge=Versioned("at"))
    with pytest.raises(SchemaError, match=r"'at' of table 'default.newer', which says which row is newer"):
        newer.writer(columns=["id", "name"])
    groups = catalog.create_table("groups", SIMPLE, merge=SequenceGroups({"at": ["name"]}))
    with pytest.raises(SchemaError, match="says whether column 'name' is newer: without it, that would never count"):
        groups.writer(columns=["id", "name"])
    groups.writer(columns=["id", "age"]).close()


@pytest.mark.rows("FL-169")
def test_tables_that_refuse_deletes(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", SIMPLE, deletes="refuse")
    with people.writer() as writer:
        for delete in (
            lambda: writer.delete(1),
            lambda: writer.delete_rows([1, 2]),
            lambda: writer.write([{"upsert": {"id": 1}}, {"delete": 1}]),
            lambda: writer.write(pa.table({"id": [1], "_change_type": ["-D"]})),
        ):
            with pytest.raises(InvalidOperationError, match="refuses deletes: it was created with deletes='refuse'"):
                delete()
    assert requests(links, people) == []
    ignoring = catalog.create_table("ignoring", SIMPLE, deletes="ignore")
    ignoring.delete([1])
    assert requests(links, ignoring) == [("d", b"1", None)]


def test_frames_and_changes_are_requests(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", SIMPLE, maintained=True)
    frame = pa.table({"id": [1, 2, 3], "age": [10, 20, 30]})
    with people.writer(columns=["id", "age"]) as writer:
        assert len(writer.upsert_rows(frame)) == 3
        writer.upsert_rows(pd.DataFrame({"id": [4], "age": [40]}))
        writer.delete_rows([1, (2,)])
        writer.write(frame.append_column("_change_type", [["+I", "-U", "-D"]]))
        writer.write([{"update": {"id": 5, "age": 1}}, {"delete": 5}])
    assert requests(links, people) == [
        ("u", b"1", {"id": 1, "age": 10}),
        ("u", b"2", {"id": 2, "age": 20}),
        ("u", b"3", {"id": 3, "age": 30}),
        ("u", b"4", {"id": 4, "age": 40}),
        ("d", b"1", {"id": 1, "age": None}),
        ("d", b"2", {"id": 2, "age": None}),
        ("u", b"1", {"id": 1, "age": 10}),
        ("d", b"3", {"id": 3, "age": None}),
        ("u", b"5", {"id": 5, "age": 1}),
        ("d", b"5", {"id": 5, "age": None}),
    ]


def test_updates_of_some_columns(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", "id BIGINT, name STRING, at BIGINT, PRIMARY KEY (id)", maintained=True)
    with people.writer() as writer:
        writer.write(
            [{"insert": [1, "Ann", 5]}, {"update": {"name": "Anna", "id": 1}}, {"delete": 1}, {"update": [2, "", 3]}]
        )
        with pytest.raises(SchemaMismatchError, match=r"row 1: an update leaves out the column 'id' .* primary key"):
            writer.write([{"delete": 1}, {"update": {"name": "x"}}])
        with pytest.raises(SchemaMismatchError, match=r"row 0: .*'other'"):
            writer.write([{"update": {"id": 1, "other": "x"}}])
    assert requests(links, people) == [
        ("u", b"1", {"id": 1, "name": "Ann", "at": 5}),
        ("u", b"1", {"id": 1, "name": "Anna"}),
        ("d", b"1", None),
        ("u", b"2", {"id": 2, "name": "", "at": 3}),
    ]


def test_event_times_of_requests(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", SIMPLE, time="at", maintained=True)
    at = datetime.datetime(2026, 1, 1)
    with people.writer() as writer:
        first = writer.upsert({"id": 1, "at": at})
        second = writer.delete(1)
        writer.write([{"update": {"id": 1, "at": at}}, {"update": {"id": 1, "name": "x"}}])
    assert first.wait().timestamp == 1_767_225_600_000
    assert second.wait().timestamp > 1_767_225_600_000
    entries = links._topics["default.people.requests"].partitions[0].entries
    assert [each.timestamp == 1_767_225_600_000 for each in entries] == [True, False, True, False]


def test_transactions_of_requests(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", SIMPLE, maintained=True)
    with people.writer(columns=["id", "name"], id="loader") as writer:
        writer.upsert([1, "Ann"])
        assert writer.checkpoint("one").partition_map("default.people.requests") == {0: 1}
        writer.upsert([2, "Bob"])
    with people.writer(id="loader") as writer:
        assert writer.state == "one"
    assert requests(links, people) == [("u", b"1", {"id": 1, "name": "Ann"})]


def test_numbers_that_json_does_not_have(catalog: Catalog, links: MemoryLinks) -> None:
    points = catalog.create_table("points", "id BIGINT, x DOUBLE, PRIMARY KEY (id)", format="avro", maintained=True)
    with points.writer() as writer:
        writer.upsert([1, float("nan")])
    assert requests(links, points) == [("u", b"1", {"id": 1, "x": "NaN"})]


def test_topics_that_do_not_fit(catalog: Catalog, links: MemoryLinks) -> None:
    people = catalog.create_table("people", SIMPLE, maintained=True, num_partitions=2)
    links.admin().delete_topics(["default.people.requests"])
    with pytest.raises(
        TopicNotFoundError, match=r"topic 'default.people.requests' of table 'default.people' does not exist"
    ):
        people.writer()
    links.admin().create_topics([NewTopic("default.people.requests", TopicConfig(1, 1, {"retention.ms": "-1"}))])
    with pytest.raises(TopicConfigurationError, match=r"has 1 partitions, and topic default.people of table"):
        people.writer()


def test_logs_of_changes_are_written_by_applications(catalog: Catalog) -> None:
    catalog.create_table("people", SIMPLE, changelog=True)
    with pytest.raises(
        InvalidOperationError, match=r"is written by the application that maintains table 'default.people'"
    ):
        catalog.table("people$changelog").writer()


_VALUES = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "country": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "price": st.none() | st.decimals(-1000, 1000, places=2),
    "at": st.none() | st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1)),
    "raw": st.none() | st.binary(max_size=4),
    "tags": st.none() | st.lists(st.text("ab", max_size=2), max_size=3),
}
_WIDE = "id BIGINT, country STRING, name STRING, price DECIMAL(10, 2), at TIMESTAMP, raw BINARY, tags ARRAY<STRING>"


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, dict[str, Any]]]]:
    others = draw(st.lists(st.sampled_from(["name", "price", "at", "raw", "tags"]), unique=True))
    columns = draw(st.permutations(["id", "country", *others]))
    row = st.fixed_dictionaries({name: _VALUES[name] for name in columns})
    return list(columns), draw(st.lists(st.tuples(st.sampled_from(["upsert", "delete"]), row), max_size=20))


@settings(max_examples=40, deadline=None)
@given(programs(), st.booleans())
def test_requests_have_what_was_given(
    program: tuple[list[str], list[tuple[str, dict[str, Any]]]], in_batches: bool
) -> None:
    columns, changes = program
    links = MemoryLinks()
    catalog = Catalog(store=MemoryCatalog(), links=links)
    table = catalog.create_table("t", f"{_WIDE}, PRIMARY KEY (country, id)", maintained=True)
    with table.writer(columns=columns) as writer:
        if in_batches:
            writer.write([{op: row} for op, row in changes])
        else:
            for op, row in changes:
                getattr(writer, op)(row)
    is_partial = len(columns) < len(table.schema)
    expected = []
    for op, row in changes:
        key = orjson.dumps([row["country"], row["id"]])
        given_columns = {
            name: _as_json(row[name]) if op == "upsert" or name in ("id", "country") else None for name in columns
        }
        expected.append((op[0], key, given_columns if op == "upsert" or is_partial else None))
    assert requests(links, table) == expected
    bounds = links.admin().offset_bounds([TopicPartition("default.t", 0)])
    assert set(bounds.values()) == {(0, 0)}


def _as_json(value: Any) -> Any:
    import base64

    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value.quantize(decimal.Decimal("0.01")), "f")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
