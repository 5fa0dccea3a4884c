"""Objects in forked processes, which have neither the threads of their parent nor connections of their own.

To free a Kafka client or an open store there hangs or aborts the process. To close a connection there ends the parent's.
"""

import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from streamrt.errors import InvalidOperationError

__all__ = ["ForkGuard", "close_with", "in_this_process", "never_free_in_forks"]

P = ParamSpec("P")
T = TypeVar("T")

_unfreed: WeakSet[Any] = WeakSet()
_libc = ctypes.CDLL(None)


class ForkGuard:
    """Knows in which process an object was made.

    Example:
        >>> ForkGuard().is_own
        True
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this is the process."""
        return os.getpid() == self._pid

    def require_own(self, what: str) -> None:
        """Check that this is the process.

        Args:
            what: the object, for the error.

        Raises:
            InvalidOperationError: if it is another one.
        """
        if not self.is_own:
            raise InvalidOperationError(
                f"{what} was made in process {self._pid}, and this one ({os.getpid()}) was forked from it, without its "
                "connections: make a new one here"
            )


def in_this_process(call: Callable[P, object]) -> Callable[P, None]:
    """Return a function that calls another one in this process, and does nothing in those that are forked from it.

    Args:
        call: what is done at the end of an object, or of Python, such as by `weakref.finalize`.

    Example:
        >>> in_this_process(print)("closed")
        closed
    """
    guard = ForkGuard()

    @functools.wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if guard.is_own:
            call(*args, **kwargs)

    return run


def close_with(owner: object, client: Any) -> Callable[[], object]:
    """Close a client when its owner goes, since clients that are left open complain.

    Args:
        owner: the object that uses it.
        client: an object with a method `close`, whose errors do not matter.

    Returns:
        A function that closes the client now; further calls do nothing.

    Example:
        >>> import io
        >>> owner, client = ForkGuard(), io.BytesIO()
        >>> close = close_with(owner, client)
        >>> del owner
        >>> client.closed
        True
    """
    return weakref.finalize(owner, in_this_process(_close_client), client)


def _close_client(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close()


def never_free_in_forks(thing: T) -> T:
    """Return an object after noting that forked processes must never free it, not even when they end.

    Args:
        thing: the object; it is hashable, and can have weak references.

    Example:
        >>> sorted(never_free_in_forks(frozenset({3, 1})))
        [1, 3]
    """
    _unfreed.add(thing)
    return thing


def _keep_inherited() -> None:
    """Take a reference to each object that is never given up: Python frees what variables hold when it ends."""
    inherited = list(_unfreed)
    for each in inherited:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    if inherited:
        _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Have this process end before the exit handlers that libraries registered in its parent.

    That of OpenSSL, a part of librdkafka, waits for locks, and a thread of the parent may have held one during the fork:
    each thread of a client asks OpenSSL for random numbers when it starts.
    """
    # Only glibc gives exit handlers the exit code.
    if hasattr(_libc, "on_exit"):
        # The last one is called first. It writes what C code has printed.
        _libc.on_exit(_libc._exit, None)
        _libc.on_exit(_libc.fcloseall, None)


os.register_at_fork(after_in_child=_keep_inherited)
