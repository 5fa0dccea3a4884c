"""`filter`: passes values on or drops them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.operators.functions import function_name, inlined_call
from streamrt.state.spec import StoreSpec
from streamrt.topology import InlinedCode, Operator


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

    def inline(self, code: InlinedCode) -> bool:  # noqa: D102
        code.open_block(f"if {inlined_call(code, self.function, self.metadata, self.store)}:")
        return True

    def keeps_columns(self, columns: tuple[str, ...]) -> bool:  # noqa: D102
        return True

    def describe(self) -> str:  # noqa: D102
        return function_name(self.function)

    def stores(self) -> tuple[StoreSpec, ...]:  # noqa: D102
        return () if self.store is None else (self.store,)
