"""Prints what the product weighs, next to the figures of the last release: `make weigh`.

The figures show where code gathers: lines of code by package, names that do not say what they do, chains of classes, file
names that occur twice, folders with many files, and phrases that read as translated. No figure is a limit. A release writes
its own with `make weigh RECORD=1`.
"""

import argparse
import ast
import collections
import io
import json
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("streamrt", "connectors", "serializers", "state")
RECORDED = ROOT / "docs" / "weight.json"
DRAWER = 20
"""Files in one folder from which on a reader searches."""
LONGEST_LINE = 200


class Phrase(NamedTuple):
    """A phrase that reads as translated.

    Attributes:
        pattern: finds it.
        parts: of which each text with the phrase has one; to look for these takes a twentieth of the time.
    """

    pattern: str
    parts: tuple[str, ...]


PHRASES = {
    '"is no" before a noun': Phrase(
        r"(?<![Tt]here\s)\b(?:is|are) no (?!longer\b|more\b|less\b|later\b|one\b)\w+", ("is no", "are no")
    ),
    '"alone" for only': Phrase(r"\balone\b", ("alone",)),
    '"texts"': Phrase(r"\btexts\b", ("texts",)),
    '"beside" for next to': Phrase(r"\bbeside\b", ("beside",)),
    '", too" at the end': Phrase(r", too[.;:]", (", too",)),
    '"then" at the end': Phrase(r"\bthen\.", ("then.",)),
    '"whoever", "nobody", "anew"': Phrase(r"\b(?:whoever|nobody|anew)\b", ("whoever", "nobody", "anew")),
    '"comes again"': Phrase(r"\bcomes? again\b", ("come again", "comes again")),
}
_WORDS = {'"is no" before a noun': re.compile(r"\b(?:is|are)\W+(?:[a-z]\W+)?no\b")}
"""Words of phrases in a source, where one string may end and another one begin between them, with an `f` before it."""
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_NO_CODE = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Module:
    """Content of one file.

    Attributes:
        path: the file, below the root of the repository.
        code: number of lines with code; neither docstrings nor comments nor blank lines count.
        functions: names of its functions and methods.
        classes: names of the base classes, by class.
        prose: its docstrings and comments, each with the number of its first line.
    """

    path: Path
    code: int
    functions: list[str] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)
    prose: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, root: Path) -> "Module":
        """Read a file.

        Args:
            path: the file.
            root: the root of the repository.
        """
        text = path.read_text()
        tree = ast.parse(text)
        lines: set[int] = set()
        prose: list[tuple[int, str]] = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                prose.append((token.start[0], token.string))
            elif token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        found = cls(path.relative_to(root), 0, prose=prose)
        for node in ast.walk(tree):
            if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)) is not None:
                prose.append((node.body[0].lineno, docstring))
                lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.functions.append(node.name)
            elif isinstance(node, ast.ClassDef):
                found.classes[node.name] = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
        found.code = len(lines)
        return found


def weigh(root: Path) -> dict[str, dict[str, int]]:
    """Return the figures, by heading and name.

    Args:
        root: the root of the repository.
    """
    modules = list(_modules(root))
    pages = [path.read_text() for path in sorted((root / "docs").rglob("*.md"))]
    code: collections.Counter[str] = collections.Counter()
    drawers: collections.Counter[str] = collections.Counter()
    for module in modules:
        package = "/".join(module.path.parts[:2]) if module.path.parts[0] == "streamrt" else module.path.parts[0]
        code[package if len(module.path.parts) > 2 or package in PACKAGES else "streamrt"] += module.code
        drawers[str(module.path.parent)] += 1
    names = [name for module in modules for name in module.functions if not name.startswith("__")]
    short = sum("_" not in name.strip("_") for name in names)
    files = collections.Counter(module.path.name for module in modules if module.path.name != "__init__.py")
    bases = {name: bases for module in modules for name, bases in module.classes.items()}
    children = collections.Counter(base for found in bases.values() for base in found)
    prose = [text for module in modules for _, text in module.prose]
    return {
        "lines of code": {**dict(code.most_common()), "all": code.total()},
        "names and classes": {
            "functions with a name of one word, percent": round(100 * short / max(1, len(names))),
            "classes with exactly one subclass": sum(children[name] == 1 for name in bases),
            "longest chain of classes": max((_depth(name, bases) for name in bases), default=0),
            "file names that occur twice or more": sum(count > 1 for count in files.values()),
        },
        f"folders with more than {DRAWER} files": {
            name: count for name, count in drawers.most_common() if count > DRAWER
        },
        "phrases in docstrings, comments and docs": {
            **{
                name: sum(len(re.findall(phrase.pattern, text)) for text in (*prose, *map(blank_code, pages)))
                for name, phrase in PHRASES.items()
            },
            'docstrings that begin with "What"': sum(text.startswith("What ") for text in prose),
            f"lines of docs above {LONGEST_LINE} characters": sum(len(long_lines(page)) for page in pages),
        },
    }


