"""The applications whose cost is measured, each as a program that runs until SIGTERM; see `bench.runners.Running`."""

import os
from typing import Any

from bench.cases import case_options, make_app
from bench.dataframe_cases import count
from streamrt import Application, State

CASES = ("copy", "count", "where", "fan", "frames")


def count_here(value: dict[str, Any], state: State) -> dict[str, Any]:
    """Count the records of a key, and say in which process."""
    value["process"] = os.getpid()
    return count(value, state)


def add(app: Application, case: str, number: int, source: str, target: str) -> None:
    """Add a case to an application; `fan` has so many sub-topologies, and `frames` as many topics."""
    if case == "frames":
        for each in range(number):
            sdf = app.dataframe(app.topic(f"{source}-{each}")).apply(count, stateful=True)
            sdf.to_topic(app.topic(f"{target}-{each}"))
        return
    sdf = app.dataframe(app.topic(source))
    for each in range(1, number if case == "fan" else 1):
        grouped = sdf.group_by("key", name=f"g{each}").apply(count, stateful=True)
        grouped.to_topic(app.topic(target, key_serializer="json"))
    if case == "copy":
        sdf = sdf.apply(lambda value: value)
    else:
        sdf = sdf.apply(count_here if case == "where" else count, stateful=True)
    sdf.to_topic(app.topic(target))


def main() -> None:
    """Run one case until SIGTERM."""
    options = case_options(CASES)
    options.add_argument("--number", type=int, default=1)
    chosen = options.parse_args()
    # For a cluster on this machine.
    cluster = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    app = make_app(chosen, spark_config=cluster if chosen.master.startswith("spark://") else None)
    add(app, chosen.case, chosen.number, chosen.source, chosen.target)
    app.run()


if __name__ == "__main__":
    main()
