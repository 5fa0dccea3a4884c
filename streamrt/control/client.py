"""A client for the control server of an application, with the words of `Application`."""

import base64
import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from typing_extensions import Self

from streamrt.common.addresses import DEFAULT_CONTROL_URL
from streamrt.config import require_amounts
from streamrt.control.connection import (
    ANSWER_S,
    LONGEST_WAIT_S,
    LOOK_S,
    ControlConnection,
    checked_wait_s,
    decoded,
    document_of,
)
from streamrt.control.problems import error_of
from streamrt.control.state_answers import answer_of_dict
from streamrt.control.token import ControlToken
from streamrt.control.trust import FollowPolicy
from streamrt.errors import (
    ApplicationTimeoutError,
    ControlUnavailableError,
    StateNotOwnedError,
    StateUnavailableError,
    StreamRTError,
)
from streamrt.kafka.completion_token import Offsets
from streamrt.queries.routing import MOST_ENTRIES
from streamrt.queries.stored_state import StateAnswer, StoreListing, no_state_key
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.waits import Deadline
from streamrt.runtime.driver.observation.progress import ProgressSnapshot
from streamrt.runtime.driver.observation.stats import ApplicationStats
from streamrt.topics import Topic
from streamrt.topology.diagram import TopologyData

if TYPE_CHECKING:
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["Client"]

_WAIT_S = 30.0
"""Seconds that one of the requests of `wait` takes at most: proxies drop those that take a minute."""
_DROPPED = (502, 503, 504)
_ALL = no_state_key()


