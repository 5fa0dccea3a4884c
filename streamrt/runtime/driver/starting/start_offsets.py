"""The start offset of an input partition: a pure decision from the committed offset and the topic's offsets.

| committed offset | start | reason |
|---|---|---|
| in the partition | there | |
| below its first record | at its first record; the loss is reported | no existing record is skipped |
| above its end | by `auto_offset_reset` | |
| missing, and the partition is internal, or was added after the group had begun | at its first record | the same |
| missing, and the group has state whose position is not known | none: refused | records would be skipped, or count twice |
| missing otherwise | by `auto_offset_reset` | the user decides where a group begins |

A new offset is committed before anything is processed, so that the next start uses it.
"""

from dataclasses import dataclass

from streamrt.config import AutoOffsetReset
from streamrt.errors import OffsetOutOfRangeError
from streamrt.records import TopicPartition

__all__ = ["StartPlan", "StartRules", "plan_start"]


@dataclass(frozen=True)
class StartRules:
    """The rules for the start offset of a partition, from settings and the kind of partition.

    Attributes:
        group: the consumer group, for messages.
        reset: `auto_offset_reset`.
        recover: `auto_recover_from_source_offset_out_of_range`.
        internal: whether only this application writes to the topic and deletes from it.
        merges: whether its records are requests to write a table, which are deleted when they are merged.
        added: whether the partition was added to its topic after the group had begun to process the topic.
        exact_state: whether the partition feeds state that must not count any record twice.
        forgotten: whether the group has state, and no position of it is known for this partition.
        counted: whether state of the partition would have a position if any of its records had been processed.
    """

    group: str
    reset: AutoOffsetReset
    recover: bool
    internal: bool = False
    merges: bool = False
    added: bool = False
    exact_state: bool = False
    forgotten: bool = False
    counted: bool = False


@dataclass(frozen=True)
class StartPlan:
    """The start offset of one partition.

    Attributes:
        position: offset of the first record to process.
        moved: whether it differs from the committed offset, so that it must be committed.
        lost: number of offsets deleted before they were processed. This is an upper bound for lost records: transaction
            markers, aborted records and compacted records also have offsets.
        notice: message for the user at level ERROR; empty if there is none.
    """

    position: int
    moved: bool = False
    lost: int = 0
    notice: str = ""


def plan_start(partition: TopicPartition, known: int | None, bounds: tuple[int, int], rules: StartRules) -> StartPlan:
    """Decide the start offset of a partition.

    Args:
        partition: the partition, for messages.
        known: the next offset to process: the committed offset, or that of the state if the committed one has expired;
            None if there is none.
        bounds: first offset and end offset of the partition.
        rules: the rules.

    Raises:
        OffsetOutOfRangeError: if the user must decide. In that case, nothing has changed.

    Example:
        >>> rules = StartRules("shop", "latest", recover=True)
        >>> plan_start(TopicPartition("orders", 0), None, (10, 20), rules).position
        20
        >>> plan_start(TopicPartition("orders", 0), 7, (10, 20), rules).lost
        3
    """
    low, high = bounds
    if known is None:
        return StartPlan(_reset_offset(partition, bounds, rules), moved=True)
    if low <= known <= high:
        return StartPlan(known)
    return _plan_below(partition, known, low, rules) if known < low else _plan_above(partition, known, bounds, rules)


def _reset_offset(partition: TopicPartition, bounds: tuple[int, int], rules: StartRules) -> int:
    low, high = bounds
    if rules.forgotten and low < high and not (rules.counted and (rules.internal or rules.reset == "earliest")):
        raise OffsetOutOfRangeError(
            f"consumer group {rules.group!r} has state, but no committed offset for {partition} any more: Kafka forgets the "
            "offsets of a group without members after offsets.retention.minutes, and an earlier version of StreamRT did not "
            f"keep the position of this input; from offset {low} on, records may count twice, and from {high} on, records "
            "are skipped: commit the right offset for the group with the tools of Kafka, or start over with `streamrt "
            "reset`, or with another consumer_group"
        )
    if rules.internal or rules.added:
        return low
    if rules.reset == "error":
        raise OffsetOutOfRangeError(
            f"consumer group {rules.group!r} has no committed offset for {partition}, and auto_offset_reset='error' does not "
            "allow choosing one: commit an offset, or set 'earliest' or 'latest'"
        )
    return low if rules.reset == "earliest" else high


def _plan_below(partition: TopicPartition, known: int, low: int, rules: StartRules) -> StartPlan:
    lost = low - known
    what = (
        f"{partition} begins at offset {low}, but consumer group {rules.group!r} has processed it only up to offset "
        f"{known}: offsets {known} to {low - 1} were deleted before they were processed, up to "
        f"{'1 record' if lost == 1 else f'{lost} records'}"
    )
    if rules.internal:
        raise OffsetOutOfRangeError(
            f"{what}; the topic is internal, so its records were deleted manually: process the input again with another "
            f"consumer_group, or set the group's offset to {low} if the loss does not matter"
        )
    if rules.merges:
        raise OffsetOutOfRangeError(
            f"{what}; they are requests to write a table, and are deleted when they are merged, so the table has rows that "
            "this state does not have: `streamrt reset` lets the application begin with the rows of the table"
        )
    if not rules.recover:
        raise OffsetOutOfRangeError(
            f"{what}; auto_recover_from_source_offset_out_of_range=False does not allow skipping them: set the group's "
            f"offset to {low}, or set the option to True"
        )
    return StartPlan(low, True, lost, f"{what}; continuing at offset {low}")


def _plan_above(partition: TopicPartition, known: int, bounds: tuple[int, int], rules: StartRules) -> StartPlan:
    low, high = bounds
    what = (
        f"consumer group {rules.group!r} has processed {partition} up to offset {known}, but the partition has offsets {low} "
        f"to {high}: brokers have lost records, the topic was deleted and created again, or the offset was set manually"
    )
    if rules.internal or rules.exact_state:
        counted = "its records would count twice in the state" if rules.exact_state else "the topic is internal"
        raise OffsetOutOfRangeError(f"{what}; {counted}: process the input again with another consumer_group")
    if not rules.recover:
        raise OffsetOutOfRangeError(
            f"{what}; auto_recover_from_source_offset_out_of_range=False does not allow choosing another offset: set the "
            f"group's offset to {low} to process the existing records, or to {high} to skip them, or set the option to True"
        )
    if rules.reset == "error":
        raise OffsetOutOfRangeError(
            f"{what}; auto_offset_reset='error' does not allow choosing another offset: set the group's offset to {low} to "
            f"process the existing records, or to {high} to skip them, or set 'earliest' or 'latest'"
        )
    position = low if rules.reset == "earliest" else high
    return StartPlan(position, True, 0, f"{what}; continuing at offset {position} (auto_offset_reset={rules.reset!r})")
