"""Places where a crash is worth testing. Does nothing unless the environment asks for faults.

`STREAMRT_FAULT` names a file. While that file exists, it holds one fault, `<point>:<kind>`, which the first process to
reach the point provokes; that process deletes the file first, so each fault happens once. Kinds:

- `exit`: the process ends at once, as kill -9 would;
- `raise`: `InjectedFaultError` is raised, which nobody expects;
- `stop`: the process is suspended (SIGSTOP), so that a rival can take over; when it is continued, it is a zombie.

Whoever tests writes the next fault whenever it suits: with `Path.replace`, so that nobody reads half of it.
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

KINDS = ("exit", "raise", "stop")
VARIABLE = "STREAMRT_FAULT"


class InjectedFaultError(RuntimeError):
    """Raised where `STREAMRT_FAULT` asks for it."""


def reached(point: str) -> None:
    """Tell that a point is reached; provokes the fault that the environment asks for.

    Raises:
        InjectedFaultError: if that is asked for.
        ValueError: if the file holds no fault.
    """
    file = os.environ.get(VARIABLE)
    if file is not None:
        _look(Path(file), point)


def _look(file: Path, point: str) -> None:
    try:
        text = file.read_text().strip()
    except FileNotFoundError:
        return
    wanted, _, kind = text.partition(":")
    if wanted not in POINTS or kind not in KINDS:
        raise ValueError(f"{VARIABLE}={file} holds {text!r}: use <point>:<kind>, points: {POINTS}, kinds: {KINDS}")
    if wanted != point:
        return
    try:
        file.unlink()
    except FileNotFoundError:
        # Another process was quicker.
        return
    if kind == "exit":
        os._exit(137)
    if kind == "raise":
        raise InjectedFaultError(f"a fault was asked for at {point!r}")
    os.kill(os.getpid(), signal.SIGSTOP)
