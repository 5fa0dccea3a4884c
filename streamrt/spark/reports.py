"""Reports on their way from tasks to the driver, as bytes.

They go from our own worker to our own driver: inside Spark's channel, or through a link whose ends have proved that they
know its key.
"""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import cloudpickle

from streamrt.runtime import Report

__all__ = ["dump_report", "load_report", "merge_reports", "portable"]


def dump_report(report: Report) -> bytes:
    """Pickle a report; what cannot travel is left out of it."""
    data: bytes = cloudpickle.dumps(portable(report))
    return data


def load_report(data: bytes) -> Report:
    """Read what `dump_report` wrote."""
    report = pickle.loads(data)
    if not isinstance(report, Report):
        raise TypeError(f"expected a Report, got {type(report).__name__}")
    return report


def merge_reports(dumped: Iterable[bytes]) -> Report:
    """Read what `dump_report` wrote in several tasks, as one report."""
    merged = Report()
    for data in dumped:
        merged.merge(load_report(data))
    return merged


def portable(report: Report) -> Report:
    """Return the report without the exceptions and outputs that cannot travel: users' objects may refuse anything."""
    failure = report.failure
    if failure is not None and failure.cause is not None and not travels(failure.cause):
        report = replace(report, failure=replace(failure, cause=None))
    if report.collected and not travels(report.collected):
        report = replace(report, collected=[output for output in report.collected if travels(output)])
    return report


def travels(item: Any) -> bool:
    """Tell whether an object can be pickled here, and opened again."""
    try:
        pickle.loads(cloudpickle.dumps(item))
    except Exception:  # noqa: BLE001 - whatever it is, it cannot travel
        return False
    return True
