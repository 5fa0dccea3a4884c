"""The page of rows of other systems fits the tests."""

from tests import rows

ALL = [row for section in rows.sections() for row in section.rows]


def test_ids_are_unique() -> None:
    ids = [row.id for row in ALL]
    assert len(ids) == len(set(ids))


def test_tests_name_rows_that_exist() -> None:
    known = {row.id for row in ALL}
    assert {each: tests for each, tests in rows.shown_by().items() if each not in known} == {}


def test_page_is_up_to_date() -> None:
    made = rows.PAGE.read_text(encoding="utf-8") == rows.page()
    assert made, "docs/table-rows.md is out of date: run `python -m tests.rows`"
