"""Writers of tables with a primary key: upserts, deletes and changes in all forms, and what is refused."""

import datetime
import decimal
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamrt import Application
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
    ProducerError,
    SchemaError,
    SchemaMismatchError,
    SerializationError,
)
from streamrt.kafka.partitioner import partition_for
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import committed_records, create, table_info
from tests.unit.test_table_writer_records import add_partitions

Record = tuple[bytes | None, Any]

COLUMNS = "id BIGINT, country STRING, name STRING, score DOUBLE, PRIMARY KEY (country, id)"


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


def keyed(links: MemoryLinks, columns: str, **arguments: Any) -> Table:
    catalog = Catalog(store=MemoryCatalog(), links=links)
    return catalog.create_table("t", columns, **arguments)


def records(links: MemoryLinks, table: Table) -> list[Record]:
    """Return keys, and rows as JSON has them, by partition."""
    return [(key, value and json.loads(value)) for _, key, value, _ in committed_records(links, table)]


@pytest.fixture
def names(links: MemoryLinks) -> Table:
    return keyed(links, "id BIGINT, name STRING, PRIMARY KEY (id)")


@pytest.fixture
def people(links: MemoryLinks) -> Table:
    return keyed(links, COLUMNS, num_partitions=3)


def row(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name}


@pytest.mark.rows("FL-052", "FL-067", "FL-075", "FL-076", "FL-077", "FL-078", "FE-060", "FE-061")
def test_rows_are_upserted_and_deleted(links: MemoryLinks, names: Table) -> None:
    with names.writer() as writer:
        first = writer.upsert({"id": 1, "name": "Ann"})
        writer.upsert([2, "Bob"])
        writer.upsert((1, "Anna"))
        last = writer.delete(2)
        token = writer.flush()
        assert last.wait(timeout=10).offset == 3
        assert first.wait(timeout=10).offset == 0
    assert token.partition_map("default.t") == {0: 4}
    assert last.token == token
    assert records(links, names) == [
        (b"1", row(1, "Ann")),
        (b"2", row(2, "Bob")),
        (b"1", row(1, "Anna")),
        (b"2", None),
    ]


def test_short_forms(links: MemoryLinks, names: Table) -> None:
    assert names.upsert([row(1, "a"), [2, None]]).partition_map("default.t") == {0: 2}
    assert names.upsert({"id": 3}).partition_map("default.t") == {0: 3}
    assert names.upsert(pd.DataFrame({"id": [4]})).partition_map("default.t") == {0: 4}
    assert names.delete([1, {"id": 2}, (3,)]).partition_map("default.t") == {0: 7}
    assert names.delete({"id": 4}).partition_map("default.t") == {0: 8}
    assert [key for key, value in records(links, names) if value is None] == [b"1", b"2", b"3", b"4"]


@pytest.mark.rows("FL-171", "FL-079")
@pytest.mark.parametrize(
    "key",
    [
        {"country": "FR", "id": 7},
        {"id": 7, "country": "FR"},
        {"score": 1.0, "id": 7, "name": None, "country": "FR"},
        ("FR", 7),
        ["FR", 7],
    ],
)
def test_keys_of_several_columns(links: MemoryLinks, people: Table, key: Any) -> None:
    with people.writer() as writer:
        writer.upsert({"id": 7, "country": "FR", "name": "Ann"})
        assert writer.delete(key).wait(10).partition == partition_for(b'["FR",7]', 3)
        writer.write([{"delete": key}])
        writer.delete_rows([key])
    assert [key for key, _ in records(links, people)] == [b'["FR",7]'] * 4


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (7, r"a key has 2 columns \(country, id\), so it must be a mapping, a list or a tuple, not int"),
        ("secret", r"a key has 2 columns \(country, id\), so it must be a mapping, a list or a tuple, not str"),
        (("FR",), r"a key must have a value for each column of the primary key \(country, id\), got 1"),
        (("FR", 7, "Ann"), r"a key must have a value for each column of the primary key \(country, id\), got 3"),
        (("FR", None), r"column 'id' \(BIGINT\) must be not null"),
        (("FR", "secret"), r"column 'id' \(BIGINT\) must be an integer"),
        ({"id": 7}, r"column 'country' is in the primary key, and is missing"),
        (
            {"id": 7, "country": "FR", "name": "Ann"},
            r"column 'name' is not in the primary key \(country, id\): give these columns, or all of the row",
        ),
        ({"id": 7, "country": "FR", "nam": "secret"}, r"column 'nam' is not in the primary key"),
    ],
)
def test_what_is_no_key(links: MemoryLinks, people: Table, key: Any, why: str) -> None:
    with people.writer() as writer:
        with pytest.raises(SchemaMismatchError, match=rf"^{why}.* \(table 'default.t'\)$") as error:
            writer.delete(key)
        with pytest.raises(SchemaMismatchError, match=rf"^row 1: {why}"):
            writer.delete_rows([("FR", 1), key])
        with pytest.raises(SchemaMismatchError, match=rf"^row 2: {why}"):
            writer.write([{"insert": [1, "FR", None, None]}, {"delete": ("FR", 1)}, {"delete": key}])
        assert "secret" not in str(error.value)
    assert records(links, people) == []


