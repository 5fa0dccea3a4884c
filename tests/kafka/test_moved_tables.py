"""Tables of all kinds in one application, whose state is forked by a savepoint, lost, and moved to more partitions."""

import json
import random
import shutil
from collections import defaultdict
from typing import Any

import pytest

from streamrt import Application
from streamrt.config import ProcessingGuarantee
from streamrt.kafka import Producer
from streamrt.tables import Catalog, Table
from streamrt.windows import Count, CountDistinct, Max, Sum
from tests.support import LONG, Kafka, running, unique, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.skipif(not LONG, reason="test_joined_tables.py has a join and an aggregate"),
]

INPUTS = {
    "users": "id BIGINT, city STRING, n BIGINT, PRIMARY KEY (id)",
    "balances": "id BIGINT, amount BIGINT, PRIMARY KEY (id)",
    "cities": "city STRING, country STRING, PRIMARY KEY (city)",
}
RESULTS = {
    "joined": "id BIGINT, city STRING, n BIGINT, amount BIGINT, PRIMARY KEY (id)",
    "placed": "id BIGINT, city STRING, n BIGINT, country STRING, PRIMARY KEY (id)",
    "countries": "country STRING, users BIGINT, total BIGINT, highest BIGINT, PRIMARY KEY (country)",
    "best": "city STRING, rank BIGINT, n BIGINT, PRIMARY KEY (city, rank)",
    "latest": "id BIGINT, v BIGINT, PRIMARY KEY (id)",
    "sums": "id BIGINT, total BIGINT, values BIGINT, PRIMARY KEY (id)",
}
Rows = dict[str, set[tuple[Any, ...]]]


def add_amount(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "amount": row.get("amount")}


