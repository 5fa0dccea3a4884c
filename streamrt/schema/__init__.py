"""Schemas: names and types of columns, checked rows, and how schemas may change."""

from streamrt.schema.columns import Column, RowCheck
from streamrt.schema.evolution import evolution_faults
from streamrt.schema.schema import Schema

__all__ = ["Column", "RowCheck", "Schema", "evolution_faults"]