@pytest.mark.rows("FL-075")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"id": None, "country": "FR"}, r"column 'id' \(BIGINT\) must be not null"),
        ({"country": "FR"}, r"column 'id' is missing, and it must not be null"),
        ([1, "FR"], r"2 values for 4 columns"),
        ({"id": 1, "country": "FR", "nam": "x"}, r"there is no column 'nam'; the columns are id, country, name, score"),
        ({"id": 1, "country": 7}, r"column 'country' \(STRING\) must be a text"),
    ],
)
def test_rows_that_do_not_fit(links: MemoryLinks, people: Table, wrong: Any, why: str) -> None:
    good = {"id": 1, "country": "FR"}
    with people.writer() as writer:
        with pytest.raises(SchemaMismatchError, match=rf"^{why} \(table 'default.t'\)$"):
            writer.upsert(wrong)
        for count in (1, 20):
            with pytest.raises(SchemaMismatchError, match=rf"^row {count}: {why}"):
                writer.upsert_rows([good] * count + [wrong])
        with pytest.raises(SchemaMismatchError, match=rf"^row 2: {why}"):
            writer.write([{"insert": good}, {"delete": good | {"name": None, "score": None}}, {"upsert": wrong}])
        assert not writer.flush()
    assert records(links, people) == []


@pytest.mark.rows("FL-052", "FE-061")
def test_methods_of_the_other_kind(links: MemoryLinks, names: Table) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda writer: writer.append([1, "a"]),
        lambda writer: writer.append_rows([[1, "a"]]),
        lambda writer: writer.append_arrow(pa.table({"id": [1]})),
    ]
    with names.writer() as writer:
        for call in calls:
            with pytest.raises(
                InvalidOperationError, match=r"^table 'default.t' has a primary key \(id\).*: upsert\(\)"
            ):
                call(writer)
    with pytest.raises(InvalidOperationError, match=r"has a primary key"):
        names.append([[1, "a"]])
    log = create(links, table_info("id INT", "demo.events"))
    with log.writer() as writer:
        for method in ("upsert", "upsert_rows"):
            with pytest.raises(
                InvalidOperationError, match=r"^a log table has no upserts, and 'demo.events' is one: append"
            ):
                getattr(writer, method)([1])
        for method in ("delete", "delete_rows"):
            with pytest.raises(
                InvalidOperationError, match=r"^a log table has no deletes, and 'demo.events' is one: ret"
            ):
                getattr(writer, method)([1])
    for method in ("upsert", "delete"):
        with pytest.raises(InvalidOperationError, match=rf"^a log table has no {method}s"):
            getattr(log, method)([1])
    assert records(links, names) == []


@pytest.mark.rows("FL-065", "FL-066")
def test_columns_of_a_writer(links: MemoryLinks, people: Table) -> None:
    with people.writer(columns=["score", 0, "name", "country"]) as writer:
        writer.upsert([0.5, 1, "Ann", "FR"])
        writer.delete(("FR", 1))
    assert records(links, people) == [
        (b'["FR",1]', {"id": 1, "country": "FR", "name": "Ann", "score": 0.5}),
        (b'["FR",1]', None),
    ]
    with pytest.raises(InvalidOperationError, match=r"leaves out the column 'score' .* with maintained=True"):
        people.writer(columns=["country", "id", "name"])
    with pytest.raises(SchemaError, match=r"leaves out the column 'id' of table 'default.t', which must not be null"):
        people.writer(columns=["country", "name"])


@pytest.mark.rows("FE-072")
def test_rows_of_a_key_stay_in_order(links: MemoryLinks, names: Table) -> None:
    for value in (False, "false", "False"):
        with pytest.raises(ConfigurationError, match=r"enable.idempotence=false .* could replace a newer one"):
            names.writer(options={"enable.idempotence": value})
    names.writer(options={"enable.idempotence": "true"}).close()
    create(links, table_info("id INT")).writer(options={"enable.idempotence": False}).close()


