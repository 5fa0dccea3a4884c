"""State queries of an application's callers: which task to ask, how long to wait, and what leaves as an answer."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamrt.arguments import checked, type_name
from streamrt.config import require_amounts
from streamrt.errors import (
    ArgumentValueError,
    StateNotOwnedError,
    StateQueryError,
    StateUnavailableError,
)
from streamrt.kafka import KafkaRequestError
from streamrt.queries.stored_state import (
    QueriedStore,
    StateAnswer,
    StateEntry,
    StoredState,
    StoreListing,
    cursor_of,
    key_of_cursor,
)
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.owners import GroupOwners
from streamrt.runtime.read_messages import TaskRead, TaskRows
from streamrt.serializers import BytesDeserializer
from streamrt.state.reading import StoredRows, StoreRead
from streamrt.topology import TaskId

__all__ = ["MOST_ENTRIES", "QueryTarget", "StateQueries"]

MOST_ENTRIES = 1_000
"""The largest limit of entries in an answer."""
_RETRY_S = 0.05


@dataclass(frozen=True)
class QueryTarget:
    """A run that answers queries.

    Attributes:
        stored: the stores.
        inputs: returns the input partitions of a task.
        read: has the process that owns a task read its state. It raises `StateNotOwnedError` or `StateUnavailableError`.
        owners: knows the members of the group; None without a group, in the test driver.
    """

    stored: StoredState
    inputs: Callable[[TaskId], Sequence[TopicPartition]]
    read: Callable[[TaskRead], "Future[TaskRows]"]
    owners: GroupOwners | None


class StateQueries:
    """Answers queries from the run that serves them; safe to use from any thread."""

    def __init__(self) -> None:
        self._target: QueryTarget | None = None
        self._lock = threading.Lock()

    @contextmanager
    def serving(self, target: QueryTarget) -> Iterator[None]:
        """Answer queries during the `with` block."""
        with self._lock:
            self._target = target
        try:
            yield
        finally:
            with self._lock:
                self._target = None

    def listing(self) -> list[StoreListing]:
        """Return the stores.

        Raises:
            StateUnavailableError: if the run is starting or ending.
        """
        return self._serving_target().stored.listing()

    def key_of_text(self, store: str, topic: str | None, text: str, form: str) -> Any:
        """Return a message key from text; see `StoredState.key_of_text`."""
        stored = self._serving_target().stored
        return stored.key_of_text(stored.find(store, topic), text, form)

    def query(
        self,
        store: str,
        key: Any,
        *,
        state_key: Any,
        topic: str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the state of one message key; see `Application.query_state`."""
        _check_limits(limit, timeout)
        deadline = time.monotonic() + timeout
        target = self._serving_target()
        found = target.stored.find(store, topic)
        if isinstance(key, str) and not found.rekeyed and isinstance(found.topic.key_deserializer, BytesDeserializer):
            key = key.encode()
        if found.window is None and (from_ms is not None or to_ms is not None):
            raise ArgumentValueError(f"store {store!r} holds no windows: a range of time has no meaning")
        number = target.stored.partition_of(found, key) if partition is None else partition
        read = target.stored.read_of_key(found, key, state_key, limit)

        def wanted(entry: StateEntry) -> bool:
            start = entry.start_ms
            return start is None or ((from_ms is None or start >= from_ms) and (to_ms is None or start < to_ms))

        return self._answer_read(found, number, read, cursor, deadline, wanted)

    def scan(
        self,
        store: str,
        partition: int,
        *,
        topic: str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the state of several message keys of a partition; see `Application.scan_state`."""
        _check_limits(limit, timeout)
        deadline = time.monotonic() + timeout
        target = self._serving_target()
        found = target.stored.find(store, topic)
        if not found.rekeyed and isinstance(found.topic.key_deserializer, BytesDeserializer):
            prefix, start, end = (each.encode() if isinstance(each, str) else each for each in (prefix, start, end))
        read = target.stored.read_of_range(found, prefix, start, end, limit)
        return self._answer_read(found, partition, read, cursor, deadline, lambda entry: True)

    def _serving_target(self) -> QueryTarget:
        with self._lock:
            target = self._target
        if target is None:
            raise StateUnavailableError("the application is starting or stopping, so its state cannot be read now")
        return target

    def _answer_read(
        self,
        store: QueriedStore,
        partition: int,
        read: StoreRead,
        cursor: str | None,
        deadline: float,
        wanted: Callable[[StateEntry], bool],
    ) -> StateAnswer:
        task = store.task(partition)
        if cursor is not None:
            read = read.continued(key_of_cursor(cursor))
        refusal: StateUnavailableError | None = None
        while True:
            try:
                target = self._serving_target()
                rows = _read_confirmed(target, TaskRead(task, store.name, read), deadline)
                break
            except StateUnavailableError as error:
                late = time.monotonic() >= deadline
                # A last attempt had hardly any time: the reason is that of the one before.
                refusal = refusal if refusal is not None and late else error
                if time.monotonic() + _RETRY_S >= deadline:
                    raise refusal from None
                time.sleep(_RETRY_S)
        found = rows.found or StoredRows((), (), None)
        return StateAnswer(
            store.spec.name,
            store.scope,
            partition,
            tuple(filter(wanted, target.stored.entries(store, found))),
            dict(rows.position or {}),
            cursor_of(found.next),
            "" if rows.member is None else rows.member.decode(),
        )


def _check_limits(limit: int, timeout: float) -> None:
    require_amounts("timeout", timeout=timeout)
    checked("limit", limit, int, "an int", show=type_name)
    if not 1 <= limit <= MOST_ENTRIES:
        raise ArgumentValueError(f"limit must be from 1 to {MOST_ENTRIES}, got {limit}")


def _read_confirmed(target: QueryTarget, read: TaskRead, deadline: float) -> TaskRows:
    """Read, and have the group confirm that the partition belonged to this instance when it was read."""
    inputs = target.inputs(read.task)
    try:
        asked = target.read(read)
    except StateNotOwnedError as foreign:
        raise _with_owner(target, foreign, inputs) from None
    rows = _wait_for_rows(asked, deadline, read.task)
    if rows.found is None:
        if rows.lasting:
            raise StateQueryError(rows.trouble)
        raise StateUnavailableError(rows.trouble)
    if target.owners is None:
        return rows
    try:
        confirmed = rows.member is not None and target.owners.confirm(rows.member, inputs)
    except KafkaRequestError as away:
        raise StateUnavailableError(f"the group does not tell who owns {read.task}: {away}") from None
    if not confirmed:
        raise StateUnavailableError(f"the group does not confirm that this instance owns {read.task}: it may be moving")
    return rows


def _wait_for_rows(asked: "Future[TaskRows]", deadline: float, task: TaskId) -> TaskRows:
    try:
        return asked.result(max(0.0, deadline - time.monotonic()))
    except (FutureTimeoutError, CancelledError):
        asked.cancel()
        raise StateUnavailableError(f"{task} has not answered in time: it is at work, or its process hangs") from None


def _with_owner(
    target: QueryTarget, foreign: StateNotOwnedError, inputs: Sequence[TopicPartition]
) -> StateNotOwnedError:
    try:
        owner = None if target.owners is None else target.owners.url(inputs)
    except KafkaRequestError:
        owner = None
    where = f"ask {owner}" if owner else "ask the instance that owns the partition; it announces no control address"
    found = StateNotOwnedError(f"{foreign}: {where}")
    found.owner = owner
    return found
