"""`Announce`: tells that there is any input."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from streamrt.records import Headers
from streamrt.relations.change import Change
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

__all__ = ["Announce"]

_KEY: Final = "announced"


@dataclass(frozen=True)
class Announce(Operator):
    """Passes on one empty row for the first record of each partition, and nothing else.

    An aggregate of all rows is a row, also if a filter leaves none: it counts nothing, but is there. The store notes what was
    passed on.

    Attributes:
        store: the store.
        changes: whether values are changes of rows.
    """

    name: ClassVar[str] = "announce"
    store: StoreSpec
    changes: bool

    @property
    def keeps_rows(self) -> bool:  # type: ignore[override]
        """Whether it tells of rows of tables."""
        return self.changes

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        store, changes = context.store(self.store), self.changes

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            transaction = cast("TimedTransaction", store())
            prefix = transaction.prefix(_KEY)
            if transaction.head(prefix) is None:
                transaction.set_head(prefix, 1)
                transaction.advance(timestamp)
                row: dict[str, Any] = {}
                child(Change(None, row) if changes else row, _KEY, timestamp, None)

        return run

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
