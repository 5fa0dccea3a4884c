"""Queries as the text that Spark gets: names of views, nothing that is not on the lists, and nothing as it was typed."""

import contextlib
import re

import pytest
from sqlglot import exp

from streamrt.errors import SQLAnalysisError, SQLError, SQLNotSupportedError, TableNotFoundError
from streamrt.sql.queries.ask import ask
from streamrt.sql.queries.catalog_queries import home_of
from streamrt.sql.queries.checked_query import CheckedQuery
from streamrt.sql.queries.spark_text import to_spark
from streamrt.sql.reading import parse_query
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import ROOT
from tests.unit.test_sql_security import STATEMENTS


def _translate(sql: str, **views: tuple[exp.Expr, tuple[str, ...]]) -> str:
    return to_spark(parse_query(sql), lambda table: f"q_{table.name}", lambda name, _: views.get(name), {"id", "name"})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id FROM shop.orders", "SELECT `id` FROM `q_orders` AS `orders`"),
        ("SELECT shop.t.id, t.s.x FROM shop.t", "SELECT `t`.`id`, `t`.`s`.`x` FROM `q_t` AS `t`"),
        ("SELECT a.b.c FROM x.t AS a", "SELECT `a`.`b`.`c` FROM `q_t` AS `a`"),
        ("SELECT s.t.* FROM s.t", "SELECT `t`.* FROM `q_t` AS `t`"),
        (
            "SELECT 1 AS a FROM s.t WHERE EXISTS (SELECT 1 FROM s.u AS t WHERE s.t.id = t.id)",
            "SELECT 1 AS `a` FROM `q_t` AS `t` WHERE EXISTS(SELECT 1 FROM `q_u` AS `t` WHERE `t`.`id` = `t`.`id`)",
        ),
        ("WITH t AS (SELECT 1 AS id) SELECT id FROM t", "WITH `t` AS (SELECT 1 AS `id`) SELECT `id` FROM `t`"),
        (
            "SELECT a FROM (WITH t AS (SELECT a FROM t) SELECT a FROM t) AS x, t",
            "SELECT `a` FROM (WITH `t` AS (SELECT `a` FROM `q_t` AS `t`) SELECT `a` FROM `t`) AS `x` CROSS JOIN `q_t` AS `t`",
        ),
        ("SELECT id FROM t QUALIFY count(*) OVER () > 1", "SELECT `id` FROM `q_t` AS `t` QUALIFY COUNT(*) OVER () > 1"),
        ("SELECT id /* + BROADCAST(t) */ FROM t -- x", "SELECT `id` FROM `q_t` AS `t`"),
        (
            "SELECT e FROM t LATERAL VIEW OUTER explode(v) `x AS y, parquet.z` AS `e`",
            "SELECT `e` FROM `q_t` AS `t` LATERAL VIEW OUTER EXPLODE(`v`) `x AS y, parquet.z` AS `e`",
        ),
        ("SELECT '${env:HOME}' AS `a``b` FROM t", "SELECT '${env:HOME}' AS `a``b` FROM `q_t` AS `t`"),
    ],
)
def test_names_are_those_of_views(sql: str, expected: str) -> None:
    assert _translate(sql) == expected


def test_hints_and_words_that_are_written_as_they_are_do_not_pass() -> None:
    for sql in ("SELECT /*+ BROADCAST(t) */ id FROM t", "SELECT id + INTERVAL 1 `day) FROM parquet.x --` AS a FROM t"):
        with pytest.raises(SQLError):
            _translate(sql)
    with pytest.raises(SQLNotSupportedError, match="cannot stand here"):
        to_spark(exp.select(exp.Var(this="1 FROM parquet.`x`")), lambda table: table.name)


def test_views_are_queries_in_their_places() -> None:
    view = parse_query("WITH t AS (SELECT id FROM t) SELECT id AS a, id FROM t")
    made = _translate("SELECT b.y FROM big AS b JOIN t USING (id)", big=(view, ("x", "y")))
    inner = "WITH `t` AS (SELECT `id` FROM `q_t` AS `t`) SELECT `id` AS `a`, `id` FROM `t`"
    assert made == f"SELECT `b`.`y` FROM ({inner}) AS `b`(`x`, `y`) JOIN `q_t` AS `t` USING (`id`)"


def test_tables_of_one_name_need_aliases() -> None:
    with pytest.raises(SQLAnalysisError, match="give them aliases"):
        _translate("SELECT 1 AS a FROM x.t CROSS JOIN y.t")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    catalog = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    catalog.create_database("shop")
    catalog.create_table("shop.orders", "id INT, name STRING", num_partitions=1)
    return catalog


@pytest.mark.parametrize("statement", STATEMENTS)
def test_hostile_statements_reach_no_engine(catalog: Catalog, statement: str) -> None:
    reached: list[CheckedQuery] = []

    def engine(query: CheckedQuery) -> None:
        reached.append(query)

    with pytest.raises((SQLError, TableNotFoundError)):
        ask(home_of(catalog), statement, engine=engine)  # type: ignore[arg-type]
    assert reached == []


@pytest.mark.parametrize(
    "hidden",
    [
        *("java_method('java.lang.System', 'exit', 1)", "reflect('java.lang.System', 'getenv')", "current_user()"),
        *("input_file_name()", "version()", "x'00' COLLATE UTF8_BINARY", "current_user", "session_user", "user"),
        *(
            "(SELECT current_database())",
            "CASE WHEN id = 1 THEN java_method('a', 'b') END",
            "(x -> reflect('a', 'b'))(id)",
        ),
    ],
)
def test_no_place_hides_a_function(hidden: str) -> None:
    """The check of the text looks at each node, also where translations of functions ignore an argument."""
    page = (ROOT / "docs" / "sql-queries.md").read_text()
    names = re.findall(r"`(\w+)`", page.partition("## Functions")[2].partition("## Limits")[0])
    for place in ["id + {}", *(f"{name}(id, {{}})" for name in names), *(f"{name}({{}})" for name in names)]:
        made = ""
        # The parser drops arguments that some functions do not have.
        with contextlib.suppress(SQLError):
            made = _translate(f"SELECT {place.format(hidden)} AS a FROM t").lower()
        assert not re.search(r"java_method|reflect|user|input_file|version|collate|current_database", made)
