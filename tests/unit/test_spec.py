"""The specification that travels to tasks, and when the driver commits what they have done."""

import functools
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from streamrt import Application, Topic
from streamrt.app import definition_of
from streamrt.errors import (
    MissingColumnError,
    UnpicklableOperatorError,
)
from streamrt.models import TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.driver.life.schedule import CommitSchedule
from streamrt.runtime.spec import TaskSpec
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.topology import SourceOperator
from tests.unit.apps import Stage
from tests.unit.tasks import Writer, chunk, extract, numbers, run

# -- The specification -----------------------------------------------------------------------------------------------


def operators() -> Stage:
    """Return an application with every operator."""
    stage = Stage({"timestamp_extractor": extract}, on_processing_error=lambda *_: False)
    sdf = stage.sdf
    sdf = sdf.apply(lambda value: [value], expand=True).filter(lambda value: True).update(lambda value: None)
    sdf = sdf.apply(lambda *record: record[0], metadata=True)[sdf["at"] > 0]
    sdf["x"] = (sdf["at"] * 2).apply(str).contains("2") | sdf.contains("at")
    sdf["y"] = 5
    sdf.fill("z", at=1).drop("z", errors="ignore").print(pretty=False).print_table(size=1)
    sdf = sdf.set_timestamp(lambda *_: 5).set_headers(lambda *_: [("h", b"")])
    sdf = sdf[["at", "x", "y"]]
    sdf.to_topic(stage.out, key=lambda value: str(value["at"]))
    out = stage.out
    sdf.to_topic(lambda *_: out)
    return stage


def test_a_specification_survives_pickling_with_every_operator() -> None:
    stage = operators()
    spec = definition_of(stage.app).task_spec(count_outputs=True, collect=True)
    again = TaskSpec.loads(spec.dumps())
    assert [str(node) for node in again.topology.nodes] == [str(node) for node in spec.topology.nodes]
    assert {type(node.operator).__name__ for node in spec.topology.nodes} == {
        *("SourceOperator", "Apply", "Filter", "Update", "Where", "Assign", "Print", "PrintTable"),
        *("SetTimestamp", "SetHeaders", "ToTopic"),
    }
    reports, writers = [], []
    for each in (spec, again):
        writers.append(Writer())
        reports.append(TaskExecutor(each, writers[-1]).run([chunk(b'{"at":2}', b'{"at":3}')], BatchContext()))
    assert reports[0].failure is None
    assert reports[0].collected == reports[1].collected
    assert writers[0].records == writers[1].records
    assert len(writers[0].records) == 4


def test_a21_functions_keep_the_names_of_their_files() -> None:
    """From 3.1.3 on, cloudpickle itself leaves them out."""
    namespace: dict[str, Any] = {}
    exec(compile("def price(value):\n    return value['price']\n", "shop.py", "exec"), namespace)
    stage = Stage()
    stage.sdf.apply(namespace["price"])
    again = TaskSpec.loads(definition_of(stage.app).task_spec().dumps())
    functions = [getattr(node.operator, "function", None) for node in again.topology.nodes]
    assert [each.__code__.co_filename for each in functions if each is not None] == ["shop.py"]


def test_what_is_no_specification_is_not_loaded() -> None:
    with pytest.raises(TypeError, match="expected a TaskSpec, got dict"):
        TaskSpec.loads(pickle.dumps({}))


def test_an_operator_that_holds_a_lock_is_named() -> None:
    lock = threading.Lock()
    stage = Stage()
    stage.sdf.update(lambda value: None)
    stage.sdf.apply(lambda value: lock.acquire(blocking=False))
    with pytest.raises(UnpicklableOperatorError) as caught:
        definition_of(stage.app).task_spec().dumps()
    message = str(caught.value)
    assert message.startswith("operator apply-2 (")
    assert "defined at test_spec.py:" in message
    assert "cannot pickle '_thread.lock' object" in message
    assert "must not hold clients, locks, open files or the application" in message


@pytest.mark.parametrize("kind", ["consumer", "processing", "producer"])
def test_a_callback_that_holds_a_lock_is_named(kind: str) -> None:
    lock = threading.Lock()
    callback: Any = lambda *_: lock.locked()  # noqa: E731 - its type is what matters
    stage = Stage(**{f"on_{kind}_error": callback})
    with pytest.raises(UnpicklableOperatorError, match=f"the callback on_{kind}_error cannot be sent"):
        definition_of(stage.app).task_spec().dumps()


def test_a_column_that_holds_a_lock_is_named() -> None:
    lock = threading.Lock()
    stage = Stage()
    stage.sdf["x"] = stage.sdf["a"].apply(lambda item: lock.locked())
    with pytest.raises(UnpicklableOperatorError, match=r"operator assign-1 \(x = "):
        definition_of(stage.app).task_spec().dumps()


def captures_the_application(app: Application) -> Any:
    return lambda value: app.config


def calls_one_that_captures(app: Application) -> Any:
    def helper(value: Any) -> Any:
        return app.config

    def enrich(value: Any) -> Any:
        return [helper(item) for item in value]

    return enrich


