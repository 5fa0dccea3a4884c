"""State queries over HTTP, by the client, and by the commands: a real server, and stores in memory."""

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from streamrt import Application
from streamrt.cli import app as commands
from streamrt.control import Client
from streamrt.control.state_answers import shown_value
from streamrt.errors import ArgumentValueError, StateNotOwnedError, StateQueryError, StateUnavailableError
from streamrt.queries.routing import QueryTarget
from streamrt.state import State
from streamrt.testing import TopologyTestDriver
from streamrt.topics import Topic
from tests.command_line import CliRunner
from tests.support import wait_until
from tests.unit.played import Played, played


def remember(value: Any, state: State) -> None:
    state.set("n", state.get("n", 0) + 1)
    state.set("last", value)
    state.set_bytes("raw", b"\xff")


class World:
    """An application that answers from the stores of a test driver.

    Attributes:
        refusal: raised instead of an answer.
    """

    def __init__(self, app: Played) -> None:
        tested = Application("unused:9092", consumer_group="shop")
        self.topic: Topic = tested.topic("in")
        sdf = tested.dataframe(self.topic)
        sdf.update(remember, stateful=True)
        sdf.tumbling_window(1_000).count().final().to_topic(tested.topic("out"))
        sdf.join_asof(tested.dataframe(tested.topic("other")))
        self.driver = TopologyTestDriver(tested)
        self.refusal: Exception | None = None
        target = self.driver._states.queries._serving_target()

        def read(wanted: Any) -> Any:
            if self.refusal is not None:
                raise self.refusal
            return target.read(wanted)

        self.serving = app._states.queries.serving(QueryTarget(target.stored, target.inputs, read, None))


@pytest.fixture
def world(app: Played) -> Iterator[World]:
    made = World(app)
    with made.driver, made.serving:
        made.driver.pipe(made.topic, {"total": 5}, key="ann", timestamp=100)
        made.driver.pipe(made.topic, [1.5], key="a/b c", timestamp=200)
        yield made


def test_a_key_is_asked_for_over_http(world: World, http: httpx.Client) -> None:
    answer = http.get("/state/default/ann").json()
    assert answer == {
        "store": "default",
        "topic": "in",
        "partition": 0,
        "entries": [
            {"key": {"$base64": "YW5u"}, "value": {"total": 5}, "state_key": "last"},
            {"key": {"$base64": "YW5u"}, "value": 1, "state_key": "n"},
            {"key": {"$base64": "YW5u"}, "value": {"$base64": "/w=="}, "state_key": "raw"},
        ],
        "position": [{"topic": "in", "partition": 0, "offset": 2}],
        "cursor": None,
        "member": "",
    }
    assert [each["value"] for each in http.get("/state/default/ann?state_key=n").json()["entries"]] == [1]
    assert [each["value"] for each in http.get("/state/default/a%2Fb%20c?state_key=last").json()["entries"]] == [[1.5]]
    encoded = base64.urlsafe_b64encode(b"ann").decode()
    assert http.get(f"/state/default/{encoded}?key_format=base64").json() == answer
    assert http.get("/state/default/nobody").json()["entries"] == []
    window = http.get("/state/tumbling_window_1000_count/ann?from=0&to=1000").json()["entries"]
    assert window == [{"key": {"$base64": "YW5u"}, "value": 1, "start_ms": 0, "end_ms": 1_000}]
    kinds = {each["kind"] for each in http.get("/state").json()["stores"]}
    assert kinds == {"state", "windows", "other"}
    page = http.get("/state/default?prefix=a&limit=2").json()
    assert len(page["entries"]) == 2
    rest = http.get("/state/default", params={"prefix": "a", "cursor": page["cursor"]}).json()
    assert (len(rest["entries"]), rest["cursor"]) == (4, None)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/state/missing/ann", 404, "has no store 'missing'"),
        ("/state/default/ann?topic=missing", 404, "has no topic 'missing'"),
        ("/state/default?partition=9", 404, "no partition 9"),
        ("/state/default?partition=x", 400, "partition must be a whole number"),
        ("/state/default?limit=5000", 400, "limit must be from 1 to 1000"),
        ("/state/default?cursor=%21", 400, "cursor is not one of an answer"),
        ("/state/default/ann?key_format=xml", 400, "the form of a key is"),
        ("/state/default/ann?key_format=json", 400, "cannot be read as json"),
        ("/state/default/ann?other=1", 400, "has no parameter 'other'"),
        ("/state/default/ann?wait=x", 400, "wait must be"),
    ],
)
def test_wrong_questions(world: World, http: httpx.Client, path: str, status: int, words: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


def test_a_store_of_a_join_cannot_be_queried(world: World, http: httpx.Client) -> None:
    other = next(each for each in http.get("/state").json()["stores"] if each["kind"] == "other")
    answer = http.get(f"/state/{other['store']}/ann")
    assert (answer.status_code, answer.json()["error"]) == (422, "StateQueryError")


def test_while_partitions_move(world: World, http: httpx.Client, client: Client) -> None:
    world.refusal = StateUnavailableError("in[0] is moving")
    answer = http.get("/state/default/ann?wait=0")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["retriable"]) == (503, "1", True)
    with pytest.raises(StateUnavailableError, match="is moving"):
        client.query_state("default", "ann", timeout=0.3)
    foreign = StateNotOwnedError("in[0] belongs to another instance of the application")
    world.refusal = foreign
    answer = http.get("/state/default/ann")
    assert (answer.status_code, answer.json()["owner"]) == (421, None)
    with pytest.raises(StateNotOwnedError, match="announces no control address") as raised:
        client.query_state("default", "ann")
    assert raised.value.owner is None


