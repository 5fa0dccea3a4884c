"""Outputs of the mini-cluster for the scripted cases, in a file of JSON lines, and how results are compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.oracle.compare import expected, plain

__all__ = ["FOLDER", "comparable", "load", "record"]

FOLDER = Path(__file__).parent / "cases"

Case = dict[str, Any]
Rows = list[Any]


def comparable(case: Case, flink: Rows, ours: Rows) -> tuple[Rows, Rows]:
    """Return the results of PyFlink and StreamRT in a form in which they must be equal."""
    ours = json.loads(json.dumps(ours))
    if case["kind"] in ("connected", "broadcast"):
        return _grouped(_without_watermark(flink)), _grouped(_without_watermark(ours))
    if case["kind"] == "async":
        # Without order, results are a multiset.
        return (_grouped(flink), _grouped(ours)) if case["ordered"] else (sorted(flink), sorted(ours))
    return _grouped(expected(case, [flink])[0]), _grouped(plain(case, [ours])[0])


def load() -> dict[str, Rows]:
    """Return the recorded rows by the name of their case."""
    with (FOLDER / "scripts.jsonl").open(encoding="utf-8") as lines:
        return dict(map(json.loads, lines))


def record(results: dict[str, Rows]) -> None:
    """Write the rows of cases, grouped, so that a run without changes changes nothing."""
    FOLDER.mkdir(exist_ok=True)
    lines = (
        json.dumps([name, [row for _, rows in _grouped(found) for row in rows]], separators=(",", ":")) + "\n"
        for name, found in results.items()
    )
    (FOLDER / "scripts.jsonl").write_text("".join(lines), encoding="utf-8")


def _grouped(rows: Iterable[list[Any]]) -> Rows:
    """Return rows by output and key: between keys, their order is not defined."""
    groups: dict[tuple[str, Any], Rows] = {}
    for row in rows:
        groups.setdefault((row[0], row[1]), []).append(row)
    return [[list(name), groups[name]] for name in sorted(groups)]


def _without_watermark(rows: Rows) -> Rows:
    """Return rows without the watermark of timers: of two inputs, one may be ahead of the other."""
    return [[tag, key, value[:2] if value[0] == "timer" else value, timestamp] for tag, key, value, timestamp in rows]
