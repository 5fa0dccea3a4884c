"""`MergedRequests`: waits until the application that maintains a table has merged a request, and finds where its row is."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from streamrt.errors import LookupTimeoutError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.cluster.committed import UNSTABLE_OFFSETS
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.tables.access.groups import GroupAdmin, GroupOffsets
from streamrt.tables.access.links import TableAdmin
from streamrt.tables.access.positions import TopicPositions

__all__ = ["MergedRequests"]

_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.5
_OWNER_KNOWN_S = 1.0
"""For how long a group is taken for the owner: what a former one has merged is merged as well."""


class _Owner(NamedTuple):
    """The group that maintains a table, and what it has committed by number of partition."""

    group: str
    committed: Mapping[int, int]


class MergedRequests:
    """Waits until requests are merged. It may be used in any thread.

    The rows of a request are written before, or with, the commit that has merged it. So once the committed offset of the
    group is past a request, its row is below the end of the partition with the rows; not below the last stable offset,
    because the end of the transaction may not have been written there yet.

    What groups have merged that maintained the table before is deleted: `release_table` sees to it.

    Args:
        admin: looks at topics, and, if it can, at groups.
        requests: positions in the topic of the requests.
        rows: positions in the topic of the table.
        find_owner: returns the group of the application that maintains the table, as the catalogue knows it, or None.
    """

    def __init__(
        self,
        admin: TableAdmin,
        requests: TopicPositions,
        rows: TopicPositions,
        find_owner: Callable[[], str | None],
    ) -> None:
        self._admin = admin
        self._requests = requests
        self._rows = rows
        self._find_owner = find_owner
        self._lock = threading.Lock()
        self._owner: tuple[str | None, float] = None, 0.0
        self._topic_id: str | None = None
        # By partition, an offset below which requests are merged, and the end of the rows that was read after that.
        self._merged: dict[int, tuple[int, int]] = {}

    @property
    def topic(self) -> str:
        """Name of the topic of the requests."""
        return self._requests.topic

    def wait_until_merged(self, token: Offsets, numbers: Collection[int], deadline: float, what: str) -> dict[int, int]:
        """Wait until the requests below a token are merged; return the ends of the rows by number of partition.

        Args:
            token: the token, of the topic of the requests.
            numbers: the partitions that matter.
            deadline: value of `time.monotonic()` at which it ends.
            what: what waits, for the error.

        Raises:
            LookupTimeoutError: if they are not merged in time.
            StaleTokenError: if the topic of the requests was created again since the token was made.
        """
        topic_id = self._requests.topic_id()
        targets = {
            number: offset
            for number, offset in self._requests.read_token(token, topic_id).items()
            if number in numbers and offset > 0
        }
        with self._lock:
            if topic_id != self._topic_id:
                self._topic_id, self._merged = topic_id, {}
        wait_s = _FIRST_WAIT_S
        while True:
            missing = {number: offset for number, offset in targets.items() if not self._is_merged(number, offset)}
            if missing:
                owner = self._find_merged(missing, deadline)
                missing = {number: offset for number, offset in targets.items() if not self._is_merged(number, offset)}
            if not missing:
                return {number: self._merged[number][1] for number in targets}
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._make_timeout_error(missing, owner, what)
            time.sleep(min(wait_s, left))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _is_merged(self, number: int, offset: int) -> bool:
        with self._lock:
            return self._merged.get(number, (0, 0))[0] >= offset

    def _find_merged(self, wanted: Mapping[int, int], deadline: float) -> _Owner | None:
        """Find out how far requests are merged, and note it; return who merges them."""
        partitions = [TopicPartition(self.topic, number) for number in wanted]
        owner = None
        admin: object = self._admin
        group = self._ask_owner() if isinstance(admin, GroupOffsets) else None
        if group is not None and isinstance(admin, GroupOffsets):
            timeout = max(0.1, min(self._requests.timeout, deadline - time.monotonic()))
            owner = _Owner(group, _read_committed(admin, group, partitions, timeout))
        # What is merged is deleted, and nothing else is.
        low = {each.partition: low for each, (low, _) in self._admin.offset_bounds(partitions).items()}
        merged = {number: max(low[number], owner.committed.get(number, 0) if owner else 0) for number in wanted}
        reached = [number for number, offset in wanted.items() if merged[number] >= offset]
        if reached:
            high = self._rows.read_bounds(reached).high
            with self._lock:
                for number in reached:
                    if merged[number] > self._merged.get(number, (0, 0))[0]:
                        self._merged[number] = merged[number], high[number]
        return owner

    def _ask_owner(self) -> str | None:
        """Return the group that maintains the table; the catalogue costs a request or more."""
        group, until = self._owner
        if group is None or time.monotonic() >= until:
            group = self._find_owner()
            self._owner = group, time.monotonic() + _OWNER_KNOWN_S
        return group

    def _make_timeout_error(self, missing: Mapping[int, int], owner: _Owner | None, what: str) -> LookupTimeoutError:
        number = min(missing)
        table = self._rows.table
        waiting = f"requests up to offset {missing[number]} of {self.topic}[{number}] wait to be merged"
        if owner is None:
            reason = (
                "no application maintains the table: start one with app.maintain(), or "
                f"`streamrt table maintain {table}`"
            )
        else:
            state = "maintains the table, and"
            admin: object = self._admin
            with contextlib.suppress(KafkaRequestError):
                timeout = min(self._requests.timeout, 5.0)
                if isinstance(admin, GroupAdmin) and not admin.group_is_active(owner.group, timeout):
                    state = "maintains the table, and is not running: start it; it"
            merged = (
                f"merged those below {owner.committed[number]}" if number in owner.committed else "an open transaction"
            )
            reason = f"application {owner.group!r} {state} has {merged}"
        return LookupTimeoutError(f"{what} of table {table!r} has no answer in time: {waiting}, and {reason}")


def _read_committed(
    admin: GroupOffsets, group: str, partitions: Collection[TopicPartition], timeout: float
) -> dict[int, int]:
    """Return what a group has committed by number of partition; nothing while a transaction is about to move it."""
    try:
        found = admin.committed_stable(group, partitions, timeout)
    except KafkaRequestError as error:
        if error.code != UNSTABLE_OFFSETS:
            raise
        return {}
    return {each.partition: entry.offset or 0 for each, entry in found.items()}
