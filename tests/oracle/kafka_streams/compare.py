"""Outputs that StreamRT must give, derived from those of Kafka Streams.

Differences that are meant are applied to Kafka Streams' outputs here, each with its reason. They are the same as in
docs/coming-from-kafka-streams.md.
"""

from __future__ import annotations

import json
from typing import Any

from tests.oracle.kafka_streams.generate import list_columns, list_inputs

__all__ = ["differences"]

Case = dict[str, Any]
Outputs = list[list[Any]]
"""Key, row or None, and timestamp, of each output of a step."""
Difference = tuple[Any, Any, Any]
"""A step, what was expected, and what StreamRT put out."""

_AGGREGATES = ("aggregate", "group", "reduce")


def differences(case: Case, kafka_streams: list[Outputs], ours: list[Outputs]) -> list[Difference]:
    """Return where StreamRT's outputs are not those that Kafka Streams' lead to; the last one is the table in the end."""
    # As JSON has it: tuples become what they are in recorded answers.
    ours = [_plain(case, outputs) for outputs in json.loads(json.dumps(ours))]
    wanted = [_plain(case, outputs) for outputs in kafka_streams]
    if case["plan"][0] != "lookup":
        wanted = _changes(wanted)
        if case["kind"] == "composed":
            # A record may reach a join on two ways, with a result in between: what remains after the record is compared.
            ours = _changes(ours)
        # Which key comes first is not defined: they may be in different partitions.
        ours, wanted = ([sorted(outputs, key=_key) for outputs in side] for side in (ours, wanted))
    if case["kind"] == "foreign":
        wanted = _with_times_of_left(case, wanted)
    if _has_aggregates(case["plan"]):
        # The time of an aggregate is that of its latest change. In Kafka Streams, it is the highest one of all its rows.
        steps = zip(case["steps"], wanted, strict=True)
        wanted = [[[*output[:2], step[3]] for output in outputs] for step, outputs in steps]
    if not has_times(case):
        ours, wanted = ([[output[:2] for output in outputs] for outputs in side] for side in (ours, wanted))
    both = zip(case["steps"], wanted, ours, strict=True)
    found: list[Difference] = [(step, one, other) for step, one, other in both if one != other]
    in_the_end: Difference = ("the table in the end", _fold(wanted), _fold(ours))
    return found if in_the_end[1] == in_the_end[2] else [*found, in_the_end]


def has_times(case: Case) -> bool:
    """Return whether the timestamps of a case are compared.

    A row that is put in again as it is changes nothing here: its time is that of the change that made it. In Kafka Streams,
    its time is that of the latest record, and shows in later results. So it is with results in the midst of composed plans: a
    record may leave them as they were. And a join of a joined row that has lost a side forgets there when it did.
    """
    plan = case["plan"]
    if case["kind"] == "composed" or (plan[0] == "join" and plan[1][0] == "join" and plan[1][3] != "inner"):
        return False
    rows: dict[tuple[str, str], Any] = {}
    inputs = list_inputs(plan)
    for topic, key, row, _ in case["steps"]:
        if row is not None and rows.get((topic, key)) == row and inputs[topic] == "table":
            return False
        rows[topic, key] = row
    return True


def _with_times_of_left(case: Case, steps: list[Outputs]) -> list[Outputs]:
    """Return outputs with the times that they have here: the later one of both rows, or that of what deleted the left row.

    In Kafka Streams, it is the time of the right row if that has changed, and the later one if the left row has changed or
    was deleted.
    """
    left, _ = list_inputs(case["plan"])
    times: dict[str, int] = {}
    found = []
    for (topic, key, _, time), outputs in zip(case["steps"], steps, strict=True):
        if topic == left:
            times[key] = time
            found.append([[name, row, time if row is None else at] for name, row, at in outputs])
        else:
            found.append([[name, row, max(at, times[name])] for name, row, at in outputs])
    return found


def _has_aggregates(plan: Any) -> bool:
    return isinstance(plan, list) and bool(plan) and (plan[0] in _AGGREGATES or any(map(_has_aggregates, plan)))


def _plain(case: Case, outputs: Outputs) -> Outputs:
    return [[key, _row(case["plan"], row), time] for key, row, time in outputs]


def _row(plan: Any, row: Any) -> Any:
    if row is None:
        return None
    # A group's row also has its key, as a column.
    row = {column: row[column] for column in list_columns(plan) if column in row}
    # `count()` of Kafka Streams keeps groups without rows, with 0; here they have no row.
    return None if row.get("n") == 0 else row


def _changes(steps: list[Outputs]) -> list[Outputs]:
    """Return the outputs that change the row of their key, one for each key and step.

    Kafka Streams also puts out rows that stay as they were, deletes rows that were never there, and may take a row back
    before it puts out the next one.
    """
    rows: dict[str, Any] = {}
    found = []
    for outputs in steps:
        latest = {key: [key, row, time] for key, row, time in outputs}
        found.append([output for key, output in latest.items() if rows.get(key) != output[1]])
        rows |= {key: row for key, row, _ in latest.values()}
    return found


def _fold(steps: list[Outputs]) -> dict[str, Any]:
    rows = {output[0]: output[1] for outputs in steps for output in outputs}
    return {key: rows[key] for key in sorted(rows) if rows[key] is not None}


def _key(output: list[Any]) -> str:
    return str(output[0])
