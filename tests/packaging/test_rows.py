"""The pages of rows of other systems fit the tests."""

import pytest

from tests import rows

ALL = [row for page in rows.PAGES for section in page.sections() for row in section.rows]
PYFLINK = dict(zip("ABCDEFGHIJKLMNO", (20, 15, 15, 9, 18, 20, 40, 3, 10, 14, 6, 17, 17, 5, 4), strict=True))
"""How many rows each group of PyFlink's interface has."""


def test_ids_are_unique() -> None:
    ids = [row.id for row in ALL]
    assert len(ids) == len(set(ids))


def test_tests_name_rows_that_exist() -> None:
    known = {row.id for row in ALL}
    assert {each: tests for each, tests in rows.shown_by().items() if each not in known} == {}


def test_no_row_of_pyflink_is_missing() -> None:
    wanted = [f"PF-{group}{number}" for group, count in PYFLINK.items() for number in range(1, count + 1)]
    assert [row.id for row in ALL if row.id.startswith("PF-")] == wanted


@pytest.mark.parametrize("page", rows.PAGES, ids=lambda page: page.path.name)
def test_page_is_up_to_date(page: rows.Page) -> None:
    made = page.path.read_text(encoding="utf-8") == page.text()
    assert made, f"{page.path} is out of date: run `python -m tests.rows`"
