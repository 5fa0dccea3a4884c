"""What all tests of connectors have."""

import threading
import time
import warnings
from collections.abc import Iterator

import pytest

_ABANDONED = "streamrt-request"
_LONGEST_S = 10.0


@pytest.fixture(autouse=True)
def _requests_end() -> Iterator[None]:
    """Wait for requests that a source has abandoned: their sockets must not warn in the middle of another test."""
    yield
    if not any(thread.name == _ABANDONED for thread in threading.enumerate()):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        deadline = time.monotonic() + _LONGEST_S
        for thread in threading.enumerate():
            if thread.name == _ABANDONED:
                thread.join(max(0.0, deadline - time.monotonic()))
