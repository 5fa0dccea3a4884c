"""Views in SQL with rows that need no record, in resident processes: they are there before one, and only once."""

from typing import Any

import pytest

from streamrt.tables import Catalog
from tests.support import SLOTS, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROGRAM = """
CREATE DATABASE {database};
CREATE TABLE {database}.orders (id BIGINT NOT NULL, amount BIGINT, PRIMARY KEY (id)) WITH ('partitions' = 3);
CREATE MATERIALIZED VIEW {database}.totals AS SELECT count(*) AS n, sum(amount) AS total FROM {database}.orders;
CREATE MATERIALIZED VIEW {database}.kinds AS
    SELECT kind, (SELECT count(*) FROM {database}.orders WHERE amount > 100) AS n
    FROM (VALUES ('few'), ('many')) AS kinds (kind);
"""


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_that_need_no_record_are_there_once(kafka: Kafka, guarantee: str) -> None:
    database, group = unique("shop").replace("-", "_"), unique("views")
    with Catalog(kafka.address) as catalog:

        def added_rows(name: str) -> list[tuple[Any, ...]]:
            """Return all rows that were ever added to a view, in the order in which they were written."""
            records = catalog.table(f"{database}.{name}").scan(changes=True).records()
            added = [one.row for one in records if one.change_type.short != "-D"]
            return [tuple(value for key, value in row.items() if key != "_row_key") for row in added]

        def expect(totals: list[tuple[Any, ...]]) -> None:
            kinds = [("few", 0), ("many", 0)]
            wait_until(lambda: added_rows("totals") == totals and sorted(added_rows("kinds")) == kinds, what="the rows")

        for row in (None, [1, 5]):
            app = kafka.app(group, processing_mode="resident", spark_master=SLOTS, processing_guarantee=guarantee)
            app.sql(PROGRAM.format(database=database))
            with running(app):
                if row is None:
                    expect([(0, None)])
                else:
                    catalog.table(f"{database}.orders").upsert([row])
                    expect([(0, None), (1, 5)])
