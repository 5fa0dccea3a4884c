"""State queries of a client: committed state by message key and by ranges of keys."""

import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from streamrt.config import require_amounts
from streamrt.control.connection import LONGEST_WAIT_S, LOOK_S, ControlConnection, decoded
from streamrt.control.problems import error_of
from streamrt.control.state_answers import answer_of_dict
from streamrt.errors import StateNotOwnedError, StateUnavailableError
from streamrt.runtime.driver.state_queries import MOST_ENTRIES
from streamrt.runtime.driver.stored_state import StateAnswer, StoreListing, no_state_key
from streamrt.topics import Topic

__all__ = ["StateClient", "name_of"]

_ALL = no_state_key()


class StateClient(ControlConnection):
    """Reads the state of an application: `Client` derives from it."""

    def state_stores(self) -> list[StoreListing]:
        """Return the stores of the application.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        found = self._document(self._ask("GET", "/state"))
        return [StoreListing(**each) for each in found["stores"]]

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = _ALL,
        *,
        topic: Topic | str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
        timeout: float = 10.0,
        follow: bool = True,
    ) -> StateAnswer:
        """Return the committed state of a message key; see `Application.query_state`.

        Args:
            store: name of the store.
            key: the message key: bytes, or what has a JSON form. For keys that are bytes, a str stands for its UTF-8 bytes.
            state_key: one key of the state; by default all of the message key.
            topic: the topic of the store, if stores of several topics have this name.
            partition: the partition; by default that of the key.
            from_ms: for windows: only those that start at this time or later, in milliseconds.
            to_ms: for windows: only those that start before this time.
            limit: maximum number of entries; 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait, while the partition moves, too.
            follow: ask the owner at the address that it announces in the consumer group, with the same token, if another
                instance owns the key.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            ControlUnavailableError: if the application, or the owner, does not answer.
            StateNotOwnedError: if another instance owns the key, and it is not followed, or has no control address.
            StateUnavailableError: if the partition still moves after the timeout.
        """
        form, text = _key_text(key)
        query = {"key_format": form, "from": from_ms, "to": to_ms, "topic": name_of(topic), "partition": partition}
        query.update(limit=limit, cursor=cursor)
        if state_key is not _ALL:
            query["state_key"] = json.dumps(state_key)
        path = f"/state/{quote(store, safe='')}/{quote(text, safe='')}"
        return self._state(path, query, timeout, follow=follow)

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: Topic | str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
        timeout: float = 10.0,
        follow: bool = True,
    ) -> StateAnswer:
        """Return the committed state of several message keys of a partition; see `Application.scan_state`.

        Args:
            store: name of the store.
            partition: the partition.
            topic: the topic of the store, if stores of several topics have this name.
            prefix: only keys that begin so.
            start: only keys from this one on.
            end: only keys before this one.
            limit: maximum number of entries; 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait, while the partition moves, too.
            follow: as for `query_state`.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            ControlUnavailableError: if the application, or the owner, does not answer.
            StateNotOwnedError: as for `query_state`.
            StateUnavailableError: if the partition still moves after the timeout.
        """
        query: dict[str, Any] = {"topic": name_of(topic), "partition": partition, "limit": limit, "cursor": cursor}
        for name, bound in (("prefix", prefix), ("start", start), ("end", end)):
            if bound is not None:
                query["key_format"], query[name] = _key_text(bound)
        return self._state(f"/state/{quote(store, safe='')}", query, timeout, follow=follow)

    def query_state_text(
        self, store: str, key: str | None, query: Mapping[str, Any], timeout: float = 10.0, *, follow: bool = True
    ) -> StateAnswer:
        """Return state for a key as text, with the parameters of the HTTP route, as commands have them.

        Args:
            store: name of the store.
            key: the message key; None for a scan.
            query: the parameters; those that are None are left out.
            timeout: seconds to wait, while the partition moves, too.
            follow: as for `query_state`.

        Raises:
            StreamRTError: as `query_state`.
        """
        path = f"/state/{quote(store, safe='')}"
        return self._state(path if key is None else f"{path}/{quote(key, safe='')}", query, timeout, follow=follow)

    def _state(self, path: str, query: Mapping[str, Any], timeout: float, *, follow: bool) -> StateAnswer:
        require_amounts("timeout", timeout=timeout)
        given = {name: str(value) for name, value in query.items() if value is not None}
        deadline = time.monotonic() + timeout
        address = self._url
        while True:
            wait_s = min(max(0.1, deadline - time.monotonic()), LONGEST_WAIT_S)
            answer = self._send("GET", path, {**given, "wait": f"{wait_s:g}"}, wait_s, address)
            if answer.is_success:
                return answer_of_dict(self._document(answer))
            found = decoded(answer.text)
            error = error_of(answer.status_code, found)
            owner = found.get("owner") if isinstance(found, dict) else None
            late = time.monotonic() + LOOK_S >= deadline
            if answer.status_code in (307, 421) and isinstance(error, StateNotOwnedError):
                error.owner = owner
                if not follow or owner is None or late:
                    raise error
                # The group may move on while it is asked: back and forth are possible for a while.
                moved, address = address == owner, owner
                if moved:
                    time.sleep(LOOK_S)
            elif isinstance(error, StateUnavailableError) and not late:
                time.sleep(LOOK_S)
            else:
                raise error


def name_of(topic: str | Topic | None) -> str | None:
    """Return the name of a topic."""
    return topic.name if isinstance(topic, Topic) else topic


def _key_text(key: Any) -> tuple[str, str]:
    """Return the form and the text of a key."""
    if isinstance(key, bytes):
        return "base64", base64.urlsafe_b64encode(key).decode()
    return "json", json.dumps(key)