class Enricher:
    def __init__(self, app: Application) -> None:
        self.app = app

    def enrich(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (captures_the_application, r"\(<lambda> uses the variable 'app', which is of type Application\)"),
        (calls_one_that_captures, r"\(helper uses the variable 'app', which is of type Application\)"),
        (lambda app: Enricher(app).enrich, r"\(Enricher uses the attribute 'app', which is of type Application\)"),
        (
            lambda app: functools.partial(captures_the_application(app)),
            r"\(<lambda> uses the variable 'app', which is of type Application\)",
        ),
    ],
)
def test_an_application_in_a_function_is_named_with_function_and_variable(
    function: Callable[[Application], Any], named: str
) -> None:
    stage = Stage()
    stage.sdf.apply(function(stage.app))
    with pytest.raises(UnpicklableOperatorError, match=rf"operator apply-1 .* that run it {named}; tasks run in other"):
        definition_of(stage.app).task_spec().dumps()


def test_an_application_in_a_callback_or_in_a_column_is_named() -> None:
    app = Stage().app
    stage = Stage(on_processing_error=lambda *_: app.config is None)
    with pytest.raises(UnpicklableOperatorError, match=r"on_processing_error .*the variable 'app'"):
        definition_of(stage.app).task_spec().dumps()
    stage = Stage()
    stage.sdf["x"] = stage.sdf["a"].apply(captures_the_application(app))
    with pytest.raises(UnpicklableOperatorError, match=r"operator assign-1 .*the variable 'app'"):
        definition_of(stage.app).task_spec().dumps()


def test_failures_and_reports_can_be_pickled() -> None:
    stage = Stage(on_message_processed=print)
    stage.sdf.print().update(lambda value: value["missing"])
    report = run(stage.app, chunk(b'{"a":1}'))
    again = pickle.loads(cloudpickle.dumps(report))
    assert again.failure is not None
    assert str(again.failure.cause) == "'missing'"
    assert (again.ranges, again.shown) == (report.ranges, report.shown)
    column = pickle.loads(pickle.dumps(MissingColumnError("x", ("a",))))
    assert str(column) == "column 'x' is missing; the value has 'a'"


def test_a_source_describes_its_topic() -> None:
    assert SourceOperator(Topic("t")).describe() == "t"


# -- When offsets are committed --------------------------------------------------------------------------------------

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


@pytest.mark.rows("PF-L1")
@pytest.mark.parametrize(
    ("every", "records", "now", "due"),
    [
        (0, 1, 9.9, False),
        (0, 1, 10.0, True),
        (0, 1_000_000, 9.9, False),
        (100, 99, 0.0, False),
        (100, 100, 0.0, True),
        (100, 1, 10.0, True),
        (-1, 1_000, 0.0, False),
    ],
)
def test_a_commit_is_due_after_an_interval_or_a_number_of_records(
    every: int, records: int, now: float, due: bool
) -> None:
    schedule = CommitSchedule(10.0, every)
    schedule.start({A: 5}, 0.0)
    schedule.processed({A: 6}, records)
    assert schedule.due(now) is due


def test_without_progress_nothing_is_due_or_pending() -> None:
    schedule = CommitSchedule(10.0, 1)
    schedule.start({A: 5, B: 0}, 0.0)
    schedule.processed({A: 5}, 100)
    assert (schedule.pending(), schedule.due(100.0)) == ({}, False)
    assert [schedule.quiet(now) for now in (9.9, 10.0)] == [False, True]


def test_only_the_partitions_that_moved_are_committed() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({A: 5, B: 0}, 0.0)
    schedule.processed({A: 7}, 2)
    schedule.processed({A: 6, B: 0}, 1)
    assert schedule.pending() == {A: 7}
    assert not schedule.quiet(10.0)


def test_a_commit_begins_interval_and_count_anew() -> None:
    schedule = CommitSchedule(10.0, 3)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    schedule.committed(schedule.pending(), 4.0)
    assert schedule.pending() == {}
    schedule.processed({A: 5}, 2)
    assert [schedule.due(now) for now in (4.0, 13.9, 14.0)] == [False, False, True]
    schedule.processed({A: 6}, 1)
    assert schedule.due(4.0)


def test_progress_during_a_commit_stays_pending() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    offsets = schedule.pending()
    schedule.processed({A: 5, B: 2}, 4)
    schedule.committed(offsets, 1.0)
    assert schedule.pending() == {A: 5, B: 2}


def test_a_new_assignment_forgets_the_old_one() -> None:
    schedule = CommitSchedule(10.0, 1)
    schedule.start({A: 0}, 0.0)
    schedule.processed({A: 3}, 3)
    schedule.start({B: 7}, 5.0)
    assert (schedule.pending(), schedule.due(100.0)) == ({}, False)
    schedule.processed({B: 8}, 0)
    assert not schedule.due(14.9)
    assert schedule.due(15.0)


def test_a_partition_without_a_committed_offset_is_committed_once_it_moves() -> None:
    schedule = CommitSchedule(10.0, 0)
    schedule.start({}, 0.0)
    schedule.processed({A: 0}, 0)
    assert schedule.pending() == {A: 0}


def test_measured_time_is_that_of_the_batch() -> None:
    stage = Stage()
    begun = time.monotonic()
    report = run(stage.app, numbers(1))
    assert 0 < report.seconds <= time.monotonic() - begun
