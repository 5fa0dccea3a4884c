"""A consumer group of resident tasks and drivers: who owns which partitions, who is asked to give them back, who is not."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import OffsetMetadata
from streamrt.kafka.cluster.topic_ids import DOUBTFUL
from streamrt.kafka.membership.group_state import GroupAssignment, GroupFencedError
from streamrt.models import TopicPartition
from streamrt.runtime.resident.membership import Membership
from tests.sim.clients import refused
from tests.sim.driver import Wrong

if TYPE_CHECKING:
    from tests.sim.resident import ResidentSimulation
    from tests.sim.simulation import Process

_REVOKED_S = 300.0
"""Longer than a revocation waits for its task."""


class Member(Protocol):
    """Somebody who owns partitions."""

    @property
    def alive(self) -> bool:
        """Whether partitions can be given to it."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it believes to own."""

    def give_back(self, places: frozenset[TopicPartition]) -> None:
        """Commit, and let go of partitions."""

    def evict(self) -> None:
        """Lose all partitions without hearing of it."""

    def freeze(self) -> None:
        """Do nothing for a while; the group goes on without it."""

    def halt(self) -> None:
        """Do nothing for a while, and stay in the group."""

    def assign(self, places: frozenset[TopicPartition]) -> None:
        """Own partitions from now on."""


