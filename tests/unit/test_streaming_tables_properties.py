"""Tables after random upserts and deletions are what the same operations give over the present rows."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application
from streamrt.kafka import TopicConfig
from streamrt.kafka.partitioner import partition_for
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count, Sum
from tests.support import LONG

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.slow]

Rows = dict[str, dict[str, Any]]
CASES = 200 if LONG else 4
RECORDS = 80
HOWS = ("inner", "left", "right", "outer")


def joined(left: Rows, right: Rows, how: str) -> Rows:
    keys = {
        "inner": left.keys() & right.keys(),
        "left": left.keys(),
        "right": right.keys(),
        "outer": left.keys() | right.keys(),
    }[how]
    return {key: {**right.get(key, {}), **left.get(key, {})} for key in keys}


def define(app: Application, partitions: int) -> dict[str, Callable[[dict[str, Rows], list[dict[str, Any]]], Rows]]:
    """Define tables in an application, and return the model of each one by the topic that has its changes."""
    config = TopicConfig(num_partitions=partitions, replication_factor=1)
    left, right = (
        app.table(app.topic(name, key_deserializer="str", key_serializer="str", config=config))
        for name in ("left", "right")
    )
    models: dict[str, Callable[[dict[str, Rows], list[dict[str, Any]]], Rows]] = {}

    def publish(table: Any, name: str, model: Callable[[dict[str, Rows], list[dict[str, Any]]], Rows]) -> None:
        table.to_stream("both").to_topic(app.topic(name, key_serializer="str", key_deserializer="str"))
        models[name] = model

    large = left[left["n"] > 2]
    large["double"] = large["n"] * 2
    publish(
        large,
        "large",
        lambda now, log: {key: {**row, "double": row["n"] * 2} for key, row in now["left"].items() if row["n"] > 2},
    )
    for how in HOWS:
        publish(
            left.join(right, how, on_merge="keep-left", name=how),  # type: ignore[arg-type]
            how,
            lambda now, log, how=how: joined(now["left"], now["right"], how),  # type: ignore[misc]
        )
    publish(
        large[["double"]].join(right.filter(lambda row: row["n"] < 4), "outer", name="filtered"),
        "filtered",
        lambda now, log: joined(
            {key: {"double": row["n"] * 2} for key, row in now["left"].items() if row["n"] > 2},
            {key: row for key, row in now["right"].items() if row["n"] < 4},
            "outer",
        ),
    )
    foreign = app.table(app.topic("foreign", key_deserializer="str", key_serializer="str", config=config))
    for how in ("inner", "left"):
        publish(
            left.join(foreign, how, on=_name_of_other, name=f"foreign_{how}", on_merge="keep-left"),  # type: ignore[arg-type]
            f"foreign_{how}",
            lambda now, log, how=how: joined_by_other(now["left"], now["foreign"], how),  # type: ignore[misc]
        )
    totals = app.dataframe(app.topic("log")).group_by("group").agg(total=Sum("n"), count=Count())
    publish(totals[totals["total"] > 5], "totals", lambda now, log: totals_of(log))
    return models


def _name_of_other(row: dict[str, Any]) -> str | None:
    return None if row["n"] == 0 else "abcd"[row["n"] % 4]


def joined_by_other(left: Rows, right: Rows, how: str) -> Rows:
    found = {key: (right.get(_name_of_other(row) or "none"), row) for key, row in left.items()}
    return {key: {**(other or {}), **row} for key, (other, row) in found.items() if other is not None or how == "left"}


def totals_of(log: list[dict[str, Any]]) -> Rows:
    groups: dict[str, list[int]] = {}
    for row in log:
        groups.setdefault(row["group"], []).append(row["n"])
    return {
        group: {"group": group, "total": sum(numbers), "count": len(numbers)}
        for group, numbers in groups.items()
        if sum(numbers) > 5
    }


@pytest.mark.parametrize("seed", range(CASES))
def test_tables_follow_their_rows(seed: int) -> None:
    dice = random.Random(seed)
    partitions = dice.choice((1, 3))
    app = Application("unused:9092", consumer_group="tables")
    models = define(app, partitions)
    driver = TopologyTestDriver(app)
    now: dict[str, Rows] = {"left": {}, "right": {}, "foreign": {}}
    log: list[dict[str, Any]] = []
    found: dict[str, Rows] = {name: {} for name in models}
    for number in range(RECORDS):
        kind, key, n = dice.choice(("left", "right", "foreign", "log")), dice.choice("abcd"), dice.randrange(-2, 7)
        row = None if dice.random() < 0.3 else {"n": n}
        if kind == "log":
            log.append({"group": key, "n": n})
            driver.pipe("log", log[-1], timestamp=number)
        else:
            now[kind].pop(key, None)
            row = row and {"x": n} if kind == "foreign" else row
            if row is not None:
                now[kind][key] = row
            # Times may go back.
            place = partition_for(key.encode(), partitions)
            when = max(0, number - dice.randrange(5))
            driver.pipe(kind, row, key=key, timestamp=when, partition=place)
        for name, rows in found.items():
            for record in driver.read(name):
                before, after, of = record.value["before"], record.value["after"], record.key
                assert rows.get(of) == before, (name, number)
                assert before != after
                rows.pop(of, None)
                if after is not None:
                    rows[of] = after
            assert rows == models[name](now, log), (name, number)
