"""`update`: calls a function for a side effect, or for a change of the value in place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, with_state
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler


@dataclass(frozen=True)
class Update(Operator):
    """Calls a function for its side effect and passes on the same value.

    Attributes:
        function: function of the value; with `metadata` also of key, timestamp and headers. Its result is ignored.
        metadata: whether the function takes metadata.
        store: the store of the `State` that the function takes as its last argument; None for no state.

    Example:
        >>> Update(print).describe()
        'print'
    """

    name: ClassVar[str] = "update"
    in_place: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    function: Callable[..., Any]
    metadata: bool = False
    store: StoreSpec | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        function, metadata = self.function, self.metadata
        if self.store is not None:
            function, metadata = with_state(function, metadata, context.state(self.store)), True

        def update(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            function(value)
            child(value, key, timestamp, headers)

        def update_metadata(
            value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node
        ) -> None:
            function(value, key, timestamp, headers)
            child(value, key, timestamp, headers)

        return update_metadata if metadata else update

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return () if self.store is None else (self.store,)
