"""Recorded cases of an Apache Fluss cluster, which StreamRT's tables answer in the same way: see `tests.oracle.fluss`."""

import pytest

from tests.oracle.fluss.compare import differences
from tests.oracle.fluss.ours import run
from tests.oracle.fluss.recorded import NUMBERS, load


def replay(kind: str) -> None:
    cases = list(load(kind))
    assert len(cases) == NUMBERS[kind]
    for case, answers in cases:
        assert differences(case, answers, run(case)) == [], f"{kind} {case['seed']}"


@pytest.mark.slow
@pytest.mark.rows("FL-050", "FL-051", "FL-060", "FL-061", "FL-062", "FL-063", "FL-064")
@pytest.mark.rows(
    "FL-070", "FL-071", "FL-072", "FL-073", "FL-074", "FL-080", "FL-084", "FL-086", "FL-088", "FL-089", "FL-090"
)
@pytest.mark.rows(
    "FL-101", "FL-103", "FL-104", "FL-105", "FL-107", "FL-108", "FL-155", "FL-156", "FL-157", "FL-158", "FL-159"
)
@pytest.mark.rows("FL-040", "FL-172", "FL-174")
def test_log_tables() -> None:
    replay("log")


@pytest.mark.slow
@pytest.mark.rows("FL-081", "FL-119")
def test_tables_with_a_key() -> None:
    replay("keyed")


@pytest.mark.slow
@pytest.mark.rows("FL-052", "FL-053", "FL-067", "FL-068", "FL-069", "FL-075", "FL-076", "FL-077", "FL-079")
@pytest.mark.rows("FL-160", "FL-161", "FL-162", "FL-163", "FL-164", "FL-171", "FL-172")
def test_tables_with_a_primary_key() -> None:
    replay("primary")


@pytest.mark.slow
@pytest.mark.rows("FL-165", "FL-166", "FL-167", "FL-169")
def test_tables_with_merge_rules() -> None:
    replay("maintained")


@pytest.mark.slow
@pytest.mark.rows("FL-070", "FL-104", "FL-115", "FL-172")
def test_values_of_each_type() -> None:
    replay("types")


@pytest.mark.slow
@pytest.mark.rows(
    "FL-023", "FL-024", "FL-030", "FL-031", "FL-032", "FL-033", "FL-034", "FL-035", "FL-036", "FL-037", "FL-038"
)
@pytest.mark.rows(
    "FL-039", "FL-110", "FL-116", "FL-118", "FL-119", "FL-120", "FL-124", "FL-126", "FL-127", "FL-128", "FL-129"
)
@pytest.mark.rows("FL-131", "FL-132", "FL-133", "FL-134", "FL-136", "FL-137", "FL-139", "FL-141", "FL-143", "FL-144")
def test_databases_and_tables() -> None:
    replay("admin")
