"""What callers can read of an application's state while it runs: `Application` derives from `QueriedApplication`."""

from typing import Any

from streamrt.errors import ApplicationStateError, ArgumentTypeError
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.saved import SavedApplication
from streamrt.runtime.driver.state_queries import MOST_ENTRIES, StateQueries
from streamrt.runtime.driver.stored_state import StateAnswer, StoreListing, no_state_key
from streamrt.topics import Topic

__all__ = ["QueriedApplication"]

_ALL = no_state_key()


class QueriedApplication(SavedApplication):
    """Adds queries of committed state."""

    def __init__(self) -> None:
        super().__init__()
        self._queries = StateQueries()

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = _ALL,
        *,
        topic: str | Topic | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the committed state of a message key, with the input offsets that it contains.

        It waits while the partition of the key moves. See docs/state-queries.md for what an answer promises.

        Args:
            store: name of the store: "default", or that of a window.
            key: the message key, as operators see it. For keys that are bytes, a str stands for its UTF-8 bytes.
            state_key: one key of the state; by default all of the message key.
            topic: the topic of the store, if stores of several topics have this name.
            partition: the partition; by default that of the key.
            from_ms: for windows: only those that start at this time or later, in milliseconds.
            to_ms: for windows: only those that start before this time.
            limit: maximum number of entries; 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait for the answer.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if there is no such store or partition.
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if the partition still moves, or its state is being restored, after the timeout.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            answer = app.query_state("default", "ann")
            print(answer.get("total"), "after", answer.position)
            ```
        """
        self._require_queried()
        return self._queries.query(
            store,
            key,
            state_key=state_key,
            topic=_name_of(topic),
            partition=partition,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=limit,
            cursor=cursor,
            timeout=timeout,
        )

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: str | Topic | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the committed state of several message keys of one partition.

        Entries come in the order of the store: shorter keys before longer ones. An answer may have fewer entries than the
        limit, even none, and a cursor: then go on there. Each answer has its own position.

        Args:
            store: name of the store.
            partition: the partition.
            topic: the topic of the store, if stores of several topics have this name.
            prefix: only keys that begin so: a str or bytes, as the keys are.
            start: only keys from this one on.
            end: only keys before this one.
            limit: maximum number of entries; for windows, of message keys. 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait for the answer.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if there is no such store or partition.
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if the partition still moves, or its state is being restored, after the timeout.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            for entry in app.scan_state("default", 0, prefix="customer-").entries:
                print(entry.key, entry.state_key, entry.value)
            ```
        """
        self._require_queried()
        return self._queries.scan(
            store,
            partition,
            topic=_name_of(topic),
            prefix=prefix,
            start=start,
            end=end,
            limit=limit,
            cursor=cursor,
            timeout=timeout,
        )

    def state_stores(self) -> list[StoreListing]:
        """Return the stores of the running application, by name and topic.

        Raises:
            ApplicationStateError: if the application does not run.
            StateUnavailableError: if it is starting or stopping.
        """
        self._require_queried()
        return self._queries.listing()

    def state_key_of_text(self, store: str, topic: str | None, text: str, form: str = "text") -> Any:
        """Return a message key from text, for `query_state`.

        Args:
            store: name of the store.
            topic: the topic of the store, if stores of several topics have this name.
            text: the text.
            form: "text": what the key deserializer of the topic makes of it; "json"; or "base64" for bytes.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if the text is no such key, or there is no such store.
        """
        self._require_queried()
        return self._queries.key_of_text(store, topic, text, form)

    def _require_queried(self) -> None:
        status = self.status
        if not status.is_active or status is ApplicationStatus.STOPPING:
            raise ApplicationStateError(
                f"the application is {status.value}, and has no state to query: start() it first"
            )


def _name_of(topic: str | Topic | None) -> str | None:
    if topic is None or isinstance(topic, str):
        return topic
    if isinstance(topic, Topic):
        return topic.name
    raise ArgumentTypeError(f"topic must be a name or a Topic, got {type(topic).__name__}")
