"""`join` by window: pairs of records of two sides in one window.

The sides are merged into one stream of `[side, value]`, which a window collects, and each window becomes its pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.common.copies import deep_copy
from streamrt.errors import ConfigurationError
from streamrt.joins.merging import Merge
from streamrt.joins.stream import matches_nothing
from streamrt.records import Headers
from streamrt.topology import MergeOperator, Node, OperatorContext, RecordHandler

__all__ = ["PairsOfWindow", "TagSides"]

_BOUNDS = ("start", "end")


@dataclass(frozen=True)
class TagSides(MergeOperator):
    """Passes on the records of two frames as `[side, value]`: 0 is left, 1 is right.

    A key that matches nothing becomes None, which windows leave out.

    Example:
        >>> TagSides().describe()
        ''
    """

    name: ClassVar[str] = "join"
    by_key: ClassVar[bool] = True

    def build_inputs(self, child: RecordHandler, node: Node, context: OperatorContext) -> tuple[RecordHandler, ...]:  # noqa: D102
        def tag(side: int) -> RecordHandler:
            def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
                child([side, value], None if matches_nothing(key) else key, timestamp, headers)

            return run

        return tag(0), tag(1)


@dataclass(frozen=True)
class PairsOfWindow:
    """Makes the pairs of a window, and its records without a match. A function for `Apply`.

    Attributes:
        how: "left", "right" or "outer" pass on records without a match.
        merge: function of left and right value; a missing value is None.

    Example:
        >>> from streamrt.joins.merging import merge_of
        >>> pairs = PairsOfWindow("left", merge_of("join", "raise"))
        >>> list(pairs({"start": 0, "end": 10, "records": [[1, {"b": 2}], [0, {"a": 1}]]}))
        [{'start': 0, 'end': 10, 'a': 1, 'b': 2}]
    """

    how: str
    merge: Merge

    def __call__(self, window: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the results, each with the bounds of the window, in the order of the times of left and then of right."""
        left, right = ([value for side, value in window["records"] if side == each] for each in (0, 1))
        if left and right:
            for one in left:
                for other in right:
                    yield self._make_result(window, deep_copy(one), deep_copy(other))
        elif self.how in ("left", "outer") and left:
            for one in left:
                yield self._make_result(window, one, None)
        elif self.how in ("right", "outer"):
            for other in right:
                yield self._make_result(window, None, other)

    def _make_result(self, window: dict[str, Any], left: Any, right: Any) -> dict[str, Any]:
        merged = self.merge(left, right)
        bounds = {name: window[name] for name in _BOUNDS}
        if not isinstance(merged, dict):
            return {**bounds, "value": merged}
        if any(name in merged for name in _BOUNDS):
            raise ConfigurationError(
                "join(window=...) adds the columns 'start' and 'end', the bounds of the window, but the merged values have "
                "columns of these names: give them other ones before, or in a function on_merge=..."
            )
        return {**bounds, **merged}
