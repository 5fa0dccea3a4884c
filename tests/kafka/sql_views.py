"""A program in SQL over three tables on a broker, which change at random, and what DuckDB makes of their rows."""

import random
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from streamrt.tables import Catalog, Table
from tests.support import Kafka, unique, wait_until

__all__ = ["World"]

TABLES = """
CREATE DATABASE {database};
CREATE TABLE {database}.customers (id BIGINT NOT NULL, country STRING, PRIMARY KEY (id)) WITH ('partitions' = 3);
CREATE TABLE IF NOT EXISTS {database}.orders (id BIGINT NOT NULL, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
    WITH ('partitions' = 3);
CREATE TABLE {database}.blocked (customer BIGINT NOT NULL, PRIMARY KEY (customer)) WITH ('partitions' = 2);
"""
SOLD = """
SELECT o.id, o.amount, c.country FROM {database}.orders o JOIN {database}.customers c ON o.customer = c.id
WHERE o.amount > 10 AND NOT EXISTS (SELECT 1 FROM {database}.blocked b WHERE b.customer = c.id)
"""
VIEWS = {
    "totals": """
        SELECT country, count(*) AS n, sum(amount) AS total, max(amount) AS highest, count(DISTINCT amount) AS amounts
        FROM sold GROUP BY country HAVING count(*) > 2""",
    "best": """
        SELECT country, place, id, amount FROM (
            SELECT *, row_number() OVER (PARTITION BY country ORDER BY amount DESC, id) AS place FROM sold
        ) AS numbered WHERE place <= 3""",
    "amounts": "SELECT amount, country FROM sold WHERE amount % 2 = 0",
    "nothing": """
        SELECT kind, n FROM (VALUES ('sold', 0), ('free', 0), ('kept', 1)) AS kinds (kind, amounts)
        JOIN (SELECT count(*) AS n FROM sold WHERE amount > 1000) AS counted ON amounts = n""",
}
COUNTRIES = ("FR", "DE", "PT", "IT", None)
CUSTOMERS, ORDERS = 40, 150


class World:
    """The tables of a program, which change at random, and its views.

    Args:
        kafka: the broker.
        catalog: a catalogue there.
        seed: makes the changes.
        views: names of the views.
    """

    def __init__(self, kafka: Kafka, catalog: Catalog, seed: int, views: Collection[str] = tuple(VIEWS)) -> None:
        self.database = unique("shop").replace("-", "_")
        self.group = unique("views")
        self._kafka, self._catalog, self._dice = kafka, catalog, random.Random(seed)
        self.written = 0
        self._queries = {name: VIEWS[name] for name in views}
        text = "".join(
            f"CREATE MATERIALIZED VIEW {self.database}.{name} AS {query};\n" for name, query in self._queries.items()
        )
        self.program = f"{TABLES}CREATE LOCAL VIEW sold AS {SOLD};\n{text}".format(database=self.database)

    def table(self, name: str) -> Table:
        """Return a table or the table of a view."""
        return self._catalog.table(f"{self.database}.{name}")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change rows as long as the context lasts."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(0.5):
                self.change(40)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def change(self, count: int) -> None:
        """Upsert and delete rows of all tables."""
        dice = self._dice
        customers = [[n, dice.choice(COUNTRIES)] for n in dice.sample(range(CUSTOMERS), count // 4)]
        orders = [
            [n, dice.randrange(CUSTOMERS + 5), dice.choice([None, *range(40)])]
            for n in dice.sample(range(ORDERS), count)
        ]
        self.table("customers").upsert(customers)
        self.table("orders").upsert(orders)
        self.table("blocked").upsert([[dice.randrange(CUSTOMERS)]])
        self.table("blocked").delete([{"customer": n} for n in dice.sample(range(CUSTOMERS), 4)])
        self.table("orders").delete([{"id": n} for n in dice.sample(range(ORDERS), count // 4)])
        self.table("customers").delete([{"id": dice.randrange(CUSTOMERS)}])
        self.written += count // 4 * 2 + count + 6

    def batch_result(self) -> dict[str, Counter[Any]]:
        """Return the rows of each view, as DuckDB computes them from the present rows of the tables."""
        with duckdb.connect() as base:
            base.execute(f"CREATE SCHEMA {self.database}")
            for name in ("customers", "orders", "blocked"):
                table = self.table(name)
                rows = pa.Table.from_pylist(list(table.scan().rows()), schema=table.schema.arrow)
                base.register("given", rows)
                base.execute(f"CREATE TABLE {self.database}.{name} AS SELECT * FROM given")
            base.execute(f"CREATE VIEW sold AS {SOLD.format(database=self.database)}")
            return {name: Counter(base.execute(query).fetchall()) for name, query in self._queries.items()}

    def rows(self) -> dict[str, Counter[Any]]:
        """Return the rows that the views have on the broker."""
        return {name: Counter(map(_shown, self.table(name).scan().rows())) for name in self._queries}

    def expect(self, rows: dict[str, Counter[Any]]) -> None:
        """Wait until the views have some rows."""
        wait_until(lambda: self.rows() == rows, 120, "the rows of the batch queries")


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if name != "_row_key")
