"""Statements of SQL are read with their places."""

import pytest
from sqlglot import exp

from streamrt.errors import SQLNotSupportedError, SQLSyntaxError
from streamrt.sql.reading import StreamSQL, parse_query, parse_statements, position_of


def test_statements_have_kind_place_and_options() -> None:
    text = (
        "CREATE TABLE a (x BIGINT);\n\n"
        "  CREATE MATERIALIZED VIEW a.v (y) COMMENT 'c' WITH (emit = 'final', 'a.b' = 5, c = TRUE) AS SELECT 1;\n"
        ";; INSERT INTO b SELECT y FROM v; SELECT 2"
    )
    table, view, insert, query = parse_statements(text)
    assert (table.kind, table.text, table.tree) == ("catalog", "CREATE TABLE a (x BIGINT)", None)
    assert (view.kind, view.name, view.columns, view.comment) == ("materialized view", "a.v", ("y",), "c")
    assert view.options == {"emit": "final", "a.b": "5", "c": "true"}
    assert (view.line, view.column, insert.line, insert.column, query.kind) == (3, 3, 4, 4, "query")


@pytest.mark.parametrize(
    ("text", "regenerated"),
    [
        ("SELECT n FROM a JOIN b ON a.x = b.x GROUP BY window(at, '1 hour')", "GROUP BY WINDOW(at, '1 hour')"),
        ("SELECT a FROM t GROUP BY window, a", "GROUP BY window, a"),
        ("SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY b)", "WINDOW w AS (PARTITION BY b)"),
        ("SELECT * FROM TABLE(TUMBLE(TABLE d.b, DESCRIPTOR(at), INTERVAL '1' HOUR))", "TUMBLE(d.b, DESCRIPTOR(at)"),
        ("SELECT * FROM a JOIN b FOR SYSTEM_TIME AS OF a.at AS c ON a.x = c.x", "b TIMESTAMP AS OF a.at AS c"),
        ("SELECT :least FROM {orders} AS o", "SELECT :least FROM {orders} AS o"),
        ("SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) <= 3", "WHERE _w <= 3"),
    ],
)
def test_the_dialect_reads_what_spark_lacks(text: str, regenerated: str) -> None:
    assert regenerated in parse_query(text).sql(StreamSQL)


@pytest.mark.rows("FE-007", "FE-012")
@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("SELECT 'abc", 1, 1, "no end"),
        ("SELECT\n (a", 2, 3, "was expected"),
        ("SELECT a b\n c d", 2, 2, "cannot stand here"),
        ("CREATE VIEW x AS", 1, 15, "query of the view is missing"),
        ("CREATE LOCAL TABLE x", 1, 14, "VIEW was expected"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", 1, 38, "exclude each other"),
        ("CREATE VIEW 'x' AS SELECT 1", 1, 13, "a name was expected"),
        ("CREATE VIEW x WITH (a = 1, a = 2) AS SELECT 1", 1, 30, "twice"),
        ("SELECT " + "(" * 70 + "1" + ")" * 70, 1, 68, "nested"),
        ("SELECT " + " OR ".join(["a = 1"] * 300) + " FROM b", 1, 8, "nested"),
    ],
)
def test_errors_say_where(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(SQLSyntaxError, match=reason) as error:
        parse_statements(text)
    assert (error.value.line, error.value.column) == (line, column)


def test_long_texts_are_refused() -> None:
    with pytest.raises(SQLSyntaxError, match="200,000 characters"):
        parse_statements("SELECT 1 " + " " * 200_000)


def test_one_query_is_one_query() -> None:
    with pytest.raises(SQLNotSupportedError, match="a query was expected"):
        parse_query("CREATE VIEW v AS SELECT 1")
    with pytest.raises(SQLSyntaxError, match="line 2, column 1"):
        parse_query("SELECT 1;\nSELECT 2")
    with pytest.raises(SQLSyntaxError, match="no statement"):
        parse_query("-- nothing")


def test_positions_of_nodes() -> None:
    tree = parse_query("SELECT a,\n  5 + b.c AS d FROM t")
    assert position_of(tree.expressions[1]) == (2, 3)
    assert position_of(tree.find(exp.Literal)) == (2, 3)
    assert position_of(exp.Null()) == (0, 0)
    assert position_of(None) == (0, 0)


def test_scalar_functions_stay_as_they_are_written() -> None:
    """sqlglot has forms of its own for them, which lose patterns of dates, the order of arguments, and what fails."""
    for text in ("DATE_FORMAT(at, 'yyyy-MM')", "DATEDIFF(a, b)", "YEAR(a)", "INSTR(a, 'b')", "CEIL(a, 1)"):
        call = parse_query(f"SELECT {text}").expressions[0]
        assert isinstance(call, exp.Anonymous)
        assert call.sql(StreamSQL) == text
    assert type(parse_query("SELECT CAST(a AS INT)").expressions[0]) is exp.Cast
    assert type(parse_query("SELECT TRY_CAST(a AS INT)").expressions[0]) is exp.TryCast
    assert isinstance(parse_query("SELECT every(a)").expressions[0], exp.AggFunc)


def test_two_quotes_within_a_text_are_one() -> None:
    tree = parse_query("""SELECT 'it''s' AS a, "a""b" AS b, 'x""y' AS c, "x''y" AS d, 'a\\'b' AS e""")
    assert [each.this.name for each in tree.expressions] == ["it's", 'a"b', 'x""y', "x''y", "a'b"]
