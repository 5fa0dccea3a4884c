"""Nexmark's queries by dataframe on Kafka, in both modes, over 100,000 events: row for row what DuckDB finds in them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamrt import Application
from streamrt.config import ProcessingMode
from streamrt.testing.plugin import KafkaBroker
from tests.nexmark import Answers, nexmark, results_of, rows_of
from tests.support import LONG, MASTER, SLOTS, Kafka, running, unique, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not LONG, reason="test_nexmark.py has the queries in the test driver"),
]

COUNT = 100_000
MASTERS = {"resident": SLOTS, "micro-batch": MASTER}


@pytest.fixture(scope="module")
def answers(kafka_broker: KafkaBroker) -> Iterator[Answers]:
    """The answers over events that are in topics, under a prefix of this module."""
    events = nexmark.make_events(COUNT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nexmark, "PREFIX", unique("nexmark") + "-")
        nexmark.write_events(Application(kafka_broker.bootstrap_servers, loglevel=None), events)
        yield Answers(events)


@pytest.mark.parametrize("name", nexmark.QUERIES)
def test_rows_are_those_of_sql(
    name: str,
    kafka: Kafka,
    processing_mode: ProcessingMode,
    answers: Answers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = answers.rows(name)
    app = kafka.app(spark_master=MASTERS[processing_mode], commit_interval=5.0, processing_guarantee="exactly-once")
    monkeypatch.setattr(nexmark, "FILES", tmp_path)
    nexmark.build(app, name, target := unique(name))
    if name == "q12":
        count_by_the_wall_clock(app, kafka, target, expected)
        return
    app.run(until="end", collect=False)
    assert rows_of(results_of(name, read(kafka, target)), expected[0]) == rows_of(expected, expected[0])


def count_by_the_wall_clock(app: Application, kafka: Kafka, topic: str, expected: list[dict[str, Any]]) -> None:
    """Run q12 until all bids are counted: in which windows is not known before, but how many of each bidder is."""
    totals = sum_bids(expected)
    app.setup_topics()
    with running(app):
        wait_until(
            lambda: sum_bids(row for _, row in read(kafka, topic)).total() >= totals.total(),
            what="all bids",
            timeout_s=600,
        )
    rows = [row for _, row in read(kafka, topic)]
    assert sum_bids(rows) == totals
    assert {row["start"] % nexmark.WINDOW for row in rows} == {0}
    assert len({(row["bidder"], row["start"]) for row in rows}) == len(rows)


def sum_bids(rows: Iterable[dict[str, Any]]) -> "Counter[int]":
    """Return the number of bids of each bidder."""
    totals: Counter[int] = Counter()
    for row in rows:
        totals[row["bidder"]] += row["bid_count"]
    return totals


def read(kafka: Kafka, topic: str) -> list[tuple[bytes | None, Any]]:
    """Return keys and values of all records that are committed in a topic now."""
    return [(one.key, orjson.loads(one.value or b"null")) for one in kafka.receive_committed(topic)]
