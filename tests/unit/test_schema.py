"""Schemas: strings, Arrow, mappings; checked rows; inference; evolution."""

import datetime
import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamrt.errors import ArgumentTypeError, SchemaError, SchemaMismatchError
from streamrt.schema import Schema, evolution_faults

UTC = datetime.timezone.utc
EVERYTHING = (
    "id BIGINT NOT NULL, small TINYINT, short SMALLINT, n INT, f FLOAT, d DOUBLE, ok BOOLEAN, name STRING COMMENT 'it\\'s', "
    "code VARCHAR(3) DEFAULT 'x', raw BINARY, uuid BINARY(4), day DATE, at TIMESTAMP, seen TIMESTAMP_LTZ, "
    "clock TIME, price DECIMAL(10, 2) DEFAULT -1.5, tags ARRAY<STRING>, home STRUCT<street: STRING NOT NULL, number: INT>, "
    "counts MAP<STRING, BIGINT>, `odd name` INT, PRIMARY KEY (id)"
)


@pytest.mark.rows("FL-110", "FL-111", "FL-112", "FL-113", "FL-114", "DK-004", "DK-036")
def test_a_text_its_columns_and_arrow_say_the_same() -> None:
    schema = Schema(EVERYTHING, time="at", comment="all types")
    assert Schema(str(schema), time="at", comment="all types") == schema
    assert Schema(schema.columns, primary_key=["id"], time="at", comment="all types") == schema
    assert Schema({"columns": schema.columns}, primary_key=["id"]).columns == schema.columns
    assert pickle.loads(pickle.dumps(schema)) == schema
    # Arrow has no lengths and no defaults.
    plain = Schema("id BIGINT NOT NULL, name STRING COMMENT 'who', home STRUCT<street: STRING NOT NULL>")
    assert Schema(plain.arrow) == plain
    assert Schema({"id": pa.int64(), "tags": "ARRAY<STRING>"}).types == ("BIGINT", "ARRAY<STRING>")
    assert schema.column("code") == {
        "name": "code",
        "type": "VARCHAR(3)",
        "nullable": True,
        "length": 3,
        "comment": None,
        "default": "x",
    }
    assert schema.column("none") is None
    assert schema.project([1, "id"]).names == ("small", "id")
    assert schema.project(["at"]).primary_key == ()
    assert "comment='all types'" in repr(schema)


@pytest.mark.rows("FL-115")
@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        (pa.large_string(), "STRING"),
        (pa.large_binary(), "BINARY"),
        (pa.timestamp("ms"), "TIMESTAMP"),
        (pa.timestamp("ms", "Europe/Paris"), "TIMESTAMP_LTZ"),
        (pa.large_list(pa.large_string()), "ARRAY<STRING>"),
        (pa.list_(pa.int8(), 3), "ARRAY<TINYINT>"),
    ],
)
def test_types_that_mean_the_same(dtype: pa.DataType, word: str) -> None:
    assert Schema({"c": dtype}).types == (word,)