class TestChanges:
    """`writer.write`."""

    def test_lists(self, links: MemoryLinks, names: Table) -> None:
        with names.writer() as writer:
            result = writer.write(
                [
                    {"insert": row(1, "a")},
                    {"delete": 1},
                    {"update": [1, "b"]},
                    {"upsert": {"id": 2}},
                    {"delete": row(2, "x")},
                    {"update": row(3, None)},
                ]
            )
            assert result.wait(10).partition_map("default.t") == {0: 6}
            assert len(result) == 6
            writer.write([{"delete": 3}])
            writer.write([])
        assert [value for _, value in records(links, names)] == [
            *(row(1, "a"), None, row(1, "b"), row(2, None), None, row(3, None), None)
        ]

    @pytest.mark.parametrize(
        ("change", "kind", "why"),
        [
            (
                {"replace": [1, "a"]},
                ArgumentValueError,
                r"change 1 must be an insert, update, upsert or delete, got 'rep",
            ),
            ({"insert": [1, "a"], "delete": 1}, ArgumentTypeError, r"change 1 must be a mapping with one key"),
            ({"update": {"id": 1}}, SchemaMismatchError, r"row 1: an update must give all columns, and column 'name'"),
            ({"insert": ["x", "a"]}, SchemaMismatchError, r"row 1: column 'id'"),
            ({"delete": "x"}, SchemaMismatchError, r"row 1: column 'id'"),
        ],
    )
    def test_what_is_refused(
        self, links: MemoryLinks, names: Table, change: Any, kind: type[Exception], why: str
    ) -> None:
        with names.writer() as writer, pytest.raises(kind, match=why):
            writer.write([{"delete": 1}, change, {"insert": [2, "b"]}])
        assert records(links, names) == []

    @pytest.mark.parametrize("form", ["table", "batch", "pandas", "polars"])
    def test_frames(self, links: MemoryLinks, names: Table, form: str) -> None:
        changes = pa.table(
            {
                "_change_type": ["+I", "-U", "+U", "-D", "+I", "-D"],
                "id": [1, 1, 1, 2, 2, 3],
                "name": ["a", "a", "b", None, None, "gone"],
                "insert_delete": [1, -1, 1, -1, 1, -1],
            }
        )
        with names.writer() as writer:
            assert writer.write(forms(changes)[form]()).wait(10).partition_map("default.t") == {0: 5}
            only = changes.filter(pa.array([False, False, False, True, False, False]))
            writer.write(forms(only)[form]())
            writer.write(forms(changes.slice(0, 0))[form]())
        assert records(links, names) == [
            (b"1", row(1, "a")),
            (b"1", row(1, "b")),
            (b"2", None),
            (b"2", row(2, None)),
            (b"3", None),
            (b"2", None),
        ]

    def test_deleted_rows_of_frames_need_only_their_key(self, links: MemoryLinks) -> None:
        table = keyed(links, "id BIGINT, name STRING NOT NULL, PRIMARY KEY (id)")
        with table.writer() as writer:
            writer.write(pa.table({"_change_type": ["-D", "+I"], "id": [1, 2], "name": [None, "b"]}))
        assert records(links, table) == [(b"1", None), (b"2", row(2, "b"))]

    @pytest.mark.parametrize("form", ["table", "pandas"])
    @pytest.mark.parametrize(
        ("changes", "numbers", "kind", "why"),
        [
            (["+I", "+A"], [1, 2], InvalidOperationError, r"row 1 is '\+A', a row of a log table, .*upsert_rows\(\)"),
            (["-D", "secret"], [1, 2], ArgumentValueError, r"row 1: column '_change_type' must be one of"),
            (["-D", "-U", "+U"], [1, 1, None], SchemaMismatchError, r"row 2: column 'id' \(BIGINT\) must be not null"),
            (["+I", "-U", "-D"], [1, 1, None], SchemaMismatchError, r"row 2: column 'id' \(BIGINT\) must be not null"),
        ],
    )
    def test_frames_that_are_refused(
        self,
        links: MemoryLinks,
        names: Table,
        form: str,
        changes: list[str],
        numbers: list[Any],
        kind: type[Exception],
        why: str,
    ) -> None:
        frame = pa.table({"id": numbers, "_change_type": changes})
        with names.writer() as writer, pytest.raises(kind, match=rf"^{why}"):
            writer.write(forms(frame)[form]())
        assert records(links, names) == []


