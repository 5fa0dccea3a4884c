"""`sdf.join()`: equal columns, internal topics, pairs and records without a match, through tasks as in production."""

import pickle
import random
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from streamrt import Application, StreamingDataFrame, Topic, WatermarkStrategy
from streamrt.errors import ConfigurationError, InvalidOperationError, ProcessingError
from streamrt.serializers import JSONSerializer, StringSerializer
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.topology.describe import as_text
from streamrt.windows import EventTimeSessions, SlidingEventTimeWindows, TumblingEventTimeWindows, WindowAssigner
from tests.unit.apps import application

pytestmark = pytest.mark.usefixtures("processing_mode")


class Market:
    """An application with persons and auctions, whose keys are not those of a join."""

    def __init__(self, partitions: int = 3, **settings: Any) -> None:
        self.app: Application = application(**settings)
        config = self.app.topic_manager.topic_config(num_partitions=partitions)
        self.partitions = partitions
        self.topics: tuple[Topic, Topic] = (
            self.app.topic("persons", config=config),
            self.app.topic("auctions", config=config),
        )
        self.persons: StreamingDataFrame = self.app.dataframe(self.topics[0])
        self.auctions: StreamingDataFrame = self.app.dataframe(self.topics[1])

    def run(self, *inputs: tuple[int, Any, int], end: bool = True) -> list[tuple[Any, Any, int]]:
        """Send records, given as side, value and timestamp; return what leaves the branches, in the order of values."""
        with TopologyTestDriver(self.app) as driver:
            driver.pipe_many(
                InputRecord(self.topics[side], value, b"any", timestamp, partition=number % self.partitions)
                for number, (side, value, timestamp) in enumerate(inputs)
            )
            if end:
                driver.end()
            return sorted((output[:3] for output in driver.outputs()), key=repr)

    @property
    def exchanged(self) -> list[str]:
        """The internal topics, without what begins them."""
        return [name.removeprefix("repartition__group--") for name in self.app.topic_manager.repartition_topics]


PERSON, AUCTION = 0, 1
INPUTS = [
    (PERSON, {"id": 1, "name": "ann"}, 1_000),
    (AUCTION, {"item": "cup", "seller": 1}, 4_000),
    (AUCTION, {"item": "pot", "seller": 2}, 4_500),
    (PERSON, {"id": 3, "name": "bob"}, 5_000),
    (AUCTION, {"item": "pan", "seller": None}, 5_500),
    (AUCTION, {"item": "lid", "seller": 1}, 7_001),
]
PAIR = ({"id": 1, "name": "ann", "item": "cup", "seller": 1}, 1, 4_000)
UNMATCHED_PERSON = ({"id": 3, "name": "bob"}, 3, 5_000)
UNMATCHED_AUCTIONS = [
    ({"item": "lid", "seller": 1}, 1, 7_001),
    ({"item": "pan", "seller": None}, None, 5_500),
    ({"item": "pot", "seller": 2}, 2, 4_500),
]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [PAIR]),
        ("left", [PAIR, UNMATCHED_PERSON]),
        ("right", [PAIR, *UNMATCHED_AUCTIONS]),
        ("outer", [PAIR, UNMATCHED_PERSON, *UNMATCHED_AUCTIONS]),
    ],
)
def test_columns_of_both_sides_meet_in_one_line(partitions: int, how: Any, expected: list[Any]) -> None:
    market = Market(partitions)
    market.persons.join(market.auctions, ("id", "seller"), how, within=timedelta(seconds=6))
    assert market.run(*INPUTS) == sorted(expected, key=repr)


@pytest.mark.parametrize("partitions", [1, 3])
def test_within_may_differ_before_and_after(partitions: int) -> None:
    market = Market(partitions)
    near = (timedelta(seconds=3), 500)
    market.persons.join(market.auctions, ("id", "seller"), within=near, on_merge=lambda left, right: right["at"])
    auctions = [(AUCTION, {"seller": 1, "at": at}, at) for at in (6_999, 7_000, 10_000, 10_500, 10_501)]
    found = market.run((PERSON, {"id": 1}, 10_000), *auctions)
    assert found == [(10_000, 1, 10_000), (10_500, 1, 10_500), (7_000, 1, 10_000)]


