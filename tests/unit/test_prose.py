"""Phrases that read as translated, and long lines of docs."""

import pytest

from tests.weigh import LONGEST_LINE, ROOT, find_long_lines, find_phrases, find_strings

BETTER = {
    '"is no" before a noun': '"is not a"; "there is no" is right',
    '"alone" for only': '"only", "on its own"',
    '"texts"': '"strings", "text", "messages"',
    '"beside" for next to': '"next to", "alongside", "as well as"',
    '", too" at the end': '"also" or "as well" in its place',
    '"then" at the end': 'begin with "Then", or name the moment',
    '"whoever", "nobody", "anew"': '"the caller that", "no one", "again"',
    '"comes again"': 'say what happens: "is delivered again", "is read again", "is written again"',
}
"""Replacements, by name in `PHRASES`."""


@pytest.mark.slow
def test_phrases_that_read_as_translated() -> None:
    assert [f"{place}: {name}: {BETTER[name]}" for place, name in find_phrases(ROOT, BETTER)] == []


@pytest.mark.slow
def test_strings_that_read_as_translated() -> None:
    name = '"is no" before a noun'
    assert [f"{place}: {name}: {BETTER[name]}" for place in find_strings(ROOT, name)] == []


def test_long_lines_of_docs() -> None:
    assert [f"{place}: wrap it at {LONGEST_LINE} characters or before" for place in find_long_lines(ROOT)] == []
