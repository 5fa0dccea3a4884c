"""`sdf.over()`: records with aggregates of the records of their key before them."""

import random
from datetime import timedelta
from typing import Any

import pytest

from streamrt import WatermarkStrategy
from streamrt.errors import InvalidOperationError, ProcessingError
from streamrt.testing import InputRecord
from streamrt.windows import Collect, Count, DenseRank, Earliest, Lag, Last, Lead, Mean, NthValue, Rank, RowNumber, Sum
from tests.unit.apps import Stage

pytestmark = pytest.mark.usefixtures("processing_mode")


def test_the_last_rows_of_a_key() -> None:
    stage = Stage()
    stage.sdf.group_by("seller").over(rows=2).agg(average=Mean("price"), prices=Collect("price"))
    headers = [("h", b"1")]
    outputs = stage.outputs(
        *({"seller": seller, "price": price} for seller, price in ((1, 10), (2, 7), (1, 20), (1, 40))),
        timestamp=5,
        headers=headers,
    )
    assert outputs == [
        ({"seller": 1, "price": 10, "average": 10.0, "prices": [10]}, 1, 5, headers),
        ({"seller": 2, "price": 7, "average": 7.0, "prices": [7]}, 2, 5, headers),
        ({"seller": 1, "price": 20, "average": 15.0, "prices": [10, 20]}, 1, 5, headers),
        ({"seller": 1, "price": 40, "average": 30.0, "prices": [20, 40]}, 1, 5, headers),
    ]


PLACES = {
    "number": RowNumber(),
    "rank": Rank(),
    "dense": DenseRank(),
    "lag": Lag("n", 2, default=-1),
    "nth": NthValue("n", 2),
}


def expected(records: list[tuple[str, int]], within: tuple[str, int], order: str, grace: int) -> tuple[list[str], int]:
    """What comes out, from the definition; and how many records are late."""
    kind, size = within
    kept, late, clock = [], 0, -1
    for number, (key, time) in enumerate(records):
        clock = max(clock, time)
        if time < clock - grace and (kind == "range" or order == "time"):
            late += 1
        else:
            kept.append((key, time, number))
    if order == "time":
        kept.sort(key=lambda record: record[1])
    found = []
    for place, (key, time, number) in enumerate(kept):
        before = rows = [each for each in kept[: place + 1] if each[0] == key]
        peers = [each for each in kept[place + 1 :] if each[0] == key and each[1] == time] if order == "time" else []
        if kind == "rows":
            before = before[-size:]
        elif kind == "range":
            near = (each for each in (*before, *peers) if time - size <= each[1] <= time)
            before = sorted(near, key=lambda each: each[1])
        else:
            before = [*before, *peers]
        numbers = [each[2] for each in before]
        first = min(before, key=lambda each: each[1])[2]
        values: dict[str, Any] = {"n": number, "sum": sum(numbers), "last": numbers[-1], "first": first}
        if kind == "all":
            ranks = [each[1] for each in rows] if order == "time" else range(len(rows))
            values |= {"number": len(rows), "rank": list(ranks).index(ranks[-1]) + 1, "dense": len(set(ranks))}
            values |= {"lag": rows[-3][2] if len(rows) > 2 else -1, "nth": numbers[1] if len(numbers) > 1 else None}
        else:
            values["all"] = numbers
        found.append((key, time, sorted(values.items())))
    return [repr(each) for each in found], late