def test_retention_is_how_far_apart_a_pair_may_be() -> None:
    market = Market()
    market.persons.join(market.auctions, ("id", "seller"), retention=100, on_merge=lambda left, right: right["at"])
    auctions = [(AUCTION, {"seller": 1, "at": at}, at) for at in (899, 900, 1_100, 1_101)]
    assert [output[0] for output in market.run((PERSON, {"id": 1}, 1_000), *auctions)] == [1_100, 900]


def test_several_columns() -> None:
    market = Market()
    joined = market.persons.join(market.auctions, ["city", "state"], "left", within=10)
    joined["key"] = joined.apply(lambda value, key, *rest: key, metadata=True)
    found = market.run(
        (PERSON, {"city": "Salem", "state": "OR", "id": 1}, 5),
        (PERSON, {"city": "Salem", "state": None, "id": 2}, 5),
        (AUCTION, {"city": "Salem", "state": "MA", "item": 1}, 5),
        (AUCTION, {"city": "Salem", "state": "OR", "item": 2}, 5),
        (AUCTION, {"city": "Salem", "state": None, "item": 3}, 5),
    )
    assert [output[0] for output in found] == [
        {"city": "Salem", "state": "OR", "id": 1, "item": 2, "key": ["Salem", "OR"]},
        {"city": "Salem", "state": None, "id": 2, "key": ["Salem", None]},
    ]


def test_records_are_joined_by_their_keys_without_an_internal_topic() -> None:
    market = Market()
    market.persons.join(market.auctions, within=10)
    assert market.exchanged == []
    with TopologyTestDriver(market.app) as driver:
        for topic, value in zip(market.topics, ({"l": 1}, {"r": 1}), strict=True):
            driver.pipe(topic, value, key=b"k", timestamp=1)
        assert driver.outputs() == [({"l": 1, "r": 1}, b"k", 1, None)]


def test_only_other_columns_of_the_same_name_clash() -> None:
    market = Market()
    market.persons.join(market.auctions, "id", within=10)
    assert market.run((PERSON, {"id": 1, "a": 1}, 5), (AUCTION, {"id": 1, "b": 2}, 5))[0][0] == {
        "id": 1,
        "a": 1,
        "b": 2,
    }
    with pytest.raises(ProcessingError, match="left and right value both have: 'a'; choose"):
        market.run((PERSON, {"id": 1, "a": 1}, 5), (AUCTION, {"id": 1, "a": 2}, 5))


def test_columns_of_other_names_clash_as_others_do() -> None:
    market = Market()
    market.persons.join(market.auctions, ("id", "seller"), within=10)
    with pytest.raises(ProcessingError, match="both have: 'id'"):
        market.run((PERSON, {"id": 1}, 5), (AUCTION, {"id": 7, "seller": 1}, 5))


# -- When records are passed on ------------------------------------------------------------------------------------------


def test_a_record_without_a_match_waits_until_none_can_come() -> None:
    market = Market(1)
    market.persons.join(
        market.auctions, ("id", "seller"), "left", within=(50, 100), grace_ms=10, closing_strategy="partition"
    )
    with TopologyTestDriver(market.app) as driver:

        def pipe(side: int, column: str, key: int, timestamp: int) -> list[Any]:
            driver.pipe(market.topics[side], {column: key}, key=b"any", timestamp=timestamp)
            return [output[:3] for output in driver.outputs()]

        assert pipe(PERSON, "id", 1, 1_000) == []
        assert pipe(PERSON, "id", 2, 1_000) == []
        # Stream time is 110 ms later: a match that is 10 ms late may still come.
        assert pipe(AUCTION, "seller", 9, 1_110) == []
        assert pipe(AUCTION, "seller", 1, 1_100) == [({"id": 1, "seller": 1}, 1, 1_100)]
        assert pipe(AUCTION, "seller", 9, 1_111) == [({"id": 2}, 2, 1_000)]
        # It is late now, and changes nothing.
        assert pipe(AUCTION, "seller", 2, 1_100) == []


def test_the_watermark_waits_for_the_slowest_partition() -> None:
    market = Market(3)
    market.persons.join(market.auctions, ("id", "seller"), "left", within=10, grace_ms=0)
    with TopologyTestDriver(market.app) as driver:
        for partition, timestamp in ((0, 1_000), (1, 50), (2, 2_000)):
            for side, column in enumerate(("id", "seller")):
                driver.pipe(
                    market.topics[side], {column: 100 * side + partition}, partition=partition, timestamp=timestamp
                )
        assert driver.outputs() == []
        # This record is a second behind those of other partitions.
        driver.pipe(market.topics[AUCTION], {"seller": 1}, partition=1, timestamp=51)
        assert [output[0] for output in driver.outputs()] == [{"id": 1, "seller": 1}]
        driver.advance(timedelta(minutes=1))
        assert sorted(output[0]["id"] for output in driver.outputs()) == [0, 2]


