"""Who may use the control server, and what it does not tell."""

import logging
import re
import socket
from urllib.parse import quote, urlsplit

import httpx
import pytest

from streamrt import ApplicationStatus, ConnectionConfig, Offsets
from streamrt.control import Client
from streamrt.errors import ConfigurationError, ControlRefusedError, RunnerError
from streamrt.secret import Secret
from tests.unit.played import Played, close_server, played

S = ApplicationStatus
CANARY = "canary-8f41c6"
CHANGES = ["/pause", "/resume", "/stop", "/restart", "/checkpoint", "/topics/orders/pause", "/sources/a/pause"]
READS = [
    "/live",
    "/ready",
    "/status",
    "/overview",
    "/config",
    "/topology",
    "/topology?format=text",
    "/topology?format=mermaid",
    "/metrics",
    "/stats",
    "/progress",
    "/idle?wait=0&idle_interval=0&poll_interval=0",
    "/end",
    "/state",
    f"/completion?token={quote(str(Offsets({('orders', 0): 3})))}",
]


def state(app: Played) -> tuple[ApplicationStatus, ApplicationStatus]:
    return app.status, app.desired_status


def test_nothing_listens_by_default_and_only_loopback_needs_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_CONTROL_TOKEN", raising=False)
    with played(control=None) as app:
        assert app.location is None
    with played(control="0") as app:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", str(app.location))
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:7070", "example.com:7070"):
        with pytest.raises(ConfigurationError, match=r"can be reached from other machines: set control_token"):
            Played(control=address)
    monkeypatch.setenv("STREAMRT_CONTROL_TOKEN", CANARY)
    Played(control="0.0.0.0:0")


def test_all_but_the_probes_need_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_CONTROL_TOKEN", CANARY)
    with played() as app, httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http:
        for given in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {CANARY}"},
            {"Authorization": CANARY},
        ):
            for method, path in [("GET", path) for path in READS] + [("POST", path) for path in CHANGES]:
                answer = http.request(method, path, headers=given)
                if path in ("/live", "/ready"):
                    assert answer.status_code == 200
                else:
                    assert answer.status_code == 401, path
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert answer.json()["error"] == "ControlRefusedError"
        # Without the token, the probe tells no reasons.
        assert http.get("/ready").json() == {"ready": True}
        assert state(app) == (S.RUNNING, S.RUNNING)
        for token in (CANARY, Secret(CANARY), lambda: CANARY):
            with Client(str(app.location), token) as client:
                client.pause()
                client.resume()
        with Client(str(app.location)) as client:
            assert client.status is S.RUNNING
        with Client(str(app.location), "wrong") as client, pytest.raises(ControlRefusedError, match="needs a token"):
            client.pause()


def test_a_token_that_changes() -> None:
    tokens = ["first"]
    with played(control_token=lambda: tokens[-1]) as app:
        with Client(str(app.location), "first") as client:
            client.pause()
            tokens.append("second")
            with pytest.raises(ControlRefusedError):
                client.resume()
        with Client(str(app.location), "second") as client:
            client.resume()


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared = []
    compare = hmac.compare_digest
    with played(control_token="sesame") as app:
        monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))  # type: ignore[func-returns-value]
        with Client(str(app.location), "sesam") as client, pytest.raises(ControlRefusedError):
            client.describe_status()
    assert compared == [(b"sesam", b"sesame")]


@pytest.mark.parametrize("token", ["", "two words", "line\n", "grüße"])
def test_tokens_that_no_header_holds(token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"control_token .*`openssl rand") as raised:
        Played(control_token=token)
    assert not token or token not in str(raised.value)
    with pytest.raises(ConfigurationError, match="control_token"):
        Client("http://127.0.0.1:1", token)


def test_names_that_are_made_to_resolve_here_are_refused(http: httpx.Client, app: Played) -> None:
    for host in ("evil.example", "evil.example:7070", "127.0.0.1.evil.example", "[", ""):
        answer = http.get("/status", headers={"Host": host})
        assert answer.status_code in (400, 403), host
    for host in ("localhost", "127.0.0.1:1", "[::1]:7070", "LOCALHOST:7070"):
        assert http.get("/status", headers={"Host": host}).status_code == 200


def test_on_all_interfaces_the_token_stands_for_the_name() -> None:
    with played(control="0.0.0.0:0", control_token=CANARY) as app:
        found = urlsplit(str(app.location))
        assert found.hostname == socket.gethostname().lower()
        address, token = f"http://127.0.0.1:{found.port}", {"Authorization": f"Bearer {CANARY}"}
        with httpx.Client(base_url=address, trust_env=False, verify=False) as http:
            host = {"Host": "shop.example:7070"}
            assert http.get("/status", headers=host).status_code == 401
            assert http.get("/status", headers={**host, **token}).status_code == 200
            assert http.post("/pause", headers={**host, **token, "Origin": "http://evil.example"}).status_code == 403
            assert http.post("/pause?wait=30", headers={**host, **token}).status_code == 200


