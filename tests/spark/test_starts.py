"""Programs start wherever their Python is, and end at once while they start."""

import os
import socket
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import MASTER, PROCESSING_MODES, Kafka, Program, broken_pythons, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., Program]

PROGRAM = """
import sys
from streamrt import Application
from streamrt.connectors import Source

class Python(Source):
    def run(self):
        record = self.serialize(value=sys.executable)
        self.produce(value=record.value)

for mode in {modes!r}:
    app = Application({address!r}, consumer_group={group!r} + mode, auto_offset_reset="earliest", spark_master={master!r},
                      state_dir={state!r}, loglevel=None, processing_mode=mode)
    sdf = app.dataframe(source=Python("python")).apply(lambda value: [value, sys.executable])
    print(app.run(count=1, timeout=120))
"""


def starting(kafka: Kafka) -> str:
    """Return a program with a source, which prints the Pythons of source and worker in each mode."""
    return textwrap.dedent(PROGRAM).format(
        address=kafka.address, group=unique("group"), master=MASTER, state=str(kafka.state_dir), modes=PROCESSING_MODES
    )


@pytest.mark.rows("PF-A16")
@pytest.mark.only_mode("micro-batch", reason="one program shows both modes")
def test_workers_and_sources_use_the_python_of_the_application(kafka: Kafka, program: Start, tmp_path: Path) -> None:
    """As IDEs, cron and systemd start programs: by the path of a Python whose environment is not activated."""
    others = broken_pythons(tmp_path / "bin")
    started = program(starting(kafka), PATH=f"{others}{os.pathsep}{os.environ['PATH']}")
    assert started.wait() == 0, started.err
    assert started.out == [f"[{{'_value': ['{sys.executable}', '{sys.executable}']}}]\n"] * len(PROCESSING_MODES)


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """The address of something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


WAITING = """
from streamrt import Application

app = Application({address!r}, consumer_group="waiting", spark_master={master!r}, state_dir={state!r},
                  broker_availability_timeout=1000, processing_guarantee="exactly-once")
app.dataframe(app.topic({topic!r})).group_by("key").update(lambda value, state: None, stateful=True)
app.run()
print("over")
"""


def waiting(address: str, topic: str, directory: Path) -> str:
    """Return a program that waits for something, and prints when it is over."""
    return textwrap.dedent(WAITING).format(address=address, master=MASTER, state=str(directory), topic=topic)


def test_sigterm_ends_a_program_whose_broker_does_not_answer(
    silent_broker: str, program: Start, tmp_path: Path
) -> None:
    started = program(waiting(silent_broker, "in", tmp_path))
    started.wait_for("starting: consumer group")
    code, _ = started.end(timeout_s=60)
    assert (code, started.out) == (0, ["over\n"]), started.err


def test_sigterm_ends_a_program_whose_spark_still_boots(kafka: Kafka, program: Start, tmp_path: Path) -> None:
    """No JVM survives. This one would boot for ever."""
    pid = tmp_path / "pid"
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 1000\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base"\n')
    started = program(waiting(kafka.address, kafka.topic("in", 2), tmp_path), STREAMRT_JAVA_HOME=str(tmp_path / "java"))
    wait_until(pid.exists, what="the start of a JVM")
    code, _ = started.end(timeout_s=50)
    assert (code, started.out) == (0, ["over\n"]), started.err
    assert not any("did not start" in line for line in started.err)
    assert not psutil.pid_exists(int(pid.read_text()))