def test_late_records_leave_by_a_side_output(caplog: pytest.LogCaptureFixture) -> None:
    market = Market(1)
    joined = market.persons.join(
        market.auctions, within=10, closing_strategy="partition", how="outer", on_merge="keep-left"
    )
    with TopologyTestDriver(market.app) as driver:
        for timestamp in (100, 89):
            driver.pipe(market.topics[AUCTION], {"at": timestamp}, key=b"k", timestamp=timestamp)
        assert driver.outputs() == []
        assert "came 1 ms too late for 'join' and was dropped; increase grace_ms" in caplog.text
    late = market.app.topic("late")
    joined.side_output("late").to_topic(late)
    with TopologyTestDriver(market.app) as driver:
        for timestamp in (100, 89):
            driver.pipe(market.topics[AUCTION], {"at": timestamp}, key=b"k", timestamp=timestamp)
        assert [record.value for record in driver.read(late)] == [{"at": 89}]


def test_what_ends_a_bounded_run_is_not_passed_on_again() -> None:
    market = Market(1)
    market.persons.join(market.auctions, "id", "left", within=10)
    with TopologyTestDriver(market.app) as driver:
        driver.pipe(market.topics[PERSON], {"id": 1, "run": 1}, timestamp=100)
        driver.end()
        driver.pipe(market.topics[AUCTION], {"id": 1, "run": 2}, timestamp=100)
        driver.advance(timedelta(minutes=1))
        assert [output[0] for output in driver.outputs()] == [{"id": 1, "run": 1}]


def test_a_failure_below_loses_no_other_record_without_a_match() -> None:
    market = Market(1, on_processing_error=lambda *_: True)
    joined = market.persons.join(market.auctions, "id", "left", within=10, grace_ms=0, closing_strategy="partition")
    joined.apply(lambda value: 10 / value["x"])
    with TopologyTestDriver(market.app) as driver:
        for x in (1, 0, 2, 5):
            driver.pipe(market.topics[PERSON], {"id": 1, "x": x}, timestamp=100)
        for timestamp in (200, 200, 200):
            driver.pipe(market.topics[AUCTION], {"id": 2}, timestamp=timestamp)
        assert [output[0] for output in driver.outputs()] == [10, 5, 2]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_record_that_is_skipped_is_not_kept(guarantee: Any) -> None:
    market = Market(1, on_processing_error=lambda *_: True, processing_guarantee=guarantee)
    joined = market.persons.join(market.auctions, "id", within=10, grace_ms=0, closing_strategy="partition")
    joined.apply(lambda value: (10 / value["x"], value["y"]))
    with TopologyTestDriver(market.app) as driver:
        driver.pipe_many(
            InputRecord(market.topics[side], {"id": 1, "xy"[side]: number}, timestamp=100 + number)
            for side, number in ((AUCTION, 1), (PERSON, 2), (PERSON, 0), (AUCTION, 5), (PERSON, 5))
        )
        assert [output[0] for output in driver.outputs()] == [(5, 1), (5, 5), (2, 1), (2, 5)]


# -- Internal topics -----------------------------------------------------------------------------------------------------


def test_a_grouped_frame_is_not_exchanged_again() -> None:
    market = Market()
    by_id = market.persons.group_by("id", name="mine")
    by_id = by_id[by_id["id"] > 0].filter(lambda value: True)
    by_id["name"] = "?"
    by_id.join(market.auctions, ("id", "seller"), within=10)
    assert market.exchanged == ["persons--mine", "auctions--seller"]
    assert market.run((PERSON, {"id": 1}, 5), (AUCTION, {"seller": 1}, 5))[0][0] == {"id": 1, "name": "?", "seller": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.apply(dict),
        lambda frame: frame.update(lambda value: value.update(id=7)),
        lambda frame: frame.fill(id=7),
    ],
)
def test_a_frame_whose_columns_may_have_changed_is_exchanged_again(change: Any) -> None:
    market = Market()
    change(market.persons.group_by("id")).join(market.auctions, ("id", "seller"), within=10)
    assert market.exchanged == ["persons--id", "repartition.persons.id--id", "auctions--seller"]


