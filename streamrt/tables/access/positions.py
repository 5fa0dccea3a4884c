"""Where reading begins and ends: starts as users give them, resolved to offsets of a topic's partitions."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypeAlias, TypeGuard

from streamrt.arguments import checked_int
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    OffsetOutOfRangeError,
    StaleTokenError,
    StreamRTError,
    TopicNotFoundError,
)
from streamrt.kafka.cluster.topic_ids import confirmed_ids
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.tables.access.links import TableAdmin

__all__ = ["Bounds", "Positions", "Start", "TopicPositions", "is_by_number"]

Start: TypeAlias = Literal["earliest", "latest"] | datetime | Offsets | Mapping[int, int] | str
"""A place in each partition: the first or the end offset, the first record that is not older than a time (UTC without a
zone), `Offsets`, an offset for each number of a partition, or a token (`str(offsets)`)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STARTS = '"earliest", "latest", a datetime, Offsets, offsets by partition, or a token'


@dataclass(frozen=True)
class Positions:
    """Offsets of partitions, and the id of their topic.

    Attributes:
        topic: name of the topic.
        topic_id: Kafka's id of it, or None if it is unknown.
        at: offset by number of partition.
    """

    topic: str
    topic_id: str | None
    at: Mapping[int, int]

    def offsets(self) -> Offsets:
        """Return them as a token has them."""
        ids = {} if self.topic_id is None else {self.topic: self.topic_id}
        return Offsets({(self.topic, number): offset for number, offset in self.at.items()}, ids)


@dataclass(frozen=True)
class Bounds:
    """The offsets that partitions have at one moment.

    Attributes:
        topic_id: Kafka's id of the topic.
        low: first offset by number of partition.
        readable: last stable offset: records below it can be read now.
        high: offset after the last record.
    """

    topic_id: str | None
    low: Mapping[int, int]
    readable: Mapping[int, int]
    high: Mapping[int, int]


