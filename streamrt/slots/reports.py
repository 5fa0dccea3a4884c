"""Reports from tasks to the driver, as bytes.

They go from the process of a task to the driver: inside Spark's channel, or through a link whose ends have proved
that they know its key.
"""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import cloudpickle

from streamrt.runtime.report import Report

__all__ = ["dump_report", "load_report", "merge_reports", "portable"]


def dump_report(report: Report) -> bytes:
    """Pickle a report, without the parts that cannot be pickled."""
    data: bytes = cloudpickle.dumps(portable(report))
    return data


def load_report(data: bytes) -> Report:
    """Read the result of `dump_report`."""
    report = pickle.loads(data)
    if not isinstance(report, Report):
        raise TypeError(f"expected a Report, got {type(report).__name__}")
    return report


def merge_reports(dumped: Iterable[bytes]) -> Report:
    """Read the results of `dump_report` of several tasks, as one report."""
    merged = Report()
    for data in dumped:
        merged.merge(load_report(data))
    return merged


def portable(report: Report) -> Report:
    """Return the report without exceptions and outputs that cannot be pickled, such as users' objects."""
    failure = report.failure
    if failure is not None and failure.cause is not None and not travels(failure.cause):
        report = replace(report, failure=replace(failure, cause=None))
    if report.collected and not travels(report.collected):
        report = replace(report, collected=[output for output in report.collected if travels(output)])
    return report


def travels(item: Any) -> bool:
    """Return whether an object can be pickled and unpickled here."""
    try:
        pickle.loads(cloudpickle.dumps(item))
    except Exception:  # noqa: BLE001 - after any error, it cannot be sent
        return False
    return True
