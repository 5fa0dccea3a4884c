"""Two keyed tables whose join an application keeps in a third one, across a lost disk."""

import shutil
from typing import Any

from streamrt import Application
from streamrt.tables import Catalog, Table
from streamrt.windows import Count, Sum
from tests.support import Kafka, running, unique, wait_until


def keep_joined_tables(kafka: Kafka, **settings: Any) -> None:
    """Change rows of two tables while an application runs, and while it does not, and compare the results each time.

    Args:
        kafka: the broker.
        **settings: of the application.
    """
    database, group = unique("shop").replace("-", "_"), unique("joined")
    with Catalog(kafka.address) as catalog:
        catalog.create_database(database)

        def create(name: str, columns: str) -> Table:
            return catalog.create_table(f"{database}.{name}", columns, num_partitions=2)

        customers = create("customers", "id BIGINT, country STRING, PRIMARY KEY (id)")
        balances = create("balances", "id BIGINT, amount BIGINT, PRIMARY KEY (id)")
        accounts = create("accounts", "id BIGINT, country STRING, amount BIGINT, PRIMARY KEY (id)")
        countries = create("countries", "country STRING, n BIGINT, total BIGINT, PRIMARY KEY (country)")

        def make_app() -> Application:
            app = kafka.app(group, **settings)
            joined = app.table(customers).join(app.table(balances))
            joined.to_table(accounts)
            joined.group_by("country").agg(n=Count(), total=Sum("amount")).to_table(countries)
            return app

        def expect(rows: dict[int, tuple[str, int]]) -> None:
            """Run the application until the tables are those of the joined rows."""
            app = make_app()
            totals: dict[str, tuple[int, int]] = {}
            for country, amount in rows.values():
                n, total = totals.get(country, (0, 0))
                totals[country] = n + 1, total + amount
            wanted = {(number, *row) for number, row in rows.items()}, {(name, *row) for name, row in totals.items()}
            with running(app):
                wait_until(lambda: (_rows(accounts), _rows(countries)) == wanted, 60, "the joined rows")

        customers.upsert([{"id": n, "country": "FR" if n % 2 else "PT"} for n in range(6)])
        balances.upsert([{"id": n, "amount": 10 * n} for n in range(1, 7)])
        expect({1: ("FR", 10), 2: ("PT", 20), 3: ("FR", 30), 4: ("PT", 40), 5: ("FR", 50)})
        # All stores come from their changelogs.
        shutil.rmtree(kafka.state_dir)
        customers.upsert([{"id": 1, "country": "PT"}, {"id": 6, "country": "FR"}])
        customers.delete([{"id": 2}])
        balances.upsert([{"id": 3, "amount": 33}])
        balances.delete([{"id": 4}])
        expect({1: ("PT", 10), 3: ("FR", 33), 5: ("FR", 50), 6: ("FR", 60)})


def _rows(table: Table) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in table.scan().rows()}
