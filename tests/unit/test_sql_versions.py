"""Programs in SQL that run again, as they were or changed, with the tables and the state of the last version."""

import logging
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import TableExistsError
from streamrt.runtime.driver.starting.group_layout import _warn_of_other_contents
from streamrt.runtime.layout_record import GroupLayout, merged_layout
from streamrt.tables import Catalog, MemoryCatalog
from tests.unit.sql_worlds import make_app

# -- Plans -------------------------------------------------------------------------------------------------------------


def laid(*programs: str, **options: Any) -> GroupLayout:
    """Return the layout of an application, of which only the queries count here."""
    app = make_app(loglevel=None)
    for program in programs:
        app.sql(program, **options)
    topology = definition_of(app).topology
    # As a start has it.
    topology = topology.resolve(dict.fromkeys(topology.sources, 2)).separate(dict.fromkeys(topology.sources, 2))
    return GroupLayout("views", queries=dict(topology.queries))


def warn(before: GroupLayout, after: GroupLayout, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the names of queries of which a start warns."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "streamrt"):
        _warn_of_other_contents(GroupLayout.decode(before.encode(), "layout__views"), after)
    assert all("streamrt reset" in text for text in caplog.messages)
    return [text.split("'")[1] for text in caplog.messages]


TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS s FROM orders WHERE amount > 5 GROUP BY customer"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TOTALS, TOTALS.replace("> 5", "> 6")),
        (TOTALS, TOTALS.replace("sum(amount)", "sum(amount + 1)")),
        (TOTALS, TOTALS + " HAVING count(*) > 1"),
        (TOTALS, TOTALS.replace("sum(amount)", "sum(amount) FILTER (WHERE id > 3)")),
        (TOTALS, TOTALS.replace("sum(amount)", "sum(DISTINCT amount)")),
        (TOTALS.replace("> 5", "IN (1, 2)"), TOTALS.replace("> 5", "IN (1, 3)")),
        (
            "CREATE MATERIALIZED VIEW totals AS SELECT k, 'a' AS c FROM items",
            "CREATE MATERIALIZED VIEW totals AS SELECT k, 'b' AS c FROM items",
        ),
        (
            "CREATE MATERIALIZED VIEW totals AS SELECT k, x FROM items LATERAL VIEW explode(array(a, b)) t AS x",
            "CREATE MATERIALIZED VIEW totals AS SELECT k, x FROM items LATERAL VIEW explode(array(b, a)) t AS x",
        ),
        (
            "CREATE MATERIALIZED VIEW totals AS SELECT k FROM items ORDER BY b LIMIT 3",
            "CREATE MATERIALIZED VIEW totals AS SELECT k FROM items ORDER BY b DESC LIMIT 3",
        ),
        (
            "CREATE MATERIALIZED VIEW totals AS SELECT k FROM items EXCEPT SELECT a AS k FROM others",
            "CREATE MATERIALIZED VIEW totals AS SELECT k FROM items INTERSECT SELECT a AS k FROM others",
        ),
    ],
)
def test_another_plan_over_the_same_state_is_told(before: str, after: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warn(laid(before), laid(after), caplog) == ["totals"]
    assert warn(laid(after), laid(after), caplog) == []
    # Of a version of StreamRT that has not said it, it is not known.
    assert warn(GroupLayout("views"), laid(after), caplog) == []


def test_another_text_of_the_same_plan_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    written = """
        create materialized view totals as
        select Customer as customer, SUM(amount) AS s -- all
        from ORDERS WHERE (amount > 5) GROUP BY customer"""
    others = "CREATE VIEW others_by_a AS SELECT a, count(*) AS n FROM others GROUP BY a; "
    for program in (written, others + TOTALS):
        assert warn(laid(TOTALS), laid(program), caplog) == []


def test_views_above_a_changed_one_are_told(caplog: pytest.LogCaptureFixture) -> None:
    above = (
        "; CREATE MATERIALIZED VIEW most AS SELECT max(s) AS most FROM totals"
        "; CREATE MATERIALIZED VIEW ks AS SELECT k FROM items"
    )
    changed = TOTALS.replace("> 5", "> 6")
    assert set(warn(laid(TOTALS + above), laid(changed + above), caplog)) == {"totals", "most"}


def test_a_chain_of_views_that_use_each_other_twice_has_a_plan() -> None:
    steps = ["CREATE VIEW v0 AS SELECT k FROM items"]
    steps += [f"CREATE VIEW v{n} AS SELECT k FROM v{n - 1} UNION SELECT k FROM v{n - 1}" for n in range(1, 6)]
    steps += ["CREATE MATERIALIZED VIEW last AS SELECT k FROM v5"]
    assert "last" in laid("; ".join(steps)).queries


def test_a_view_that_a_version_leaves_out_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    without = laid("CREATE MATERIALIZED VIEW ks AS SELECT k FROM items")
    kept = merged_layout(laid(TOTALS), without)
    assert kept.queries.keys() == {"totals", "ks"}
    assert warn(kept, laid(TOTALS.replace("> 5", "> 6")), caplog) == ["totals"]


# -- Tables that exist -------------------------------------------------------------------------------------------------

TABLE = (
    "CREATE TABLE shop.orders (id BIGINT NOT NULL, amount BIGINT, PRIMARY KEY (id)) COMMENT 'bought' "
    "WITH ('partitions' = 3, 'config.retention.ms' = '1000')"
)
PROGRAM = "CREATE DATABASE shop; {}; CREATE MATERIALIZED VIEW shop.totals AS SELECT sum(amount) AS s FROM shop.orders"


def run(catalog: Catalog, table: str) -> None:
    Application("unused:9092", consumer_group="views", catalog=catalog).sql(PROGRAM.format(table))


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(store=MemoryCatalog())
    run(catalog, TABLE)
    return catalog


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.replace("id BIGINT NOT NULL, amount BIGINT", "id bigint NOT NULL,\n amount bigint"),
        TABLE.replace(" COMMENT 'bought'", ""),
        TABLE.partition(" WITH")[0],
        TABLE.replace("TABLE", "TABLE IF NOT EXISTS").replace("BIGINT,", "STRING,"),
    ],
)
def test_a_program_runs_again(catalog: Catalog, table: str) -> None:
    before = catalog.load("shop.orders")
    if "STRING" in table:
        # IF NOT EXISTS takes the table as it is.
        catalog.execute(table)
    run(catalog, table)
    assert catalog.load("shop.orders") == before


@pytest.mark.parametrize(
    ("former", "new", "said"),
    [
        ("amount BIGINT", "amount INT", "columns 'id BIGINT NOT NULL, amount INT, PRIMARY KEY"),
        ("amount BIGINT", "amount BIGINT, more STRING", "more STRING"),
        ("'bought'", "'sold'", "comment 'sold', and the table has 'bought'"),
        ("= 3", "= 4", "partitions 4, and the table has 3"),
        ("'1000'", "'2000'", "retention.ms"),
        ("WITH (", "WITH ('topic' = 'other', ", "topic 'other'"),
        ("WITH (", "WITH ('format' = 'avro', ", "format 'avro', and the table has 'json'"),
        ("WITH (", "WITH ('maintained' = 'true', ", "maintenance"),
    ],
)
def test_a_table_that_differs_is_refused(catalog: Catalog, former: str, new: str, said: str) -> None:
    with pytest.raises(TableExistsError, match=said) as refused:
        run(catalog, TABLE.replace(former, new))
    assert "'shop.orders'" in str(refused.value)


def test_statements_of_a_catalogue_do_not_run_again(catalog: Catalog) -> None:
    with pytest.raises(TableExistsError, match="exists already"):
        catalog.execute(TABLE)
