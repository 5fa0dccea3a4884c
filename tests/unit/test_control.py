"""The control server and its client: a real server, for an application that does nothing."""

import json
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from streamrt import ApplicationStatus, errors
from streamrt.common.addresses import parse_address
from streamrt.connectors import CSVSource
from streamrt.control import Client
from streamrt.errors import (
    ApplicationStateError,
    ApplicationTimeoutError,
    ArgumentValueError,
    ConfigurationError,
    ControlUnavailableError,
    ProcessingError,
    StreamRTError,
)
from streamrt.kafka.completion_token import Offsets
from streamrt.topology.diagram import TopologyData
from tests.support import ROOT, replace_methods, wait_until
from tests.unit.played import PARTITION, Played, close_server

S = ApplicationStatus
CANARY = "canary-8f41c6"


def state(app: Played) -> tuple[ApplicationStatus, ApplicationStatus]:
    return app.status, app.desired_status


# -- The client has the words of the application -----------------------------------------------------------------------


@pytest.mark.rows("FE-003", "FE-036", "FE-038", "FE-039", "FE-040", "FE-130", "FE-134", "FE-135")
def test_the_client_moves_an_application(app: Played, client: Client) -> None:
    assert (client.status, client.desired_status) == (S.RUNNING, S.RUNNING)
    assert client.status_since == app.status_since
    assert client.error is None
    assert client.ready() == (True, [])
    client.pause()
    assert state(app) == (S.PAUSED, S.PAUSED)
    assert client.paused_topics == {"orders", "prices"}
    assert client.ready() == (True, [])
    client.resume("orders")
    assert state(app) == (S.RUNNING, S.RUNNING)
    assert client.paused_topics == app.paused_topics == {"prices"}
    client.resume()
    made = client.checkpoint()
    assert (made.number, made.status, made.offsets) == (1, "success", Offsets({PARTITION: 5}))
    assert client.checkpoint_status(1) == made == app.checkpoint_status(1)
    assert client.checkpoint_status(9).status == "unknown"
    client.restart(timeout=30)
    assert state(app) == (S.RUNNING, S.RUNNING)
    client.stop(wait=True, timeout=30)
    assert (client.status, client.desired_status) == (S.STOPPED, S.STOPPED)
    assert client.ready() == (False, ["the application is stopped"])
    # The next start is not ended by it.
    client.stop(wait=True)
    client.restart(timeout=30)
    assert state(app)[0] == S.RUNNING


@pytest.mark.rows("FE-017")
def test_what_takes_long_goes_on(app: Played, client: Client, http: httpx.Client) -> None:
    app.obeys.clear()
    with pytest.raises(
        ApplicationTimeoutError, match=r"not paused after 0\.1 s; it is running, and will be paused later"
    ):
        client.pause(timeout=0.1)
    assert state(app) == (S.RUNNING, S.PAUSED)
    answer = http.post("/checkpoint")
    assert (answer.status_code, answer.json()["status"]) == (202, "in progress")
    number = answer.json()["number"]
    assert answer.headers["location"] == f"/checkpoints/{number}"
    with pytest.raises(ApplicationTimeoutError, match=f"checkpoint {number} is not done after 0.1 s: it goes on"):
        client.checkpoint(timeout=0.1)
    assert client.checkpoint(wait=False).status == "in progress"
    answer = http.post("/resume")
    assert (answer.status_code, answer.json()["done"]) == (202, False)
    assert answer.json()["desired_status"] == "running"
    app.obeys.set()
    wait_until(lambda: client.checkpoint_status(number).status == "success")
    assert http.post("/pause?wait=30").status_code == 200


@pytest.mark.rows("FE-139")
def test_errors_are_those_of_the_application(app: Played, client: Client) -> None:
    with pytest.raises(ArgumentValueError, match="got the topic 'other', which the application does not read"):
        client.pause("other")
    with pytest.raises(ArgumentValueError, match="there is no source 'a/b'"):
        client.pause_source("a/b")
    app.failure = ProcessingError("apply-1 failed on orders[0] at offset 17")
    wait_until(lambda: app.status is S.FAILED)
    assert client.status is S.FAILED
    assert isinstance(client.error, ProcessingError)
    assert str(client.error) == str(app.error)
    with pytest.raises(ApplicationStateError) as raised:
        client.pause()
    assert str(raised.value) == "the application is failed and cannot be paused: start() it first"
    with pytest.raises(ProcessingError):
        client.restart(timeout=30)
    app.failure = None
    client.restart(timeout=30)
    assert client.error is None


