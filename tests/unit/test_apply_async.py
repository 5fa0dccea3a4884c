"""Asynchronous functions of dataframes, in both modes: order, capacity, time-outs, retries and errors."""

import asyncio
import functools
import json
from typing import Any

import pytest

from streamrt import DeadLetters, Retry, StreamingDataFrame, message_context, set_message_context
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ProcessingError
from streamrt.kafka import TopicConfig
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.tasks.task_executor import TaskExecutor
from tests.unit.apps import Stage, completed
from tests.unit.asynchronous import LONG, SHORT_MS, echo, play, slow
from tests.unit.tasks import Process, Writer, numbers

pytestmark = pytest.mark.usefixtures("processing_mode", "undivided_slices")


# -- Capacity ------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-K4")
@pytest.mark.parametrize("ordered", [True, False])
def test_further_records_wait_for_the_capacity(ordered: bool) -> None:
    flying = most = 0

    async def call(value: int) -> int:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        for _ in range(value % 4):
            await asyncio.sleep(0)
        flying -= 1
        return value

    values = list(range(200))
    found = play(lambda sdf: sdf.apply_async(call, timeout=LONG, capacity=7, ordered=ordered), *values)
    assert sorted(found) == values
    assert not ordered or found == values
    assert 1 < most <= 7


# -- What calls are given, and what is below them ----------------------------------------------------------------------------


def test_arguments_and_contexts_are_those_of_the_record() -> None:
    stage = Stage({"key_deserializer": "str", "key_serializer": "str"}, {"key_serializer": "str"})

    async def call(value: int, key: str, timestamp: int, headers: Any) -> list[Any]:
        for _ in range(3 - value):
            await asyncio.sleep(0)
        context = message_context()
        return [value, key, timestamp, headers[0][1].decode(), context.offset, context.key]

    frame = stage.sdf.apply_async(call, timeout=LONG, metadata=True, ordered=False)
    frame = frame.apply(lambda value, *record: [*value, message_context().offset, *record[:2]], metadata=True)
    frame.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, [0, 1, 2], key="k", timestamp=7, headers=[("h", b"x")])
    found = driver.read(stage.out)
    wanted = {offset: [offset, "k", 7, "x", offset, "k", offset, "k", 7] for offset in range(3)}
    assert {record.value[0]: record.value for record in found} == wanted
    assert [(record.raw_key, record.timestamp, record.headers) for record in found] == [(b"k", 7, [("h", b"x")])] * 3


def test_a_replaced_context_goes_with_the_record() -> None:
    async def call(value: int) -> int:
        context = message_context()
        await asyncio.sleep(0)
        set_message_context(type(context)(topic="other", partition=0, offset=10 * value, size=0))
        return value

    def build(sdf: StreamingDataFrame) -> Any:
        return sdf.apply_async(call, timeout=LONG, ordered=False).apply(lambda _: message_context().offset)

    assert sorted(play(build, 1, 2, 3)) == [10, 20, 30]


@pytest.mark.rows("PF-K3")
def test_chains_branches_groups_state_and_side_outputs() -> None:
    """Several calls, one below the other and next to each other, in a branch, below a group_by, and above state."""
    stage = Stage({"config": TopicConfig(2, 1)})

    async def twice(value: Any) -> list[Any]:
        await asyncio.sleep(0)
        return [value, {**value, "again": True}]

    async def marked(value: Any) -> Any:
        for _ in range(value["n"] % 3):
            await asyncio.sleep(0)
        return {**value, "offset": message_context().offset}

    def count(value: Any, state: Any) -> Any:
        state.set("n", state.get("n", 0) + 1)
        return {**value, "count": state.get("n")}

    frame = stage.sdf.apply_async(twice, timeout=LONG, expand=True, capacity=2)
    left = frame.apply_async(marked, timeout=LONG, capacity=3, ordered=False)
    grouped = left.group_by("g").apply_async(echo, timeout=LONG).apply(count, stateful=True)
    windows = stage.sdf.apply_async(echo, timeout=LONG).tumbling_window(10).count().final()
    late: list[Any] = []
    counts: list[Any] = []
    plain: list[Any] = []
    windows.side_output("late").apply_async(echo, timeout=LONG).update(late.append)
    grouped.update(counts.append)
    frame.update(plain.append)
    driver = stage.drive()
    driver.pipe_all(
        stage.source, [{"n": number, "g": "a" if number % 2 else "b"} for number in range(6)], key=b"k", timestamp=5
    )
    driver.pipe(stage.source, {"n": 6, "g": "a"}, key=b"k", timestamp=50)
    driver.pipe(stage.source, {"n": 7, "g": "a"}, key=b"k", timestamp=3)
    assert [value["n"] for value in plain] == [number for number in range(8) for _ in range(2)]
    assert sorted((value["g"], value["count"]) for value in counts) == [
        *(("a", number) for number in range(1, 11)),
        *(("b", number) for number in range(1, 7)),
    ]
    assert late == [{"n": 7, "g": "a"}]


