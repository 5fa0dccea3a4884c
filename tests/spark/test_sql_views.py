"""Random views have the rows that Spark SQL finds in the same tables, and so has DuckDB, the oracle of ordinary runs."""

import os
import random
from collections import Counter
from typing import Any

import pytest

from streamrt.errors import SQLError
from tests.sql.bags import compare_bags
from tests.sql.random_cases import Case, make_case
from tests.sql.spark_batch import SparkBatch
from tests.sql.worlds import Batch, World
from tests.support import LONG

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 300


def start_spark() -> Any:
    from pyspark.sql import SparkSession

    from streamrt.jvm.java import find_java

    os.environ.setdefault("JAVA_HOME", str(find_java().executable.parent.parent))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.sql.shuffle.partitions", "1").getOrCreate().newSession()


def spark_knows(query: str) -> bool:
    """Return whether Spark has what a query uses, and computes it."""
    if "DESCRIPTOR(" in query:
        # Spark has no TUMBLE and HOP in FROM.
        return False
    # Spark 4.2 counts a value of a session twice for DISTINCT with FILTER, and aggregates of aggregates have the ends that
    # sessions had before they were merged.
    is_wrong = query.count("GROUP BY") > 1 or ("(DISTINCT" in query and "FILTER (" in query)
    return not ("session_window(" in query and is_wrong)


def compare_with_spark(session: Any, case: Case) -> str:
    """Compare a view with Spark if no record of it can be late, and DuckDB with Spark; return what was compared."""
    spark, batch = SparkBatch(session, case.tables), Batch(case.tables)
    closing = case.closing
    try:
        world = World(case.tables, case.query, options="" if closing is None else closing.options)
    except SQLError:
        return "refused"
    with world:
        for chunk in case.chunks:
            world.feed([change for change in chunk if change.table in world.read_tables])
            spark.apply(chunk)
            batch.apply(chunk)
        if closing is not None:
            world.driver.end()
        rows = world.rows()
    expected = spark.rows(case.query)
    if closing is None or closing.partitions > 1:
        difference = compare_bags(expected, rows)
        assert difference is None, f"seed {case.seed}: {difference.describe()}\n{case.query}"
    try:
        found = batch.rows(case.query)
    except SQLError:
        return "passed"
    difference = compare_bags(expected, found)
    assert difference is None, f"seed {case.seed}, DuckDB: {difference.describe()}\n{case.query}"
    return "passed"


@pytest.mark.skipif(not LONG, reason="each query takes Spark half a second: make test-long")
def test_views_duckdb_and_spark_agree(capsys: pytest.CaptureFixture[str]) -> None:
    session = start_spark()
    base = random.SystemRandom().randrange(1 << 32)
    with capsys.disabled():
        print(f"\nbase seed of random views beside Spark: {base}")
    cases = [make_case(seed) for seed in range(base, base + COUNT)]
    counts = Counter(compare_with_spark(session, case) for case in cases if spark_knows(case.query))
    assert counts["passed"] > 0.8 * counts.total(), counts
