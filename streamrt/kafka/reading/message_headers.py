"""Reads headers of messages, whose names may not be UTF-8."""

import ctypes
from collections.abc import Callable
from operator import methodcaller

from streamrt.records import ConsumedMessage, Headers

__all__ = ["read_headers"]

_NO_TEXT = "\ufffd"
"""Replacement of Java's clients for a byte that is not UTF-8."""
# Called from C, a method that returns a result and sets an error is noticed. Bytecode specializes frequent calls, and then
# leaves the error to whatever is called next.
_call_headers: Callable[[ConsumedMessage], Headers | None] = methodcaller("headers")
# Returns 0 for a missing item, where Python itself would follow the null pointer.
_item_of = ctypes.pythonapi.PyTuple_GetItem
_item_of.argtypes, _item_of.restype = (ctypes.py_object, ctypes.c_ssize_t), ctypes.c_void_p


def read_headers(message: ConsumedMessage) -> Headers | None:
    """Return the headers of a message, even if names are not UTF-8.

    For such headers, confluent-kafka 2.16 creates tuples without their first items, and raises SystemError on the first
    call. Python must not access a missing item, because that ends the process.

    Args:
        message: a message of confluent-kafka, or an object with its methods.
    """
    try:
        found = _call_headers(message)
    except SystemError:
        found = _call_headers(message)
    return found and [
        header if not isinstance(header, tuple) or _item_of(header, 0) else (_NO_TEXT, *header[1:]) for header in found
    ]
