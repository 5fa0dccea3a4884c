"""Deserialized records, under the name of Quix Streams."""

from streamrt.records.record import Record as Row

__all__ = ["Row"]
