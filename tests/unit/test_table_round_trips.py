"""Any rows of any schema, in each format: written in each form, they come back in each, with their keys."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt.errors import SchemaError
from streamrt.kafka.partitioner import partition_for
from streamrt.schema import Schema
from streamrt.serializers.row_formats import KEY_FORMATS, ROW_FORMATS, key_format
from streamrt.tables import Catalog, MemoryCatalog, Table
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.testing.row_formats import ROW_VALUES
from tests.support import LONG

PARTITIONS = 3
Rows = list[dict[str, Any]]


class Carries(NamedTuple):
    """Values that a format carries."""

    types: tuple[str, ...] = tuple(ROW_VALUES)
    max_columns: int = 4
    nullable: tuple[str, ...] = tuple(ROW_VALUES)


FORMATS: Mapping[str, Carries] = {
    "json": Carries(),
    "avro": Carries(types=tuple(word for word in ROW_VALUES if word != "MAP<BIGINT, STRING>")),
    "protobuf": Carries(nullable=tuple(word for word in ROW_VALUES if not word.startswith(("ARRAY", "MAP")))),
    "single": Carries(max_columns=1, nullable=()),
    "string": Carries(("STRING", "VARCHAR(8)"), max_columns=1, nullable=()),
    "raw": Carries(("BINARY",), max_columns=1, nullable=()),
}


class Case(NamedTuple):
    """A table and its rows."""

    schema: Schema
    rows: Rows
    key: tuple[str, ...]
    key_format: str


@st.composite
def cases(draw: st.DrawFn, carries: Carries) -> Case:
    # The format `raw` has one column, which its schema cannot say to be never null.
    is_raw = carries.types == ("BINARY",)
    names = ["value"] if is_raw else [f"c{number}" for number in range(carries.max_columns)]
    words = draw(st.lists(st.sampled_from(carries.types), min_size=1, max_size=len(names)))
    columns = [
        {"name": name, "type": word, "nullable": is_raw or (word in carries.nullable and draw(st.booleans()))}
        for name, word in zip(names, words, strict=False)
    ]
    schema = Schema(columns)
    cells = {
        column.name: ROW_VALUES[column.word] | st.none() if column.nullable and not is_raw else ROW_VALUES[column.word]
        for column in schema.fields
    }
    rows = draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=4))
    always = [column.name for column in schema.fields if not column.nullable]
    key = draw(st.lists(st.sampled_from(always), max_size=2, unique=True)) if always else []
    return Case(schema, [schema.check(row) for row in rows], tuple(key), draw(st.sampled_from(KEY_FORMATS)))


def as_frame(case: Case) -> pd.DataFrame:
    columns = {name: pd.Series([row[name] for row in case.rows], dtype=object) for name in case.schema.names}
    made: pd.DataFrame = pd.DataFrame(columns)
    return made


def as_arrow(case: Case) -> pa.Table:
    return pa.Table.from_pylist(case.rows, schema=case.schema.arrow)


def one_by_one(rows: Callable[[Case], Sequence[Any]]) -> Callable[[Table, Case], None]:
    def write(table: Table, case: Case) -> None:
        with table.writer() as writer:
            for row in rows(case):
                writer.append(row)

    return write


def together(rows: Callable[[Case], Any]) -> Callable[[Table, Case], None]:
    def write(table: Table, case: Case) -> None:
        table.append(rows(case))

    return write


WRITES: Mapping[str, Callable[[Table, Case], None]] = {
    "tuples": one_by_one(lambda case: [tuple(row.values()) for row in case.rows]),
    "dicts": one_by_one(lambda case: case.rows),
    "lists at once": together(lambda case: [list(row.values()) for row in case.rows]),
    "pandas": together(as_frame),
    "Arrow": together(as_arrow),
}


def read_by_iterator(table: Table, case: Case) -> Rows:
    with table.subscribe(start="earliest") as stream:
        return [next(stream).row for _ in case.rows]


def read_by_polls(table: Table, case: Case) -> Rows:
    found: Rows = []
    with table.subscribe(start="earliest") as stream:
        while len(found) < len(case.rows):
            came = checked(case, stream.poll_arrow(timeout=60.0))
            assert came, f"no row has come within 60 s, after {found}"
            found += came
    return found


def read_by_pandas(table: Table, case: Case) -> Rows:
    frame = table.scan().to_pandas()
    assert list(frame.columns) == list(case.schema.names)
    return checked(case, pa.Table.from_pandas(frame, case.schema.arrow, preserve_index=False))


def checked(case: Case, table: pa.Table) -> Rows:
    """Return rows of Arrow as the schema has them: of maps, Arrow makes lists of pairs."""
    table.validate(full=True)
    assert table.schema.equals(case.schema.arrow)
    return [case.schema.check(row) for row in table.to_pylist()]


READS: Mapping[str, Callable[[Table, Case], Rows]] = {
    "iterator": read_by_iterator,
    "polls of Arrow": read_by_polls,
    "scan": lambda table, case: list(table.scan().rows()),
    "Arrow": lambda table, case: checked(case, table.scan().to_arrow()),
    "pandas": read_by_pandas,
}


def make(case: Case, row_format: str) -> Table:
    """Create the table; without a key where the format of keys does not carry the columns, which is refused at once."""
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    settings: Any = {"format": row_format, "num_partitions": PARTITIONS}
    if case.key:
        try:
            key_format(case.key_format, case.schema, case.key)
        except SchemaError:
            with pytest.raises(SchemaError):
                catalog.create_table("t", case.schema, key=case.key, key_format=case.key_format, **settings)
        else:
            return catalog.create_table("t", case.schema, key=case.key, key_format=case.key_format, **settings)
    return catalog.create_table("t", case.schema, **settings)


def missing(found: Rows, expected: Rows) -> Rows:
    """Return rows that were not found. Those of several partitions have no order."""
    assert len(found) == len(expected)
    left = list(expected)
    for row in found:
        if row in left:
            left.remove(row)
    return left


def test_all_formats_are_here() -> None:
    assert set(FORMATS) == set(ROW_FORMATS)


@pytest.mark.rows("FL-172", "FL-121", "DK-020", "DK-022", "DK-023")
@pytest.mark.parametrize("row_format", ROW_FORMATS)
@settings(max_examples=500 if LONG else 12)
@given(st.data())
def test_rows_in_any_form_come_back_in_any_other(row_format: str, data: st.DataObject) -> None:
    case = data.draw(cases(FORMATS[row_format]))
    table = make(case, row_format)
    # Long runs read what each form has written in each, ordinary ones some pairs.
    writes = list(WRITES) if LONG else [data.draw(st.sampled_from(list(WRITES)))]
    reads = (
        list(READS) if LONG else data.draw(st.lists(st.sampled_from(list(READS)), min_size=2, max_size=2, unique=True))
    )
    for written in writes:
        start = table.offsets("latest")
        WRITES[written](table, case)
        found = list(table.scan(start=start).records())
        assert missing([record.row for record in found], case.rows) == [], written
        if table.info.key:
            form = key_format(table.info.key_format, case.schema, table.info.key)
            for record in found:
                assert record.key == form.encode({name: record.row[name] for name in table.info.key})
                assert record.partition == partition_for(record.key, PARTITIONS)
    expected = case._replace(rows=case.rows * len(writes))
    for read in reads:
        assert missing(READS[read](table, expected), expected.rows) == [], read
