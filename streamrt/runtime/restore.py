"""Whether a store partition can be trusted, and how it catches up with its changelog.

A local store is a cache: its stamp tells up to where it holds what the changelog says. What to do with it is decided
by a pure function, `plan_restore`, from the stamp and from what Kafka says.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from streamrt.errors import ChangelogError, StateError, TransactionError
from streamrt.models import TopicPartition
from streamrt.runtime.clients import TaskClients
from streamrt.runtime.foreign import EpochFilter
from streamrt.state import Position, Stamp, StoreIdentity, StorePartition, restore_changes

_SKEW_MS = 60_000
"""How far clocks of one machine may be apart from start to start without anybody having set them."""


class RestoreAction(enum.Enum):
    """What to do with a store partition before it is used."""

    READY = "use it as it is"
    REPLAY = "replay the changelog from an offset on"
    WIPE = "delete it and replay the whole changelog"


@dataclass(frozen=True)
class RestorePlan:
    """The decision about one store partition.

    Attributes:
        action: what to do.
        start: first changelog offset to replay.
        reason: why, for the log; empty where nothing is unusual.
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
    """Decide what a store partition needs before it can be used.

    Args:
        stamp: what the store says of itself; None for an empty one.
        identity: whose data it must be.
        bounds: first offset and high watermark of the changelog partition.
        committed: next input offset of the consumer group.
        transactional: whether commits are exactly-once; then the store cannot be ahead of the group.
        now: wall clock in milliseconds.
        longest_absence_ms: age from which on the changelog may have forgotten deletions.

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
        return wipe("it belongs to a topic that was made anew")
    if at is None:
        return wipe("it was kept without a changelog")
    if transactional and stamp.input_offset is not None and stamp.input_offset > committed:
        return wipe(f"it is at input offset {stamp.input_offset}, ahead of the committed offset {committed}")
    if transactional and at == high + 1 and stamp.input_offset == committed:
        # The marker of our own last transaction, which the stamp counts, is not written yet.
        return RestorePlan(RestoreAction.READY, at)
    if at > high:
        return wipe(f"it is at changelog offset {at}, but the changelog ends at {high}")
    if at < low:
        return wipe(f"it is at changelog offset {at}, but the changelog begins at {low}")
    if at == high and stamp.input_offset is not None:
        return RestorePlan(RestoreAction.READY, at)
    if now < stamp.written_at - _SKEW_MS:
        return wipe("it was written at a later time than now, so nobody knows how old it is: the clock was set back")
    if now - stamp.written_at > longest_absence_ms:
        return wipe("it is so old that the changelog may have forgotten deletions since")
    return RestorePlan(RestoreAction.REPLAY, at)


@dataclass
class Restored:
    """What a replay found.

    Attributes:
        position: the newest position, which may be that of what was restored before; None if there was none.
        records: records applied.
        passed_over: keys of records that do not count, because their writers had lost the partition.
        epoch: highest epoch of the records.
    """

    position: Position | None = None
    records: int = 0
    passed_over: frozenset[bytes] = frozenset()
    epoch: bytes | None = None


def replay(
    partition: StorePartition,
    identity: StoreIdentity,
    place: TopicPartition,
    start: int,
    end: int,
    clients: TaskClients,
    on_progress: Callable[[int, int], bool],
) -> Restored | None:
    """Apply changelog records to a store partition.

    Args:
        partition: the store partition.
        identity: whose data it is.
        place: the changelog partition.
        start: first offset to apply.
        end: the changelog's high watermark.
        clients: reads the changelog.
        on_progress: called with the number of records and the offset after each write; False interrupts the replay, which
            a later one continues from there; not behind records of others, from where it goes on to its end.

    Returns:
        What was found, or None if the replay was interrupted.

    Raises:
        ChangelogError: if the end cannot be reached.
    """
    stamp = partition.stamp
    found = Restored(None if stamp is None else Position.of(stamp))
    stream_time = None if stamp is None else stamp.stream_time
    observed = None if stamp is None else stamp.observed
    # Deletions from then on are in the changelog still. Timestamps of its records, which may be old, tell nothing of that.
    begun = clients.now()
    written_at = begun if stamp is None else stamp.written_at
    at = start
    sifted = EpochFilter(None if stamp is None else stamp.epoch)
    # Up to where the changelog need not be read again: not behind records that do not count.
    sound = at, sifted.newest
    for batch in clients.changelog(place, start, end):
        changes, position = restore_changes(sifted.take(batch), partition)
        if position is not None:
            found.position, observed = position, position.observed
            if position.stream_time is not None:
                stream_time = max(position.stream_time, stream_time or position.stream_time)
        found.records += len(batch.keys)
        at = min(batch.next_offset, end)
        if not sifted.passed_over:
            sound = at, sifted.newest
        # Between two positions the data belongs to no input offset: only at the end does it, where there may be no position
        # any more.
        last = None if found.position is None else found.position.encode()
        partition.write(
            changes, Stamp(identity, None, sound[0], stream_time, written_at, None, observed, sound[1], last)
        )
        # Behind records that do not count nothing can be gone on from: a slice that ended there would begin again for ever.
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
    place: TopicPartition,
    store: str,
    committed: int,
    identity: StoreIdentity,
    clients: TaskClients,
    *,
    transactional: bool,
) -> None:
    """Compare the position of restored state with the committed offset of the input.

    Args:
        position: next input offset of the state; None for state that never had one.
        topic_id: id of the input topic that the state was made from, as the position record says.
        place: the input partition.
        store: name of the store.
        committed: committed offset of the group.
        identity: whose data it is.
        clients: looks into the input.
        transactional: whether commits are exactly-once.

    Raises:
        ChangelogError: if state and offset do not belong together.
        TransactionError: if another process has moved both on since the offset was read.
    """
    what = f"store {store!r} of {place}"
    advice = (
        "set the group's offset to where the state is, or start over: delete the changelog topic and call clear_state()"
    )
    if topic_id is not None and identity.topic_id is not None and topic_id != identity.topic_id:
        raise ChangelogError(
            f"{what} was made from a topic {place.topic!r} that has been deleted and made anew since: its offsets mean other "
            f"records now; {advice}"
        )
    if position is None:
        return
    if transactional and position > committed:
        trouble = (
            f"{what} contains the records up to offset {position}, but the consumer group {identity.group!r} is at "
            f"{committed}: its offset was set back, and records would count twice; {advice}"
        )
    elif position < committed and clients.has_records(place, position, committed):
        trouble = (
            f"{what} contains the records up to offset {position}, but the consumer group {identity.group!r} is at "
            f"{committed}: the records between them would be missing in the state; {advice}"
        )
    else:
        return
    if transactional:
        # State and offset were not read at the same moment. Whoever works on the partition by now has fenced us.
        again = clients.committed(place)
        if again is not None and again > committed:
            raise TransactionError(
                f"another process has taken {place} over, and has committed offset {again}", fenced=True
            )
    raise ChangelogError(trouble)


def check_owner(found: StoreIdentity, identity: StoreIdentity) -> None:
    """Refuse a store partition that is not ours.

    Args:
        found: whose data lies in the directory.
        identity: whose data it must be.

    Raises:
        StateError: if it is another application's, or was made for another number of partitions.
    """
    if (found.group, found.topic, found.partition, found.store) != (
        identity.group,
        identity.topic,
        identity.partition,
        identity.store,
    ):
        raise StateError(
            f"the state directory holds store {found.store!r} of {found.topic}[{found.partition}] of the application "
            f"{found.group!r} where store {identity.store!r} of {identity.topic}[{identity.partition}] of {identity.group!r} "
            "belongs: give each application a state_dir of its own"
        )
    check_partitions(found.partitions, identity)


def check_partitions(made_for: int, identity: StoreIdentity) -> None:
    """Refuse state that was made when the topic had another number of partitions.

    Raises:
        StateError: if the number has changed.
    """
    if made_for != identity.partitions:
        raise StateError(
            f"store {identity.store!r} of topic {identity.topic!r} was made when the topic had {_partitions(made_for)}, and "
            f"now it has {_partitions(identity.partitions)}: keys are in other partitions than their state; read a topic "
            f"with {_partitions(made_for)}, or start over with another consumer_group"
        )


def _partitions(number: int) -> str:
    return f"{number} partition" if number == 1 else f"{number} partitions"


def refuse_without_changelog(stamp: Stamp | None, place: TopicPartition, store: str, *, known: bool) -> None:
    """Refuse to begin with empty state where state existed, and no changelog can bring it back.

    Args:
        stamp: what the local store says of itself.
        place: the input partition.
        store: name of the store.
        known: whether the group's last commit of the partition tells of this store.

    Raises:
        StateError: if state is lost.
    """
    if stamp is None and known:
        raise StateError(
            f"store {store!r} of {place} is gone from the state directory, and use_changelog_topics=False leaves nothing to "
            "restore it from: bring the directory back, or start over with another consumer_group"
        )
