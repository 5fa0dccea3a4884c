"""Two tables joined and aggregated into a third one, exactly once, in processes that are killed: it is the batch result."""

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from streamrt.kafka import Producer
from tests.chaos import kill_tree
from tests.support import LONG, Kafka, Program, read_topic, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KILLS = 20 if LONG else 2
KEYS, COUNTRIES = 200, ("FR", "DE", "PT", "IT", "SE")
PROGRAM = """
from streamrt import Application
from streamrt.windows import Count, Max, Min, Sum

app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    processing_mode="resident",
    spark_master="processes[2]",
    commit_interval=0.3,
)
topics = (app.topic(name, key_deserializer="str", key_serializer="str") for name in ({customers!r}, {balances!r}))
customers, balances = map(app.table, topics)
joined = customers.join(balances, on_merge=lambda customer, balance: {{**customer, **balance}})
known = joined[joined["amount"] > 10]
totals = known.group_by("country").agg(n=Count(), total=Sum("amount"), lowest=Min("amount"), highest=Max("amount"))
totals.to_stream().to_topic(app.topic({target!r}, key_serializer="json"))

if __name__ == "__main__":
    app.run()
"""


class Rows:
    """Upserts and deletes rows of two tables all the time, and knows the present ones.

    Args:
        address: the broker.
        topics: the topics of customers and of balances.
        seed: makes the rows.
    """

    def __init__(self, address: str, topics: tuple[str, str], seed: int) -> None:
        self._address, self._topics = address, topics
        self._dice = random.Random(seed)
        self.present: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self.written = 0

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change rows as long as the context lasts."""
        over = threading.Event()

        def run() -> None:
            with Producer(self._address) as producer:
                while not over.wait(0.1):
                    self._write(producer, 20)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def finish(self) -> None:
        """Write a last row of each customer, in a country of its own, so that all partitions are known to be done."""
        with Producer(self._address) as producer:
            for number in range(40):
                key = f"end-{number}"
                self._upsert(producer, 0, key, {"country": f"end {number % 8}"})
                self._upsert(producer, 1, key, {"amount": 1_000})
            producer.flush()

    def batch_result(self) -> dict[str, dict[str, Any]]:
        """Return the totals of the present rows, as pandas computes them."""
        customers, balances = (pd.DataFrame.from_dict(rows, orient="index") for rows in self.present)
        joined = customers.join(balances, how="inner")
        groups = joined[joined["amount"] > 10].groupby("country")["amount"]
        found = groups.agg(n="count", total="sum", lowest="min", highest="max").reset_index()
        return {str(row["country"]): row for row in json.loads(found.to_json(orient="records"))}

    def _write(self, producer: Producer, count: int) -> None:
        dice = self._dice
        for _ in range(count):
            side, key = dice.randrange(2), f"customer-{dice.randrange(KEYS)}"
            row: Any = None
            if dice.random() < 0.8:
                row = {"amount": dice.randrange(100)} if side else {"country": dice.choice(COUNTRIES)}
            self._upsert(producer, side, key, row)
        producer.flush()

    def _upsert(self, producer: Producer, side: int, key: str, row: Any) -> None:
        producer.produce(self._topics[side], None if row is None else json.dumps(row).encode(), key=key.encode())
        self.written += 1
        if row is None:
            self.present[side].pop(key, None)
        else:
            self.present[side][key] = row


class Totals:
    """Reads the committed rows of the third table all the time, as a program outside would."""

    def __init__(self, address: str, topic: str) -> None:
        self.rows: dict[str, Any] = {}
        self.changes = 0
        self._over = threading.Event()
        self._consumer = read_topic(address, topic)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            record = self._consumer.poll(0.1)
            if record is None or record.error() is not None:
                continue
            key, value = json.loads(record.key() or b""), json.loads(record.value() or b"null")
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
            self.changes += 1
        self._consumer.close()

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()


def test_a_table_of_joined_and_aggregated_rows_is_the_batch_result(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    customers, balances, target = kafka.topic("customers", 4), kafka.topic("balances", 4), kafka.topic("totals", 2)
    rows, totals = Rows(kafka.address, (customers, balances), seed), Totals(kafka.address, target)
    state = tmp_path / "state"
    text = PROGRAM.format(
        address=kafka.address,
        group=unique("group"),
        state_dir=str(state),
        customers=customers,
        balances=balances,
        target=target,
    )

    def more_changes() -> None:
        seen = totals.changes
        wait_until(lambda: totals.changes > seen + 50, 120, "more totals")

    try:
        with rows.changing():
            app = program(text)
            for kill in range(KILLS):
                more_changes()
                kill_tree(app)
                if kill % 2:
                    # All stores come from their changelogs.
                    shutil.rmtree(state)
                app = program(text)
            more_changes()
        rows.finish()
        expected = rows.batch_result()
        wait_until(lambda: totals.rows == expected, 120, "the batch result")
        print(f"{KILLS} kills, {rows.written} rows written, {totals.changes} changes of totals")
        code, _ = app.end()
        assert code == 0, "".join(app.err)
        assert totals.rows == expected
    finally:
        totals.close()
