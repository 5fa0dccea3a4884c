"""Verifies views of an application against their queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.run_state import RunState
from streamrt.config import require_amounts
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError
from streamrt.runtime.driver.life.completion import OffsetView
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.topology import Topology, of_kind
from streamrt.topology.tallies import LATE_RECORDS

if TYPE_CHECKING:
    from streamrt.sql.verify import Verification
    from streamrt.tables.table import Table

__all__ = ["ViewVerification", "compare_view"]

Hide = Collection[str] | bool
"""Names of the columns whose values are hidden, or whether all are."""


class ViewVerification:
    """Compares the rows of views with those of their queries over the records that the group has processed.

    Args:
        definition: the application.
        state: its state.
        offsets: the offsets of its topics.
        views: returns its views, by their names in lower case.
        open_table: opens a table of its catalogue.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        state: RunState,
        offsets: GroupOffsets,
        views: Callable[[], Mapping[str, Any]],
        open_table: Callable[[str], Table],
    ) -> None:
        self._definition = definition
        self._state = state
        self._offsets = offsets
        self._views = views
        self._open_table = open_table

    def verify(self, name: str, timeout: float, hide: Hide) -> Verification:
        """See `Application.verify`."""
        require_amounts("verify", timeout=timeout)
        self._require_own_rows(name)
        look = self._offsets.view(timeout)
        transactional = self._definition.config.processing_guarantee == "exactly-once"
        return compare_view(
            name,
            self._views(),
            self._open_table,
            (self._offsets.resolved(look), look),
            self._state,
            transactional=transactional,
            timeout=timeout,
            hide=hide,
        )

    def _require_own_rows(self, name: str) -> None:
        """Raise InvalidOperationError if the table of a view has the rows of another application."""
        view = self._views().get(name.lower())
        if view is None or view.table is None:
            return
        owner = self._open_table(view.table.name).info.maintained_by
        if owner not in (None, self._definition.config.consumer_group):
            raise InvalidOperationError(
                f"table {view.table.name!r} has the rows of consumer group {owner!r} since views were swapped: define the "
                "application again, whose view then has its own table"
            )


def compare_view(
    name: str,
    views: Mapping[str, Any],
    open_table: Callable[[str], Table],
    processed: tuple[Topology, OffsetView],
    state: RunState,
    *,
    transactional: bool,
    timeout: float,
    hide: Hide,
) -> Verification:
    """Compare a view with its query.

    Args:
        name: name of the view.
        views: the views of the application, by their names in lower case.
        open_table: opens a table.
        processed: the resolved operators, and the offsets of their topics and of the group.
        state: the state of the application, which counts late records.
        transactional: whether it processes exactly once.
        timeout: seconds to wait until nothing is in flight.
        hide: columns whose values are hidden, or whether all are.
    """
    from streamrt.sql.verify import make_verified_view, verify_view

    if isinstance(hide, str):
        raise ArgumentTypeError(f"verify(hide=...) needs names of columns in a list, or a bool, got {hide!r}")
    view = views.get(name.lower())
    if view is None:
        known = ", ".join(each.name for each in views.values()) or "none"
        raise ArgumentValueError(f"verify() got {name!r}, but the views of the application are {known}")
    unknown = [] if isinstance(hide, bool) else [column for column in hide if column not in view.schema.names]
    if unknown:
        raise ArgumentValueError(f"verify(hide=...) has {unknown[0]!r}, and view {view.name!r} has no such column")
    topology, offsets = processed
    late = int(sum(count for _, count in of_kind(state.progress.meters.snapshot().tallies, LATE_RECORDS)))
    found = verify_view(
        make_verified_view(view, views, open_table),
        topology,
        offsets,
        transactional=transactional,
        timeout=timeout,
        late_records=late,
    )
    if isinstance(hide, bool):
        return found.hide() if hide else found
    return found.hide(hide) if hide else found