def test_an_assigned_column_is_exchanged_again() -> None:
    market = Market()
    by_id = market.persons.group_by("id")
    by_id["id"] = 7
    by_id.join(market.auctions, ("id", "seller"), within=10)
    assert len(market.exchanged) == 3


def test_keys_of_both_sides_are_written_alike() -> None:
    market = Market()
    by_name = market.persons.group_by("name", key_serializer="str", key_deserializer="str")
    by_name.join(market.auctions, ("name", "seller"), within=10)
    topics = market.app.topic_manager.repartition_topics.values()
    assert [type(topic.key_serializer) for topic in topics] == [StringSerializer] * 2
    assert market.run((PERSON, {"name": "x"}, 5), (AUCTION, {"seller": "x"}, 5))[0][1] == "x"


def test_joins_of_one_frame_by_the_same_columns_share_its_internal_topic() -> None:
    market = Market()
    market.persons.join(market.auctions, ("id", "seller"), within=10)
    market.persons.join(market.auctions, ("id", "bidder"), within=10, name="bids")
    market.persons.join(market.persons, "id", within=10, name="self", on_merge="keep-left")
    assert market.exchanged == ["persons--id", "auctions--seller", "auctions--bids-bidder"]
    assert type(next(iter(market.app.topic_manager.repartition_topics.values())).key_serializer) is JSONSerializer


def test_a_result_is_keyed_by_the_columns_that_both_sides_have() -> None:
    market = Market()
    third = market.app.dataframe(market.app.topic("third", config=market.topics[0].config))
    market.persons.join(market.auctions, "id", within=10).join(third, "id", "left", within=10)
    assert market.exchanged == ["persons--id", "auctions--id", "third--id"]
    found = market.run((PERSON, {"id": 1, "l": 1}, 5), (AUCTION, {"id": 1, "r": 1}, 5))
    assert found == [({"id": 1, "l": 1, "r": 1}, 1, 5)]


def test_other_frames_of_one_topic_need_a_name() -> None:
    market = Market()
    market.persons.filter(bool).join(market.auctions, ("id", "seller"), within=10)
    with pytest.raises(
        InvalidOperationError, match=r"by id as 'id', as another frame of them is .*join\(\.\.\., name='"
    ):
        market.persons.join(market.auctions, ("id", "seller"), within=10)
    market.persons.join(market.auctions, ("id", "seller"), within=10, name="second")
    with pytest.raises(InvalidOperationError, match=r"give one of the joins a name, join\(\.\.\., name='...'\)"):
        market.persons.join(market.auctions, ("id", "seller"), within=10, name="second")


