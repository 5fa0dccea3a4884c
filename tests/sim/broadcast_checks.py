"""Checks of an application with broadcast state, whatever has gone wrong."""

from collections.abc import Mapping
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streamrt.kafka.partitioner import partition_for
from streamrt.models import TopicPartition
from streamrt.topology import TaskId
from tests.sim.app import OTHER, OUT, SOURCE, Model, unique_id
from tests.sim.broadcasting import COPIES, SEEN
from tests.sim.broker import Entry, Log
from tests.sim.checks import Checks, Pair, _lines
from tests.sim.driver import Wrong
from tests.sim.processing import FIRED
from tests.sim.stores import Machine

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class _Output(NamedTuple):
    """Facts about a processed record.

    Attributes:
        origin: the attempt that processed it.
        seen: the ids of the broadcast records that the task had by then, with their counts.
    """

    origin: str
    seen: Mapping[int, int]


class BroadcastChecks(Checks):
    """Reads off the outputs in which order each task has worked, and compares it with the model and with the time.

    Args:
        sim: the world.
    """

    def __init__(self, sim: "Simulation") -> None:
        super().__init__(sim)
        self._stable: dict[str, dict[TopicPartition, int]] = {}
        self.compared = 0
        """How often a record of one side was processed while one of the other side was there, so that time decides."""

    def begun(self, origin: str) -> None:
        """Note what is there to read when an attempt begins."""
        logs = self._sim.broker.logs
        self._stable[origin] = {place: log.stable for place, log in logs.items() if place.topic in (SOURCE, COPIES)}

    # -- At least once ---------------------------------------------------------------------------------------------

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """An offset is committed only if the copies, or outputs, of all records below it are durable, in each partition."""
        copies = {
            place: {unique_id(entry) for entry in self._sim.broker.logs[place].history()}
            for place in self._places(COPIES)
        }
        outputs = {
            (value["p"], value["u"])
            for log in self._logs(OUT)
            for value in (orjson.loads(entry.value or b"") for entry in log.history())
        }
        for place, end in offsets.items():
            for unique in map(unique_id, self._sim.broker.logs[place].history(end)):
                if place.topic != OTHER:
                    lacking = [] if (place.partition, unique) in outputs else [OUT]
                else:
                    lacking = [str(each) for each, ids in copies.items() if unique not in ids]
                if lacking:
                    raise Wrong(f"{place} is committed at {end}, but {lacking} have nothing of record {unique}")

    def _check_order(self) -> None:
        homes, offsets = self._sim.homes, self._offsets()
        for topic in (COPIES, OUT):
            for at in self._places(topic):
                last: dict[tuple[str, int, TopicPartition], int] = {}
                for entry in self._sim.broker.logs[at].history():
                    value = orjson.loads(entry.value or b"")
                    unique = value["u"]
                    # A copy may be there twice, so what comes of copies may be out of order.
                    if unique > FIRED or (topic == OUT and homes[unique].topic == OTHER):
                        continue
                    run = entry.origin, value.get("p", at.partition), homes[unique]
                    if offsets[unique] <= last.get(run, -1):
                        raise Wrong(f"record {unique} is out of order in {at}, within attempt {entry.origin}")
                    last[run] = offsets[unique]

    # -- Exactly once ----------------------------------------------------------------------------------------------

    def _check_exactly_once(self, stream: str, *, final: bool) -> None:
        if stream == OTHER:
            self._check_copies(final=final)
            return
        for task in (each for each in self._sim.tasks if each.stream == stream):
            sequence, processed = self._sequence(task)
            orders, rules = self._sides(task)
            if final and len(sequence) != len(orders) + len(rules):
                missing = {unique_id(entry) for entry in (*orders, *rules)} - processed.keys()
                raise Wrong(f"{task} has not processed {sorted(missing)}")
            expected: dict[int, list[Pair]] = {}
            for key, value in Model(self._sim.setup, stream).run(sequence):
                number = partition_for(key, self._sim.broker.topics[OUT])
                expected.setdefault(number, []).append((key, {**value, "p": task.partition}))
            for at in self._places(OUT):
                found = [
                    (entry.key or b"", value) for entry, value in self._outputs(at) if value["p"] == task.partition
                ]
                if found != (want := expected.get(at.partition, [])):
                    raise Wrong(f"the outputs of {task} in {at} are\n{_lines(found)}\ninstead of\n{_lines(want)}")
            self._check_time(task, sequence, processed)

    def _check_copies(self, *, final: bool) -> None:
        """Each processed broadcast record has one copy in each partition: all of them, or none."""
        origins = {place: self._sim.broker.logs[place].history() for place in self._places(OTHER)}
        found: dict[TopicPartition, dict[TopicPartition, list[Entry]]] = {}
        for at in self._places(COPIES):
            shares = found[at] = {place: [] for place in origins}
            for entry in _committed(self._sim.broker.logs[at]):
                shares[self._sim.homes[unique_id(entry)]].append(entry)
        first = found[TopicPartition(COPIES, 0)]
        for at, shares in found.items():
            for place, copies in shares.items():
                if list(map(_content, copies)) != list(map(_content, origins[place]))[: len(copies)]:
                    raise Wrong(f"{at} has {list(map(unique_id, copies))} instead of the records of {place}")
                wanted = len(origins[place]) if final else len(first[place])
                if len(copies) != wanted:
                    raise Wrong(f"{at} has {len(copies)} records of {place} instead of {wanted}")

    def _check_time(self, task: TaskId, sequence: list[Entry], processed: Mapping[int, _Output]) -> None:
        """A record is processed only if the next one of the other side is not older, or was not there to be read.

        Of records with equal timestamps, the broadcast one comes first.
        """
        places = TopicPartition(SOURCE, task.partition), TopicPartition(COPIES, task.partition)
        orders, rules = self._sides(task)
        broadcast = {unique_id(entry) for entry in rules}
        sides, at = (orders, rules), [0, 0]
        for entry in sequence:
            side = int(unique_id(entry) in broadcast)
            at[side] += 1
            if at[1 - side] >= len(sides[1 - side]):
                continue
            other = sides[1 - side][at[1 - side]]
            if other.offset >= self._stable[processed[unique_id(entry)].origin][places[1 - side]]:
                continue
            self.compared += 1
            if (other.timestamp, side) < (entry.timestamp, 1 - side):
                raise Wrong(
                    f"{task} processes record {unique_id(entry)} of {places[side]} at {entry.timestamp} before "
                    f"{unique_id(other)} of {places[1 - side]} at {other.timestamp}, which was there"
                )

    def _compare(
        self,
        machine: Machine,
        store: str,
        task: TaskId,
        found: dict[bytes, bytes],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        super()._compare(machine, store, task, found, offsets)
        end = offsets[TopicPartition(COPIES, task.partition)]
        for entry in self._sim.broker.logs[TopicPartition(COPIES, task.partition)].history(end):
            if SEEN + b"%d" % unique_id(entry) not in found:
                raise Wrong(f"store {store} of {task} on machine {machine.number} lacks record {unique_id(entry)}")

    def _history(self, task: TaskId, ends: Mapping[TopicPartition, int] | None = None) -> list[Entry]:
        if not self._sim.setup.transactional:
            # The order does not matter to what is compared.
            sides = self._sides(task, ends)
            return [*sides[0], *sides[1]]
        sequence, _ = self._sequence(task)
        if ends is None:
            return sequence
        below = {unique_id(entry) for side in self._sides(task, ends) for entry in side}
        return [entry for entry in sequence if unique_id(entry) in below]

    def _sequence(self, task: TaskId) -> tuple[list[Entry], dict[int, _Output]]:
        """Return the records that a task has processed, in the order that its outputs tell, and these outputs."""
        processed = self._processed(task)
        orders, rules = self._sides(task)
        unprocessed = dropwhile(lambda entry: unique_id(entry) in processed, orders)
        if any(unique_id(entry) in processed for entry in unprocessed):
            raise Wrong(f"{task} has passed over a record of {[unique_id(entry) for entry in orders]}")
        ids = [unique_id(entry) for entry in rules]
        sequence: list[Entry] = []
        reached = 0
        for entry in orders:
            if (output := processed.get(unique_id(entry))) is None:
                break
            seen = dict(output.seen)
            if len(seen) < reached or seen != dict.fromkeys(ids[: len(seen)], 1):
                raise Wrong(
                    f"record {unique_id(entry)} of {task} has met the broadcasts {seen}, not the first of {ids}"
                )
            sequence += [*rules[reached : len(seen)], entry]
            reached = len(seen)
        sequence += [entry for entry in rules[reached:] if unique_id(entry) in processed]
        return sequence, processed

    def _processed(self, task: TaskId) -> dict[int, _Output]:
        """Return what a task has put out for records, not for timers."""
        found: dict[int, _Output] = {}
        for at in self._places(OUT):
            for entry, value in self._outputs(at):
                if value["p"] == task.partition and value["u"] < FIRED:
                    if value["u"] in found:
                        raise Wrong(f"{task} has processed record {value['u']} twice")
                    found[value["u"]] = _Output(entry.origin, dict(value["seen"]))
        return found

    def _outputs(self, at: TopicPartition) -> list[tuple[Entry, dict[str, Any]]]:
        return [(entry, orjson.loads(entry.value or b"")) for entry in _committed(self._sim.broker.logs[at])]

    def _sides(self, task: TaskId, ends: Mapping[TopicPartition, int] | None = None) -> tuple[list[Entry], list[Entry]]:
        """Return the records of a task and its broadcast records, as they are in the topics."""
        places = TopicPartition(SOURCE, task.partition), TopicPartition(COPIES, task.partition)
        first, second = (
            self._sim.broker.logs[place].history(None if ends is None else ends[place]) for place in places
        )
        return first, second

    def _offsets(self) -> dict[int, int]:
        """Return the offset of each record in its first topic, by its id."""
        return {
            unique_id(entry): entry.offset
            for topic in (SOURCE, OTHER)
            for log in self._logs(topic)
            for entry in (*log.lost, *log.history())
        }


def _committed(log: Log) -> list[Entry]:
    """Return the records of all committed transactions, also of those whose markers are still to be written."""
    return [*log._deleted, *(entry for entry in log.entries if entry.visible)]


def _content(entry: Entry) -> tuple[bytes | None, Any, int]:
    return entry.key, orjson.loads(entry.value or b""), entry.timestamp
