"""The cost of partitions: of a record, memory, the start, and a restore."""

import argparse

from bench import common
from bench.runners import Running
from bench.scale.costs import PROGRAM, measure_cost, place_of, runner_of
from bench.scale.flow import Flow

PARTITIONS = (2, 64, 200)


def cost(address: str, chosen: argparse.Namespace) -> bool:
    """Measure a keyed count on two slots with several numbers of partitions."""
    rows: list[list[object]] = []
    records, base = chosen.records or 600_000, 0.0
    for partitions in chosen.partitions or PARTITIONS:
        source, target = common.unique("in"), common.unique("out")
        common.create_topics(address, source, target, partitions=partitions)
        common.fill(address, source, records, partitions=partitions, keys=max(1_000, partitions))
        # When half is done, all stores have been opened.
        measured = measure_cost(
            chosen, "count", address, source, records=records, skip=records // 2, partitions=partitions
        )
        base = base or measured.record_us
        # One after the other in a group, with a state directory of its own each: the second one restores all.
        seconds: list[float] = []
        group = common.unique("bench")
        with Flow(address, source, target, partitions, 2.0) as flow:
            for _ in range(2):
                with Running(
                    runner_of(chosen),
                    "where",
                    address,
                    source,
                    target,
                    master=chosen.master,
                    group=group,
                    program=PROGRAM,
                ) as running:
                    seconds.append(flow.wait(running))
        figures = (measured.record_us, f"{measured.record_us / base:.2f}", measured.peak_mb, *seconds)
        rows.append([str(partitions), *figures])
    columns = ["partitions", "µs per record", "ratio", "peak MB", "all records read s", "restore s"]
    common.show(f"a count on two slots, {place_of(chosen)}", columns, rows)
    return True
