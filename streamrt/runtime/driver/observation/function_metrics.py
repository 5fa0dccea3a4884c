"""The metrics of users' functions, added up over tasks and processes."""

from collections.abc import Container, Mapping
from typing import Final

from streamrt.topology import Measured, MetricId, TaskId, merged

__all__ = ["FunctionMetrics"]

_MOST: Final = 10_000


class FunctionMetrics:
    """Adds up what reports say of the metrics of users' functions; not safe to use from several threads.

    Example:
        >>> metrics = FunctionMetrics()
        >>> name = MetricId("orders", "process_Check", "rejected")
        >>> metrics.add({name: Measured("counter", 2)})
        >>> metrics.add({name: Measured("counter", 3)})
        >>> metrics.values()[name].total
        5
    """

    def __init__(self) -> None:
        self._values: dict[MetricId, Measured] = {}

    def add(self, new: Mapping[MetricId, Measured]) -> None:
        """Add what was measured since the last report. Beyond 10,000 metrics, further ones are dropped."""
        for name, measured in new.items():
            known = self._values.get(name)
            if known is not None or len(self._values) < _MOST:
                self._values[name] = merged(known, measured)

    def keep(self, tasks: Container[TaskId]) -> None:
        """Forget the gauges of all other tasks.

        Args:
            tasks: the tasks that this instance has.
        """
        self._values = {
            name: measured
            for name, measured in self._values.items()
            if name.partition is None or TaskId(name.stream, name.partition) in tasks
        }

    def values(self) -> dict[MetricId, Measured]:
        """Return what was measured so far."""
        return dict(self._values)

    def of(self, operator: str) -> dict[str, float | Measured]:
        """Return what the metrics of an operator have measured, by name: distributions as they are, others as numbers.

        Args:
            operator: name of its store. Of a gauge that several partitions have set, the value of the highest one is given.
        """
        found = sorted(self._values.items(), key=lambda item: (item[0].stream, item[0].partition or 0))
        return {
            name.name: measured if measured.kind == "distribution" else measured.total
            for name, measured in found
            if name.operator == operator
        }
