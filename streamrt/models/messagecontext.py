"""Where the record that is being processed came from."""

from streamrt.models.record import MessageContext

__all__ = ["MessageContext"]
