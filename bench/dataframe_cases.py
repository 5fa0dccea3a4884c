"""The cases of the comparisons on dataframes. StreamRT and Quix Streams run the same code.

Quix Streams runs it in an environment without StreamRT, so this file imports nothing from either.
"""

from collections.abc import Callable, Mapping
from typing import Any

WINDOW_MS = 10_000


def count(value: dict[str, Any], state: Any) -> dict[str, Any]:
    """Count the records of a key."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    value["count"] = number
    return value


def stateless(sdf: Any) -> Any:
    """Compute a column and filter by it."""
    sdf["double"] = sdf["value"] * 2
    return sdf[sdf["double"] >= 0]


def keyed_count(sdf: Any) -> Any:
    """Count the records of each key, in state."""
    return sdf.apply(count, stateful=True)


def tumbling_count(sdf: Any) -> Any:
    """Count the records of each key in windows of ten seconds, emitted when they close."""
    return sdf.tumbling_window(WINDOW_MS).count().final()


def grouped_count(sdf: Any) -> Any:
    """Count the records of each value of a column, through a repartition topic."""
    return sdf.group_by("key").apply(count, stateful=True)


def seen(sdf: Any) -> Any:
    """Add a column to any record."""
    sdf["seen"] = True
    return sdf


CASES: dict[str, Callable[[Any], Any]] = {
    "stateless": stateless,
    "count": keyed_count,
    "tumbling": tumbling_count,
    "group_by": grouped_count,
    "seen": seen,
}


def add(app: Any, case: str, source: str, target: str, cases: Mapping[str, Callable[[Any], Any]] = CASES) -> None:
    """Add a case to an application."""
    sdf = cases[case](app.dataframe(app.topic(source)))
    sdf.to_topic(app.topic(target, key_serializer="json" if case == "group_by" else "bytes"))
