"""Deserialized records, under the name that Quix Streams has for them."""

from streamrt.models.record import Record as Row

__all__ = ["Row"]
