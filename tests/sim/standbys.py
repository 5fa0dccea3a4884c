"""A world whose resident tasks keep copies of stores of others, which they may take over."""

import random
from typing import Any

from streamrt.runtime.link_messages import Follow
from tests.sim.resident import ResidentSimulation
from tests.sim.resident_tasks import Resident


class StandbySimulation(ResidentSimulation):
    """A world with standbys. There are none in groups of the protocol `consumer`, or for micro-batches."""

    mode = "standbys"

    def __init__(self, seed: int, *arguments: Any, **options: Any) -> None:
        super().__init__(seed, *arguments, **{"mixed": False, "incremental": False, **options})
        self._follower = random.Random(f"standbys {seed}")

    def served(self, resident: Resident) -> None:
        """Have a task follow any stores that no one on its machine has."""
        if self._follower.random() >= 0.3:
            return
        here = [each for each in self.residents if each.process.machine is resident.process.machine]
        own = {self.spec.topology.task(place) for each in here for place in each.owned}
        own.update(task for each in here for task in each.task._standbys._copies if each is not resident)
        tasks = frozenset(task for task in self.tasks if task not in own and self._follower.random() < 0.7)
        self.note(f"{resident} follows {sorted(tasks)}")
        self.counts.events["follows"] = self.counts.events.get("follows", 0) + 1
        resident.link.inbox.append(Follow(resident.task._membership.assignment.generation, tasks))
