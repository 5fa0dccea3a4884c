"""Fault injection for crash tests. Does nothing unless the environment requests faults.

`STREAMRT_FAULT` names a file. While the file exists, it holds one fault, `<point>:<kind>`. The first process that
reaches the point deletes the file and then triggers the fault, so each fault happens once. Kinds:

- `exit`: the process ends at once, as with kill -9;
- `raise`: the unexpected `InjectedFaultError` is raised;
- `stop`: the process is suspended (SIGSTOP), so that another one can take over; after it is continued, it is a zombie.

A test can write the next fault at any time; it must use `Path.replace`, which makes the write atomic.
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
"""The fault points, in the order of a commit; see `streamrt.runtime.tasks.commit`."""

KINDS = ("exit", "raise", "stop")
VARIABLE = "STREAMRT_FAULT"


class InjectedFaultError(RuntimeError):
    """The error that `STREAMRT_FAULT` requests with `raise`."""


def reached(point: str) -> None:
    """Trigger the fault that the environment requests for this point, if any.

    Raises:
        InjectedFaultError: if the fault has the kind `raise`.
        ValueError: if the file holds no fault.
    """
    file = os.environ.get(VARIABLE)
    if file is not None:
        _check_for_fault(Path(file), point)


def _check_for_fault(file: Path, point: str) -> None:
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
        # Another process triggers this fault.
        return
    if kind == "exit":
        os._exit(137)
    if kind == "raise":
        raise InjectedFaultError(f"injected fault at {point!r}")
    os.kill(os.getpid(), signal.SIGSTOP)
