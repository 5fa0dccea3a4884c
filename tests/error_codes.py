"""Writes `docs/error-codes.md` from what `streamrt explain` says: `python -m tests.error_codes`."""

import textwrap
from itertools import groupby
from pathlib import Path

from streamrt.cli.diagnosis.explain import read_explanations

__all__ = ["PAGE", "make_page"]

_WIDTH = 160
PAGE = Path(__file__).parents[1] / "docs" / "error-codes.md"
_HEAD = """# Error codes

For those who have the code of an error, such as E704, or its class, and want to know what causes it and what to do.
[`streamrt explain E704`](cli.md#explain) prints the same, without a network. What happens to records when an error ends
an application is in [errors](errors.md). `python -m tests.error_codes` makes this page.

A code stays with its class: no other class ever gets it, even when the first one is gone. A class without a code of its
own, such as those of connectors and yours, has that of its parent.

| codes | errors |
|---|---|
"""


def make_page() -> str:
    """Return what the page should be."""
    groups = [(title, list(entries)) for title, entries in groupby(read_explanations(), lambda each: each.group)]
    ranges = [(" to ".join(dict.fromkeys((entries[0].code, entries[-1].code))), title) for title, entries in groups]
    parts = [_HEAD, *(f"| {codes} | {title} |\n" for codes, title in ranges)]
    for title, entries in groups:
        parts.append(f"\n## {title}\n")
        for each in entries:
            lines = (
                textwrap.fill(line, _WIDTH, break_on_hyphens=False) for line in (each.summary, *each.text.splitlines())
            )
            paragraphs = "\n\n".join(lines)
            parts.append(f"\n### {each.code} {each.name}\n\n{paragraphs}\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
