"""How event time advances: `WatermarkStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from streamrt.errors import ArgumentTypeError, ArgumentValueError, argument_error
from streamrt.topics.durations import milliseconds

__all__ = ["WatermarkGenerator", "WatermarkStrategy", "WhenAllIdle"]

WhenAllIdle = Literal["advance", "hold"]

WatermarkGenerator = Callable[[Any, int], int | None]
"""Function of value and timestamp (ms) of a record; returns a watermark (ms), or None for no news. A watermark w says that no
record with a timestamp of w or earlier will follow in the partition."""

_IDLE_TIMEOUT = timedelta(seconds=10)
_NO_NEWS = -(1 << 63)


@dataclass(frozen=True)
class WatermarkStrategy:
    """How event time advances for windows and timers: the lowest watermark of all partitions, with idle ones left out.

    Durations are milliseconds or timedeltas; the attributes hold timedeltas.

    Args:
        out_of_orderness: how much older than the newest record of its partition a record may be. The watermark of the
            partition stays this far behind. Windows add their `grace_ms` to it, and process functions theirs.
        idle_timeout: time without records after which a partition at its end is left out; None for never.
        when_all_idle: event time while all partitions are idle. "advance": it advances with the wall clock, so that the last
            windows close. "hold": it waits for the next record.
        alignment: how far a partition may run ahead of the slowest one that is not idle. It is not read further until the
            others have come. Only with `processing_mode="resident"`. None: partitions do not wait.
        generator: a function from value and timestamp to the watermark of the partition, in place of the newest timestamp;
            None for no news. A watermark w says that no record with a timestamp of w or earlier will follow.

    Raises:
        ConfigurationError: if an argument is invalid, or two arguments contradict each other.

    Example:
        >>> from datetime import timedelta
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5))
        >>> strategy.with_idleness(timedelta(minutes=1)).idle_timeout
        datetime.timedelta(seconds=60)
    """

    out_of_orderness: int | timedelta = timedelta(0)
    idle_timeout: int | timedelta | None = _IDLE_TIMEOUT
    when_all_idle: WhenAllIdle = "advance"
    alignment: int | timedelta | None = None
    generator: WatermarkGenerator | None = None
    # In milliseconds; tasks need them for each record.
    out_of_orderness_ms: int = field(init=False, repr=False, compare=False)
    idle_ms: int | None = field(init=False, repr=False, compare=False)
    alignment_ms: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._keep_duration("out_of_orderness", "out_of_orderness_ms", least=0)
        self._keep_duration("idle_timeout", "idle_ms", least=1)
        self._keep_duration("alignment", "alignment_ms", least=1)
        if self.when_all_idle not in get_args(WhenAllIdle):
            raise argument_error(
                f"when_all_idle={self.when_all_idle!r}: it must be 'advance' (event time advances with the wall clock) or "
                "'hold' (event time waits for the next record)",
                of_type=isinstance(self.when_all_idle, str),
            )
        if self.alignment is not None and self.idle_timeout is None:
            raise ArgumentValueError(
                "WatermarkStrategy(alignment=...) needs an idle_timeout: without it, partitions would wait forever for one "
                "that has no more records"
            )
        if self.generator is None:
            return
        if not callable(self.generator):
            raise ArgumentTypeError(
                f"WatermarkStrategy(generator=...) must be a function, got {type(self.generator).__name__}"
            )
        if self.out_of_orderness:
            raise ArgumentValueError(
                "WatermarkStrategy(out_of_orderness=...) has no effect with a generator, which decides the watermark alone: "
                "subtract the time there"
            )

    def _keep_duration(self, name: str, name_ms: str, least: int) -> None:
        given = getattr(self, name)
        value = None
        if given is not None or name == "out_of_orderness":
            value = milliseconds(f"WatermarkStrategy({name}=...)", given, least)
            # Equal strategies are one, whichever way a duration was given.
            object.__setattr__(self, name, timedelta(milliseconds=value))
        object.__setattr__(self, name_ms, value)

    @classmethod
    def for_monotonous_timestamps(cls) -> WatermarkStrategy:
        """Return the default strategy: timestamps of a partition never go back.

        Example:
            >>> WatermarkStrategy.for_monotonous_timestamps() == WatermarkStrategy()
            True
        """
        return cls()

    @classmethod
    def for_bounded_out_of_orderness(cls, out_of_orderness: int | timedelta) -> WatermarkStrategy:
        """Return a strategy for records that may be older than the newest one of their partition.

        Args:
            out_of_orderness: how much older, in milliseconds or as a timedelta.

        Raises:
            ConfigurationError: if the duration is invalid.
        """
        return cls(out_of_orderness)

    @classmethod
    def for_generator(cls, generator: WatermarkGenerator) -> WatermarkStrategy:
        """Return a strategy whose watermarks a function makes from records.

        Args:
            generator: function of value and timestamp (ms) of a record; returns a watermark (ms), or None.

        Raises:
            ConfigurationError: if it is not a function.

        Example:
            >>> WatermarkStrategy.for_generator(lambda value, timestamp: value.get("complete_until")).alignment is None
            True
        """
        return cls(generator=generator)

    def marks(self) -> Callable[[Any, int], int]:
        """Return the function from value and timestamp of a record to the time before which its partition is then complete.

        Timestamps are complete up to the watermark, so this is one more. A number below all times means: no news.
        """
        generator, lag = self.generator, self.out_of_orderness_ms
        if generator is None:
            return lambda value, timestamp: timestamp - lag

        def mark(value: Any, timestamp: int) -> int:
            watermark = generator(value, timestamp)
            if watermark is None:
                return _NO_NEWS
            if type(watermark) is not int:
                raise ArgumentTypeError(
                    "the generator of a WatermarkStrategy must return an int in milliseconds or None, but returned "
                    f"{type(watermark).__name__}"
                )
            return watermark + 1

        return mark

    def with_idleness(
        self, idle_timeout: int | timedelta | None, when_all_idle: WhenAllIdle | None = None
    ) -> WatermarkStrategy:
        """Return this strategy with another idle timeout.

        Args:
            idle_timeout: in milliseconds or as a timedelta; None: no partition is ever left out.
            when_all_idle: "advance" or "hold"; by default that of this strategy.

        Raises:
            ConfigurationError: if an argument is invalid.
        """
        return replace(self, idle_timeout=idle_timeout, when_all_idle=when_all_idle or self.when_all_idle)

    def with_alignment(self, alignment: int | timedelta) -> WatermarkStrategy:
        """Return this strategy with a limit for partitions that run ahead.

        Args:
            alignment: how far a partition may run ahead of the slowest one, in milliseconds or as a timedelta.

        Raises:
            ConfigurationError: if the duration is invalid, or this strategy has no idle timeout.
        """
        return replace(self, alignment=alignment)
