"""The files of the dashboard, and the data that it shows."""

import re
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import httpx
import pytest

from streamrt.control.dashboard import PAGE_PATHS
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.recent import Recent, Second
from streamrt.runtime.report import Report
from streamrt.topology import TaskId
from tests.unit.crowded import HOSTILE, PARTITIONS, TOPICS, Crowded
from tests.unit.played import Played, close_server, played
from tests.unit.tabled import Tabled

CANARY = "canary-8f41c6"


def text_of(name: str) -> str:
    return files("streamrt.control").joinpath("page").joinpath(name).read_text(encoding="utf-8")


def test_every_file_is_served_with_headers_that_confine_it(http: httpx.Client) -> None:
    names = {file.name for file in files("streamrt.control").joinpath("page").iterdir()}
    assert frozenset(f"/page/{name}" for name in names - {"index.html"}) | {"/"} == PAGE_PATHS
    for path in PAGE_PATHS:
        answer = http.get(path)
        assert answer.status_code == 200
        assert answer.text == text_of("index.html" if path == "/" else path.removeprefix("/page/"))
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
    assert http.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert http.get("/page/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert http.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/page/", "/page/../dashboard.py", "/page/%2e%2e/dashboard.py", "/page/index.html"])
def test_nothing_else_is_served(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404
    assert http.post("/").status_code == 405


def test_the_files_fetch_nothing_from_elsewhere_and_parse_no_html() -> None:
    for path in PAGE_PATHS:
        text = text_of("index.html" if path == "/" else path.removeprefix("/page/"))
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            path
        )
    page = text_of("index.html")
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="/page/main.js">']
    assert not re.search(r"\sstyle=|\son\w+=", page)


def test_the_files_need_no_token_and_the_data_does() -> None:
    with (
        played(control_token=CANARY) as app,
        httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http,
    ):
        for path in PAGE_PATHS:
            answer = http.get(path)
            assert answer.status_code == 200
            assert CANARY not in answer.text
            assert http.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert http.get("/overview").status_code == 401
        assert http.get("/overview", headers={"Authorization": f"Bearer {CANARY}"}).status_code == 200


def test_the_overview_of_an_application_without_work(http: httpx.Client, app: Played) -> None:
    found = http.get("/overview").json()
    assert found["status"] == http.get("/status").json()
    assert (found["ready"], found["reasons"], found["lag_at"]) == (True, [], None)
    assert (
        found["partitions"] == found["restores"] == found["event_times"] == found["troubles"] == found["stores"] == []
    )
    assert set(found["run"].values()) == {0}
    assert found["process"]["starts"] == 1
    app.stop(wait=True)
    found = http.get("/overview").json()
    assert (found["ready"], found["reasons"]) == (False, ["the application is stopped"])


def test_the_overview_of_tables() -> None:
    app = Tabled()
    try:
        app.start()
        app.feed(40)
        with httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http:
            kept, aggregated, written, looked_up = http.get("/overview").json()["tables"]
        counts = {"inserted": 40, "updated": 1, "deleted": 1, "unchanged": 1, "upserts": 0, "deletes": 0}
        sizes = {"rows": 40, "bytes": 2_048, "lag": 5}
        about = {"operator": "table-5", "table": "shop.users", "kind": "kept", "key": "id"}
        assert kept == {**about, **sizes, **counts}
        assert (aggregated["table"], aggregated["key"], aggregated["inserted"]) == ("users", "country", 1)
        assert (aggregated["rows"], aggregated["lag"]) == (None, None)
        assert (written["table"], written["kind"], written["key"]) == ("shop.countries", "written", "country")
        assert (written["upserts"], written["deletes"], written["bytes"]) == (40, 1, None)
        assert (looked_up["table"], looked_up["kind"], looked_up["key"]) == ("shop.names", "looked up", "code")
        assert (looked_up["rows"], looked_up["lag"]) == (249, 2)
    finally:
        app.stop(wait=True)
        close_server(app)


def test_the_overview_of_a_busy_application() -> None:
    app = Crowded()
    try:
        app.start()
        app.feed(5)
        app.feed(2)
        app.trouble()
        with httpx.Client(base_url=str(app.location), trust_env=False, verify=False) as http:
            answer = http.get("/overview")
        found = answer.json()
        rows = found["partitions"]
        assert len(rows) == TOPICS * PARTITIONS
        assert rows[0] == {"topic": "clicks-0", "partition": 0, "position": 7, "committed": 7, "end": 7, "lag": 0}
        assert sorted({row["lag"] for row in rows}) == [0, 3]
        assert found["run"].items() >= {"skipped": 2, "dead_letters": 3, "produced": 7, "batches": 2}.items()
        assert found["process"].items() >= {"interruptions": 1, "sink_pauses": 1, "lock_waits": 0}.items()
        assert found["restores"][1] == {
            "stream": "orders",
            "partition": 1,
            "store": "default",
            "done": 700,
            "total": 4_000,
        }
        assert found["stores"] == [{"stream": "orders", "store": "default", "rows": 2_000, "bytes": 12_000_000}]
        times = found["event_times"]
        assert (times[0]["stream"], times[0]["tasks"]) == ("orders", 4)
        assert times[0]["highest"] - times[0]["lowest"] == pytest.approx(3)
        # The lowest of all tasks.
        assert times[0]["lowest"] - times[0]["watermark"] == pytest.approx(3)
        assert sum(second[2] for second in found["seconds"]) == 7 * TOPICS * PARTITIONS
        assert sum(second[3] for second in found["seconds"]) == 5
        assert {trouble["kind"] for trouble in found["troubles"]} == {"interrupted", "sink paused", "dead letter"}
        [letter] = [trouble for trouble in found["troubles"] if trouble["kind"] == "dead letter"]
        assert letter.items() >= {"record": "orders[0] at 97", "operator": "apply-1", "stream": "orders"}.items()
        assert any(HOSTILE in trouble["reason"] for trouble in found["troubles"])
        # What a browser fetches every two seconds.
        assert len(answer.content) < 40_000
    finally:
        app.stop(wait=True)
        assert app._server is not None
        app._server.close()


