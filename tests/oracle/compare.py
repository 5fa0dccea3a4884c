"""Outputs that StreamRT must give, derived from those of PyFlink.

Differences that are meant are applied to PyFlink's results here, each with its reason. They are the same as in
docs/coming-from-pyflink.md.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.generate import PROCESSING_TIMES

__all__ = ["expected", "plain"]

Case = dict[str, Any]
Results = list[list[Any]]


def expected(case: Case, flink: Results) -> Results:
    """Return PyFlink's results as StreamRT shows them, in the form of `plain`."""
    shape = {"final": _final, "counted": _counted}.get(case["kind"])
    results = plain(case, flink)
    return results if shape is None else [[shape(case, row) for row in step] for step in results]


def plain(case: Case, results: Results) -> Results:
    """Return results without what is not defined."""
    if case["kind"] == "process":
        return results if case["clock"] == "partition" else [list(map(_heard, step)) for step in results]
    if case["kind"] == "timed" and case["clock"] == "watermark":
        # A timer of processing time may see an older watermark than the latest one.
        results = [[[*row[:5], None, *row[6:]] for row in step] for step in results]
    if case["assigner"][0] in _MERGING:
        # The order of the values of windows that may have been merged.
        return [[row if row[0] == "late" else [*row[:4], sorted(row[4]), *row[5:]] for row in step] for step in results]
    return results


_MERGING = ("session", "dynamic", "session-processing")


def _heard(row: list[Any]) -> list[Any]:
    """With the clock "watermark", a timer of processing time may see an older watermark than the latest one."""
    tag, key, value, timestamp = row
    if value[:2] == ["timer", "PROCESSING_TIME"] or (value[0] == "times" and timestamp < PROCESSING_TIMES):
        value = [*value[:2], timestamp]
    return [tag, key, value, timestamp]


def _final(case: Case, row: list[Any]) -> list[Any]:
    if row[0] == "late":
        return row
    name, key, start, end, values = row[:5]
    if case["assigner"][0] == "session":
        # A session of `final()` ends 1 ms after its last record, and not a gap after it.
        end -= case["assigner"][1] - 1
    return [name, key, start, end, values]


def _counted(case: Case, row: list[Any]) -> list[Any]:
    # The bounds of count windows are the lowest and the highest time of their records; Flink has none.
    return ["main", row[1], row[4]]
