"""The aggregations of a window: a single one, or several with names."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.windows.aggregator import Aggregator, Collector, pick_of
from streamrt.windows.aggregators import fold_of
from streamrt.windows.fold import Fold, Input, Packing
from streamrt.windows.inputs import Pick, extractor_of
from streamrt.windows.retraction import collecting_fold_of, retracting_fold_of

__all__ = ["Aggregation", "Plan"]

_UNCHANGEABLE: Final = frozenset((int, float, bool, str, type(None)))

Extract = Callable[[Any], Input]


@dataclass(frozen=True)
class Aggregation:
    """The aggregations of a window.

    Attributes:
        aggregators: aggregations that work record by record, each with its result name.
        collectors: aggregations that get all values at the end, each with its result name.
        single: whether there is a single aggregation, with the result name `value`.

    Example:
        >>> from streamrt.windows import Collect, Count
        >>> aggregation = Aggregation.named(number=Count(), prices=Collect("price"))
        >>> [name for name, _ in aggregation.aggregators], [name for name, _ in aggregation.collectors]
        (['number'], ['prices'])
    """

    aggregators: tuple[tuple[str, Aggregator], ...]
    collectors: tuple[tuple[str, Collector], ...]
    single: bool

    @classmethod
    def of(cls, item: Aggregator | Collector) -> "Aggregation":
        """Return a single aggregation, with the result name `value`."""
        if isinstance(item, Collector):
            return cls((), (("value", item),), True)
        return cls((("value", item),), (), True)

    @classmethod
    def named(cls, **items: Any) -> "Aggregation":
        """Return several aggregations, by result name.

        Raises:
            InvalidOperationError: if there is no aggregation, a name is reserved, or an argument is not an aggregation.
        """
        if not items:
            raise ArgumentValueError("agg() needs at least one aggregation, such as agg(total=Sum(), number=Count())")
        for name, item in items.items():
            if name in ("start", "end"):
                raise ArgumentValueError(
                    f"agg({name}=...): window results already have start and end; give the aggregation another name"
                )
            if not isinstance(item, Aggregator | Collector):
                given = f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
                raise ArgumentTypeError(
                    f"agg({name}=...) needs an object of Sum, Count or another subclass of Aggregator or Collector, got "
                    f"{given}"
                )
        aggregators = tuple((name, item) for name, item in items.items() if isinstance(item, Aggregator))
        collectors = tuple((name, item) for name, item in items.items() if isinstance(item, Collector))
        return cls(aggregators, collectors, False)

    def keeps(self) -> tuple[str, ...]:
        """Return the names of the states in a window; one with another name starts empty.

        Example:
            >>> from streamrt.windows import Count, Sum
            >>> Aggregation.named(n=Count(), total=Sum("price")).keeps()
            ('n: Count', 'total: Sum/price')
        """
        return tuple(f"{name}: {item.state_suffix}" for name, item in (*self.aggregators, *self.collectors))

    def unmergeable(self) -> list[str]:
        """Return the result names of the aggregations that cannot merge two states."""
        return [name for name, item in self.aggregators if not item.mergeable]

    def plan(self, *, keep_inputs: bool = False, by_arrival: bool = False, retracts: bool = False) -> "Plan":
        """Return the aggregation in the form that operators run.

        Args:
            keep_inputs: store the inputs of all aggregations in the timeline, not only those of collectors.
            by_arrival: whether windows merge, so that states must know the order of arrival.
            retracts: whether values may be taken back.

        Raises:
            InvalidOperationError: if an aggregator cannot take values back.
        """
        if retracts:
            return self._plan_retractions()
        folds = [(name, item.state_suffix, *fold_of(item, by_arrival=by_arrival)) for name, item in self.aggregators]
        collects = [(name, item.result, pick_of(item, boxed=True)) for name, item in self.collectors]
        fold_picks, item_picks = [pick for *_, pick in folds], [pick for *_, pick in collects]
        if keep_inputs:
            fold_picks = item_picks = [*fold_picks, *item_picks]
        fold_picks, item_picks = _drop_repeated(fold_picks), _drop_repeated(item_picks)
        if self.single:
            fold = folds[0][2] if folds else _NOTHING
        else:
            fold = _join_folds(
                [(f"{name}/{suffix}", name, each, _find_pick(fold_picks, pick)) for name, suffix, each, pick in folds]
            )
        return Plan(
            fold=fold,
            extract=_make_extractor(fold_picks),
            extract_item=_make_extractor(item_picks),
            collectors=tuple((name, result, _make_picker(item_picks, pick)) for name, result, pick in collects),
            single=self.single,
        )

    def _plan_retractions(self) -> "Plan":
        """Return the aggregation of values that may be taken back: all of it is a fold."""
        parts = [
            *((name, item, *retracting_fold_of(name, item)) for name, item in self.aggregators),
            *((name, item, *collecting_fold_of(item)) for name, item in self.collectors),
        ]
        picks = _drop_repeated([pick for *_, pick in parts])
        # The states differ from those that only grow, so they have other names.
        fold = _join_folds(
            [
                (f"{name}/{item.state_suffix} of rows", name, each, _find_pick(picks, pick))
                for name, item, each, pick in parts
            ]
        )
        return Plan(fold, _make_extractor(picks), None, (), self.single)


class Plan(NamedTuple):
    """An aggregation, ready to run.

    Attributes:
        fold: all aggregators as one fold; the result of several is a dict.
        extract: function from a record's value to the fold's input; None: the value itself.
        extract_item: function from a record's value to its timeline item; None: the value itself.
        collectors: name, function of a list of values, and function that picks its values from the items.
        single: whether there is a single aggregation.
    """

    fold: Fold
    extract: Extract | None
    extract_item: Extract | None
    collectors: tuple[tuple[str, Callable[[Any], Any], Callable[[Sequence[Any]], Sequence[Any]]], ...]
    single: bool

    def input_of(self, value: Any) -> Input:
        """Return the fold's input from a record's value."""
        return value if self.extract is None else self.extract(value)

    def item_of(self, value: Any) -> Input:
        """Return the timeline item from a record's value, for collectors."""
        return value if self.extract_item is None else self.extract_item(value)

    def aggregate(self, state: Any, items: Sequence[Any], packing: Packing) -> Any:
        """Return the result for a state and the items of its window, in their order."""
        if self.single and not self.collectors:
            return self.fold.result(state, packing)
        collected = {
            name: result([_copy_value(item, packing) for item in pick(items)]) for name, result, pick in self.collectors
        }
        if self.single:
            return collected["value"]
        return {**self.fold.result(state, packing), **collected}

    def output(self, start: int, end: int, state: Any, items: Sequence[Any], packing: Packing) -> dict[str, Any]:
        """Return the output of a window."""
        aggregate = self.aggregate(state, items, packing)
        if self.single:
            return {"start": start, "end": end, "value": aggregate}
        return {"start": start, "end": end, **aggregate}

    def release(self, states: Iterable[Any], packing: Packing) -> None:
        """Delete what states refer to that are not used any more."""
        release = self.fold.release
        if release is not None:
            for state in states:
                release(state, packing)

    def fold_all(self, items: Sequence[tuple[int, int, Input]], packing: Packing) -> Any:
        """Return the state of a window with the given records.

        Args:
            items: event time, arrival number and input of each record, in the order of their arrival.
            packing: converts values to cells and back.
        """
        fold = self.fold
        if fold.whole is not None:
            return fold.whole([value for _, _, value in items], packing)
        state = fold.initial(packing)
        for timestamp, _, value in items:
            state = fold.step(state, _copy_value(value, packing), timestamp, packing)
        return state


