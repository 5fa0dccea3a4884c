"""Random views have the rows that Spark SQL finds in the same tables, and so has DuckDB, the oracle of ordinary runs."""

import os
import random
from collections import Counter

import pytest

from tests.sql.bags import compare_bags
from tests.sql.random_cases import make_case
from tests.sql.worlds import Batch, World
from tests.support import LONG

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 300


@pytest.mark.skipif(not LONG, reason="each query takes Spark half a second: make test-long")
def test_views_duckdb_and_spark_agree(capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.sql import SparkSession

    from streamrt.errors import SQLError
    from streamrt.jvm.java import find_java
    from tests.sql.spark_batch import SparkBatch

    os.environ.setdefault("JAVA_HOME", str(find_java().executable.parent.parent))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate().newSession()
    base = random.SystemRandom().randrange(1 << 32)
    with capsys.disabled():
        print(f"\nbase seed of random views beside Spark: {base}")
    counts: Counter[str] = Counter()
    for seed in range(base, base + COUNT):
        case = make_case(seed)
        spark, batch = SparkBatch(session, case.tables), Batch(case.tables)
        try:
            world = World(case.tables, case.query)
        except SQLError:
            counts["refused"] += 1
            continue
        with world:
            for chunk in case.chunks:
                world.feed([change for change in chunk if change.table in world.read_tables])
                spark.apply(chunk)
                batch.apply(chunk)
            expected = spark.rows(case.query)
            difference = compare_bags(expected, world.rows())
            assert difference is None, f"seed {seed}: {difference.describe()}\n{case.query}"
            counts["passed"] += 1
            try:
                found = batch.rows(case.query)
            except SQLError:
                continue
            difference = compare_bags(expected, found)
            assert difference is None, f"seed {seed}, DuckDB: {difference.describe()}\n{case.query}"
    assert counts["passed"] > 0.8 * COUNT, counts
