"""Runs a command with a broker that all of its tests share: `python -m tests.shared_broker make ...`.

A broker costs seconds of processor time to start and to warm up, and some even while nothing happens. Tests that kill,
restart or configure a broker start one themselves.

Temporary files are in memory, if there is room: stores, brokers and databases wait for the disk at each commit, and several
lanes at once wait for one another.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from streamrt.testing import EmbeddedKafka

VARIABLE = "STREAMRT_TEST_BROKER"
MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30
"""Several times what the tests leave there until they end."""


def run(command: Sequence[str], address: str) -> int:
    """Run a command until it ends, and pass signals on to it."""
    process = subprocess.Popen(command, env={**os.environ, VARIABLE: address})

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    return process.wait()


@contextlib.contextmanager
def temporary_files_in_memory() -> Iterator[None]:
    """Let this process and those that it starts have their temporary files in memory, if there is room."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="t", dir=MEMORY, ignore_cleanup_errors=True) as directory:
        # Servers run as other users, and have temporary files as well.
        Path(directory).chmod(0o1777)
        os.environ["TMPDIR"] = tempfile.tempdir = directory
        yield


def main() -> int:
    """Run the command line; the broker is the one that the environment names, if it names one."""
    address = os.environ.get(VARIABLE)
    with temporary_files_in_memory():
        if address:
            return run(sys.argv[1:], address)
        # On a busy machine heartbeats are late. A broker that is fenced has no leaders for a while.
        with EmbeddedKafka(config={"broker.session.timeout.ms": 60_000}) as broker:
            return run(sys.argv[1:], broker.bootstrap_servers)


if __name__ == "__main__":
    sys.exit(main())
