"""kill -9 of a process that writes, at any time: the store opens, and holds exactly what its stamp says."""

import os
import random
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamrt.errors import StoreLockedError
from streamrt.state import StorePartition
from tests.support import LONG
from tests.unit.state_history import apply, changes_at, offset_of, store_in

ROOT = Path(__file__).parents[2]
KILLS = 25 if LONG else 6
_BUFFERS = 60
"""Offsets after which a buffer has been written to disk."""

pytestmark = pytest.mark.slow


class Writer:
    """A process that writes the history; see `state_history.main`."""

    def __init__(self, folder: Path, session: int, changelog: bool) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.unit.state_history",
            str(folder),
            str(session),
            "changelog" if changelog else "none",
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        self.told = 0

    def read(self, seconds: float, offset: int) -> None:
        """Read what it tells, for so long, but until it has written past an offset."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while self.told <= offset or time.monotonic() < deadline:
                assert self.process.poll() is None
                if selector.select(0.01):
                    self._take(os.read(self.process.stdout.fileno(), 65536))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        out, _ = self.process.communicate()
        self._take(out)

    def _take(self, data: bytes) -> None:
        lines = data.split(b"\n")[:-1]
        if lines:
            self.told = int(lines[-1])


@pytest.mark.parametrize("changelog", [True, False], ids=["changelog", "no changelog"])
@pytest.mark.parametrize("session", [0, 3], ids=["long sessions", "short sessions"])
def test_kills(tmp_path: Path, session: int, changelog: bool) -> None:
    rng = random.Random(session)
    model: dict[bytes, bytes] = {}
    at = 0
    for kill in range(KILLS):
        writer = Writer(tmp_path, session, changelog)
        try:
            # Now and then for two sessions at least, or until buffers were written: on a slow machine none ever would be.
            writer.read(rng.random() * 0.2, at + (2 * session or _BUFFERS) if kill % 3 == 0 else at)
        finally:
            writer.kill()
        partition = open_after(tmp_path)
        now = offset_of(partition)
        # With a changelog, what lay in the buffer is replayed from there; without, nothing is lost.
        assert at <= now <= writer.told + 1, kill
        assert changelog or now >= writer.told, kill
        for offset in range(at, now):
            apply(model, changes_at(offset))
        at = now
        assert dict(partition.scan(b"", None)) == model, kill
        partition.close()
    assert at > KILLS


def open_after(folder: Path) -> StorePartition:
    deadline = time.monotonic() + 60
    while True:
        try:
            return store_in(folder).open(0)
        except StoreLockedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
