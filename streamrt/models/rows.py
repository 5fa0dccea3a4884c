"""Deserialized records, under the name of Quix Streams."""

from streamrt.models.record import Record as Row

__all__ = ["Row"]