def test_inputs_of_a_join() -> None:
    stage = Stage()
    prices = stage.app.topic("prices")
    left = stage.sdf.apply_async(echo, timeout=LONG)
    right = stage.app.dataframe(prices).apply_async(echo, timeout=LONG, ordered=False)
    joined: list[Any] = []
    left.join_asof(right, grace_ms=1_000).update(joined.append)
    driver = stage.drive()
    driver.pipe(prices, {"price": 5}, key=b"a", timestamp=1)
    driver.pipe_all(stage.source, [{"n": 1}, {"n": 2}], key=b"a", timestamp=2)
    assert joined == [{"n": 1, "price": 5}, {"n": 2, "price": 5}]


def test_results_of_a_tick_reach_windows_below_before_these_see_its_time() -> None:
    stage, found = Stage(), []
    first = stage.sdf.tumbling_window(10, grace_ms=0).count().final()
    second = first.apply_async(echo, timeout=LONG, ordered=False).tumbling_window(100).count().final()
    second.update(lambda value: found.append((value["start"], value["value"])))
    driver = stage.drive()
    for timestamp in (5, 15, 25, 205, 405):
        driver.pipe(stage.source, 1, key=b"a", timestamp=timestamp)
    assert found == [(0, 3)]


# -- Retries -----------------------------------------------------------------------------------------------------------------


