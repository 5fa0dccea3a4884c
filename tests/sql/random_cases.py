"""Random cases: tables with keys and without, changes of their rows in chunks, and a query for a view over them."""

import random
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from streamrt.errors import SQLError
from streamrt.schema import Schema
from tests.sql.bags import compare_bags
from tests.sql.random_queries import TYPES, Column, QueryMaker
from tests.sql.random_windows import EVENTS, Closing, make_closing, make_events
from tests.sql.worlds import VIEW, Batch, Change, Guarantee, World

__all__ = ["Case", "Result", "make_case", "run_case", "shrink_case"]

_VALUES: dict[str, tuple[Any, ...]] = {
    "BIGINT": (0, 1, 2, 3, -1),
    "INT": (0, 1, 2, 3, -2),
    "STRING": ("a", "b", "", "abc", "A"),
    "DOUBLE": (0.0, -0.0, 0.25, -1.5, 2.0),
    "DECIMAL(10, 2)": (Decimal("0.00"), Decimal("1.25"), Decimal("-3.50"), Decimal("10.01")),
    "BOOLEAN": (True, False),
    "DATE": (date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)),
    "TIMESTAMP": tuple(datetime(2024, 2, 28, 23, 59, 48) + timedelta(seconds=3 * n) for n in range(6)),
}


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        seed: what it was made of.
        tables: schemas by the names of tables.
        query: the text of the view.
        chunks: changes that are committed together.
        closing: what windows with one result must give, if there are some.
    """

    seed: int
    tables: dict[str, Schema]
    query: str
    chunks: list[list[Change]]
    closing: Closing | None = None


@dataclass(frozen=True)
class Result:
    """What became of a case: "passed", "refused", "wrong", "failed" or "unchecked", and the reason."""

    kind: str
    detail: str = ""


def make_case(seed: int) -> Case:
    """Return the case of a seed."""
    source = random.Random(seed)
    if seed % 4 == 0:
        query, closing = make_closing(source)
        return Case(seed, {EVENTS: closing.schema}, query, make_events(source, closing, _VALUES), closing)
    tables, columns = {}, {}
    for number in range(source.choice((1, 2, 2, 3))):
        name = f"r{number}"
        types = source.sample(TYPES, source.randint(2, 4))
        if seed % 4 == 3 and "TIMESTAMP" not in types:
            types[0] = "TIMESTAMP"
        columns[name] = (Column("k", "BIGINT"), *(Column(f"v{n}", type_) for n, type_ in enumerate(types)))
        is_keyed = source.random() < 0.6
        key = ", PRIMARY KEY (k)" if is_keyed else ""
        tables[name] = Schema(", ".join(f"{column.name} {column.type}" for column in columns[name]) + key)
    query, _ = QueryMaker(source, columns, "often" if seed % 4 == 3 else "seldom").make_query()
    chunks = [
        [_make_change(source, tables, columns, 100 * number + n) for n in range(source.randint(1, 6))]
        for number in range(source.randint(2, 6))
    ]
    return Case(seed, tables, query, chunks)


def _make_change(
    source: random.Random, tables: dict[str, Schema], columns: dict[str, tuple[Column, ...]], time: int
) -> Change:
    table = source.choice(sorted(tables))
    is_keyed = bool(tables[table].primary_key)
    key = source.randrange(5)
    if is_keyed and source.random() < 0.25:
        return Change(table, key, None, time)
    row: dict[str, Any] = {"k": key if is_keyed or source.random() < 0.8 else None}
    for name, type_ in columns[table][1:]:
        row[name] = None if source.random() < 0.25 else source.choice(_VALUES[type_])
    return Change(table, key if is_keyed else None, row, time)


def run_case(case: Case, guarantee: Guarantee = "exactly-once", partitions: int = 2) -> Result:
    """Run a case in the test driver, and compare the view with DuckDB after each chunk, or when all windows are over."""
    if case.closing is not None:
        return _run_closing(case, case.closing, guarantee)
    try:
        world = World(case.tables, case.query, guarantee=guarantee, partitions=partitions)
    except SQLError as error:
        return Result("refused", str(error))
    except Exception as error:
        return Result("failed", f"{type(error).__name__}: {error}")
    batch = Batch(case.tables)
    with world:
        for number, chunk in enumerate(case.chunks):
            try:
                world.feed([change for change in chunk if change.table in world.read_tables])
                rows = world.rows()
            except Exception as error:
                return Result("failed", f"chunk {number}: {type(error).__name__}: {error}")
            batch.apply(chunk)
            try:
                expected = batch.rows(case.query)
            except Exception as error:
                return Result("unchecked", f"DuckDB: {error}")
            difference = compare_bags(expected, rows)
            if difference is not None:
                return Result("wrong", f"chunk {number}: {difference.describe()}")
    return Result("passed")


def _run_closing(case: Case, closing: Closing, guarantee: Guarantee) -> Result:
    try:
        world = World(
            case.tables, case.query, guarantee=guarantee, partitions=closing.partitions, options=closing.options
        )
    except SQLError as error:
        return Result("refused", str(error))
    except Exception as error:
        return Result("failed", f"{type(error).__name__}: {error}")
    with world:
        try:
            for chunk in case.chunks:
                world.feed(chunk)
            found = world.driver.verify(VIEW)
            world.driver.end()
            rows = world.rows()
            at_end = world.driver.verify(VIEW)
        except Exception as error:
            return Result("failed", f"{type(error).__name__}: {error}")
    try:
        expected = closing.expect(change for chunk in case.chunks for change in chunk)
    except Exception as error:
        return Result("unchecked", f"DuckDB: {error}")
    difference = compare_bags(expected, rows)
    if difference is not None:
        return Result("wrong", difference.describe())
    if not (found.equal and at_end.equal):
        return Result("wrong", f"verify: {at_end if found.equal else found}")
    return Result("passed")


def shrink_case(case: Case, kind: str) -> Case:
    """Return a case with fewer changes that still ends in the same way."""
    chunks = [[change] for chunk in case.chunks for change in chunk]
    if run_case(replace(case, chunks=chunks)).kind != kind:
        return case
    case = replace(case, chunks=chunks)
    for index in reversed(range(len(chunks))):
        smaller = replace(case, chunks=case.chunks[:index] + case.chunks[index + 1 :])
        if smaller.chunks and run_case(smaller).kind == kind:
            case = smaller
    return case
