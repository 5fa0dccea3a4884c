"""Suites of queries: each is a view of an application of its own, compared with DuckDB after each chunk of changes."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from streamrt.errors import SQLError
from streamrt.schema import Schema
from tests.sql.bags import compare_bags
from tests.sql.worlds import Batch, Change, Guarantee, Row, World

__all__ = ["Outcome", "Query", "Suite", "describe_outcomes", "describe_refusals", "run_suite"]

Answers = dict[str, list[list[Row]] | str]
"""The rows of queries after each chunk, or why there are none to compare with."""
Kind = Literal["passed", "refused", "wrong", "failed", "unchecked"]


class Query(NamedTuple):
    """A query with its name.

    Attributes:
        name: its name in the suite.
        text: its text.
        columns: names for its columns, if they have none of their own.
        answer: checks the last rows in a further way, such as against those that come with the suite; returns a fault.
        closes: whether rows come when windows are over; they are compared at the end of time.
    """

    name: str
    text: str
    columns: tuple[str, ...] = ()
    answer: Callable[[Sequence[Row]], str | None] | None = None
    closes: bool = False


@dataclass(frozen=True)
class Suite:
    """Queries over tables that change.

    Attributes:
        name: its name.
        tables: schemas by the names of tables.
        queries: the queries.
        chunks: what is changed between two comparisons.
        answer: returns the rows of queries after each chunk; by default DuckDB's, for the same queries.
        convert: makes a value of a view one of these rows.
    """

    name: str
    tables: dict[str, Schema]
    queries: list[Query]
    chunks: list[list[Change]] = field(repr=False)
    answer: Callable[[Sequence[Query]], "Answers"] | None = None
    convert: Callable[[Any], Any] = lambda value: value


class Outcome(NamedTuple):
    """What became of a query.

    Attributes:
        query: its name.
        kind: "passed" after comparisons of all chunks, "refused" before anything ran, with the position; "wrong" if rows
            differ; "failed" if anything else was raised; "unchecked" if DuckDB cannot compute the same.
        detail: the sentence of a refusal, the rows that differ, or the error.
        seconds: time that the view took.
        rows: number of its rows at the end.
    """

    query: str
    kind: Kind
    detail: str = ""
    seconds: float = 0.0
    rows: int = 0


def run_suite(
    suite: Suite, only: Sequence[str] = (), guarantee: Guarantee = "exactly-once", partitions: int = 2
) -> Iterator[Outcome]:
    """Run the queries of a suite, one after the other.

    Args:
        suite: the suite.
        only: names of the queries to run; by default all.
        guarantee: the processing guarantee.
        partitions: number of partitions of each table.
    """
    queries = [query for query in suite.queries if not only or query.name in only]
    answers = suite.answer(queries) if suite.answer is not None else _compute_answers(suite, queries)
    for query in queries:
        yield _run_query(suite, query, answers[query.name], guarantee, partitions)


def describe_outcomes(outcomes: Iterable[Outcome], seconds: float) -> str:
    """Return a line for the outcomes: how many of each kind."""
    counts = Counter(outcome.kind for outcome in outcomes)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "refused", "wrong", "failed", "unchecked"))
    return f"{kinds} ({seconds:.0f} s)"


def describe_refusals(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a line for each reason for which queries were refused, and how many."""
    reasons = Counter(each.detail.partition(": ")[2] for each in outcomes if each.kind == "refused")
    return [f"{count} refused: {reason}" for reason, count in reasons.most_common()]


def _compute_answers(suite: Suite, queries: Sequence[Query]) -> Answers:
    """Return the rows of each query after each chunk, or why DuckDB has none."""
    answers: Answers = {query.name: [] for query in queries}
    batch = Batch(suite.tables)
    for chunk in suite.chunks:
        batch.apply(chunk)
        for query in queries:
            rows = answers[query.name]
            if isinstance(rows, list):
                try:
                    rows.append(batch.rows(query.text, query.columns))
                except Exception as error:
                    answers[query.name] = f"DuckDB: {error}"
    return answers


def _run_query(
    suite: Suite, query: Query, answers: list[list[Row]] | str, guarantee: Guarantee, partitions: int
) -> Outcome:
    started = time.perf_counter()
    try:
        world = World(suite.tables, query.text, query.columns, guarantee, partitions)
    except SQLError as error:
        return Outcome(query.name, "refused", str(error), time.perf_counter() - started)
    except Exception as error:
        return Outcome(query.name, "failed", f"{type(error).__name__}: {error}")
    rows: list[Row] = []
    with world:
        for number, chunk in enumerate(suite.chunks):
            try:
                world.feed([change for change in chunk if change.table in world.read_tables])
                rows = world.rows()
            except Exception as error:
                return Outcome(query.name, "failed", f"chunk {number}: {type(error).__name__}: {error}")
            is_last = number == len(suite.chunks) - 1
            if query.closes and is_last:
                world.driver.end()
                rows = world.rows()
            if isinstance(answers, str) or (query.closes and not is_last):
                continue
            difference = compare_bags(answers[number], [tuple(map(suite.convert, row)) for row in rows])
            if difference is not None:
                return Outcome(query.name, "wrong", f"chunk {number}: {difference.describe()}", rows=len(rows))
    seconds = time.perf_counter() - started
    fault = query.answer(rows) if query.answer is not None else None
    if fault is not None:
        return Outcome(query.name, "wrong", fault, seconds, len(rows))
    if isinstance(answers, str) and query.answer is None:
        return Outcome(query.name, "unchecked", answers, seconds, len(rows))
    return Outcome(query.name, "passed", "", seconds, len(rows))
