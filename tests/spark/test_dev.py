"""`streamrt dev PROGRAM`: a program that starts again when its file changes."""

import contextlib
import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from streamrt.kafka import Producer
from streamrt.testing.plugin import KafkaBroker
from tests.spark_cluster import free_port
from tests.support import Program, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., Program]

DEV = """
import sys
from streamrt.cli import main

sys.argv[1:] = {arguments!r}
main()
"""

WORDS = """
import os
import sys

from beside import shout
from streamrt import Application

os.environ["ANSWER"] = "version 1"
arguments = sys.argv[1:]
app = Application(consumer_group={group!r}, auto_offset_reset="earliest"{options})
sdf = app.dataframe(app.topic({topic!r}, value_deserializer="str"))
sdf = sdf.apply(lambda word: [shout(word), os.environ["ANSWER"], *arguments])
sdf.apply(lambda words, state: [*words, state.get("n", 0), state.set("n", state.get("n", 0) + 1)], stateful=True).print()

if __name__ == "__main__":
    print("process", os.getpid(), "begins")
    app.run()
"""


def dev(*arguments: object) -> str:
    return textwrap.dedent(DEV).format(arguments=["dev", *map(str, arguments)])


@pytest.fixture
def words(tmp_path: Path) -> Path:
    directory = tmp_path / "words"
    directory.mkdir()
    (directory / "beside.py").write_text("def shout(word):\n    return word.upper()\n")
    return directory / "words.py"


def write(path: Path, text: str) -> None:
    """Replace a file at once, as editors do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def send(address: str, topic: str, *values: str) -> None:
    with Producer(address) as producer:
        for value in values:
            producer.produce(topic, value, key="key")


def jvms(program: Program) -> set[int]:
    """Return the process ids of Spark's JVMs below a program."""
    found = set()
    for child in psutil.Process(program.process.pid).children(recursive=True):
        # Workers come and go.
        with contextlib.suppress(psutil.NoSuchProcess):
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                found.add((child.pid, child.ppid()))
    # What a JVM starts looks like the JVM for a moment.
    known = {process for process, _ in found}
    return {process for process, parent in found if parent not in known}


def test_a_change_is_at_work_on_the_same_jvm_and_broker(program: Start, words: Path, processing_mode: str) -> None:
    """Resident tasks run without a JVM. How it ends by Ctrl+C, with a broker that is given, is shown with a new project."""
    topic, port = "texts", free_port()
    address = f"127.0.0.1:{port}"
    text = textwrap.dedent(WORDS).format(group=unique("group"), topic=topic, options="")
    write(words, text)
    running = program(dev("run", "--port", port, "--topic", f"{topic}:1", words, "--loud"))
    running.wait_for(f"Kafka is ready at {address}; topics and state are deleted at the end")
    send(address, topic, "a")
    running.wait_for("{'value': ['A', 'version 1', '--loud', 0, None]}")
    first = jvms(running)
    assert len(first) == (processing_mode == "micro-batch")
    # The program is stopped at a boundary, and goes on where it was. Workers have its environment.
    write(words, text.replace("version 1", "version 2"))
    running.wait_for("words.py changed: restarting words.py")
    # Until it has stopped, the former version takes records.
    running.wait_for("stopped after 1 records")
    send(address, topic, "b")
    running.wait_for("{'value': ['B', 'version 2', '--loud', 1, None]}")
    # A file next to it counts as well; what is wrong is shown, as Python shows it.
    write(words.parent / "beside.py", "def shout(word):\n    return word + '!'\n\nraise OSError('no luck')\n")
    running.wait_for("OSError: no luck")
    running.wait_for("words.py ended with exit code 1; it restarts when a file changes")
    assert not any("runpy" in line for line in running.err)
    write(words.parent / "beside.py", "def shout(word):\n    return word + '!'\n")
    send(address, topic, "c")
    running.wait_for("{'value': ['c!', 'version 2', '--loud', 2, None]}")
    # A program that is killed leaves its Spark context behind; the next one does without it.
    last = [line for line in running.out if line.startswith("process ")][-1]
    os.kill(int(last.split()[1]), signal.SIGKILL)
    running.wait_for("words.py was ended by SIGKILL")
    write(words, text.replace("version 1", "version 3"))
    send(address, topic, "d")
    # At least once: what was not committed is delivered again before it.
    running.wait_for("['d!', 'version 3', '--loud', ")
    assert jvms(running) == first
    # The state is not left next to the program.
    assert not (words.parent / ".streamrt").exists()
    children = psutil.Process(running.process.pid).children(recursive=True)
    # Nothing outlives it, not even where it is killed.
    running.process.kill()
    wait_until(lambda: not any(child.is_running() for child in children), what="all of its processes end")


def test_a_program_that_names_processes_starts_no_jvm(program: Start, words: Path, kafka_broker: KafkaBroker) -> None:
    topic, address = unique("texts"), kafka_broker.bootstrap_servers
    options = ', processing_mode="resident", spark_master="processes[1]"'
    text = textwrap.dedent(WORDS).format(group=unique("group"), topic=topic, options=options)
    write(words, text)
    running = program(dev("run", "--broker-address", address, "--topic", f"{topic}:1", words))
    send(address, topic, "a")
    running.wait_for("{'value': ['A', 'version 1', 0, None]}")
    write(words, text.replace("version 1", "version 2"))
    running.wait_for("stopped after 1 records")
    send(address, topic, "b")
    running.wait_for("{'value': ['B', 'version 2', 1, None]}")
    assert jvms(running) == set()
