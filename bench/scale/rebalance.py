"""The pauses of partitions at a rebalance: of those that stay in their process, and of those that move."""

import argparse
import time

from bench import common
from bench.runners import Running
from bench.scale.costs import PROGRAM, place_of, runner_of
from bench.scale.flow import Flow

PARTITIONS = (200,)
PROTOCOLS = ("classic", "consumer")


def pauses(address: str, chosen: argparse.Namespace) -> bool:
    """Let an instance join another one and leave again, with each protocol of the group."""
    rows: list[list[object]] = []
    for partitions in chosen.partitions or PARTITIONS:
        for protocol in PROTOCOLS:
            for event, pause, processes, after in measure(address, protocol, partitions, chosen):
                row: list[object] = [partitions, protocol, event]
                for stays in (True, False):
                    found = [pause[each] for each in pause if (processes[each] == after[each]) is stays]
                    row += [len(found), common.median(found), max(found)] if found else [0, "", ""]
                rows.append(row)
    columns = ["partitions", "protocol", "", "stay", "median s", "longest s", "move", "median s", "longest s"]
    common.show(f"time without an output, {chosen.rate:g} records/s in each, {place_of(chosen)}", columns, rows)
    return True


Event = tuple[str, dict[bytes, float], dict[bytes, int], dict[bytes, int]]
"""Name of an event, longest pause of each partition, and its process before and afterwards."""


def measure(address: str, protocol: str, partitions: int, chosen: argparse.Namespace) -> list[Event]:
    """Return what happens to partitions while nothing changes, while an instance joins, and while it leaves."""
    source, target, group = (common.unique(name) for name in ("in", "out", "bench"))
    common.create_topics(address, source, target, partitions=partitions)
    events: list[Event] = []

    def instance() -> Running:
        return Running(
            runner_of(chosen),
            "where",
            address,
            source,
            target,
            master=chosen.master,
            group=group,
            environment={"STREAMRT_GROUP_PROTOCOL": protocol},
            program=PROGRAM,
        )

    with Flow(address, source, target, partitions, chosen.rate) as flow, instance() as first:
        flow.wait(first)
        time.sleep(chosen.settle)

        def note(event: str, since: float, before: dict[bytes, int], *several: Running) -> None:
            time.sleep(chosen.settle)
            flow.wait(first, *several)
            events.append((event, flow.pauses(since), before, flow.processes()))

        before = flow.processes()
        note("nothing", time.monotonic(), before)
        with instance() as second:
            begun = time.monotonic()
            flow.wait_for(lambda: flow.processes() != before, first, second)
            note("joins", begun, before, second)
            joined, begun = flow.processes(), time.monotonic()
        flow.wait_for(lambda: set(flow.processes().values()) <= set(before.values()), first)
        note("leaves", begun, joined)
    return events
