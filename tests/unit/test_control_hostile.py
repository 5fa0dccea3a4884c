"""Harm that someone who reaches the control port, or the consumer group, cannot do to an application and its clients."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from streamrt.common.addresses import parse_address
from streamrt.control import Client
from streamrt.control.protocol import MOST_CONNECTIONS, ControlProtocol
from streamrt.control.trust import FollowPolicy
from streamrt.errors import ArgumentTypeError, StateNotOwnedError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.runtime.driver.observation.owners import url_of_member
from tests.unit.played import Played, played

HALF = (b"", b"GET /live HT", b"GET /live HTTP/1.1\r\nHost: 127", b"POST /stop HTTP/1.1\r\nContent-Length: 9\r\n\r\n12")
TOKEN = "canary-token-51"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setenv("STREAMRT_CONTROL_TOKEN", TOKEN)
    with played() as running:
        yield running


def address_of(app: Played) -> tuple[str, int]:
    parts = urlsplit(str(app.location))
    return str(parts.hostname), int(parts.port or 0)


@contextlib.contextmanager
def attacks(app: Played, count: int, sent: tuple[bytes, ...], source: str = "") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            mine = socket.create_connection(address_of(app), 60, source_address=(source, 0) if source else None)
            stack.callback(mine.close)
            with contextlib.suppress(OSError):
                mine.sendall(sent[number % len(sent)])
            found.append(mine)
        yield found


def is_closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.slow
def test_s2_probes_are_answered_whatever_connections_there_are(app: Played) -> None:
    """Idle, half-sent, from one address or others, and more of them than the server keeps."""
    with (
        attacks(app, MOST_CONNECTIONS + 40, HALF) as mine,
        attacks(app, 60, HALF, "127.0.0.9"),
        httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http,
    ):
        for _ in range(3):
            assert [http.get(path).status_code for path in ("/live", "/ready")] == [200, 200]
            assert http.get("/live", headers={"Connection": "close"}).status_code == 200
        # The oldest ones made room.
        assert is_closed(mine[0], 60)
    assert httpx.get(f"{app.location}/live", trust_env=False, verify=False).json() == {"live": True}


@pytest.mark.slow
def test_s2_a_connection_has_its_time_for_a_request(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes one by one do not prolong it, and neither does a body without an end behind an answer."""
    monkeypatch.setattr("streamrt.control.protocol._REQUEST_S", 0.3)
    with attacks(app, 4, (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n", HALF[3])) as dribbling:
        ends = threading.Event()

        def dribble() -> None:
            while not ends.wait(0.05):
                for each in dribbling:
                    with contextlib.suppress(OSError):
                        each.sendall(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            assert all(is_closed(each, 60) for each in dribbling)
        finally:
            ends.set()
            thread.join()
    # A busy machine may need longer for an honest request; a connection between two requests has no limit of this kind.
    monkeypatch.setattr("streamrt.control.protocol._REQUEST_S", 30.0)
    with httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http:
        assert http.get("/live").status_code == 200
        assert http.get("/live").status_code == 200


def test_s2_an_answer_that_is_not_taken_ends(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.control.protocol._ANSWER_S", 0.2)
    stalled: list[ControlProtocol] = []
    ended = threading.Event()
    pause, lost = ControlProtocol.pause_writing, ControlProtocol.connection_lost

    def note(protocol: ControlProtocol) -> None:
        stalled.append(protocol)
        pause(protocol)

    def end(protocol: ControlProtocol, error: Exception | None) -> None:
        lost(protocol, error)
        ended.set()

    monkeypatch.setattr(ControlProtocol, "pause_writing", note)
    monkeypatch.setattr(ControlProtocol, "connection_lost", end)
    page = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with attacks(app, 1, (b"",)) as (greedy,):
        greedy.settimeout(60)
        # Until the connection is closed.
        with contextlib.suppress(OSError):
            while not ended.is_set():
                greedy.sendall(page * 20)
        assert ended.wait(60)
    assert stalled
    assert httpx.get(f"{app.location}/live", trust_env=False, verify=False).status_code == 200


def test_s2_headers_without_an_end_are_refused(app: Played) -> None:
    with attacks(app, 1, (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",)) as (huge,):
        with contextlib.suppress(OSError):
            for _ in range(64):
                huge.sendall(b"y" * 65_536)
        assert is_closed(huge, 60)
    assert httpx.get(f"{app.location}/live", trust_env=False, verify=False).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil@127.0.0.1", "a:b@127.0.0.1:80", "127.0.0.1/x", "127.0.0.1?x", "127.0.0.1#x", "", "[::1", "::1", "x y"],
)
def test_s7_the_header_host_is_a_host_and_no_more(app: Played, host: str) -> None:
    answer = httpx.get(f"{app.location}/live", headers={"Host": host}, trust_env=False, verify=False)
    assert (answer.status_code, "does not name" in answer.text) == (403, True)


def test_s6_numbers_of_any_length_in_paths_and_parameters(app: Played) -> None:
    paths = [
        f"/checkpoints/{'9' * 5_000}",
        f"/checkpoints/{'9' * 30}",
        "/checkpoints/-1",
        "/checkpoints/%D9%A1",
        "/checkpoints/x",
    ]
    paths += [f"/state/default?{name}={'9' * 5_000}" for name in ("partition", "limit")]
    paths += [f"/idle?wait={'9' * 5_000}", f"/completion?token={'9' * 5_000}", f"/state/{'%00' * 500}/x", "/state/%FF"]
    with httpx.Client(
        base_url=str(app.location), trust_env=False, verify=False, headers={"Authorization": f"Bearer {TOKEN}"}
    ) as http:
        for path in paths:
            # 503: the state of an application that reads nothing is nowhere.
            assert http.get(path).status_code in (400, 404, 503), path


# -- Where a client sends its token -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "hosts", "owner", "allowed"),
    [
        ("http://127.0.0.1:7070", [], "http://127.0.0.1:7071", True),
        ("http://localhost:7070", [], "http://127.0.0.1:7071", True),
        ("http://127.0.0.1:7070", [], "http://10.0.0.7:7070", False),
        ("http://shop-0.shop:7070", [], "http://shop-1.shop:7070", False),
        ("http://shop-0.shop:7070", [], "http://SHOP-0.shop:9", True),
        ("http://shop-0.shop:7070", ["shop-?.shop"], "http://shop-1.shop:7070", True),
        ("http://shop-0.shop:7070", ["*.shop"], "http://shop-1.shop.evil.org:7070", False),
        ("http://shop:7070", ["10.0.0.0/8"], "http://10.9.9.9:7070", True),
        ("http://shop:7070", ["10.0.0.0/8"], "http://11.9.9.9:7070", False),
        ("http://shop:7070", ["10.0.0.7"], "http://10.0.0.7:7070", True),
        ("http://shop:7070", ["fd00::/8"], "http://[fd00::7]:7070", True),
        ("https://shop:7070", ["*"], "http://shop:7070", False),
        ("https://shop:7070", ["*"], "https://other:7070", True),
        ("http://shop:7070", [], "http://shop@evil.org:7070", False),
        ("http://shop:7070", [], "http://evil@shop:7070", False),
        ("http://shop:7070", ["*"], "file:///etc/passwd", False),
        ("http://shop:7070", ["*"], "http://shop:99999", False),
        ("http://shop:7070", ["*"], "\x1b[2J", False),
    ],
)
def test_s4_a_client_follows_to_hosts_that_its_user_has_named(
    url: str, hosts: list[str], owner: str, allowed: bool
) -> None:
    policy = FollowPolicy(url, hosts)
    if allowed:
        policy.require(owner)
        return
    with pytest.raises(StateNotOwnedError) as error:
        policy.require(owner)
    assert error.value.owner == owner
    assert "\x1b" not in str(error.value)


class Announced(threading.Thread):
    """A control server whose group has a member that announces another address, and what that one gets."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.thief, self.server = socket.create_server(("127.0.0.2", 0)), socket.create_server(("127.0.0.1", 0))
        self.owner: Any = f"http://127.0.0.2:{self.thief.getsockname()[1]}".replace("127.0.0.2", "thief.example")
        self.stolen = 0

    def run(self) -> None:
        body = json.dumps(
            {"error": "StateNotOwnedError", "message": "m", "advice": "a", "status": 421, "owner": self.owner}
        ).encode()
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                with connection:
                    connection.recv(65_536)
                    head = f"HTTP/1.1 421 x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    connection.sendall(head.encode() + body)


@pytest.mark.parametrize("owner", [None, 5, ["x"], {"a": 1}, "", "http://thief.example:1"])
def test_s4_no_token_goes_to_an_address_that_others_choose(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    announced = Announced()
    announced.owner = owner
    announced.start()
    asked: list[str] = []
    send = httpx.Client.request

    def note(client: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        asked.append(urlsplit(str(url)).hostname or "")
        return send(client, method, url, **options)

    monkeypatch.setattr(httpx.Client, "request", note)
    url = f"http://127.0.0.1:{announced.server.getsockname()[1]}"
    with Client(url, TOKEN) as client, pytest.raises(StateNotOwnedError):
        client.query_state("default", "ann", timeout=5.0)
    assert set(asked) == {"127.0.0.1"}
    announced.server.close()
    announced.thief.close()


def test_s4_hosts_are_listed_one_by_one() -> None:
    with pytest.raises(ArgumentTypeError, match="follow_hosts"):
        Client("http://127.0.0.1:7070", follow_hosts="shop")


@pytest.mark.parametrize(
    "text",
    [
        "evil@127.0.0.1:1",
        "a\rb:1",
        "a\x00b:1",
        "h\u00f6st:1",
        "a:" + "9" * 5_000,
        "a:-1",
        "a:\u0661",
        "a/b:1",
        "[fe80::1%a\rb]:1",
    ],
)
def test_s6_addresses_that_members_announce(text: str) -> None:
    with pytest.raises(ValueError, match="must be a port"):
        parse_address(text)
    member = ListedMember("m", f"x@{text}", "10.0.0.7", ())
    assert url_of_member(member) in (None, "http://127.0.0.1:1")
