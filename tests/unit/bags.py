"""Tables of rows without keys, for tests: random changes of their inputs, and what adding up their changes gives."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from streamrt import Application
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.testing import TopologyTestDriver

Row = dict[str, Any]
Bag = list[Row]
VALUES = (None, 1, 2, 2.0, "x")


def make_app() -> Application:
    return Application("unused:9092", consumer_group="bags", loglevel=None)


def table_of(app: Application, name: str, partitions: int) -> Any:
    config = TopicConfig(num_partitions=partitions, replication_factor=1)
    return app.table(app.topic(name, key_deserializer="str", key_serializer="str", config=config))


def counted(rows: Iterable[Row]) -> Counter[bytes]:
    return Counter(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in rows)


class Follower:
    """Adds up the changes of a topic, none of which takes back what is not there."""

    def __init__(self, driver: TopologyTestDriver, topic: str) -> None:
        self.driver, self.topic = driver, topic
        self.rows: Counter[bytes] = Counter()

    def read(self) -> Counter[bytes]:
        for record in self.driver.read(self.topic):
            row = dict(record.value)
            kind = row.pop("_change_type")
            data = orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
            self.rows[data] += 1 if kind in ("+I", "+U") else -1
            assert self.rows[data] >= 0, (self.topic, row)
        return +self.rows


def change_tables(
    driver: TopologyTestDriver,
    dice: random.Random,
    partitions: dict[str, int],
    records: int,
    columns: dict[str, tuple[str, str]],
) -> Iterable[dict[str, Bag]]:
    """Change rows of tables; yield what they are after each change.

    Args:
        driver: the driver.
        dice: what decides.
        partitions: number of partitions of each table.
        records: number of changes.
        columns: the two columns of each table: one of `VALUES`, which may be null, and one of numbers.
    """
    now: dict[str, dict[str, Row]] = {name: {} for name in partitions}
    for number in range(records):
        name, key = dice.choice(list(partitions)), dice.choice("abcdefgh")
        first, second = columns[name]
        row = None if dice.random() < 0.3 else {first: dice.choice(VALUES), second: dice.randrange(3)}
        now[name].pop(key, None)
        if row is not None:
            now[name][key] = row
        place = partition_for(key.encode(), partitions[name])
        when = max(0, number - dice.randrange(5))
        driver.pipe(name, row, key=key, timestamp=when, partition=place)
        yield {each: list(rows.values()) for each, rows in now.items()}
