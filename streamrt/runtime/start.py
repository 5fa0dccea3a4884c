"""Where to begin in an input partition: a pure decision, from what the group has committed and what the topic has.

| the group's offset | begin | so that |
|---|---|---|
| is in the partition | there | |
| is below its first record | at its first record; what was deleted is told | no record that is there is skipped |
| is above its end | as `auto_offset_reset` says | |
| is missing, and the partition is internal, or was added after the group had begun | at its first record | the same |
| is missing otherwise | as `auto_offset_reset` says | the user says where a group begins |

An offset that the group does not have is committed before anything is processed, so that the next start asks no more.
"""

from dataclasses import dataclass

from streamrt.config import AutoOffsetReset
from streamrt.errors import OffsetOutOfRangeError
from streamrt.models import TopicPartition

__all__ = ["StartPlan", "StartRules", "plan_start"]


@dataclass(frozen=True)
class StartRules:
    """What the user, and the kind of the partition, say about where to begin.

    Attributes:
        group: the consumer group, for messages.
        reset: `auto_offset_reset`.
        recover: `auto_recover_from_source_offset_out_of_range`.
        internal: whether the partition is of a topic that only this application writes and deletes from.
        added: whether the partition was added to its topic after the group had begun to process the topic.
        exact_state: whether there is state made of the partition that must count no record twice.
    """

    group: str
    reset: AutoOffsetReset
    recover: bool
    internal: bool = False
    added: bool = False
    exact_state: bool = False


@dataclass(frozen=True)
class StartPlan:
    """Where to begin in one partition.

    Attributes:
        position: offset of the first record to process.
        moved: whether that is not where the group is, so that it must be committed.
        lost: how many offsets were deleted before they were processed. Each may have been a record; markers of transactions,
            records of aborted ones and what compaction has removed take offsets, too, and nobody can tell any more.
        notice: what to tell the user at level ERROR; empty if there is nothing to tell.
    """

    position: int
    moved: bool = False
    lost: int = 0
    notice: str = ""


def plan_start(place: TopicPartition, known: int | None, bounds: tuple[int, int], rules: StartRules) -> StartPlan:
    """Decide where to begin in a partition.

    Args:
        place: the partition, for messages.
        known: the next offset to process, as the group has it, or the state if the group has forgotten it; None without one.
        bounds: first offset and end of the partition.
        rules: the rest.

    Raises:
        OffsetOutOfRangeError: if the user must decide. Nothing is changed by then.

    Example:
        >>> rules = StartRules("shop", "latest", recover=True)
        >>> plan_start(TopicPartition("orders", 0), None, (10, 20), rules).position
        20
        >>> plan_start(TopicPartition("orders", 0), 7, (10, 20), rules).lost
        3
    """
    low, high = bounds
    if known is None:
        return StartPlan(_reset(place, bounds, rules), moved=True)
    if low <= known <= high:
        return StartPlan(known)
    return _below(place, known, low, rules) if known < low else _above(place, known, bounds, rules)


def _reset(place: TopicPartition, bounds: tuple[int, int], rules: StartRules) -> int:
    low, high = bounds
    if rules.internal or rules.added:
        return low
    if rules.reset == "error":
        raise OffsetOutOfRangeError(
            f"consumer group {rules.group!r} has no committed offset for {place}, and auto_offset_reset='error' forbids to "
            "choose one: commit an offset, or set 'earliest' or 'latest'"
        )
    return low if rules.reset == "earliest" else high


def _below(place: TopicPartition, known: int, low: int, rules: StartRules) -> StartPlan:
    lost = low - known
    what = (
        f"{place} begins at offset {low} now, and consumer group {rules.group!r} has processed it up to offset {known}: the "
        f"offsets {known} to {low - 1} were deleted before they were processed, which are up to "
        f"{'1 record' if lost == 1 else f'{lost} records'}"
    )
    if rules.internal:
        raise OffsetOutOfRangeError(
            f"{what}; the topic is internal, so somebody deleted from it by hand: process the input again with another "
            f"consumer_group, or set the group's offset to {low} if the loss does not matter"
        )
    if not rules.recover:
        raise OffsetOutOfRangeError(
            f"{what}; auto_recover_from_source_offset_out_of_range=False forbids to go on without them: set the group's "
            f"offset to {low}, or allow it"
        )
    return StartPlan(low, True, lost, f"{what}; going on from offset {low}")


def _above(place: TopicPartition, known: int, bounds: tuple[int, int], rules: StartRules) -> StartPlan:
    low, high = bounds
    what = (
        f"consumer group {rules.group!r} has processed {place} up to offset {known}, but the partition has the offsets {low} "
        f"to {high}: brokers have lost records, the topic was made anew, or the offset was set by hand"
    )
    if rules.internal or rules.exact_state:
        counted = "its records would count twice in the state" if rules.exact_state else "the topic is internal"
        raise OffsetOutOfRangeError(f"{what}; {counted}: process the input again with another consumer_group")
    if not rules.recover:
        raise OffsetOutOfRangeError(
            f"{what}; auto_recover_from_source_offset_out_of_range=False forbids to choose another one: set the group's "
            f"offset to {low} to process what is there, or to {high} to leave it out, or allow it"
        )
    if rules.reset == "error":
        raise OffsetOutOfRangeError(
            f"{what}; auto_offset_reset='error' forbids to choose another one: set the group's offset to {low} to process "
            f"what is there, or to {high} to leave it out, or set 'earliest' or 'latest'"
        )
    position = low if rules.reset == "earliest" else high
    return StartPlan(
        position, True, 0, f"{what}; going on from offset {position}, as auto_offset_reset={rules.reset!r} says"
    )
