"""Metrics that users' functions keep: counters, gauges and distributions, as reports carry them to the driver.

A metric is a Python object in the process of a task; to change it costs an addition. What has changed since the last
report goes out with the next one, as `Measured`. The driver adds it up.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeVar

from streamrt.arguments import checked, type_name
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError

__all__ = [
    "MOST_METRICS",
    "Counter",
    "Distribution",
    "Gauge",
    "Measured",
    "MetricId",
    "MetricKind",
    "Metrics",
    "merged",
]

MetricKind = Literal["counter", "gauge", "distribution"]
MOST_METRICS: Final = 100
"""Maximum number of metrics of one operator."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)

M = TypeVar("M", "Counter", "Gauge", "Distribution")


class MetricId(NamedTuple):
    """The identity of a metric in an application.

    Attributes:
        stream: the stream of the operator's tasks.
        operator: name of the operator: that of its store.
        name: name of the metric.
        partition: for a gauge, the partition of the task that set it; None for the others.
    """

    stream: str
    operator: str
    name: str
    partition: int | None = None


@dataclass(frozen=True)
class Measured:
    """The measurements of a metric in some time.

    Attributes:
        kind: the kind of metric.
        total: the increase of a counter, the last value of a gauge, the sum of the values of a distribution.
        count: number of values of a distribution.
        least: the lowest of them.
        greatest: the highest of them.
    """

    kind: MetricKind
    total: float
    count: int = 0
    least: float = 0.0
    greatest: float = 0.0


def merged(first: Measured | None, second: Measured) -> Measured:
    """Return what a metric has measured in two consecutive times.

    Example:
        >>> merged(Measured("counter", 2), Measured("counter", 3)).total
        5
    """
    if first is None or second.kind == "gauge" or first.kind != second.kind:
        return second
    return Measured(
        second.kind,
        first.total + second.total,
        first.count + second.count,
        min(first.least, second.least),
        max(first.greatest, second.greatest),
    )


class Counter:
    """A number that only grows."""

    __slots__ = ("_name", "_new")

    def __init__(self, name: str) -> None:
        self._name = name
        self._new: float = 0

    def inc(self, by: float = 1) -> None:
        """Add a number.

        Args:
            by: 0 or more.

        Raises:
            ArgumentValueError: if it is negative or not a number.
        """
        if not by >= 0:
            raise ArgumentValueError(f"counter {self._name!r} was increased by {by!r}: use a gauge for what may fall")
        self._new += by

    def drain(self) -> Mapping[int | None, Measured]:
        """Return the increase since the last call."""
        new, self._new = self._new, 0
        return {None: Measured("counter", new)} if new else {}


class Gauge:
    """A number as it is now, for each partition: the last one that was set."""

    __slots__ = ("_name", "_new", "_partition")

    def __init__(self, name: str, partition: Callable[[], int]) -> None:
        self._name = name
        self._partition = partition
        self._new: dict[int | None, float] = {}

    def set(self, value: float) -> None:
        """Set the value for the partition of the current record or timer."""
        self._new[self._partition()] = _check_number("gauge", self._name, value)

    def drain(self) -> Mapping[int | None, Measured]:
        """Return the values that were set since the last call, by partition."""
        if not self._new:
            return {}
        new, self._new = self._new, {}
        return {partition: Measured("gauge", value) for partition, value in new.items()}


class Distribution:
    """Number, sum, lowest and highest of values."""

    __slots__ = ("_count", "_greatest", "_least", "_name", "_total")

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset_values()

    def _reset_values(self) -> None:
        self._count = 0
        self._total: float = 0
        self._least, self._greatest = float("inf"), float("-inf")

    def update(self, value: float) -> None:
        """Add a value.

        Raises:
            ArgumentTypeError: if it is not a number.
            ArgumentValueError: if it is NaN, with which no sum goes on.
        """
        if _check_number("distribution", self._name, value) != value:
            raise ArgumentValueError(f"distribution {self._name!r} cannot take NaN: leave such values out")
        self._count += 1
        self._total += value
        if value < self._least:
            self._least = value
        if value > self._greatest:
            self._greatest = value

    def drain(self) -> Mapping[int | None, Measured]:
        """Return what was added since the last call."""
        if not self._count:
            return {}
        new = Measured("distribution", self._total, self._count, self._least, self._greatest)
        self._reset_values()
        return {None: new}


class Metrics:
    """The metrics of one operator, by name.

    Args:
        operator: name of the operator, for errors.
        partition: returns the partition of the task at work.

    Example:
        >>> metrics = Metrics("process_Orders", lambda: 0)
        >>> metrics.counter("rejected").inc()
        >>> metrics.drain()
        {('rejected', None): Measured(kind='counter', total=1, count=0, least=0.0, greatest=0.0)}
    """

    __slots__ = ("_known", "_operator", "_partition")

    def __init__(self, operator: str, partition: Callable[[], int]) -> None:
        self._operator = operator
        self._partition = partition
        self._known: dict[str, Counter | Gauge | Distribution] = {}

    def counter(self, name: str) -> Counter:
        """Return a counter; the same object for the same name.

        Args:
            name: its name: letters, digits, `_`, `.` and `-`, at most 100 of them.

        Raises:
            ArgumentValueError: if the name is invalid.
            InvalidOperationError: if another kind of metric has the name, or the operator has too many metrics.
        """
        found = self._known.get(name)
        return found if type(found) is Counter else self._new(name, Counter, Counter, name)

    def gauge(self, name: str) -> Gauge:
        """Return a gauge; see `counter`."""
        found = self._known.get(name)
        return found if type(found) is Gauge else self._new(name, Gauge, Gauge, name, self._partition)

    def distribution(self, name: str) -> Distribution:
        """Return a distribution; see `counter`."""
        found = self._known.get(name)
        return found if type(found) is Distribution else self._new(name, Distribution, Distribution, name)

    def drain(self) -> dict[tuple[str, int | None], Measured]:
        """Return what was measured since the last call, by name and, for gauges, partition."""
        return {
            (name, partition): measured
            for name, metric in self._known.items()
            for partition, measured in metric.drain().items()
        }

    def _new(self, name: str, kind: type[M], make: Callable[..., M], *arguments: Any) -> M:
        checked("the name of a metric", name, str, "a str", show=type_name)
        if not _NAME.fullmatch(name):
            raise ArgumentValueError(
                f"{name[:120]!r} cannot be the name of a metric of {self._operator}: begin with a letter, and use at most "
                "100 letters, digits, '_', '.' and '-'"
            )
        known = self._known.get(name)
        if known is not None:
            raise InvalidOperationError(
                f"{self._operator} has a {type(known).__name__.lower()} {name!r}, so there can be no {kind.__name__.lower()} "
                "of this name: choose another one"
            )
        if len(self._known) >= MOST_METRICS:
            raise InvalidOperationError(
                f"{self._operator} has {MOST_METRICS} metrics, and cannot have {name!r}, too: do not make names from data"
            )
        made = self._known[name] = make(*arguments)
        return made


def _check_number(kind: str, name: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise ArgumentTypeError(f"{kind} {name!r} takes a number, got {type(value).__name__}")
    return value
