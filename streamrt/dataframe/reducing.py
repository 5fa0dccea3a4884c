"""Rolling reductions of dataframes. The public function is a method of `StreamingDataFrame`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.operators import Reduce
from streamrt.operators.functions import require_callable, require_name

F = TypeVar("F", bound=Frame)


def reduce(self: F, function: Callable[[Any, Any], Any], *, name: str | None = None) -> F:
    """Replace each value by the combination of all values of its key so far.

    The first value of a key passes unchanged. Combinations are kept in state, as JSON.

    Args:
        function: function of the combination so far and a value; returns the next combination.
        name: name of its store, `reduce_<name>`; required for a second `reduce` of the same frame. By default the store is
            called `reduce`.

    Returns:
        A new frame.

    Raises:
        InvalidOperationError: if `function` is not callable, or this frame has another `reduce` with the same store.

    Example:
        ```python
        balances = payments.reduce(lambda total, amount: total + amount)
        ```
    """
    require_callable("reduce()", function)
    require_name("reduce", name)
    branch = self._branch
    store = branch.own_store("reduce" if name is None else f"reduce_{name}", "reduce()", "reduce(..., name='...')")
    return self._with(branch.add(Reduce(function, branch.store(store))))