def _copy_value(value: Any, packing: Packing) -> Any:
    # Items of the timeline are shared, but users' functions may change their arguments: make a copy.
    return value if type(value) in _UNCHANGEABLE else packing.unpack(packing.pack(value))


def _drop_repeated(picks: Sequence[Pick]) -> list[Pick]:
    return list({pick.key: pick for pick in picks}.values())


def _find_pick(picks: Sequence[Pick], pick: Pick) -> int | None:
    return [each.key for each in picks].index(pick.key) if len(picks) > 1 else None


def _make_extractor(picks: Sequence[Pick]) -> Extract | None:
    extracts = [extractor_of(pick) for pick in picks]
    if len(extracts) == 1:
        return extracts[0]
    return lambda value: [value if extract is None else extract(value) for extract in extracts]


def _make_picker(picks: Sequence[Pick], pick: Pick) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the function from the items of a window to those that count for a collector."""
    index, boxed = _find_pick(picks, pick), pick.boxed

    def pick_items(items: Sequence[Any]) -> Sequence[Any]:
        if index is not None:
            items = [item[index] for item in items]
        return [item[0] for item in items if item is not None] if boxed else items

    return pick_items


def _join_folds(parts: list[tuple[str, str, Fold, int | None]]) -> Fold:
    """Return one fold that runs several, each given as name in the state, name in the result, fold, and input index.

    A state is a dict, so that a new or changed aggregation starts empty and does not affect the others.
    """

    def initial(packing: Packing) -> Any:
        return {key: fold.initial(packing) for key, _, fold, _ in parts}

    keys = frozenset(key for key, *_ in parts)

    def known(state: Any, packing: Packing) -> Any:
        return state if state.keys() == keys else {**initial(packing), **state}

    def step(state: Any, values: Any, timestamp: int, packing: Packing) -> Any:
        state = known(state, packing)
        return {
            key: fold.step(state[key], values if index is None else values[index], timestamp, packing)
            for key, _, fold, index in parts
        }

    def result(state: Any, packing: Packing) -> Any:
        state = known(state, packing)
        return {name: fold.result(state[key], packing) for key, name, fold, _ in parts}

    def merge(a: Any, b: Any, packing: Packing) -> Any:
        a, b = known(a, packing), known(b, packing)
        return {key: fold.merge(a[key], b[key], packing) for key, _, fold, _ in parts if fold.merge is not None}

    def whole(values: Sequence[Any], packing: Packing) -> Any:
        return {
            key: fold.whole(values if index is None else [value[index] for value in values], packing)
            for key, _, fold, index in parts
            if fold.whole is not None
        }

    def release(state: Any, packing: Packing) -> None:
        for key, _, fold, _ in parts:
            if fold.release is not None and key in state:
                fold.release(state[key], packing)

    def retract(state: Any, values: Any, timestamp: int, packing: Packing) -> Any:
        state = known(state, packing)
        return {
            key: fold.retract(state[key], values if index is None else values[index], timestamp, packing)
            for key, _, fold, index in parts
            if fold.retract is not None
        }

    return Fold(
        initial,
        step,
        result,
        merge if all(fold.merge is not None for _, _, fold, _ in parts) else None,
        whole if all(fold.whole is not None for _, _, fold, _ in parts) else None,
        release if any(fold.release is not None for _, _, fold, _ in parts) else None,
        retract if all(fold.retract is not None for _, _, fold, _ in parts) else None,
    )


def _return_none(*_: Any) -> None:
    return None


_NOTHING: Final = Fold(_return_none, _return_none, _return_none, _return_none, _return_none)
"""The fold of a window with collectors only."""
