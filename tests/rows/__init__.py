"""Features of the interfaces of other systems, row by row, and which test shows each row in StreamRT.

The files next to this one have a row in each line: its id, its status, what it is, and how StreamRT has it. Tests carry the
ids that they show as `@pytest.mark.rows("FL-060")`, at a function, at a class, or in `pytestmark`. `python -m tests.rows`
writes the pages of `PAGES` from both.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "Page", "Row", "Section", "shown_by"]

ROOT = Path(__file__).parents[2]
STATUSES = {
    "HAS": "the same thing",
    "EQUIV": "the same effect by other means",
    "REFUSED": "does not exist, for the reason given",
    "LATER": "does not exist yet",
}


@dataclass(frozen=True)
class Row:
    """Feature of another system.

    Attributes:
        id: such as `FL-060`.
        status: one of `STATUSES`.
        title: what it is.
        how: how StreamRT has it, or why not.
    """

    id: str
    status: str
    title: str
    how: str


@dataclass(frozen=True)
class Section:
    """Rows that belong together.

    Attributes:
        system: the system whose rows these are.
        title: what they are about.
        rows: the rows.
    """

    system: str
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Page:
    """A page of the documentation that is made from rows and tests.

    Attributes:
        path: the page.
        head: what it begins with.
        files: names of the files with the rows, each with the system whose rows these are.
    """

    path: Path
    head: str
    files: tuple[tuple[str, str], ...]

    def sections(self) -> list[Section]:
        """Return all rows in order.

        Raises:
            ValueError: if a line is not a row.
        """
        found = []
        for name, system in self.files:
            blocks = Path(__file__).with_name(name).read_text(encoding="utf-8").strip().split("\n\n")
            for block in blocks:
                title, *lines = block.splitlines()
                found.append(Section(system, title.removeprefix("# "), tuple(map(_row, lines))))
        return found

    def text(self) -> str:
        """Return what the page should be."""
        shown, sections = shown_by(), self.sections()
        statuses = [f"| {status} | {meaning} |\n" for status, meaning in STATUSES.items()]
        parts = [self.head, "\n| status | meaning |\n|---|---|\n", *statuses, _counts(sections, shown)]
        system = ""
        for section in sections:
            if section.system != system:
                system = section.system
                parts.append(f"\n## {system}\n")
            parts.append(f"\n### {section.title}\n\n| row | what | status | how | tests |\n|---|---|---|---|---|\n")
            parts += [_line(row, shown.get(row.id, [])) for row in section.rows]
        return "".join(parts)


PAGES = (
    Page(
        ROOT / "docs" / "table-rows.md",
        """# Rows of other systems

What Apache Fluss's Python client and Dataiku's streaming endpoints offer, how [tables](tables.md) have it, and the tests that
show it. The pages [coming from Fluss](coming-from-fluss-names.md) and [coming from Dataiku](coming-from-dataiku.md) have the
same by topic. `python -m tests.rows` makes this page from the tests.
""",
        (("fluss.txt", "Apache Fluss, Python client"), ("dataiku.txt", "Dataiku, streaming endpoints")),
    ),
    Page(
        ROOT / "docs" / "process-rows.md",
        """# Rows of PyFlink

What PyFlink's DataStream API offers, row by row, how StreamRT has it, and the tests that show it. The [translation
tables](coming-from-pyflink-names.md) have the same by topic. `python -m tests.rows` makes this page.
""",
        (("pyflink.txt", "PyFlink, DataStream API"),),
    ),
    Page(
        ROOT / "docs" / "feldera-rows.md",
        """# Rows of Feldera

What Feldera's Python interface offers, row by row, how StreamRT has it, and the tests that show it. [Coming from
Feldera](coming-from-feldera.md) has what to know first. `python -m tests.rows` makes this page.
""",
        (("feldera.txt", "Feldera, Python interface"),),
    ),
)


def _row(line: str) -> Row:
    parts = line.split(" | ")
    if len(parts) != 4 or parts[1] not in STATUSES or not all(parts):
        raise ValueError(f"{line!r} is not a row: it needs id, status, title and how, between ' | '")
    return Row(*parts)


def shown_by() -> dict[str, list[str]]:
    """Return the tests that carry the id of each row, as `<path>::<name>`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.rows(" in text:
            for name, ids in _marked(ast.parse(text)):
                for each in ids:
                    tests = found.setdefault(each, [])
                    test = "::".join(filter(None, (path.relative_to(ROOT).as_posix(), name)))
                    if test not in tests:
                        tests.append(test)
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of what is marked in a module, "" for all of it, with the ids."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "pytestmark" in map(ast.unparse, node.targets):
            yield "", _ids(node.value)
    holders: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for holder in holders:
        inside = holder.name + "::" if isinstance(holder, ast.ClassDef) else ""
        for node in holder.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for decorator in node.decorator_list:
                    yield inside + node.name, _ids(decorator)


def _ids(node: ast.expr) -> list[str]:
    """Return the ids of all marks in an expression.

    Raises:
        ValueError: if an id is not a string.
    """
    found = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("mark.rows"):
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(
                        f"line {call.lineno}: ids of rows must be texts, since they are read without running"
                    )
                found.append(argument.value)
    return found


def _counts(sections: list[Section], shown: dict[str, list[str]]) -> str:
    head = ["", "rows", *STATUSES, "of HAS and EQUIV, with a test"]
    lines = [f"\n| {' | '.join(head)} |\n", "|---" * len(head), "|"]
    for system in dict.fromkeys(section.system for section in sections):
        rows = [row for section in sections if section.system == system for row in section.rows]
        numbers = [sum(row.status == status for row in rows) for status in STATUSES]
        there = [row for row in rows if row.status in ("HAS", "EQUIV")]
        tested = sum(row.id in shown for row in there)
        lines.append(
            "\n" + " | ".join(["| " + system, *map(str, [len(rows), *numbers]), f"{tested} of {len(there)} |"])
        )
    return "".join([*lines, "\n"])


def _line(row: Row, tests: list[str]) -> str:
    links = [_link(test) for test in tests]
    if not links and row.status in ("HAS", "EQUIV"):
        links = ["no test"]
    return f"| {row.id} | {row.title} | {row.status} | {row.how} | {', '.join(links)} |\n"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.rpartition('::')[2] or Path(path).stem}](../{path})"
