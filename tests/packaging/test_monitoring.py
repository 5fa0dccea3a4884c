"""The alerts, the dashboard and the queries of the documentation, with a real Prometheus that scrapes an application."""

import importlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamrt.common.replica_sizes import ReplicaSize
from streamrt.records import OffsetRange
from streamrt.runtime.driver.observation.lag import Lag, LagSample
from streamrt.runtime.driver.observation.meters import JvmMemory
from streamrt.runtime.report import Pause, Report, RestoredPart, StoreSize, StoreTime
from streamrt.topology import Tally, TaskId
from streamrt.topology import tallies as tallies_module
from tests.servers import Server, free_port, program, workspace
from tests.support import wait_until
from tests.unit.played import PARTITION, Played, played

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "streamrt.json").read_text())
METRICS = (ROOT / "docs" / "metrics.md").read_text()
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
TOKEN = "a-token-for-tests"
KINDS = [value for name, value in vars(tallies_module).items() if name.isupper()]


def yaml(text: str) -> Any:
    return importlib.import_module("yaml").safe_load(text)


def block(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def documented() -> dict[str, set[str]]:
    """Return the labels of each metric that the page names."""
    found: dict[str, set[str]] = {}
    own = {"group", "instance", "job"}
    for name, kind, labels in re.findall(r"^\| `(streamrt\w*)` \| (\w+) \| (.*?) \|", METRICS, re.MULTILINE):
        known = own | set(re.findall(r"`(\w+)`", labels))
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
        for suffix in suffixes.get(kind, ("",)):
            found[name + suffix] = known
    for name in re.findall(r"`(process_\w*[a-z])`", METRICS):
        found[name] = own - {"group"}
    return {**found, "up": own}


def panels() -> list[Any]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def panel_queries() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def filled(query: str) -> str:
    """Return a query of the dashboard with what Grafana puts in for all values of its variables."""
    filled = query.replace("$__rate_interval", "5m")
    for variable in DASHBOARD["templating"]["list"]:
        filled = filled.replace(f"${variable['name']}", variable.get("allValue", ""))
    assert "$" not in filled, filled
    return filled


def alert_rules() -> list[Any]:
    [group] = yaml(ALERTS.read_text())["groups"]
    return list(group["rules"])


def promtool(*arguments: str) -> str:
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, cwd=ALERTS.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_alerts_are_raised_when_they_should() -> None:
    assert f"{len(alert_rules())} rules found" in promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml")


def test_each_alert_is_tested_in_both_directions() -> None:
    tests = yaml((ALERTS.parent / "alerts_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in alert_rules()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_each_alert_is_documented() -> None:
    severities = {}
    for names, severity in re.findall(r"^\| (`StreamRT.*?) \| .* \| (\w+) \|$", PAGE, re.MULTILINE):
        severities.update(dict.fromkeys(re.findall(r"`(\w+)`", names), severity))
    assert severities == {rule["alert"]: rule["labels"]["severity"] for rule in alert_rules()}


def test_queries_use_documented_names_and_labels() -> None:
    known = documented()
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    queries = [*(query for _, query in panel_queries()), *(rule["expr"] for rule in alert_rules()), *variables]
    used = set()
    for query in queries:
        for name, matchers in re.findall(r"\b((?:streamrt|process)_\w+|up)\b(?!\s*[=!]~?\")(?:\{(.*?)\})?", query):
            labels = set(re.findall(r"(\w+)\s*[=!]~?\"", matchers))
            assert name in known, query
            assert labels <= known[name], query
            used.add(name)
    assert len(used) > 20


def test_panels_have_places_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert 0 <= x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    titles = " ".join(panel["title"] for panel in panels())
    for word in (
        "Records read",
        "Lag by partition",
        "Duration",
        "Failed records",
        "Restarts",
        "left to restore",
        "Memory",
    ):
        assert word in titles
    assert "/" not in json.dumps(DASHBOARD["templating"])


# -- A real Prometheus ---------------------------------------------------------------------------------------------------


class Prometheus:
    """Asks a Prometheus that runs."""

    def __init__(self, port: int) -> None:
        self._ready = f"http://127.0.0.1:{port}/-/ready"
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, timeout=60)

    def is_ready(self) -> bool:
        """Return whether it answers queries: it listens earlier, and says that it is starting."""
        return bool(self._http.get(self._ready).is_success)

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(path, params=parameters).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and values of the answer."""
        return [(each["metric"], float(each["value"][1])) for each in self.get("/query", query=query)["result"]]

    def close(self) -> None:
        self._http.close()


def work(app: Played) -> None:
    """Let the driver learn what tasks report, and what Kafka answers."""
    assert app._server is not None
    app._server._lag.close()
    for thread in threading.enumerate():
        if thread.name == "streamrt-lag":
            # It forgets what it is told.
            thread.join(30)
    task = TaskId("orders", 0)
    app._state.progress.assigned({PARTITION: 3})
    restores = {
        (task, "default"): RestoredPart(10, 10, 10, finished=True),
        (task, "other"): RestoredPart(3, 10, 3, finished=False),
    }
    times = {(task, "default"): StoreTime(1_500, None)}
    ranges = {PARTITION: OffsetRange(*PARTITION, 3, 8)}
    report = Report(ranges=ranges, records=5, produced=4, dead_letters=1, seconds=0.2, times=times, restores=restores)
    report.commit_seconds, report.read_bytes, report.produced_bytes = 0.03, 500, 80
    report.memory = {"machine:7": 4096}
    app._state.progress.meters.rebalanced()
    app._state.progress.meters.jvm_memory(JvmMemory(1_000, 5_000, 9_000))
    report.block_cache, report.sizes = {"machine:7": 1024}, {(task, "default"): StoreSize(5_000, 40)}
    report.replicas = {"machine:7": {"ref.countries": ReplicaSize(250, 3)}}
    report.tallies = {Tally(kind, "orders", "default"): 3.0 for kind in KINDS}
    report.interrupted, report.locked, report.stalled = {task: "broker away"}, {task: "in use"}, {task: Pause(1.0)}
    app._state.progress.report(report)
    app._server._lag.sample = LagSample(time.time(), {PARTITION: Lag(5, 9)})


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """A Prometheus, set up as the page says, which has scraped an application before and after work."""
    port = free_port()
    with workspace("prometheus") as directory, played(control_token=TOKEN) as app:
        [job] = yaml(block("yaml")[0])["scrape_configs"]
        job["static_configs"] = [{"targets": [str(app.location).removeprefix("http://")]}]
        job["authorization"]["credentials_file"] = "token"
        (directory / "token").write_text(TOKEN)
        # A scrape that takes longer than its timeout makes all series stale, on a busy machine too.
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "200ms"}}
        configuration = {**settings, "rule_files": [str(ALERTS)], "scrape_configs": [job]}
        # JSON is also YAML.
        (directory / "prometheus.yml").write_text(json.dumps(configuration))
        options = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}")
        server = Server([program("prometheus"), *options], port, directory)
        server.start()
        client = Prometheus(port)
        try:
            wait_until(client.is_ready, what="a Prometheus that has started")
            wait_until(lambda: bool(client.query("count_over_time(streamrt_records_total[5m]) > 1")), what="a scrape")
            work(app)
            wait_until(
                lambda: bool(client.query("count_over_time(streamrt_lag_offsets[5m]) > 2")), what="scrapes of work"
            )
            yield client
        finally:
            client.close()
            server.stop()


@pytest.mark.slow
def test_queries_of_the_page_are_answered(prometheus: Prometheus) -> None:
    rate, lag, quantile, commits, operators, size = (prometheus.query(query) for query in block("promql"))
    [(labels, value)] = rate
    assert labels == {"group": "shop"}
    assert value > 0
    assert lag == [({"group": "shop", "topic": "orders"}, 4.0)]
    [(labels, value)] = quantile
    assert labels == {"group": "shop"}
    assert 0.1 < value <= 0.25
    [(_, value)] = commits
    assert 0.025 < value <= 0.05
    assert [labels["operator"] for labels, _ in operators] == ["default"]
    [(_, value)] = size
    assert value > 0


@pytest.mark.slow
def test_every_query_of_the_dashboard_has_an_answer(prometheus: Prometheus) -> None:
    for title, query in panel_queries():
        wait_until(partial(prometheus.query, filled(query)), what=f"an answer for {title}: {query}")


@pytest.mark.slow
def test_alerts_are_evaluated(prometheus: Prometheus) -> None:
    def rules() -> list[Any]:
        return [rule for group in prometheus.get("/rules")["groups"] for rule in group["rules"]]

    wait_until(lambda: {rule["health"] for rule in rules()} == {"ok"}, what="alerts to be evaluated")
    assert {rule["name"] for rule in rules()} == {rule["alert"] for rule in alert_rules()}
    raised = {rule["name"] for rule in rules() if rule["state"] == "firing"}
    assert raised == {"StreamRTDeadLetters"}
