"""`TypedExpression`: a column expression with the type and the NULL of SQL."""

import abc
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from streamrt.operators.expression import Expression

__all__ = ["Scope", "TypedExpression"]


class TypedExpression(Expression):
    """A column expression whose type is known. NULL is None.

    Its code reads columns of `value`, a dict, and binds no name but temporary ones. Nodes are frozen, comparable and
    picklable: two equal expressions give equal values for the same row.
    """

    @property
    @abc.abstractmethod
    def dtype(self) -> pa.DataType:
        """The type of values, one of those that columns may have; `pa.null()` for the literal NULL."""

    @property
    @abc.abstractmethod
    def nullable(self) -> bool:
        """Whether a value may be NULL."""


class Scope(Protocol):
    """What the names in an expression mean."""

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        """Return what a name stands for: a column of a relation, or a field of a struct in one.

        Raises:
            SQLAnalysisError: if it stands for nothing, or for several columns.
        """
