"""Which keys of a table a query asks for, if its conditions fix them: then rows of other keys are not decoded."""

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.schema import Schema

__all__ = ["find_fixed_keys"]

_MOST_KEYS = 1_000
_SAFE_JOINS = frozenset({"", "INNER", "CROSS"})


def find_fixed_keys(node: exp.Table, schema: Schema) -> list[dict[str, Any]] | None:
    """Return the keys that a table in FROM can have in the result; None if conditions do not fix them.

    Only conditions of WHERE that must all hold are looked at, each an equation of a column of the key with a literal, or IN
    with a list of them.

    Args:
        node: the table.
        schema: its columns, with the primary key.

    Example:
        >>> from streamrt.sql.reading import parse_query
        >>> tree = parse_query("SELECT * FROM t WHERE id IN (1, 2) AND x > 0")
        >>> find_fixed_keys(next(tree.find_all(exp.Table)), Schema("id BIGINT, x INT, PRIMARY KEY (id)"))
        [{'id': 1}, {'id': 2}]
    """
    select = node.parent_select
    if not isinstance(select, exp.Select) or not schema.primary_key or not _keeps_rows(node, select):
        return None
    where = select.args.get("where")
    if where is None:
        return None
    qualifiers = {node.alias_or_name.lower()}
    is_alone = not select.args.get("joins") and not select.args.get("laterals")
    return fixed_keys_of(where.this, schema, qualifiers, is_alone=is_alone)


def fixed_keys_of(
    condition: exp.Expr, schema: Schema, qualifiers: set[str], *, is_alone: bool
) -> list[dict[str, Any]] | None:
    """Return the keys that a condition fixes.

    Args:
        condition: the condition.
        schema: the columns.
        qualifiers: names of the table before columns, in lower case.
        is_alone: whether columns without a name before them are those of the table.
    """
    found: dict[str, list[Any]] = {}
    types = {each.name.lower(): (each.name, each.dtype) for each in schema.fields if each.name in schema.primary_key}
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        part = part.unnest()
        if isinstance(part, exp.EQ):
            pairs = [(part.left, [part.right]), (part.right, [part.left])]
        elif isinstance(part, exp.In) and part.expressions and part.args.get("query") is None:
            pairs = [(part.this, part.expressions)]
        else:
            continue
        for column, values in pairs:
            if not isinstance(column, exp.Column):
                continue
            own = column.table.lower() in qualifiers if column.table else is_alone
            name, dtype = types.get(column.name.lower(), (None, None))
            literals = [_read_literal(value, dtype) for value in values] if own and name is not None else [None]
            if name is not None and name not in found and all(each is not None for each in literals):
                found[name] = list(dict.fromkeys(literals))
    if len(found) < len(schema.primary_key):
        return None
    choices: Sequence[list[Any]] = [found[name] for name in schema.primary_key]
    keys = list(itertools.islice(itertools.product(*choices), _MOST_KEYS + 1))
    return None if len(keys) > _MOST_KEYS else [dict(zip(schema.primary_key, key, strict=True)) for key in keys]


def _keeps_rows(node: exp.Table, select: exp.Select) -> bool:
    """Return whether a row of the table that WHERE drops can have no effect: so it is not of the outer side of a join."""
    joins = select.args.get("joins") or []
    if any((str(each.side) or str(each.kind)).upper() not in _SAFE_JOINS for each in joins):
        return False
    if isinstance(node.parent, exp.From):
        return node.parent is select.args.get("from_")
    return isinstance(node.parent, exp.Join) and any(node.parent is each for each in joins)


def _read_literal(node: exp.Expr, dtype: pa.DataType | None) -> Any:
    """Return the value of a literal of the type of a column; None for anything else."""
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return -int(node.this.name) if node.this.name.isdigit() and pa.types.is_integer(dtype) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.name if dtype == pa.string() else None
    if not pa.types.is_integer(dtype) or not node.name.lstrip("-").isdigit():
        return None
    return int(node.name)
