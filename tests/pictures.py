"""The picture of the front page: `python -m tests.pictures` runs the program there, and takes a picture of its dashboard.

It takes a minute, and needs the browser that `make servers` installs. The picture shows a run, so each differs; `SOURCES` has
a digest of the dashboard that it was taken of.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize, expect

from streamrt import Topic, TopicConfig, control
from streamrt.errors import ControlUnavailableError
from streamrt.kafka import Producer, TopicAdmin
from streamrt.testing import EmbeddedKafka
from tests.browsing import chromium, opened
from tests.servers import free_port
from tests.support import wait_until

__all__ = ["DASHBOARD", "SOURCES", "digest_dashboard"]

DASHBOARD = Path(__file__).parents[1] / "docs" / "pictures" / "dashboard.png"
SOURCES = DASHBOARD.with_suffix(".sha256")
_README = Path(__file__).parents[1] / "README.md"
_PATIENCE_MS = 120_000
_SECONDS = 46
_AIRPORTS = ("LAX", "SFO", "ORD", "BOS", "ATL", "MIA", "SEA", "DEN")


def digest_dashboard() -> str:
    """Return a digest of the files that the dashboard consists of."""
    files = sorted((Path(control.__file__).parent / "page").iterdir())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def take_picture() -> None:
    """Run the program of the front page with two partitions and some load, and save what its dashboard shows."""
    program = _README.read_text(encoding="utf-8").partition("```python run\n")[2].partition("```")[0]
    port = free_port()
    with tempfile.TemporaryDirectory() as directory, EmbeddedKafka() as kafka:
        (Path(directory) / "late.py").write_text(program)
        topics = [Topic(name, TopicConfig(2, 1)) for name in ("flights", "late-flights")]
        TopicAdmin(kafka.bootstrap_servers).create_topics(topics)
        variables = {
            "STREAMRT_BROKER_ADDRESS": kafka.bootstrap_servers,
            "STREAMRT_CONTROL": str(port),
            "STREAMRT_PROCESSING_MODE": "resident",
            "STREAMRT_COMMIT_INTERVAL": "1",
        }
        run = subprocess.Popen([sys.executable, "late.py"], cwd=directory, env={**os.environ, **variables})
        try:
            _show(port, kafka.bootstrap_servers)
        finally:
            run.terminate()
            run.wait(60)


def _show(port: int, broker_address: str) -> None:
    chosen = random.Random(7)
    with Producer(broker_address) as producer, chromium() as browser:
        address = f"http://127.0.0.1:{port}"
        window = ViewportSize(width=1_200, height=760)
        client = control.Client(address)
        wait_until(lambda: _is_ready(client), what="the program to work")
        with opened(browser, address, viewport=window) as page:
            for _ in range(_SECONDS):
                for _ in range(chosen.randrange(2_000, 3_000)):
                    airport, delay = chosen.choice(_AIRPORTS), chosen.randrange(0, 120)
                    flight = json.dumps({"dest": airport, "dep_delay": delay})
                    producer.produce("flights", flight.encode(), airport.encode())
                producer.flush()
                page.wait_for_timeout(1_000)
            expect(page.locator("#state")).to_have_text("running", timeout=_PATIENCE_MS)
            page.screenshot(path=DASHBOARD)
    SOURCES.write_text(digest_dashboard() + "\n")


def _is_ready(client: control.Client) -> bool:
    try:
        return client.ready()[0]
    except ControlUnavailableError:
        return False


if __name__ == "__main__":
    take_picture()
