"""`reduce`: replaces each value by the combination of all values of its key so far."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from streamrt.operators.functions import function_name
from streamrt.records import Headers
from streamrt.state.spec import StoreSpec
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler

_KEY: Final = "value"
_MISSING: Final = object()


@dataclass(frozen=True)
class Reduce(Operator):
    """Combines the values of a key.

    Attributes:
        function: function of the combination so far and a value; returns the next combination.
        store: the store of the combinations.
    """

    name: ClassVar[str] = "reduce"
    passes_on_last: ClassVar[bool] = True
    function: Callable[[Any, Any], Any]
    store: StoreSpec

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        function, state_of = self.function, context.state(self.store)

        def reduce(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            state = state_of(key, timestamp)
            former = state.get(_KEY, _MISSING)
            if former is not _MISSING:
                value = function(former, value)
            state.set(_KEY, value)
            child(value, key, timestamp, headers)

        return reduce

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return (self.store,)