class Client:
    """A running application, seen from another process. Safe to use from several threads.

    Nothing is kept here: each call and each property asks the application.

    Args:
        url: the control address: `Application.location`.
        token: its `control_token`: a text, a `Secret`, or a function that returns it. None takes that of the environment
            variable `STREAMRT_CONTROL_TOKEN`, if it is set.
        timeout: seconds to wait for an answer, beyond the time that a call waits for the application.
        follow_hosts: hosts of other instances that `query_state` and `scan_state` may follow to, with the token: names, with
            `*` for any characters, or networks such as `10.0.0.0/8`. The host of the URL needs no entry. Members of the
            consumer group choose the addresses, so list no more than the hosts of the application.

    Raises:
        ConfigurationError: if the URL or the token cannot be used, or httpx is not installed.
        ArgumentTypeError: if `follow_hosts` is not a list of strings.

    Example:
        ```python
        with Client("http://127.0.0.1:7070") as app:
            app.pause()
            print(app.checkpoint().offsets)
            app.resume()
        ```
    """

    def __init__(
        self,
        url: str = DEFAULT_CONTROL_URL,
        token: ControlToken | None = None,
        timeout: float = ANSWER_S,
        follow_hosts: Sequence[str] = (),
    ) -> None:
        self._connection = ControlConnection(url, token, timeout)
        self._follows = FollowPolicy(self._connection.url, follow_hosts)

    @property
    def location(self) -> str:
        """The URL of the control address."""
        return self._connection.url

    def close(self) -> None:
        """Close the connections to the server."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._connection.url!r})"

    # -- Reading -----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application; UNREACHABLE if it does not answer."""
        try:
            return ApplicationStatus(self.describe_status()["status"])
        except ControlUnavailableError:
            return ApplicationStatus.UNREACHABLE

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that callers have asked for last.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return ApplicationStatus(self.describe_status()["desired_status"])

    @property
    def status_since(self) -> datetime:
        """When the current state began, in UTC.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return datetime.fromisoformat(self.describe_status()["since"])

    @property
    def paused_topics(self) -> frozenset[str]:
        """The input topics that are not read.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return frozenset(self.describe_status()["paused_topics"])

    @property
    def error(self) -> StreamRTError | None:
        """The error that has ended the application, with the same text; None if there is none.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        found = self.describe_status()["error"]
        return None if found is None else error_of(500, found)

    def describe_status(self) -> dict[str, Any]:
        """Return what `/status` answers: the state and the wanted state, since when, the error, and what is paused.

        Raises:
            ControlUnavailableError: if the application does not answer.
            ControlRefusedError: if it wants another token.
        """
        return self._connection.read("GET", "/status")

    def ready(self) -> tuple[bool, list[str]]:
        """Return whether the application works, and the reasons if it does not.

        Raises:
            ControlUnavailableError: if it does not answer.
        """
        answer = self._connection.send("GET", "/ready", {}, 0.0)
        found = document_of(answer)
        if "ready" not in found:
            raise error_of(answer.status_code, found)
        return bool(found["ready"]), list(found.get("reasons", ()))

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the application, by name; secrets are masked.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return self._connection.read("GET", "/config")

    @property
    def topology(self) -> TopologyData:
        """The operators, streams and stores of the application, as data; `as_mermaid()` draws it.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return TopologyData.of_dict(self._connection.read("GET", "/topology", {"format": "json"}))

    def describe(self) -> str:
        """Return the topology as text, as `Application.describe` does.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        text: str = self._connection.ask("GET", "/topology", {"format": "text"}).text
        return text

    def progress(self) -> ProgressSnapshot:
        """Return the counters of the current or last run.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return ProgressSnapshot.of_dict(self._connection.read("GET", "/progress"))

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        text: str = self._connection.ask("GET", "/metrics").text
        return text

    # -- Changing ----------------------------------------------------------------------------------------------------

    def pause(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Stop reading, and return when everything that was read is processed or put back, and committed.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the pause still comes.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._request_change(_path_of("topics", name_of(topic), "pause"), "paused", timeout)

    def resume(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Read again after a pause. Without a pause, nothing happens.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._request_change(_path_of("topics", name_of(topic), "resume"), "resumed", timeout)

    def pause_source(self, name: str) -> None:
        """Stop a source after it has flushed.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._connection.ask("POST", _path_of("sources", name, "pause"), wait_s=LONGEST_WAIT_S)

    def resume_source(self, name: str) -> None:
        """Start a source again that was paused.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._connection.ask("POST", _path_of("sources", name, "resume"))

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Stop the application at the next boundary. An application that has ended is left as it is.

        Args:
            fail: do not commit; the next run processes all records since the last commit again.
            wait: wait until it has ended, or does not answer any more because its process has ended.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationTimeoutError: if it has not ended in time. It is still being stopped.
            ControlUnavailableError: if it does not answer.
        """
        if timeout is not None:
            require_amounts("stop", timeout=timeout)
        self._connection.ask("POST", "/stop", {"fail": str(fail).lower()})
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED, ApplicationStatus.UNREACHABLE)
        while wait and self.status not in ended:
            if time.monotonic() >= deadline:
                raise ApplicationTimeoutError(
                    f"the application has not stopped within {timeout:g} s; it is still stopping"
                )
            time.sleep(LOOK_S)

    def restart(self, timeout: float | None = None) -> None:
        """Stop the application, with a commit, and start it again, paused if it was paused.

        Args:
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the restart goes on.

        Raises:
            ApplicationStateError: if it was not started by `start()`.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the start.
        """
        self._request_change("/restart", "restarted", timeout)

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """Commit everything that was processed, now instead of at the next interval.

        Args:
            wait: wait for the commit.
            timeout: seconds to wait, an hour at most; None for an hour.

        Returns:
            The checkpoint.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        wait_s = checked_wait_s(timeout) if wait else 0.0
        checkpoint = _checkpoint_of(self._connection.read("POST", "/checkpoint", {"wait": f"{wait_s:g}"}, wait_s))
        if wait and checkpoint.status == "in progress":
            raise ApplicationTimeoutError(f"checkpoint {checkpoint.number} is not done after {wait_s:g} s: it goes on")
        return checkpoint

    def checkpoint_status(self, number: int) -> Checkpoint:
        """Return what is known about a checkpoint of the current or last run.

        Args:
            number: its number.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return _checkpoint_of(self._connection.read("GET", f"/checkpoints/{int(number)}"))

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """Return the state of the application, its counters, and the lag of all partitions that it reads.

        Args:
            timeout: seconds that the application waits for each answer of Kafka.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        wait_s = checked_wait_s(timeout)
        # It asks Kafka several times.
        return ApplicationStats.of_dict(self._connection.read("GET", "/stats", {"wait": f"{wait_s:g}"}, 5 * wait_s))

    # -- Waiting -----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the application has ended. A restart does not count as an end.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            Whether it has ended, or does not answer any more, because its process has ended.

        Raises:
            ControlUnavailableError: if it does not answer at the call.
            StreamRTError: the error that ended it.
        """
        deadline = Deadline(timeout)
        if timeout is not None:
            require_amounts("wait", timeout=timeout)
        wait_s = 0.0
        while True:
            try:
                found = self._request_end(wait_s)
            except StreamRTError:
                # The first request does not wait. A server that closes during a later one may answer anything.
                time.sleep(LOOK_S)
                if not wait_s or self.status is not ApplicationStatus.UNREACHABLE:
                    raise
                return True
            if found is None:
                time.sleep(LOOK_S)
                if self.status is ApplicationStatus.UNREACHABLE:
                    return True
                found = {"error": None, "ended": False}
            if found["error"] is not None:
                raise error_of(500, found["error"])
            if found["ended"] or deadline.over:
                return bool(found["ended"])
            wait_s = max(LOOK_S, min(deadline.left, _WAIT_S))

    def _request_end(self, wait_s: float) -> dict[str, Any] | None:
        """Return what `/end` answers; None if a proxy drops a request that waits, or the server has no room for it now."""
        try:
            answer = self._connection.send("GET", "/end", {"wait": f"{wait_s:g}"}, wait_s)
        except ControlUnavailableError:
            if not wait_s:
                raise
            return None
        if wait_s and answer.status_code in _DROPPED:
            return None
        if not answer.is_success:
            raise error_of(answer.status_code, decoded(answer.text))
        return document_of(answer)

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """Wait until all records are processed and no new ones have come for some time; see `Application.wait_for_idle`.

        Args:
            idle_interval: seconds without a new record.
            timeout: seconds to wait, an hour at most; None for an hour.
            poll_interval: seconds between two looks.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if an interval is longer than the timeout, or `poll_interval` longer than `idle_interval`.
            ControlUnavailableError: if the application does not answer.
        """
        require_amounts("wait_for_idle", idle_interval=idle_interval, poll_interval=poll_interval)
        self._wait_at("/idle", {"idle_interval": f"{idle_interval:g}", "poll_interval": f"{poll_interval:g}"}, timeout)

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until the sources have ended, and everything is processed; see `Application.wait_for_completion`.

        Args:
            until: process up to these offsets instead, and do not wait for the end of sources.
            stop: then stop the application, with a commit, and wait until it has ended.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if the application does not answer.
            StaleTokenError: if a topic was deleted since `until` was made.
        """
        deadline = Deadline(timeout)
        self._wait_at("/completion", {"sources": "true"} if until is None else {"token": str(until)}, timeout)
        if stop:
            self.stop(wait=True, timeout=None if timeout is None else deadline.left)

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """Wait until all records below a token are processed and durable; see `Application.wait_for`.

        Args:
            token: the next offset of input partitions, or its text.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if the application does not answer.
            StaleTokenError: if a topic was deleted since the token was made.
        """
        self._wait_at("/completion", {"token": str(token)}, timeout)

    # -- State ---------------------------------------------------------------------------------------------------------

    def state_stores(self) -> list[StoreListing]:
        """Return the stores of the application.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        found = self._connection.read("GET", "/state")
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
            timeout: seconds to wait, also while the partition moves.
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
        return self._request_state(path, query, timeout, follow=follow)

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
            timeout: seconds to wait, also while the partition moves.
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
        return self._request_state(f"/state/{quote(store, safe='')}", query, timeout, follow=follow)

    def query_state_text(
        self, store: str, key: str | None, query: Mapping[str, Any], timeout: float = 10.0, *, follow: bool = True
    ) -> StateAnswer:
        """Return state for a key as text, with the parameters of the HTTP route, as commands have them.

        Args:
            store: name of the store.
            key: the message key; None for a scan.
            query: the parameters; those that are None are left out.
            timeout: seconds to wait, also while the partition moves.
            follow: as for `query_state`.

        Raises:
            StreamRTError: as `query_state`.
        """
        path = f"/state/{quote(store, safe='')}"
        return self._request_state(
            path if key is None else f"{path}/{quote(key, safe='')}", query, timeout, follow=follow
        )

    def _request_state(self, path: str, query: Mapping[str, Any], timeout: float, *, follow: bool) -> StateAnswer:
        require_amounts("timeout", timeout=timeout)
        given = {name: str(value) for name, value in query.items() if value is not None}
        deadline = time.monotonic() + timeout
        address = self._connection.url
        while True:
            wait_s = min(max(0.1, deadline - time.monotonic()), LONGEST_WAIT_S)
            answer = self._connection.send("GET", path, {**given, "wait": f"{wait_s:g}"}, wait_s, address)
            if answer.is_success:
                return answer_of_dict(document_of(answer))
            found = decoded(answer.text)
            error = error_of(answer.status_code, found)
            named = found.get("owner") if isinstance(found, dict) else None
            owner = named if isinstance(named, str) else None
            late = time.monotonic() + LOOK_S >= deadline
            if answer.status_code in (307, 421) and isinstance(error, StateNotOwnedError):
                error.owner = owner
                if not follow or owner is None or late:
                    raise error
                self._follows.require(owner)
                # The group may move on while it is asked: back and forth are possible for a while.
                moved, address = address == owner, owner
                if moved:
                    time.sleep(LOOK_S)
            elif isinstance(error, StateUnavailableError) and not late:
                time.sleep(LOOK_S)
            else:
                raise error

    # -- SQL -----------------------------------------------------------------------------------------------------------

    def query(
        self,
        sql: str,
        args: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        timeout: float | None = 60.0,
        after: Offsets | str | None = None,
        max_scan_bytes: int = 4 * 1024**3,
    ) -> "QueryResult":
        """Return the present rows of a query in Spark's SQL, computed by the application; see `Application.query`.

        The application needs `control_sql`. The text is checked at once; rows come when they are asked for, and each call
        that asks for rows runs the query again, up to the offsets of its own time.

        Args:
            sql: one SELECT, VALUES or WITH.
            args: values of its parameters, such as `:least`, by name.
            limit: most rows of the result, up to `control_sql_rows`; others are left out. None for all: an error if there are
                more than `control_sql_rows`.
            timeout: seconds that it may work, up to `control_sql_timeout`; None for these.
            after: a completion token, or its text.
            max_scan_bytes: bytes of records that it may read.

        Raises:
            SQLError: if it cannot be read, or names what does not exist; the message has line and column.
            TableNotFoundError: if it names a table that does not exist.
            ArgumentValueError: if a limit is above that of the application.
            ControlRefusedError: if the application has no `control_sql`, or wants another token.
            ControlUnavailableError: if the application does not answer, or has no room for a query now.
        """
        from streamrt.control.sql_client import ask

        return ask(
            self._connection, sql, args, limit=limit, timeout=timeout, after=after, max_scan_bytes=max_scan_bytes
        )

    def execute(self, sql: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = 60.0) -> "Execution":
        """Do what one statement says, at once: INSERT, UPDATE, DELETE, CREATE, ALTER or DROP; see `Application.execute`.

        The application needs `control_sql="write"`. After an error of the connection, the statement may have been done.

        Args:
            sql: the statement.
            args: values of its parameters, by name.
            timeout: seconds that it may read, up to `control_sql_timeout`; None for these.

        Returns:
            Its result; `info` is None.

        Raises:
            SQLError: if it cannot be read, or asks for what is not possible.
            ControlRefusedError: if the application does not allow it, or wants another token.
            ControlUnavailableError: if the application does not answer, or has no room for a statement now. Other errors are
                those of `Application.execute`.
        """
        from streamrt.control.sql_client import execute

        return execute(self._connection, sql, args, timeout)

    # -- Requests ------------------------------------------------------------------------------------------------------

    def _wait_at(self, path: str, query: Mapping[str, str], timeout: float | None) -> None:
        wait_s = checked_wait_s(timeout)
        found = self._connection.read("GET", path, {**query, "wait": f"{wait_s:g}"}, wait_s)
        if not found["done"]:
            raise ApplicationTimeoutError(found["reason"])

    def _request_change(self, path: str, done: str, timeout: float | None) -> None:
        wait_s = checked_wait_s(timeout)
        answer = self._connection.read("POST", path, {"wait": f"{wait_s:g}"}, wait_s)
        if not answer["done"]:
            raise ApplicationTimeoutError(
                f"the application is not {done} after {wait_s:g} s; it is {answer['status']}, and will be {done} later"
            )


def _path_of(kind: str, name: str | None, verb: str) -> str:
    return f"/{verb}" if name is None else f"/{kind}/{quote(name, safe='')}/{verb}"


def _checkpoint_of(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(found["number"], found["status"], Offsets.parse(found["token"]), found["error"])


def name_of(topic: str | Topic | None) -> str | None:
    """Return the name of a topic."""
    return topic.name if isinstance(topic, Topic) else topic


def _key_text(key: Any) -> tuple[str, str]:
    """Return the form and the text of a key."""
    if isinstance(key, bytes):
        return "base64", base64.urlsafe_b64encode(key).decode()
    return "json", json.dumps(key)
