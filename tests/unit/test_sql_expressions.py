"""Scalar expressions of SQL: values, types, errors, and the Python that they become."""

import ast
import contextlib
import datetime
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from streamrt.common.suggestions import suggest_name
from streamrt.errors import MissingColumnError, SQLAnalysisError, SQLError, SQLNotSupportedError
from streamrt.sql.expressions import (
    ColumnReference,
    FunctionRegistry,
    TypedExpression,
    bind_condition,
    bind_scalar,
    describe_type,
    make_analysis_error,
    select_field,
)
from streamrt.sql.reading import parse_query
from streamrt.topology import InlinedCode
from tests.sql_expressions import Columns as ComparedColumns
from tests.sql_expressions import list_cases, make_rows
from tests.sql_functions import PAGE, write_page

COLUMNS = {
    "a": pa.int32(),
    "b": pa.int64(),
    "c": pa.string(),
    "d": pa.float64(),
    "e": pa.decimal128(10, 2),
    "f": pa.date32(),
    "g": pa.timestamp("us"),
    "h": pa.bool_(),
    "l": pa.list_(pa.int32()),
    "m": pa.map_(pa.string(), pa.int32()),
    "s": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "z": pa.timestamp("us", "UTC"),
}
ROW = {
    "a": 7,
    "b": -3,
    "c": "Hello World",
    "d": 1.5,
    "e": Decimal("12.34"),
    "f": datetime.date(2020, 2, 29),
    "g": datetime.datetime(2020, 2, 29, 12, 34, 56, 789000),
    "h": True,
    "l": [1, None, 3],
    "m": {"a": 1},
    "s": {"x": 1, "y": None},
    "z": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


class Columns:
    """Names are columns of one relation, or fields of their structs."""

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        first, *path = (part.name for part in column.parts)
        if first not in COLUMNS:
            raise make_analysis_error(f"there is no column {first}{suggest_name(first, COLUMNS)}", column)
        found: TypedExpression = ColumnReference(first, COLUMNS[first])
        for name in path:
            found = select_field(found, name, column)
        return found


def bind(text: str, functions: FunctionRegistry | None = None) -> TypedExpression:
    return bind_scalar(parse_query(f"SELECT {text}").expressions[0], Columns(), functions)


def evaluate(text: str, row: dict[str, Any] = ROW) -> Any:
    return bind(text).compile()(row, None, 0, None)


@pytest.mark.rows("FE-152")
@pytest.mark.parametrize(
    ("text", "value", "word"),
    [
        ("a + b", 4, "BIGINT"),
        ("a / b", -7 / 3, "DOUBLE"),
        ("a div 2", 3, "BIGINT"),
        ("b % 2", -1, "BIGINT"),
        ("e * e", Decimal("152.2756"), "DECIMAL(21, 4)"),
        ("e / 3", Decimal("4.113333"), "DECIMAL(14, 6)"),
        ("e + a", Decimal("19.34"), "DECIMAL(13, 2)"),
        ("a > 5 AND c LIKE 'Hel%'", True, "BOOLEAN"),
        ("a BETWEEN 1 AND 6", False, "BOOLEAN"),
        ("a IN (1, NULL)", None, "BOOLEAN"),
        ("a <=> NULL", False, "BOOLEAN"),
        ("CASE a WHEN 7 THEN 1 WHEN 8 THEN 2.5 END", Decimal("1.0"), "DECIMAL(11, 1)"),
        ("coalesce(NULL, a, b)", 7, "BIGINT"),
        ("c || '!' || a", "Hello World!7", "STRING"),
        ("substring(c FROM 2 FOR 3)", "ell", "STRING"),
        ("f + INTERVAL '1' MONTH", datetime.date(2020, 3, 29), "DATE"),
        ("f + INTERVAL '1' HOUR", datetime.datetime(2020, 2, 29, 1), "TIMESTAMP"),
        ("g + INTERVAL '1 02:03' DAY TO MINUTE", datetime.datetime(2020, 3, 1, 14, 37, 56, 789000), "TIMESTAMP"),
        ("f - DATE '2020-01-01'", datetime.timedelta(days=59), "INTERVAL DAY"),
        ("extract(SECOND FROM g)", Decimal("56.789000"), "DECIMAL(8, 6)"),
        ("date_format(g, 'yyyy-MM-dd HH:mm:ss.SSS EEE')", "2020-02-29 12:34:56.789 Sat", "STRING"),
        ("l[2]", 3, "INT"),
        ("s.y", None, "STRING"),
        ("m['a']", 1, "INT"),
        ("map('k', a)", {"k": 7}, "MAP<STRING, INT>"),
        ("named_struct('q', a)", {"q": 7}, "STRUCT<q: INT>"),
        ("CAST(z AS BIGINT)", 1577836800, "BIGINT"),
        ("CAST(e AS STRING)", "12.34", "STRING"),
        ("try_divide(a, 0)", None, "DOUBLE"),
        ("a = '7'", True, "BOOLEAN"),
        ("-2147483648", -2147483648, "INT"),
        ("1e3", 1000.0, "DOUBLE"),
        ("timestampdiff(HOUR, f, g)", 12, "BIGINT"),
        ("timestampdiff(MONTH, TIMESTAMP '2024-01-31 23:00:00', TIMESTAMP '2024-03-01 01:00:00')", 0, "BIGINT"),
    ],
)
def test_values_and_types(text: str, value: Any, word: str) -> None:
    expression = bind(text)
    found = expression.compile()(ROW, None, 0, None)
    assert (found, type(found), describe_type(expression.dtype)) == (value, type(value), word)
    assert pickle.loads(pickle.dumps(expression)) == expression == bind(text)
    assert hash(expression) == hash(bind(text))


@pytest.mark.rows("FE-152")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", None),
        ("h AND FALSE", False),
        ("h OR TRUE", True),
        ("h AND TRUE", None),
        ("NOT h", None),
        ("h IS NOT TRUE", True),
        ("h IS TRUE AND a IS NULL", False),
        ("h IS TRUE OR a IS NOT NULL", False),
        ("a <=> NULL", True),
        ("a IS DISTINCT FROM b", False),
        ("a IN (1, 2)", None),
        ("CASE WHEN a > 1 THEN 1 ELSE 2 END", 2),
        ("concat_ws('-', c, 'x', NULL)", "x"),
        ("array(1, a)", [1, None]),
        ("greatest(a, 3)", 3),
        ("isnan(d)", False),
        ("upper(c)", None),
        ("s.x", None),
    ],
)
def test_null(text: str, value: Any) -> None:
    assert evaluate(text, NULLS) == value


