"""The peers, their cases, and the commands that start them. `make peers` installs them."""

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.program_options import AT_LEAST_ONCE, EXACTLY_ONCE
from streamrt.jvm.jars import Jar, locked_jars, provide_jars
from streamrt.jvm.java import find_java

HERE = Path(__file__).parent
ENVIRONMENTS = Path("build/peers").absolute()
# Their versions are those that Kafka Streams 4.4.0 was built with.
KAFKA_STREAMS = (
    Jar(
        "org.apache.kafka",
        "kafka-streams",
        "4.4.0",
        2_446_342,
        "6e06548a119adf213121ad2e4fefff6ab4263875b4f761425ace8ea4f5ba04a6",
    ),
    Jar(
        "org.rocksdb",
        "rocksdbjni",
        "10.1.3",
        72_725_808,
        "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498",
    ),
)


@dataclass(frozen=True)
class Peer:
    """Another system.

    Attributes:
        cases: those of `cases.CASES` that its program has.
        command: returns how its program starts. Raises OSError if it is not installed.
        guarantees: those that it has.
        one_process: whether a process shares its work between threads, as many as slots.
        clustered: whether its processes know each other's ports.
    """

    cases: tuple[str, ...]
    command: Callable[[], Sequence[str]]
    guarantees: tuple[str, ...] = (AT_LEAST_ONCE, EXACTLY_ONCE)
    one_process: bool = False
    clustered: bool = False


def python_of(name: str) -> str:
    """Return the Python that has a peer.

    Raises:
        OSError: if it is not installed.
    """
    python = ENVIRONMENTS / name / "bin" / "python"
    if not (ENVIRONMENTS / name / ".installed").exists():
        raise FileNotFoundError(f"{python} is missing: `make peers` installs it")
    return str(python)


@functools.cache
def kafka_streams() -> list[str]:
    """Return the command of Kafka Streams; fetch its libraries and compile its program if need be."""
    wanted = ("kafka-clients", "jackson-", "slf4j-")
    jars = provide_jars([*KAFKA_STREAMS, *(jar for jar in locked_jars("kafka") if jar.artifact.startswith(wanted))])
    java, source, classes = str(find_java().executable), HERE / "OnKafkaStreams.java", ENVIRONMENTS / "kafka-streams"
    path = ":".join(map(str, [classes, *jars]))
    compiled = classes / "OnKafkaStreams.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        compiler = "jdk.compiler/com.sun.tools.javac.Main"
        subprocess.run([java, "-m", compiler, "-cp", path, "-d", str(classes), str(source)], check=True)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [java, quiet, "-cp", path, "OnKafkaStreams"]


PEERS = {
    "quix": Peer(
        ("stateless", "count", "tumbling", "group_by", "seen"), lambda: [python_of("quix"), "-m", "bench.peers.on_quix"]
    ),
    "bytewax": Peer(
        ("stateless", "count", "tumbling", "seen"),
        lambda: [python_of("bytewax"), "-m", "bench.peers.on_bytewax"],
        guarantees=(AT_LEAST_ONCE,),
        clustered=True,
    ),
    "faust": Peer(
        ("stateless", "count", "group_by", "seen"),
        lambda: [python_of("faust"), "-m", "bench.peers.on_faust"],
        guarantees=(AT_LEAST_ONCE,),
    ),
    "kafka-streams": Peer(
        ("stateless", "count", "tumbling", "group_by", "seen", "aggregate", "table_join"),
        kafka_streams,
        one_process=True,
    ),
    "loop": Peer(
        ("stateless", "seen"), lambda: [sys.executable, "-m", "bench.peers.loop"], guarantees=(AT_LEAST_ONCE,)
    ),
}
