"""Clients with which a resident task reads records, and commits several transactions, in the simulator."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from streamrt.errors import OffsetOutOfRangeError
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.models import TimestampType, TopicPartition
from tests.sim.deriving import headers_of
from tests.sim.driver import Wrong

if TYPE_CHECKING:
    from tests.sim.resident import ResidentSimulation
    from tests.sim.simulation import Process


class SimPool(Executor):
    """Runs at once what it is given."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SimFeed:
    """Implements `Feed` over the simulated cluster."""

    def __init__(
        self,
        sim: "ResidentSimulation",
        process: "Process",
        on_doubt: Callable[[str, Collection[str]], None] = lambda error, topics: None,
    ) -> None:
        self._sim = sim
        self._on_doubt = on_doubt
        self._topics: dict[TopicPartition, str | None] = {}
        self._process = process
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        if not positions.keys().isdisjoint(self._positions):
            raise Wrong(f"{sorted(positions)} are assigned already")
        self._positions.update(positions)
        self._topics.update({place: self._sim.broker.ids.get(place.topic) for place in positions})
        self._paused.update(positions)

    def remove(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place, None)
            self._ends.pop(place, None)
            self._paused.discard(place)

    def poll(self, timeout_s: float, records: int) -> Sequence[tuple[TopicPartition, InputBatch]]:
        sim, rng = self._sim, self._sim.rng
        sim.step(self._process, "poll")
        found = []
        places = [place for place in sorted(self._positions) if place not in self._paused]
        rng.shuffle(places)
        for place in places:
            if records <= 0 or (not sim.calm and rng.random() < 0.2):
                # The client has not got it yet.
                continue
            log, at = sim.broker.logs[place], self._positions[place]
            if (error := self._trouble(place)) is not None:
                self._on_doubt(str(error), [place.topic])
                sim.doubted(self._process.name)
                raise error
            if at < log.low:
                raise OffsetOutOfRangeError(f"injected: offset {at} of {place} is deleted")
            taken = list(log.read(at, log.stable))[: min(records, rng.randint(1, sim.largest))]
            if taken:
                self._positions[place] = taken[-1].offset + 1
                self._ends.pop(place, None)
                records -= len(taken)
                found.append(
                    (
                        place,
                        InputBatch(
                            [entry.offset for entry in taken],
                            [entry.key for entry in taken],
                            [entry.value for entry in taken],
                            [entry.timestamp for entry in taken],
                            [int(TimestampType.TIMESTAMP_CREATE_TIME)] * len(taken),
                            headers_of(place.topic, taken),
                        ),
                    )
                )
            else:
                self._positions[place] = self._ends[place] = max(at, log.stable)
        if not found:
            sim.wait(timeout_s)
        return found

    def _trouble(self, place: TopicPartition) -> Exception | None:
        """Return the error if a topic is another one; a client may also read on, and notice nothing."""
        log, at, now = self._sim.broker.logs[place], self._positions[place], self._sim.broker.ids.get(place.topic)
        former, self._topics[place] = self._topics[place], now
        if at > log.end:
            return OffsetOutOfRangeError(f"injected: offset {at} of {place} does not exist")
        if now != former and self._sim.notices():
            return KafkaRequestError(
                f"injected: {place} is not known", KafkaError.UNKNOWN_TOPIC_OR_PART, retriable=True
            )
        return None

    def seek(self, place: TopicPartition, offset: int) -> None:
        if place not in self._positions:
            raise Wrong(f"{place} is sought, and not assigned")
        self._positions[place] = offset
        self._ends.pop(place, None)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._paused.update(place for place in places if place in self._positions)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(places)

    def ends(self) -> Mapping[TopicPartition, int]:
        return dict(self._ends)

    def close(self) -> None:
        self._positions.clear()
