"""`streamrt doctor` on this machine and with a real broker."""

import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamrt.cli.diagnosis import findings_cluster, findings_machine
from streamrt.cli.diagnosis.findings import Status
from streamrt.cli.diagnosis.findings_machine import check_machine
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from tests.command_line import streamrt
from tests.servers import free_port
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_machine_with_a_broker_is_well(kafka: Kafka, tmp_path: Path) -> None:
    topic, group = kafka.topic(), unique("group")
    kafka.produce(topic, [1])
    before = set(kafka.admin.list_topics(30))
    options = ("--group", group, "--transactions", "--state-dir", tmp_path)
    found = streamrt("doctor", "--broker", kafka.address, *options, "--json").json
    statuses = {finding["name"]: finding["status"] for finding in found["findings"]}
    cluster = ("broker", "broker version", "create topics", "transactions", f"group {group}", "clock")
    assert {name: statuses[name] for name in cluster} == dict.fromkeys(cluster, "ok")
    assert {"Python", "system", "Java", "jars", "disk space"} <= statuses.keys()
    assert found["problems"] == 0
    details = {finding["name"]: finding["detail"] for finding in found["findings"]}
    assert details["broker version"] == "Kafka 4.4 or newer"
    assert details["group protocol"] == "classic and consumer"
    assert kafka.admin.cluster_id() in details["broker"]
    created = set(kafka.admin.list_topics(30)) - before
    assert not any(name.startswith("streamrt") for name in created), "the topic is only checked"
    assert group not in kafka.admin.list_groups(), "nothing is created"


def test_a_clock_that_is_behind_is_seen_by_commits(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.admin.set_committed(unique("group"), {TopicPartition(kafka.topic(), 0): 0})
    real = time.time
    monkeypatch.setattr(findings_cluster, "time", SimpleNamespace(time=lambda: real() - 3600))
    found = {each.name: each for each in findings_cluster.check_cluster(kafka.address, None, 10, None)}
    assert found["clock"].status is Status.warning
    assert re.search(r"a broker's clock is at least 3[56]\d\d\.\d s ahead", found["clock"].detail)
    assert "NTP" in found["clock"].remedy


def test_what_the_user_may_not_do_is_said(strict_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topic = unique("orders")
    assert streamrt("topics", "create", topic, "--broker", strict_kafka.bootstrap_servers).code == 0
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={strict_kafka.address('SASL_PLAINTEXT')}\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\nsasl.username=shop\nsasl.password=canary\n"
    )
    checked = streamrt("doctor", "--config", path, "--group", "shop", "--transactions", "--state-dir", tmp_path)
    hidden = streamrt("consume", topic, "--config", path)
    assert "warning  create topics: not allowed: " in checked.out
    assert "grant the user CREATE on topics" in checked.out
    assert "problem  transactions: not allowed for group shop: " in checked.out
    assert "grant the user WRITE and DESCRIBE on TransactionalId, prefix streamrt" in checked.out
    assert "warning  group shop: not checked, because the user sees no topic" in checked.out
    assert f"the user may not see {topic}, or a topic of this name does not exist: grant the user" in hidden.sentence
    assert checked.code == 1
    assert "canary" not in checked.out + hidden.err


def test_a_problem_has_a_remedy_and_exit_code_1(tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    outcome = streamrt("doctor", "--broker", away, "--timeout", 0.5, "--state-dir", tmp_path)
    assert outcome.code == 1
    assert f"problem  broker: no Kafka broker answered at {away} within 0.5 s" in outcome.out
    assert "\n         check address, network and login; `streamrt dev kafka` starts one" in outcome.out
    assert "1 problem," in outcome.out
    assert "\x1b" not in outcome.out


def test_without_an_address_the_cluster_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    outcome = streamrt("doctor", "--state-dir", tmp_path)
    assert "warning  broker: not checked, because no address is given" in outcome.out


def test_what_is_wrong_with_the_machine_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_JAVA_HOME", str(tmp_path / "no-java"))
    (tmp_path / "file").write_text("")
    found = {finding.name: finding for finding in check_machine(tmp_path / "file" / "state")}
    assert found["Java"].status is Status.problem
    assert "no-java" in found["Java"].detail
    assert found["state directory"].status is Status.problem
    assert "cannot be written" in found["state directory"].detail
    assert all(finding.remedy for finding in found.values() if finding.status is not Status.ok)


def test_java_may_be_missing_where_processes_run_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setenv("STREAMRT_SPARK_MASTER", "processes[2]")
    found = {each.name: each for each in check_machine(tmp_path)}
    assert found["Java"].status is Status.ok
    assert "not needed: STREAMRT_SPARK_MASTER names processes" in found["Java"].detail


@pytest.mark.parametrize(("free", "status"), [(2**20, Status.problem), (2**30, Status.warning), (2**40, Status.ok)])
def test_little_space_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: Status) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    found = {finding.name: finding for finding in check_machine(tmp_path / "not" / "yet")}
    assert found["disk space"].status is status


def test_a_network_file_system_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/state {tmp_path} nfs4 rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **options: mounts)
    [found, _] = findings_machine._state_directory(tmp_path / "state")
    assert found.status is Status.problem
    assert "is on a file system of type nfs4" in found.detail
