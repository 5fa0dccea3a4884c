"""`update`: calls a function for a side effect, or for a change of the value in place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, inlined_call
from streamrt.state.spec import StoreSpec
from streamrt.topology import InlinedCode, Operator


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

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        code.add_lines(inlined_call(code, self.function, self.metadata, self.store))
        return True

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return () if self.store is None else (self.store,)
