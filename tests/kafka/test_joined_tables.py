"""Tables in applications on a real broker, in processes without Spark; ordinary runs have the other guarantee on Spark."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt.tables import Catalog
from tests.kafka.joined_tables import keep_joined_tables
from tests.support import LONG, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["at-least-once"])
def test_joined_tables_are_kept_across_a_lost_disk(kafka: Kafka, guarantee: str) -> None:
    keep_joined_tables(kafka, processing_guarantee=guarantee, processing_mode="resident", spark_master="processes[1]")


def test_versions_have_all_rows_or_say_which_are_missing(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    with Catalog(kafka.address) as catalog:
        database, group = unique("shop").replace("-", "_"), unique("versions")
        catalog.create_database(database)
        columns = "id BIGINT, n BIGINT, PRIMARY KEY (id)"
        left, right, out = (
            catalog.create_table(f"{database}.{name}", columns, num_partitions=1) for name in ("left", "right", "out")
        )
        left.upsert([[1, 10], [2, 20]])
        right.upsert([[1, 0]])

        def run(define: Callable[[Any, Any], Any], new: list[int]) -> list[Any]:
            """Run a version until a new row is in the result, and return the rows and what it has said."""
            caplog.clear()
            app = kafka.app(
                group,
                processing_mode="resident",
                spark_master="processes[1]",
                # Tables have the rows that were there before.
                auto_offset_reset="latest",
            )
            define(app.table(left), app.table(right)).to_table(out)
            left.upsert([new])
            right.upsert([new])
            with running(app):
                wait_until(lambda: new in [list(row.values()) for row in out.scan().rows()], 60, "the new row")
                # Not all versions need it for the new row.
                wait_until(lambda: kafka.committed(group, right.topic.name), 60, "an offset of the right table")
            said = [text for text in caplog.messages if text.startswith("store")]
            return [sorted(row["id"] for row in out.scan().rows()), *said]

        assert run(lambda one, other: one[one["n"] > 5], [3, 30]) == [[1, 2, 3]]
        (_, missing) = run(lambda one, other: one[one["n"] > 5].join(other, on_merge="keep-left"), [4, 40])
        merged = f"{left.topic.name}--{right.topic.name}"
        assert missing.startswith(
            f"store 'join' of {merged} is new, and consumer group {group!r} has read {left.topic.name} and "
            f"{right.topic.name} before: rows from then are missing in it"
        )
        (_, changed) = run(lambda one, other: one.join(other, "left", on_merge="keep-left"), [5, 50])
        rows = f"input 1 table of {left.topic.name}"
        assert changed.startswith(
            f"store 'join' of {merged}: this version does not have inner, {rows} > filter (n > 5) any more and has left, "
            f"{rows}, which is new; rows that are there stay"
        )
