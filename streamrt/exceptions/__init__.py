"""The base class of all exceptions, under its name in Quix Streams; `streamrt.errors` has all exceptions."""

from streamrt.errors import StreamRTError as QuixException

__all__ = ["QuixException"]
