"""`TokenPlaces`: finds where the rows of a token are, and waits until those of requests are there."""

import time
from collections.abc import Collection
from typing import Any

from streamrt.errors import ArgumentTypeError, ArgumentValueError, LookupTimeoutError
from streamrt.kafka.completion_token import Offsets
from streamrt.tables.access.merged_requests import MergedRequests
from streamrt.tables.access.positions import Bounds, TopicPositions
from streamrt.tables.descriptions.home import TableHome
from streamrt.tables.descriptions.info import TableInfo

__all__ = ["TokenPlaces", "make_deadline", "parse_token"]

_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.5


class TokenPlaces:
    """Finds the offsets below which the rows of a token are. It may be used in any thread.

    Args:
        info: the table.
        home: its catalogue.
        positions: of its topic.
    """

    def __init__(self, info: TableInfo, home: TableHome, positions: TopicPositions) -> None:
        self._positions = positions
        self._requests: MergedRequests | None = None
        if info.requests_topic is not None:
            admin = home.links.admin()
            requests = TopicPositions(admin, info.requests_topic, info.name, home.timeout)
            self._requests = MergedRequests(admin, requests, positions, lambda: home.load(info.name).maintained_by)

    def find(
        self, token: Offsets, topic_id: str | None, numbers: Collection[int], deadline: float, what: str
    ) -> dict[int, int]:
        """Return the offset below which rows are, by number of partition; of requests, once they are merged.

        Args:
            token: the token.
            topic_id: the id that the topic of the rows is known by.
            numbers: the partitions that matter.
            deadline: value of `time.monotonic()` at which it ends.
            what: what waits, for the error.

        Raises:
            LookupTimeoutError: if requests are not merged in time.
            StaleTokenError: if a topic was created again since the token was made.
            ArgumentValueError: if the token is of other topics.
        """
        requests = self._requests
        if requests is None or requests.topic not in token.topics:
            return self._positions.read_token(token, topic_id)
        at = requests.wait_until_merged(token, numbers, deadline, what)
        if self._positions.topic in token.topics:
            of_rows = self._positions.read_token(token, topic_id)
            at = {number: max(at.get(number, 0), of_rows.get(number, 0)) for number in {*at, *of_rows}}
        return at

    def wait_until_readable(self, after: Offsets | str, numbers: Collection[int], timeout: float, what: str) -> Bounds:
        """Wait until the rows of a token can be read; return the offsets of partitions after that.

        Args:
            after: the token, or its text.
            numbers: the partitions that matter.
            timeout: seconds to wait.
            what: what waits, for the error.

        Raises:
            LookupTimeoutError: if they cannot in time: requests are not merged, or transactions are open.
            StaleTokenError: if a topic was created again since the token was made.
            ArgumentTypeError: if it is not a token, or the time is not a number.
        """
        token, deadline = parse_token(after), make_deadline(timeout)
        bounds = self._positions.read_bounds(numbers)
        topic_id = bounds.topic_id
        targets = self.find(token, topic_id, numbers, deadline, what)
        wait_s = _FIRST_WAIT_S
        while True:
            # What was read before requests were merged is older.
            bounds = self._positions.read_bounds(numbers)
            if bounds.topic_id != topic_id:
                raise self._positions.stale()
            hidden = [number for number in sorted(numbers) if bounds.readable[number] < targets.get(number, 0)]
            if not hidden:
                return bounds
            left = deadline - time.monotonic()
            if left <= 0:
                number, topic = hidden[0], self._positions.topic
                raise LookupTimeoutError(
                    f"{what} of table {self._positions.table!r} has no answer in time: rows of the token are below offset "
                    f"{targets[number]} of {topic}[{number}], and a transaction of a producer is open at offset "
                    f"{bounds.readable[number]}, and hides what comes after it"
                )
            time.sleep(min(wait_s, left))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def make_deadline(timeout: Any) -> float:
    """Return the value of `time.monotonic()` at which a wait ends.

    Raises:
        ArgumentTypeError: if it is not a number.
        ArgumentValueError: if it is negative.
    """
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number:
        raise ArgumentTypeError(f"timeout must be a number of seconds, got {type(timeout).__name__}")
    if not timeout >= 0:
        raise ArgumentValueError(f"timeout must be 0 or more seconds, got {timeout!r}")
    return time.monotonic() + float(timeout)


def parse_token(after: Any) -> Offsets:
    """Return a token, which may be a text.

    Raises:
        ArgumentTypeError: if it is neither.
    """
    token = Offsets.parse(after) if isinstance(after, str) else after
    if not isinstance(token, Offsets):
        raise ArgumentTypeError(f"a token is Offsets, or their text, got {type(after).__name__}")
    return token