def long_lines(page: str) -> list[int]:
    """Return the numbers of lines that are too long, without rows of tables and code blocks, which cannot be wrapped.

    Args:
        page: a page of docs.
    """
    numbers: list[int] = []
    in_code = False
    for number, line in enumerate(page.splitlines(), start=1):
        start = line.lstrip()
        in_code ^= start.startswith("```")
        if len(line) > LONGEST_LINE and not in_code and not start.startswith("|"):
            numbers.append(number)
    return numbers


def blank_code(page: str) -> str:
    """Return a page without the text of its code blocks and code spans; its lines stay.

    Args:
        page: a page of docs.
    """
    return _CODE.sub(lambda code: "\n" * code.group().count("\n"), page)


def find_phrases(root: Path, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each place of some phrases in docs, docstrings and comments, tests included, and the name of the phrase.

    Args:
        root: the root of the repository.
        names: names in `PHRASES`.
    """
    patterns = {name: re.compile(PHRASES[name].pattern) for name in names}
    for path in (*_pages(root), *_sources(root, (*PACKAGES, "tests"))):
        text = path.read_text()
        likely = [name for name in patterns if any(part in text for part in PHRASES[name].parts)]
        if not any(patterns[name].search(text) for name in likely):
            continue
        prose = [(1, blank_code(text))] if path.suffix == ".md" else Module.read(path, root).prose
        for first, part in prose:
            for name in likely:
                for match in patterns[name].finditer(part):
                    line = first + part.count("\n", 0, match.start())
                    yield f"{path.relative_to(root)}:{line}", name


def find_strings(root: Path, name: str) -> Iterator[str]:
    """Yield each place of a phrase in strings of the product, such as messages of errors and log lines.

    Args:
        root: the root of the repository.
        name: name in `PHRASES`.
    """
    pattern = re.compile(PHRASES[name].pattern)
    words = _WORDS.get(name, re.compile(""))
    for path in _sources(root, PACKAGES):
        text = path.read_text()
        # Most files are not parsed, which would take a third of the time of all tests of prose.
        for node in ast.walk(ast.parse(text)) if words.search(text) else ():
            if isinstance(node, ast.JoinedStr | ast.Constant) and pattern.search(_literal(node)):
                yield f"{path.relative_to(root)}:{node.lineno}"


def find_long_lines(root: Path) -> Iterator[str]:
    """Yield the places of lines of docs that are too long.

    Args:
        root: the root of the repository.
    """
    for page in _pages(root):
        yield from (f"{page.relative_to(root)}:{number}" for number in long_lines(page.read_text()))


def table(now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]) -> str:
    """Return the figures as a table for terminals.

    Args:
        now: the figures of today.
        before: those of the last release.
    """
    lines: list[str] = []
    for heading, figures in now.items():
        former = before.get(heading, {})
        lines.append(f"{heading:50}{'now':>10}{'before':>10}{'change':>10}")
        for name in (*figures, *(former.keys() - figures.keys())):
            count, old = figures.get(name, 0), former.get(name, 0)
            lines.append(f"  {name:48}{count:>10,}{old:>10,}{count - old:>+10,}")
        lines.append("")
    return "\n".join(lines)


def _modules(root: Path) -> Iterator[Module]:
    return (Module.read(path, root) for path in _sources(root, PACKAGES))


def _sources(root: Path, folders: Collection[str]) -> Iterator[Path]:
    for folder in folders:
        # Folders of other packages are linked into the first one.
        yield from (path for path in sorted((root / folder).rglob("*.py")) if path.resolve() == path)


def _pages(root: Path) -> Iterator[Path]:
    yield from (path for path in sorted(root.glob("*.md")) if path.name != "CHANGELOG.md")
    yield from sorted((root / "docs").rglob("*.md"))


def _literal(node: ast.expr) -> str:
    """Return the text of a string; an f-string has a letter in place of each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_literal, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "x"


def _depth(name: str, bases: dict[str, list[str]], seen: frozenset[str] = frozenset()) -> int:
    own = [base for base in bases[name] if base in bases and base not in seen and base != name]
    return 1 + max((_depth(base, bases, seen | {name}) for base in own), default=0)


def main() -> None:
    """Print the figures, or write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the figures down, as those of this release")
    options = parser.parse_args()
    figures = weigh(ROOT)
    print(table(figures, json.loads(RECORDED.read_text()) if RECORDED.exists() else {}))
    if options.record:
        RECORDED.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