def test_the_client_follows_to_the_owner(world: World, app: Played) -> None:
    with played() as wrong, Client(str(wrong.location)) as client, httpx.Client(trust_env=False, verify=False) as plain:
        target = world.driver._states.queries._serving_target()

        def refuse(wanted: Any) -> Any:
            raise StateNotOwnedError("in[0] belongs to another instance of the application")

        class Owners:
            def url(self, partitions: Any) -> str:
                return str(app.location)

        elsewhere: Any = QueryTarget(target.stored, target.inputs, refuse, Owners())  # type: ignore[arg-type]
        with wrong._states.queries.serving(elsewhere):
            found = client.query_state("default", "ann", "n")
            assert (found.get("n"), list(found.position.values())) == (1, [2])
            assert client.scan_state("default", prefix="ann", limit=1).entries == found_first(world)
            with pytest.raises(StateNotOwnedError) as raised:
                client.query_state("default", "ann", follow=False)
            assert raised.value.owner == app.location
            answer = plain.get(f"{wrong.location}/state/default/a%2Fb%20c?state_key=n")
            assert answer.status_code == 307
            refused = plain.get(f"{wrong.location}/state/default/ann?redirect=false")
            assert (refused.status_code, refused.json()["owner"]) == (421, app.location)
            assert answer.headers["location"] == f"{app.location}/state/default/a%2Fb%20c?state_key=n"
            assert plain.get(answer.headers["location"]).json()["entries"][0]["value"] == 1


def found_first(world: World) -> Any:
    return world.driver.query_state("default", "ann").entries[:1]


def test_the_client_gets_what_the_application_has(world: World, app: Played, client: Client) -> None:
    assert client.query_state("default", b"ann") == app.query_state("default", "ann")
    assert client.scan_state("default", start=b"a", end=b"b") == app.scan_state("default", start=b"a", end=b"b")
    assert client.state_stores() == app.state_stores()
    with pytest.raises(ArgumentValueError, match="has no store 'missing'"):
        client.query_state("missing", "ann")
    joined = next(each.store for each in client.state_stores() if each.kind == "other")
    with pytest.raises(StateQueryError):
        client.query_state(joined, "ann")
    with pytest.raises(ArgumentValueError, match="limit must be"):
        client.scan_state("default", limit=9_999)


def test_state_needs_the_token() -> None:
    with played(control_token="sesame") as app:
        world = World(app)
        with (
            world.driver,
            world.serving,
            httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http,
        ):
            for path in ("/state", "/state/default", "/state/default/ann"):
                assert http.get(path).status_code == 401
                assert http.get(path, headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_commands(world: World, app: Played) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(commands, ["state", *arguments, "--url", str(app.location)])
        return result.exit_code, result.stdout

    assert run("get", "default", "ann", "n") == (0, '"ann" "n": 1\nposition: in[0] at offset 2\n')
    assert run("get", "default", "nobody") == (1, "no state\nposition: in[0] at offset 2\n")
    code, text = run("get", "default", "ann", "--json")
    assert (code, json.loads(text)["entries"][1]["value"]) == (0, 1)
    code, text = run("scan", "default", "--prefix", "a", "--limit", "1")
    assert text.startswith('"ann" "last": {"total": 5}\nposition: in[0] at offset 2\nmore: --cursor ')
    assert "default of in: state, 1 partitions" in run("stores")[1]
    assert '"ann" [0, 1000): 1' in run("get", "tumbling_window_1000_count", "ann", "--from", "0")[1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**64 - 1, 2**64 - 1),
        (2**64, {"$text": str(2**64)}),
        ((1, b"\xff"), [1, {"$base64": "/w=="}]),
        ({1: b""}, {"1": {"$base64": ""}}),
        ({1, 2}, {"$text": "{1, 2}"}),
    ],
)
def test_values_without_a_json_form(value: Any, shown: Any) -> None:
    assert shown_value(value) == shown


def test_queries_that_wait_leave_room_for_probes(world: World, app: Played) -> None:
    world.refusal = StateUnavailableError("in[0] is moving")
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=str(app.location), trust_env=False, verify=False, timeout=60, limits=limits) as http:

        def ask() -> None:
            # Those who are refused ask again, or the question below, which may take the last place, is never refused.
            while world.refusal is not None:
                http.get("/state/default/ann?wait=60")

        asking = [threading.Thread(target=ask) for _ in range(40)]
        for thread in asking:
            thread.start()
        try:
            wait_until(lambda: http.get("/state/default/ann?wait=0").json()["error"] == "ControlUnavailableError")
            assert http.get("/ready").status_code == 200
            assert http.get("/status").status_code == 200
        finally:
            world.refusal = None
            for thread in asking:
                thread.join(60)
