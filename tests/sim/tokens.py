"""Callers who wait for tokens in the simulator, through two `group_by`s, while everything else goes wrong.

`Completion`, which is behind `Application.wait_for`, looks at the simulated broker at any step of any process. When it says
that everything below a token is done, all outputs of these records must be durable behind both groupings.
"""

import random
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.completion import Completion
from tests.sim.app import AGAIN_OUT, GROUPED_OUT, OUT, SOURCE, Setup, unique_id
from tests.sim.driver import Wrong
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Process, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_WAITING = 3
_COMES = 0.01
"""How likely somebody comes who waits, at each step."""
_LOOKS = 50


class SimOffsets:
    """Implements `OffsetView`: what Kafka answers."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        return [place for place in self._sim.broker.logs if place.topic in topics]

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        return {place: self._sim.broker.offsets.get(place, (None, None))[0] for place in partitions}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return {place: (self._sim.broker.logs[place].low, self._sim.broker.logs[place].end) for place in partitions}

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {place: self._sim.broker.logs[place].stable for place in partitions}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        log = self._sim.broker.logs[partition]
        if end > log.stable:
            raise Wrong(f"{partition} is read up to {end}, and is stable up to {log.stable} only")
        return any(log.read(start, end))


class Waiters:
    """Callers who wait, each for a token.

    Args:
        sim: the world.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._chance = random.Random(f"tokens {sim.seed}")
        self._waiting: list[tuple[dict[TopicPartition, int], Completion]] = []

    def look(self) -> None:
        """Let callers come, and look whether what they wait for is done."""
        if self._chance.random() < _COMES and len(self._waiting) < _MOST_WAITING:
            logs = self._sim.broker.logs
            places = [place for place in logs if place.topic == SOURCE and self._chance.random() < 0.8]
            token = {place: self._chance.randint(logs[place].low, logs[place].end) for place in places}
            self._sim.note(f"somebody waits for {token}")
            following = Completion(self._sim.spec.topology, token, SimOffsets(self._sim), self._sim.seconds)
            self._waiting.append((token, following))
        for waiting in list(self._waiting):
            if self._chance.random() < 0.1:
                self._advance(waiting)

    def finish(self) -> None:
        """Without faults and with nothing left to process, everybody goes on."""
        for _ in range(_LOOKS):
            for waiting in list(self._waiting):
                self._advance(waiting)
            self._sim.broker.wait(100)
        if self._waiting:
            token, following = self._waiting[0]
            raise Wrong(f"who waits for {token} waits for ever: {following.missing}")

    def _advance(self, waiting: tuple[dict[TopicPartition, int], Completion]) -> None:
        token, following = waiting
        if not following.advance():
            return
        self._waiting.remove(waiting)
        self._sim.counts.events["token"] = self._sim.counts.events.get("token", 0) + 1
        self._sim.note(f"who waits for {token} goes on")
        meant = {
            unique_id(entry) for place, end in token.items() for entry in self._sim.broker.logs[place].history(end)
        }
        for sink in (OUT, GROUPED_OUT, AGAIN_OUT):
            # What is committed is durable, also where the markers are still to be written.
            durable = {
                unique_id(entry)
                for place, log in self._sim.broker.logs.items()
                if place.topic == sink
                for entry in log.entries
                if entry.visible
            }
            if missing := sorted(meant - durable):
                raise Wrong(
                    f"wait_for({token}) has returned, but {sink} has no durable outputs of the records {missing}"
                )


class _Waited(Simulation):
    """A world with two groupings, in which callers wait for tokens."""

    def __init__(self, seed: int, setup: Setup | None = None, *args: Any, **options: Any) -> None:
        self._waiters: Waiters | None = None
        own = random.Random(f"regrouped {seed}")
        guarantee = own.random() < 0.7
        if options.get("transactional") is not None:
            guarantee = options["transactional"]
        drawn = Setup(guarantee, own.random() < 0.5, True, own.random() < 0.2, regrouped=True)
        super().__init__(seed, setup or drawn, *args, **options)
        self._waiters = Waiters(self)

    def step(self, process: Process, where: str, trouble: "Callable[[str], Exception] | None" = None) -> None:
        if self._waiters is not None and not process.dead and not self.calm:
            self._waiters.look()
        super().step(process, where, trouble)

    def _finish(self) -> None:
        super()._finish()
        assert self._waiters is not None
        self._waiters.finish()


class TokenSimulation(_Waited):
    """Micro-batches with two groupings, and callers who wait for tokens."""

    mode = "tokens"


class ResidentTokenSimulation(_Waited, ResidentSimulation):
    """Resident tasks with two groupings, and callers who wait for tokens."""

    mode = "resident-tokens"
