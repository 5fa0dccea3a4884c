"""The validation of a store partition, and its restore from the changelog.

A local store is a cache: its stamp has the changelog offset up to which its data is complete. The pure function
`plan_restore` decides how to restore it, from the stamp and from Kafka's offsets.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from streamrt.errors import ChangelogError, StateError, TransactionError
from streamrt.records import TopicPartition
from streamrt.runtime.placement import StorePlacement
from streamrt.runtime.skipped import missed_records
from streamrt.runtime.tasks.stores.foreign import EpochFilter
from streamrt.runtime.tasks.task_clients import TaskClients
from streamrt.state import Stamp, StoreIdentity, StorePartition
from streamrt.state.changelog import Position, restore_changes

_SKEW_MS = 60_000
"""Tolerated difference of a machine's clock between two starts before it counts as set back."""


class RestoreAction(enum.Enum):
    """The action on a store partition before it is used."""

    READY = "use it as it is"
    REPLAY = "replay the changelog from an offset on"
    WIPE = "delete it and replay the whole changelog"


@dataclass(frozen=True)
class RestorePlan:
    """The decision about one store partition.

    Attributes:
        action: the action.
        start: first changelog offset to replay.
        reason: the reason for the log; empty for a normal restore.
    """

    action: RestoreAction
    start: int
    reason: str = ""


def plan_restore(
    stamp: Stamp | None,
    identity: StoreIdentity,
    bounds: tuple[int, int],
    committed: int,
    *,
    transactional: bool,
    now: int,
    longest_absence_ms: int,
) -> RestorePlan:
    """Decide how to restore a store partition.

    Args:
        stamp: the stamp of the store; None for an empty one.
        identity: the required identity of the data.
        bounds: first offset and high watermark of the changelog partition.
        committed: committed input offset of the consumer group.
        transactional: whether commits are exactly-once; then the store cannot be ahead of the group.
        now: wall clock in milliseconds.
        longest_absence_ms: age in milliseconds from which on compaction may have removed tombstones.

    Example:
        >>> mine = StoreIdentity("shop", "orders", 0, "default", None, None, 1)
        >>> plan_restore(None, mine, (0, 10), 5, transactional=False, now=0, longest_absence_ms=1).action
        <RestoreAction.REPLAY: 'replay the changelog from an offset on'>
    """
    low, high = bounds
    if stamp is None:
        return RestorePlan(RestoreAction.READY if high <= low else RestoreAction.REPLAY, low)

    def wipe(reason: str) -> RestorePlan:
        return RestorePlan(RestoreAction.WIPE, low, reason)

    at = stamp.changelog_offset
    if stamp.identity != identity:
        return wipe("it belongs to a topic that was deleted and created again")
    if at is None:
        return wipe("it was kept without a changelog")
    if transactional and stamp.input_offset is not None and stamp.input_offset > committed:
        return wipe(f"it is at input offset {stamp.input_offset}, ahead of the committed offset {committed}")
    if transactional and at == high + 1 and stamp.input_offset == committed:
        # The stamp counts the marker of the last own transaction, which is not written yet.
        return RestorePlan(RestoreAction.READY, at)
    if at > high:
        return wipe(f"it is at changelog offset {at}, but the changelog ends at {high}")
    if at < low:
        return wipe(f"it is at changelog offset {at}, but the changelog begins at {low}")
    if at == high and stamp.input_offset is not None:
        return RestorePlan(RestoreAction.READY, at)
    if now < stamp.written_at - _SKEW_MS:
        return wipe("its timestamp is in the future, so its age is unknown: the clock was set back")
    if now - stamp.written_at > longest_absence_ms:
        return wipe("it is so old that compaction may have removed tombstones since")
    return RestorePlan(RestoreAction.REPLAY, at)


@dataclass
class Restored:
    """The result of a replay.

    Attributes:
        position: the newest position, possibly from an earlier restore; None if there is none.
        records: number of records applied.
        passed_over: keys of skipped records, whose writers had lost the partition.
        epoch: highest epoch of the records.
    """

    position: Position | None = None
    records: int = 0
    passed_over: frozenset[bytes] = frozenset()
    epoch: bytes | None = None


def replay(
    partition: StorePartition,
    identity: StoreIdentity,
    log: TopicPartition,
    start: int,
    end: int,
    clients: TaskClients,
    on_progress: Callable[[int, int], bool],
) -> Restored | None:
    """Apply changelog records to a store partition.

    Args:
        partition: the store partition.
        identity: the identity of the data.
        log: the changelog partition.
        start: first offset to apply.
        end: the changelog's high watermark.
        clients: reads the changelog.
        on_progress: called with the number of records and the offset after each write. False interrupts the replay, and
            a later one continues from there; after a skipped record, False has no effect.

    Returns:
        The result, or None if the replay was interrupted.

    Raises:
        ChangelogError: if the end cannot be reached.
    """
    stamp = partition.stamp
    found = Restored(None if stamp is None else Position.of(stamp))
    stream_time = None if stamp is None else stamp.stream_time
    observed = None if stamp is None else stamp.observed
    # The changelog still has all tombstones from then on. Timestamps of its records are not a measure: they may be old.
    begun = clients.now()
    written_at = begun if stamp is None else stamp.written_at
    at = start
    sifted = EpochFilter(None if stamp is None else stamp.epoch)
    # The offset up to which the changelog need not be read again; it is not after skipped records.
    sound = at, sifted.newest
    for batch in clients.changelog(log, start, end):
        changes, position = restore_changes(sifted.filter(batch), partition)
        if position is not None:
            found.position, observed = position, position.observed
            if position.stream_time is not None:
                stream_time = max(position.stream_time, stream_time or position.stream_time)
        found.records += len(batch.keys)
        at = min(batch.next_offset, end)
        if not sifted.passed_over:
            sound = at, sifted.newest
        # Between two positions the data matches no input offset. It does so only at the end, where the position record
        # may be missing.
        last = None if found.position is None else found.position.encode()
        partition.write(
            changes, Stamp(identity, None, sound[0], stream_time, written_at, None, observed, sound[1], last)
        )
        # No interruption after skipped records: the next slice would begin before them again, endlessly.
        if at < end and not on_progress(found.records, at) and not sifted.passed_over:
            return None
    if not sifted.passed_over:
        sound = max(at, end), sifted.newest
    found.passed_over, found.epoch = frozenset(sifted.passed_over), sifted.newest
    at_input, inputs = (None, None) if found.position is None else (found.position.input_offset, found.position.inputs)
    partition.write((), Stamp(identity, at_input, sound[0], stream_time, begun, inputs, observed, sound[1]))
    on_progress(found.records, end)
    return found


