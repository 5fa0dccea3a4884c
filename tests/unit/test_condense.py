"""`condense`: several changes of a row become one."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application
from streamrt.config import ProcessingGuarantee
from streamrt.dataframe import StreamingTable
from streamrt.errors import InvalidOperationError, ProcessingError
from streamrt.relations import condense
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows import Count, Max, Sum

pytestmark = pytest.mark.usefixtures("processing_mode")


def make_app(guarantee: ProcessingGuarantee = "exactly-once", **settings: Any) -> Application:
    return Application("unused:9092", consumer_group="condense", processing_guarantee=guarantee, **settings)


def make_totals(app: Application) -> StreamingTable[Any]:
    """Return the sum of the numbers of each key."""
    return app.dataframe(app.topic("in")).agg(total=Sum("n"))


def feed(driver: TopologyTestDriver, *rows: tuple[str, int], chunk: int = 100) -> None:
    records = [InputRecord("in", {"n": n}, key=key, timestamp=at) for at, (key, n) in enumerate(rows, 10)]
    driver.pipe_many(records, chunk=chunk)


def outputs(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    return [(each.key, each.value["total"], each.timestamp) for each in driver.read("out")]


def test_changes_of_a_commit_become_one_for_each_key() -> None:
    app = make_app()
    make_totals(app).condense().to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        feed(driver, ("a", 1), ("b", 5), ("a", 2), ("a", 3))
        assert outputs(driver) == [(b"a", 6, 13), (b"b", 5, 11)]
        feed(driver, ("b", 1), ("a", 1), chunk=1)
        assert outputs(driver) == [(b"b", 6, 10), (b"a", 7, 11)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_row_that_is_what_it_was_is_passed_on_at_least_once(guarantee: ProcessingGuarantee) -> None:
    """After a crash, it may be the news that is missing below."""
    app, seen = make_app(guarantee), []

    def note(row: Any) -> Any:
        seen.append(row["total"])
        return row

    make_totals(app).condense().apply(note).to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        feed(driver, ("a", 1))
        seen.clear()
        feed(driver, ("a", 1), ("a", -1))
        assert seen == ([] if guarantee == "exactly-once" else [1, 1])


def test_what_is_below_sees_the_last_rows_only() -> None:
    app, seen = make_app(), []

    def note(row: Any) -> Any:
        seen.append(row["total"])
        return row

    highest = make_totals(app).condense().apply(note).group_by(lambda row: row["total"] % 2, "parity")
    highest.agg(most=Max("total"), keys=Count()).to_stream().to_topic(app.topic("out", key_serializer="json"))
    with TopologyTestDriver(app) as driver:
        feed(driver, *(("a", 1) for _ in range(7)))
        assert seen == [7]
        assert [each.value for each in driver.read("out")] == [{"parity": 1, "most": 7, "keys": 1}]


def test_many_keys_are_passed_on_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condense, "_MOST", 2)
    app = make_app()
    make_totals(app).condense().to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        feed(driver, ("a", 1), ("b", 1), ("a", 1), ("a", 1))
        assert outputs(driver) == [(b"a", 1, 10), (b"b", 1, 11), (b"a", 3, 13)]


def test_an_application_that_skips_records_holds_nothing() -> None:
    app = make_app(on_processing_error=lambda *_: True)

    def check(row: Any) -> Any:
        if row["total"] == 3:
            raise ValueError("three")
        return row

    make_totals(app).condense().apply(check).to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        feed(driver, ("a", 1), ("a", 2), ("a", 4))
        assert outputs(driver) == [(b"a", 1, 10), (b"a", 5, 12)]


def test_an_error_below_names_the_record() -> None:
    app = make_app()
    shares = make_totals(app).condense().apply(lambda row: {"share": 1 / (row["total"] - 2)})
    shares.to_stream().to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver, pytest.raises(ProcessingError, match=r"in\[0\] at offset 2"):
        feed(driver, ("a", 1), ("b", 1), ("a", 1))


def test_rows_need_keys() -> None:
    app = make_app()
    left, right = (app.dataframe(app.topic(name)).agg(total=Sum("n")) for name in ("in", "other"))
    with pytest.raises(InvalidOperationError, match="condense"):
        left.join(right, on=("total", "total"), on_merge="keep-left").condense()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_are_those_without_it(guarantee: ProcessingGuarantee) -> None:
    """Also behind several of them, on two ways to one join."""
    chance = random.Random(1)
    rows = [(chance.choice("abcdef"), chance.randint(-3, 3)) for _ in range(300)]

    def run(held: Callable[[StreamingTable[Any]], StreamingTable[Any]]) -> dict[Any, Any]:
        app = make_app(guarantee)
        totals = held(make_totals(app))
        counts = held(totals.group_by("total").agg(keys=Count()))
        joined = totals.join(counts, on=("total", "total"), on_merge="keep-left")
        rows_of_totals = held(joined.group_by("total").agg(rows=Count(), keys=Max("keys")))
        rows_of_totals.to_stream().to_topic(app.topic("out", key_serializer="json"))
        with TopologyTestDriver(app) as driver:
            feed(driver, *rows, chunk=37)
            found = {each.key: each.value for each in driver.read("out")}
            return {key: row for key, row in found.items() if row is not None}

    assert run(lambda table: table.condense()) == run(lambda table: table)