class World:
    """The tables of a database, the random changes of their rows, and what is computed from the present ones.

    Args:
        kafka: the broker.
        catalog: its catalogue.
        settings: of the application.
    """

    def __init__(self, kafka: Kafka, catalog: Catalog, **settings: Any) -> None:
        self._kafka, self._settings = kafka, settings
        self._dice = random.Random(7)
        self._present: dict[str, dict[Any, list[Any]]] = {name: {} for name in INPUTS}
        self._events: list[list[Any]] = []
        self.groups = unique("tables"), unique("fork")
        database = unique("moved").replace("-", "_")
        catalog.create_database(database)

        def create(name: str, columns: str, **options: Any) -> Table:
            return catalog.create_table(f"{database}.{name}", columns, num_partitions=2, **options)

        self.inputs = {name: create(name, columns) for name, columns in INPUTS.items()}
        self.events = create("events", "id BIGINT, v BIGINT", key=["id"])
        self.results = {
            group: {name: create(f"{name}_{number}", columns) for name, columns in RESULTS.items()}
            for number, group in enumerate(self.groups)
        }

    def make_app(self, group: str) -> Application:
        """Return the application of a group, which writes to tables of its own."""
        app, to = self._kafka.app(group, **self._settings), self.results[group]
        users, balances, cities = (app.table(self.inputs[name]) for name in INPUTS)
        users.join(balances, "left").apply(add_amount).to_table(to["joined"])
        placed = users.join(cities, on="city")
        placed.copy().to_table(to["placed"])
        placed.group_by("country").agg(users=Count(), total=Sum("n"), highest=Max("n")).to_table(to["countries"])
        users.group_by("city", nulls="skip").top(2, by=["n", "id"])[["city", "rank", "n"]].to_table(to["best"])
        events = app.dataframe(self.events)
        events.drop_duplicates("id", keep="last")[["id", "v"]].to_table(to["latest"])
        events.group_by("id", name="sums").agg(total=Sum("v"), values=CountDistinct("v")).to_table(to["sums"])
        return app

    def change(self, count: int) -> None:
        """Upsert and delete random rows, and append events."""
        dice, changes = self._dice, defaultdict[str, list[dict[str, Any]]](list)
        for _ in range(count):
            name = dice.choice(["users", "users", *INPUTS])
            key = dice.choice("ABCDE") if name == "cities" else dice.randrange(30)
            if dice.random() < 0.3:
                self._present[name].pop(key, None)
                changes[name].append({"delete": key})
                continue
            row = {
                "users": [key, dice.choice([*"ABCDE", None]), dice.randrange(50)],
                "balances": [key, dice.randrange(100)],
                "cities": [key, dice.choice(["FR", "DE", "IT"])],
            }[name]
            self._present[name][key] = row
            changes[name].append({"upsert": row})
        for name, lines in changes.items():
            with self.inputs[name].writer() as writer:
                writer.write(lines)
        events = [[dice.randrange(20), dice.randrange(5)] for _ in range(count // 2)]
        self._events += events
        self.events.append(events)

    def replace_by_hand(self) -> None:
        """Write rows as other clients of Kafka do: writers refuse tables whose topics got more partitions."""
        users, cities = self.inputs["users"].topic.name, self.inputs["cities"].topic.name
        with Producer(self._kafka.address) as producer:
            for key in range(30):
                self._present["users"][key] = [key, "A", key]
                value = json.dumps({"id": key, "city": "A", "n": key}).encode()
                producer.produce(users, value, key=str(key).encode())
            self._present["cities"] = {"A": ["A", "PT"]}
            for city in "BCDE":
                producer.produce(cities, None, key=json.dumps(city).encode())
            producer.produce(cities, b'{"city": "A", "country": "PT"}', key=b'"A"')

    def expected(self) -> Rows:
        """Return the results over the present rows."""
        users, balances, cities = (self._present[name] for name in INPUTS)
        placed = {(*row, cities[row[1]][1]) for row in users.values() if row[1] in cities}
        countries, by_city, by_id = defaultdict[str, list[int]](list), defaultdict[str, list[Any]](list), {}
        for _, _, n, country in placed:
            countries[country].append(n)
        for key, city, n in users.values():
            by_city[city].append((n, key))
        by_id = {key: [v for other, v in self._events if other == key] for key, _ in self._events}
        return {
            "joined": {(*row, balances.get(row[0], [0, None])[1]) for row in users.values()},
            "placed": placed,
            "countries": {(country, len(ns), sum(ns), max(ns)) for country, ns in countries.items()},
            "best": {
                (city, rank, n)
                for city, rows in by_city.items()
                if city is not None
                for rank, (n, _) in enumerate(sorted(rows, reverse=True)[:2], 1)
            },
            "latest": {(key, vs[-1]) for key, vs in by_id.items()},
            "sums": {(key, sum(vs), len(set(vs))) for key, vs in by_id.items()},
        }

    def found(self, group: str, before: Rows | None = None) -> Rows:
        """Return the results that a group has written, over those that were there before."""
        found = {}
        for name, table in self.results[group].items():
            width = len(table.info.key)
            rows = {row[:width]: row for row in (before or {}).get(name, ())}
            for row in table.scan(changes=True).to_arrow().to_pylist():
                change, values = row.pop("_change_type"), tuple(row.values())
                rows.pop(values[:width], None)
                if change != "-D":
                    rows[values[:width]] = values
            found[name] = set(rows.values())
        return found

    def wait(self, group: str, what: str, before: Rows | None = None) -> None:
        """Wait until the results are those over the present rows."""
        expected = self.expected()

        def differences() -> Rows:
            found = self.found(group, before)
            return {name: found[name] ^ rows for name, rows in expected.items() if found[name] != rows}

        wait_until(lambda: not differences(), 120, what, differences)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_results_are_those_of_the_present_rows(kafka: Kafka, guarantee: ProcessingGuarantee) -> None:
    settings = {"processing_guarantee": guarantee, "processing_mode": "resident", "spark_master": "processes[2]"}
    with Catalog(kafka.address) as catalog:
        world = World(kafka, catalog, **settings)
        group, fork = world.groups
        world.change(200)
        with running(world.make_app(group)):
            world.wait(group, "the first results")
            world.change(150)
            world.wait(group, "the second results")
        saved = world.found(group)
        world.make_app(group).savepoint("saved")
        world.make_app(fork).restore_savepoint("saved", group=group)
        world.change(150)
        for each, before in ((group, None), (fork, saved)):
            with running(world.make_app(each)):
                world.wait(each, f"the results of {each}", before)
        shutil.rmtree(kafka.state_dir)
        with running(world.make_app(group)):
            world.change(100)
            world.wait(group, "the results after the loss of a disk")
        world.make_app(group).repartition(5)
        with running(world.make_app(group)):
            world.replace_by_hand()
            world.wait(group, "the results with more partitions")
