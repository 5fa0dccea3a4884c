"""The client of a control server has the object model of `Application`, and waits as it does."""

import contextlib
import inspect
import socket
import threading
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from streamrt import Application, ApplicationStatus
from streamrt.control import Client
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    ArgumentValueError,
    ControlUnavailableError,
    ProcessingError,
    StaleTokenError,
)
from streamrt.kafka.completion_token import Offsets
from tests.support import wait_until
from tests.unit.played import PARTITION, Played, close_server

S = ApplicationStatus

DEFINES = "it defines what runs, in the program that runs it"
STOPPED = "it needs an application that is stopped, and has commands"
ONLY_APPLICATION = {
    **dict.fromkeys(["add_source", "catalog", "dataframe", "from_collection", "topic", "topic_manager"], DEFINES),
    **dict.fromkeys(["collect", "run", "setup_topics"], DEFINES),
    **dict.fromkeys(["explain", "register_function", "view", "views"], DEFINES),
    **dict.fromkeys(["get_consumer", "get_producer"], "they are clients of Kafka"),
    **dict.fromkeys(["clear_state", "forget_store", "repartition", "reset"], STOPPED),
    **dict.fromkeys(["restore_savepoint", "savepoint"], STOPPED),
    **dict.fromkeys(["maintain", "sql", "table"], DEFINES),
    "swap_view": "it is a command about the group of the program, whose views it knows",
    "verify": "it needs the program, which has the queries of its views",
    "start": "an application that was never started has no server; restart() starts one that has ended",
    "state_key_of_text": "keys as text are a matter of HTTP and of commands: query_state_text",
}
ONLY_CLIENT = {
    "close": "a client has connections",
    "describe_status": "what /status answers, in one request",
    "metrics": "Prometheus asks the server; a program has progress() and stats()",
    "query_state_text": "keys as text, for commands",
    "ready": "a probe for supervisors",
}
MORE_PARAMETERS = {
    "query_state": {"follow": "the owner of a key may be another instance"},
    "scan_state": {"follow": "the owner of a key may be another instance"},
}
FEWER_PARAMETERS = {"query": {"engine": "the control server computes queries by DuckDB only"}}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_names_are_the_same_but_for_reasons() -> None:
    assert public(Application) - public(Client) == set(ONLY_APPLICATION)
    assert public(Client) - public(Application) == set(ONLY_CLIENT)


@pytest.mark.parametrize("name", sorted(public(Application) & public(Client)))
def test_signatures_are_the_same_but_for_reasons(name: str) -> None:
    ours, theirs = (inspect.getattr_static(kind, name) for kind in (Application, Client))
    assert isinstance(ours, property) == isinstance(theirs, property)
    if isinstance(ours, property):
        return
    more, fewer = MORE_PARAMETERS.get(name, {}), FEWER_PARAMETERS.get(name, {})
    parameters: list[Any] = [
        [
            (each.name, each.kind, each.default)
            for each in inspect.signature(method).parameters.values()
            if each.name not in more and each.name not in fewer
        ]
        for method in (ours, theirs)
    ]
    assert parameters[0] == parameters[1]
    assert set(more) <= set(inspect.signature(theirs).parameters)
    assert set(fewer) <= set(inspect.signature(ours).parameters)


# -- Waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("FE-106", "FE-133")
def test_progress_and_numbers(app: Played, client: Client) -> None:
    app._state.progress.assigned({PARTITION: 3})
    assert client.progress() == app.progress()
    assert client.progress().positions == {PARTITION: 3}
    assert client.stats(timeout=1).partitions == app.stats().partitions


def test_the_end(app: Played, client: Client) -> None:
    assert client.wait(0) is False
    assert client.wait(0.3) is False
    ended: list[bool] = []
    waiter = threading.Thread(target=lambda: ended.append(client.wait()))
    waiter.start()
    for _ in range(2):
        # A restart is not an end.
        client.restart(timeout=30)
    assert client.wait(0) is False
    client.stop()
    waiter.join(60)
    assert ended == [True]
    assert client.wait() is True


def test_an_end_with_an_error(app: Played, client: Client) -> None:
    app.failure = ProcessingError("apply-1 failed on orders[0] at offset 17")
    with pytest.raises(ProcessingError, match="apply-1 failed on orders"):
        client.wait(60)


def test_the_end_of_the_process_is_an_end(app: Played) -> None:
    with Client(str(app.location)) as client:
        ended: list[bool] = []
        waiter = threading.Thread(target=lambda: ended.append(client.wait()))
        waiter.start()
        assert app._server is not None
        under_way = app._server._routes._waits
        wait_until(lambda: under_way._under_way > 0)
        close_server(app)
        waiter.join(60)
        assert ended == [True]
        with pytest.raises(ControlUnavailableError):
            client.wait()