@pytest.mark.rows("FE-027", "FE-033")
def test_an_application_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        assert client.status is S.UNREACHABLE
        with pytest.raises(ControlUnavailableError, match=f"no application answers at http://127.0.0.1:{port} "):
            client.pause()


@pytest.mark.parametrize("url", ["127.0.0.1:7070", "ftp://host", "http://", "http://user:hunter2@host:1", 7])
def test_a_url_that_is_none(url: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"Client\(url=...\)") as raised:
        Client(url)
    assert "hunter2" not in str(raised.value)


def test_something_else_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

        threading.Thread(target=answer).start()
        with (
            Client(f"http://127.0.0.1:{other.getsockname()[1]}") as client,
            pytest.raises(StreamRTError, match="is it an app"),
        ):
            client.describe_status()


def test_sources_are_paused(app: Played, client: Client) -> None:
    # The run is played, so the process of the source does not run.
    app.add_source(CSVSource("none.csv", name="daily/prices"), app.topic("daily"))
    client.pause_source("daily/prices")
    assert client.describe_status()["paused_sources"] == ["daily/prices"]
    assert 'streamrt_source_running{group="shop",source="daily/prices",topic="daily"} 0.0' in client.metrics()
    client.resume_source("daily/prices")
    assert client.describe_status()["paused_sources"] == []


def test_a_program_that_waits_outlasts_a_restart(app: Played, client: Client) -> None:
    ended: list[bool] = []
    waiter = threading.Thread(target=lambda: ended.append(app.wait()))
    waiter.start()
    for _ in range(3):
        client.restart(timeout=30)
        assert state(app) == (S.RUNNING, S.RUNNING)
    assert waiter.is_alive()
    client.stop()
    waiter.join(30)
    assert ended == [True]


PROGRAM = """
import signal, threading, time, urllib.request
from tests.support import replace_methods
from tests.unit.played import Played

def describe():
    print("asked", flush=True)
    time.sleep(600)

app = Played()
replace_methods(app._definition, describe=describe)
app.start()
def ask():
    # A signal that comes before app.wait() has begun ends the process.
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.01)
    urllib.request.urlopen(f"{app.location}/topology?format=text")

threading.Thread(target=ask, daemon=True).start()
app.wait()
print(app.status.value, flush=True)
"""


@pytest.mark.slow
def test_the_server_does_not_delay_the_end_of_its_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=120) == ("stopped\n", "")
    assert process.returncode == 0


# -- Routes ------------------------------------------------------------------------------------------------------------


def test_it_answers_while_the_application_starts_and_after_its_end() -> None:
    app = Played()
    assert app.location is None
    app.works.clear()
    starter = threading.Thread(target=app.start)
    starter.start()
    try:
        wait_until(lambda: app.location)
        with httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http:
            assert http.get("/live").json() == {"live": True}
            # The server is there a moment earlier.
            wait_until(lambda: http.get("/ready").json()["reasons"] == ["the application is starting"])
            assert http.get("/ready").status_code == 503
            app.works.set()
            wait_until(lambda: http.get("/ready").status_code == 200)
            assert http.post("/stop?wait=30").json()["status"] == "stopped"
            assert http.get("/live").status_code == 200
            assert http.get("/status").json()["status"] == "stopped"
    finally:
        app.works.set()
        starter.join()
        app.stop(wait=True)
        close_server(app)
    assert app.location is None


