"""Exceptions under the name that Quix Streams has for their base; `streamrt.errors` has all of them."""

from streamrt.errors import StreamRTError as QuixException

__all__ = ["QuixException"]
