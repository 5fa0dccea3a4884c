"""`condense`: makes one change of several that follow each other.

Operators on tables pass on each change of a row. Where many records change one row, what is below does the work for each of
them, and most of it is undone by the next one. `Condense` holds the changes in memory, by key, until the task is committed,
is ticked, or gives way to another one: the end of a turn. Then each key has one change, from its former row to its last one.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streamrt.records import Headers
from streamrt.relations.change import Change, rows_differ
from streamrt.state.encoding import dumps_exact
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["Condense"]

_MOST: Final = 10_000
"""Number of keys whose changes are held."""


class _Changes:
    """Changes, one for each key, in the order in which keys came first.

    Args:
        repeats: whether rows that stay the same are passed on as well; see `make_pass_on`.
    """

    def __init__(self, repeats: bool) -> None:
        self._repeats = repeats
        # By key: the former row, the present row, key, timestamp and headers.
        self._changes: OrderedDict[Any, list[Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        """Add a change."""
        place = key if type(key) is str else dumps_exact(key)
        held = self._changes.get(place)
        if held is None:
            self._changes[place] = [*value, key, timestamp, headers]
        else:
            held[1], held[3], held[4] = value[1], timestamp, headers

    def take(self) -> tuple[Any, Any, int, Headers | None] | None:
        """Take out the change of the first key; None if its row is what it was."""
        _, (before, after, key, timestamp, headers) = self._changes.popitem(last=False)
        if self._repeats or rows_differ(before, after):
            return Change(before, after), key, timestamp, headers
        return None

    def clear(self) -> None:
        """Forget all changes."""
        self._changes.clear()


@dataclass(frozen=True)
class Condense(Operator):
    """Passes on one change of each key for a turn of the task. Where records are skipped, it passes on each change.

    The time and the headers of a change are those of the last record that it is made of.
    """

    name: ClassVar[str] = "condense"
    separates: ClassVar[bool] = True

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        changes = _Changes(context.repeats_records)
        pass_on = context.hold_records(changes, child)
        if pass_on is None:
            return child
        add = changes.add

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            add(value, key, timestamp, headers)
            if len(changes) >= _MOST:
                pass_on()

        return run

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:
        """Rows are what they were."""
        return True
