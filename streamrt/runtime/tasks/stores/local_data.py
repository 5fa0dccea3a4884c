"""Prepares the local data of a store partition for a replay: wipes it, or puts a snapshot in its place."""

import logging

from streamrt.errors import ChangelogError, StoreCorruptedError
from streamrt.records import TopicPartition
from streamrt.runtime.placement import StorePlacement
from streamrt.runtime.tasks.stores.changelog_restore import RestoreAction, RestorePlan
from streamrt.state import Stamp, Store, StoreIdentity, StorePartition
from streamrt.state.snapshots import FoundSnapshot

__all__ = ["adopt_snapshot", "open_empty", "refuse_lost_records"]

logger = logging.getLogger("streamrt")


def refuse_lost_records(
    placement: StorePlacement,
    log: TopicPartition,
    bounds: tuple[int, int],
    stamp: Stamp | None,
    identity: StoreIdentity,
    plan: RestorePlan,
) -> None:
    """Raise if a store partition cannot be restored because its changelog has lost records.

    Args:
        placement: the store partition.
        log: its changelog partition.
        bounds: first offset and high watermark of the changelog partition.
        stamp: the stamp of the local data.
        identity: the required identity of the data.
        plan: what is to be done.

    Raises:
        ChangelogError: if records are missing; the local data stays.
    """
    low, high = bounds
    if low > 0 and (stamp is None or plan.action is RestoreAction.WIPE):
        raise ChangelogError(
            f"the records of changelog {log} below offset {low} were deleted, so the state of {placement.scope} cannot be "
            "restored; compaction never does this, so check the topic's cleanup.policy: start over with another "
            "consumer_group"
        )
    taken = 0 if stamp is None or stamp.identity != identity else stamp.changelog_offset or 0
    if plan.action is RestoreAction.WIPE and taken > high == 0:
        raise ChangelogError(
            f"changelog {log} is empty, but store {placement.spec.name!r} of {placement.scope} has its records up to offset "
            f"{taken}: the brokers have lost them; start over with another consumer_group"
        )


def open_empty(store: Store, number: int, partition: StorePartition) -> StorePartition:
    """Delete the data of an open store partition, and open it again.

    Args:
        store: the store.
        number: the number of the partition.
        partition: the open partition.
    """
    partition.close()
    store.destroy(number)
    return store.open(number)


def adopt_snapshot(
    store: Store, placement: StorePlacement, partition: StorePartition, found: FoundSnapshot
) -> tuple[StorePartition, bool]:
    """Put a snapshot in the place of the data of an open store partition, and release the snapshot.

    Args:
        store: the store.
        placement: the store partition.
        partition: the open partition.
        found: the snapshot.

    Returns:
        The open partition, and whether it has the snapshot. If the snapshot is damaged, the partition is empty.
    """
    number = placement.scope.partition
    try:
        partition.close()
        store.destroy(number)
        store.adopt(number, found.folder)
        partition = store.open(number)
        if partition.stamp == found.manifest.stamp:
            return partition, True
        partition.close()
        raise StoreCorruptedError("its data has another stamp than its manifest")
    except StoreCorruptedError as damage:
        logger.warning("a snapshot of store %r of %s is passed over: %s", placement.spec.name, placement.scope, damage)
        store.destroy(number)
        return store.open(number), False
    finally:
        found.release()
