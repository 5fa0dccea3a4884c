"""`filter`: passes values on or drops them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, with_state
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler


@dataclass(frozen=True)
class Filter(Operator):
    """Passes on the values for which a function returns a true value.

    Attributes:
        function: function of the value; with `metadata` also of key, timestamp and headers.
        metadata: whether the function takes metadata.
        store: the store of the `State` that the function takes as its last argument; None for no state.

    Example:
        >>> Filter(bool).describe()
        'bool'
    """

    name: ClassVar[str] = "filter"
    passes_on_last: ClassVar[bool] = True
    function: Callable[..., Any]
    metadata: bool = False
    store: StoreSpec | None = None

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        function, metadata = self.function, self.metadata
        if self.store is not None:
            function, metadata = with_state(function, metadata, context.state(self.store)), True

        def keep(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if function(value):
                child(value, key, timestamp, headers)

        def keep_metadata(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            if function(value, key, timestamp, headers):
                child(value, key, timestamp, headers)

        return keep_metadata if metadata else keep

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return () if self.store is None else (self.store,)
