"""Which tasks of micro-batches are ticked because work is left over."""

import pytest

from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.unfinished import Unfinished
from streamrt.runtime.report import Report
from streamrt.spark.query import QuerySettings
from streamrt.spark.row_routing import waves
from streamrt.topology import TaskId, Topology
from tests.unit.apps import application

FIRST, SECOND = TaskId("in", 0), TaskId("in", 1)


def topology(closing: str) -> Topology:
    """Return windows that close by one of the clocks."""
    app = application()
    app.dataframe(app.topic("in")).tumbling_window(10).count().final(closing_strategy=closing)  # type: ignore[arg-type]
    return app.topology


@pytest.mark.parametrize(("closing", "resumes"), [("key", False), ("partition", True), ("watermark", True)])
def test_tasks_of_an_assignment_are_unfinished_until_they_tell(closing: str, resumes: bool) -> None:
    unfinished = Unfinished(topology(closing))
    unfinished.assign([FIRST, SECOND])
    assert unfinished.tasks == ({FIRST, SECOND} if resumes else frozenset())
    unfinished.report(Report(unfinished={FIRST: False, SECOND: True}))
    assert unfinished.tasks == ({SECOND} if resumes else frozenset())
    # The next query of the same assignment need not ask again.
    unfinished.assign([FIRST])
    assert unfinished.tasks == frozenset()
    unfinished.report(Report(interrupted={FIRST: "the broker was away"}))
    assert unfinished.tasks == ({FIRST} if resumes else frozenset())
    unfinished.forget()
    unfinished.assign([FIRST, SECOND])
    assert unfinished.tasks == ({FIRST, SECOND} if resumes else frozenset())


def test_what_was_sent_is_told_when_nothing_earlier_can_follow() -> None:
    unfinished = Unfinished(topology("partition"))
    unfinished.assign([FIRST, SECOND])
    sent = {(FIRST, "grouped"): 50, (SECOND, "grouped"): 7}
    assert unfinished.report(Report(unfinished={FIRST: True, SECOND: False}, sent=sent)) == {(SECOND, "grouped"): 7}
    assert unfinished.report(Report(unfinished={SECOND: False})) == {}
    assert unfinished.report(Report(unfinished={FIRST: False}, sent={(FIRST, "grouped"): 20})) == {
        (FIRST, "grouped"): 50
    }


def test_fault_8_a_batch_with_one_record_of_each_partition_is_run_again_and_not_cut() -> None:
    settings = QuerySettings({}, max_records=64, slice_s=0.5, count=False, largest=6_400_000)
    assert settings.resized(Report(records=3, complete=False), 0.5, 64) is None
    large = QuerySettings({}, max_records=6_400_000, slice_s=0.5, count=False, largest=6_400_000)
    assert large.resized(Report(records=3, complete=False), 0.5, 64) == 64


@pytest.mark.parametrize(("partitions", "slots", "expected"), [(1, 2, 1), (3, 2, 2), (6, 2, 3), (7, 2, 1), (64, 2, 1)])
def test_a_slice_is_divided_among_the_waves_of_spark_tasks(partitions: int, slots: int, expected: int) -> None:
    places = [TopicPartition("in", number) for number in range(partitions)]
    assert waves(topology("key"), places, slots) == expected
