"""Write `jars.json`, the lock of every Java library that StreamRT uses.

Run `python -m streamrt.jvm.lock` after changing a version below; review the difference and commit it. All
libraries are downloaded again, so that a damaged file of a local Maven cache cannot enter the lock.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["LOCK_FILE", "lock_broker", "write_lock"]

LOCK_FILE = Path(__file__).with_name("jars.json")

# Without their dependencies, because pyspark includes the rest. Each serves all patch versions of this minor version.
_SPARK = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_KAFKA = "4.4.0"
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
    with _open_repository() as repository:
        sets = {
            "spark": [repository.artifact(*coordinates) for coordinates in _SPARK],
            "kafka": repository.broker(_KAFKA),
            "registry": [repository.artifact(*_REGISTRY)],
        }
        lock = {name: _make_entries(artifacts) for name, artifacts in sets.items()}
    path.write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")
    return sum(len(entries) for entries in lock.values())


def lock_broker(version: str) -> list[dict[str, Any]]:
    """Resolve and download the libraries of a broker, and return their entries for a lock.

    Args:
        version: version of Kafka.

    Raises:
        RuntimeError: if a library is in no repository.

    Example:
        >>> lock_broker("3.9.2")[0]["artifact"]  # doctest: +SKIP
        'kafka_2.13'
    """
    with _open_repository() as repository:
        return _make_entries(repository.broker(version))


class _Repository:
    """Maven's repositories, with a local one in a directory."""

    def __init__(self, directory: Path) -> None:
        from jgo.maven import MavenContext

        self._context = MavenContext(repo_cache=directory, timeout=60)

    def artifact(self, group: str, name: str, version: str, classifier: str = "", packaging: str = "jar") -> Any:
        project = self._context.project(group, name)
        return project.at_version(version).artifact(classifier=classifier, packaging=packaging)

    def broker(self, version: str) -> list[Any]:
        """Return the libraries of a broker, in class path order."""
        from jgo.maven import Dependency

        broker = self.artifact("org.apache.kafka", "kafka_2.13", version)
        _, nodes = self._context.resolver.get_dependency_list([Dependency(broker, scope="runtime")])
        needed = [
            node.dep.artifact
            for node in nodes
            if node.dep.scope in (None, "compile", "runtime") and not node.dep.optional
        ]
        return [broker, self.artifact(*_KAFKA_LOGGING), *needed]


@contextlib.contextmanager
def _open_repository() -> Iterator[_Repository]:
    with tempfile.TemporaryDirectory(prefix="streamrt-lock-") as directory:
        yield _Repository(Path(directory))


def _make_entries(artifacts: Sequence[Any]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(_make_entry, artifacts))


def _make_entry(artifact: Any) -> dict[str, str | int]:
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
