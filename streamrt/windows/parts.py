"""What aggregations of a whole stream have in common: each partition aggregates its part, and the parts are merged."""

from typing import Any, Final

from streamrt.errors import InvalidOperationError
from streamrt.state.spec import StoreSpec
from streamrt.topology import OperatorContext, TaskAccess, TaskId
from streamrt.windows.aggregation import Aggregation, Plan
from streamrt.windows.aggregators import First, Last
from streamrt.windows.choices import AnyValue
from streamrt.windows.distinct import CountDistinct

__all__ = ["ALL", "PartSource", "PartsMerger", "make_parts_plan"]

ALL: Final = "all"
"""The key of the results."""

COLLECTING: Final = (
    "all values would go to the one task that merges; to collect them there, use group_by with a function that returns the "
    "same key for all records"
)
"""Why a window over a whole stream collects no values."""


def make_parts_plan(aggregation: Aggregation, collecting: str = COLLECTING) -> Plan:
    """Return an aggregation whose states are those of parts, which are merged.

    Args:
        aggregation: the aggregation.
        collecting: for the error, why values cannot be collected.

    Raises:
        InvalidOperationError: if an aggregator depends on the order of all records, cannot merge, or keeps values in a store.
    """
    for name, item in (*aggregation.collectors, *aggregation.aggregators):
        reason = None
        if isinstance(item, First | Last) and not isinstance(item, AnyValue):
            reason = "the records of different partitions have no order of arrival; Earliest and Latest go by time"
        elif (name, item) in aggregation.collectors:
            reason = collecting
        elif name in aggregation.unmergeable():
            reason = (
                f"define merge(a, b) in {type(item).__name__}, so that what partitions have aggregated can be merged"
            )
        elif Aggregation.named(**{name: item}).plan().fold.release is not None:
            counted = "; ApproxCountDistinct can be merged" if isinstance(item, CountDistinct) else ""
            reason = f"its values are in the store of one task{counted}"
        if reason is not None:
            raise InvalidOperationError(f"agg_all({name}={item!r}): {reason}")
    return aggregation.plan(by_arrival=True)


class PartsMerger:
    """Merges the states of parts in pairs, these in pairs again, and so on, and remembers what it has merged.

    So a part that has changed costs one merge for each doubling of the number of parts. Other parts are the same objects as
    before, which is all that is compared: for new objects, for example after a restart, all are merged again.

    Args:
        plan: the result of `make_parts_plan`.
    """

    def __init__(self, plan: Plan) -> None:
        self._merge: Any = plan.fold.merge
        # By level, the merged pairs, each with what was merged.
        self._levels: list[list[tuple[Any, Any, Any]]] = []

    def merge(self, states: list[Any], packing: Any) -> Any:
        """Return the state of all parts.

        Args:
            states: the states of the parts, at least one, in the order in which they are merged; nothing changes them later.
            packing: converts values to cells and back.
        """
        merge = self._merge
        levels: list[list[tuple[Any, Any, Any]]] = []
        while len(states) > 1:
            known = self._levels[len(levels)] if len(levels) < len(self._levels) else []
            level = []
            for number in range(len(states) // 2):
                one, other = states[2 * number : 2 * number + 2]
                if number < len(known) and known[number][0] is one and known[number][1] is other:
                    level.append(known[number])
                else:
                    level.append((one, other, merge(one, other, packing)))
            levels.append(level)
            states = [merged for _, _, merged in level] + states[2 * len(level) :]
        self._levels = levels
        return states[0]


class PartSource:
    """Names the partition whose records a part is made of.

    The name has the number of partitions: if this changes, the state of a partition may be moved to another one, which passes
    it on under its former name.

    Args:
        store: the store of the parts.
        context: the services of its task.
    """

    def __init__(self, store: StoreSpec, context: OperatorContext) -> None:
        self._access: TaskAccess = context.access(store)
        self._names: dict[TaskId, str] = {}

    def name(self) -> str:
        """Return the name of the partition of the task at work."""
        task = self._access.task()
        name = self._names.get(task)
        if name is None:
            name = f"{task.stream}:{task.partition} of {self._access.partitions()}"
            self._names[task] = name
        return name
