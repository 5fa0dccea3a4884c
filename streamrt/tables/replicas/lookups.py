"""`RowLookups`: rows by their keys, from the copies that a follower keeps."""

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from streamrt.arguments import checked_int
from streamrt.errors import (
    InvalidOperationError,
    SerializationError,
)
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.partitioner import partition_for
from streamrt.schema import Schema
from streamrt.serializers.base import MessageField
from streamrt.serializers.row_formats import KeyFormat, RowFormat
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.replicas.follower import TableFollower
from streamrt.tables.replicas.key_ranges import KeyPrefix
from streamrt.tables.replicas.partition_rows import StoredRow
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.rows.token_places import TokenPlaces, make_deadline, parse_token

__all__ = ["RowLookups"]

_SAMPLE = 64
_ENOUGH = 8
"""Keys that must lie where their hash says, before those that are not there count as absent from all partitions."""


class RowLookups:
    """Looks up rows of a table. It may be used in any thread.

    Args:
        positions: of the topic.
        places: finds the rows of tokens.
        row_format: format of the rows.
        keys_as: format of the keys.
        num_partitions: partitions that the topic had when the table was created.
        follower: returns the follower that keeps the rows.
        is_lazy: whether it follows partitions when they are asked for.
    """

    def __init__(
        self,
        positions: TopicPositions,
        places: TokenPlaces,
        row_format: RowFormat,
        keys_as: KeyFormat,
        num_partitions: int | None,
        follower: Callable[[], TableFollower],
        *,
        is_lazy: bool = False,
    ) -> None:
        self._positions = positions
        self._places = places
        self._schema: Schema = row_format.schema
        self._decode = row_format.deserializer.bind(positions.topic, MessageField.VALUE)
        self._decoding = threading.Lock()
        self._encoder = KeyEncoder(positions.table, keys_as)
        self._prefix = KeyPrefix(positions.table, keys_as)
        self._num_partitions = num_partitions
        self._follower = follower
        self._is_lazy = is_lazy

    def get_many(
        self, method: str, keys: Sequence[Any], after: Offsets | str | None, fresh: bool, timeout: float
    ) -> list[dict[str, Any] | None]:
        """Return the row of each key, or None; `Table.get_many` says more."""
        deadline = make_deadline(timeout)
        encoded = [self._encoder.key(key) for key in keys] if method == "get" else self._encoder.keys(keys)
        follower = self._follower()
        count = follower.count
        places = [partition_for(key, count) for key in encoded]
        held = None if self._is_lazy else follower.partitions
        wanted = {place for place in places if held is None or place in held}
        self._reach(follower, method, wanted, after, fresh, deadline)
        found = [self._find(follower, key, [place]) for key, place in zip(encoded, places, strict=True)]
        missing = [
            index
            for index, row in enumerate(found)
            if row is None and not (self._is_lazy and self._is_placed(follower, places[index]))
        ]
        if missing:
            everywhere = list(range(count)) if held is None else held
            self._reach(follower, method, set(everywhere), after, fresh, deadline)
            for index in missing:
                found[index] = self._find(follower, encoded[index], everywhere)
                if found[index] is None and held is not None and places[index] not in held:
                    raise InvalidOperationError(
                        f"{method}() of table {self._positions.table!r}: the key lies in partition {places[index]}, and the "
                        f"replica has partitions {', '.join(map(str, held))}"
                    )
        return [None if row is None else self._decode_row(row) for row in found]

    def prefix(
        self, key: Any, limit: int | None, after: Offsets | str | None, fresh: bool, timeout: float
    ) -> list[dict[str, Any]]:
        """Return the rows whose key begins with some values; `Table.prefix` says more."""
        deadline = make_deadline(timeout)
        if limit is not None:
            checked_int("limit", limit, 0, "a number of rows")
        start, end = self._prefix.bounds(key)
        follower = self._follower()
        numbers = list(range(follower.count)) if self._is_lazy else follower.partitions
        self._reach(follower, "prefix", set(numbers), after, fresh, deadline)
        rows = itertools.islice(_scan_partitions(follower, numbers, start, end), limit)
        return [self._decode_row(row) for row in rows]

    def scan(self, columns: Sequence[str | int] | None, timeout: float) -> Iterator[dict[str, Any]]:
        """Return all rows; `TableReplica.scan` says more."""
        names = None if columns is None else self._schema.project(columns).names
        follower = self._follower()
        self._reach(follower, "scan", set(follower.partitions), None, False, make_deadline(timeout))

        def decode_rows() -> Iterator[dict[str, Any]]:
            for row in _scan_partitions(follower, follower.partitions):
                decoded = self._decode_row(row)
                yield decoded if names is None else {name: decoded[name] for name in names}

        return decode_rows()

    def wait_for(self, token: Offsets | str | None, timeout: float) -> None:
        """Wait until the rows contain what a token means; `TableReplica.wait_for` says more."""
        follower = self._follower()
        self._reach(follower, "wait_for", set(follower.partitions), token, False, make_deadline(timeout))

    def _reach(
        self,
        follower: TableFollower,
        method: str,
        numbers: Collection[int],
        after: Offsets | str | None,
        fresh: bool,
        deadline: float,
    ) -> None:
        """Wait until partitions have been read as far as a lookup asks for."""
        targets = dict.fromkeys(numbers, 0)
        what = f"{method}()"
        if after is not None:
            token, what = parse_token(after), f"{method}(after=...)"
            at = self._places.find(token, follower.topic_id, numbers, deadline, what)
            if token.ids.get(self._positions.topic, follower.topic_id) != follower.topic_id:
                # The token is of the topic of now.
                follower.fail(self._positions.stale())
            targets = {number: at.get(number, 0) for number in targets}
        if fresh and numbers:
            if self._positions.has_moved():
                follower.fail(self._positions.moved())
            bounds = self._positions.read_bounds(sorted(numbers))
            if bounds.topic_id != follower.topic_id:
                follower.fail(self._positions.stale())
            targets = {number: max(offset, bounds.high[number]) for number, offset in targets.items()}
            what = f"{method}(fresh=True)"
        follower.want(numbers)
        follower.wait_until(targets, deadline, what)

    def _find(self, follower: TableFollower, key: bytes, numbers: Collection[int]) -> StoredRow | None:
        for number in numbers:
            rows = follower.rows(number)
            row = None if rows is None else rows.get(key)
            if row is not None:
                return row
        return None

    def _is_placed(self, follower: TableFollower, number: int) -> bool:
        """Return whether the keys of a partition are those whose hash says so: then another key of it is nowhere else.

        Other producers may use other hashes, and partitions that are added to a topic change where keys lie.
        """
        rows = follower.rows(number)
        if rows is None or follower.count != self._num_partitions:
            return follower.count == 1
        sample = list(itertools.islice(rows.scan(), _SAMPLE))
        is_enough = len(sample) >= _ENOUGH or follower.count == 1
        return is_enough and all(partition_for(row.key, follower.count) == number for row in sample)

    def _decode_row(self, row: StoredRow) -> dict[str, Any]:
        try:
            with self._decoding:
                decoded: dict[str, Any] = self._decode(row.value, None)
        except SerializationError as error:
            raise SerializationError(
                f"a record of {self._positions.topic} at offset {row.offset} is not a row of table "
                f"{self._positions.table!r}: {error}"
            ) from error
        return decoded


def _scan_partitions(
    follower: TableFollower, numbers: Collection[int], start: bytes = b"", end: bytes | None = None
) -> Iterator[StoredRow]:
    for number in numbers:
        rows = follower.rows(number)
        if rows is not None:
            yield from rows.scan(start, end)