@pytest.mark.parametrize("order", ["arrival", "time"])
@pytest.mark.parametrize("kind", ["rows", "range", "all"])
def test_aggregates_are_those_of_the_definition(kind: str, order: Any) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        size, grace = rng.choice((1, 3, 20)), rng.choice((0, 5, 20))
        now, records = 0, []
        for _ in range(60):
            now += rng.choice((0, 0, 1, 3, 12))
            records.append((rng.choice("abc"), max(1, now - rng.choice((0, 0, 2, 9, 30)))))
        stage = Stage({"key_deserializer": "str"}, processing_guarantee=rng.choice(("at-least-once", "exactly-once")))
        closes = order == "time" or kind == "range"
        lenient = {"grace_ms": grace, "closing_strategy": "partition"} if closes else {}
        within = {} if kind == "all" else {kind: size}
        over = stage.sdf.over(**within, order=order, **lenient)  # type: ignore[arg-type]
        more = PLACES if kind == "all" else {"all": Collect("n")}
        frame = over.agg(sum=Sum("n"), last=Last("n"), first=Earliest("n"), **more)
        frame.apply(lambda value, key, timestamp, headers: repr((key, timestamp, sorted(value.items()))), metadata=True)
        with stage.drive() as driver:
            at = 0
            while at < len(records):
                count = rng.randrange(1, 12)
                driver.pipe_many(
                    InputRecord(stage.source, {"n": at + index}, key.encode(), timestamp)
                    for index, (key, timestamp) in enumerate(records[at : at + count])
                )
                at += count
            driver.end()
            found = [output[0] for output in driver.outputs()]
        results, late = expected(records, (kind, size), order, grace)
        assert len(found) + late == len(records)
        if order == "time":
            # Records of different keys with equal times have no order.
            found, results = (sorted(each, key=lambda text: (text.split(",")[1], text)) for each in (found, results))
        assert found == results, f"seed {seed}"


def test_in_the_order_of_the_watermark() -> None:
    stage = Stage({"watermark_strategy": WatermarkStrategy(out_of_orderness=5), "key_deserializer": "str"})
    late = stage.sdf.over(rows=2, order="time").agg(sum=Sum("n"))
    with stage.drive() as driver:
        for time in (10, 8, 12):
            driver.pipe(stage.source, {"n": time}, key="k", timestamp=time)
        assert driver.outputs() == []
        driver.pipe(stage.source, {"n": 16}, key="k", timestamp=16)
        assert [output[0] for output in driver.outputs()] == [{"n": 8, "sum": 8}, {"n": 10, "sum": 18}]
        driver.advance(timedelta(minutes=1))
        assert [output[0]["sum"] for output in driver.outputs()] == [22, 28]
    assert late.topics == stage.sdf.topics


@pytest.mark.parametrize("within", [{"rows": 9}, {}])
def test_a_record_that_fails_behind_the_order_is_skipped_and_no_other(within: dict[str, Any]) -> None:
    stage = Stage({"key_deserializer": "str"}, on_processing_error=lambda *_: True)
    ordered = stage.sdf.over(**within, order="time", grace_ms=0, closing_strategy="partition").agg(n=Count())
    ordered.apply(lambda value: value["x"] and 10 / value["x"])
    with stage.drive() as driver:
        for x in (1, "bad", 2, 5):
            driver.pipe(stage.source, {"x": x}, key="k", timestamp=10)
        for later in (20, 30, 40, 50):
            driver.pipe(stage.source, {"x": 0}, key="k", timestamp=later)
        assert [output[0] for output in driver.outputs()][:3] == [10, 5, 2]


def test_values_without_columns_and_records_without_a_key() -> None:
    stage = Stage()
    stage.sdf.over(range=timedelta(seconds=1), closing_strategy="partition").agg(n=Count())
    with stage.drive() as driver:
        driver.pipe(stage.source, {"n": 7}, key=None)
        driver.pipe(stage.source, {"n": 7}, key=b"k")
        assert [output[0] for output in driver.outputs()] == [{"n": 1}]
        with pytest.raises(ProcessingError, match=r"over\(\) adds columns to values that are dicts, got int"):
            driver.pipe(stage.source, 7, key=b"k")


def test_two_of_one_frame_need_a_name() -> None:
    stage = Stage()
    stage.sdf.over(rows=1).agg(n=Count())
    with pytest.raises(
        InvalidOperationError, match=r"give one of the two a name, such as over\(\.\.\., name='\.\.\.'\)"
    ):
        stage.sdf.over(rows=2).agg(n=Count())
    stage.sdf.over(rows=2, name="two").agg(n=Count())
    with pytest.raises(InvalidOperationError, match=r"agg\(n=RowNumber\(\)\) needs all records, over\(\) without rows"):
        stage.sdf.over(rows=2, name="three").agg(n=RowNumber())
    for function in (Lead("n"), Collect("n")):
        with pytest.raises(InvalidOperationError, match="needs more than a state of the records so far: give rows="):
            stage.sdf.over(name="three").agg(n=function)
    with pytest.raises(
        InvalidOperationError, match=r"needs grace_ms=\.\.\., how far a record may be behind the clock, or a"
    ):
        stage.sdf.over(rows=2, order="time", name="three").agg(n=Count())
