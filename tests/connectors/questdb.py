"""QuestDB for tests: it takes writes as InfluxDB does (/api/v2/write), and is read by SQL."""

import contextlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamrt.jvm.jars import Jar, provide_jars
from streamrt.jvm.java import find_java
from tests.servers import Server, free_port, workspace
from tests.support import wait_until

_JAR = Jar(
    "org.questdb",
    "questdb",
    "9.3.4",
    size=29_831_811,
    sha256="939bc53ab22f93dbaa6545143a6e7c536d4904c07b7f2d381e8eef10436be062",
)


class QuestDB(Server):
    """A server.

    Args:
        directory: its files.
    """

    def __init__(self, directory: Path) -> None:
        port = free_port()
        settings = {
            "QDB_HTTP_BIND_TO": f"127.0.0.1:{port}",
            "QDB_HTTP_MIN_ENABLED": "false",
            "QDB_LINE_TCP_ENABLED": "false",
            "QDB_PG_ENABLED": "false",
            "QDB_TELEMETRY_ENABLED": "false",
            "QDB_SHARED_WORKER_COUNT": "1",
            "QDB_HTTP_WORKER_COUNT": "1",
        }
        (jar,) = provide_jars([_JAR])
        command = [
            str(find_java().executable),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            str(jar),
        ]
        command += ["io.questdb.ServerMain", "-d", str(directory), "-n"]
        super().__init__(command, port, directory, env={**os.environ, **settings})

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query without their nulls; none if there is no such table."""
        try:
            with urllib.request.urlopen(f"{self.url}/exec?{urllib.parse.urlencode({'query': sql})}") as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            if "does not exist" in error.read().decode():
                return []
            raise
        names = [column["name"] for column in answer.get("columns", ())]
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in answer.get("dataset", ())
        ]

    def settled(self, table: str) -> None:
        """Wait until what was written to a table can be read."""

        def applied() -> bool:
            found = self.rows(f"SELECT * FROM wal_tables() WHERE name = '{table}'")
            return all(row["writerTxn"] == row["sequencerTxn"] for row in found)

        wait_until(applied, what="QuestDB")


@contextlib.contextmanager
def questdb() -> Iterator[QuestDB]:
    """A running server."""
    with workspace("questdb") as directory:
        server = QuestDB(directory)
        server.start()
        try:
            yield server
        finally:
            server.kill()