class TestFrames:
    """Frames of rows, and of keys."""

    @pytest.mark.parametrize("form", ["table", "batch", "pandas", "polars"])
    def test_rows(self, links: MemoryLinks, people: Table, form: str) -> None:
        frame = pa.table({"score": [0.5, None], "country": ["FR", "DE"], "id": [1, 2]})
        with people.writer() as writer:
            assert len(writer.upsert_rows(forms(frame)[form]())) == 2
        assert sorted(records(links, people), key=str) == [
            (b'["DE",2]', {"id": 2, "country": "DE", "name": None, "score": None}),
            (b'["FR",1]', {"id": 1, "country": "FR", "name": None, "score": 0.5}),
        ]

    @pytest.mark.parametrize("form", ["table", "batch", "pandas", "polars"])
    @pytest.mark.parametrize("columns", [["id", "country"], ["name", "id", "country", "score"]])
    def test_keys(self, links: MemoryLinks, people: Table, form: str, columns: list[str]) -> None:
        frame = pa.table({"score": [0.5, None], "country": ["FR", "DE"], "id": [1, 2], "name": ["a", None]})
        with people.writer() as writer:
            assert len(writer.delete_rows(forms(frame.select(columns))[form]())) == 2
        assert sorted(records(links, people), key=str) == [(b'["DE",2]', None), (b'["FR",1]', None)]

    @pytest.mark.parametrize("form", ["table", "pandas"])
    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            (pa.table({"id": [1]}), r"column 'country' is in the primary key, and is missing"),
            (pa.table({"id": [1], "country": ["FR"], "name": ["x"]}), r"column 'name' is not in the primary key"),
            (pa.table({"id": [1, None], "country": ["FR", "DE"]}), r"row 1: column 'id' \(BIGINT\) must be not null"),
            (pa.table({"id": [1, 2], "country": ["FR", None]}), r"row 1: column 'country' \(STRING\) must be not null"),
        ],
    )
    def test_keys_that_do_not_fit(
        self, links: MemoryLinks, people: Table, form: str, frame: pa.Table, why: str
    ) -> None:
        with people.writer() as writer, pytest.raises(SchemaMismatchError, match=rf"^{why}"):
            writer.delete_rows(forms(frame)[form]())
        assert records(links, people) == []

    def test_what_is_no_list_of_keys(self, names: Table) -> None:
        for keys in ("ann", 7, None):
            with pytest.raises(ArgumentTypeError, match=r"^keys are a list of keys, or a table of Arrow, not "):
                names.delete(keys)


class TestKeys:
    """Keys of records."""

    SCHEMA = (
        "b BOOLEAN, i INT, s STRING, y BINARY, d DATE, c TIME, t TIMESTAMP, z TIMESTAMP_LTZ, p DECIMAL(10, 2), v STRING, "
        "PRIMARY KEY (b, i, s, y, d, c, t, z, p)"
    )
    KEY: ClassVar[dict[str, Any]] = {
        "b": True,
        "i": 7,
        "s": "é",
        "y": b"\x00\xff",
        "d": datetime.date(2026, 3, 29),
        "c": datetime.time(10, 0, 0, 5_000),
        "t": datetime.datetime(2026, 3, 29, 10, 0, 0, 123_456),
        "z": datetime.datetime(2026, 3, 29, 10, tzinfo=datetime.timezone.utc),
        "p": decimal.Decimal("9.50"),
    }
    OTHER: ClassVar[dict[str, Any]] = {
        "d": "2026-03-29",
        "c": "10:00:00.005",
        "t": "2026-03-29T10:00:00.123456",
        "z": "2026-03-29T12:00:00+02:00",
        "p": decimal.Decimal("9.5"),
    }
    """The same in other words."""

    @pytest.mark.parametrize("key_format", ["json", "avro"])
    def test_equal_keys_have_equal_bytes(self, links: MemoryLinks, key_format: str) -> None:
        table = keyed(links, self.SCHEMA, num_partitions=4, key_format=key_format)
        other = self.KEY | self.OTHER
        frame = pa.Table.from_pylist([self.KEY], schema=table.schema.arrow.remove(9))
        with table.writer() as writer:
            writer.upsert(self.KEY | {"v": "v"})
            writer.upsert([*other.values(), None])
            writer.upsert_rows([self.KEY] * 20)
            writer.upsert_rows(frame)
            writer.upsert_rows(frame.to_pandas())
            writer.delete(self.KEY)
            writer.delete([*other.values()])
            writer.delete_rows(frame)
            writer.delete_rows(frame.to_pandas())
        written = committed_records(links, table)
        assert len(written) == 28
        assert len({(partition, key) for partition, key, _, _ in written}) == 1

    @pytest.mark.parametrize(
        ("columns", "key_format", "key", "wanted"),
        [
            ("k BIGINT", "json", 7, b"7"),
            ("k STRING", "json", 'a"b', b'"a\\"b"'),
            ("k STRING", "str", "ann", b"ann"),
            ("k BIGINT", "str", -7, b"-7"),
            ("k DATE", "str", "2026-03-29", b"2026-03-29"),
            ("k BIGINT", "int", 7, bytes(7) + b"\x07"),
            ("k INT", "int", -1, b"\xff" * 4),
            ("k STRING", "avro", "ann", b"\x06ann"),
            ("k BIGINT, l STRING", "avro", (7, "ann"), b"\x0e\x06ann"),
        ],
    )
    def test_formats(self, links: MemoryLinks, columns: str, key_format: str, key: Any, wanted: bytes) -> None:
        names = [each.split()[0] for each in columns.split(",")]
        table = keyed(
            links, f"{columns}, v INT, PRIMARY KEY ({', '.join(names)})", key_format=key_format, num_partitions=5
        )
        values = key if isinstance(key, tuple) else (key,)
        with table.writer() as writer:
            assert writer.upsert([*values, 1]).wait(10).partition == partition_for(wanted, 5)
            writer.delete(key)
        assert [(found, value is None) for _, found, value, _ in committed_records(links, table)] == [
            (wanted, False),
            (wanted, True),
        ]

    def test_key_that_the_format_cannot_carry(self, links: MemoryLinks) -> None:
        table = keyed(links, "k STRING, v INT, PRIMARY KEY (k)", key_format="str")
        with table.writer() as writer:
            with pytest.raises((SchemaMismatchError, SerializationError), match=r"column 'k'"):
                writer.delete("\ud800")
            with pytest.raises((SchemaMismatchError, SerializationError), match=r"^row 1: column 'k'"):
                writer.delete_rows(["a", "\ud800"])
            with pytest.raises(ProducerError, match=r"^a row of 1,000,001 bytes .* is larger than message.max.bytes"):
                writer.delete("x" * 1_000_001)
            with pytest.raises(ProducerError, match=r"^row 1: a row of 1,000,001 bytes"):
                writer.delete_rows(["a", "x" * 1_000_001])
        assert committed_records(links, table) == []


