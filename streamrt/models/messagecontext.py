"""Origin of the record that is being processed, under the name of Quix Streams."""

from streamrt.records.record import MessageContext

__all__ = ["MessageContext"]
