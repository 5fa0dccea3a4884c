"""Setup of all tests of connectors."""

import functools
import threading
import time
import warnings
from collections.abc import Iterator

import botocore.session
import moto.backends
import pytest
from botocore.loaders import create_loader

# Each session would find and parse the models of AWS's services again, which is most of what a client costs.
botocore.session.create_loader = functools.cache(create_loader)
# Moto's server would look through its directories at each request.
_MODULES = list(moto.backends.list_of_moto_modules())
moto.backends.list_of_moto_modules = lambda: _MODULES

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
