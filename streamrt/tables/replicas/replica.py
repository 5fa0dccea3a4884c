"""`TableReplica`: a local copy of a table that answers lookups by key."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from typing_extensions import Self

from streamrt.kafka.completion_token import Offsets
from streamrt.tables.replicas.follower import TableFollower
from streamrt.tables.replicas.lookups import RowLookups

__all__ = ["TableReplica"]


class TableReplica:
    """A local copy of the current rows of a table, or of some of its partitions; `Table.replica` returns it.

    A thread keeps it up to date. Lookups first wait until it has been read to the end that the topic had when it was made,
    and later return what is there at once. It may be used in any thread; close it, or use it in `with`.

    Rows are kept as the bytes that were written, and decoded by the schema that the table had when the replica was made.

    Example:
        ```python
        with table.replica(store=RocksDBStore, directory="/var/lib/customers") as replica:
            token = table.upsert({"id": 7, "name": "ann"})
            print(replica.get(7, after=token), replica.prefix({"country": "FR"}))
        ```
    """

    def __init__(self, name: str, follower: TableFollower, lookups: RowLookups) -> None:
        self._name = name
        self._follower = follower
        self._lookups = lookups

    def get(
        self, key: Any, *, after: Offsets | str | None = None, fresh: bool = False, timeout: float = 30.0
    ) -> dict[str, Any] | None:
        """Return the row of a key, or None; arguments and errors are those of `Table.get`.

        Raises:
            InvalidOperationError: if the key lies in a partition that the replica does not have, or it is closed.
        """
        return self._lookups.get_many("get", [key], after, fresh, timeout)[0]

    def get_many(
        self, keys: Sequence[Any], *, after: Offsets | str | None = None, fresh: bool = False, timeout: float = 30.0
    ) -> list[dict[str, Any] | None]:
        """Return the row of each key, or None, in their order; arguments and errors are those of `Table.get_many`.

        Raises:
            InvalidOperationError: if a key lies in a partition that the replica does not have, or it is closed.
        """
        return self._lookups.get_many("get_many", keys, after, fresh, timeout)

    def prefix(
        self,
        key: Any,
        *,
        limit: int | None = None,
        after: Offsets | str | None = None,
        fresh: bool = False,
        timeout: float = 30.0,
    ) -> list[dict[str, Any]]:
        """Return the rows whose key begins with some values; arguments and errors are those of `Table.prefix`."""
        return self._lookups.prefix(key, limit, after, fresh, timeout)

    def scan(self, columns: Sequence[str | int] | None = None, *, timeout: float = 30.0) -> Iterator[dict[str, Any]]:
        """Return all rows, partition after partition, in the order of the bytes of their keys.

        Rows that change meanwhile may be those of before or of after; `Table.snapshot` is consistent.

        Args:
            columns: names or numbers of the columns, in order; None means all.
            timeout: seconds to wait until the table has been read for the first time.

        Raises:
            LookupTimeoutError: if it has not in time.
            SchemaError: if there is no such column.
            SerializationError: if a record is not a row.
            StaleTokenError: if the topic was deleted and created again.
        """
        return self._lookups.scan(columns, timeout)

    def wait_for(self, token: Offsets | str | None = None, timeout: float = 30.0) -> None:
        """Wait until the copy contains all rows that a token means.

        Args:
            token: the token that a writer has returned, or its text; None waits until the table has been read for the first
                time.
            timeout: seconds to wait.

        Raises:
            LookupTimeoutError: if it does not in time; it names partition and offsets.
            StaleTokenError: if the topic was deleted and created again.
            ArgumentValueError: if the token is of another topic.
        """
        self._lookups.wait_for(token, timeout)

    @property
    def position(self) -> Offsets:
        """The offsets up to which the copy contains the topic."""
        return self._follower.position

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions that it has."""
        return self._follower.partitions

    @property
    def skipped(self) -> int:
        """How many records were left out because they have no key."""
        return self._follower.skipped

    @property
    def error(self) -> BaseException | None:
        """The error that has ended it, or None; lookups raise it."""
        return self._follower.error

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._follower.closed

    def close(self) -> None:
        """End the thread, and close the stores. Those on disk are continued by the next replica in this directory."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TableReplica of {self._name!r}, partitions {self.partitions}{', closed' if self.closed else ''}>"
