"""Write `jars.json`, the lock of every Java library that StreamRT uses.

Run `python -m streamrt.jvm.lock` after changing a version below; review the difference and commit it. All
libraries are downloaded again, so that a damaged file of a local Maven cache cannot enter the lock.
"""

import hashlib
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["LOCK_FILE", "write_lock"]

LOCK_FILE = Path(__file__).with_name("jars.json")

# Without their dependencies, because pyspark includes the rest. The token provider of 4.2.0 is not on every mirror,
# and only delegation tokens need matching versions.
_SPARK = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_KAFKA_BROKER = ("org.apache.kafka", "kafka_2.13", "4.1.1")
# Kafka's library has no logging backend, and without one a failing broker logs nothing.
# The version matches the slf4j-api that Kafka depends on.
_KAFKA_LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
# One archive with all dependencies.
_REGISTRY = ("io.apicurio", "apicurio-registry-app", "3.3.3", "all", "tar.gz")


def write_lock(path: Path = LOCK_FILE) -> int:
    """Resolve and download all libraries and write their checksums to `path`.

    Args:
        path: file to write.

    Returns:
        The number of locked libraries.

    Raises:
        RuntimeError: if a library is in no repository.

    Example:
        >>> write_lock(Path("/tmp/jars.json"))  # doctest: +SKIP
        51
    """
    from jgo.maven import Dependency, MavenContext

    with tempfile.TemporaryDirectory(prefix="streamrt-lock-") as repository:
        context = MavenContext(repo_cache=Path(repository), timeout=60)

        def artifact(group: str, name: str, version: str, classifier: str = "", packaging: str = "jar") -> Any:
            return context.project(group, name).at_version(version).artifact(classifier=classifier, packaging=packaging)

        broker = artifact(*_KAFKA_BROKER)
        _, nodes = context.resolver.get_dependency_list([Dependency(broker, scope="runtime")])
        needed = [
            node.dep.artifact
            for node in nodes
            if node.dep.scope in (None, "compile", "runtime") and not node.dep.optional
        ]
        sets = {
            "spark": [artifact(*coordinates) for coordinates in _SPARK],
            "kafka": [broker, artifact(*_KAFKA_LOGGING), *needed],
            "registry": [artifact(*_REGISTRY)],
        }
        with ThreadPoolExecutor(max_workers=4) as pool:
            lock = {name: list(pool.map(_entry, artifacts)) for name, artifacts in sets.items()}
    path.write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")
    return sum(len(entries) for entries in lock.values())


def _entry(artifact: Any) -> dict[str, str | int]:
    content = artifact.resolve().read_bytes()
    special = {"packaging": artifact.packaging, "classifier": artifact.classifier}
    plain = {"packaging": "jar", "classifier": ""}
    return {
        "group": artifact.groupId,
        "artifact": artifact.artifactId,
        "version": artifact.version,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        **{name: value for name, value in special.items() if value != plain[name]},
    }


if __name__ == "__main__":
    print(f"{write_lock()} libraries locked in {LOCK_FILE}")  # noqa: T201 - a script for maintainers
