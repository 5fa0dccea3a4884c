"""`streamrt explain`: what an error means, by its code or the name of its class."""

import difflib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamrt import errors
from streamrt.cli.output import JsonOption, echo, examples, print_json, print_table
from streamrt.errors import ConfigurationError, StreamRTError

__all__ = ["EXAMPLES", "Explanation", "explain", "read_explanations"]

EXAMPLES = examples("streamrt explain E704", "streamrt explain StoreLockedError", "streamrt explain")
_TEXTS = Path(__file__).with_name("error_codes.md")
"""For each class, in groups: its name as a heading, and paragraphs in Markdown. Links are relative to `docs`."""
_LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)")
_WIDTH = 100


@dataclass(frozen=True)
class Explanation:
    """What an error means, its usual causes, and what to do.

    Attributes:
        code: its code.
        name: name of its class.
        summary: what it means, in one sentence.
        group: title of the group of errors to which it belongs.
        text: paragraphs in Markdown, one in each line.
    """

    code: str
    name: str
    summary: str
    group: str
    text: str

    def lines(self) -> list[str]:
        """Return the lines for a terminal."""
        plain = _LINK.sub(r"\1 (docs/\2)", self.text).replace("**", "")
        paragraphs = (
            textwrap.wrap(line, _WIDTH, break_on_hyphens=False) for line in (self.summary, *plain.splitlines())
        )
        return [f"{self.code} {self.name}", *(line for paragraph in paragraphs for line in paragraph)]


def explain(
    error: Annotated[
        str | None,
        typer.Argument(help="A code or a class, such as E704 or StoreLockedError; without it, all are listed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what an error means, what causes it, and what to do.

    It needs neither a network nor a broker.
    """
    known = read_explanations()
    if error is not None:
        found = _find_explanation(error, known)
        if as_json:
            print_json(asdict(found))
        else:
            echo("\n".join(found.lines()))
    elif as_json:
        print_json({"errors": [asdict(each) for each in known]})
    else:
        print_table(("CODE", "ERROR", "MEANING"), [(each.code, each.name, each.summary) for each in known])


def read_explanations() -> list[Explanation]:
    """Return what is known of all errors that have a code, in the order of their codes."""
    return sorted(_parse_page(_TEXTS.read_text(encoding="utf-8")), key=lambda each: each.code)


def _parse_page(page: str) -> Iterator[Explanation]:
    for group in page.split("\n## ")[1:]:
        title, *entries = group.split("\n### ")
        for entry in entries:
            name, _, text = entry.partition("\n")
            kind = _class_of(name)
            summary = (inspect.getdoc(kind) or "").partition("\n")[0]
            paragraphs = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
            yield Explanation(kind.error_code, name, summary, title.strip(), "\n".join(paragraphs))


def _class_of(name: str) -> type[StreamRTError]:
    from streamrt import kafka

    # The clients of Kafka have one error of their own.
    kind: type[StreamRTError] = getattr(errors, name, None) or getattr(kafka, name)
    return kind


def _find_explanation(wanted: str, known: list[Explanation]) -> Explanation:
    names = {word.lower(): each for each in known for word in (each.code, each.name)}
    if found := names.get(wanted.lower()):
        return found
    near = [names[word] for word in difflib.get_close_matches(wanted.lower(), names, 3)]
    advice = (
        f"; did you mean {' or '.join(f'{each.code} ({each.name})' for each in dict.fromkeys(near))}?" if near else ""
    )
    raise ConfigurationError(f"there is no error {wanted!r}{advice or ':'} `streamrt explain` lists all")