def test_pages_of_other_origins_change_nothing(http: httpx.Client, app: Played) -> None:
    own = str(app.location)
    foreign = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": own.replace("127.0.0.1", "localhost")},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": own, "Sec-Fetch-Site": "cross-site"},
    ]
    for headers in foreign:
        for path in CHANGES:
            answer = http.post(path, headers=headers)
            assert answer.status_code == 403, headers
    assert state(app) == (S.RUNNING, S.RUNNING)
    for headers in ({"Origin": own}, {"Origin": own, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert http.post("/pause?wait=30", headers=headers).status_code == 200
    answer = http.get("/status", headers={"Origin": "https://evil.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_get_changes_nothing(http: httpx.Client, app: Played) -> None:
    for method in ("GET", "HEAD"):
        for path in CHANGES:
            assert http.request(method, path).status_code == 405
        for path in [*READS, "/checkpoints/1"]:
            # The stores belong to tasks, and there are none here.
            assert http.request(method, path).status_code == {"/state": 503, "/end": 202}.get(path, 200), path
    assert state(app) == (S.RUNNING, S.RUNNING)
    assert app.checkpoint_status(1).status == "unknown"


def test_changes_are_logged_with_who_made_them(
    http: httpx.Client, app: Played, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamrt")
    http.post("/pause?wait=30")
    http.post("/topics/a%0Ab/pause")
    http.get("/status")
    http.post("/stop", headers={"Origin": "https://evil.example"})
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("control: ")]
    assert re.fullmatch(r"control: 127\.0\.0\.1:\d+ POST '/pause\?wait=30': 200, done", lines[0])
    assert re.match(r"control: 127\.0\.0\.1:\d+ POST '/topics/a.*b/pause': 404: pause\(\) got the topic", lines[1])
    assert re.match(r"control: 127\.0\.0\.1:\d+ POST '/stop': refused with 403: ", lines[2])
    assert len(lines) == 3
    assert not any("\n" in line for line in lines)


def test_keys_of_records_are_in_no_log(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamrt")
    assert http.get("/state/default/ann@example.org", headers={"Host": "evil.example"}).status_code == 403
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("control: ")]
    assert [line.partition(" GET ")[2].split(":")[0] for line in lines] == ["'/state/default/...'"]


def texts_of(app: Played, token: str = "") -> list[str]:
    """Return what a running application tells those who may read."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=str(app.location), headers=headers, trust_env=False, verify=False) as http:
        answers = [http.get(path) for path in READS]
    assert 401 not in {answer.status_code for answer in answers}
    return [answer.text for answer in answers]


def test_secrets_are_in_no_answer_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = {name: f"{CANARY}-{name}" for name in ("password", "token", "producer", "spark", "wrong")}
    connection = ConnectionConfig(
        bootstrap_servers="unused.invalid:9092",
        security_protocol="sasl_ssl",
        sasl_mechanism="PLAIN",
        sasl_username="shop",
        sasl_password=secrets["password"],
    )

    app = Played(
        broker_address=connection,
        control_token=secrets["token"],
        producer_extra_config={"ssl.key.password": secrets["producer"]},
        spark_config={"spark.hadoop.fs.s3a.secret.key": secrets["spark"]},
    )
    app.start()
    try:
        seen = [repr(app), repr(app.config), repr(app._server)]
        with Client(str(app.location), secrets["token"]) as client:
            seen.append(repr(client))
            seen += texts_of(app, secrets["token"])
            client.pause()
            client.checkpoint()
        with Client(str(app.location), secrets["wrong"]) as client, pytest.raises(ControlRefusedError) as raised:
            client.pause()
        seen += [str(raised.value), *(record.getMessage() for record in caplog.records)]
        assert "**********" in "".join(seen)
        assert len(seen) > len(READS) + 5
        assert [text for text in seen if CANARY in text] == []
    finally:
        app.stop(wait=True)
        close_server(app)


def test_a_failure_that_shows_a_secret_is_masked_in_answers_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = ConnectionConfig(bootstrap_servers="unused.invalid:9092", sasl_username="shop", sasl_password=CANARY)
    app = Played(broker_address=connection)
    app.start()
    try:
        cause = ConnectionError(f"login failed: {CANARY}")
        app.failure = RunnerError(f"the sink refused {CANARY}")
        app.failure.__cause__ = cause
        with pytest.raises(RunnerError, match=r"the sink refused \*\*\*") as raised:
            app.wait()
        assert app.status is S.FAILED
        with Client(str(app.location)) as client:
            seen = [*texts_of(app), repr(client.error)]
        seen += [repr(app.error), str(raised.value), str(cause)]
        seen += [record.getMessage() for record in caplog.records]
        assert "the sink refused ***" in "".join(seen)
        assert [text for text in seen if CANARY in text] == []
    finally:
        close_server(app)
