"""GROUPING SETS, ROLLUP and CUBE: each row is counted once for each set of keys, with NULL in place of the other keys."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.row_plans import Expand, Field, Plan
from streamrt.sql.binding.scopes import reference
from streamrt.sql.binding.session import Session
from streamrt.sql.binding.stages import keep_columns
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.calls import FunctionCall
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal

__all__ = ["RowsOfSets", "Sets", "bind_grouping", "expand_sets", "has_sets", "read_sets"]

_MOST: Final = 64
"""Number of sets of a query: each row is counted in each of them."""
_CLAUSES: Final = ("rollup", "cube", "grouping_sets")
_NESTED: Final = (exp.Rollup, exp.Cube, exp.GroupingSets)

Sets = list[tuple[exp.Expr, ...]]
"""Sets of keys."""
Resolve = Callable[[exp.Expr], list[exp.Expr]]
"""Returns what an item of GROUP BY stands for."""


@dataclass(frozen=True)
class RowsOfSets:
    """Makes the columns of the keys of each set.

    Attributes:
        columns: names of the columns with the keys, and of those that are made.
        sets: of each set, the numbers of its keys.
        number: the column with the number of the set.
    """

    columns: tuple[tuple[str, str], ...]
    sets: tuple[frozenset[int], ...]
    number: str

    def __call__(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the columns for each set."""
        for number, members in enumerate(self.sets):
            keys = {made: row[name] if key in members else None for key, (name, made) in enumerate(self.columns)}
            yield {**keys, self.number: number}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name, _ in self.columns)


def has_sets(group: exp.Expr | None) -> bool:
    """Return whether a GROUP BY has GROUPING SETS, ROLLUP or CUBE."""
    return group is not None and (
        any(group.args.get(name) for name in _CLAUSES) or any(isinstance(each, _NESTED) for each in group.expressions)
    )


def read_sets(group: exp.Expr, resolve: Resolve) -> Sets | None:
    """Return the sets of keys of a GROUP BY; None if it has keys only.

    Args:
        group: the GROUP BY.
        resolve: returns what a key stands for.

    Raises:
        SQLNotSupportedError: if there are too many sets.
    """
    if not has_sets(group):
        return None
    listed = [(name, each) for name in _CLAUSES for each in group.args.get(name) or []]
    parts = [_sets_of(each, resolve) for each in group.expressions]
    for name, each in listed:
        if name == "grouping_sets":
            # GROUP BY a, b GROUPING SETS (...): the keys before only list what is in them.
            parts = [_sets_of(each, resolve)]
        elif each.expressions:
            parts.append(_sets_of(each, resolve))
        else:
            # GROUP BY a, b WITH ROLLUP.
            parts = [_sets_of(type(each)(expressions=list(group.expressions)), resolve)]
    count = 1
    for part in parts:
        count *= len(part)
    if count > _MOST:
        raise make_refusal(f"each row would be in {count:,} sets of keys: at most {_MOST}", group)
    return [sum(chosen, ()) for chosen in product(*parts)]


def _sets_of(node: exp.Expr, resolve: Resolve) -> Sets:
    if isinstance(node, exp.GroupingSets):
        return [found for each in node.expressions for found in _sets_of(each, resolve)]
    if isinstance(node, exp.Rollup | exp.Cube):
        items = [tuple(resolve(each)) for each in node.expressions]
        lengths = range(len(items), -1, -1)
        if isinstance(node, exp.Rollup):
            return [sum(items[:length], ()) for length in lengths]
        if len(items) > 10:
            raise make_refusal(f"CUBE of {len(items)} keys has {2 ** len(items):,} sets: at most {_MOST}", node)
        return [sum(chosen, ()) for length in lengths for chosen in combinations(items, length)]
    return [tuple(resolve(node))]


def expand_sets(
    plan: Plan, keys: Sequence[Field], sets: Sequence[frozenset[int]], kept: Sequence[str], session: Session
) -> tuple[Plan, list[Field], Field]:
    """Return a plan with a row for each row and set, the columns of the keys in it, and that of the number of the set.

    Args:
        plan: the rows.
        keys: the columns of the keys.
        sets: of each set, the numbers of its keys.
        kept: other columns that are needed.
        session: names the columns.
    """
    made = [Field(session.new_name(), key.dtype, nullable=True) for key in keys]
    number = Field(session.new_name(), pa.int32(), nullable=False)
    pairs = tuple((key.name, field.name) for key, field in zip(keys, made, strict=True))
    shown = ", ".join(f"({', '.join(keys[key].name for key in sorted(members))})" for members in sets)
    rows = RowsOfSets(pairs, tuple(sets), number.name)
    expanded = Expand(plan, rows, (*made, number), f"grouping sets {shown}", added_keys=frozenset((number.name,)))
    return keep_columns(expanded, [*(field.name for field in made), number.name, *kept]), made, number


def bind_grouping(
    node: exp.Expr, number: Field, sets: Sequence[frozenset[int]], keys: Sequence[int]
) -> TypedExpression:
    """Return `grouping(key)`, or `grouping_id(key, ...)`: a bit for each key, 1 if the set of a row lacks it.

    Args:
        node: the call.
        number: the column of the number of the set.
        sets: of each set, the numbers of its keys.
        keys: the numbers of the keys that are named.
    """
    is_one = isinstance(node, exp.Grouping)
    if is_one and len(keys) != 1:
        raise make_analysis_error("grouping() has one argument: a key of GROUP BY", node)
    table = []
    for members in sets:
        bits = 0
        for key in keys:
            bits = 2 * bits + (key not in members)
        table.append(bits)
    name = f"{'grouping' if is_one else 'grouping_id'}_{'_'.join(map(str, keys))}"
    dtype = pa.int8() if is_one else pa.int64()
    return FunctionCall(name, pick_bits, (reference(number),), dtype, options=(tuple(table),))


def pick_bits(table: tuple[int, ...], number: int) -> int:
    """Return what a set has in a table."""
    return table[number]
