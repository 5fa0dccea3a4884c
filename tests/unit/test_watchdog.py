"""`processing_timeout`: functions that do not return."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ProcessingError, ProcessingTimeoutError, StreamRTError
from streamrt.runtime.tasks.watchdog import Notes, Watchdog
from streamrt.serializers import StringDeserializer
from streamrt.testing import TopologyTestDriver

TIMEOUT_S = 1.0
"""On a busy machine, the process may get no time for a good part of it."""
LONG_S = 300.0
"""How long functions do not return that nothing interrupts: tests fail then, and do not hang."""


def wait(value: Any) -> Any:
    """Wait for long, by what Python can interrupt, if the value says how."""
    until = time.monotonic() + LONG_S
    if value == "sleep":
        time.sleep(LONG_S)
    while value == "loop" and time.monotonic() < until:
        pass
    if value == "lock":
        threading.Event().wait(LONG_S)
    return value


def application(function: Callable[..., Any] = wait, **settings: Any) -> Application:
    app = Application("localhost:9092", processing_timeout=TIMEOUT_S, loglevel=None, **settings)
    app.dataframe(app.topic("orders")).apply(function, **({"stateful": True} if function is busy_with_state else {}))
    return app


def busy_with_state(value: Any, state: Any) -> Any:
    until = time.monotonic() + LONG_S
    while value == "state" and time.monotonic() < until:
        state.set("n", state.get("n", 0) + 1)
    return value


@pytest.mark.parametrize("how", ["sleep", "loop", "lock"])
def test_a_record_whose_function_does_not_return_fails(how: str, processing_mode: str) -> None:
    app = application(processing_mode=processing_mode)
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", "fine")
        with pytest.raises(ProcessingError) as caught:
            driver.pipe("orders", how)
    message = str(caught.value)
    assert "apply-1 (wait)" in message
    assert "failed on orders[0] at offset 1 (" in message
    assert message.endswith("ProcessingTimeoutError: took longer than 1 s (processing_timeout)")
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_callbacks_decide_about_such_records() -> None:
    seen: list[Any] = []

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        seen.append((type(error), record.value, record.context.offset))
        return True

    with TopologyTestDriver(application(on_processing_error=skip)) as driver:
        for value in ("a", "sleep", "b", "loop", "c"):
            driver.pipe("orders", value)
        assert [output[0] for output in driver.outputs()] == ["a", "b", "c"]
    assert seen == [(ProcessingTimeoutError, "sleep", 1), (ProcessingTimeoutError, "loop", 3)]


def test_state_is_never_interrupted_in_the_middle_of_a_call() -> None:
    with TopologyTestDriver(application(busy_with_state)) as driver, pytest.raises(ProcessingError) as caught:
        driver.pipe("orders", "state", key="k")
    assert "in busy_with_state)" in str(caught.value)


def test_each_record_has_the_whole_time() -> None:
    def take_a_while(value: Any) -> Any:
        time.sleep(TIMEOUT_S * 0.2)
        return value

    with TopologyTestDriver(application(take_a_while)) as driver:
        for number in range(6):
            driver.pipe("orders", number)
        assert len(driver.outputs()) == 6


def test_a_deserializer_and_a_callback_are_interrupted_too() -> None:
    def read(data: bytes, context: Any) -> Any:
        time.sleep(LONG_S)

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        time.sleep(LONG_S)
        return True

    class Slow(StringDeserializer):
        def __call__(self, value: bytes, ctx: Any) -> Any:
            return read(value, ctx)

    app = Application("localhost:9092", processing_timeout=TIMEOUT_S, loglevel=None, on_consumer_error=skip)
    app.dataframe(app.topic("orders", value_deserializer=Slow())).apply(wait)
    with TopologyTestDriver(app) as driver, pytest.raises(StreamRTError) as caught:
        driver.pipe_bytes("orders", b"1")
    assert "the callback on_consumer_error itself failed" in str(caught.value)


def test_the_timestamp_extractor_of_merged_topics_is_interrupted_too(processing_mode: str) -> None:
    skipped: list[Any] = []

    def skip(error: Exception, record: Any, logger: Any) -> bool:
        skipped.append((str(error.__cause__), record.offset()))
        return True

    def when(value: Any, headers: Any, timestamp: float, timestamp_type: Any) -> int:
        # Merging asks for the time of a record before it is processed.
        return int(timestamp) if wait(value) else 0

    app = Application(
        "localhost:9092",
        processing_timeout=TIMEOUT_S,
        loglevel=None,
        on_consumer_error=skip,
        processing_mode=processing_mode,  # type: ignore[arg-type]
    )
    first = app.dataframe(app.topic("a", timestamp_extractor=when))
    first.concat(app.dataframe(app.topic("b"))).apply(lambda value, state: value, stateful=True)
    with TopologyTestDriver(app) as driver:
        for value in ("one", "sleep", "two"):
            driver.pipe("a", value, timestamp=1_000)
        driver.pipe("b", "three", timestamp=2_000)
        assert [output[0] for output in driver.outputs()] == ["one", "two", "three"]
    assert skipped == [("took longer than 1 s (processing_timeout)", 1)]


class Task:
    """A task at a record."""

    def __init__(self, offset: int = 7) -> None:
        self.offset = offset

    def moment(self) -> tuple[object, tuple[str, int, int]]:
        return self.offset, ("orders", 3, self.offset)


def run_as_operator(function: Callable[[], None]) -> None:
    """Call a function from where operators are called from."""
    exec(compile("function()", "<streamrt>", "exec"), {"function": function})


@pytest.mark.parametrize(("offset", "ended"), [(7, True), (-1, False)])
def test_the_process_of_a_function_that_cannot_be_interrupted_ends_and_leaves_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int, ended: bool
) -> None:
    """A tick would do the same in each process."""
    over = threading.Event()
    notes = Notes(tmp_path / "notes")
    watchdog = Watchdog(0.1, notes, over.set)
    errors: list[Exception] = []
    errors_at: list[float] = []
    until = time.monotonic() + LONG_S

    def is_over() -> bool:
        # What a tick does is interrupted once, and ends no process: some time after that shows it.
        shown = not ended and errors and time.monotonic() > errors_at[0] + 1
        return bool(over.is_set() or shown or time.monotonic() > until)

    def catch_everything() -> None:
        while not is_over():
            try:
                while not is_over():
                    over.wait(0.1)
            except ProcessingTimeoutError as error:
                errors_at.append(time.monotonic())
                errors.append(error)

    with watchdog.watching(Task(offset)):
        run_as_operator(catch_everything)
    watchdog.close()
    assert len(errors) == 1
    assert over.is_set() == ended
    found = Watchdog(0.1, Notes(tmp_path / "notes")).noted("orders", 3)
    assert list(found) == ([7] if ended else [])
    if ended:
        assert "did not return within 0.1 s (processing_timeout)" in str(found[7])
        assert "in catch_everything" in str(found[7])
        assert "could not be interrupted, so that its process was ended" in str(found[7])
        assert any("orders[3] at offset 7" in message for message in caplog.messages)
    assert notes.of("orders", 2) == {}


def test_a_record_that_was_noted_fails_without_a_call(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.add(("orders", 0, 1), "apply-1 (wait) did not return")
    calls: list[Any] = []
    app = application(calls.append)
    with TopologyTestDriver(app) as driver:
        watchdog = driver._execution.watchdog
        assert watchdog is not None
        # Where this process gets no time, a record takes long: that must not end it.
        watchdog._notes, watchdog._end = notes, lambda: None
        driver.pipe("orders", 1)
        with pytest.raises(ProcessingError, match=r"orders\[0\] at offset 1: .*: apply-1 \(wait\) did not return"):
            driver.pipe("orders", 2)
    assert calls == [1]


def test_two_tasks_have_the_whole_time_each() -> None:
    """Though their records have the same numbers, and no look falls between them."""
    watchdog = Watchdog(TIMEOUT_S)
    for _ in range(6):
        with watchdog.watching(Task()):
            run_as_operator(lambda: time.sleep(TIMEOUT_S * 0.2))
    watchdog.close()


def test_our_own_code_is_not_interrupted(tmp_path: Path) -> None:
    watchdog = Watchdog(0.05)
    with watchdog.watching(Task()):
        time.sleep(0.5)
    watchdog.close()


def test_in_another_thread_it_warns_that_it_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(0.05)

    def work() -> None:
        for _ in range(2):
            with watchdog.watching(Task()):
                pass

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert len(caplog.messages) == 1
    assert "processing_timeout has no effect" in caplog.messages[0]