@pytest.mark.parametrize(
    ("text", "failure", "rule"),
    [
        ("a + 2147483647", OverflowError, "out of the range of INT: INT . INT"),
        ("a / 0", ZeroDivisionError, "division by zero"),
        ("CAST(c AS INT)", ValueError, "the text is not an integer"),
        ("CAST(c AS DATE)", ValueError, "the text is not a date"),
        ("e * CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0))", OverflowError, "DECIMAL"),
        ("l[5]", ValueError, "outside of its ARRAY"),
        ("to_date(c, 'yyyy')", ValueError, "does not fit the pattern"),
    ],
)
def test_failures_name_the_rule_and_no_value(text: str, failure: type[Exception], rule: str) -> None:
    expression = bind(text)
    with pytest.raises(failure, match=rule) as error:
        expression.compile()(ROW, None, 0, None)
    assert "Hello" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "kind", "reason", "column"),
    [
        ("1 + nope", SQLAnalysisError, "no column nope", 12),
        ("substrng(c, 1)", SQLAnalysisError, "did you mean substring", 8),
        ("now()", SQLNotSupportedError, "another answer each time", 8),
        ("a + h", SQLAnalysisError, "h is BOOLEAN", 8),
        ("a + sum(b)", SQLAnalysisError, "an aggregate cannot stand here", 12),
        ("upper()", SQLAnalysisError, r"upper\(text STRING\)", 8),
        ("CAST(f AS INT)", SQLAnalysisError, "DATE cannot be cast to INT", 13),
        ("c RLIKE '('", SQLAnalysisError, "regular expression", 16),
        ("a AND h", SQLAnalysisError, "AND needs BOOLEAN", 8),
        ("nvl(a, f)", SQLAnalysisError, "INT and DATE", 15),
        ("date_format(g, 'QQQQ')", SQLAnalysisError, "QQQQ has no meaning", 23),
        ("m = m", SQLAnalysisError, "MAP", 8),
    ],
)
def test_errors_of_texts_have_a_place(text: str, kind: type[SQLError], reason: str, column: int) -> None:
    with pytest.raises(kind, match=reason) as error:
        bind(text)
    assert (error.value.line, error.value.column) == (1, column)


def test_code_checks_null_once_and_calls_nothing() -> None:
    condition = bind_condition(parse_query("SELECT a * 2 < b AND c LIKE 'Hel%'").expressions[0], Columns())
    text = ast.unparse(condition.code(InlinedCode()))
    assert text.count("is not None") == 3
    assert "None if" not in text
    assert condition.compile()(ROW, None, 0, None) is False
    assert str(condition) == "(((a * 2) < b) AND (c LIKE 'Hel%'))"


def test_a_row_without_the_column_is_explained() -> None:
    with pytest.raises(MissingColumnError, match="'a'"):
        bind("a + 1").compile()({"b": 1}, None, 0, None)


def test_deep_trees_are_compiled() -> None:
    text = " + ".join(["b"] * 140)
    assert evaluate(text) == 140 * -3


def test_functions_of_users() -> None:
    functions = FunctionRegistry()
    functions.register("double_it", lambda number: None if number is None else 2 * number, pa.int64(), [pa.int64()])
    doubled = bind("double_it(a) + 1", functions)
    assert doubled.compile()(ROW, None, 0, None) == 15
    assert doubled.compile()(NULLS, None, 0, None) is None
    assert not doubled.is_plain()
    with pytest.raises(SQLAnalysisError, match="takes 1 arguments"):
        bind("double_it(a, b)", functions)


def test_the_page_of_functions_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "python -m tests.sql_functions writes it"


def test_expressions_compared_with_spark_are_bound_and_fail_by_a_rule() -> None:
    rows = make_rows(1, 10)
    for case in list_cases():
        expression = bind_scalar(parse_query(f"SELECT {case}").expressions[0], ComparedColumns())
        assert str(expression)
        run = expression.compile()
        for row in rows:
            with contextlib.suppress(ValueError, ArithmeticError):
                value = run(row, None, 0, None)
                assert value is not None or expression.nullable, case
