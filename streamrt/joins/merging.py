"""How joins merge two values: the argument `on_merge`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from streamrt.arguments import refuse_async
from streamrt.errors import ColumnTypeError, ConfigurationError, argument_error

__all__ = ["Merge", "OnMerge", "merge_of"]

OnMerge = Literal["raise", "keep-left", "keep-right"] | Callable[[Any, Any], Any]
"""How to merge two values: a rule for columns that both have, or a function of left and right value."""

Merge = Callable[[Any, Any], Any]
"""Function of the left and the right value; a missing value is None."""


def merge_of(method: str, on_merge: OnMerge, equal: frozenset[str] = frozenset()) -> Merge:
    """Return the function that merges two values.

    Args:
        method: name of the dataframe's method, for errors.
        on_merge: a rule or a function.
        equal: columns that both values have and that are equal, because the join is on them: they do not clash.

    Raises:
        InvalidOperationError: if `on_merge` is neither.

    Example:
        >>> merge_of("join_asof", "keep-left")({"a": 1, "b": 1}, {"b": 2, "c": 2})
        {'b': 1, 'c': 2, 'a': 1}
        >>> merge_of("join_asof", lambda left, right: (left, right))(1, 2)
        (1, 2)
    """
    refuse_async(f"{method}(on_merge=...)", on_merge)
    if callable(on_merge):
        return on_merge
    rule = _RULES.get(on_merge) if isinstance(on_merge, str) else None
    if rule is None:
        known = ", ".join(map(repr, _RULES))
        raise argument_error(
            f"{method}(on_merge=...) must be one of {known} or a function, got {on_merge!r}",
            of_type=isinstance(on_merge, str),
        )
    return rule(method, equal)


@dataclass(frozen=True)
class _Rule:
    """Merges the columns of two dicts; None counts as a value without columns."""

    method: str
    equal: frozenset[str]
    name: ClassVar[str]

    def __call__(self, left: Any, right: Any) -> Any:
        left = {} if left is None else left
        right = {} if right is None else right
        if not (isinstance(left, dict) and isinstance(right, dict)):
            side, value = ("right", right) if isinstance(left, dict) else ("left", left)
            raise ColumnTypeError(
                f"{self.method}(on_merge={self.name!r}) merges the columns of dicts, but the {side} value is of type "
                f"{type(value).__name__}: give a function, such as on_merge=lambda left, right: [left, right]"
            )
        return self._merge_values(left, right)

    def _merge_values(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        raise TypeError("a subclass merges the values")


class _Raise(_Rule):
    name: ClassVar[str] = "raise"

    def _merge_values(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        merged = {**left, **right}
        if len(merged) < len(left) + len(right):
            names = ", ".join(repr(column) for column in left if column in right and column not in self.equal)
            if not names:
                return merged
            raise ConfigurationError(
                f"{self.method}(on_merge='raise') found columns that left and right value both have: {names}; choose "
                "on_merge='keep-left', on_merge='keep-right' or a function"
            )
        return merged


class _KeepLeft(_Rule):
    name: ClassVar[str] = "keep-left"

    def _merge_values(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        return {**right, **left}


class _KeepRight(_Rule):
    name: ClassVar[str] = "keep-right"

    def _merge_values(self, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, Any]:
        return {**left, **right}


_RULES: dict[str, type[_Rule]] = {rule.name: rule for rule in (_Raise, _KeepLeft, _KeepRight)}
