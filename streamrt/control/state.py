"""The routes for state queries."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import orjson

from streamrt.common.texts import one_line
from streamrt.common.untrusted import LOWEST, whole_number
from streamrt.control.calls import Answer, Call, bad_request
from streamrt.control.controlled import Controlled
from streamrt.control.problems import MEDIA_TYPE, Problem
from streamrt.control.state_answers import dict_of_answer, shown_text
from streamrt.errors import ArgumentValueError, StateNotOwnedError, StateQueryError, StateUnavailableError
from streamrt.queries.routing import MOST_ENTRIES
from streamrt.queries.stored_state import no_state_key

__all__ = ["KEY_PARAMETERS", "SCAN_PARAMETERS", "StateRoutes"]

_WAIT_S = 5.0
_SCAN_LIMIT = 100
KEY_PARAMETERS = ("state_key", "key_format", "topic", "partition", "from", "to", "limit", "cursor", "wait", "redirect")
SCAN_PARAMETERS = ("prefix", "start", "end", "key_format", "topic", "partition", "limit", "cursor", "wait", "redirect")


class StateRoutes:
    """The handlers of `/state` and what is below it.

    Args:
        app: the application.
    """

    def __init__(self, app: Controlled) -> None:
        self._app = app

    def stores(self, call: Call) -> Answer:
        """Return the stores."""
        return _answer_call(call, lambda: {"stores": [dict(vars(each)) for each in self._app.states.state_stores()]})

    def key(self, call: Call) -> Answer:
        """Return the state of one message key."""
        query = call.query
        state_key: Any = no_state_key()
        if "state_key" in query:
            state_key = _state_key(query["state_key"])

        def found() -> dict[str, Any]:
            store, topic = call.path["store"], query.get("topic")
            key = self._app.states.state_key_of_text(store, topic, call.path["key"], query.get("key_format", "text"))
            return dict_of_answer(
                self._app.states.query_state(
                    store,
                    key,
                    state_key,
                    topic=topic,
                    partition=_read_number(query, "partition"),
                    from_ms=_read_number(query, "from"),
                    to_ms=_read_number(query, "to"),
                    limit=_read_number(query, "limit") or MOST_ENTRIES,
                    cursor=query.get("cursor"),
                    timeout=_read_timeout(call),
                )
            )

        return _answer_call(call, found)

    def scan(self, call: Call) -> Answer:
        """Return the state of several message keys of a partition."""
        query = call.query

        def found() -> dict[str, Any]:
            store, topic = call.path["store"], query.get("topic")
            form = query.get("key_format", "text")
            bounds = {
                name: self._app.states.state_key_of_text(store, topic, query[name], form)
                for name in ("prefix", "start", "end")
                if name in query
            }
            return dict_of_answer(
                self._app.states.scan_state(
                    store,
                    _read_number(query, "partition") or 0,
                    topic=topic,
                    **bounds,
                    limit=_read_number(query, "limit") or _SCAN_LIMIT,
                    cursor=query.get("cursor"),
                    timeout=_read_timeout(call),
                )
            )

        return _answer_call(call, found)


def _answer_call(call: Call, found: Callable[[], dict[str, Any]]) -> Answer:
    try:
        return Answer(orjson.dumps(found(), default=shown_text), content_type="application/json")
    except StateNotOwnedError as foreign:
        return _answer_elsewhere(call, foreign)
    except StateUnavailableError as error:
        seconds = str(max(1, math.ceil(error.retry_after_s)))
        problem = Problem.from_error(
            error, 503, "ask again after the seconds of the header Retry-After", retriable=True
        )
        return Answer(orjson.dumps(problem.as_dict()), 503, MEDIA_TYPE, {"Retry-After": seconds})
    except StateQueryError as error:
        raise Problem.from_error(error, 422, "query another store") from None
    except ArgumentValueError as error:
        _raise_argument(error)


def _raise_argument(error: ArgumentValueError) -> NoReturn:
    unknown = "has no store" in str(error) or "no partition" in str(error) or "has no topic" in str(error)
    status = 404 if unknown else 400
    raise Problem.from_error(error, status, "see GET /state for the stores") from None


def _answer_elsewhere(call: Call, foreign: StateNotOwnedError) -> Answer:
    """Return the answer for a key of another instance: a redirect to it, or that this is the wrong one."""
    problem = {**Problem.from_error(foreign, 421, "ask the owner", retriable=True).as_dict(), "owner": foreign.owner}
    # A page in a browser may not follow to another address.
    if foreign.owner is None or not call.flag("redirect", default=True):
        return Answer(orjson.dumps(problem), 421, MEDIA_TYPE)
    headers = {"Location": foreign.owner + call.target}
    return Answer(orjson.dumps(problem), 307, MEDIA_TYPE, headers)


def _read_timeout(call: Call) -> float:
    wait_s = call.wait_s
    return _WAIT_S if wait_s is None else wait_s


def _read_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        return whole_number(text, LOWEST)
    except ValueError:
        raise bad_request(f"{name} must be a whole number, got {one_line(text)!r}") from None


def _state_key(text: str) -> Any:
    """Return a key in the state: JSON, or else the text itself."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text
