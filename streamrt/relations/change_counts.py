"""Counts of what happens to rows of tables, for metrics."""

from functools import partial
from typing import Any

from streamrt.topology import Node, OperatorContext
from streamrt.topology.tallies import (
    TABLE_DELETES,
    TABLE_DELETIONS,
    TABLE_INSERTIONS,
    TABLE_UNCHANGED,
    TABLE_UPDATES,
    TABLE_UPSERTS,
)

__all__ = ["ChangeCounts", "WriteCounts"]


class ChangeCounts:
    """Counts the changes that an operator passes on, and those that change nothing. Work that is repeated counts again.

    Args:
        node: the operator.
        context: the services of the task.
    """

    __slots__ = ("deletions", "insertions", "unchanged", "updates")

    def __init__(self, node: Node, context: OperatorContext) -> None:
        self.insertions = self.updates = self.deletions = self.unchanged = 0
        for kind, name in (
            (TABLE_INSERTIONS, "insertions"),
            (TABLE_UPDATES, "updates"),
            (TABLE_DELETIONS, "deletions"),
            (TABLE_UNCHANGED, "unchanged"),
        ):
            context.watch(kind, node.label, partial(getattr, self, name))

    def add(self, before: Any, after: Any, *, differs: bool) -> None:
        """Count a change.

        Args:
            before: the former row; None for no row.
            after: the present row.
            differs: whether they differ.
        """
        if not differs:
            self.unchanged += 1
        elif before is None:
            self.insertions += 1
        elif after is None:
            self.deletions += 1
        else:
            self.updates += 1


class WriteCounts:
    """Counts the rows that an operator writes into a table outside of the application. Work that is repeated counts again.

    Args:
        node: the operator.
        context: the services of the task.
    """

    __slots__ = ("deletes", "upserts")

    def __init__(self, node: Node, context: OperatorContext) -> None:
        self.upserts = self.deletes = 0
        context.watch(TABLE_UPSERTS, node.label, partial(getattr, self, "upserts"))
        context.watch(TABLE_DELETES, node.label, partial(getattr, self, "deletes"))

    def add(self, row: Any) -> None:
        """Count a row; None deletes one."""
        if row is None:
            self.deletes += 1
        else:
            self.upserts += 1