class TopicPositions:
    """Resolves starts to offsets of one topic.

    Args:
        admin: looks at the topic.
        topic: name of the topic.
        table: name of the table, for errors.
        timeout: seconds to wait for each answer.
        find_topic: returns the topic that the table has now; None for one that stays.
    """

    def __init__(
        self,
        admin: TableAdmin,
        topic: str,
        table: str,
        timeout: float,
        find_topic: Callable[[], str | None] | None = None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._table = table
        self._timeout = timeout
        self._find_topic = find_topic

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def table(self) -> str:
        """Name of the table."""
        return self._table

    @property
    def timeout(self) -> float:
        """Seconds to wait for each answer."""
        return self._timeout

    def has_moved(self) -> bool:
        """Return whether the table has another topic now; not if the catalogue does not say so."""
        if self._find_topic is not None:
            with contextlib.suppress(StreamRTError):
                return self._find_topic() != self._topic
        return False

    def moved(self) -> StaleTokenError:
        """Return the error for a table that has another topic now."""
        return StaleTokenError(
            f"table {self._table!r} has another topic than {self._topic!r} now, as after a swap of two views: read it from "
            "the beginning by a new handle, catalog.table(...)"
        )

    def topic_id(self, timeout: float | None = None) -> str | None:
        """Return Kafka's id of the topic.

        Args:
            timeout: seconds to wait for the answer; by default, those of all answers.

        Raises:
            TopicNotFoundError: if the topic does not exist.
        """
        found = self._admin.topic_ids([self._topic], self._timeout if timeout is None else timeout)[self._topic]
        if found is None:
            raise self._make_missing_error()
        return found

    def is_another(self, topic_id: str, timeout: float | None = None) -> bool:
        """Return whether the topic has another id, after brokers have repeated it.

        Args:
            topic_id: the id that it had.
            timeout: seconds to wait for each answer; by default, those of all answers.

        Raises:
            TopicNotFoundError: if the topic does not exist.
        """
        seconds = self._timeout if timeout is None else timeout
        found = confirmed_ids(self._admin.topic_ids, {self._topic: topic_id}, timeout=seconds)[self._topic]
        if found is None:
            raise self._make_missing_error()
        return found != topic_id

    def count(self) -> int:
        """Return the number of partitions.

        Raises:
            TopicNotFoundError: if the topic does not exist.
        """
        # Not by the settings of the topic, which readers need not be allowed to see.
        count = len(self._admin.partition_replicas(self._topic, self._timeout))
        if not count:
            raise self._make_missing_error()
        return count

    def chosen(self, partitions: Collection[int] | None, *specs: Start) -> list[int]:
        """Return the partitions that are meant: those given, or those that starts name by number, or all.

        Raises:
            ArgumentValueError: if the topic does not have one, one of the starts names others, or there are none.
        """
        given = None if partitions is None else set(partitions)
        if given is not None and not given:
            raise ArgumentValueError("partitions must name one partition or more: leave it out for all")
        if any(is_by_number(spec) and not spec for spec in specs):
            raise ArgumentValueError("offsets by partition must name one partition or more")
        count = self.count()
        named: list[set[int]] = [set(spec) for spec in specs if is_by_number(spec)]
        wanted = set(range(count)) if given is None else given
        if given is None and named:
            wanted = named[0]
        for number in sorted(wanted.union(*named), key=str):
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
                raise ArgumentValueError(
                    f"topic {self._topic!r} of table {self._table!r} has no partition {number!r}: its partitions are 0 to "
                    f"{count - 1}"
                )
        for each in named:
            if not wanted <= each:
                raise ArgumentValueError(
                    f"there is no offset for partition {min(wanted - each)} of topic {self._topic!r}: give one, or leave "
                    "the partition out of partitions="
                )
        return sorted(wanted)

    def read_bounds(self, partitions: Collection[int]) -> Bounds:
        """Return what offsets partitions have now."""
        wanted = [TopicPartition(self._topic, number) for number in partitions]
        # The id first: of a topic that is created again meanwhile, offsets then belong to no topic that exists.
        topic_id = self.topic_id()
        # The last stable offset first: it is then never above the end.
        committed = self._admin.offset_bounds(wanted, self._timeout, isolation_level="read_committed")
        found = self._admin.offset_bounds(wanted, self._timeout)
        low = {each.partition: offset for each, (offset, _) in found.items()}
        return Bounds(
            topic_id,
            low,
            {each.partition: max(stable, low[each.partition]) for each, (_, stable) in committed.items()},
            {each.partition: high for each, (_, high) in found.items()},
        )

    def find(self, spec: Start, bounds: Bounds) -> Positions:
        """Return the offsets of a place in each partition, without a check of ranges."""
        return Positions(self._topic, bounds.topic_id, self._resolve_start(spec, bounds, bounds.low))

    def starts(self, spec: Start, bounds: Bounds) -> Positions:
        """Return where reading begins.

        Raises:
            OffsetOutOfRangeError: if an offset is no longer, or not yet, in the topic.
            StaleTokenError: if the topic was created again since the token was made.
        """
        # Partitions that a token does not have were added after it was made.
        at = self._resolve_start(spec, bounds, bounds.low)
        if _is_exact(spec):
            for number, offset in at.items():
                self._require_offset(bounds.low[number] <= offset <= bounds.high[number], number, offset, bounds)
        return Positions(self._topic, bounds.topic_id, at)

    def ends(self, spec: Start, bounds: Bounds) -> Positions:
        """Return where reading ends: the offset after the last record.

        Raises:
            OffsetOutOfRangeError: if an offset is above the end of its partition.
            StaleTokenError: if the topic was created again since the token was made.
        """
        at = self._resolve_start(spec, bounds, dict.fromkeys(bounds.low, 0))
        if _is_exact(spec):
            for number, offset in at.items():
                self._require_offset(offset <= bounds.high[number], number, offset, bounds)
        else:
            # What an open transaction holds back cannot be read now.
            at = {number: min(offset, bounds.readable[number]) for number, offset in at.items()}
        return Positions(self._topic, bounds.topic_id, at)

    def _resolve_start(self, spec: Start, bounds: Bounds, absent: Mapping[int, int]) -> dict[int, int]:
        """Return the offset of each partition; `absent` are those of partitions that a token does not have."""
        if isinstance(spec, str) and spec == "earliest":
            return dict(bounds.low)
        if isinstance(spec, str) and spec == "latest":
            return dict(bounds.readable)
        if isinstance(spec, datetime):
            wanted = [TopicPartition(self._topic, number) for number in bounds.low]
            found = self._admin.offsets_at(wanted, _to_milliseconds(spec), self._timeout) if wanted else {}
            return {each.partition: max(offset, bounds.low[each.partition]) for each, offset in found.items()}
        if isinstance(spec, str):
            spec = _parse_offsets(spec)
        if isinstance(spec, Offsets):
            given = self.read_token(spec, bounds.topic_id)
            return {number: given.get(number, absent[number]) for number in bounds.low}
        if is_by_number(spec):
            return {number: _check_offset(number, spec[number]) for number in bounds.low}
        raise ArgumentTypeError(f"a start or an end must be {_STARTS}, got {type(spec).__name__}")

    def read_token(self, token: Offsets, topic_id: str | None) -> dict[int, int]:
        """Return the offsets that a token has of the topic, by number of partition.

        Args:
            token: the token.
            topic_id: the id of the topic, as far as it is known.

        Raises:
            ArgumentValueError: if the token is of other topics.
            StaleTokenError: if the topic was created again since the token was made.
        """
        if token and self._topic not in token.topics:
            advice = ""
            if f"{self._topic}.requests" in token.topics:
                advice = (
                    ", where rows are when such requests are merged: get(after=...), scan(after=...) and wait_for() of "
                    "replicas wait"
                )
            raise ArgumentValueError(
                f"the token is of topic {', '.join(token.topics)}, and table {self._table!r} has topic {self._topic!r}"
                f"{advice}"
            )
        noted = token.ids.get(self._topic, topic_id)
        if noted is not None and noted != topic_id and self.is_another(noted):
            raise self.stale()
        return token.partition_map(self._topic)

    def stale(self) -> StaleTokenError:
        """Return the error for positions of an earlier topic of this name."""
        return StaleTokenError(
            f"topic {self._topic!r} of table {self._table!r} was deleted and created again since the position was noted, so "
            'its offsets mean other records: begin at "earliest"'
        )

    def _require_offset(self, is_there: bool, number: int, offset: int, bounds: Bounds) -> None:
        if not is_there:
            low, high = bounds.low[number], bounds.high[number]
            reason = (
                'records were deleted, by retention or by hand; start="earliest" reads those that are left'
                if offset < low
                else "no record has this position yet, or brokers have lost records"
            )
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self._topic}[{number}] is not among its offsets {low} to {high}: {reason}"
            )

    def _make_missing_error(self) -> TopicNotFoundError:
        return TopicNotFoundError(
            f"topic {self._topic!r} of table {self._table!r} does not exist: create it again, or drop the table"
        )


def is_by_number(spec: Start) -> TypeGuard[Mapping[int, int]]:
    """Return whether a start names partitions by their numbers, and so chooses them."""
    return isinstance(spec, Mapping) and not isinstance(spec, Offsets)


def _is_exact(spec: object) -> bool:
    """Whether a start names offsets."""
    return isinstance(spec, Mapping) or (isinstance(spec, str) and spec not in ("earliest", "latest"))


def _parse_offsets(text: str) -> Offsets:
    if not text.lstrip().startswith("{"):
        raise ArgumentValueError(f"a start or an end must be {_STARTS}, got {text[:80]!r}")
    return Offsets.parse(text)


def _check_offset(number: int, offset: Any) -> int:
    return checked_int(f"the offset of partition {number}", offset, 0)


def _to_milliseconds(moment: datetime) -> int:
    """Return a time as milliseconds since the Unix epoch, rounded up, and no less than 0."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))
