"""Joins of tables by columns on a real broker: through internal topics, into a table, across a restart."""

from typing import Any

import pytest

from streamrt.tables import Catalog
from tests.support import LONG, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["exactly-once"])
def test_rows_are_joined_by_columns_across_a_restart(kafka: Kafka, guarantee: Any) -> None:
    with Catalog(kafka.address) as catalog:
        database, group = unique("shop").replace("-", "_"), unique("pairs")
        catalog.create_database(database)
        orders = catalog.create_table(
            f"{database}.orders", "id BIGINT, city STRING, PRIMARY KEY (id)", num_partitions=3
        )
        shops = catalog.create_table(
            f"{database}.shops", "shop BIGINT, at STRING, PRIMARY KEY (shop)", num_partitions=2
        )
        out = catalog.create_table(
            f"{database}.pairs", "id BIGINT, city STRING, shop BIGINT, PRIMARY KEY (id, shop)", num_partitions=2
        )
        now: dict[str, dict[int, str | None]] = {"orders": {}, "shops": {}}

        def upsert(table: Any, name: str, rows: dict[int, str | None]) -> None:
            now[name].update(rows)
            table.upsert([list(row) for row in rows.items()])

        def follow() -> None:
            app = kafka.app(
                group, processing_mode="resident", spark_master="processes[1]", processing_guarantee=guarantee
            )
            pairs = app.table(orders).join(app.table(shops), on=("city", "at"))
            pairs[["id", "city", "shop"]].to_table(out)
            expected = sorted(
                (number, city, shop)
                for number, city in now["orders"].items()
                for shop, at in now["shops"].items()
                if city is not None and city == at
            )
            with running(app):
                wait_until(
                    lambda: sorted(tuple(row.values()) for row in out.scan().rows()) == expected, 60, "the pairs"
                )

        upsert(orders, "orders", {1: "Rome", 2: "Oslo", 3: "Rome", 4: None})
        upsert(shops, "shops", {10: "Rome", 11: "Rome", 12: None})
        follow()
        # The new rows of a pair may come before the former ones go.
        upsert(orders, "orders", {1: "Oslo", 3: "Rome", 4: "Oslo", 5: "Bonn"})
        upsert(shops, "shops", {10: "Oslo", 11: "Bonn"})
        follow()
