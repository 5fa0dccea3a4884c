"""The driver's commits in micro-batch mode keep the records of the micro-batch under way."""

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest

from streamrt.kafka import TopicAdmin
from streamrt.models import TopicPartition
from streamrt.records import OffsetRange
from streamrt.runs import processed_purge
from streamrt.runs.processed_purge import ProcessedPurge
from streamrt.runs.start_positions import Start
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.runtime.report import Report
from streamrt.spark.commits import Commits
from tests.unit.apps import Stage, completed

PLACE = TopicPartition("in", 0)


class Broker:
    """Takes commits, and deletes records."""

    def __init__(self) -> None:
        self.deleted: dict[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int], **options: Any) -> None: ...

    def delete_records(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        self.deleted.update(offsets)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_records_of_a_micro_batch_are_kept_until_it_has_ended(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processed_purge, "_PURGE_EVERY_S", 0.0)
    stage, broker = Stage(processing_guarantee=guarantee), Broker()
    stage.sdf.to_topic(stage.out)
    spec = completed(stage.app)
    admin = cast("TopicAdmin", broker)
    commits = Commits(stage.app.config, spec, Progress(), ProcessedPurge(admin, ["in"]), threading.Event(), admin)
    commits.start(cast("Any", broker), 1, Start({PLACE: 0}, {}, frozenset()))

    def work(end: int) -> None:
        commits.report(
            Report(ranges={PLACE: OffsetRange(*PLACE, 0, end)}, workers={spec.topology.task(PLACE): "worker"})
        )
        commits.commit()

    with commits.reading():
        # Each slice reads the micro-batch from its beginning.
        work(10)
        work(20)
        assert not broker.deleted
    assert broker.deleted == {PLACE: 20}
    with commits.reading():
        work(30)
        assert broker.deleted == {PLACE: 20}
    work(40)
    assert broker.deleted == {PLACE: 40}
