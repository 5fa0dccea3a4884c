"""The memory of processes, as Linux counts it."""

import os
import socket
from pathlib import Path

__all__ = ["own_memory", "resident_memory"]


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

    Example:
        >>> [name.rpartition(":")[2] == str(os.getpid()) for name in own_memory()] in ([True], [])
        True
    """
    resident = resident_memory()
    return {} if resident is None else {f"{socket.gethostname()}:{os.getpid()}": resident}