class Group:
    """Shares the partitions among members; each change is a generation.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "ResidentSimulation") -> None:
        self._sim = sim
        self.members: list[Member] = []
        self.pending = True
        """Whether somebody has come or gone since the last assignment."""

    def join(self, member: Member) -> None:
        """Take a new member, or one that was evicted."""
        if member not in self.members:
            self.members.append(member)
        self.pending = True

    def leave(self, member: Member) -> None:
        """Let a member go; its partitions have no owner until the next assignment."""
        if member in self.members:
            self.members.remove(member)
        self.pending = True

    def rebalance(self) -> None:
        """Take all partitions, in good order from members that are awake, and give them out again."""
        sim = self._sim
        begun = sim.broker.generation
        self.pending = False
        for member in list(self.members):
            late = sim.faults.zombies and not sim.calm and sim.rng.random() < 0.03
            if member in sim.acting or late:
                sim.note(f"{member} is evicted")
                if member in self.members:
                    self.members.remove(member)
                member.evict()
            else:
                member.give_back(member.owned)
                if member in self.members and sim.freezes():
                    # It waits for its next assignment, and owns nothing: it is not a zombie.
                    sim.note(f"{member} freezes, and its session ends")
                    self.members.remove(member)
                    member.freeze()
            if sim.broker.generation != begun:
                # What happened meanwhile has led to another one.
                return
        sim.broker.generation += 1
        members = [member for member in self.members if member.alive]
        self.members = list(members)
        if not members:
            self.pending = True
            return
        given: dict[int, set[TopicPartition]] = {index: set() for index in range(len(members))}
        sim.rng.shuffle(members)
        for number in range(sim.partitions):
            index = sim.rng.randrange(len(members)) if sim.rng.random() < 0.3 else number % len(members)
            # As by the range assignor, the same numbers of all topics go together.
            given[index] |= {place for place in sim.inputs if place.partition == number}
        for index, places in given.items():
            sim.note(f"{members[index]} is given {sorted(places)}")
            members[index].assign(frozenset(places))


class SimMember:
    """Implements `Member` of resident tasks: what a process knows of its place in the group."""

    def __init__(
        self,
        sim: "ResidentSimulation",
        process: "Process",
        on_revoke: Callable[[frozenset[TopicPartition]], None],
        on_lost: Callable[[frozenset[TopicPartition]], None],
        rejoin: Callable[[], None],
    ) -> None:
        self._sim = sim
        self._process = process
        self._on_revoke = on_revoke
        self._on_lost = on_lost
        self._rejoin = rejoin
        self._owned: GroupAssignment | None = None
        self._group_generation = 0
        self._count = 0
        self._revoking = False
        self.evicted = False
        self.started = False
        self.closed = False

    @property
    def away(self) -> bool:
        return not self._sim.calm and self._sim.rng.random() < 0.03

    def start(self) -> None:
        self.started = True

    def join_again(self) -> None:
        """Do nothing: the group of the simulation hears of members at once."""

    def current_assignment(self, timeout: float) -> GroupAssignment | None:
        self._sim.step(self._process, "assignment")
        if self.evicted and (self._sim.calm or self._sim.rng.random() < 0.3):
            self.notice()
        return None if self._revoking else self._owned

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        generation: int | None = None,
        timeout: float = 30.0,
        metadata: OffsetMetadata = None,
    ) -> None:
        sim = self._sim
        sim.step(self._process, "group commit", refused)
        if self._owned is None or not self._owns_since(self._owned, offsets, generation):
            raise GroupFencedError(f"{self._process.name} does not own {sorted(offsets)} any more")
        trouble = sim.trouble("group commit", 0.3)
        if trouble and sim.rng.random() < 0.5:
            raise KafkaRequestError("injected: the offsets are not committed", retriable=True)
        for place, offset in offsets.items():
            before = sim.broker.offsets.get(place, (0, None))[0]
            if not sim.setup.transactional and self._is_current and offset < before:
                raise Wrong(f"{self._process.name} moves the group back in {place}, from {before} to {offset}")
        sim.check_committer(self._process.name, offsets)
        try:
            self._commit_to_group(offsets, metadata)
        except KafkaRequestError as error:
            if error.code in DOUBTFUL:
                sim.doubted(self._process.name)
                raise
            self.notice()
            raise GroupFencedError(f"{self._process.name} is fenced: {error}") from error
        if not sim.setup.transactional:
            sim.checks.durable(offsets)
            sim.check_taken(offsets)
        if trouble:
            raise KafkaRequestError("injected: the offsets are committed, and nobody heard of it", retriable=True)
        sim.step(self._process, "group committed")

    def close(self) -> None:
        if self._owned is not None and not self._revoking:
            self._on_revoke(self._owned.partitions)
        self._owned = None
        self.closed = True

    def _owns_since(self, owned: GroupAssignment, places: Collection[TopicPartition], generation: int | None) -> bool:
        return owned.generation == generation and owned.partitions.issuperset(places)

    @property
    def _is_current(self) -> bool:
        """Whether the group takes commits of this member."""
        return self._group_generation == self._sim.broker.generation

    def _commit_to_group(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata) -> None:
        self._sim.broker.commit(self._group_generation, offsets, metadata)

    # -- What the group does -------------------------------------------------------------------------------------------

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it believes to own."""
        return frozenset() if self._owned is None else self._owned.partitions

    def assign(self, places: frozenset[TopicPartition]) -> None:
        self._count += 1
        former, self._group_generation = self._group_generation, self._sim.broker.generation
        unbroken = not self.evicted and self._group_generation == former + 1
        self._owned = GroupAssignment(self._count, places, unbroken)
        self._revoking = self.evicted = False

    def revoke(self, membership: Membership, places: frozenset[TopicPartition], work: Callable[[], bool]) -> None:
        """Call the function for revoked partitions, in a thread as it should be, and wait until it has returned.

        Args:
            membership: of the task whose partitions they are.
            places: the partitions.
            work: lets the task go on for a while; returns False when it is gone.
        """
        if self._owned is None or self.closed:
            return
        owned, generation = self._owned, self._group_generation
        if places:
            self._revoking = True
            membership._drained.clear()
            # A thread costs more than all the rest. Without one, its first half is done here: the second one waits.
            thread = threading.Thread(target=self._on_revoke, args=(places,), daemon=True)
            if self._sim.rng.random() < 0.1:
                thread.start()
                while thread.is_alive() and not membership._revoking.is_set():
                    time.sleep(0)
            else:
                membership._revoking.set()
            while not membership._drained.is_set() and work():
                pass
            membership._drained.set()
            if thread.ident is not None:
                thread.join(_REVOKED_S)
                assert not thread.is_alive(), f"{self._process.name} waits for the end of a revocation that is over"
        if self._owned is owned and self._group_generation == generation and not self.evicted:
            self._owned, self._revoking = self._without(owned, places), False

    def _without(self, owned: GroupAssignment, places: frozenset[TopicPartition]) -> GroupAssignment | None:
        """Return what is left when partitions are given back: nothing, since each change takes all."""
        return None

    def notice(self) -> None:
        """Hear that the partitions are lost, and join again."""
        lost, self._owned, self._revoking = self.owned, None, False
        self.evicted = False
        if lost:
            self._on_lost(lost)
        self._rejoin()
