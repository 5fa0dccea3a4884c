"""Exactly-once fencing: makes a task the only one that can move the offsets of its inputs.

Each input partition has a transactional id. A task takes the ids of all its inputs, and produces with that of the first
one, its *owner*. The metadata of each other input's offset names the id that moves this offset: a *claim*. Tasks of
another application version, which may merge other inputs, are thus found and fenced, whatever their names:

1. take the id of each input: this fences its holder, and no other task can claim these inputs any more;
2. read the claims of the inputs, and also take the ids of these owners;
3. read again, with no transaction pending on an offset, until no new owner is named;
4. claim the inputs that others have claimed: commit the same offset with the id of the input itself.

Without step 1 for an input, the task cannot be distinguished from a fenced one; without step 4, the next task cannot
find it.

One case remains: the process of a former version was suspended just before a task began. When it continues, this task
takes the ids from the new version, and would commit without the new stores. Therefore, if another version has committed
an input, the driver claims the input for its own version in the same way, before it reads the start offset. A task that
finds an input claimed for another version has been superseded, and gives up.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from streamrt.errors import TransactionError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, claimed
from streamrt.runtime.tasks.task_clients import TaskClients, TransactionalRecordWriter
from streamrt.topology import TaskId

__all__ = ["fence_owners", "owner_of", "take_inputs"]

_LOOKS = 5
_JOINED = "--"


def owner_of(inputs: Collection[TopicPartition]) -> TopicPartition:
    """Return the input partition whose transactional id the task uses to produce."""
    return min(inputs)


def take_inputs(
    clients: TaskClients,
    task: TaskId,
    inputs: Collection[TopicPartition],
    metadata: CommitMetadata,
    *,
    reuse: bool,
) -> TransactionalRecordWriter:
    """Fence all other writers that could move the offsets of a task's inputs, and return the writer of the task.

    Args:
        clients: the Kafka clients of this process.
        task: the task.
        inputs: its input partitions.
        metadata: composes the offset metadata of this application version.
        reuse: whether this process made the task's last commit, so that its writer may continue: any other process that
            worked on an input meanwhile has taken the writer's id.

    Raises:
        TransactionError: if Kafka rejects the transaction, or another process claims the inputs at the same time or has
            claimed them since.
        KafkaRequestError: if the offsets cannot be read.
    """
    kept = clients.kept(task) if reuse else None
    if kept is not None:
        return kept
    owner = owner_of(inputs)
    writer = clients.transactional(task, owner)
    try:
        with contextlib.ExitStack() as opened:
            others = sorted(partition for partition in inputs if partition != owner)
            writers = {
                partition: opened.enter_context(clients.claiming(partition, partition.topic)) for partition in others
            }
            _claim_inputs(clients, task, {owner: writer, **writers}, owner, metadata)
    except BaseException:
        clients.release(task)
        raise
    return writer


def fence_owners(clients: TaskClients, partitions: Iterable[TopicPartition], metadata: CommitMetadata) -> None:
    """Abort open transactions of dead tasks on input partitions, whatever other inputs these tasks had.

    Inputs of another application version are claimed for this one.

    Args:
        clients: the Kafka clients of this process.
        partitions: the input partitions.
        metadata: composes the offset metadata of this application version.

    Raises:
        TransactionError: if Kafka rejects it, or another process does the same at the same time.
        KafkaRequestError: if the offsets cannot be read.
    """
    for partition in partitions:
        with clients.claiming(partition, partition.topic) as writer:
            committed = _fence_others(clients, partition, {partition: None})[partition]
            if committed.offset is not None and not metadata.describes(partition, committed.metadata):
                writer.commit({partition: committed.offset}, metadata.followed(partition, committed.metadata))


def _claim_inputs(
    clients: TaskClients,
    task: TaskId,
    writers: Mapping[TopicPartition, TransactionalRecordWriter],
    owner: TopicPartition,
    metadata: CommitMetadata,
) -> None:
    """Fence the owners that claim inputs, and claim the inputs that are not claimed for this task yet."""
    wanted = {partition: None if partition == owner else owner.topic for partition in writers}
    found = _fence_others(clients, task, wanted)
    notes = {partition: CommittedMetadata.decode(found[partition].metadata) for partition in sorted(found)}
    for partition, note in notes.items():
        # An offset that was set manually has no version.
        if note.format and not metadata.describes(partition, found[partition].metadata):
            raise TransactionError(f"{partition} was taken over by another version of the application", fenced=True)
    for partition, note in notes.items():
        offset = found[partition].offset
        if note.owner != wanted[partition] and offset is not None:
            text = claimed(found[partition].metadata, owner=wanted[partition])
            writers[partition].commit({partition: offset}, metadata.followed(partition, text))


def _fence_others(
    clients: TaskClients, task: TaskId | TopicPartition, wanted: Mapping[TopicPartition, str | None]
) -> Mapping[TopicPartition, CommittedOffset]:
    """Fence the owners that may move the offsets of inputs, until no new owner is named. The inputs' own ids are taken.

    Args:
        clients: the Kafka clients of this process.
        task: the task of the inputs, or the only input.
        wanted: by input, the topic of the id that is to move its offset; None for the input's own id.

    Returns:
        The committed offsets, which no other writer can move any more.
    """
    fenced = set(wanted)
    # An owner with a pending transaction on an offset must be fenced before a stable read of this offset can succeed.
    stable = False
    for _ in range(_LOOKS):
        found = clients.noted(wanted, stable=stable)
        notes = {partition: CommittedMetadata.decode(committed.metadata) for partition, committed in found.items()}
        named = {other for partition, note in notes.items() for other in _find_owners(partition, note)}
        if len(wanted) > 1 and any(note.owner != wanted[partition] for partition, note in notes.items()):
            # Versions without claims named the id of a merged task after the task.
            named.add(TopicPartition(*task))
        new = named - fenced
        for other in sorted(new):
            with clients.claiming(other, min(wanted).topic):
                fenced.add(other)
        if stable and not new:
            return found
        stable = True
    raise TransactionError(f"other processes claim the inputs of {task} at the same time", fenced=True)


def _find_owners(partition: TopicPartition, note: CommittedMetadata) -> set[TopicPartition]:
    """Return the owners of the ids that may move the offset of an input, in addition to its own id."""
    names = {note.owner} if note.owner is not None else set()
    if note.format == 1:
        # In versions without claims, merged tasks had separate ids. The names of their stores reveal them.
        names |= {scope for scope in note.stores if _JOINED in scope and partition.topic in _scope_members(scope)}
    return {TopicPartition(name, partition.partition) for name in names}


def _scope_members(scope: str) -> Collection[str]:
    return scope.split(_JOINED)
