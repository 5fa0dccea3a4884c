"""Puts a version of a view that an application has built next to it in its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.tables import ApplicationTables
from streamrt.config import require_amounts
from streamrt.errors import ApplicationTimeoutError, ArgumentValueError, InvalidOperationError
from streamrt.runtime.driver.life.completion import Completion
from streamrt.runtime.driver.starting.definition import ApplicationDefinition

if TYPE_CHECKING:
    from streamrt.tables import TableInfo

__all__ = ["ViewSwaps"]

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class ViewSwaps:
    """Swaps views when what was built has caught up.

    Args:
        definition: the application.
        offsets: the offsets of its topics.
        views: returns its views, by their names in lower case.
        tables: its tables.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        offsets: GroupOffsets,
        views: Callable[[], Mapping[str, Any]],
        tables: ApplicationTables,
    ) -> None:
        self._definition = definition
        self._offsets = offsets
        self._views = views
        self._tables = tables

    def swap(self, name: str, timeout: float) -> TableInfo:
        """See `Application.swap_view`."""
        require_amounts("swap_view", timeout=timeout)
        view = self._views().get(name.lower())
        if view is None or view.table is None:
            known = ", ".join(each.name for each in self._views().values() if each.table is not None) or "none"
            raise ArgumentValueError(
                f"swap_view() got {name!r}, but the materialized views of the application are {known}"
            )
        built, group = view.table.name, self._definition.config.consumer_group
        replaced = self._tables.find_replaced(view.name, built)
        if replaced is None:
            raise InvalidOperationError(
                f"the rows of view {view.name!r} are in its own table {built!r}, and no other version is built next to it: "
                "use CREATE OR REPLACE MATERIALIZED VIEW with another consumer_group"
            )
        owner = self._tables.find(built).info.maintained_by
        if owner != group:
            raise InvalidOperationError(
                f"table {built!r} has the rows of consumer group {owner!r}, and not those that {group!r} builds: the "
                "view was swapped already"
            )
        self._await_present_records(built, timeout)
        info = self._tables.catalog.swap_views(replaced, built)
        view.table = self._tables.find(replaced)
        return info

    def _await_present_records(self, built: str, timeout: float) -> None:
        """Wait until the group has processed what its inputs have now.

        Raises:
            ApplicationTimeoutError: if it has not in time.
        """
        deadline, pause = time.monotonic() + timeout, _SHORTEST_PAUSE_S
        view = self._offsets.view(timeout)
        topology = self._offsets.resolved(view)
        completion = Completion(topology, self._offsets.ends(view, list(topology.outer_topics)), view)
        while not completion.advance():
            if time.monotonic() >= deadline:
                partition, (at, wanted) = min(completion.missing.items())
                raise ApplicationTimeoutError(
                    f"table {built!r} has not caught up within {timeout:g} s, and nothing was swapped: {partition} is "
                    f"processed to offset {at or 0} of {wanted}; let the application run, or raise timeout="
                )
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
