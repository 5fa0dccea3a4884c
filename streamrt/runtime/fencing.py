"""Exactly once: how a task becomes the only one that can move the offsets of its inputs.

Transactional ids belong to input partitions. A task takes those of all of its inputs, and produces with that of the first
one, its *owner*. Which id moves the offset of another input is part of the metadata of that offset: a *claim*. So tasks of
another version of the application, which may merge other inputs, are found and fenced, whatever they are called:

1. take the id of each input: whoever holds one is fenced, and nobody else can claim these inputs any more;
2. read who claims the inputs, and take the ids of these owners, too;
3. read again, when no transaction is about to move an offset, until nobody new is named;
4. claim the inputs that others have claimed: commit the same offset with the id of that very input.

A task that skips 1 for an input cannot be told from one that was fenced; a task that skips 4 cannot be found by the next one.

That leaves a task of a former version that was about to begin when its process stood still. When it wakes up, it takes the
ids from the version that follows, and commits without the stores that are new. So where another version has committed, the
driver claims an input for its own, in the same way, before it looks where to begin. A task that finds an input claimed for
another version than its own was followed, and gives up.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping

from streamrt.errors import TransactionError
from streamrt.kafka import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runtime.clients import TaskClients, TransactionWriter
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, claimed

__all__ = ["fence_owners", "owner_of", "take_inputs"]

_LOOKS = 5
_JOINED = "--"


def owner_of(inputs: Collection[TopicPartition]) -> TopicPartition:
    """Return the input partition whose transactional id a task produces with."""
    return min(inputs)


def take_inputs(
    clients: TaskClients,
    task: TopicPartition,
    inputs: Collection[TopicPartition],
    metadata: CommitMetadata,
    *,
    reuse: bool,
) -> TransactionWriter:
    """Fence everybody else who could move the offsets of a task's inputs, and return the writer of the task.

    Args:
        clients: Kafka.
        task: the task.
        inputs: its input partitions.
        metadata: composes what this version of the application stores with its offsets.
        reuse: whether this process made the task's last commit, so that the writer which did may go on: whoever works on one
            of the inputs meanwhile has taken the writer's id.

    Raises:
        TransactionError: if Kafka does not let us begin, or somebody else claims the inputs at the same time, or has done so
            since.
        KafkaRequestError: if the offsets cannot be read.
    """
    kept = clients.kept(task) if reuse else None
    if kept is not None:
        return kept
    owner = owner_of(inputs)
    writer = clients.transactional(task, owner)
    try:
        with contextlib.ExitStack() as opened:
            others = sorted(place for place in inputs if place != owner)
            writers = {place: opened.enter_context(clients.claiming(place, place.topic)) for place in others}
            _claim(clients, task, {owner: writer, **writers}, owner, metadata)
    except BaseException:
        clients.release(task)
        raise
    return writer


def fence_owners(clients: TaskClients, places: Iterable[TopicPartition], metadata: CommitMetadata) -> None:
    """End the transactions that dead tasks of input partitions have left open, whatever else these tasks had read.

    Inputs that another version of the application had are claimed for this one.

    Args:
        clients: Kafka.
        places: the input partitions.
        metadata: composes what this version stores with its offsets.

    Raises:
        TransactionError: if Kafka does not let that happen, or somebody else does it at the same time.
        KafkaRequestError: if the offsets cannot be read.
    """
    for place in places:
        with clients.claiming(place, place.topic) as writer:
            committed = _fence_others(clients, place, {place: None})[place]
            if committed.offset is not None and not metadata.describes(place, committed.metadata):
                writer.commit({place: committed.offset}, metadata.followed(place, committed.metadata))


def _claim(
    clients: TaskClients,
    task: TopicPartition,
    writers: Mapping[TopicPartition, TransactionWriter],
    owner: TopicPartition,
    metadata: CommitMetadata,
) -> None:
    """Fence those who claim inputs, and claim the inputs that are not claimed for this task yet."""
    wanted = {place: None if place == owner else owner.topic for place in writers}
    found = _fence_others(clients, task, wanted)
    notes = {place: CommittedMetadata.decode(found[place].metadata) for place in sorted(found)}
    for place, note in notes.items():
        # Somebody who sets an offset by hand tells of no version.
        if note.format and not metadata.describes(place, found[place].metadata):
            raise TransactionError(f"another version of the application has taken {place} over", fenced=True)
    for place, note in notes.items():
        offset = found[place].offset
        if note.owner != wanted[place] and offset is not None:
            text = claimed(found[place].metadata, owner=wanted[place])
            writers[place].commit({place: offset}, metadata.followed(place, text))


def _fence_others(
    clients: TaskClients, task: TopicPartition, wanted: Mapping[TopicPartition, str | None]
) -> Mapping[TopicPartition, CommittedOffset]:
    """Fence those who may move the offsets of inputs whose own ids are taken, until nobody new is named.

    Args:
        clients: Kafka.
        task: whose inputs they are.
        wanted: by input, the topic whose id is to move the offset, if it is another one.

    Returns:
        What is committed, which nobody else moves any more.
    """
    fenced = set(wanted)
    # One whose transaction is about to move an offset must be fenced before the offset can be read.
    stable = False
    for _ in range(_LOOKS):
        found = clients.noted(wanted, stable=stable)
        notes = {place: CommittedMetadata.decode(committed.metadata) for place, committed in found.items()}
        named = {other for place, note in notes.items() for other in _owners(place, note)}
        if len(wanted) > 1 and any(note.owner != wanted[place] for place, note in notes.items()):
            # Before there were claims, the id of a merged task had its name.
            named.add(task)
        new = named - fenced
        for other in sorted(new):
            with clients.claiming(other, min(wanted).topic):
                fenced.add(other)
        if stable and not new:
            return found
        stable = True
    raise TransactionError(f"others claim the inputs of {task} at the same time", fenced=True)


def _owners(place: TopicPartition, note: CommittedMetadata) -> set[TopicPartition]:
    """Return whose ids may move the offset of an input, beside its own."""
    names = {note.owner} if note.owner is not None else set()
    if note.format == 1:
        # Before there were claims, merged tasks had ids of their own. Their stores tell of them.
        names |= {scope for scope in note.stores if _JOINED in scope and place.topic in _members(scope)}
    return {TopicPartition(name, place.partition) for name in names}


def _members(scope: str) -> Collection[str]:
    return scope.split(_JOINED)