def test_a_partition_without_answer_of_kafka_has_no_lag(http: httpx.Client, app: Played) -> None:
    app._state.progress.assigned({TopicPartition("orders", 0): 3})
    row = {"topic": "orders", "partition": 0, "position": 3, "committed": None, "end": None, "lag": None}
    assert http.get("/overview").json()["partitions"] == [row]


def test_partitions_of_other_instances_have_owners(http: httpx.Client, app: Played) -> None:
    assert app._server is not None
    lag = app._server._lag
    lag.close()
    lag.take_sample()
    members = (
        ListedMember("m-1", "streamrt@10.0.0.6:7070", "10.0.0.6", (TopicPartition("orders", 0),)),
        ListedMember("m-2", "streamrt@:7070", "10.0.0.7", (TopicPartition("orders", 1),)),
        ListedMember("m-3", "streamrt", "10.0.0.8", (TopicPartition("prices", 1),)),
    )
    admin: Any = Answers(members)
    own = {TopicPartition("orders", 0): 3}
    app._state.progress.assigned(own)
    lag._request_sample(admin, own)
    lag._ask_for_others(admin, own)
    found = http.get("/overview").json()
    assert [(row["topic"], row["partition"], row["lag"]) for row in found["partitions"]] == [("orders", 0, 4)]
    known = {"committed": 5, "end": 9, "lag": 4}
    assert found["other_partitions"] == [
        {"topic": "orders", "partition": 1, **known, "owner": "10.0.0.7:7070", "url": "http://10.0.0.7:7070"},
        {"topic": "prices", "partition": 1, **known, "owner": "10.0.0.8", "url": None},
    ]
    # A coordinator that does not answer takes nothing else away.
    admin.members = None
    lag._others_at = 0.0
    lag._request_sample(admin, own)
    lag._ask_for_others(admin, own)
    found = http.get("/overview").json()
    assert [row["lag"] for row in found["partitions"]] == [4]
    assert found["other_partitions"] == []


class Answers:
    """Answers as brokers do, where each partition has four records that are not committed."""

    def __init__(self, members: tuple[ListedMember, ...]) -> None:
        self.members: tuple[ListedMember, ...] | None = members

    def group_members(self, group: str, timeout: float) -> tuple[ListedMember, ...]:
        if self.members is None:
            raise KafkaRequestError("no coordinator answers", retriable=True)
        return self.members

    def committed(self, group: str, partitions: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 5)

    def offset_bounds(
        self, partitions: Collection[TopicPartition], timeout: float, **_: Any
    ) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(partitions, (0, 9))


def test_two_minutes_are_remembered() -> None:
    now = [1_000.0]
    recent = Recent(clock=lambda: now[0])
    recent.report(Report(records=5, seconds=0.2), finished=True)
    now[0] = 1_000.9
    # Aborted work, between batches.
    recent.report(Report(records=-2, seconds=9.0, skipped=1), finished=False)
    assert recent.seconds() == (Second(1_000, 1, 3, 1, 0.2),)
    # Clocks are corrected.
    now[0] = 990.0
    recent.report(Report(records=1, seconds=0.1), finished=True)
    assert recent.seconds() == (Second(1_000, 2, 4, 1, 0.2),)
    for each in range(2_000, 2_300):
        now[0] = float(each)
        recent.report(Report(records=1), finished=True)
    assert [second.at for second in recent.seconds()] == list(range(2_180, 2_300))
    now[0] = 2_420.0
    assert recent.seconds() == ()
    now[0] = 10.0
    recent.report(Report(records=1), finished=True)
    assert [second.at for second in recent.seconds()] == [10]


def test_fifty_troubles_are_remembered_on_one_line_each() -> None:
    recent = Recent(clock=lambda: 7.0)
    for number in range(60):
        recent.report(Report(locked={TaskId("orders", number): "in use\nby another"}), finished=False)
    troubles = recent.troubles()
    assert [trouble.task.partition for trouble in troubles] == list(range(10, 60))
    assert {trouble.reason for trouble in troubles} == {"in use by another"}
