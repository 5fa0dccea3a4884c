"""Rows made of lists: LATERAL VIEW explode(...), UNNEST, and explode in the list of SELECT."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.binding.row_plans import Expand, Field
from streamrt.sql.binding.scopes import BlockScope, NamedColumn, Relation, bound_name, reference
from streamrt.sql.binding.stages import Stage
from streamrt.sql.expressions.calls import Call
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.user_functions import UserFunction

__all__ = ["ElementsOf", "bind_laterals", "bind_projected_explode"]


@dataclass(frozen=True)
class ElementsOf:
    """Makes a row for each element of a list, or each entry of a map.

    Attributes:
        column: the column with the list.
        names: the columns that are made: those of the position, the key, and the value; None for none.
        outer: whether a list without elements makes a row of NULL.
        spread: the columns of the fields of structs, by field; None to keep structs as they are.
    """

    column: str
    position: str | None
    key: str | None
    value: str | None
    outer: bool
    spread: tuple[tuple[str, str], ...] | None = None

    def __call__(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the columns for each element."""
        found = row[self.column]
        if not found:
            if self.outer:
                yield dict.fromkeys(self._names())
            return
        for position, each in enumerate(found.items() if isinstance(found, dict) else found):
            made: dict[str, Any] = {}
            if self.position is not None:
                made[self.position] = position
            if self.key is not None:
                made[self.key], each = each
            if self.spread is not None:
                made.update({name: None if each is None else each[field] for field, name in self.spread})
            elif self.value is not None:
                made[self.value] = each
            yield made

    def _names(self) -> list[str]:
        spread = [name for _, name in self.spread or ()]
        return [name for name in (self.position, self.key, self.value, *spread) if name is not None]


