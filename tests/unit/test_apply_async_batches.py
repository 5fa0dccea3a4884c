"""Asynchronous functions that take several records at once, in both modes."""

import asyncio
import json
import random
from typing import Any

import pytest

from streamrt import DeadLetters, Retry, message_context
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, ProcessingError
from tests.unit.apps import Stage
from tests.unit.asynchronous import LONG, play

pytestmark = [pytest.mark.usefixtures("processing_mode", "undivided_slices"), pytest.mark.rows("PF-K6")]

# Longer than any test, so that only full batches are sent.
FOREVER = 29_000


class Doubled:
    """Doubles the values of batches, and keeps these."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    async def __call__(self, values: list[Any]) -> list[Any]:
        self.batches.append(values)
        await asyncio.sleep(0)
        return [value * 2 for value in values]


@pytest.mark.parametrize("ordered", [True, False])
def test_d6_full_batches_and_what_is_left(ordered: bool) -> None:
    doubled = Doubled()
    found = play(
        lambda sdf: sdf.apply_async(doubled, timeout=LONG, ordered=ordered, batch_size=4, batch_timeout=20), *range(10)
    )
    assert sorted(found) == [value * 2 for value in range(10)]
    assert not ordered or found == sorted(found)
    assert [value for batch in doubled.batches for value in batch] == [*range(10)]
    assert max(map(len, doubled.batches)) <= 4
    assert doubled.batches[-1][-1] == 9


def test_d6_a_full_batch_does_not_wait() -> None:
    doubled = Doubled()
    found = play(lambda sdf: sdf.apply_async(doubled, timeout=LONG, batch_size=5, batch_timeout=FOREVER), *range(10))
    assert found == [value * 2 for value in range(10)]
    assert doubled.batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("ordered", [True, False])
def test_d6_order_and_capacity_are_those_of_records(ordered: bool) -> None:
    flying = most = 0
    noise = random.Random(6)

    async def call(values: list[int]) -> list[int]:
        nonlocal flying, most
        flying += len(values)
        most = max(most, flying)
        for _ in range(noise.randrange(5)):
            await asyncio.sleep(0)
        flying -= len(values)
        return values

    found = play(
        lambda sdf: sdf.apply_async(call, timeout=LONG, capacity=9, ordered=ordered, batch_size=4, batch_timeout=1),
        *range(200),
    )
    assert sorted(found) == [*range(200)]
    assert not ordered or found == [*range(200)]
    assert 1 < most <= 9


def test_d6_metadata_and_expanded_results() -> None:
    stage = Stage({"key_deserializer": "str"})

    async def call(values: list[int], keys: list[str], timestamps: list[int], headers: list[Any]) -> tuple[Any, ...]:
        with pytest.raises(InvalidOperationError, match="no record is being processed"):
            message_context()
        return tuple(zip(values, keys, timestamps, [each[0][1].decode() for each in headers], strict=True))

    frame = stage.sdf.apply_async(call, timeout=LONG, metadata=True, expand=True, batch_size=3)
    frame.apply(lambda value: [value, message_context().offset]).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, [5, 6, 7], key="k", timestamp=7, headers=[("h", b"x")])
    assert [record.value for record in driver.read(stage.out)] == [
        [item, offset] for offset in range(3) for item in (5 + offset, "k", 7, "x")
    ]


def test_d6_the_error_of_a_batch_is_that_of_each_record() -> None:
    errors: list[Any] = []

    def on_error(error: Exception, record: Any, logger: Any) -> bool:
        errors.append((str(error), record.value, record.context.offset))
        return True

    async def call(values: list[int]) -> list[int]:
        if 4 in values:
            raise ValueError("four")
        return values

    stage = Stage(on_processing_error=on_error)
    stage.sdf.apply_async(call, timeout=LONG, batch_size=3, batch_timeout=FOREVER).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, range(9))
    assert errors == [("four", number, number) for number in (3, 4, 5)]
    assert [record.value for record in driver.read(stage.out)] == [0, 1, 2, 6, 7, 8]


def test_d6_dead_letters_are_all_records_of_the_batch() -> None:
    async def call(values: list[int]) -> list[int]:
        raise OSError("away")

    stage = Stage(on_error=DeadLetters("letters"))
    stage.sdf.apply_async(call, timeout=LONG, batch_size=2, batch_timeout=FOREVER).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, range(4))
    assert [json.loads(letter.value or b"") for letter in driver._execution.clients.written("letters")] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([1], "the function returned 1 results for a batch of 2 values"),
        ([1, 2, 3], "the function returned 3 results for a batch of 2 values"),
        (None, "must return a list of results, not NoneType"),
        ("ab", "must return a list of results, not str"),
        ({"a": 1, "b": 2}, "must return a list of results, not dict"),
        ({1, 2}, "must return a list of results, not set"),
        (2, "must return a list of results, not int"),
    ],
)
def test_d6_results_that_do_not_fit_name_the_operator(result: Any, words: str) -> None:
    async def call(values: list[int]) -> Any:
        return result

    with pytest.raises(ProcessingError, match=words) as caught:
        play(lambda sdf: sdf.apply_async(call, timeout=LONG, batch_size=2, batch_timeout=FOREVER), 1, 2)
    assert "apply_async-1 (" in str(caught.value)
    assert "in[0] at offset 0" in str(caught.value)


def test_d6_a_failure_names_the_line_of_the_function() -> None:
    async def call(values: list[int]) -> list[int]:
        raise KeyError("here")

    with pytest.raises(ProcessingError, match=r"\(test_apply_async_batches.py:\d+ in call\): KeyError: 'here'"):
        play(lambda sdf: sdf.apply_async(call, timeout=LONG, batch_size=2, batch_timeout=FOREVER), 1, 2)


def test_d6_a_batch_is_repeated() -> None:
    attempts: list[list[int]] = []

    async def call(values: list[int]) -> list[int]:
        attempts.append(values)
        if len(attempts) < 3:
            raise ConnectionError
        return values

    retry = Retry(3, on_error=ConnectionError)
    found = play(
        lambda sdf: sdf.apply_async(call, timeout=LONG, batch_size=2, batch_timeout=FOREVER, retry=retry), 1, 2
    )
    assert found == [1, 2]
    assert attempts == [[1, 2]] * 3


def test_d6_a_batch_that_takes_too_long() -> None:
    async def call(values: list[int]) -> list[int]:
        await asyncio.sleep(3_600)
        return values

    found = play(
        lambda sdf: sdf.apply_async(call, timeout=50, batch_size=2, batch_timeout=0, on_timeout=lambda value: -value),
        1,
        2,
    )
    assert found == [-1, -2]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError()])
def test_d6_what_else_the_function_may_raise(raised: BaseException) -> None:
    async def call(values: Any) -> Any:
        raise raised

    words = r"SystemExit\(3\)" if isinstance(raised, SystemExit) else "cancelled by something"
    with pytest.raises(ProcessingError, match=words):
        play(lambda sdf: sdf.apply_async(call, timeout=LONG, batch_size=2, batch_timeout=0), 1, 2)


def test_d6_a_dataframe_alone() -> None:
    frame = Stage().sdf.apply_async(Doubled(), timeout=1_000, batch_size=5, batch_timeout=1)
    assert [output[0] for output in frame.test(2)] == [4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, r"must be 1 to capacity \(100\), got 0"),
        ({"batch_size": 101}, "raise capacity"),
        ({"batch_size": True}, "must be an int, got bool"),
        ({"batch_size": 2.0}, "must be an int, got float"),
        ({"batch_size": 2, "batch_timeout": 30_000}, r"must be less than timeout \(30000 ms\)"),
        ({"batch_size": 2, "batch_timeout": -1}, "batch_timeout"),
        ({"batch_timeout": "1s"}, "must be an int of milliseconds or a timedelta"),
    ],
)
def test_d6_arguments_of_batches_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words):
        Stage().sdf.apply_async(Doubled(), timeout=LONG, **arguments)
