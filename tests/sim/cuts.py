"""Cuts for merges behind exchanges, in the simulated cluster."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.event_time.merge_cuts import MergeCuts
from streamrt.kafka import KafkaRequestError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class SimAdmin:
    """Answers what cuts ask Kafka for.

    Args:
        sim: the world.
        meanwhile: called while answers are on their way.
    """

    def __init__(self, sim: "Simulation", meanwhile: Callable[[], None]) -> None:
        self._sim = sim
        self._meanwhile = meanwhile

    def offset_bounds(
        self, partitions: Collection[TopicPartition], timeout: float = 30, *, isolation_level: Any = "read_uncommitted"
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        if self._sim.trouble("offset bounds", 0.1):
            raise KafkaRequestError("injected at offset bounds", retriable=True)
        logs = {place: self._sim.broker.logs[place] for place in partitions}
        committed = isolation_level == "read_committed"
        return {place: (log.low, log.stable if committed else log.end) for place, log in logs.items()}

    def offset_ends(
        self, stable: Collection[TopicPartition], high: Collection[TopicPartition], timeout: float = 30
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        if self._sim.trouble("offset bounds", 0.1):
            raise KafkaRequestError("injected at offset bounds", retriable=True)
        logs = self._sim.broker.logs
        answers = {place: logs[place].stable for place in stable}, {place: logs[place].end for place in high}
        self._meanwhile()
        return answers

    def committed_now(
        self, group: str, partitions: Collection[TopicPartition], timeout: float = 30
    ) -> Mapping[TopicPartition, CommittedOffset]:
        offsets = self._sim.broker.offsets
        return {place: CommittedOffset(offsets[place][0] if place in offsets else None) for place in partitions}


def merge_cuts(sim: "Simulation", meanwhile: Callable[[], None] = lambda: None) -> MergeCuts:
    """Return what makes cuts. It waits for each commit of others, so that what they have sent is known.

    Args:
        sim: the world.
        meanwhile: called while the answers of brokers are on their way.
    """
    return MergeCuts(
        SimAdmin(sim, meanwhile),
        "sim",
        sim.spec.topology,
        sim.broker.topics,
        None,
        sim.seconds,
        transactional=sim.setup.transactional,
    )
