"""`apply`: replaces each value by the result of a function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, inlined_call
from streamrt.records import Headers
from streamrt.state.access.keyed_state import OVER
from streamrt.state.spec import StoreSpec
from streamrt.topology import InlinedCode, Node, Operator, OperatorContext, RecordHandler, StateAccess


@dataclass(frozen=True)
class Apply(Operator):
    """Passes on the result of a function, or with `expand` each item of it.

    Attributes:
        function: function of the value; with `metadata` also of key, timestamp and headers.
        expand: pass on the items of the returned iterable one by one; generators are pulled lazily.
        metadata: whether the function takes metadata.
        store: the store of the `State` that the function takes as its last argument; None for no state.

    Example:
        >>> Apply(str.split, expand=True).describe()
        'str.split, expand'
    """

    name: ClassVar[str] = "apply"
    function: Callable[..., Any]
    expand: bool = False
    metadata: bool = False
    store: StoreSpec | None = None

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        if not self.expand:
            code.add_lines(f"value = {inlined_call(code, self.function, self.metadata, self.store)}")
        return not self.expand

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        function, metadata = self.function, self.metadata
        if not self.expand:
            return super().build(child, node, context)
        if self.store is not None:
            return _make_expanding(function, metadata, context.state(self.store), child, node)

        def expand(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            for item in _iterate_items(function(value)):
                child(item, key, timestamp, headers)

        def expand_metadata(
            value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node
        ) -> None:
            for item in _iterate_items(function(value, key, timestamp, headers)):
                child(item, key, timestamp, headers)

        return expand_metadata if metadata else expand

    def multiplies_records(self) -> bool:  # noqa: D102
        return self.expand

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function) + (", expand" if self.expand else "")

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return () if self.store is None else (self.store,)


def _make_expanding(
    function: Callable[..., Any], metadata: bool, state_of: StateAccess, child: RecordHandler, node: Node
) -> RecordHandler:
    """Return the handler for a function with state whose results are expanded: its call ends after the last of them."""

    def expand(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
        state = state_of(key, timestamp)
        try:
            result = function(value, key, timestamp, headers, state) if metadata else function(value, state)
            for item in _iterate_items(result):
                child(item, key, timestamp, headers)
        finally:
            state._transaction = OVER

    return expand


def _iterate_items(result: Any) -> Any:
    try:
        return iter(result)
    except TypeError:
        raise TypeError(
            f"apply(expand=True) needs an iterable, but the function returned {type(result).__name__}"
        ) from None
