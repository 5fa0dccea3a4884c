"""Aggregates of a whole stream, in two phases."""

import random
from statistics import pstdev
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ArgumentValueError, InvalidOperationError
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from streamrt.windows import (
    Aggregator,
    AnyValue,
    ApproxCountDistinct,
    Collect,
    Count,
    CountDistinct,
    Earliest,
    First,
    Last,
    Max,
    MaxBy,
    Mean,
    StandardDeviation,
    Sum,
)

pytestmark = pytest.mark.usefixtures("processing_mode")


def make_app(**settings: Any) -> Application:
    return Application("unused:9092", consumer_group="whole", **settings)


def define(app: Application, partitions: int) -> None:
    numbers = app.dataframe(app.topic("in", config=TopicConfig(partitions, 1)))
    table = numbers.agg_all(
        n=Count(),
        total=Sum("x"),
        most=Max("x"),
        mean=Mean("x"),
        even=Count(where=lambda row: row["x"] % 2 == 0),
        first=Earliest("x"),
        same=AnyValue("same"),
        deviation=StandardDeviation("x", of="population"),
        best=MaxBy("x", by="x"),
    )
    table.to_stream("both").to_topic(app.topic("out"))


def expected(rows: list[tuple[int, int]]) -> dict[str, Any]:
    numbers = [x for _, x in rows]
    return {
        "n": len(numbers),
        "total": sum(numbers),
        "most": max(numbers),
        "mean": sum(numbers) / len(numbers),
        "even": sum(x % 2 == 0 for x in numbers),
        "first": min(rows)[1],
        "same": "s",
        "deviation": pstdev(numbers),
        "best": max(numbers),
    }


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_parts_are_merged(partitions: int, guarantee: Any) -> None:
    dice = random.Random(partitions)
    app = make_app(processing_guarantee=guarantee)
    define(app, partitions)
    driver = TopologyTestDriver(app)
    rows: list[tuple[int, int]] = []
    row = None
    for number in range(60):
        x = dice.randrange(-50, 50)
        rows.append((number, x))
        driver.pipe("in", {"x": x, "same": "s"}, timestamp=number, partition=dice.randrange(partitions))
        if dice.random() < 0.2:
            # Nothing is passed on before its time.
            assert driver.read("out") == []
            driver.advance(100)
            for record in driver.read("out"):
                assert (record.raw_key, record.value["before"]) == (b"all", row)
                row = record.value["after"]
            assert row == pytest.approx(expected(rows))
    driver.end()
    for record in driver.read("out"):
        row = record.value["after"]
    assert row == pytest.approx(expected(rows))


def test_few_records_pass_the_topic() -> None:
    app = make_app()
    define(app, 4)
    driver = TopologyTestDriver(app)
    for number in range(100):
        driver.pipe("in", {"x": number, "same": "s"}, partition=number % 4)
    driver.advance(100)
    assert len(driver.read("out")) == 4


class Product(Aggregator):
    def initialize(self) -> int:
        return 1

    def agg(self, old: Any, new: Any, timestamp: int) -> Any:
        return old * new

    def result(self, value: Any) -> Any:
        return value


def test_what_is_refused() -> None:
    sdf = make_app().dataframe(make_app().topic("in"))
    for aggregator, text in (
        (First("x"), "no order of arrival"),
        (Last("x"), "no order of arrival"),
        (Collect("x"), "for ever"),
        (CountDistinct("x"), "ApproxCountDistinct can be merged"),
        (Product("x"), r"define merge\(a, b\) in Product"),
    ):
        with pytest.raises(InvalidOperationError, match=text):
            sdf.agg_all(found=aggregator)
    with pytest.raises(ArgumentValueError, match="at least one aggregation"):
        sdf.agg_all()
    with pytest.raises(ArgumentValueError, match="every"):
        sdf.agg_all(n=Count(), every=-1)


def test_two_of_them_have_names() -> None:
    app = make_app()
    sdf = app.dataframe(app.topic("in"))
    sdf.agg_all(n=Count())
    with pytest.raises(InvalidOperationError, match=r"agg_all\('\.\.\.', total=\.\.\.\)"):
        sdf.agg_all(n=Count())
    pytest.importorskip("datasketches")
    sdf.agg_all("users", users=ApproxCountDistinct("user")).to_stream().to_topic(app.topic("out"))
    driver = TopologyTestDriver(app)
    for number in range(10):
        driver.pipe("in", {"user": number % 5})
    driver.end()
    assert driver.read("out")[-1].value == {"users": 5}
