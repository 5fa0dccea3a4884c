"""A JVM with Kafka Streams' own TopologyTestDriver."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.peers.systems import KAFKA_STREAMS
from streamrt.jvm.jars import Jar, locked_jars, provide_jars
from streamrt.jvm.java import find_java

__all__ = ["KafkaStreams"]

_PROGRAM = Path(__file__).with_name("KafkaStreamsOracle.java")
_TEST_DRIVER = Jar(
    "org.apache.kafka",
    "kafka-streams-test-utils",
    KAFKA_STREAMS[0].version,
    66_983,
    "a8b2f756e8ff3c8f85cabe175c90dbadb1c022fb2945dc35862b41fcb149d30b",
)
# Records out of order are warnings.
_OPTIONS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")

Case = dict[str, Any]


class KafkaStreams:
    """A process with Kafka Streams that answers cases. It compiles its program at the start, in memory."""

    def __init__(self) -> None:
        # Stores with versions are on disk.
        self._directory = tempfile.TemporaryDirectory(prefix="oracle-")
        libraries = ("kafka-clients", "jackson-", "slf4j-")
        jars = provide_jars(
            [_TEST_DRIVER, *KAFKA_STREAMS, *(j for j in locked_jars("kafka") if j.artifact.startswith(libraries))]
        )
        path = os.pathsep.join(map(str, jars))
        scratch = f"-Djava.io.tmpdir={self._directory.name}"
        self._process = subprocess.Popen(
            [str(find_java().executable), *_OPTIONS, scratch, "-cp", path, str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> KafkaStreams:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()

    def ask(self, case: Case) -> list[Any]:
        """Return what Kafka Streams puts out at each step of a case.

        Raises:
            RuntimeError: if the case fails there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answers = json.loads(self._process.stdout.readline() or "null")
        if not isinstance(answers, list):
            raise RuntimeError(f"Kafka Streams failed with {answers}: {json.dumps(case)}")
        return answers
