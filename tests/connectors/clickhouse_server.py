"""A server of ClickHouse: its engine behind a small front."""

import base64
import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers import Server, free_port, workspace

USER, PASSWORD = "writer", "sesame-of-clickhouse"


class ClickHouseServer(Server):
    """A server that wants a password."""

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement; return its rows."""
        url = f"http://127.0.0.1:{self.port}/?default_format=JSONEachRow"
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(url, statement.encode(), {"Authorization": f"Basic {login}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return [json.loads(line) for line in answer.read().decode(errors="replace").splitlines()]


@contextlib.contextmanager
def clickhouse_server() -> Iterator[ClickHouseServer]:
    """Run a server until the block ends."""
    front = Path(__file__).with_name("clickhouse_front.py")
    with workspace("clickhouse") as directory:
        port = free_port()
        server = ClickHouseServer(
            [sys.executable, str(front), str(port), str(directory), USER, PASSWORD], port, directory
        )
        server.start()
        try:
            yield server
        finally:
            server.kill()
