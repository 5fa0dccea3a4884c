"""The choice of the clock of an operator: a name, a watermark strategy, or that of the topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from streamrt.dataframe.branch import Branch
from streamrt.errors import ArgumentValueError, InvalidOperationError, argument_error
from streamrt.operators.closing import Closing
from streamrt.topics import Topic
from streamrt.topics.durations import milliseconds
from streamrt.topology import Node, SourceOperator, Topology, WatermarkStrategy, WhenAllIdle
from streamrt.topology.graph import topic_of

__all__ = ["Clock", "WindowClock", "lag_ms", "stream_clock", "watermark_of"]

_WINDOW_CLOCKS = (
    "key (one clock per key)",
    "partition (one clock per partition)",
    "watermark (one clock for all partitions)",
)

Clock = Literal["key", "partition", "watermark"] | WatermarkStrategy
"""A clock by its name, or the strategy of one that waits for all partitions."""


@dataclass(frozen=True)
class WindowClock:
    """The choice of the clock of a window.

    Attributes:
        clock: the clock; None for the watermark strategy of the topics, or else the default.
        idle_timeout_ms: for "watermark": replaces that of the strategy.
        when_all_idle: for "watermark": replaces that of the strategy.
        default: the clock if there is no other choice.
    """

    clock: Clock | None
    idle_timeout_ms: int | timedelta | None
    when_all_idle: WhenAllIdle | None
    default: Literal["key", "watermark"] = "key"

    def closing(self, branch: Branch) -> Closing:
        """Return the clock of a window in a frame.

        Raises:
            ConfigurationError: if it is unknown, or an argument has no effect with it.
            InvalidOperationError: if the frame cannot have it.
        """
        clock, parameter = self.clock, "closing_strategy"
        if clock is None:
            clock = self.default if _inherit_strategy(branch, parameter) is None else "watermark"
        found = watermark_of(branch, parameter, clock, _WINDOW_CLOCKS, self.idle_timeout_ms, self.when_all_idle)
        return Closing("watermark" if isinstance(clock, WatermarkStrategy) else clock, found)


def watermark_of(
    branch: Branch,
    parameter: str,
    clock: Clock,
    names: Sequence[str],
    idle_timeout_ms: int | timedelta | None,
    when_all_idle: WhenAllIdle | None,
) -> WatermarkStrategy | None:
    """Return the watermark strategy of a clock; None for the clock of a key or of a partition.

    Args:
        branch: position of the frame; "watermark" is the strategy of its topics.
        parameter: name of the parameter, for errors.
        clock: the choice.
        names: the allowed names, each with an explanation in parentheses.
        idle_timeout_ms: for "watermark": replaces that of the strategy.
        when_all_idle: for "watermark": replaces that of the strategy.

    Raises:
        ConfigurationError: if the clock is unknown, or an argument has no effect with it.
        InvalidOperationError: if the topics have different strategies, or a generator would be behind an exchange.
    """
    options = {"idle_timeout_ms": idle_timeout_ms, "when_all_idle": when_all_idle}
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(clock, WatermarkStrategy):
        for name, value in given.items():
            raise ArgumentValueError(
                f"{name}={value!r} is given twice: {parameter}=WatermarkStrategy(...) has its own idle_timeout and "
                "when_all_idle"
            )
        return _check_strategy(branch, clock)
    if not isinstance(clock, str) or clock not in {name.partition(" ")[0] for name in names}:
        known = " or ".join((", ".join(map(_quote_name, names[:-1])), _quote_name(names[-1])))
        raise argument_error(
            f"{parameter}={clock!r}: it must be {known}, or a WatermarkStrategy", of_type=isinstance(clock, str)
        )
    if clock != "watermark":
        for name, value in given.items():
            raise ArgumentValueError(
                f"{name}={value!r} has no effect with {parameter}={clock!r}: only {parameter}='watermark' waits for "
                "partitions"
            )
        return None
    strategy = _inherit_strategy(branch, parameter) or WatermarkStrategy()
    if idle_timeout_ms is not None:
        milliseconds("idle_timeout_ms=...", idle_timeout_ms, least=1)
        strategy = strategy.with_idleness(idle_timeout_ms)
    return strategy if when_all_idle is None else replace(strategy, when_all_idle=when_all_idle)


def stream_clock(branch: Branch, clock: Clock | None) -> Closing:
    """Return the clock of an operator that all keys of a partition share, by default a watermark.

    Args:
        branch: position of the frame.
        clock: the choice; None for a watermark with the strategy of the topics.

    Raises:
        ConfigurationError: if it is unknown.
        InvalidOperationError: if the frame cannot have it.
    """
    chosen = "watermark" if clock is None else clock
    found = watermark_of(branch, "closing_strategy", chosen, _WINDOW_CLOCKS[1:], None, None)
    return Closing("watermark" if isinstance(chosen, WatermarkStrategy) else chosen, found)


def lag_ms(watermark: WatermarkStrategy | None) -> int | None:
    """Return how far the watermark of a partition is behind its stream time; None if a generator makes it."""
    if watermark is None:
        return 0
    return watermark.out_of_orderness_ms if watermark.generator is None else None


def _inherit_strategy(branch: Branch, parameter: str) -> WatermarkStrategy | None:
    """Return the watermark strategy of the input topics of a frame, also of those in front of a `group_by`.

    Args:
        branch: position of the frame.
        parameter: name of the parameter that chooses another one, for the error.

    Raises:
        InvalidOperationError: if the topics have different ones.
    """
    found: dict[WatermarkStrategy | None, str] = {}
    for topic in sorted(_input_topics(branch.builder.build(), branch.sources), key=lambda topic: topic.name):
        found.setdefault(topic.watermark_strategy, topic.name)
    if len(found) > 1:
        raise InvalidOperationError(
            f"topics {' and '.join(found.values())} have different watermark strategies: choose the clock of what needs both "
            f"with {parameter}=..."
        )
    return next(iter(found), None)


def _input_topics(topology: Topology, sources: Iterable[Node]) -> Iterator[Topic]:
    """Yield the input topics of sources, also those in front of exchanges."""
    for source in sources:
        exchange = topology.exchanges.get(topic_of(source))
        if exchange is not None:
            yield from _input_topics(topology, topology.roots(exchange))
        elif isinstance(source.operator, SourceOperator):
            yield source.operator.topic


def _check_strategy(branch: Branch, strategy: WatermarkStrategy) -> WatermarkStrategy:
    if strategy.generator is not None and branch.groups:
        raise InvalidOperationError(
            "WatermarkStrategy(generator=...) cannot be used behind group_by or with a broadcast frame, where the watermark "
            "comes from the records in front of it: use out_of_orderness, or put the window or the process function before it"
        )
    return strategy


def _quote_name(name: str) -> str:
    word, _, rest = name.partition(" ")
    return f"{word!r} {rest}"