def test_times(links: MemoryLinks) -> None:
    table = keyed(links, "id INT, at TIMESTAMP, PRIMARY KEY (id)", time="at")
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    begun = datetime.datetime.now(datetime.timezone.utc).timestamp() * 1_000 - 1
    with table.writer() as writer:
        writer.write([{"insert": [1, moment.replace(tzinfo=None)]}, {"delete": 1}])
    written = [timestamp for *_, timestamp in committed_records(links, table)]
    assert written[0] == moment.timestamp() * 1_000
    # A deletion has the time of the moment.
    assert written[1] >= begun


def forms(frame: pa.Table) -> dict[str, Callable[[], Any]]:
    empty = pa.RecordBatch.from_pylist([], schema=frame.schema)
    return {
        "table": lambda: frame,
        "batch": lambda: next(iter(frame.combine_chunks().to_batches()), empty),
        "pandas": frame.to_pandas,
        "polars": lambda: pl.DataFrame(frame),
    }


def test_partitions_that_were_added_are_refused(links: MemoryLinks) -> None:
    catalog = Catalog(store=MemoryCatalog(), links=links)
    columns = "id BIGINT, name STRING, PRIMARY KEY (id)"
    table = catalog.create_table("people", columns, num_partitions=2)
    table.upsert([row(1, "ann")])
    add_partitions(links, table.info.topic or "", 3)
    app = Application("unused:9092", consumer_group="people", catalog=catalog)
    frame = app.dataframe(app.topic("in"))
    refusal = "was created with 2 partitions, and its topic default.people has 3 now.*table copy"
    # The handle of before, a new one, and another program.
    for handle in (
        table,
        catalog.table("people"),
        Catalog(store=catalog._state.objects.store, links=links).table("people"),
    ):
        for write in (handle.writer, lambda: table.upsert([row(2, "bob")]), lambda: table.delete([1])):
            with pytest.raises(InvalidOperationError, match=refusal):
                write()
    with pytest.raises(InvalidOperationError, match=refusal):
        frame.to_table("people")
    assert [each["id"] for each in table.scan().rows()] == [1]
    assert table.get(1) == row(1, "ann")
    catalog.create_table("people", columns, if_exists="replace").upsert([row(1, "eve")])
    # Tables without a primary key have no rows to replace.
    log = catalog.create_table("visits", "id BIGINT", num_partitions=1)
    add_partitions(links, log.info.topic or "", 2)
    log.append([[1]])
    catalog.close()
