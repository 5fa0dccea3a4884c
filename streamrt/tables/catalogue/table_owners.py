"""Which application maintains a table: one consumer group at a time, noted in the catalogue.

It merges the requests of a table with rules; it writes all rows of a table without them, those of its materialized view.
"""

from dataclasses import replace

from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.records import TopicPartition
from streamrt.tables.access.groups import GroupAdmin, GroupOffsets
from streamrt.tables.catalogue.catalog_state import CatalogState
from streamrt.tables.descriptions.info import TableInfo
from streamrt.tables.descriptions.maintenance import name_requests_topic

__all__ = ["TableOwners", "require_owner"]


class TableOwners:
    """Lets one consumer group at a time maintain a table, or keep a materialized view in it.

    Args:
        state: the catalogue.
    """

    def __init__(self, state: CatalogState) -> None:
        self._state = state
        self._objects = state.objects

    def claim(self, name: str, group: str) -> None:
        """Note that a group maintains a table, unless another one does.

        Raises:
            ArgumentValueError: if the group has no name.
            InvalidOperationError: if another group maintains it, or its rows are in another system.
            TableNotFoundError: if there is no table of this name.
        """
        if not group or not isinstance(group, str):
            raise ArgumentValueError("claim_table() needs the name of a consumer group")
        name = self._state.full_name(name)
        if self._find(name).maintained_by == group:
            return

        def change(found: TableInfo | None) -> TableInfo:
            info = self._require_topic(name, found)
            require_owner(info, group)
            return replace(info, maintained_by=group)

        self._objects.change(self._objects.tables, name, change)

    def release(self, name: str) -> str | None:
        """Let another group maintain a table; return the group that did, or None if there was none.

        Raises:
            InvalidOperationError: if the group still has members, or its rows are in another system.
            TableNotFoundError: if there is no table of this name.
        """
        name = self._state.full_name(name)
        info = self._find(name)
        group = info.maintained_by
        if group is None:
            return None
        self._require_stopped(info, group)
        if info.maintenance is not None:
            self._delete_merged(info, group)

        def change(found: TableInfo | None) -> TableInfo:
            now = self._require_topic(name, found)
            return replace(now, maintained_by=None) if now.maintained_by == group else now

        self._objects.change(self._objects.tables, name, change)
        return group

    def _require_stopped(self, info: TableInfo, group: str) -> None:
        """Raise InvalidOperationError if a group has members, and may write more."""
        admin: object = self._state.links.admin() if self._state.has_topics else None
        if isinstance(admin, GroupAdmin) and admin.group_is_active(group, self._state.timeout):
            raise InvalidOperationError(
                f"consumer group {group!r} maintains table {info.name!r} and has members: stop all instances of its "
                "application first; killed ones leave the group when their sessions time out"
            )

    def _delete_merged(self, info: TableInfo, group: str) -> None:
        """Delete the requests that a group has merged: the next group begins behind them, and who waits for them sees it."""
        admin: object = self._state.links.admin() if self._state.has_topics else None
        if not isinstance(admin, GroupOffsets) or info.topic is None:
            return
        timeout = self._state.timeout
        topic = name_requests_topic(info.topic)
        partitions = [TopicPartition(topic, number) for number in range(info.num_partitions or 1)]
        committed = admin.committed_stable(group, partitions, timeout)
        merged = {each: note.offset for each, note in committed.items() if note.offset}
        if merged:
            admin.delete_records(merged, timeout)

    def _find(self, name: str) -> TableInfo:
        found = self._objects.find(self._objects.tables, name)
        return self._require_topic(name, None if found is None else found.value)

    def _require_topic(self, name: str, found: TableInfo | None) -> TableInfo:
        if found is None:
            raise self._state.no_table(name)
        if found.kind == "external":
            raise InvalidOperationError(f"the rows of table {name!r} are in another system, and have no owner here")
        return found


def require_owner(info: TableInfo, group: str) -> None:
    """Raise if another consumer group maintains a table.

    Args:
        info: the table.
        group: the group that is to maintain it.

    Raises:
        InvalidOperationError: if so; it says how the group gets the table.
    """
    owner, name = info.maintained_by, info.name
    if owner in (None, group):
        return
    release = f"stop its application for good, and let another one have the table: `streamrt table release {name}`"
    if info.maintenance is not None:
        raise InvalidOperationError(
            f"table {name!r} is maintained by consumer group {owner!r}, and {group!r} cannot maintain it as well, because "
            f"one application merges all requests: use that group; or {release}"
        )
    raise InvalidOperationError(
        f"table {name!r} is maintained by consumer group {owner!r}, whose materialized view it is, and {group!r} cannot "
        "write its rows as well: use that group; write CREATE OR REPLACE MATERIALIZED VIEW, which builds another version "
        f"next to it; or {release}"
    )
