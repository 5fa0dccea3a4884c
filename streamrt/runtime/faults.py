"""Places where a crash is worth testing. Does nothing unless the environment asks for a fault.

`STREAMRT_FAULT=<point>:<kind>[:<number>]` provokes one fault when the point is reached for the given time (1 by default)
in this process: `exit` ends the process at once, as kill -9 would; `raise` raises; `stop` suspends the process
(SIGSTOP), so that a rival can take over and the process goes on as a zombie later.

The fault happens once: a file named by `STREAMRT_FAULT_DONE`, if given, is created first, and its existence disarms the
fault in all processes.
"""

import os
import signal
from pathlib import Path

POINTS = (
    "opened",
    "fenced",
    "checked",
    "restored",
    "processed",
    "sinks-flushed",
    "changelog-produced",
    "outputs-flushed",
    "committed",
    "stored",
)
"""In the order in which a commit passes them; see `streamrt.runtime.commit`."""


class InjectedFaultError(RuntimeError):
    """Raised where `STREAMRT_FAULT` asks for it."""


class _Fault:
    def __init__(self, text: str) -> None:
        self.point, self.kind, *number = text.split(":")
        if self.point not in POINTS or self.kind not in ("exit", "raise", "stop"):
            raise ValueError(f"STREAMRT_FAULT={text!r}: use <point>:<exit|raise|stop>[:<number>], points: {POINTS}")
        self.left = int(number[0]) if number else 1


_armed = _Fault(os.environ["STREAMRT_FAULT"]) if "STREAMRT_FAULT" in os.environ else None


def reached(point: str) -> None:
    """Tell that a point is reached; provokes the fault that the environment asks for."""
    if _armed is not None and _armed.point == point:
        _provoke(_armed)


def _provoke(fault: _Fault) -> None:
    fault.left -= 1
    if fault.left != 0:
        return
    done = os.environ.get("STREAMRT_FAULT_DONE")
    if done is not None:
        try:
            Path(done).touch(exist_ok=False)
        except FileExistsError:
            return
    if fault.kind == "exit":
        os._exit(137)
    if fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    raise InjectedFaultError(f"a fault was asked for at {fault.point!r}")