# -- What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {},
            "would have to keep all records for ever, because a match may come at any time: say what bounds it, by within",
        ),
        ({"within": 1, "window": TumblingEventTimeWindows(10)}, r"takes only one of within=\.\.\. and window=\.\.\."),
        ({"within": 0}, r"join\(within=0\) needs grace_ms=\.\.\., how far a record may be behind the clock"),
        ({"within": (1, -1)}, r"after a left record, must be 0 ms or more, got -1"),
        ({"retention": 0}, "must be 1 ms or more, got 0"),
        ({"window": 10}, "takes windows of event time, which are objects of TumblingEventTimeWindows, .*got int"),
        ({"on": ("a", "b", "c"), "within": 1}, "takes a tuple only as a pair, .*give several columns as a list"),
        ({"on": (["a", "b"], "c"), "within": 1}, "2 columns for the left side and 1 for the right one"),
        ({"on": {"a"}, "within": 1}, "takes the name of a column, a list of names, or a pair .*got set"),
        ({"on": [], "within": 1}, "needs the name of at least one column"),
        ({"within": 1, "closing_strategy": "key"}, "closing_strategy='key': it must be 'partition'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    market = Market()
    with pytest.raises((ConfigurationError, InvalidOperationError), match=message):
        market.persons.join(market.auctions, **arguments)


def test_topics_with_different_strategies_need_a_choice() -> None:
    app = application()
    left = app.dataframe(app.topic("left", watermark_strategy=WatermarkStrategy(out_of_orderness=5)))
    right = app.dataframe(app.topic("right"))
    with pytest.raises(
        InvalidOperationError, match=r"choose the clock of what needs both with closing_strategy=\.\.\."
    ):
        left.join(right, within=10)
    left.join(right, within=10, closing_strategy="partition")


# -- Windows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_new_sellers_of_a_window(partitions: int) -> None:
    market = Market(partitions)
    sellers = market.persons.join(
        market.auctions, ("id", "seller"), window=TumblingEventTimeWindows(timedelta(seconds=10))
    )
    sellers = sellers[["id", "name", "start", "end"]]
    found = market.run(
        (PERSON, {"id": 1, "name": "ann"}, 1_000),
        (AUCTION, {"seller": 1}, 9_999),
        (PERSON, {"id": 2, "name": "bob"}, 9_000),
        (AUCTION, {"seller": 2}, 10_000),
    )
    assert found == [({"id": 1, "name": "ann", "start": 0, "end": 10_000}, 1, 0)]


def test_values_that_are_no_dicts_and_columns_named_like_bounds() -> None:
    market = Market(1)
    market.persons.join(
        market.auctions, window=EventTimeSessions(lambda value: value["gap"]), on_merge=lambda *both: both[0]
    )
    with TopologyTestDriver(market.app) as driver:
        for topic in market.topics:
            driver.pipe(topic, {"gap": 5, "start": 1}, key=b"k", timestamp=1)
        with pytest.raises(ProcessingError, match="adds the columns 'start' and 'end'"):
            driver.end()
    market = Market(1)
    market.persons.join(market.auctions, window=SlidingEventTimeWindows(10, 5), on_merge=lambda *both: [*both])
    with TopologyTestDriver(market.app) as driver:
        for topic, value in zip(market.topics, (1, 2), strict=True):
            driver.pipe(topic, value, key=b"k", timestamp=7)
        driver.end()
        assert [output[0] for output in driver.outputs()] == [
            {"start": 0, "end": 10, "value": [1, 2]},
            {"start": 5, "end": 15, "value": [1, 2]},
        ]


def windows_of(window: WindowAssigner, records: list[tuple[int, Any, int]], key: str) -> set[tuple[int, int]]:
    """The windows with records of a key, from the definition."""
    times = sorted(time for side, value, time in records if value[("id", "seller")[side]] == key)
    if not isinstance(window, EventTimeSessions):
        return {(each.start, each.end) for time in times for each in window.assign_windows(None, time, 0)}
    found: list[list[int]] = []
    for time in times:
        if found and time - found[-1][1] <= window.gap:  # type: ignore[operator]
            found[-1][1] = time
        else:
            found.append([time, time])
    return {(first, last + 1) for first, last in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    "window", [TumblingEventTimeWindows(10, offset=3), SlidingEventTimeWindows(20, 5), EventTimeSessions(6)]
)
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_pairs_of_windows_are_those_of_the_definition(window: WindowAssigner, how: Any) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        records: list[tuple[int, Any, int]] = []
        for number in range(40):
            side = rng.randrange(2)
            value = {("id", "seller")[side]: rng.choice("abc"), "nr"[side]: number}
            records.append((side, value, max(1, 4 * number - rng.choice((0, 0, 3, 30)))))
        market = Market(rng.choice((1, 3)))
        market.persons.join(market.auctions, ("id", "seller"), how, window=window, grace_ms=1_000)
        expected = []
        for key in "abc":
            for start, end in windows_of(window, records, key):
                left, right = (
                    [
                        value
                        for each, value, time in records
                        if each == side and key in value.values() and start <= time < end
                    ]
                    for side in (0, 1)
                )
                pairs = [(one, other) for one in left for other in right]
                if not right and how in ("left", "outer"):
                    pairs = [(one, {}) for one in left]
                if not left and how in ("right", "outer"):
                    pairs = [({}, other) for other in right]
                expected += [({"start": start, "end": end, **one, **other}, key, start) for one, other in pairs]
        found = market.run(*records)
        assert sorted(map(repr, normalized(found))) == sorted(map(repr, normalized(expected))), f"seed {seed}"


def normalized(outputs: list[Any]) -> list[Any]:
    return [(sorted(value.items()), key, time) for value, key, time in outputs]


@pytest.mark.parametrize("bound", [{"within": 10}, {"window": TumblingEventTimeWindows(10)}])
def test_joins_are_data(bound: Any) -> None:
    market = Market()
    market.persons.join(market.auctions, ("id", "seller"), "outer", **bound)
    assert pickle.loads(cloudpickle.dumps(market.app.topology)).nodes
    assert "join" in as_text(market.app.topology)
