"""Rules of maintained tables: what an application that maintains a table makes of the requests to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "AGGREGATES",
    "CHANGELOG_SUFFIX",
    "Aggregate",
    "Deletes",
    "Function",
    "ListAgg",
    "Maintenance",
    "Merge",
    "SequenceGroups",
    "Versioned",
    "describe_merge",
    "make_rules_document",
    "name_changelog_topic",
    "name_requests_topic",
    "read_rules_document",
]

Deletes = Literal["allow", "ignore", "refuse"]
"""What a delete does."""

AGGREGATES = (
    "sum",
    "product",
    "min",
    "max",
    "first_value",
    "first_value_ignore_nulls",
    "last_value",
    "last_value_ignore_nulls",
    "listagg",
    "bool_and",
    "bool_or",
    "rbm32",
    "rbm64",
)
"""Functions of `Aggregate`. All but `last_value` pass over nulls. `listagg` joins texts by commas, and `ListAgg` by another
delimiter; `rbm32` and `rbm64` are the union of sets of integers, as Roaring bitmaps."""

CHANGELOG_SUFFIX = "$changelog"
"""What follows the name of a table in that of the log table with its changes."""


@dataclass(frozen=True)
class Versioned:
    """The row with the highest version counts; of equal versions, the last one. Null is the lowest version.

    Attributes:
        column: the column with the version.

    Example:
        >>> Versioned("updated_at").column
        'updated_at'
    """

    column: str


@dataclass(frozen=True)
class SequenceGroups:
    """Groups of columns, each of which counts if its sequence is equal or higher than that of the row.

    Null is the lowest sequence of a row; an upsert whose sequence is null, or that does not give it, leaves the group.
    Columns of no group are set by each upsert that gives them.

    Attributes:
        groups: the columns of each group, by the column with its sequence.

    Example:
        >>> SequenceGroups({"moved_at": ["street", "city"]}).groups["moved_at"]
        ('street', 'city')
    """

    groups: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        if isinstance(self.groups, Mapping):
            copied = {
                sequence: columns if isinstance(columns, str) or not isinstance(columns, Sequence) else tuple(columns)
                for sequence, columns in self.groups.items()
            }
            object.__setattr__(self, "groups", copied)


@dataclass(frozen=True)
class ListAgg:
    """A function of `Aggregate`: joins strings.

    Attributes:
        delimiter: what stands between two of them.

    Example:
        >>> Aggregate(names=ListAgg("; ")).functions
        {'names': ListAgg(delimiter='; ')}
    """

    delimiter: str = ","


Function = str | ListAgg
"""A function of `Aggregate`."""


@dataclass(frozen=True, init=False)
class Aggregate:
    """Values of a column are combined with that of the row, by a function for each column.

    Columns without a function have the last value that is not null.

    Args:
        **functions: a function by column: one of `AGGREGATES`, such as `total="sum"`, or `ListAgg(delimiter)`.

    Example:
        >>> Aggregate(total="sum", names="listagg").functions["total"]
        'sum'
    """

    functions: Mapping[str, Function]

    def __init__(self, **functions: Function) -> None:
        one_form = {column: "listagg" if each == ListAgg() else each for column, each in functions.items()}
        object.__setattr__(self, "functions", one_form)


Merge = Literal["last", "first"] | Versioned | SequenceGroups | Aggregate
"""What an upsert does to the row of its key."""


@dataclass(frozen=True)
class Maintenance:
    """The rules of a maintained table.

    Attributes:
        merge: what an upsert does.
        deletes: what a delete does.
        changelog: whether changes are written to a topic of their own.
        ttl_ms: milliseconds after which a row that was not written is deleted; None for never.
    """

    merge: Merge = "last"
    deletes: Deletes = "allow"
    changelog: bool = False
    ttl_ms: int | None = None


def name_requests_topic(topic: str) -> str:
    """Return the name of the topic with the requests of a maintained table.

    Args:
        topic: the topic of the table.

    Example:
        >>> name_requests_topic("shop.customers")
        'shop.customers.requests'
    """
    return f"{topic}.requests"


def name_changelog_topic(topic: str) -> str:
    """Return the name of the topic with the changes of a maintained table that has `changelog=True`.

    Args:
        topic: the topic of the table.

    Example:
        >>> name_changelog_topic("shop.customers")
        'shop.customers.changelog'
    """
    return f"{topic}.changelog"


def describe_merge(merge: Merge) -> str:
    """Return a rule in a line.

    Example:
        >>> describe_merge(Aggregate(total="sum")), describe_merge("first")
        ('aggregate(total=sum)', 'first')
    """
    if isinstance(merge, Versioned):
        return f"versioned({merge.column})"
    if isinstance(merge, SequenceGroups):
        groups = (f"{sequence}: {', '.join(columns)}" for sequence, columns in merge.groups.items())
        return f"sequence_groups({'; '.join(groups)})"
    if isinstance(merge, Aggregate):
        functions = (f"{column}={_describe_function(each)}" for column, each in merge.functions.items())
        return f"aggregate({', '.join(functions)})"
    return merge


def _describe_function(function: Function) -> str:
    if isinstance(function, str):
        return function
    quoted = function.delimiter.replace('"', '""')
    return f'listagg("{quoted}")'


def make_rules_document(rules: Maintenance) -> dict[str, Any]:
    """Return rules as a document of JSON, which the catalogue keeps.

    Example:
        >>> make_rules_document(Maintenance(Versioned("at"), "ignore"))
        {'merge': {'versioned': 'at'}, 'deletes': 'ignore', 'changelog': False, 'ttl_ms': None}
    """
    merge: Any = rules.merge
    if isinstance(merge, Versioned):
        merge = {"versioned": merge.column}
    elif isinstance(merge, SequenceGroups):
        merge = {"sequence_groups": {sequence: list(columns) for sequence, columns in merge.groups.items()}}
    elif isinstance(merge, Aggregate):
        merge = {
            "aggregate": {
                column: each if isinstance(each, str) else {"listagg": each.delimiter}
                for column, each in merge.functions.items()
            }
        }
    return {"merge": merge, "deletes": rules.deletes, "changelog": rules.changelog, "ttl_ms": rules.ttl_ms}


def read_rules_document(document: Mapping[str, Any]) -> Maintenance:
    """Return the rules of a document that `make_rules_document` has made.

    Raises:
        TypeError, KeyError, ValueError, AttributeError: if it is not such a document.
    """
    deletes, changelog, ttl_ms = document["deletes"], document["changelog"], document["ttl_ms"]
    if deletes not in ("allow", "ignore", "refuse") or type(changelog) is not bool:
        raise ValueError
    if ttl_ms is not None and (type(ttl_ms) is not int or ttl_ms < 1):
        raise ValueError
    return Maintenance(_read_merge(document["merge"]), deletes, changelog, ttl_ms)


def _read_merge(document: Any) -> Merge:
    if document in ("last", "first"):
        first_or_last: Literal["last", "first"] = document
        return first_or_last
    [(word, value)] = document.items()
    if word == "versioned" and isinstance(value, str):
        return Versioned(value)
    if word == "sequence_groups" and all(isinstance(columns, list) for columns in value.values()):
        return SequenceGroups({sequence: [str(column) for column in columns] for sequence, columns in value.items()})
    if word == "aggregate":
        return Aggregate(**{column: _read_function(each) for column, each in value.items()})
    raise ValueError


def _read_function(document: Any) -> Function:
    if isinstance(document, str) and document in AGGREGATES:
        return document
    [(word, delimiter)] = document.items()
    if word == "listagg" and isinstance(delimiter, str):
        return ListAgg(delimiter)
    raise ValueError
