"""The rules of maintained tables, as functions of a row and a request that return the new row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamrt.errors import InvalidOperationError, SchemaMismatchError
from streamrt.relations.column_aggregates import DEFAULT_FUNCTION, Combine, is_higher, make_aggregate
from streamrt.tables.descriptions.maintenance import Aggregate, Maintenance, SequenceGroups, Versioned

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.schema import Schema

__all__ = ["MergeRow", "RowMerger"]

Row = dict[str, Any]

MergeRow = Callable[["Row | None", "Mapping[str, Any] | None"], "Row | None"]
"""Function of the present row, and of the columns of a request; None stands for no row, and for a delete of the whole row.

It returns the same object if the request does not count, and the new row, which may be equal, if it does.
"""


@dataclass(frozen=True)
class RowMerger:
    """Merges requests to write a maintained table into its rows.

    Attributes:
        schema: schema of the table.
        key: names of the columns of its primary key.
        rules: its rules.

    Example:
        >>> from streamrt.schema import Schema
        >>> merger = RowMerger(Schema("id BIGINT, name STRING, PRIMARY KEY (id)"), ("id",), Maintenance())
        >>> upsert, delete = merger.make_upsert(), merger.make_delete()
        >>> upsert(None, {"id": 1}), upsert({"id": 1, "name": "ann"}, {"id": 1, "name": "bob"})
        ({'id': 1, 'name': None}, {'id': 1, 'name': 'bob'})
        >>> delete({"id": 1, "name": "ann"}, {"id": 1, "name": None}) is None
        True
    """

    schema: Schema
    key: tuple[str, ...]
    rules: Maintenance

    def make_reader(self) -> Callable[[Mapping[str, Any]], Row]:
        """Return the function that returns a stored row with the columns of the schema.

        Columns that came later have their default, and those that are gone are left out.
        """
        from streamrt.schema import RowCheck

        return RowCheck(self.schema.fields, decoded=True).mapping

    def make_upsert(self) -> MergeRow:
        """Return the function of an upsert. It raises `SchemaMismatchError` for a row that must not be."""
        rule = self.rules.merge
        combine = self._make_combiners(rule) if isinstance(rule, Aggregate) else {}
        if rule == "first":
            change: Callable[[Row, Mapping[str, Any]], Row | None] = lambda before, given: None  # noqa: E731
        elif isinstance(rule, Versioned):
            change = _keep_newer(rule.column)
        elif isinstance(rule, SequenceGroups):
            change = _keep_newer_groups(rule)
        elif isinstance(rule, Aggregate):
            change = _combine_columns(combine)
        else:
            change = lambda before, given: {**before, **given}  # noqa: E731
        sequences = rule.groups if isinstance(rule, SequenceGroups) else {}
        grouped = {name: sequence for sequence, names in sequences.items() for name in (sequence, *names)}
        initial, required = self._make_initial_row(), self._required
        key = frozenset(self.key)

        def upsert(before: Row | None, given: Mapping[str, Any] | None) -> Row | None:
            if given is None:
                raise SchemaMismatchError("an upsert must have columns")
            if before is None:
                after = dict(initial)
                for name, value in given.items():
                    sequence = grouped.get(name)
                    if sequence is None or given.get(sequence) is not None:
                        after[name] = combine[name](None, value) if name in combine else value
            else:
                changed = change(before, given)
                if changed is None:
                    return before
                after = changed
                for name in key:
                    after[name] = before[name]
            _require_values(after, required, is_new=before is None)
            return after

        return upsert

    def make_delete(self) -> MergeRow:
        """Return the function of a delete: of the row, or of the columns that a request names.

        It raises `InvalidOperationError` if the table refuses deletes, and `SchemaMismatchError` if a column must not be
        null.
        """
        behaviour, key, required = self.rules.deletes, frozenset(self.key), self._required
        others = tuple(name for name in self.schema.names if name not in key)

        def delete(before: Row | None, given: Mapping[str, Any] | None) -> Row | None:
            if behaviour == "ignore":
                return before
            if behaviour == "refuse":
                raise InvalidOperationError("the table refuses deletes: it was created with deletes='refuse'")
            if before is None or given is None:
                return None
            after = {name: None if name in given and name not in key else value for name, value in before.items()}
            if all(after[name] is None for name in others):
                return None
            _require_values(after, required, is_new=False)
            return after

        return delete

    def _make_combiners(self, rule: Aggregate) -> dict[str, Combine]:
        return {
            column.name: make_aggregate(rule.functions.get(column.name, DEFAULT_FUNCTION), column)
            for column in self.schema.fields
            if column.name not in self.key
        }

    def _make_initial_row(self) -> Row:
        """Return the row of a key of which no column is known."""
        from streamrt.schema import RowCheck

        return RowCheck([replace(field, nullable=True) for field in self.schema.fields])({})

    @property
    def _required(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.schema.fields if not field.nullable)


def _combine_columns(combine: Mapping[str, Combine]) -> Callable[[Row, Mapping[str, Any]], Row | None]:
    def change(before: Row, given: Mapping[str, Any]) -> Row | None:
        after = dict(before)
        for name, value in given.items():
            if name in combine:
                after[name] = combine[name](before[name], value)
        return after

    return change


def _keep_newer(column: str) -> Callable[[Row, Mapping[str, Any]], Row | None]:
    def change(before: Row, given: Mapping[str, Any]) -> Row | None:
        return None if is_higher(before[column], given.get(column)) else {**before, **given}

    return change


def _keep_newer_groups(rule: SequenceGroups) -> Callable[[Row, Mapping[str, Any]], Row | None]:
    groups = {sequence: frozenset((sequence, *names)) for sequence, names in rule.groups.items()}
    grouped = frozenset().union(*groups.values())

    def change(before: Row, given: Mapping[str, Any]) -> Row | None:
        after = dict(before)
        stale = False
        for sequence, names in groups.items():
            at = given.get(sequence)
            if at is not None and not is_higher(before[sequence], at):
                after.update((name, given[name]) for name in names if name in given)
            else:
                stale = stale or not names.isdisjoint(given)
        after.update((name, value) for name, value in given.items() if name not in grouped)
        # What only has older groups does not count.
        return None if stale and after == before else after

    return change


def _require_values(row: Row, columns: Collection[str], *, is_new: bool) -> None:
    for name in columns:
        if row[name] is None:
            raise SchemaMismatchError(
                f"column {name!r} must not be null, and a new row needs a value for it: it has no default"
                if is_new
                else f"column {name!r} must not be null"
            )
