"""Brokers of other versions of Kafka than the embedded one, for tests: `broker_of("3.9.2")`.

`kafka_versions.json` locks their libraries with SHA-256: the libraries by Maven's coordinates, and which of them a version
needs, in class path order. `python -m tests.kafka_versions` writes it for the versions below.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from streamrt.jvm.jars import Jar, provide_jars
from streamrt.jvm.lock import lock_broker
from streamrt.testing.kafka import EmbeddedKafka

LOCK = Path(__file__).with_suffix(".json")
EMBEDDED = "4.4.0"
"""The version of the embedded broker, with which all other tests run."""
OTHERS = ("3.7.2", "3.9.2", "4.0.2", "4.1.2", "4.3.1")
OLDEST = OTHERS[0]
VERSIONS = (*OTHERS, EMBEDDED)


@functools.cache
def libraries_of(version: str) -> tuple[Path, ...] | None:
    """Return the libraries of a version; None for those of the embedded broker."""
    if version == EMBEDDED:
        return None
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    jars = []
    for coordinates in lock["versions"][version]:
        size, digest = lock["jars"][coordinates]
        group, artifact, number = coordinates.split(":")
        jars.append(Jar(group, artifact, number, size, digest))
    return tuple(provide_jars(jars, progress=False))


def broker_of(version: str, config: Mapping[str, str | int | bool] | None = None) -> EmbeddedKafka:
    """Return a broker of a version, which is not started yet."""
    return EmbeddedKafka(libraries=libraries_of(version), config=config, timeout_s=180)


def main() -> None:
    """Write the lock."""
    jars: dict[str, tuple[int, str]] = {}
    versions: dict[str, list[str]] = {}
    for version in OTHERS:
        for entry in lock_broker(version):
            coordinates = f"{entry['group']}:{entry['artifact']}:{entry['version']}"
            jars[coordinates] = (entry["size"], entry["sha256"])
            versions.setdefault(version, []).append(coordinates)
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(jars.items())]
    sets = [f"  {json.dumps(name)}: {json.dumps(found, indent=4)[:-1]}  ]" for name, found in versions.items()]
    text = '{\n "jars": {\n' + ",\n".join(lines) + '\n },\n "versions": {\n' + ",\n".join(sets) + "\n }\n}\n"
    LOCK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
