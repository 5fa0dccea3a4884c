"""Nexmark's queries by dataframe in the test driver: row for row what DuckDB finds in the same events."""

import ast
import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamrt import Application
from streamrt.testing import TopologyTestDriver
from tests.nexmark import Answers, inputs, nexmark, results_of, rows_of
from tests.support import LONG, ROOT

COUNT = 100_000 if LONG else 1_500
SCARCE = () if LONG else ("q2", "q3")
"""Queries that have rows only among twice as many events."""


@functools.cache
def make_world(count: int) -> tuple[list[Any], Answers]:
    """Return events, and DuckDB with them."""
    events: list[Any] = nexmark.make_events(count)
    return events, Answers(events)


def run(name: str, events: list[Any]) -> list[dict[str, Any]]:
    """Return the rows of a query at the end; the wall clock is that of the arrivals."""
    app = Application(broker_address="unused:9092", consumer_group="nexmark", loglevel=None)
    nexmark.build(app, name)
    with TopologyTestDriver(app, start=events[0].arrived) as driver:
        read = [event for event in events if nexmark.PREFIX + event.kind in app.topology.sources]
        for window, arrivals in groupby(read, key=lambda event: event.arrived // nexmark.WINDOW):
            driver.advance(max(window * nexmark.WINDOW - driver.now, 0))
            driver.pipe_many(inputs(arrivals))
        driver.advance(2 * nexmark.WINDOW)
        driver.end()
        return results_of(name, [(record.raw_key, record.value) for record in driver.read(nexmark.PREFIX + name)])


@pytest.mark.only_mode("resident", reason="test_nexmark_run.py has both on Kafka", always=False)
@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("name", nexmark.QUERIES)
def test_rows_are_those_of_sql(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexmark, "FILES", tmp_path)
    events, answers = make_world(2 * COUNT if name in SCARCE else COUNT)
    expected = answers.rows(name)
    assert len(expected) > 1
    assert rows_of(run(name, events), expected[0]) == rows_of(expected, expected[0])
    if name == "q10":
        assert rows_of(rows_in(tmp_path), expected[0]) == rows_of(expected, expected[0])


def rows_in(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows in the files of q10."""
    for file in directory.glob(f"{nexmark.PREFIX}bids/day=*/minute=*/*.jsonl"):
        yield from (orjson.loads(line)["_value"] for line in file.read_bytes().splitlines())


def test_queries_have_the_lines_that_the_documentation_says() -> None:
    lines = {name: count_lines(query) for name, query in nexmark.QUERIES.items()}
    assert max(lines.values()) <= 5
    rows = re.findall(r"^\| (q\d+) \|[^|]*\| (\d) \|", (ROOT / "docs/nexmark.md").read_text(), re.MULTILINE)
    assert {name: int(count) for name, count in rows} == lines


def count_lines(query: Callable[..., Any]) -> int:
    """Return the number of lines of a function, without its head and docstring."""
    (function,) = ast.parse(inspect.getsource(query)).body
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:]
    return 1 + (body[-1].end_lineno or 0) - body[0].lineno


def test_events_are_reproducible_and_out_of_order() -> None:
    events = nexmark.make_events(5_000, seed=7)
    assert nexmark.make_events(5_000, seed=7) == events != nexmark.make_events(5_000, seed=8)
    assert Counter(event.kind for event in events) == {"persons": 100, "auctions": 300, "bids": 4_600}
    assert len({event.timestamp for event in events}) == 5_000
    highest = 0
    early = 0
    for event in events:
        assert event.timestamp > highest - nexmark.DISORDER_MS
        early += event.timestamp < highest
        highest = max(highest, event.timestamp)
    assert early > 3_000


def test_parts_of_the_day_are_those_of_sql() -> None:
    events = nexmark.make_events(50)
    bids = [event for event in events if event.kind == "bids"][:24]
    for hour, bid in enumerate(bids):
        bid.value.update(date_time=nexmark.START + hour * 3_600_000, price=2_000_000)
    found = [nexmark.time_type(bid.value) for bid in bids]
    assert found == [row["bid_time_type"] for row in Answers(events).rows("q14") if row["price"] == 0.908 * 2_000_000]
    assert set(found) == {"dayTime", "nightTime", "otherTime"}
