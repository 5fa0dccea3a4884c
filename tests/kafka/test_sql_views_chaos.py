"""Materialized views of a program in SQL, exactly once, in processes that are killed: they have the rows of a batch."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from streamrt.tables import Catalog
from tests.chaos import kill_tree
from tests.kafka.sql_views import VIEWS, World
from tests.support import LONG, Kafka, Program, read_topic, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KILLS = 20 if LONG else 2
# Members of a killed instance hold their partitions until their sessions are over, which takes long.
KINDS = ("kill one of two", "lose the disk", "kill") if LONG else ("kill", "lose the disk")
PROGRAM = """
from streamrt import Application

app = Application(
    {address!r},
    consumer_group={group!r},
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    processing_mode="resident",
    spark_master="processes[2]",
    commit_interval=0.3,
)
app.sql({program!r})

if __name__ == "__main__":
    app.run()
"""


def test_views_have_the_rows_of_their_queries(kafka: Kafka, program: Callable[..., Program], tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    with Catalog(kafka.address) as catalog:
        world = World(kafka, catalog, seed)

        def start(number: int) -> Program:
            state = str(tmp_path / f"state-{number}")
            return program(
                PROGRAM.format(address=kafka.address, group=world.group, state_dir=state, program=world.program)
            )

        app = start(0)
        wait_until(lambda: f"{world.database}.amounts" in catalog, what="the tables")
        totals = world.table("totals").topic.name
        wait_until(lambda: kafka.admin.inspect_topics([totals])[totals], what="the topic of the view")
        outside = read_topic(kafka.address, totals)
        seen = 0

        def see_changes(count: int) -> None:
            """Read committed changes of a view as a program outside would."""
            nonlocal seen
            wanted = seen + count

            def read() -> bool:
                nonlocal seen
                record = outside.poll(0.1)
                seen += record is not None and record.error() is None
                return seen >= wanted

            wait_until(read, what="more totals")

        try:
            with world.changing():
                number = 0
                for _, kind in zip(range(KILLS), itertools.cycle(KINDS), strict=False):
                    see_changes(20)
                    if kind == "kill one of two":
                        other = start(number + 1)
                        wait_until(lambda: len(kafka.admin.group_members(world.group, 30)) == 4, what="both instances")
                        see_changes(20)
                        kill_tree(app)
                        app, number = other, number + 1
                        continue
                    kill_tree(app)
                    if kind == "lose the disk":
                        # All stores come from their changelogs.
                        shutil.rmtree(tmp_path / f"state-{number}", ignore_errors=True)
                    app = start(number)
                see_changes(20)
        finally:
            outside.close()
        expected = world.batch_result()
        world.expect(expected)
        counts = {name: sum(rows.values()) for name, rows in expected.items()}
        print(f"{KILLS} kills, {world.written} rows written, {seen} changes of totals, rows {counts}")
        code, _ = app.end()
        assert code == 0, "".join(app.err)
        assert world.rows() == expected
        same = kafka.app(world.group, processing_guarantee="exactly-once")
        same.sql(world.program)
        for name in VIEWS:
            found = same.query(f"SELECT * FROM {world.database}.{name}")
            names = [column for column in world.table(name).schema.names if column != "_row_key"]
            assert Counter(tuple(row[column] for column in names) for row in found) == expected[name]
            verification = same.verify(f"{world.database}.{name}")
            assert verification.equal, str(verification)
