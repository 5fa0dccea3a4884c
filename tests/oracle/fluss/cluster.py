"""A Fluss cluster on this machine: ZooKeeper, a coordinator and a tablet server, some 350 MB of memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from streamrt.jvm.jars import Jar, provide_jars
from streamrt.jvm.java import find_java
from tests.servers import Server, free_port, workspace

__all__ = ["cluster"]

# Fluss's jar has ZooKeeper in it.
_JARS = (
    Jar(
        "org.apache.fluss",
        "fluss-server",
        "0.9.1-incubating",
        85810597,
        "fdda82aa7cc936086c420090920836066d48d741cf7e0aadde3c0e6f0832a169",
    ),
    Jar(
        "org.slf4j",
        "slf4j-api",
        "1.7.36",
        41125,
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0",
    ),
    Jar(
        "org.slf4j",
        "slf4j-simple",
        "1.7.36",
        15333,
        "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f",
    ),
)
_ZOOKEEPER = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain"
_COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET_SERVER = "org.apache.fluss.server.tablet.TabletServer"
# Arrow reads and writes memory through java.nio.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED")


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """Run a cluster, and yield its address."""
    path = os.pathsep.join(map(str, provide_jars(_JARS)))
    java = [str(find_java().executable), *_OPTIONS, "-cp", path]
    memory = ["-Xmx256m", "-XX:MaxDirectMemorySize=256m"]
    with workspace("fluss") as root, contextlib.ExitStack() as servers:

        def run(name: str, arguments: list[str], port: int) -> None:
            (root / name).mkdir()
            server = Server([*java, *arguments], port, root / name)
            servers.callback(server.stop)
            server.start()

        zookeeper, coordinator, tablet_server = free_port(), free_port(), free_port()
        run("zookeeper", ["-Xmx128m", _ZOOKEEPER, str(_zookeeper_settings(root, zookeeper))], zookeeper)
        settings = _settings(root, zookeeper)
        for name, main, port, more in (
            ("coordinator", _COORDINATOR, coordinator, []),
            ("tablet-server", _TABLET_SERVER, tablet_server, ["-Dtablet-server.id=0"]),
        ):
            listener = f"-Dbind.listeners=FLUSS://127.0.0.1:{port}"
            run(name, [*memory, main, "--configDir", str(settings), listener, *more], port)
        yield f"127.0.0.1:{coordinator}"


def _zookeeper_settings(root: Path, port: int) -> Path:
    path = root / "zookeeper.cfg"
    lines = (
        # A busy machine does not end sessions: a tablet server without one loses its tables.
        "tickTime=10000",
        f"dataDir={root / 'zookeeper-data'}",
        f"clientPort={port}",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _settings(root: Path, zookeeper: int) -> Path:
    directory = root / "settings"
    directory.mkdir()
    lines = (
        f"zookeeper.address: 127.0.0.1:{zookeeper}",
        "zookeeper.client.session-timeout: 180s",
        f"remote.data.dir: {root / 'remote'}",
        f"data.dir: {root / 'data'}",
    )
    (directory / "server.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory
