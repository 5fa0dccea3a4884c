"""Listeners of tables: the frames that they get, and what ends them."""

import threading
from typing import Any, cast

import pytest

from streamrt.errors import ArgumentTypeError, ArgumentValueError, SchemaError, SerializationError
from tests.support import wait_until
from tests.table_home import ids, table, write


@pytest.mark.rows("FE-082", "FE-083", "FE-084", "FE-085", "FE-086")
def test_listener_gets_frames() -> None:
    events = table(partitions=2)
    write(events, ids(5), 1)
    frames: list[tuple[int, list[dict[str, Any]]]] = []
    with events.on_changes(
        lambda frame, number: frames.append((number, cast("Any", frame.to_dict("records")))),
        columns=["id"],
        start="earliest",
        max_rows=2,
        max_delay=60,
    ) as listener:
        wait_until(lambda: len(frames) == 2)
        states = [listener.running]
        write(events, ids(1, 5), 0)
        wait_until(lambda: len(frames) == 3)
        wait_until(lambda: listener.position == events.offsets())
    assert [(number, [row["id"] for row in rows]) for number, rows in frames] == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]
    assert frames[0][1][0] == {"id": 0, "_change_type": "+A", "insert_delete": 1}
    assert [*states, listener.running] == [True, False]
    assert listener.error is None


def test_listener_does_not_wait_for_a_full_frame() -> None:
    events = table()
    write(events, ids(3))
    frames: list[int] = []
    with events.on_changes(lambda frame, number: frames.append(len(frame)), start="earliest", max_delay=0.01):
        wait_until(lambda: frames)
    assert frames == [3]


@pytest.mark.rows("FE-086")
def test_exception_ends_the_listener_and_is_kept() -> None:
    events = table()
    write(events, ids(4))
    calls: list[int] = []

    def fail(frame: Any, number: int) -> None:
        calls.append(number)
        if number == 1:
            raise RuntimeError("no more")

    listener = events.on_changes(fail, start="earliest", max_rows=2)
    wait_until(lambda: listener.error is not None)
    assert str(listener.error) == "no more"
    assert listener.position.partition_map("events") == {0: 2}
    wait_until(lambda: not listener.running)
    listener.stop()
    assert calls == [0, 1]


@pytest.mark.parametrize("raised", [SystemExit("enough"), KeyboardInterrupt(), GeneratorExit()])
def test_exit_ends_the_listener_and_is_reported(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    events = table()
    write(events, ids(4))
    called = threading.Event()

    def leave(frame: Any, number: int) -> None:
        called.set()
        raise raised

    listener = events.on_changes(leave, start="earliest", max_rows=2)
    assert called.wait(60)
    wait_until(lambda: not listener.running)
    assert listener.error is raised
    assert listener.position == events.offsets("earliest")
    listener.stop()
    assert f"ends with frame 0: {type(raised).__name__}" in caplog.text


def test_listener_that_stops_itself_and_bad_records() -> None:
    events = table()
    write(events, [*ids(2), b"{"])
    frames: list[int] = []
    listener = events.on_changes(lambda frame, _: frames.append(len(frame)), start="earliest")
    wait_until(lambda: listener.error is not None)
    assert frames == [2]
    assert isinstance(listener.error, SerializationError)
    assert listener.position.partition_map("events") == {0: 2}
    stopped: list[bool] = []

    has_begun = threading.Event()

    def stop_at_once(frame: Any, number: int) -> None:
        has_begun.wait(60)
        own.stop()
        stopped.append(True)

    own = events.on_changes(stop_at_once, start={0: 1}, max_rows=1)
    has_begun.set()
    wait_until(lambda: not own.running and stopped)
    assert own.error is None


@pytest.mark.parametrize(
    ("options", "error"),
    [({"max_rows": 0}, "max_rows"), ({"max_delay": -1}, "max_delay"), ({"callback": 1}, "needs a function")],
)
def test_arguments_of_listeners(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ArgumentValueError, ArgumentTypeError), match=error):
        table().on_changes(**{"callback": print, **options})


def test_listener_with_a_column_of_its_own_name() -> None:
    from streamrt.schema import Schema

    with pytest.raises(SchemaError, match="insert_delete"):
        table(schema=Schema("insert_delete INT")).on_changes(print)
