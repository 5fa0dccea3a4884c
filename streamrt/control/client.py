"""A client for the control server of an application, with the words of `Application`."""

import base64
import importlib.util
import json
import math
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from typing_extensions import Self

from streamrt.common.addresses import DEFAULT_CONTROL_URL
from streamrt.config import require_amounts
from streamrt.control.problems import error_of
from streamrt.control.state_answers import answer_of_dict
from streamrt.control.token import ControlToken, bearer, given_token
from streamrt.errors import (
    ApplicationTimeoutError,
    ArgumentValueError,
    ConfigurationError,
    ControlUnavailableError,
    StateNotOwnedError,
    StateUnavailableError,
    StreamRTError,
)
from streamrt.extras import install_command
from streamrt.kafka.token import Offsets
from streamrt.runtime.driver.checkpoints import Checkpoint
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.stats import ApplicationStats
from streamrt.runtime.driver.stored_state import StateAnswer, StoreListing, no_state_key

if TYPE_CHECKING:
    import httpx

__all__ = ["Client"]

_ANSWER_S = 10.0
_LONGEST_WAIT_S = 3600.0
_LOOK_S = 0.2
_ALL = no_state_key()
TopologyFormat = Literal["text", "mermaid", "json"]


class Client:
    """A running application, seen from another process. Safe to use from several threads.

    Nothing is kept here: each call and each property asks the application.

    Args:
        url: the control address: `Application.location`.
        token: its `control_token`: a text, a `Secret`, or a function that returns it. None takes that of the environment
            variable `STREAMRT_CONTROL_TOKEN`, if it is set.
        timeout: seconds to wait for an answer, beyond the time that a call waits for the application.

    Raises:
        ConfigurationError: if the URL or the token cannot be used, or httpx is not installed.

    Example:
        ```python
        with Client("http://127.0.0.1:7070") as app:
            app.pause()
            print(app.checkpoint().offsets)
            app.resume()
        ```
    """

    def __init__(
        self, url: str = DEFAULT_CONTROL_URL, token: ControlToken | None = None, timeout: float = _ANSWER_S
    ) -> None:
        if importlib.util.find_spec("httpx") is None:
            raise ConfigurationError(f"the control client needs httpx: run {install_command('control')}")
        import httpx

        require_amounts("Client", timeout=timeout)
        self._url = _checked(url)
        self._token = given_token(token)
        self._timeout = timeout
        # Proxies and files of logins in the environment are for other servers.
        self._http = httpx.Client(base_url=self._url, trust_env=False)

    @property
    def location(self) -> str:
        """The URL of the control address."""
        return self._url

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
        return self._document(self._ask("GET", "/status"))

    def ready(self) -> tuple[bool, list[str]]:
        """Return whether the application works, and the reasons if it does not.

        Raises:
            ControlUnavailableError: if it does not answer.
        """
        answer = self._send("GET", "/ready", {}, 0.0)
        found = self._document(answer)
        if "ready" not in found:
            raise error_of(answer.status_code, found)
        return bool(found["ready"]), list(found.get("reasons", ()))

    def config(self) -> dict[str, Any]:
        """Return the settings of the application; secrets are masked.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return self._document(self._ask("GET", "/config"))

    def topology(self, form: TopologyFormat = "json") -> Any:
        """Return the operators, streams and stores of the application.

        Args:
            form: "json" for dicts and lists; "text" or "mermaid" for a drawing.

        Raises:
            ControlUnavailableError: if the application does not answer.
            StreamRTError: if there is no such form.
        """
        answer = self._ask("GET", "/topology", {"format": form})
        return self._document(answer) if form == "json" else answer.text

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        text: str = self._ask("GET", "/metrics").text
        return text

    # -- Changing ----------------------------------------------------------------------------------------------------

    def pause(self, topic: str | None = None, timeout: float | None = 30.0) -> None:
        """Stop reading, and return when everything that was read is processed or put back, and committed.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the pause still comes.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._change(_path_of("topics", topic, "pause"), "paused", timeout)

    def resume(self, topic: str | None = None, timeout: float | None = 30.0) -> None:
        """Read again after a pause. Without a pause, nothing happens.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait, an hour at most; None for an hour.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            ControlUnavailableError: if it does not answer.
        """
        self._change(_path_of("topics", topic, "resume"), "resumed", timeout)

    def pause_source(self, name: str) -> None:
        """Stop a source after it has flushed.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._ask("POST", _path_of("sources", name, "pause"), wait_s=_LONGEST_WAIT_S)

    def resume_source(self, name: str) -> None:
        """Start a source again that was paused.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            ControlUnavailableError: if the application does not answer.
        """
        self._ask("POST", _path_of("sources", name, "resume"))

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
        self._ask("POST", "/stop", {"fail": str(fail).lower()})
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = (ApplicationStatus.STOPPED, ApplicationStatus.FAILED, ApplicationStatus.UNREACHABLE)
        while wait and self.status not in ended:
            if time.monotonic() >= deadline:
                raise ApplicationTimeoutError(
                    f"the application has not stopped within {timeout:g} s; it is still stopping"
                )
            time.sleep(_LOOK_S)

    def restart(self, timeout: float | None = None) -> None:
        """Stop the application, with a commit, and start it again, paused if it was paused.

        Args:
            timeout: seconds to wait, an hour at most; None for an hour. After a timeout, the restart goes on.

        Raises:
            ApplicationStateError: if it was not started by `start()`.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the start.
        """
        self._change("/restart", "restarted", timeout)

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
        wait_s = _wait_s(timeout) if wait else 0.0
        checkpoint = _checkpoint_of(self._document(self._ask("POST", "/checkpoint", {"wait": f"{wait_s:g}"}, wait_s)))
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
        return _checkpoint_of(self._document(self._ask("GET", f"/checkpoints/{int(number)}")))

    def stats(self) -> ApplicationStats:
        """Return the state of the application, its counters, and the lag of all partitions that it reads.

        Raises:
            ControlUnavailableError: if the application does not answer.
        """
        return ApplicationStats.of_dict(self._document(self._ask("GET", "/stats")))

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
        wait_s = _wait_s(timeout)
        query = {"token": str(token), "wait": f"{wait_s:g}"}
        found = self._document(self._ask("GET", "/completion", query, wait_s))
        if not found["done"]:
            raise ApplicationTimeoutError(found["reason"])

    # -- State -----------------------------------------------------------------------------------------------------------

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
        topic: str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int | None = None,
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
        query = {"key_format": form, "from": from_ms, "to": to_ms, "topic": topic, "partition": partition}
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
        topic: str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int | None = None,
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
            limit: maximum number of entries; 1000 at most, 100 by default.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait, while the partition moves, too.
            follow: as for `query_state`.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            ControlUnavailableError: if the application, or the owner, does not answer.
            StateNotOwnedError: as for `query_state`.
            StateUnavailableError: if the partition still moves after the timeout.
        """
        query: dict[str, Any] = {"topic": topic, "partition": partition, "limit": limit, "cursor": cursor}
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
            wait_s = min(max(0.1, deadline - time.monotonic()), _LONGEST_WAIT_S)
            answer = self._send("GET", path, {**given, "wait": f"{wait_s:g}"}, wait_s, address)
            if answer.is_success:
                return answer_of_dict(self._document(answer))
            found = _decoded(answer.text)
            error = error_of(answer.status_code, found)
            owner = found.get("owner") if isinstance(found, dict) else None
            late = time.monotonic() + _LOOK_S >= deadline
            if answer.status_code in (307, 421) and isinstance(error, StateNotOwnedError):
                error.owner = owner
                if not follow or owner is None or late:
                    raise error
                # The group may move on while it is asked: back and forth are possible for a while.
                moved, address = address == owner, owner
                if moved:
                    time.sleep(_LOOK_S)
            elif isinstance(error, StateUnavailableError) and not late:
                time.sleep(_LOOK_S)
            else:
                raise error

    # -- The connection ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def _change(self, path: str, done: str, timeout: float | None) -> None:
        wait_s = _wait_s(timeout)
        answer = self._document(self._ask("POST", path, {"wait": f"{wait_s:g}"}, wait_s))
        if not answer["done"]:
            raise ApplicationTimeoutError(
                f"the application is not {done} after {wait_s:g} s; it is {answer['status']}, and will be {done} later"
            )

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, wait_s: float = 0.0
    ) -> "httpx.Response":
        answer = self._send(method, path, query or {}, wait_s)
        if not answer.is_success:
            raise error_of(answer.status_code, _decoded(answer.text))
        return answer

    def _send(
        self, method: str, path: str, query: Mapping[str, str], wait_s: float, address: str | None = None
    ) -> "httpx.Response":
        import httpx

        headers = {} if self._token is None else {"Authorization": f"Bearer {bearer(self._token)}"}
        limits = httpx.Timeout(self._timeout, read=self._timeout + wait_s)
        try:
            url = (address or self._url) + path
            return self._http.request(method, url, params=dict(query), headers=headers, timeout=limits)
        except httpx.HTTPError as error:
            raise ControlUnavailableError(
                f"no application answers at {address or self._url} ({type(error).__name__}): start it with control set, "
                "or correct the address"
            ) from None

    def _document(self, answer: "httpx.Response") -> dict[str, Any]:
        found = _decoded(answer.text)
        if not isinstance(found, dict):
            raise error_of(answer.status_code, None)
        return found


def _key_text(key: Any) -> tuple[str, str]:
    """Return the form and the text of a key."""
    if isinstance(key, bytes):
        return "base64", base64.urlsafe_b64encode(key).decode()
    return "json", json.dumps(key)


def _path_of(kind: str, name: str | None, verb: str) -> str:
    return f"/{verb}" if name is None else f"/{kind}/{quote(name, safe='')}/{verb}"


def _wait_s(timeout: float | None) -> float:
    if timeout is None:
        return _LONGEST_WAIT_S
    require_amounts("timeout", timeout=timeout)
    return min(float(timeout), _LONGEST_WAIT_S)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except (ValueError, AttributeError, TypeError):
        usable = False
    if not usable:
        raise ArgumentValueError(f"Client(url=...) must be a URL such as {DEFAULT_CONTROL_URL!r}")
    if parts.username is not None or parts.password is not None:
        raise ArgumentValueError("Client(url=...) must not contain a user name or a password: pass token=...")
    return url.rstrip("/")


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _checkpoint_of(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(found["number"], found["status"], Offsets.parse(found["token"]), found["error"])
