"""Random cases: plans over tables and streams, and records in random order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["COLUMNS", "KINDS", "generate", "list_columns", "list_inputs"]

Case = dict[str, Any]
Plan = list[Any]

COLUMNS = {"a": ("x", "g"), "b": ("y", "h"), "c": ("z", "i")}
"""A column of numbers and one of strings, of each topic."""
_KEYS = "pqr"
# Strings refer to keys, to a key that no row has, or to none.
_STRINGS = (*_KEYS, *_KEYS, "s", None)
_NUMBERS = (0, 1, 1, 2, 3, 4, None)
_BEGIN = 1_000
_HOWS = ("inner", "left", "right", "outer")
_ONE_SIDED = ("inner", "left")


def generate(kind: str, seed: int) -> Case:
    """Return the case of a kind with a number."""
    draw = random.Random(f"{kind} {seed}")
    plan = KINDS[kind](draw)
    return {"kind": kind, "seed": seed, "plan": plan, "steps": _steps(draw, list_inputs(plan))}


def list_inputs(plan: Plan) -> dict[str, str]:
    """Return the topics that a plan reads, each with "table", "versioned" or "stream"."""
    if plan[0] in ("table", "versioned", "stream"):
        return {plan[1]: plan[0]}
    inputs: dict[str, str] = {}
    for part in plan[1:]:
        if _is_plan(part):
            inputs.update(list_inputs(part))
    return inputs


def list_columns(plan: Plan) -> list[str]:
    """Return the columns of the rows that a plan puts out, without the key."""
    word = plan[0]
    if word in ("table", "versioned", "stream"):
        return list(COLUMNS[plan[1]])
    if word in ("group", "aggregate"):
        return [name for name, _, _ in plan[3]]
    if word == "reduce":
        return [plan[4]]
    columns = [column for part in plan[1:] if _is_plan(part) for column in list_columns(part)]
    return [*columns, plan[4]] if word == "map" else columns


def _is_plan(part: Any) -> bool:
    return isinstance(part, list) and isinstance(part[0], str)


# -- Records -----------------------------------------------------------------------------------------------------------


def _steps(draw: random.Random, inputs: dict[str, str]) -> list[list[Any]]:
    """Return records, one in four of which may be late."""
    topics = sorted(inputs)
    # In every other case, no row is put in again as it is: only then are the times of results compared.
    repeats = draw.random() < 0.5
    clock = _BEGIN
    latest: dict[tuple[str, str], Any] = {}
    steps: list[list[Any]] = []
    for _ in range(draw.randrange(8, 20)):
        clock += draw.randrange(5)
        topic, key = draw.choice(topics), draw.choice(_KEYS)
        place = topic, key
        chance = draw.random()
        if chance < 0.15 and inputs[topic] != "stream":
            row = None
        elif chance > 0.8 and place in latest and repeats:
            row = latest[place]
        else:
            row = dict(zip(COLUMNS[topic], (draw.choice(_NUMBERS), draw.choice(_STRINGS)), strict=True))
        if row is not None and row == latest.get(place) and not repeats:
            continue
        latest[place] = row
        steps.append([topic, key, row, clock - draw.choice((0, 0, 0, draw.randrange(12)))])
    return steps


# -- Plans -------------------------------------------------------------------------------------------------------------


def _narrowed(draw: random.Random, plan: Plan, column: str, most: int = 1) -> Plan:
    """Return a plan with some filters and maps on a column of numbers."""
    for _ in range(draw.randrange(most + 1)):
        if draw.random() < 0.5:
            plan = ["filter", plan, column, draw.randrange(1, 3)]
        else:
            name = f"{column}{draw.randrange(1_000)}"
            plan = ["map", plan, column, draw.randrange(1, 4), name]
            column = name
    return plan


def _table(draw: random.Random, topic: str = "a", most: int = 1) -> Plan:
    return _narrowed(draw, ["table", topic], COLUMNS[topic][0], most)


def _rows(draw: random.Random) -> Plan:
    return _table(draw, most=3)


def _join(draw: random.Random) -> Plan:
    joined = ["join", _table(draw), _table(draw, "b"), draw.choice(_HOWS)]
    if draw.random() < 0.3:
        return ["join", joined, _table(draw, "c"), draw.choice(_HOWS)]
    return _narrowed(draw, joined, draw.choice("xy"))


def _foreign(draw: random.Random) -> Plan:
    return ["foreign", _table(draw), _table(draw, "b"), "g", draw.choice(_ONE_SIDED)]


def _aggregates(draw: random.Random, column: str) -> Plan:
    if draw.random() < 0.3:
        return [["n", "rows", None]]
    functions = draw.sample(("rows", "count", "sum", "min", "max"), draw.randrange(1, 4))
    if functions == ["rows"]:
        functions = ["count"]
    return [[f"{function}_{column}", function, column] for function in functions]


def _group(draw: random.Random) -> Plan:
    return _narrowed_aggregate(draw, ["group", _table(draw), "g", _aggregates(draw, "x")])


def _narrowed_aggregate(draw: random.Random, plan: Plan) -> Plan:
    return _narrowed(draw, plan, plan[3][0][0]) if draw.random() < 0.3 else plan


def _aggregate(draw: random.Random) -> Plan:
    if draw.random() < 0.3:
        return ["reduce", ["stream", "a"], draw.choice(("sum", "min", "max", "last")), "x", "x"]
    column = draw.choice((None, "g"))
    return _narrowed_aggregate(draw, ["aggregate", ["stream", "a"], column, _aggregates(draw, "x")])


def _lookup(draw: random.Random) -> Plan:
    table = draw.choice((["table", "b"], ["versioned", "b"]))
    return ["lookup", ["stream", "a"], table, draw.choice(_ONE_SIDED)]


def _composed(draw: random.Random) -> Plan:
    grouped = ["group", _table(draw), "g", _sum("x")]
    shapes: tuple[Callable[[], Plan], ...] = (
        # The table that is grouped, with the results of its group. Not "inner": if the same record changes a left row and
        # deletes its right row, Kafka Streams drops the deletion, as one for the former left row, and keeps the joined row.
        lambda: ["foreign", ["table", "a"], grouped, "g", "left"],
        lambda: ["join", _table(draw, "b"), grouped, draw.choice(_HOWS)],
        lambda: ["group", ["foreign", _table(draw), _table(draw, "b"), "g", draw.choice(_ONE_SIDED)], "h", _sum("x")],
        lambda: ["group", ["join", _table(draw), _table(draw, "b"), draw.choice(_HOWS)], "h", _sum("x")],
        lambda: ["join", grouped, ["group", _table(draw, "b"), "h", _sum("y")], draw.choice(_HOWS)],
        lambda: [
            "foreign",
            ["join", _table(draw), _table(draw, "b"), draw.choice(_HOWS)],
            _table(draw, "c"),
            draw.choice("gh"),
            draw.choice(_ONE_SIDED),
        ],
    )
    return draw.choice(shapes)()


def _sum(column: str) -> Plan:
    # Not the rows only, which is `count()` in Java: its groups without rows stay, with 0, and would be joined.
    return [[f"total_{column}", "sum", column], [f"rows_{column}", "rows", None]]


KINDS: dict[str, Callable[[random.Random], Plan]] = {
    "table": _rows,
    "join": _join,
    "foreign": _foreign,
    "group": _group,
    "aggregate": _aggregate,
    "lookup": _lookup,
    "composed": _composed,
}
