"""The base of all exceptions, under the name that Quix Streams has for it."""

from streamrt.errors import StreamRTError as QuixException

__all__ = ["QuixException"]
