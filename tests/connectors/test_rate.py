"""`RateSource`: records at an even rate."""

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from streamrt.connectors import RateSource
from streamrt.errors import ArgumentTypeError, ArgumentValueError, SourceError
from streamrt.testing.connectors import RecordingProducer, SourceConformance
from streamrt.topics import Topic


class TestRateSource(SourceConformance):
    def make(self) -> RateSource:
        return RateSource(rate=500)


class TestSlowRateSource(SourceConformance):
    """The pauses of a slow source end with it."""

    def make(self) -> RateSource:
        return RateSource(rate=0.001)


class TimedProducer(RecordingProducer):
    """Notes when each record came, and takes a while for it.

    Args:
        clock: the time in seconds.
        cost: function of a record's number that returns the seconds that it takes.
    """

    def __init__(self, clock: "Clock", cost: Callable[[int], float]) -> None:
        super().__init__()
        self.times: list[float] = []
        self._clock = clock
        self._cost = cost

    def produce(self, *args: Any, **options: Any) -> None:
        self.times.append(self._clock.now)
        self._clock.now += self._cost(len(self.records))
        super().produce(*args, **options)


class Clock:
    """A clock that only sleeps and records let pass."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> bool:
        self.now += seconds
        return True


def run(source: RateSource, cost: Callable[[int], float] = lambda number: 0.0) -> TimedProducer:
    clock = Clock()
    producer = TimedProducer(clock, cost)
    source.configure(Topic("rate", key_serializer="str"), producer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamrt.connectors.sources.rate.time", clock)
        patch.setattr(source, "sleep", clock.sleep)
        source.start()
    return producer


def test_records_have_a_number_and_a_random_value() -> None:
    records = run(RateSource(math.inf, count=3)).records
    values = [json.loads(record.value or b"") for record in records]
    assert [value["number"] for value in values] == [0, 1, 2]
    assert all(0 <= value["value"] < 1 for value in values)
    assert {record.key for record in records} == {None}


def test_functions_make_keys_and_values() -> None:
    source = RateSource(
        math.inf, key=lambda number, rng: f"k{number % 2}", value=lambda number, rng: {"n": number * 10}, count=4
    )
    found = [(record.key, record.value) for record in run(source).records]
    assert found == [(b"k0", b'{"n":0}'), (b"k1", b'{"n":10}'), (b"k0", b'{"n":20}'), (b"k1", b'{"n":30}')]


@pytest.mark.parametrize("seed", [7, "load test"])
def test_a_seed_repeats_records(seed: Any) -> None:
    def made(seed: Any) -> list[Any]:
        source = RateSource(
            math.inf,
            key=lambda number, rng: str(rng.randrange(100)),
            value=lambda number, rng: rng.random(),
            count=50,
            seed=seed,
        )
        return [(record.key, record.value) for record in run(source).records]

    assert made(seed) == made(seed)
    assert made(seed) != made(None)
    assert made(None) != made(None)


def test_the_pace_is_even() -> None:
    times = run(RateSource(rate=200, count=101)).times
    # No record comes before it is due, and none comes much later.
    late = [at - number / 200 for number, at in enumerate(times)]
    assert min(late) >= -1e-9
    assert max(late) <= 0.02
    # Not all of them came at once.
    assert sum(later - earlier > 0.002 for earlier, later in itertools.pairwise(times)) > 30


def test_time_that_was_lost_is_made_up_for() -> None:
    times = run(RateSource(rate=500, count=200), cost=lambda number: 0.3 if number == 10 else 0.0).times
    # 0.4 s by plan; without catching up it would be 0.7 s.
    assert times[-1] < 0.43


def test_a_high_rate_is_limited_by_the_machine() -> None:
    producer = run(RateSource(rate=100_000, count=20_000), cost=lambda number: 0.0001)
    # 0.2 s by plan, and 2 s by what a record costs; sleeps add nothing to it.
    assert producer.times[-1] == pytest.approx(2.0, abs=0.01)


def test_a_count_of_zero_produces_nothing() -> None:
    assert run(RateSource(count=0)).records == []


def test_a_function_that_fails_ends_the_source_and_names_the_record() -> None:
    def value(number: int, rng: Any) -> int:
        return 1 // (2 - number)

    with pytest.raises(SourceError, match="record 2 of the source rate cannot be made: ZeroDivisionError"):
        run(RateSource(math.inf, value=value))


def test_a_value_that_cannot_be_serialized_names_the_record() -> None:
    with pytest.raises(SourceError, match="record 0 of the source odd"):
        run(RateSource(value=lambda number, rng: object(), name="odd"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"rate": 0}, ArgumentValueError),
        ({"rate": -1}, ArgumentValueError),
        ({"rate": math.nan}, ArgumentValueError),
        ({"rate": "fast"}, ArgumentTypeError),
        ({"rate": True}, ArgumentTypeError),
        ({"value": 7}, ArgumentTypeError),
        ({"key": "user"}, ArgumentTypeError),
        ({"count": -1}, ArgumentValueError),
        ({"count": 1.5}, ArgumentTypeError),
        ({"seed": object()}, ArgumentTypeError),
        ({"seed": 1.5}, ArgumentTypeError),
        ({"name": ""}, ArgumentValueError),
        ({"shutdown_timeout": -1}, ArgumentValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"RateSource|source"):
        RateSource(**arguments)
