"""What the names in a query mean. Names are compared without regard to case."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from streamrt.operators.expression import Expression
from streamrt.sql.binding.row_plans import Field, Plan
from streamrt.sql.binding.suggestions import suggest
from streamrt.sql.expressions import TypedExpression
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.expressions.nested import select_field
from streamrt.sql.expressions.nodes import ColumnReference

__all__ = [
    "BlockScope",
    "Bound",
    "BoundNames",
    "NamedColumn",
    "Relation",
    "bound_name",
    "columns_in",
    "parts_of",
    "reference",
    "references_of",
]

_BOUND = "bound"


@dataclass(frozen=True)
class NamedColumn:
    """A column as a query sees it.

    Attributes:
        name: its name.
        field: the column of the plan.
        in_star: whether `*` has it.
    """

    name: str
    field: Field
    in_star: bool = True


@dataclass(frozen=True)
class Bound:
    """A query whose names and types are known.

    Attributes:
        plan: how it is computed.
        columns: its columns, in order.
    """

    plan: Plan
    columns: tuple[NamedColumn, ...]


@dataclass(eq=False)
class Relation:
    """What a part of FROM stands for.

    Attributes:
        names: the names by which it may be called, in lower case: `(("o",),)` or `(("shop", "orders"), ("orders",))`.
        columns: its columns.
        plan: how it is computed; None once it is part of another plan.
        nullable: whether its rows may be missing, because of an outer join.
        version: the time of which it is, if it is `FOR SYSTEM_TIME AS OF`.
        title: how errors call it.
    """

    names: tuple[tuple[str, ...], ...]
    columns: tuple[NamedColumn, ...]
    plan: Plan
    title: str
    version: exp.Expr | None = None

    def answers_to(self, qualifier: tuple[str, ...]) -> bool:
        """Return whether it is called so."""
        return qualifier in self.names

    def find(self, name: str) -> list[NamedColumn]:
        """Return its columns of a name."""
        return [column for column in self.columns if column.name.lower() == name.lower()]


def reference(column: Field) -> ColumnReference:
    """Return the expression that reads a column."""
    return ColumnReference(column.name, column.dtype, column.nullable)


def bound_name(expression: TypedExpression, node: exp.Expr) -> exp.Column:
    """Return a name that stands for an expression, in place of a node whose meaning is known already."""
    column = exp.column("_")
    column.meta[_BOUND] = expression
    for key in ("line", "col", "start", "end"):
        if key in node.meta:
            column.this.meta[key] = node.meta[key]
    if "start" not in column.this.meta:
        inner = next((each for each in node.walk() if "start" in each.meta), None)
        if inner is not None:
            column.this.meta.update({key: inner.meta[key] for key in ("line", "col", "start", "end")})
    return column


def references_of(value: Expression) -> list[ColumnReference]:
    """Return the columns that an expression reads."""
    if isinstance(value, ColumnReference):
        return [value]
    return [each for part in value.parts() for each in references_of(part)]


def parts_of(column: exp.Column) -> list[str]:
    """Return the words of a name that may have dots."""
    return [part.name for part in column.parts]


def columns_in(node: exp.Expr) -> Iterator[exp.Column]:
    """Yield the names in an expression, without those in subqueries."""
    for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
            yield each


@dataclass(eq=False)
class BoundNames:
    """Resolves names that were bound before, and no others."""

    explain: Callable[[exp.Column], Exception]

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        """Return what a name stands for."""
        bound: TypedExpression | None = column.meta.get(_BOUND)
        if bound is None:
            raise self.explain(column)
        return bound


@dataclass(eq=False)
class BlockScope:
    """The names of the relations of one SELECT.

    Attributes:
        relations: the relations.
        outer: the names around a subquery.
        merged: columns that USING has made of two, by name in lower case.
        structs: what `window` and similar names stand for.
        carried: names of the query around a subquery whose values are columns of its rows, in lower case.
    """

    relations: list[Relation]
    outer: "BlockScope | None" = None
    merged: dict[str, TypedExpression] = field(default_factory=dict)
    structs: dict[str, dict[str, TypedExpression]] = field(default_factory=dict)
    carried: dict[str, TypedExpression] = field(default_factory=dict)

    def resolve_column(self, column: exp.Column) -> TypedExpression:
        """Return what a name stands for; see `Scope`."""
        bound: TypedExpression | None = column.meta.get(_BOUND)
        if bound is not None:
            return bound
        found = self._look_up(column)
        if found is None:
            if self.outer is not None and self.outer.has(column):
                raise make_analysis_error(
                    f"{'.'.join(parts_of(column))} is of the query around this one, which is possible in WHERE and in "
                    "the list of SELECT only",
                    column,
                )
            raise self._unknown(column)
        return found

    def has(self, column: exp.Column) -> bool:
        """Return whether a name stands for something here, and not around."""
        return column.meta.get(_BOUND) is not None or self._look_up(column) is not None

    def is_outer(self, column: exp.Column) -> bool:
        """Return whether a name stands for something of the query around."""
        if self.has(column) or self.outer is None:
            return False
        return self.outer.has(column) or self.outer.is_outer(column)

    def owners(self, node: exp.Expr) -> set[int]:
        """Return the numbers of the relations that an expression is about."""
        owners: set[int] = set()
        for column in columns_in(node):
            bound = column.meta.get(_BOUND)
            if bound is not None:
                used = {each.name for each in references_of(bound)}
                for number, relation in enumerate(self.relations):
                    if any(each.field.name in used for each in relation.columns):
                        owners.add(number)
                continue
            names = parts_of(column)
            for qualifier, name in _readings(names):
                matches = {number for number, _ in self._matches(qualifier, name)}
                owners |= matches
                if matches:
                    break
        return owners

    def star(self, qualifier: tuple[str, ...], node: exp.Expr) -> list[NamedColumn]:
        """Return the columns of `*`, or of `t.*`."""
        if not qualifier:
            columns = [column for relation in self.relations for column in relation.columns if column.in_star]
            # As in Spark, those of USING come first, once.
            merged = [next(each for each in columns if each.name.lower() == name) for name in self.merged]
            return [*merged, *(each for each in columns if each.name.lower() not in self.merged)]
        for relation in self.relations:
            if relation.answers_to(qualifier):
                return [column for column in relation.columns if column.in_star]
        name = ".".join(qualifier)
        raise make_analysis_error(f"there is no table {name} in FROM{suggest(name, self._titles())}", node)

    def _look_up(self, column: exp.Column) -> TypedExpression | None:
        names = parts_of(column)
        for qualifier, name in _readings(names):
            rest = names[len(qualifier) + 1 :]
            if not qualifier and name.lower() in self.merged:
                return self._descend(self.merged[name.lower()], rest, column)
            matches = self._matches(qualifier, name)
            if len(matches) > 1:
                owners = [self.relations[number].title for number, _ in matches]
                raise make_analysis_error(
                    f"{'.'.join((*qualifier, name))} is ambiguous: it is a column of {' and of '.join(owners)}; write "
                    f"{self.relations[matches[0][0]].names[0][-1]}.{name}",
                    column,
                )
            if matches:
                return self._descend(reference(matches[0][1].field), rest, column)
        if len(names) == 2 and names[0].lower() in self.structs:
            fields = self.structs[names[0].lower()]
            if names[1].lower() in fields:
                return fields[names[1].lower()]
            raise make_analysis_error(f"{names[0]} has no {names[1]}{suggest(names[1], fields)}", column)
        return self.carried.get(".".join(names).lower())

    def _matches(self, qualifier: tuple[str, ...], name: str) -> list[tuple[int, NamedColumn]]:
        return [
            (number, column)
            for number, relation in enumerate(self.relations)
            if not qualifier or relation.answers_to(qualifier)
            for column in relation.find(name)
        ]

    def _descend(self, value: TypedExpression, names: Sequence[str], node: exp.Expr) -> TypedExpression:
        for name in names:
            value = select_field(value, name, node)
        return value

    def _titles(self) -> list[str]:
        return [relation.names[0][-1] for relation in self.relations]

    def _unknown(self, column: exp.Column) -> Exception:
        names = parts_of(column)
        if len(names) > 1:
            relation = next((each for each in self.relations if each.answers_to((names[0].lower(),))), None)
            if relation is not None:
                hint = suggest(names[1], (each.name for each in relation.columns))
                return make_analysis_error(f"{names[0]} has no column {names[1]}{hint}", column)
            return make_analysis_error(f"there is no {'.'.join(names)}{suggest(names[0], self._titles())}", column)
        known = [each.name for relation in self.relations for each in relation.columns]
        return make_analysis_error(f"there is no column {names[0]}{suggest(names[0], known)}", column)


def _readings(names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield how a name with dots may be read: what of it is the relation, and what the column. The rest are fields."""
    for length in range(min(len(names) - 1, 3), -1, -1):
        yield tuple(name.lower() for name in names[:length]), names[length]
