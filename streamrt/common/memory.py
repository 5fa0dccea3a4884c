"""The memory of processes, as Linux counts it."""

import os
import socket
import time
from pathlib import Path

__all__ = ["own_memory", "resident_memory"]

_FRESH_S = 0.1
_measured: tuple[int, float, dict[str, int]] | None = None
"""Process id, time and result of the last measurement of `own_memory`."""


def resident_memory(process: int | None = None) -> int | None:
    """Return the resident memory of a process in bytes; None if the system does not tell, as on others than Linux.

    Args:
        process: its id; None for this process.

    Example:
        >>> (resident_memory() or 0) % 1024
        0
        >>> resident_memory(1 << 30) is None
        True
    """
    try:
        text = Path("/proc", "self" if process is None else str(process), "statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def own_memory() -> dict[str, int]:
    """Return the resident memory of this process in bytes, by a name that is unique among several machines.

    It is measured ten times a second at most: each measurement costs as much as a small commit.

    Example:
        >>> [name.rpartition(":")[2] == str(os.getpid()) for name in own_memory()] in ([True], [])
        True
    """
    global _measured
    process, now = os.getpid(), time.monotonic()
    if _measured is None or _measured[0] != process or now - _measured[1] >= _FRESH_S:
        resident = resident_memory()
        _measured = process, now, {} if resident is None else {f"{socket.gethostname()}:{process}": resident}
    return dict(_measured[2])
