"""Nexmark's queries by SQL and by dataframe: events per second of processor time in the test driver, and their ratio.

Both get the same events, in chunks that are committed as a whole, in the same run, in turn. SQL reads tables, whose rows are
checked; dataframes read topics of JSON. Queries that are refused in SQL are listed with the reason.

    python -m bench.sql --query q1 --query q17
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table as Shown

from bench import common
from streamrt import Application
from streamrt.config import ProcessingMode
from streamrt.errors import SQLError
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver
from tests.nexmark import inputs, nexmark
from tests.sql.nexmark import SCHEMAS, make_changes, read_texts
from tests.sql.worlds import Change

CHUNK = 5_000


class Side(NamedTuple):
    """A driver, and the topics that it reads."""

    driver: TopologyTestDriver
    topics: frozenset[str]


def drive_sql(name: str, mode: ProcessingMode) -> Side:
    """Return a driver for a query by SQL.

    Raises:
        SQLError: if it is refused.
    """
    catalog = Catalog(store=MemoryCatalog())
    for table, schema in SCHEMAS.items():
        # The topic has the name of the table without its database.
        catalog.create_table(table, schema, topic=table, num_partitions=nexmark.CONFIG.num_partitions)
    app = Application("unused:9092", consumer_group="bench", processing_mode=mode, catalog=catalog, loglevel="ERROR")
    app.sql(f"CREATE MATERIALIZED VIEW result AS {read_texts()[name]}")
    driver = TopologyTestDriver(app)
    if "side_input" in app.topology.sources:
        rows = ({"key": key, "value": value} for key, value in nexmark.SIDE_INPUT.items())
        driver.pipe_many((InputRecord("side_input", row, key=row["key"], timestamp=0) for row in rows), chunk=CHUNK)
    return Side(driver, frozenset(app.topology.sources))


def drive_dataframe(name: str, mode: ProcessingMode) -> Side:
    """Return a driver for a query by dataframe."""
    app = Application("unused:9092", consumer_group="bench", processing_mode=mode, loglevel="ERROR")
    nexmark.build(app, name)
    return Side(TopologyTestDriver(app), frozenset(app.topology.sources))


def measure(driver: TopologyTestDriver, records: list[InputRecord], events: int) -> float:
    """Return events per second of processor time, after a tenth of them as a warm-up."""
    if not records:
        raise ValueError("the query reads none of the records")
    warm = len(records) // 10
    with driver:
        driver.pipe_many(records[:warm], chunk=CHUNK)
        begun = time.process_time()
        driver.pipe_many(records[warm:], chunk=CHUNK)
        return 0.9 * events / (time.process_time() - begun)


def compare(
    name: str, mode: ProcessingMode, events: list[Any], changes: list[Change], runs: int
) -> tuple[float, float]:
    """Return the medians by SQL and by dataframe."""
    by_sql, by_dataframe = [], []
    for _ in range(runs):
        driver, tables = drive_sql(name, mode)
        records = [
            InputRecord(table, row, None, timestamp, None, number % nexmark.CONFIG.num_partitions)
            for number, (table, _, row, timestamp) in enumerate(changes)
            if table in tables
        ]
        by_sql.append(measure(driver, records, len(events)))
        driver, topics = drive_dataframe(name, mode)
        records = [record for record in inputs(events) if record.topic in topics]
        by_dataframe.append(measure(driver, records, len(events)))
    return statistics.median(by_sql), statistics.median(by_dataframe)


def main() -> int:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="measured runs, of which medians are shown")
    options.add_argument("--events", type=int, default=20_000)
    options.add_argument("--query", action="append", choices=[*read_texts()], help="only this one; may be repeated")
    options.add_argument("--mode", choices=common.MODES, help="only one processing mode")
    chosen = options.parse_args()
    events = nexmark.make_events(chosen.events)
    changes = make_changes(events)
    shown = Shown("query", "mode", "SQL, events/s", "dataframe, events/s", "ratio")
    with tempfile.TemporaryDirectory() as files:
        vars(nexmark)["FILES"] = Path(files)
        for name, mode in itertools.product(
            chosen.query or read_texts(), [chosen.mode] if chosen.mode else common.MODES
        ):
            try:
                by_sql, by_dataframe = compare(name, mode, events, changes, chosen.runs)
            except SQLError as error:
                shown.add_row(name, mode, f"refused: {error}", "", "")
                continue
            ratio = f"{by_sql / by_dataframe:.2f}"
            shown.add_row(name, mode, f"{by_sql:,.0f}", f"{by_dataframe:,.0f}", ratio)
            print(f"{name} {mode}: {by_sql:,.0f} {by_dataframe:,.0f} {ratio}", flush=True)
    common.console.print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
