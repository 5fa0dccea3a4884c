"""Compares what commands print with `--json` with the page that describes it, `docs/cli-json.md`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.command_line import streamrt

__all__ = ["FIELDS", "check", "find_differences", "run"]

_PAGE = Path(__file__).parents[1] / "docs" / "cli-json.md"
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def _read_fields() -> dict[str, dict[str, str]]:
    """Return the types of the fields of each command."""
    found = {}
    for heading, section in re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", _PAGE.read_text(), re.MULTILINE):
        rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
        fields = {name: kind for names, kind in rows for name in re.findall("`([^`]+)`", names)}
        found.update(dict.fromkeys(heading.split(", "), fields))
    return found


FIELDS = _read_fields()
"""For each command, its fields and their types."""


def find_differences(value: Any, fields: dict[str, str], path: str = "") -> Iterator[str]:
    """Yield where a document differs from the fields that are described."""
    kinds = fields.get(path, "any").removesuffix(", optional").split(" or ")
    if kinds != ["any"] and not (value is None and "null" in kinds) and _TYPES.get(type(value)) not in kinds:
        yield f"{path} is {value!r}, and not {kinds}"
    if isinstance(value, list):
        for each in value:
            yield from find_differences(each, fields, f"{path}[]")
    prefix = f"{path}." if path else ""
    below = {name for name in fields if name.startswith(prefix) and re.fullmatch(r"\w+", name[len(prefix) :])}
    if isinstance(value, dict) and below:
        names = {prefix + name for name in value}
        yield from (f"{name} is not described" for name in sorted(names - below))
        yield from (f"{name} is missing" for name in sorted(below - names) if "optional" not in fields[name])
        for name in names & below:
            yield from find_differences(value[name[len(prefix) :]], fields, name)


def check(command: str, document: Any) -> None:
    """Assert that a document has the fields of a command."""
    assert list(find_differences(document, FIELDS[command])) == [], command


def run(command: str, *arguments: object, code: int = 0) -> Any:
    """Run a command, compare what it prints with the page, and return it."""
    done = streamrt(*command.split(), *arguments, "--json")
    assert done.code == code, done
    document = json.loads(done.out)
    check(command, document)
    return document
