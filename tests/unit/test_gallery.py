"""The gallery of examples is what the examples give."""

import pytest

from tests.example_programs import EXAMPLES
from tests.gallery import GROUPS, PAGE, page_text


def test_each_example_is_in_one_group() -> None:
    shown = [name for names in GROUPS.values() for name in names]
    assert sorted(shown) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    made = PAGE.read_text(encoding="utf-8") == page_text()
    assert made, f"{PAGE} is out of date: run `python -m tests.gallery`"