@pytest.mark.rows("FL-115")
@pytest.mark.parametrize(
    "dtype",
    [pa.uint8(), pa.float16(), pa.timestamp("ns"), pa.date64(), pa.duration("s"), pa.decimal256(50, 2), pa.null()],
)
def test_types_that_columns_cannot_have(dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column 'c' has the type"):
        Schema({"c": dtype})
    with pytest.raises(SchemaError, match="the elements of column 'c' has the type"):
        Schema({"c": pa.list_(dtype)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a schema needs a column"),
        ("id", "which is not a column"),
        ("id FOO", "cannot be read as columns: there is no type FOO"),
        ("id BIGNT, name STRING", r"there is no type BIGNT; did you mean BIGINT\?"),
        ("id INT) WITH (a = 'b'", "cannot be read as columns"),
        ("id INT) AS SELECT 1 --", "cannot be read as columns"),
        ("id INT; DROP TABLE t", "cannot be read as columns"),
        ("a ARRAY<", "cannot be read as columns"),
        ("a ARRAY" + "<ARRAY" * 2_000, "cannot be read as columns"),
        ("a INT CHECK (a > 1)", "which schemas do not have"),
        ("a INT GENERATED ALWAYS AS (b + 1)", "which schemas do not have"),
        ("a IN INT", "which schemas do not have"),
        ("a INT DEFAULT now()", "must be a literal"),
        ("a INT DEFAULT 'x'", "the default of column 'a' \\(INT\\) must be an integer"),
        ("a ARRAY<INT> DEFAULT NULL", "has a default, which lists"),
        ("a INT NOT NULL DEFAULT NULL", "must be not null"),
        ("a INTERVAL", "which columns cannot have"),
        ("a VARCHAR(0)", "of 1 or more characters"),
        ("a ARRAY<VARCHAR(3)>", "inside of another type"),
        ("a DECIMAL(50, 2)", "38 may be"),
        ("a DECIMAL(5, 6)", "38 may be"),
        ("a INT, a INT", "the column 'a' is there twice"),
        ("a INT, PRIMARY KEY (b)", "the primary key names the column 'b'"),
        ("a INT PRIMARY KEY, PRIMARY KEY (a)", "has two primary keys"),
        ("a FLOAT PRIMARY KEY", "cannot be in the primary key"),
        ("a ARRAY<INT> PRIMARY KEY", "cannot be in the primary key"),
        ("a " + "x" * 200_000, "too long"),
    ],
)
def test_texts_that_are_no_schemas(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema.parse(text)


@pytest.mark.rows("FL-110")
def test_other_arguments_that_are_no_schemas() -> None:
    for columns, reason in (
        ([{"type": "INT"}], "has no name or no type"),
        ([{"name": "a", "type": "INT", "size": 3}], "a column has 'size'"),
        ([{"name": "a", "type": 3}], "neither Arrow's nor a word"),
        ([{"name": "a", "type": "INT, b INT"}], "which is not a type"),
        ([{"name": "a", "type": "INT", "length": 3}], "texts alone do"),
    ):
        with pytest.raises(SchemaError, match=reason):
            Schema(columns)
    with pytest.raises(ArgumentTypeError, match="not int"):
        Schema(7)
    with pytest.raises(ArgumentTypeError, match="must be a list of names"):
        Schema("a INT", primary_key="a")
    with pytest.raises(SchemaError, match="given twice"):
        Schema("a INT PRIMARY KEY, b INT", primary_key=["b"])
    with pytest.raises(SchemaError, match="cannot be the event time"):
        Schema("a STRING", time="a")
    with pytest.raises(SchemaError, match="the event time names the column 'b'"):
        Schema("a STRING", time="b")


def test_hostile_texts_raise_the_declared_error_only() -> None:
    draw = random.Random(7)
    words = "id INT NOT NULL , ( ) < > ' ` -- /* */ ; DEFAULT COMMENT PRIMARY KEY STRUCT MAP ARRAY : SELECT \0 é \\ 1e9 {{ }}"
    for _ in range(1_500):
        text = " ".join(draw.choices(words.split(), k=draw.randrange(1, 12)))
        try:
            Schema(text)
        except SchemaError:
            continue


VALUES: list[tuple[str, Any, Any]] = [
    ("BOOLEAN", np.bool_(True), True),
    ("INT", np.int64(7), 7),
    ("TINYINT", -128, -128),
    ("DOUBLE", 7, 7.0),
    ("DOUBLE", np.float32(0.5), 0.5),
    ("DOUBLE", Decimal("0.5"), 0.5),
    ("FLOAT", 0.1, 0.10000000149011612),
    ("BINARY", bytearray(b"ab"), b"ab"),
    ("DATE", "2026-03-29", datetime.date(2026, 3, 29)),
    ("TIME", "10:00:00.250", datetime.time(10, 0, 0, 250_000)),
    ("TIMESTAMP", "2026-03-29T10:00:00", datetime.datetime(2026, 3, 29, 10)),
    ("TIMESTAMP", pd.Timestamp("2026-03-29 10:00"), datetime.datetime(2026, 3, 29, 10)),
    ("TIMESTAMP_LTZ", "2026-03-29T10:00:00Z", datetime.datetime(2026, 3, 29, 10, tzinfo=UTC)),
    ("TIMESTAMP_LTZ", "2026-03-29T10:00:00+02:00", datetime.datetime(2026, 3, 29, 8, tzinfo=UTC)),
    ("TIMESTAMP_LTZ", datetime.datetime(2026, 3, 29, 10), datetime.datetime(2026, 3, 29, 10, tzinfo=UTC)),
    ("DECIMAL(5, 2)", "1.5", Decimal("1.50")),
    ("DECIMAL(5, 2)", 3, Decimal("3.00")),
    ("ARRAY<DOUBLE>", np.array([1, 2]), [1.0, 2.0]),
    ("STRUCT<a: INT, b: INT>", {"b": 1}, {"a": None, "b": 1}),
    ("MAP<INT, STRING>", [(1, "a")], {1: "a"}),
]


@pytest.mark.parametrize(("word", "value", "kept"), VALUES)
def test_values_that_fit(word: str, value: Any, kept: Any) -> None:
    row = Schema({"c": word}).check({"c": value})
    assert row == {"c": kept}
    assert type(row["c"]) is type(kept)
    # Arrow takes what the check returns.
    assert pa.array([kept], Schema({"c": word}).arrow.field("c").type).null_count == 0


@pytest.mark.parametrize(
    ("word", "value", "rule"),
    [
        ("BOOLEAN", 1, "a bool"),
        ("INT", True, "an integer"),
        ("INT", 1.0, "an integer"),
        ("INT", 1 << 31, "an integer of 32 bits"),
        ("DOUBLE", "1", "a number"),
        ("DOUBLE", 10**400, "a number that a float can hold"),
        ("FLOAT", 1e300, "a number that a float of 32 bits can hold"),
        ("STRING", b"a", "a text"),
        ("STRING", "\ud800", "a text that UTF-8 can hold"),
        ("VARCHAR(2)", "abc", "a text with 2 characters at most"),
        ("BINARY", "a", "bytes"),
        ("BINARY(2)", b"a", "2 bytes"),
        ("DATE", datetime.datetime(2026, 1, 1), "a date without a time"),
        ("DATE", "29.3.2026", "a date, or one as ISO 8601 text"),
        ("TIME", datetime.time(1, microsecond=1), "a time of day in milliseconds"),
        ("TIME", datetime.time(1, tzinfo=UTC), "a time of day without a time zone"),
        ("TIMESTAMP", datetime.datetime(2026, 1, 1, tzinfo=UTC), "a time without a time zone"),
        ("TIMESTAMP", 1_700_000_000_000, "a time with a date"),
        ("TIMESTAMP", pd.NaT, "a time with a date"),
        ("TIMESTAMP", pd.Timestamp(1), "a time in microseconds"),
        ("TIMESTAMP_LTZ", "0001-01-01T00:00:00+10:00", "a time between the years 1 and 9999 in UTC"),
        ("DECIMAL(3, 1)", 0.5, "a Decimal, an integer, or a text with a number"),
        ("DECIMAL(3, 1)", "1.25", "a number with 1 digits behind the point at most"),
        ("DECIMAL(3, 1)", "1000", "a number with 2 digits before the point at most"),
        ("DECIMAL(3, 1)", Decimal("NaN"), "a finite number"),
        ("ARRAY<INT>", "12", "a list"),
        ("ARRAY<INT>", [1, "x"], "an integer"),
        ("STRUCT<a: INT NOT NULL>", {}, "not null"),
        ("STRUCT<a: INT>", {"b": 1}, "a mapping with no other keys than a"),
        ("MAP<STRING, INT>", {1: 1}, "a text"),
        ("MAP<STRING, INT>", 3, "a mapping"),
    ],
)
def test_values_that_do_not_fit(word: str, value: Any, rule: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        Schema({"secret": word}).check([value])
    assert f"must be {rule}" in str(caught.value)
    assert str(caught.value).startswith("column 'secret")
    assert caught.value.__cause__ is None


@pytest.mark.rows("FL-070", "DK-020", "DK-022")
def test_rows_with_other_columns() -> None:
    schema = Schema("id INT NOT NULL, name STRING, n INT NOT NULL DEFAULT 3")
    assert schema.check({"id": 1}) == {"id": 1, "name": None, "n": 3}
    assert list(schema.check({"name": "a", "n": 4, "id": 1})) == ["id", "name", "n"]
    for row, reason in (
        ({"name": "a"}, "column 'id' is missing, and it must not be null"),
        ({"id": 1, "nmae": "a"}, "there is no column 'nmae'; the columns are id, name, n"),
        ({"id": None}, r"column 'id' \(INT\) must be not null"),
        ([1, "a"], "2 values for 3 columns"),
        ("abc", "a row must be a mapping, a list or a tuple, not str"),
    ):
        with pytest.raises(SchemaMismatchError, match=reason):
            schema.check(row)


@pytest.mark.rows("DK-050")
def test_inference() -> None:
    rows: list[dict[str, Any]] = [
        {"n": 1, "mixed": 1, "none": None},
        {"n": 2.5, "mixed": "a", "tags": ["x"], "home": {"street": "s"}},
        {"big": 1 << 70},
    ]
    assert Schema.infer(rows).types == ("STRING",) * 6
    inferred = Schema.infer(rows, types=True)
    assert dict(zip(inferred.names, inferred.types, strict=True)) == {
        "n": "DOUBLE",
        "mixed": "STRING",
        "none": "STRING",
        "tags": "ARRAY<STRING>",
        "home": "STRUCT<street: STRING>",
        "big": "STRING",
    }
    with pytest.raises(SchemaError, match="no rows"):
        Schema.infer([])


@pytest.mark.parametrize(
    ("newer", "older", "fault"),
    [
        ("id BIGINT, name STRING", "id INT", None),
        ("id INT", "id INT, name STRING", None),
        ("id INT, n INT NOT NULL DEFAULT 1", "id INT", None),
        ("d DECIMAL(12, 3)", "d DECIMAL(10, 2)", None),
        ("d DOUBLE", "d INT", None),
        ("s VARCHAR(5)", "s VARCHAR(3)", None),
        ("b BINARY", "b BINARY(3)", None),
        ("at TIMESTAMP", "at DATE", None),
        ("a ARRAY<BIGINT>", "a ARRAY<INT>", None),
        ("m MAP<STRING, DOUBLE>", "m MAP<STRING, FLOAT>", None),
        ("s STRUCT<a: BIGINT, b: INT>", "s STRUCT<a: INT, c: INT>", None),
        ("id INT, n INT NOT NULL", "id INT", "column 'n' is new"),
        ("id INT", "id INT, n INT NOT NULL", "column 'n' is dropped"),
        ("id INT", "id BIGINT", "changes from BIGINT to INT"),
        ("d DOUBLE", "d BIGINT", "changes from BIGINT to DOUBLE"),
        ("d DECIMAL(10, 3)", "d DECIMAL(10, 2)", "cannot hold all"),
        ("s STRING NOT NULL", "s STRING", "must not be null"),
        ("s VARCHAR(3)", "s STRING", "3 characters at most"),
        ("s STRUCT<a: INT, b: INT NOT NULL>", "s STRUCT<a: INT>", "cannot hold all"),
        ("a INT PRIMARY KEY, b INT", "a INT, b INT PRIMARY KEY", "the primary key changes from b to a"),
        ("a BIGINT PRIMARY KEY", "a INT PRIMARY KEY", "equal keys would have different bytes"),
    ],
)
def test_evolution(newer: str, older: str, fault: str | None) -> None:
    faults = evolution_faults(Schema(newer), Schema(older))
    assert faults == [] if fault is None else any(fault in each for each in faults), faults
    assert evolution_faults(Schema(older), Schema(older)) == []
