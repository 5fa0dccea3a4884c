"""Functions of SQL that take lambdas: values, types, errors, and the same results in views, queries and verification."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamrt import Application
from streamrt.errors import SQLError, SQLNotSupportedError
from streamrt.sql.expressions import TypedExpression, bind_scalar
from streamrt.sql.queries import duckdb_lambdas
from streamrt.sql.queries.duckdb_text import to_duckdb
from streamrt.sql.queries.spark_text import to_spark
from streamrt.sql.reading import parse_query
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver
from tests.sql_expressions import Columns, list_cases, make_rows, make_table

OLD = duckdb.__version__ < "2"
"""Whether some lambdas are refused in queries: Python 3.10 has no newer DuckDB."""

ROW = {"l": [3, None, 1], "ls": ["b", "a"], "ma": {"a": 1, "b": None}, "n": 10, "k": "z", "st": {"x": 1, "y": "q"}}

# What Spark gives.
VALUES = {
    "exists(array(1, 0), x -> 1 / x > 0)": True,
    "exists(array(0, null), x -> x > 0)": None,
    "forall(array(1, null), x -> x > 0)": None,
    "forall(array(0, null), x -> x > 0)": False,
    "forall(array(), x -> false)": True,
    "transform(array(1, 2), (x, i) -> x + i)": [1, 3],
    "transform(array(1, 2), x -> transform(array(10), x -> x + 1))": [[11], [11]],
    "transform(array(1, 2), `x y` -> `x y`)": [1, 2],
    "transform(array(1, 2), end -> end + n)": [11, 12],
    "filter(array(1, 2), x -> null)": [],
    "aggregate(array(1, 2), 'a', (s, x) -> s || x)": "a12",
    "aggregate(array(1, 2), 0, (s, x) -> null, s -> s is null)": True,
    "aggregate(array(1, 2), null, (s, x) -> s)": None,
    "aggregate(cast(null as array<int>), 0, (s, x) -> s, s -> 1)": None,
    "array_sort(l, (x, y) -> case when x < y then -1 when x > y then 1 else 0 end)": [3, None, 1],
    "array_sort(ls)": ["a", "b"],
    "zip_with(array(1, 2), array('a'), (x, y) -> y)": ["a", None],
    "map_zip_with(map(1, 'a', 2, 'b'), map(2, 'x', 3, 'y'), (k, a, b) -> concat(a, b))": {1: None, 2: "bx", 3: None},
}

REFUSED = [
    ("filter(l)", 8, "filter is called as filter(array ARRAY, condition LAMBDA), and 1 arguments are given"),
    ("filter(x -> x, l)", 15, ": argument 1 cannot be a lambda"),
    ("transform(l, 5)", 21, ": argument 2 must be a lambda such as x -> x"),
    ("transform(l, (x, i, j) -> x)", 22, "the lambda of transform() has 1 or 2 parameters, and not 3"),
    ("zip_with(l, l, x -> 1)", 23, "the lambda of zip_with() has 2 parameters, and not 1"),
    ("transform(l, (x, X) -> x)", 25, "two parameters of a lambda have the name X"),
    ("filter(l, x -> x)", 23, "the lambda of filter() must give BOOLEAN, and "),
    ("aggregate(l, 0, (s, x) -> s + 1L)", 34, "the lambda of aggregate() must give INT, and "),
    ("transform(l, x -> nope)", 26, "there is no column"),
    ("transform(l, x -> (SELECT 1))", 34, "a subquery cannot stand in a lambda: join its rows in FROM"),
]

MISFITS = [
    ("transform(st, x -> x)", 18, "expects an ARRAY"),
    ("map_filter(l, (k, v) -> true)", 19, "expects a MAP"),
    ("transform_keys(ma, (k, v) -> l)", 28, "keys of maps are not lists, structs or maps"),
    ("map_zip_with(ma, map(1, 2), (k, a, b) -> k)", 25, "expects a MAP with keys of STRING"),
    ("array_sort(l, x -> 1)", 22, "the lambda of array_sort() has 2 parameters, and not 1"),
]


def bind(text: str) -> TypedExpression:
    return bind_scalar(parse_query(f"SELECT {text}").expressions[0], Columns())


@pytest.mark.rows("FE-152")
@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    assert bind(text).compile()(ROW, None, 0, None) == VALUES[text]


@pytest.mark.parametrize(("text", "column", "reason"), REFUSED)
def test_errors_have_a_place_and_are_the_same_in_queries(text: str, column: int, reason: str) -> None:
    for read in (bind, lambda text: to_duckdb(parse_query(f"SELECT {text} AS r FROM t"), {"t": make_table([]).schema})):
        with pytest.raises(SQLError) as error:
            read(text)
        assert reason in str(error.value)
        assert (error.value.line, error.value.column) == (1, column)


@pytest.mark.parametrize(("text", "column", "reason"), MISFITS)
def test_types_of_arguments_are_checked(text: str, column: int, reason: str) -> None:
    with pytest.raises(SQLError) as error:
        bind(text)
    assert reason in str(error.value)
    assert (error.value.line, error.value.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("transform_keys(ma, (k, v) -> 1)", "a MAP has each key once"),
        ("transform_keys(ma, (k, v) -> cast(null as int))", "a key of a MAP is not NULL"),
        ("array_sort(l, (x, y) -> x - y)", "the lambda gives NULL for two items"),
        ("transform(l, x -> 1 div (x - 1))", "division by zero"),
    ],
)
def test_an_error_in_a_lambda_is_one_of_the_record(text: str, reason: str) -> None:
    with pytest.raises((ValueError, ArithmeticError), match=reason.replace("(", "\\(")):
        bind(text).compile()(ROW, None, 0, None)


def test_deep_lambdas_see_all_parameters_around() -> None:
    sums = " + ".join(["a", "b", "n"] * 40)
    found = bind(f"transform(l, a -> transform(l, b -> {sums}))").compile()(ROW, None, 0, None)
    assert found[0] == [640, None, 560]


def test_types_know_what_may_be_null() -> None:
    dtype = bind("transform(array(1), x -> x + 1)").dtype
    assert (dtype.value_type, dtype.value_field.nullable) == (pa.int32(), False)
    state = bind("aggregate(l, named_struct('a', 0), (s, x) -> named_struct('a', s.a + x))")
    assert state.dtype.field("a").nullable
    assert bind("zip_with(array(1), array(2), (x, y) -> y)").dtype.value_field.nullable


def test_names_have_no_case_and_texts_are_kept() -> None:
    assert str(bind("filter(l, (X, i) -> x > n AND i < 2)")) == "filter(l, (X, i) -> ((X > n) AND (i < 2)))"
    assert bind("transform(l, x -> x + 1)") == bind("transform(l, x -> X + 1)")


def test_queries_have_the_values_of_views() -> None:
    rows = make_rows(3, 30)
    table = make_table(rows)
    cases = [case for case in list_cases() if "->" in case and "array_sort" not in case]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("t", table)
        for case in cases:
            run, values = bind(case).compile(), {}
            for number, row in enumerate(rows):
                try:
                    values[number] = run(row, None, 0, None)
                except (ValueError, ArithmeticError):
                    continue
            chosen = ", ".join(map(str, values)) or "-1"
            query = parse_query(f"SELECT id, CASE WHEN id IN ({chosen}) THEN {case} END AS r FROM t")
            try:
                text = to_duckdb(query, {"t": table.schema})
            except SQLNotSupportedError:
                assert OLD, case
                continue
            found = dict(connection.execute(text).fetchall())
            assert {number: found[number] for number in values} == values, case


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("aggregate(l, 0, (s, x) -> s + x, s -> s + n)", True),
        ("transform(l, x -> exists(l, y -> y > 1) AND x > n)", True),
        ("transform(l, x -> exists(l, y -> y = -x))", False),
        ("forall(l, x -> x > n)", False),
        ("aggregate(l, 0, (s, x) -> s + n)", False),
    ],
)
def test_an_old_duckdb_gets_no_lambda_that_uses_outer_names(
    text: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_lambdas, "_reduces_with_outer_names", lambda: False)
    query, tables = parse_query(f"SELECT {text} AS r FROM t"), {"t": make_table(make_rows(1, 1)).schema}
    if accepted:
        assert "list_reduce" in to_duckdb(query, tables)
        return
    reason = r"DuckDB before 2\.0 computes this lambda wrongly, because it uses more than its own parameters: upgrade"
    with pytest.raises(SQLNotSupportedError, match=reason):
        to_duckdb(query, tables)


def test_spark_gets_lambdas_as_they_are() -> None:
    text = "SELECT transform(t.l, x -> x.a + t.n) AS r FROM t"
    expected = "SELECT TRANSFORM(`t`.`l`, `x` -> `x`.`a` + `t`.`n`) AS `r` FROM `q` AS `t`"
    assert to_spark(parse_query(text), lambda table: "q") == expected


def test_aggregates_in_a_lambda_read_columns() -> None:
    schemas = {"t": pa.schema([("l", pa.list_(pa.int32())), ("n", pa.int32())])}
    made = to_duckdb(parse_query("SELECT transform(collect_list(n), x -> x + max(n)) AS r FROM t"), schemas)
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"l": [[1], [2]], "n": [1, 5]}, schemas["t"]))
        ((found,),) = connection.execute(made).fetchall()
    assert sorted(found) == [6, 10]
    with pytest.raises(
        SQLError, match="x is a parameter of a lambda, and aggregates and windows in it read columns only"
    ):
        to_duckdb(parse_query("SELECT transform(collect_list(n), x -> sum(x)) AS r FROM t"), schemas)


@pytest.fixture(scope="module")
def driver() -> TopologyTestDriver:
    catalog = Catalog(store=MemoryCatalog())
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee="exactly-once")
    app.sql(
        """
        CREATE TABLE orders (id BIGINT NOT NULL, amounts ARRAY<BIGINT>, prices MAP<STRING, BIGINT>, least BIGINT,
            PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW totals AS
            SELECT id, aggregate(amounts, 0L, (total, x) -> total + x) AS total,
                filter(amounts, least -> least > 1) AS hidden, transform(amounts, x -> x - least) AS rest,
                map_filter(prices, (k, v) -> v >= least) AS dear
            FROM orders WHERE exists(amounts, x -> x > least);
        CREATE MATERIALIZED VIEW groups AS
            SELECT aggregate(amounts, 0L, (s, x) -> s + x) AS total, count(*) AS n,
                aggregate(array(max(id), min(id)), 0L, (s, x) -> s + x + count(*)) AS ids
            FROM orders GROUP BY aggregate(amounts, 0L, (s, x) -> s + x);
        CREATE MATERIALIZED VIEW others AS
            SELECT id, (SELECT count(*) FROM orders o WHERE exists(o.amounts, x -> x = orders.least)) AS n FROM orders;
        """
    )
    driver = TopologyTestDriver(app)
    rows: list[dict[str, Any]] = [
        {"id": 1, "amounts": [1, 2, 3], "prices": {"a": 1, "b": 5}, "least": 2},
        {"id": 2, "amounts": [2, None], "prices": {"a": None}, "least": 1},
        {"id": 3, "amounts": [1, 5], "prices": None, "least": 3},
        {"id": 4, "amounts": None, "prices": {}, "least": 0},
        {"id": 5, "amounts": [0], "prices": {}, "least": 4},
    ]
    driver.pipe_many(InputRecord("default.orders", row, key=row["id"]) for row in rows)
    driver.pipe("default.orders", {**rows[2], "amounts": [1, 5, 0]}, key=3)
    return driver


def test_views_have_lambdas(driver: TopologyTestDriver) -> None:
    rows = {row["id"]: row for row in driver.table("totals").scan().rows()}
    assert rows == {
        1: {"id": 1, "total": 6, "hidden": [2, 3], "rest": [-1, 0, 1], "dear": {"b": 5}},
        2: {"id": 2, "total": None, "hidden": [2], "rest": [1, None], "dear": {}},
        3: {"id": 3, "total": 6, "hidden": [5], "rest": [-2, 2, -3], "dear": None},
    }
    groups = {row["total"]: (row["n"], row["ids"]) for row in driver.table("groups").scan().rows()}
    assert groups == {6: (2, 8), None: (2, 10), 0: (1, 12)}
    assert {row["id"]: row["n"] for row in driver.table("others").scan().rows()} == {1: 2, 2: 2, 3: 1, 4: 2, 5: 0}


@pytest.mark.parametrize("view", ["totals", "groups", "others"])
def test_views_with_lambdas_are_verified(driver: TopologyTestDriver, view: str) -> None:
    if OLD and view != "groups":
        with pytest.raises(SQLNotSupportedError, match=f"view '{view}' cannot be verified"):
            driver.verify(view)
        return
    found = driver.verify(view)
    assert found.equal, str(found)


def test_queries_have_lambdas(driver: TopologyTestDriver) -> None:
    found = driver.query("SELECT id, forall(amounts, x -> x < :most) AS small FROM orders ORDER BY id", {"most": 4})
    assert [row["small"] for row in found] == [True, None, False, None, True]
