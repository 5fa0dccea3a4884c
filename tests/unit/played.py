"""An application whose run is played: it follows its life cycle and its wishes, without Spark and without a broker."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from streamrt import Application
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.report import Output
from tests.support import replace_methods

PARTITION = TopicPartition("orders", 0)


class PlayedOffsets:
    """Kafka's view of the topics of `Played`: one partition each, with five records, all of them committed.

    Attributes:
        end: the end of each partition.
        at: its committed offset.
        ids: Kafka's ids of topics.
    """

    def __init__(self) -> None:
        self.end, self.at = 5, 5
        self.ids: dict[str, str] = {}

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in topics]

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.at)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(partitions, (0, self.end))

    def stable_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        return True

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids.get(topic, f"id-of-{topic}") for topic in topics}


class Played(Application):
    """Reads the topics `orders` and `prices`, and does nothing with them.

    Attributes:
        works: while it is cleared, the start takes its time.
        obeys: while it is cleared, no request is fulfilled.
        failure: ends the run with this error.
        kafka: the offsets of its topics.
    """

    def __init__(self, **settings: Any) -> None:
        unused = {"broker_address": "unused.invalid:9092", "consumer_group": "shop", "loglevel": None}
        super().__init__(**{**unused, "control": "0", **settings})
        self.works, self.obeys = threading.Event(), threading.Event()
        self.works.set()
        self.obeys.set()
        self.failure: BaseException | None = None
        self.kafka = PlayedOffsets()
        replace_methods(self._execution, run=self._play)
        replace_methods(self._offsets, view=lambda timeout=None: self.kafka)
        replace_methods(self._state.checkpoints, _committed=lambda: Offsets({PARTITION: 5}))
        orders = self.dataframe(self.topic("orders")).apply(lambda value, state: value, stateful=True)
        orders.to_topic(self.topic("large-orders"))
        self.dataframe(self.topic("prices"))

    def _play(self, timeout: float = 0.0, count: int = 0, *, collect: bool = False) -> list[Output]:
        self._state.progress = self._state.progress.next_run()
        while not self._state.stop.is_set() and not self.works.wait(0.01):
            pass
        if not self._state.stop.is_set() and self.failure is None:
            self._state.control.works()
        while not self._state.stop.wait(0.01) and self.failure is None:
            if self.obeys.is_set():
                self._state.control.mark_fulfilled(self._state.control.run_request)
        self._state.end(self.failure)
        if self.failure is not None:
            raise self.failure
        return []


@contextmanager
def played(**settings: Any) -> Iterator[Played]:
    """Start an application; end it, and its server."""
    app = Played(**settings)
    try:
        app.start()
        yield app
    finally:
        app.obeys.set()
        if app.status.is_active:
            app.stop(wait=True)
        close_server(app)


def close_server(app: Application) -> None:
    """End the control server of an application, which otherwise lives as long as the process."""
    if app._server is not None:
        app._server.close()
