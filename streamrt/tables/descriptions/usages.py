"""Which applications use which tables, as data: usages and lineage."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

__all__ = ["STALE_AFTER", "ApplicationInfo", "Lineage", "LineageNode", "Usage"]


STALE_AFTER = timedelta(days=30)
"""How long after its start an application is taken as running where no broker says whether it is."""


@dataclass(frozen=True)
class Usage:
    """That an application uses a table.

    Attributes:
        kind: "reads", "writes" or "maintains".
        table: name of the table.
        application: its consumer group.
        since: when it was started last, in UTC.
    """

    kind: Literal["reads", "writes", "maintains"]
    table: str
    application: str
    since: datetime


@dataclass(frozen=True)
class ApplicationInfo:
    """The tables that an application uses, as it said at its last start.

    Attributes:
        name: its consumer group.
        reads: names of the tables that it reads.
        writes: names of the tables that it writes.
        started_at: when it was started last, in UTC.
        maintains: names of the tables whose requests it merges.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    started_at: datetime
    maintains: tuple[str, ...] = ()

    def usages(self) -> list[Usage]:
        """Return a usage for each table."""
        return [
            *(Usage("reads", table, self.name, self.started_at) for table in self.reads),
            *(Usage("writes", table, self.name, self.started_at) for table in self.writes),
            *(Usage("maintains", table, self.name, self.started_at) for table in self.maintains),
        ]


@dataclass(frozen=True)
class LineageNode:
    """A table or an application.

    Attributes:
        kind: "table" or "application".
        name: its name.
        exists: False for a table that an application uses, and the catalogue does not have.
    """

    kind: Literal["table", "application"]
    name: str
    exists: bool = True


@dataclass(frozen=True)
class Lineage:
    """Where rows come from, and where they go: tables and applications.

    Attributes:
        nodes: the tables, then the applications, sorted by name.
        edges: pairs of nodes, in the direction in which rows go.

    Example:
        >>> from datetime import timezone
        >>> late = ApplicationInfo("late", ("db.a",), ("db.b",), datetime(2026, 1, 1, tzinfo=timezone.utc))
        >>> print(Lineage.of(["db.a", "db.b"], [late]).as_mermaid())
        flowchart LR
          table0[("db.a")]
          table1[("db.b")]
          application0["late"]
          table0 --> application0
          application0 --> table1
    """

    nodes: tuple[LineageNode, ...]
    edges: tuple[tuple[LineageNode, LineageNode], ...]

    @classmethod
    def of(cls, tables: Iterable[str], applications: Iterable[ApplicationInfo]) -> "Lineage":
        """Return the lineage of tables and applications."""
        programs = sorted(applications, key=lambda each: each.name)
        existing = set(tables)
        used = {table for each in programs for table in (*each.reads, *each.writes, *each.maintains)}
        by_name = {name: LineageNode("table", name, name in existing) for name in sorted(existing | used)}
        by_program = {each.name: LineageNode("application", each.name) for each in programs}
        edges: list[tuple[LineageNode, LineageNode]] = []
        for each in programs:
            edges += [(by_name[table], by_program[each.name]) for table in sorted(set(each.reads))]
            edges += [(by_program[each.name], by_name[table]) for table in sorted({*each.writes, *each.maintains})]
        return cls((*by_name.values(), *by_program.values()), tuple(edges))

    def as_dict(self) -> dict[str, Any]:
        """Return nodes and edges as mappings and lists."""
        return {
            "nodes": [asdict(node) for node in self.nodes],
            "edges": [{"from": asdict(start), "to": asdict(end)} for start, end in self.edges],
        }

    def as_mermaid(self) -> str:
        """Return the lineage as a Mermaid flowchart."""
        names: dict[LineageNode, str] = {}
        lines = ["flowchart LR"]
        for kind, (left, right) in (("table", ("[(", ")]")), ("application", ("[", "]"))):
            for number, node in enumerate(each for each in self.nodes if each.kind == kind):
                names[node] = f"{kind}{number}"
                label = node.name if node.exists else f"{node.name} (not in the catalogue)"
                lines.append(f"  {names[node]}{left}{_quote_text(label)}{right}")
        return "\n".join([*lines, *(f"  {names[start]} --> {names[end]}" for start, end in self.edges)])


def _quote_text(text: str) -> str:
    # Mermaid reads entities without `&`; labels may be markup, and lines end them.
    escaped = "".join(char if char.isalnum() or char in " ._-()/:" else f"#{ord(char)};" for char in text)
    return f'"{escaped}"'