def check_position(
    position: int | None,
    topic_id: str | None,
    partition: TopicPartition,
    placement: StorePlacement,
    committed: int,
    identity: StoreIdentity,
    clients: TaskClients,
    *,
    transactional: bool,
) -> None:
    """Compare the position of restored state with the committed offset of the input.

    Args:
        position: next input offset of the state; None for state without a position.
        topic_id: id of the state's input topic, from the position record.
        partition: the input partition.
        placement: the store.
        committed: committed offset of the group.
        identity: the identity of the data.
        clients: reads the input.
        transactional: whether commits are exactly-once.

    Raises:
        ChangelogError: if state and offset do not match.
        TransactionError: if another process has advanced both since the offset was read.
    """
    store = placement.spec.name
    what = f"store {store!r} of {partition}"
    advice = (
        "set the group's offset to that of the state, or start over: delete the changelog topic and call clear_state()"
    )
    if topic_id is not None and identity.topic_id is not None and topic_id != identity.topic_id:
        raise ChangelogError(
            f"{what} was made from topic {partition.topic!r}, which was deleted and created again since: its offsets now "
            f"stand for other records; {advice}"
        )
    if position is None:
        return
    if transactional and position > committed:
        trouble = (
            f"{what} contains the records up to offset {position}, but the consumer group {identity.group!r} is at "
            f"{committed}: its offset was set back, and records would count twice; {advice}"
        )
    elif position < committed and clients.has_records(partition, position, committed):
        # The driver has refused this at the start, unless a process that had lost the partition wrote a later position.
        topics = [each.topic for each in placement.inputs]
        trouble = missed_records(identity.group, placement.scope, topics, store, partition, position, committed)
    else:
        return
    if transactional:
        # State and offset were read at different times. A new owner of the partition has fenced this process.
        again = clients.committed(partition)
        if again is not None and again > committed:
            raise TransactionError(
                f"{partition} was reassigned to another process, which has committed offset {again}", fenced=True
            )
    raise ChangelogError(trouble)


def check_owner(found: StoreIdentity, identity: StoreIdentity) -> None:
    """Raise if a store partition belongs to another application or store.

    Args:
        found: identity of the data in the directory.
        identity: the required identity.

    Raises:
        StateError: if the identities differ, or the data was made for another partition count with the same changelog.
    """
    if (found.group, found.topic, found.partition, found.store) != (
        identity.group,
        identity.topic,
        identity.partition,
        identity.store,
    ):
        raise StateError(
            f"the state directory holds store {found.store!r} of {found.topic}[{found.partition}] of the application "
            f"{found.group!r}, but store {identity.store!r} of {identity.topic}[{identity.partition}] of "
            f"{identity.group!r} was expected: give each application a separate state_dir"
        )
    if found.changelog_id == identity.changelog_id:
        check_partitions(found.partitions, identity)
    # Otherwise a repartition has made another changelog, from which the store is restored.


def check_partitions(made_for: int, identity: StoreIdentity) -> None:
    """Raise if state was made when the topic had another number of partitions.

    Raises:
        StateError: if the number has changed.
    """
    if made_for != identity.partitions:
        raise StateError(
            f"store {identity.store!r} of topic {identity.topic!r} was made when the topic had {_format_count(made_for)}, "
            f"but now it has {_format_count(identity.partitions)}: keys are in other partitions than their state; read a "
            f"topic with {_format_count(made_for)}, or start over with another consumer_group"
        )


def _format_count(number: int) -> str:
    return f"{number} partition" if number == 1 else f"{number} partitions"


def refuse_without_changelog(
    stamp: Stamp | None, partition: TopicPartition, store: str, *, has_committed_state: bool
) -> None:
    """Raise if existing state was lost and there is no changelog to restore it.

    Args:
        stamp: the stamp of the local store.
        partition: the input partition.
        store: name of the store.
        has_committed_state: whether the group's last commit of the partition names this store.

    Raises:
        StateError: if state is lost.
    """
    if stamp is None and has_committed_state:
        raise StateError(
            f"store {store!r} of {partition} is missing in the state directory, and with use_changelog_topics=False there is "
            "no changelog to restore it from: bring the directory back, or start over with another consumer_group"
        )