class Flaky:
    """Fails a number of times for each value."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("busy")
        self.attempts: dict[Any, int] = {}

    async def __call__(self, value: Any) -> Any:
        self.attempts[value] = self.attempts.get(value, 0) + 1
        await asyncio.sleep(0)
        if self.attempts[value] <= self.failures:
            raise self.error
        return value


@pytest.mark.rows("PF-K5")
def test_calls_are_repeated() -> None:
    flaky = Flaky(2)
    retry = Retry(3, backoff=0.001, multiplier=2.0, longest=0.0015, on_error=ConnectionError)
    assert play(lambda sdf: sdf.apply_async(flaky, timeout=LONG, retry=retry), *range(5)) == [*range(5)]
    assert set(flaky.attempts.values()) == {3}


@pytest.mark.parametrize(
    ("retry", "attempts"),
    [
        (Retry(2), 2),
        (Retry(5, on_error=(OSError, KeyError)), 5),
        (Retry(5, on_error=KeyError), 1),
        (Retry(5, on_error=lambda error: "idle" in str(error)), 1),
    ],
)
def test_the_error_of_the_last_attempt_counts(retry: Retry, attempts: int) -> None:
    flaky = Flaky(9)
    with pytest.raises(ProcessingError, match="ConnectionError: busy"):
        play(lambda sdf: sdf.apply_async(flaky, timeout=LONG, retry=retry), 1)
    assert flaky.attempts == {1: attempts}


def test_results_may_ask_for_another_attempt() -> None:
    asked = 0

    async def ask(value: Any) -> int:
        nonlocal asked
        asked += 1
        return asked

    retry = Retry(3, on_result=lambda result: result < 2)
    assert play(lambda sdf: sdf.apply_async(ask, timeout=LONG, retry=retry), 1) == [2]
    # The last result is accepted.
    asked = -10
    assert play(lambda sdf: sdf.apply_async(ask, timeout=LONG, retry=retry), 1) == [-7]


@pytest.mark.rows("PF-K5")
def test_the_time_out_covers_all_attempts() -> None:
    """It is over while the call waits for its second attempt."""
    flaky = Flaky(9)
    with pytest.raises(ProcessingError, match=r"no result within 0\.015 s"):
        play(lambda sdf: sdf.apply_async(flaky, timeout=SHORT_MS, retry=Retry(9, backoff=3_600)), 1)
    assert flaky.attempts == {1: 1}


# -- Errors ------------------------------------------------------------------------------------------------------------------


async def refuse_odd(value: Any) -> Any:
    for _ in range(3 - value % 3):
        await asyncio.sleep(0)
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value


@pytest.mark.parametrize("ordered", [True, False])
def test_errors_are_those_of_their_record(ordered: bool) -> None:
    errors: list[Any] = []

    def on_error(error: Exception, record: Any, logger: Any) -> bool:
        errors.append((str(error), record.value, record.context.offset, record.key))
        return True

    stage = Stage(on_processing_error=on_error)
    stage.sdf.apply_async(refuse_odd, timeout=LONG, ordered=ordered).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, range(6), key=b"k")
    assert sorted(errors) == [(f"{n} is odd", n, n, b"k") for n in (1, 3, 5)]
    assert sorted(record.value for record in driver.read(stage.out)) == [0, 2, 4]


def test_records_that_are_skipped_do_not_count_as_processed() -> None:
    done: list[int] = []
    stage = Stage(
        on_processing_error=lambda *_: True, on_message_processed=lambda topic, partition, offset: done.append(offset)
    )
    stage.sdf.apply_async(refuse_odd, timeout=LONG, ordered=False)
    stage.drive().pipe_all(stage.source, range(6))
    assert sorted(done) == [0, 2, 4]


def test_dead_letters_are_the_records_that_failed() -> None:
    stage = Stage(on_error=DeadLetters("letters"))
    stage.sdf.apply_async(refuse_odd, timeout=LONG, ordered=False).to_topic(stage.out)
    driver = stage.drive()
    driver.pipe_all(stage.source, range(6))
    letters = driver._execution.clients.written("letters")
    assert sorted(letter.value or b"" for letter in letters) == [b"1", b"3", b"5"]
    for letter in letters:
        headers = dict(letter.headers or ())
        assert any(str(json.loads(letter.value or b"")).encode() == value for value in headers.values())


def test_errors_below_a_call_are_those_of_its_record() -> None:
    stage = Stage()

    def fail(value: int) -> int:
        if value == 3:
            raise KeyError("below")
        return value

    stage.sdf.apply_async(echo, timeout=LONG).apply(fail)
    with pytest.raises(
        ProcessingError, match=r"apply-2 \(.*fail\) .* failed on in\[0\] at offset 3 .*KeyError: 'below'"
    ):
        stage.drive().pipe_all(stage.source, range(6))


def test_a_failure_names_operator_record_and_line() -> None:
    stage = Stage()
    stage.sdf.apply_async(refuse_odd, timeout=LONG)
    with pytest.raises(ProcessingError) as caught:
        stage.drive().pipe_all(stage.source, [0, 2, 1])
    words = str(caught.value)
    assert "apply_async-1 (refuse_odd)" in words
    assert "in[0] at offset 2" in words
    assert "test_apply_async.py" in words
    assert "refuse_odd" in words.rpartition("(")[2]


def test_no_offset_behind_a_failed_record_is_committed(processing_mode: str) -> None:
    """The records behind it are done, and are delivered again with it."""
    stage, writer = Stage(), Writer()
    begun: list[int] = []

    async def call(value: int) -> int:
        begun.append(value)
        if value == 2:
            while len(begun) < 5:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            raise ValueError("two")
        return value

    stage.sdf.apply_async(call, timeout=LONG, ordered=False).to_topic(stage.out)
    tasks = TaskExecutor(completed(stage.app), writer)
    report = Process(tasks, stage.app.config.processing_mode).run([numbers(5)], BatchContext())
    tasks.close()
    assert report.failure is not None
    assert report.failure.offset == 2
    assert all(done.end == 0 for done in report.ranges.values())
    assert sorted(value or b"" for value in writer.values) == [b"0", b"1", b"3", b"4"]


def test_a_failure_between_two_records_commits_nothing() -> None:
    """With a capacity of one, a result is passed on while the next record is processed."""
    stage, writer = Stage(), Writer()
    stage.sdf.apply_async(refuse_odd, timeout=LONG, capacity=1).to_topic(stage.out)
    tasks = TaskExecutor(completed(stage.app), writer)
    report = Process(tasks, stage.app.config.processing_mode).run([numbers(5)], BatchContext())
    tasks.close()
    assert report.failure is not None
    assert report.failure.offset == 1
    assert all(done.end == 0 for done in report.ranges.values())
    assert writer.values == [b"0"]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError(), TimeoutError("own")])
def test_what_else_a_call_may_raise(raised: BaseException) -> None:
    async def call(value: Any) -> Any:
        raise raised

    words = {SystemExit: r"SystemExit\(3\)", asyncio.CancelledError: "cancelled by something"}.get(type(raised), "own")
    with pytest.raises(ProcessingError, match=words):
        play(lambda sdf: sdf.apply_async(call, timeout=LONG, on_timeout=lambda value: value), 1)


def test_results_that_cannot_be_expanded() -> None:
    with pytest.raises(ProcessingError, match="needs an iterable, but the function returned int"):
        play(lambda sdf: sdf.apply_async(echo, timeout=LONG, expand=True), 1)


# -- Where it is built -------------------------------------------------------------------------------------------------------


def test_a_dataframe_alone() -> None:
    stage = Stage()
    frame = stage.sdf.apply_async(refuse_odd, timeout=1_000).apply(lambda value: value + 1)
    assert [output[0] for output in frame.test(2)] == [3]
    with pytest.raises(ValueError, match="1 is odd"):
        frame.test(1)
    with pytest.raises(TimeoutError, match=r"no result within 0.01 s"):
        Stage().sdf.apply_async(slow, timeout=10).test(1)


async def generate(value: Any) -> Any:
    yield value


class Generates:
    async def __call__(self, value: Any) -> Any:
        yield value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"func": lambda value: value}, "needs a function defined by 'async def'"),
        ({"func": generate}, "an asynchronous generator: return a list"),
        ({"func": Generates()}, "an asynchronous generator: return a list"),
        ({"func": 5}, "needs a function, got int"),
        ({"func": functools.partial(echo, 1)}, "parameters"),
        ({"timeout": 0}, "must be 1 ms or more"),
        ({"timeout": "1s"}, "must be an int of milliseconds or a timedelta"),
        ({"capacity": 0}, "must be 1 or more, got 0"),
        ({"capacity": True}, "must be an int, got bool"),
        ({"retry": 3}, "must be a Retry, got int"),
        ({"on_timeout": echo}, "a function that does not wait"),
        ({"on_timeout": 1}, "needs a function, got int"),
        ({"metadata": True}, "leave out metadata=True"),
    ],
)
def test_arguments_are_checked_when_the_frame_is_built(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words):
        Stage().sdf.apply_async(**{"func": echo, "timeout": LONG, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"attempts": 0}, "at least 1 attempt"),
        ({"attempts": 1.5}, "must be an int, got float"),
        ({"backoff": -1}, "out of range"),
        ({"backoff": "1"}, "must be numbers"),
        ({"multiplier": 0.5}, "a multiplier of 1 or more"),
        ({"longest": -0.1}, "out of range"),
        ({"on_error": "OSError"}, "must be a class of exceptions"),
        ({"on_error": KeyboardInterrupt}, "must be a class of exceptions"),
        ({"on_result": 1}, "must be a function"),
    ],
)
def test_retries_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words):
        Retry(**{"attempts": 3, **arguments})


def test_it_is_no_column() -> None:
    stage = Stage()
    with pytest.raises(ArgumentValueError, match="not apply_async"):
        stage.sdf["x"] = stage.sdf.apply_async(echo, timeout=LONG)
