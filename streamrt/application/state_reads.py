"""Reads of the state of a running application."""

from collections.abc import Callable
from typing import Any

from streamrt.errors import ArgumentTypeError
from streamrt.queries.routing import MOST_ENTRIES, StateQueries
from streamrt.queries.stored_state import StateAnswer, StoreListing, no_state_key
from streamrt.topics import Topic

__all__ = ["StateReads"]

_ALL = no_state_key()


class StateReads:
    """Reads committed state, from any thread.

    Args:
        require_queried: raises if no run answers queries.

    Attributes:
        queries: answers the queries, while the application runs.
    """

    def __init__(self, require_queried: Callable[[], None] = lambda: None) -> None:
        self._require_queried = require_queried
        self.queries = StateQueries()

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
        """See `Application.query_state`."""
        self._require_queried()
        return self.queries.query(
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
        """See `Application.scan_state`."""
        self._require_queried()
        return self.queries.scan(
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
        """See `Application.state_stores`."""
        self._require_queried()
        return self.queries.listing()

    def state_key_of_text(self, store: str, topic: str | None, text: str, form: str = "text") -> Any:
        """See `Application.state_key_of_text`."""
        self._require_queried()
        return self.queries.key_of_text(store, topic, text, form)


def _name_of(topic: str | Topic | None) -> str | None:
    if topic is None or isinstance(topic, str):
        return topic
    if isinstance(topic, Topic):
        return topic.name
    raise ArgumentTypeError(f"topic must be a name or a Topic, got {type(topic).__name__}")