def test_an_end_behind_a_proxy_that_drops_slow_requests(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    ended = threading.Event()
    with Client(str(app.location)) as client:
        send = client._connection.send

        def through_a_proxy(
            method: str, path: str, query: Mapping[str, str], wait_s: float, body: object = None
        ) -> httpx.Response:
            if path != "/end" or not wait_s or len(waits) >= 3:
                return send(method, path, query, wait_s)
            waits.append(wait_s)
            if len(waits) == 2:
                return httpx.Response(504, html="<h1>504 Gateway Time-out</h1>")
            raise ControlUnavailableError("no application answers")

        monkeypatch.setattr(client._connection, "send", through_a_proxy)

        def wait() -> None:
            if client.wait():
                ended.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: len(waits) == 3)
        assert not ended.is_set()
        app.stop(wait=True)
        waiter.join(60)
    assert ended.is_set()
    assert max(waits) == 30


def test_idle_and_complete(app: Played, client: Client) -> None:
    client.wait_for_idle(idle_interval=0.05, timeout=30, poll_interval=0.01)
    client.wait_for_completion(timeout=30)
    client.wait_for_completion(Offsets({PARTITION: 5}), timeout=30)
    app.kafka.at = 2
    with pytest.raises(ApplicationTimeoutError, match=r"not idle for 0\.05 s"):
        client.wait_for_idle(idle_interval=0.05, timeout=0.1, poll_interval=0.01)
    for until in (None, Offsets({PARTITION: 4})):
        with pytest.raises(ApplicationTimeoutError, match=r"orders\[0\] is committed up to 2 of [45]") as raised:
            client.wait_for_completion(until, stop=True, timeout=0.1)
        # As programs expect of a wait.
        assert isinstance(raised.value, TimeoutError)
    with pytest.raises(ArgumentValueError, match="idle_interval=2, which is longer than timeout=1"):
        client.wait_for_idle(idle_interval=2, timeout=1)
    assert app.status is S.RUNNING
    app.kafka.at = 5
    client.wait_for_completion(stop=True, timeout=30)
    assert client.status is S.STOPPED
    with pytest.raises(ApplicationStateError, match="is stopped and cannot become idle"):
        client.wait_for_idle(idle_interval=0, timeout=1, poll_interval=0)


@pytest.mark.rows("FE-071")
def test_a_token_of_a_topic_that_was_created_again(app: Played, client: Client, http: httpx.Client) -> None:
    token = Offsets({PARTITION: 5}, ids={"orders": "id-of-orders"})
    client.wait_for(token)
    assert http.get("/completion", params={"token": str(token)}).json() == {"done": True, "reason": ""}
    app.kafka.ids["orders"] = "another"
    answer = http.get("/completion", params={"token": str(token)})
    assert answer.status_code == 410
    assert answer.json()["error"] == "StaleTokenError"
    with pytest.raises(StaleTokenError, match="was deleted and created again since the token was made"):
        client.wait_for(token)


def test_too_many_requests_say_when_to_come_back(app: Played, http: httpx.Client) -> None:
    assert app._server is not None
    app._server._routes._calls._under_way = 32
    answer = http.get("/status")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["retriable"] is True
    app._server._routes._calls._under_way = 0
    assert http.get("/status").status_code == 200


def test_many_requests_that_wait_leave_room_for_probes_and_end_with_their_clients(app: Played) -> None:
    assert app._server is not None
    waits = app._server._routes._waits
    app.kafka.at = 2
    paths = [
        "/end?wait=3600",
        "/idle?wait=3600&idle_interval=0.05&poll_interval=0.01",
        "/completion?sources=true&wait=3600",
        f"/completion?token={Offsets({PARTITION: 5})}&wait=3600",
    ]
    location = httpx.URL(str(app.location))
    with contextlib.ExitStack() as clients:
        for number in range(32):
            client = clients.enter_context(socket.create_connection((location.host, location.port or 0)))
            request = f"GET {paths[number % 4]} HTTP/1.1\r\nHost: {location.host}\r\n\r\n"
            client.sendall(request.encode())
        wait_until(lambda: waits._under_way == 32)
        with httpx.Client(base_url=location, trust_env=False, verify=False) as http:
            assert http.get("/idle?wait=60").status_code == 503
            for path in ("/ready", "/status", "/metrics", "/end"):
                assert http.get(path).is_success
            assert http.post("/checkpoint").is_success
    wait_until(lambda: waits._under_way == 0)
    assert app.status is S.RUNNING
