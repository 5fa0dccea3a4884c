"""Two executors of a standalone Spark cluster on this machine, beside Spark in the process of the application."""

import argparse
from argparse import Namespace

import psutil

from bench import common
from bench.scale.costs import measure_cost
from tests.spark_cluster import ENVIRONMENT, cluster, quick_java


def cost(address: str, chosen: argparse.Namespace) -> bool:
    """Measure a keyed count in both modes; processor time includes that of the cluster."""
    records = chosen.records or 200_000
    source = common.unique("in")
    common.create_topics(address, source)
    common.fill(address, source, records)
    rows: list[list[object]] = []
    environment = {**ENVIRONMENT, **quick_java()}
    with common.scratch() as directory, cluster(directory) as spark:
        machines = [spark.machine().process for _ in range(common.PARTITIONS)]

        def others_s() -> float:
            return sum(map(_spent_s, machines))

        for mode in common.MODES:
            for name, master in (("local[2]", "local[2]"), ("two executors", spark.url)):
                figures = measure_cost(
                    Namespace(**{**vars(chosen), "mode": mode, "master": master}),
                    "count",
                    address,
                    source,
                    records=records,
                    skip=records // 5,
                    others_s=others_s,
                    environment=environment,
                )
                rows.append([mode, name, figures.start_s, figures.record_us, figures.rate])
    columns = ["mode", "", "start s", "µs per record", "records/s"]
    common.show(f"a count, {chosen.guarantee}", columns, rows)
    return True


def _spent_s(root: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:4]) for process in (root, *root.children(recursive=True)))