@dataclass(frozen=True)
class RowsOfFunction:
    """Makes the rows that a function of users returns.

    Attributes:
        function: the function; it returns dicts, or None for no rows.
        arguments: the columns of its arguments.
        fields: the columns that are made, by the names that they have in its rows.
        outer: whether no rows make one of NULL.
    """

    function: Callable[..., Any]
    arguments: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    outer: bool

    def __call__(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the columns of each row."""
        made = list(self.function(*(row[argument] for argument in self.arguments)) or ())
        if not made and self.outer:
            return [dict.fromkeys(name for _, name in self.fields)]
        return [{name: each[field] for field, name in self.fields} for each in made]


def bind_laterals(stage: Stage, select: exp.Select) -> None:
    """Add the columns of LATERAL VIEW, of UNNEST and of LATERAL in FROM.

    Args:
        stage: the rows of FROM.
        select: the query.
    """
    joins = [join for join in select.args.get("joins") or [] if isinstance(join.this, exp.Lateral | exp.Unnest)]
    for join in joins:
        if join.side and join.side.upper() != "LEFT":
            raise make_refusal("LATERAL is joined by a comma, CROSS JOIN or LEFT JOIN", join)
        if join.args.get("on") is not None and not _is_true(join.args["on"]):
            raise make_refusal("LATERAL and UNNEST are joined without ON: put conditions into WHERE", join.args["on"])
        _add_lateral(stage, join.this, outer=join.side.upper() == "LEFT")
    for lateral in select.args.get("laterals") or []:
        _add_lateral(stage, lateral, outer=bool(lateral.args.get("outer")))


def _is_true(node: exp.Expr) -> bool:
    return isinstance(node, exp.Boolean) and bool(node.this)


def _add_lateral(stage: Stage, node: exp.Expr, *, outer: bool) -> None:
    alias = node.args.get("alias")
    names = [each.name for each in alias.columns] if alias is not None else []
    if isinstance(node, exp.Unnest):
        if len(node.expressions) != 1:
            raise make_refusal("UNNEST takes one list", node)
        call = exp.Explode(this=node.expressions[0])
        if node.args.get("offset"):
            call = exp.Posexplode(this=node.expressions[0])
        if not names and alias is not None and alias.name:
            names = [alias.name]
    else:
        call = node.this
    function = stage.session.functions.find(call.name) if isinstance(call, exp.Anonymous) else None
    if function is not None and function.kind == "table":
        columns = _expand_function(stage, call, function, names, outer=outer)
        _add_relation(stage, alias, columns)
        return
    if not isinstance(call, exp.Explode | exp.Posexplode | exp.ExplodeOuter | exp.PosexplodeOuter | exp.Inline):
        raise make_refusal(
            "LATERAL has explode, posexplode, inline, their forms with _outer, and functions that the application has "
            "registered with kind='table'",
            call,
        )
    outer = outer or isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter)
    _add_relation(stage, alias, _expand(stage, call, names, outer=outer))


def _add_relation(stage: Stage, alias: exp.TableAlias | None, columns: tuple[NamedColumn, ...]) -> None:
    title = alias.name.lower() if alias is not None and alias.name else ""
    scope = stage.scope
    assert isinstance(scope, BlockScope)  # noqa: S101
    scope.relations.append(Relation(((title,),), columns, stage.plan, title or "LATERAL"))


def _expand_function(
    stage: Stage, call: exp.Expr, function: UserFunction, names: list[str], *, outer: bool
) -> tuple[NamedColumn, ...]:
    """Make the rows of a function of users, and return the columns that it adds."""
    nodes = tuple(call.expressions)
    bound = Call(function.name, call, tuple(stage.bind(each) for each in nodes), nodes)
    arguments = stage.add(function.cast_arguments(bound))
    dtype = function.returns
    fields = [dtype.field(number) for number in range(dtype.num_fields)]
    if names and len(names) != len(fields):
        raise make_analysis_error(f"{len(names)} names are given for {len(fields)} columns", call)
    made = tuple((each.name, stage.session.new_name()) for each in fields)
    columns = tuple(Field(name, each.type, nullable=True) for each, (_, name) in zip(fields, made, strict=True))
    rows = RowsOfFunction(function.function, tuple(arguments), made, outer)
    shown = f"{function.name}({', '.join(map(str, bound.arguments))})"
    stage.plan = Expand(stage.plan, rows, columns, shown, outer)
    titles = names or [each.name for each in fields]
    return tuple(NamedColumn(title, column) for title, column in zip(titles, columns, strict=True))


def _expand(stage: Stage, call: exp.Expr, names: list[str], *, outer: bool) -> tuple[NamedColumn, ...]:
    """Make a row for each element, and return the columns that it adds."""
    session = stage.session
    value = stage.bind(call.this)
    dtype = value.dtype
    is_map = pa.types.is_map(dtype)
    if not is_map and not pa.types.is_list(dtype):
        raise make_analysis_error(f"{value} is neither a list nor a map, of which rows could be made", call)
    (column,) = stage.add([value])
    with_position = isinstance(call, exp.Posexplode | exp.PosexplodeOuter)
    fields: list[tuple[str, Field]] = []
    position = key = element = None
    spread: tuple[tuple[str, str], ...] | None = None
    if with_position:
        position = session.new_name()
        fields.append(("pos", Field(position, pa.int32(), nullable=outer)))
    if is_map:
        key = session.new_name()
        fields.append(("key", Field(key, dtype.key_type, nullable=outer)))
    item = dtype.item_field if is_map else dtype.value_field
    if isinstance(call, exp.Inline):
        if not pa.types.is_struct(item.type):
            raise make_analysis_error(f"inline() needs a list of structs, and {value} is not one", call)
        inner = [item.type.field(number) for number in range(item.type.num_fields)]
        spread = tuple((each.name, session.new_name()) for each in inner)
        fields += [
            (each.name, Field(name, each.type, nullable=True)) for each, (_, name) in zip(inner, spread, strict=True)
        ]
    else:
        element = session.new_name()
        fields.append(("value" if is_map else "col", Field(element, item.type, nullable=outer or item.nullable)))
    if names and len(names) != len(fields):
        raise make_analysis_error(f"{len(names)} names are given for {len(fields)} columns", call)
    titles = names or [title for title, _ in fields]
    made = tuple(field for _, field in fields)
    stage.plan = Expand(
        stage.plan,
        ElementsOf(column, position, key, element, outer, spread),
        made,
        f"{value}",
        outer,
    )
    return tuple(NamedColumn(title, field) for title, field in zip(titles, made, strict=True))


def bind_projected_explode(stage: Stage, items: list[tuple[str, exp.Expr]]) -> list[tuple[str, exp.Expr]]:
    """Return the list of SELECT with columns in place of explode(...), which may stand there once.

    Args:
        stage: the rows of FROM.
        items: names and expressions.
    """
    kinds = exp.Explode | exp.Posexplode | exp.ExplodeOuter | exp.PosexplodeOuter | exp.Inline
    found = [(number, node) for number, (_, node) in enumerate(items) if isinstance(node, kinds)]
    if len(found) > 1:
        raise make_refusal("SELECT has one explode(...): use LATERAL VIEW for more", found[1][1])
    if not found:
        return items
    number, node = found[0]
    name = items[number][0]
    outer = isinstance(node, exp.ExplodeOuter | exp.PosexplodeOuter)
    columns = _expand(stage, node, [], outer=outer)
    has_name = len(columns) == 1 and "(" not in name
    made = [(name if has_name else column.name, bound_name(reference(column.field), node)) for column in columns]
    return [*items[:number], *made, *items[number + 1 :]]