def test_it_ends_with_run() -> None:
    app = Played()
    runner = threading.Thread(target=app.run)
    runner.start()
    location = str(wait_until(lambda: app.location))
    with Client(location) as client:
        wait_until(lambda: client.status is S.RUNNING)
        with pytest.raises(ApplicationStateError, match=r"was started by run\(\), which returns when it stops"):
            client.restart()
        client.stop(wait=True, timeout=30)
        runner.join()
        assert client.status is S.UNREACHABLE
    assert app.location is None


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/nothing", 404, "NotFound"),
        ("GET", "/status/", 404, "NotFound"),
        ("GET", "/checkpoints/one", 404, "NotFound"),
        ("POST", "/status", 405, "MethodNotAllowed"),
        ("DELETE", "/status", 405, "MethodNotAllowed"),
        ("OPTIONS", "/pause", 405, "MethodNotAllowed"),
        ("POST", "/topics/other/pause", 404, "ArgumentValueError"),
        ("POST", "/sources/other/resume", 404, "ArgumentValueError"),
        ("POST", "/pause?wait=soon", 400, "ArgumentValueError"),
        ("POST", "/pause?wait=-1", 400, "ArgumentValueError"),
        ("POST", "/pause?wait=nan", 400, "ArgumentValueError"),
        ("POST", "/pause?wait=1e9", 400, "ArgumentValueError"),
        ("POST", "/pause?timeout=1", 400, "ArgumentValueError"),
        ("POST", "/stop?fail=maybe", 400, "ArgumentValueError"),
        ("GET", "/topology?format=svg", 400, "ArgumentValueError"),
        ("GET", "/completion", 400, "ArgumentValueError"),
        ("GET", "/completion?token=x&sources=true", 400, "ArgumentValueError"),
        ("GET", "/completion?token=nonsense", 400, "ArgumentValueError"),
        ("GET", "/idle", 400, "ArgumentValueError"),
        ("GET", "/idle?wait=1&idle_interval=soon", 400, "ArgumentValueError"),
        ("GET", "/idle?wait=1&idle_interval=2", 400, "ArgumentValueError"),
        ("GET", "/status?verbose=1", 400, "ArgumentValueError"),
    ],
)
def test_wrong_requests(http: httpx.Client, app: Played, method: str, path: str, status: int, error: str) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found.keys() == {"error", "code", "message", "advice", "retriable"}
    assert found["error"] == error
    assert found["code"] == (getattr(errors, error).error_code if hasattr(errors, error) else None)
    assert found["message"]
    assert found["advice"]
    assert found["retriable"] is False
    assert state(app) == (S.RUNNING, S.RUNNING)


def test_an_unexpected_error_tells_nothing(http: httpx.Client, app: Played, caplog: pytest.LogCaptureFixture) -> None:
    def break_down() -> str:
        raise OSError(CANARY)

    replace_methods(app._definition, describe=break_down)
    answer = http.get("/topology?format=text")
    assert (answer.status_code, answer.json()["error"], answer.json()["code"]) == (500, "OSError", None)
    assert CANARY not in answer.text
    assert http.get("/live").status_code == 200


@pytest.mark.rows("FE-008")
def test_the_topology(app: Played, client: Client, http: httpx.Client) -> None:
    assert client.describe() == app.describe()
    shown = client.topology
    assert shown == TopologyData.of(app.topology, "shop", changelogs=True)
    data = shown.as_dict()
    assert [node["id"] for node in data["nodes"]] == ["source-0", "apply-1", "to_topic-2", "source-3"]
    assert data["nodes"][2]["writes"] == "large-orders"
    assert data["streams"][0]["stores"] == (
        {"name": "default", "scope": "orders", "changelog": "changelog__shop--orders--default"},
    )
    drawing = http.get("/topology?format=mermaid").text
    assert drawing == shown.as_mermaid()
    assert drawing.startswith("flowchart TD\n")
    assert '[["large-orders"]]' in drawing
    assert "node_to_topic_2 --> " in drawing
    refused = http.get("/topology?format=svg").json()
    assert (refused["error"], refused["message"][:35]) == ("ArgumentValueError", "format must be text, mermaid or jso")


@pytest.mark.rows("FE-122", "FE-133")
def test_the_configuration(app: Played, client: Client) -> None:
    found = client.config
    assert found["consumer_group"] == "shop"
    assert found["connection"]["bootstrap_servers"] == "unused.invalid:9092"
    assert json.loads(app.config.model_dump_json()).items() <= found.items()


# -- The address -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":7070", "a:b:1", "[x]:1", "h/x:1", "u@h:1", "1:70000", "1:-1", "host:\N{SUPERSCRIPT TWO}"],
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="must be a port or host:port"):
        parse_address(text)
    with pytest.raises(ConfigurationError, match=r"parameter 'control' \(environment variable STREAMRT_CONTROL\)"):
        Played(control=text)


def test_a_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = Played(control=str(port))
        with pytest.raises(ConfigurationError) as raised:
            app.start()
        assert str(raised.value) == (
            f"the control server cannot listen at 127.0.0.1:{port}: port {port} is in use; choose another "
            "port, or 0 for a free one"
        )
        assert app.status is S.STOPPED
    app = Played(control="unused.invalid:0", control_token="sesame")
    with pytest.raises(
        ConfigurationError, match=r"cannot listen at unused\.invalid:0: .*; give an address of this machine"
    ):
        app.start()


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="control_token has no effect without control"):
        Played(control=None, control_token="sesame")
    with pytest.raises(ConfigurationError, match=r"'on_no_progress' .* has no effect with progress_timeout=None"):
        Played(progress_timeout=None, on_no_progress="fail")
