"""InfluxDB 1 for tests."""

import base64
import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers import Server, free_port, program, workspace

USER, PASSWORD = "shop", "open-sesame"


class Influx(Server):
    """A server with one administrator.

    Args:
        directory: its files.
    """

    def __init__(self, directory: Path) -> None:
        port = free_port()
        configuration = f"""
            reporting-disabled = true
            bind-address = "127.0.0.1:{free_port()}"
            [meta]
              dir = "{directory}/meta"
            [data]
              dir = "{directory}/data"
              wal-dir = "{directory}/wal"
              query-log-enabled = false
            [http]
              bind-address = "127.0.0.1:{port}"
              auth-enabled = true
              log-enabled = false
            [monitor]
              store-enabled = false
        """
        (directory / "influxdb.conf").write_text(configuration)
        super().__init__([program("influxd"), "-config", str(directory / "influxdb.conf")], port, directory)

    def query(self, statement: str, database: str = "", user: str = USER) -> list[dict[str, Any]]:
        """Run a statement; return the points of all series, with their tags and without nulls."""
        parameters = {"q": statement, "db": database, "epoch": "ns"}
        headers = {"Authorization": "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()} if user else {}
        url, data = f"http://127.0.0.1:{self.port}/query", urllib.parse.urlencode(parameters).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
            answer = json.load(response)
        return [
            {name: value for name, value in zip(series["columns"], row, strict=True) if value is not None}
            for result in answer["results"]
            for series in result.get("series", ())
            for row in series.get("values", ())
        ]


@contextlib.contextmanager
def influxd() -> Iterator[Influx]:
    """A running server, with the database `shop`."""
    with workspace("influxd") as directory:
        server = Influx(directory)
        server.start()
        try:
            server.query(f"CREATE USER {USER} WITH PASSWORD '{PASSWORD}' WITH ALL PRIVILEGES", user="")
            server.query("CREATE DATABASE shop")
            yield server
        finally:
            server.stop()
