"""A played application with many operators and partitions, some of them with names that are hostile to pages."""

import time
from dataclasses import replace
from typing import Any

from streamrt.records import OffsetRange, TopicPartition
from streamrt.runtime.driver.observation.lag import Lag, LagSample, OtherPartition
from streamrt.runtime.report import FailedRecord, Pause, Report, RestoredPart, StoreSize, StoreTime
from streamrt.topology import TaskId
from tests.unit.played import Played

TOPICS = 10
PARTITIONS = 20
HOSTILE = "<img src=x onerror=hacked()>"


class Crowded(Played):
    """Has forty operators, and two hundred partitions if it is `fed`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.fed_records = 0
        for number in range(TOPICS - 2):
            frame = self.dataframe(self.topic(f"clicks-{number}"))
            for _ in range(2):
                frame = frame.apply(hostile)
            if number < 5:
                frame = frame.group_by("user", name=f"by-user-{number}").apply(count, stateful=True)
            if number % 2:
                frame.to_topic(self.topic("all-clicks"))

    def feed(self, records: int) -> None:
        """Process records in all partitions; Kafka has three more for every seventh partition."""
        begin, self.fed_records = self.fed_records, self.fed_records + records
        topics = list(self.topology.sources)[:TOPICS]
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        report = Report(
            ranges={each: OffsetRange(*each, begin, self.fed_records) for each in partitions},
            records=records * len(partitions),
            produced=records,
            seconds=0.2 + records % 7 / 10,
        )
        self._state.progress.report(report)
        assert self._server is not None
        lag = self._server._lag
        # Its thread would ask a broker that does not exist.
        lag.close()
        lags = {
            each: Lag(self.fed_records, self.fed_records + 3 * (number % 7 == 0))
            for number, each in enumerate(partitions)
        }
        lag.sample = LagSample(time.time(), lags)

    def share(self) -> None:
        """Give partitions of a topic `shared` to another instance, and to one that has no control server."""
        assert self._server is not None
        lag = self._server._lag
        owners = (("10.0.0.7:7070", "http://10.0.0.7:7070"), ("10.0.0.8", None))
        others = {
            TopicPartition("shared", number): OtherPartition(Lag(7, 12), *owners[number % 2]) for number in range(6)
        }
        lag.sample = replace(lag.sample, others=others)

    def trouble(self) -> None:
        """Report everything that can go wrong."""
        task, now = TaskId("orders", 0), int(time.time() * 1_000)
        stores = [(TaskId("orders", number), "default") for number in range(4)]
        self._state.progress.report(
            Report(
                skipped=2,
                dead_letters=3,
                stalled={task: Pause(5.0, "the database is <b>away</b>")},
                interrupted={task: f"broker away {HOSTILE}"},
                sizes={store: StoreSize(3_000_000, 500) for store in stores},
                times={store: StoreTime(now - 1_000 * store[0].partition, None) for store in stores},
                failed=[
                    FailedRecord(task, "dead letter", "process", "orders", 97, "apply-1", f"KeyError: {HOSTILE}", 2)
                ],
                restores={store: RestoredPart(700 * store[0].partition, 4_000, 5, finished=False) for store in stores},
            ),
            finished=False,
        )
        # 3 s behind the event time of its task.
        marks = {store[0]: {store[1]: now - 3_000 - 1_000 * store[0].partition} for store in stores}
        self._state.progress.meters.watermarked(marks)


def count(value: Any, state: Any) -> Any:
    """Do nothing."""
    return value


def hostile(value: Any) -> Any:
    """Do nothing, under a name that is markup."""
    return value


hostile.__name__ = hostile.__qualname__ = HOSTILE
