"""An application as in a container: without capabilities, on a root file system that cannot be written."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from streamrt.jvm.jars import fetch_jars
from tests.servers import free_port, workspace
from tests.support import Kafka, unique, wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = """
from streamrt import Application

app = Application(auto_offset_reset="earliest", commit_interval=0.5)


def number(value, state):
    state.set("count", state.get("count", 0) + 1)
    return [value, state.get("count")]


app.dataframe(app.topic("{source}")).apply(number, stateful=True).to_topic(app.topic("{out}"))
app.run()
"""
# Everything is read-only but what the manifests mount, here with the volume at /srv and the program at /media.
PREPARE = """
set -e
mount --make-rprivate /
mount --bind "$1/volume" /srv
mount --bind "$1/program" /media
mount --options remount,bind,ro /media
mount --types tmpfs --options size=256m,mode=1777 tmpfs /dev/shm
mount --types tmpfs --options size=64m,mode=1777 tmpfs /tmp
mount --options remount,bind,ro /
cd /media
shift
exec "$@"
"""
# The user stays the same, because others may not be allowed to read this Python; without capabilities, root is like them.
UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


def can_be_tried() -> bool:
    """Tell whether this process may mount file systems."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    mounts = ["unshare", "--mount", "mount", "--make-rprivate", "/"]
    return subprocess.run(mounts, capture_output=True, check=False).returncode == 0


pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.programs),
    pytest.mark.skipif(not can_be_tried(), reason="needs root, and the right to mount file systems"),
    pytest.mark.skipif(
        any(
            Path(place).resolve().is_relative_to(hidden)
            for place in (sys.prefix, ROOT)
            for hidden in ("/tmp", "/srv", "/media")
        ),
        reason="what is mounted would hide this environment, which lies there",
    ),
]


@pytest.fixture
def directory() -> Iterator[Path]:
    with workspace("read-only") as made:
        (made / "program").mkdir()
        (made / "volume").mkdir()
        fetch_jars("spark", progress=False, directory=made / "program" / "jars")
        yield made


def test_a_read_only_root(kafka: Kafka, directory: Path) -> None:
    source, out, port = kafka.topic("in"), kafka.topic("out"), free_port()
    (directory / "program" / "main.py").write_text(PROGRAM.format(source=source, out=out))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/srv",
        "STREAMRT_BROKER_ADDRESS": kafka.address,
        "STREAMRT_CONSUMER_GROUP": unique("read-only"),
        # Micro-batches write more files: Spark's checkpoints.
        "STREAMRT_PROCESSING_MODE": "micro-batch",
        "STREAMRT_SPARK_MASTER": "local[1]",
        "STREAMRT_JARS_DIR": "/media/jars",
        "STREAMRT_STATE_DIR": "/srv/state",
        "STREAMRT_CACHE_DIR": "/srv/cache",
        "STREAMRT_CONTROL": f"127.0.0.1:{port}",
    }
    # Writing fails everywhere but in the three places.
    probe = (
        "import os; print(*(path for path in ('/', '/etc', '/media', '/var/tmp', '/srv') if os.access(path, os.W_OK)))"
    )
    command = ["unshare", "--mount", "sh", "-c", PREPARE, "sh", str(directory), *UNPRIVILEGED, sys.executable]
    probed = subprocess.run([*command, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    assert probed.stdout.split() == ["/srv"]
    kafka.produce(source, list(range(20)))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, "/media/main.py"], env=environment, stdout=log, stderr=log)
    try:

        def done() -> bool:
            assert process.poll() is None, (directory / "log").read_text()
            return kafka.end(out) == 20

        wait_until(done, what="records")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            wait_until(lambda: http.get("/ready").status_code == 200, what="the application to be ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (directory / "log").read_text()
    finally:
        process.kill()
        process.wait()
    written = (directory / "log").read_text()
    assert "Read-only file system" not in written
    assert "Permission denied" not in written
    assert {path.name for path in (directory / "volume").iterdir()} <= {"state", "cache"}
