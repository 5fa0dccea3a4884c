"""Checks for stores that missed records, because another application version without them has processed these."""

from collections.abc import Callable, Mapping, Sequence

from streamrt.errors import ChangelogError
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.runtime.placement import StateSettings
from streamrt.state.changelog import Position

__all__ = ["missed_records", "refuse_skipped_stores"]


def refuse_skipped_stores(
    state: StateSettings | None,
    committed: Mapping[TopicPartition, int],
    notes: Mapping[TopicPartition, CommittedMetadata],
    last_position: Callable[[TopicPartition], Position | None],
    has_records: Callable[[TopicPartition, int, int], bool],
) -> None:
    """Raise if a store has missed records that an application version without this store has processed.

    Args:
        state: the stores.
        committed: the committed offsets of input partitions.
        notes: the metadata of these offsets.
        last_position: returns the last position in a changelog partition, or None if there is none.
        has_records: returns whether an offset range of a partition has committed records, and not only markers.

    Raises:
        ChangelogError: if there is such a store; names the store and the solution.
    """
    if state is None:
        return
    for name, source in state.sources.items():
        topics = source.topics or (name,)
        for store, log in source.stores.items():
            for partition, end in committed.items():
                if log is None or partition.topic not in topics or notes[partition].names(name, store):
                    continue
                position = last_position(TopicPartition(log.topic, partition.partition))
                if position is None or position.topic_id not in (None, source.topic_id):
                    continue
                at = (position.inputs or {}).get(partition.topic, position.input_offset)
                if at < end and has_records(partition, at, end):
                    scope = TopicPartition(name, partition.partition)
                    raise ChangelogError(missed_records(state.group, scope, topics, store, partition, at, end))


def missed_records(
    group: str, scope: TopicPartition, topics: Sequence[str], store: str, partition: TopicPartition, at: int, end: int
) -> str:
    """Return the error message for a store that lacks records, and what to do about it.

    Args:
        group: the consumer group.
        scope: the scope of the store, and the partition.
        topics: the topics of the scope.
        store: name of the store.
        partition: the input partition.
        at: next offset of the input to apply to the store.
        end: committed offset of the input.
    """
    command = (
        f"streamrt state forget --group {group} {' '.join(f'--topic {topic}' for topic in topics)} --store {store}"
    )
    return (
        f"store {store!r} of {scope} contains the records of {partition} up to offset {at}, but the consumer group {group!r} "
        f"is at {end}: the state lacks the records between them; if an application version without the store has processed "
        f"them, as after a rollback, stop all instances and run `{command}`, or call Application.forget_store(): only this "
        "store then starts empty at the committed offsets; if a tool has set the offset, set it back; to have these "
        "records in the store, process the input again with another consumer_group"
    )
