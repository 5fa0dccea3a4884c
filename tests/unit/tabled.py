"""A played application with tables: kept, aggregated, written and looked up."""

import time
from typing import Any

from streamrt.common.replica_sizes import ReplicaSize
from streamrt.joins.lookups import TableField
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.lag import Lag, LagSample
from streamrt.runtime.report import Report, StoreSize
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.topology import Tally, TaskId
from streamrt.topology.tallies import (
    TABLE_DELETES,
    TABLE_DELETIONS,
    TABLE_INSERTIONS,
    TABLE_UNCHANGED,
    TABLE_UPDATES,
    TABLE_UPSERTS,
)
from streamrt.windows import Count
from tests.unit.played import Played

USERS = TopicPartition("shop.users", 0)


class Tabled(Played):
    """Keeps `shop.users`, counts them by country into `shop.countries`, and looks names of countries up."""

    def __init__(self, **settings: Any) -> None:
        catalog = Catalog(store=MemoryCatalog())
        catalog.create_database("shop")
        for name, columns in (
            ("users", "id BIGINT, country STRING, PRIMARY KEY (id)"),
            ("countries", "country STRING, users BIGINT, PRIMARY KEY (country)"),
            ("names", "code STRING, name STRING, PRIMARY KEY (code)"),
        ):
            catalog.create_table(f"shop.{name}", columns, num_partitions=1)
        super().__init__(catalog=catalog, **settings)
        users = self.table("shop.users")
        users.group_by("country").agg(users=Count()).to_table("shop.countries")
        names = self.table("shop.names", everywhere=True)
        users.to_stream().join_lookup(names, {"name": TableField("name")}, on="country")

    def label_of(self, name: str, description: str) -> str:
        """Return the label of an operator by its name and description."""
        nodes = self._definition.topology.nodes
        [label] = [
            node.label for node in nodes if (node.operator.name, node.operator.describe()) == (name, description)
        ]
        return label

    def feed(self, users: int) -> None:
        """Insert users of one country, of whom one is updated, one is repeated, and one is deleted."""
        topology = self._definition.topology
        table, agg = self.label_of("table", "shop.users"), self.label_of("agg", "users")
        written, stream = self.label_of("to_table", "shop.countries"), topology.stream_of_topic["shop.users"]
        store = next(iter(topology.task_stores(stream)))
        self._state.progress.assigned({USERS: 0})
        self._state.progress.report(
            Report(
                memory={"machine:7": 4096},
                sizes={(TaskId(stream, 0), store): StoreSize(2_048, users)},
                replicas={"machine:7": {"shop.names": ReplicaSize(249, 2)}},
                tallies={
                    Tally(TABLE_INSERTIONS, stream, table): users,
                    Tally(TABLE_UPDATES, stream, table): 1,
                    Tally(TABLE_UNCHANGED, stream, table): 1,
                    Tally(TABLE_DELETIONS, stream, table): 1,
                    Tally(TABLE_INSERTIONS, "by-country", agg): 1,
                    Tally(TABLE_UPSERTS, "by-country", written): users,
                    Tally(TABLE_DELETES, "by-country", written): 1,
                },
            )
        )
        assert self._server is not None
        lag = self._server._lag
        # Its thread would ask a broker that does not exist.
        lag.close()
        lag.sample = LagSample(time.time(), {USERS: Lag(4, 9)})
