"""The applications whose cost is measured, each as a program that runs until SIGTERM; see `bench.runners.Running`."""

import argparse
import os
from pathlib import Path
from typing import Any

from bench import cases, common
from streamrt import Application, State

CASES = ("copy", "count", "where", "fan", "frames")


def count_here(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Count the records of a key, and say in which process."""
    value["process"] = os.getpid()
    return cases.count(value, state)


def add(app: Application, case: str, number: int, source: str, target: str) -> None:
    """Add a case to an application; `fan` has so many sub-topologies, and `frames` as many topics."""
    if case == "frames":
        for each in range(number):
            sdf = app.dataframe(app.topic(f"{source}-{each}")).apply(cases.count, stateful=True)
            sdf.to_topic(app.topic(f"{target}-{each}"))
        return
    sdf = app.dataframe(app.topic(source))
    for each in range(1, number if case == "fan" else 1):
        grouped = sdf.group_by("key", name=f"g{each}").apply(cases.count, stateful=True)
        grouped.to_topic(app.topic(target, key_serializer="json"))
    if case == "copy":
        sdf = sdf.apply(lambda value: value)
    else:
        sdf = sdf.apply(count_here if case == "where" else cases.count, stateful=True)
    sdf.to_topic(app.topic(target))


def main() -> None:
    """Run one case until SIGTERM."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("case", choices=CASES)
    options.add_argument("address", help="the broker")
    options.add_argument("source", help="topic to read")
    options.add_argument("target", help="topic to write")
    options.add_argument("group", help="consumer group")
    options.add_argument("--number", type=int, default=1)
    options.add_argument("--state-dir", type=Path, required=True)
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    options.add_argument("--master", default=common.MASTER)
    chosen = options.parse_args()
    app = common.application(
        chosen.address,
        chosen.state_dir,
        mode=chosen.mode,
        guarantee=chosen.guarantee,
        master=chosen.master,
        consumer_group=chosen.group,
        # For a cluster on this machine.
        spark_config={"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
        if chosen.master.startswith("spark://")
        else None,
    )
    add(app, chosen.case, chosen.number, chosen.source, chosen.target)
    app.run()


if __name__ == "__main__":
    main()
