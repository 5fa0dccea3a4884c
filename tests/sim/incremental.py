"""A consumer group of the protocol `consumer` (KIP-848): the coordinator moves partitions one by one.

Each change gives the group a target. A member hears of it with its heartbeat: first it gives back what it is not to have,
then it gets what no other member has any more. What stays is never taken from it, unless its session ends.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.membership.group_state import GroupAssignment
from streamrt.models import TopicPartition
from tests.sim.driver import Wrong
from tests.sim.group import Group, Member, SimMember

if TYPE_CHECKING:
    from tests.sim.resident import ResidentSimulation
    from tests.sim.simulation import Process


class IncrementalGroup(Group):
    """Moves partitions between members whose heartbeats come in any order.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "ResidentSimulation") -> None:
        self._changed = True
        self._target: dict[Member, frozenset[TopicPartition]] = {}
        self._owners: dict[TopicPartition, Member] = {}
        self._answered: set[Member] = set()
        super().__init__(sim)

    @property
    def pending(self) -> bool:
        """Whether somebody has come or gone since the last target, or members do not have yet what they are to have."""
        return self._changed or any(not self._has_target(member) for member in self._target)

    @pending.setter
    def pending(self, pending: bool) -> None:
        self._changed = pending

    def owner(self, place: TopicPartition) -> Member | None:
        """Return who owns a partition."""
        return self._owners.get(place)

    def leave(self, member: Member) -> None:
        self._free(member)
        super().leave(member)

    def rebalance(self) -> None:
        """Choose a target if there is a reason for another one, and let some heartbeats come."""
        sim = self._sim
        if not self.pending or self._changed:
            self._choose_target()
        members = list(self.members)
        sim.rng.shuffle(members)
        for member in members:
            if member in self.members and (sim.calm or sim.rng.random() < 0.7):
                self._heartbeat(member)

    def _choose_target(self) -> None:
        sim, rng = self._sim, self._sim.rng
        sim.broker.generation += 1
        for member in list(self.members):
            if not member.alive:
                self.leave(member)
        self._target = dict.fromkeys(self.members, frozenset())
        self._changed = not self.members
        if not self.members:
            return
        members = list(self.members)
        rng.shuffle(members)
        for number in range(sim.partitions):
            # As by the range assignor, the same numbers of all topics go together.
            places = frozenset(place for place in sim.inputs if place.partition == number)
            owners = [self._owners[place] for place in sorted(places) if place in self._owners]
            chosen = owners[0] if owners and rng.random() < 0.5 else members[number % len(members)]
            self._target[chosen] |= places
        sim.note(f"epoch {sim.broker.generation}: {[(str(each), sorted(to)) for each, to in self._target.items()]}")

    def _heartbeat(self, member: Member) -> None:
        sim = self._sim
        late = sim.faults.zombies and not sim.calm and sim.rng.random() < 0.03
        if member in sim.acting or late:
            # Its heartbeat does not come, and after a while its session ends.
            if late or sim.rng.random() < 0.6:
                self._evict(member)
            return
        moved = self._owned(member) - self._target.get(member, frozenset())
        if moved:
            sim.note(f"{member} is to give back {sorted(moved)}")
            member.give_back(moved)
            if member not in self.members:
                return
            if sim.freezes():
                self._evict(member)
                member.freeze()
                return
            for place in moved:
                # If the member was evicted meanwhile, and has joined again, another one may own it.
                if self._owners.get(place) is member:
                    del self._owners[place]
            if not sim.calm and sim.faults.left > 0 and sim.rng.random() < 0.2:
                sim.note(f"{member} is busy, but for its heartbeats")
                member.halt()
        # The target may be another one by now.
        wanted = self._target.get(member)
        if wanted is None:
            return
        free = frozenset(place for place in wanted if place not in self._owners)
        if free or (member not in self._answered and not wanted):
            sim.note(f"{member} is given {sorted(free)}")
            self._owners.update(dict.fromkeys(free, member))
            self._answered.add(member)
            member.assign(free)

    def _evict(self, member: Member) -> None:
        self._sim.note(f"{member} is evicted")
        self.leave(member)
        member.evict()

    def _free(self, member: Member) -> None:
        self._owners = {place: owner for place, owner in self._owners.items() if owner is not member}
        self._target.pop(member, None)
        self._answered.discard(member)

    def _owned(self, member: Member) -> frozenset[TopicPartition]:
        return frozenset(place for place, owner in self._owners.items() if owner is member)

    def _has_target(self, member: Member) -> bool:
        return self._owned(member) == self._target[member]


class IncrementalMember(SimMember):
    """Place of a process in such a group, as `GroupMember` keeps it: since when the process holds each partition."""

    def __init__(
        self,
        sim: "ResidentSimulation",
        process: "Process",
        on_revoke: Callable[[frozenset[TopicPartition]], None],
        on_lost: Callable[[frozenset[TopicPartition]], None],
        group: IncrementalGroup,
        owner: Member,
    ) -> None:
        super().__init__(sim, process, on_revoke, on_lost, lambda: group.join(owner))
        self._group = group
        self._owner = owner

    @property
    def _is_current(self) -> bool:
        return not self.evicted and self._owner in self._group.members

    def _owns_since(self, owned: GroupAssignment, places: Collection[TopicPartition], generation: int | None) -> bool:
        return generation is not None and owned.holds(generation, places)

    def _commit_to_group(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        if not self._is_current:
            raise KafkaRequestError("the group does not know this member")
        # Kafka compares only the epoch of the member, and takes offsets of any partition.
        foreign = [place for place in offsets if self._group.owner(place) is not self._owner]
        if foreign:
            raise Wrong(f"{self._process.name} commits offsets of {sorted(foreign)}, which it does not own")
        self._sim.broker.commit(self._sim.broker.generation, offsets, metadata)

    def assign(self, places: frozenset[TopicPartition]) -> None:
        self._count += 1
        held = {} if self._owned is None or self.evicted else dict(self._owned.held)
        self._hold({**held, **dict.fromkeys(places, self._count)})
        self._revoking = self.evicted = False

    def _without(self, owned: GroupAssignment, places: frozenset[TopicPartition]) -> GroupAssignment:
        self._count += 1
        return self._hold({place: since for place, since in owned.held.items() if place not in places})

    def _hold(self, held: Mapping[TopicPartition, int]) -> GroupAssignment:
        self._owned = GroupAssignment(self._count, frozenset(held), held=held)
        return self._owned
