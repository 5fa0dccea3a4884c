"""`MergedRequests`: waits until the application that maintains a table has merged a request, and finds where its row is."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, runtime_checkable

from streamrt.errors import LookupTimeoutError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.tables.access.groups import GroupAdmin, GroupOffsets
from streamrt.tables.access.links import TableAdmin
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.descriptions.usages import Usage

__all__ = ["MaintainedHome", "MergedRequests"]

_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.5


@runtime_checkable
class MaintainedHome(Protocol):
    """The further method of a home by which the application that maintains a table is found."""

    def usages(self, name: str) -> list[Usage]:
        """Return which applications use a table."""


class MergedRequests:
    """Waits until requests are merged. It may be used in any thread.

    The rows of a request are written before, or with, the commit that has merged it. So once the committed offset of the
    group is past a request, its row is below the end of the partition with the rows; not below the last stable offset,
    because the end of the transaction may not have been written there yet.

    Args:
        admin: looks at topics, and, if it can, at groups.
        requests: positions in the topic of the requests.
        rows: positions in the topic of the table.
        find_maintainers: returns the groups of the applications that maintain the table, as the catalogue knows them.
    """

    def __init__(
        self,
        admin: TableAdmin,
        requests: TopicPositions,
        rows: TopicPositions,
        find_maintainers: Callable[[], Collection[str]],
    ) -> None:
        self._admin = admin
        self._requests = requests
        self._rows = rows
        self._find_maintainers = find_maintainers
        self._lock = threading.Lock()
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
                groups = self._find_merged(missing, deadline)
                missing = {number: offset for number, offset in targets.items() if not self._is_merged(number, offset)}
            if not missing:
                return {number: self._merged[number][1] for number in targets}
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._make_timeout_error(missing, groups, what)
            time.sleep(min(wait_s, left))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _is_merged(self, number: int, offset: int) -> bool:
        with self._lock:
            return self._merged.get(number, (0, 0))[0] >= offset

    def _find_merged(self, wanted: Mapping[int, int], deadline: float) -> Mapping[str, Mapping[int, int]]:
        """Find out how far requests are merged, and note it; return the committed offsets by group and partition."""
        partitions = [TopicPartition(self.topic, number) for number in wanted]
        groups: dict[str, dict[int, int]] = {}
        admin: object = self._admin
        if isinstance(admin, GroupOffsets):
            for group in self._find_maintainers():
                timeout = max(0.1, min(self._requests.timeout, deadline - time.monotonic()))
                committed = admin.committed_stable(group, partitions, timeout)
                groups[group] = {each.partition: entry.offset or 0 for each, entry in committed.items()}
        # What is merged is deleted, and nothing else is.
        low = {each.partition: low for each, (low, _) in self._admin.offset_bounds(partitions).items()}
        merged = {number: max([low[number], *(at.get(number, 0) for at in groups.values())]) for number in wanted}
        reached = [number for number, offset in wanted.items() if merged[number] >= offset]
        if reached:
            high = self._rows.read_bounds(reached).high
            with self._lock:
                for number in reached:
                    if merged[number] > self._merged.get(number, (0, 0))[0]:
                        self._merged[number] = merged[number], high[number]
        return groups

    def _make_timeout_error(
        self, missing: Mapping[int, int], groups: Mapping[str, Mapping[int, int]], what: str
    ) -> LookupTimeoutError:
        number = min(missing)
        table = self._rows.table
        waiting = f"requests up to offset {missing[number]} of {self.topic}[{number}] wait to be merged"
        if not groups:
            reason = (
                "no application maintains the table: start one with app.maintain(), or "
                f"`streamrt table maintain {table}`"
            )
        else:
            group, at = max(groups.items(), key=lambda each: each[1].get(number, 0))
            state = "maintains the table, and"
            admin: object = self._admin
            with contextlib.suppress(KafkaRequestError):
                if isinstance(admin, GroupAdmin) and not admin.group_is_active(group, min(self._requests.timeout, 5.0)):
                    state = "maintains the table, and is not running: start it; it"
            reason = f"application {group!r} {state} has merged those below {at.get(number, 0)}"
        return LookupTimeoutError(f"{what} of table {table!r} has no answer in time: {waiting}, and {reason}")
