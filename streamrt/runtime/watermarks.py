"""Stream-wide watermarks: how far event time is over all partitions that a process is assigned, and who must hear of it.

A store that asks for a watermark gets the lowest of the highest event times that its partitions have *observed*. A partition
whose observed time has not moved for the idle timeout is left out, so that it holds nobody up. While all partitions are
idle, event time is taken to run on with the wall clock from the newest record: that is how the last windows close.

A watermark never goes back. It is no state: a store remembers the last one that was applied to it, as its stream time.

Time counts as idle only while the input is known to be read to its end. What nobody could read, because a broker was away or
tasks were slow, is no reason to take a partition for idle: its records would be late.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamrt.models import TopicPartition
from streamrt.runtime.report import StoreTime
from streamrt.topology import Topology

__all__ = ["QuietClock", "Watermarks"]

_LONGEST_STEP_MS = 1_000


class QuietClock:
    """Counts the milliseconds in which all input was read to its end.

    Example:
        >>> clock = QuietClock()
        >>> clock.caught_up(5.0), clock.caught_up(5.5)
        (0, 500)
        >>> clock.caught_up(60.0)
        1500
    """

    def __init__(self) -> None:
        self.now = 0
        self._last: float | None = None

    def caught_up(self, at: float) -> int:
        """Note that the input is read to its end now.

        Args:
            at: seconds of a clock that never goes back.

        Returns:
            The time on this clock, in milliseconds.
        """
        if self._last is not None:
            # After a gap nobody knows how much of it was quiet.
            self.now += min(_LONGEST_STEP_MS, int((at - self._last) * 1_000))
        self._last = at
        return self.now


@dataclass
class _Observed:
    """What is known of one store partition."""

    time: int | None = None
    moved_at: int = 0
    next_deadline: int | None = None
    reported: bool = False


@dataclass
class _Store:
    """One store over all partitions."""

    idle_ms: int | None
    partitions: dict[TopicPartition, _Observed] = field(default_factory=dict)
    watermark: int | None = None

    def advance(self, now: int) -> int | None:
        found = self._find(now)
        if found is not None and (self.watermark is None or found > self.watermark):
            self.watermark = found
        return self.watermark

    def _find(self, now: int) -> int | None:
        idle_ms = self.idle_ms
        partitions = self.partitions.values()
        active = [part for part in partitions if idle_ms is None or now - part.moved_at < idle_ms]
        if active:
            # A partition that may still bring its first record holds the others up, until it counts as idle.
            times = [part.time for part in active if part.time is not None]
            return min(times) if len(times) == len(active) else None
        known = [(part.time, part.moved_at) for part in partitions if part.time is not None]
        if not known:
            return None
        return max(time for time, _ in known) + now - max(moved_at for _, moved_at in known)


class Watermarks:
    """Computes the watermarks of an application, and finds the tasks that must be told although no record comes.

    Args:
        topology: the operators, resolved.

    Example:
        >>> from streamrt.topology import TopologyBuilder
        >>> Watermarks(TopologyBuilder().build()).wanted
        False
    """

    def __init__(self, topology: Topology) -> None:
        self._stores: dict[str, dict[str, _Store]] = {}
        for stream in topology.streams:
            stores = {store: _Store(idle_ms) for store, idle_ms in topology.watermarks(stream).items()}
            if stores:
                self._stores[stream] = stores

    @property
    def wanted(self) -> bool:
        """Whether any store asks for a watermark."""
        return bool(self._stores)

    def assign(self, places: Iterable[TopicPartition], now: int) -> None:
        """Begin with the partitions of a new assignment; what is known of those that stay is kept.

        Args:
            places: the tasks of this process.
            now: milliseconds of a `QuietClock`.
        """
        assigned = list(places)
        for topic, stores in self._stores.items():
            own = [place for place in assigned if place.topic == topic]
            for store in stores.values():
                store.partitions = {place: store.partitions.get(place) or _Observed(moved_at=now) for place in own}

    def hold(self, places: Iterable[TopicPartition], now: int) -> None:
        """Take partitions for busy: they have records that nobody can process now."""
        for place in places:
            for store in self._stores.get(place.topic, {}).values():
                if place in store.partitions:
                    store.partitions[place].moved_at = now

    def report(self, times: Mapping[tuple[TopicPartition, str], StoreTime], now: int) -> None:
        """Note what tasks have seen.

        Args:
            times: by task and store.
            now: milliseconds of the same clock as for `assign`.
        """
        for (place, name), seen in times.items():
            store = self._stores.get(place.topic, {}).get(name)
            part = None if store is None else store.partitions.get(place)
            if part is None:
                continue
            part.reported = True
            part.next_deadline = seen.next_deadline
            # What the store remembers may be from a watermark, which says nothing about this partition's records.
            time = seen.reached if part.time is None else seen.observed
            if time is not None and (part.time is None or time > part.time):
                part.time, part.moved_at = time, now

    def current(self, now: int) -> dict[str, dict[str, int]]:
        """Return the watermarks by source topic and store; those that are not known yet are missing."""
        found: dict[str, dict[str, int]] = {}
        for topic, stores in self._stores.items():
            known = {name: store.advance(now) for name, store in stores.items()}
            found[topic] = {name: watermark for name, watermark in known.items() if watermark is not None}
        return found

    def due(self, now: int) -> set[TopicPartition]:
        """Return the tasks that have something to do at the watermarks of now, or have not told yet whether they have."""
        places: set[TopicPartition] = set()
        for stores in self._stores.values():
            for store in stores.values():
                watermark = store.advance(now)
                for place, part in store.partitions.items():
                    deadline = part.next_deadline
                    reached = watermark is not None and deadline is not None and deadline <= watermark
                    if reached or not part.reported:
                        places.add(place)
        return places
