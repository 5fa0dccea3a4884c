"""Records that are deleted before they are processed: the application goes on with the others, and tells the loss."""

import logging
import re
from pathlib import Path

import pytest

from streamrt import Application, State, message_context
from streamrt.errors import OffsetOutOfRangeError
from streamrt.models import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata
from tests.spark.stateful import GUARANTEES, count, counting, counts, feed, refused, set_offset
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was told of losses so far."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name == "streamrt" and "were deleted" in record.getMessage()
    ]


def metadata(kafka: Kafka, group: str, topic: str) -> str:
    """Return what is stored with the committed offset of partition 0."""
    place = TopicPartition(topic, 0)
    return kafka.admin.committed_stable(group, [place])[place].metadata


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_fault_4_a_restart_processes_what_retention_has_left(
    kafka: Kafka, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, group = kafka.topic("in"), unique("shop")
    feed(kafka, source, "aaa")

    def app(**settings: object) -> Application:
        return counting(kafka, group, source, processing_guarantee=guarantee, **settings)

    assert counts(app()) == [("a", 1), ("a", 2), ("a", 3)]
    feed(kafka, source, "aaaaa")
    kafka.admin.delete_records({TopicPartition(source, 0): 5})
    careful = {"auto_recover_from_source_offset_out_of_range": False}
    for _ in range(2):
        refused(app(**careful), OffsetOutOfRangeError, f"{source}[0]", "3 to 4", "up to 2 records", "offset to 5")
        assert kafka.committed(group, source) == 3, "the user decides"
    assert not losses(caplog)
    stores = CommittedMetadata.decode(metadata(kafka, group, source)).stores
    if guarantee == "at-least-once":
        # What the sentence advises.
        set_offset(kafka, group, source, 5)
        assert counts(app(**careful)) == [("a", 4), ("a", 5), ("a", 6)]
        assert not losses(caplog), "nothing is out of range any more"
    else:
        # The choice of where to begin is for groups that have not begun.
        assert counts(app(auto_offset_reset="latest")) == [("a", 4), ("a", 5), ("a", 6)]
        (loss,) = losses(caplog)
        assert f"{source}[0] begins at offset 5" in loss
        assert "3 to 4" in loss
        assert "2 records" in loss
        assert "continuing at offset 5" in loss
    assert CommittedMetadata.decode(metadata(kafka, group, source)).stores == stores
    # No one asks again, also where the state comes from its changelog.
    app().clear_state()
    feed(kafka, source, "a")
    assert counts(app(**careful)) == [("a", 7)]


def test_fault_4_the_gap_stays_accepted_if_nothing_is_processed_after_it(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    source, group = kafka.topic("in"), unique("shop")
    feed(kafka, source, "aaa")
    settings = {"processing_guarantee": "exactly-once"}
    assert len(counts(counting(kafka, group, source, **settings))) == 3
    told = metadata(kafka, group, source)
    feed(kafka, source, "aa")
    kafka.admin.delete_records({TopicPartition(source, 0): 5})
    for _ in range(2):
        assert counts(counting(kafka, group, source, **settings)) == []
        assert kafka.committed(group, source) == 5
        assert metadata(kafka, group, source) == told
    assert len(losses(caplog)) == 1
    feed(kafka, source, "a")
    assert counts(counting(kafka, group, source, **settings)) == [("a", 4)]


class Gate:
    """Counts the records of a key; the first record waits for a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, value: str, state: State) -> int:
        if value == "first":
            (self.directory / "reached").touch()
            wait_until((self.directory / "open").exists)
        return count(value, state)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_fault_4_an_application_that_retention_overtakes_goes_on_behind_the_gap(
    kafka: Kafka, guarantee: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, group, rest = kafka.topic("in"), unique("shop"), 30_000
    place, kept = TopicPartition(source, 0), rest - 4
    # Clients read ahead, but not as far as that.
    slowly = {"max.partition.fetch.bytes": 20_000}
    app = kafka.app(group, processing_guarantee=guarantee, consumer_extra_config=slowly, auto_offset_reset="latest")
    sdf = app.dataframe(app.topic(source, key_deserializer="str")).apply(Gate(tmp_path), stateful=True)
    target = app.topic(kafka.topic("out"))
    sdf.filter(lambda _: message_context().offset >= rest).to_topic(target)
    with running(app):
        wait_until(lambda: kafka.committed(group, source) == 0, what="the assignment")
        kafka.produce(source, ["first"])
        wait_until((tmp_path / "reached").exists, what="the slow record")
        kafka.produce(source, ["later"] * rest)
        kafka.admin.delete_records({place: kept})
        (tmp_path / "open").touch()
        wait_until(lambda: kafka.committed(group, source) == rest + 1, what="the end")
    (loss,) = losses(caplog)
    found = re.search(r"offsets (\d+) to (\d+) were deleted", loss)
    assert found is not None, loss
    first, last = map(int, found.groups())
    assert last == kept - 1
    (counted,) = kafka.values(target.name, 1)
    if guarantee == "exactly-once":
        assert counted == rest + 1 - (last + 1 - first), "the state has all that was not lost, once"
    else:
        assert counted >= rest + 1 - (last + 1 - first)
