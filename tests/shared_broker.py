"""Runs a command beside a broker that all of its tests share: `python -m tests.shared_broker make ...`.

A broker costs seconds of processor time to start and to warm up, and some even while nothing happens. Tests that kill,
restart or configure a broker start one themselves.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from streamrt.testing import EmbeddedKafka

VARIABLE = "STREAMRT_TEST_BROKER"


def run(command: Sequence[str], address: str) -> int:
    """Run a command until it ends, and pass signals on to it."""
    process = subprocess.Popen(command, env={**os.environ, VARIABLE: address})

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    return process.wait()


def main() -> int:
    """Run the command line; the broker is the one that the environment names, if it names one."""
    address = os.environ.get(VARIABLE)
    if address:
        return run(sys.argv[1:], address)
    with EmbeddedKafka() as broker:
        return run(sys.argv[1:], broker.bootstrap_servers)


if __name__ == "__main__":
    sys.exit(main())
