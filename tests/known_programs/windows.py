"""Programs of windows: lateness, sessions, triggers, and a bounded source."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamrt.connectors import NumberSequenceSource
from streamrt.topics import WatermarkStrategy
from streamrt.windows import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessions,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
    WindowContext,
)
from tests.known_programs.program import DOT, END, In, Out, Parts, program

# -- 8 to 12: windows --------------------------------------------------------------------------------------------------


def window(start: int, end: int, value: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "value": value}


def numbers(*timestamps: int) -> Iterator[In]:
    """Yield records whose values are their timestamps."""
    return (In("a", timestamp, timestamp) for timestamp in timestamps)


@pytest.mark.rows("PF-G16", "PF-G17", "PF-G18", "PF-G28")
@program(
    "p8-lateness",
    In("a", DOT, 1_000),
    In("a", DOT, 4_000),
    In("x", DOT, 5_000),
    Out("a", window(0, 5_000, 2), 0),
    In("a", DOT, 3_000),
    Out("a", window(0, 5_000, 3), 0),
    In("x", DOT, 7_000),
    In("a", DOT, 2_000),
    Out("a", DOT, 2_000, "late"),
    END,
    Out("x", window(5_000, 10_000, 2), 5_000),
)
def lateness(parts: Parts) -> None:
    windows = parts.frame().tumbling_window(5_000, grace_ms=2_000).count()
    frame = windows.trigger(EventTimeTrigger(), closing_strategy=parts.clock)
    parts.put_out(frame)
    parts.put_out(frame.side_output("late"), "late")


@pytest.mark.rows("PF-J6")
@program(
    "p8-lateness-final",
    In("a", DOT, 1_000),
    In("a", DOT, 4_000),
    In("x", DOT, 5_000),
    In("a", DOT, 3_000),
    In("x", DOT, 7_000),
    Out("a", window(0, 5_000, 3), 0),
    In("a", DOT, 2_000),
    Out("a", DOT, 2_000, "late"),
    END,
    Out("x", window(5_000, 10_000, 2), 5_000),
    clocks=("partition",),
)
def lateness_final(parts: Parts) -> None:
    frame = parts.frame().tumbling_window(5_000, grace_ms=2_000).count().final(closing_strategy="partition")
    parts.put_out(frame)
    parts.put_out(frame.side_output("late"), "late")


def with_bounds(key: Any, ctx: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
    yield window(ctx.window.start, ctx.window.end, [*elements])


@pytest.mark.rows("PF-G28", "PF-G34", "PF-G39")
@program(
    "p9-sessions",
    *numbers(1_000, 8_000, 4_000, 30_000),
    Out("a", window(1_000, 13_000, [1_000, 8_000, 4_000]), 1_000),
    END,
    Out("a", window(30_000, 35_000, [30_000]), 30_000),
    clocks=("watermark",),
)
def merging_sessions(parts: Parts) -> None:
    strategy = WatermarkStrategy(out_of_orderness=timedelta(seconds=10))
    windows = parts.frame().window(EventTimeSessions(5_000)).process(with_bounds)
    parts.put_out(windows.trigger(EventTimeTrigger(), closing_strategy=strategy))


@program(
    "p9-session-window",
    *numbers(1_000, 8_000, 4_000),
    # A session is over when no record may come that joins it, and its gap: 8,000 + 2 * 5,000 + 1.
    In("b", 18_000, 18_000),
    In("b", 18_001, 18_001),
    Out("a", window(1_000, 8_001, [1_000, 4_000, 8_000]), 1_000),
    END,
    Out("b", window(18_000, 18_002, [18_000, 18_001]), 18_000),
)
def session_window(parts: Parts) -> None:
    parts.put_out(parts.frame().session_window(5_000).collect().final(closing_strategy=parts.clock))


def collected(parts: Parts, trigger: Trigger) -> None:
    windows = parts.frame().tumbling_window(10_000).collect()
    parts.put_out(windows.trigger(trigger, closing_strategy=parts.clock))


@program(
    "p10-count-trigger-that-purges",
    *numbers(1_000, 2_000),
    Out("a", window(0, 10_000, [1_000, 2_000]), 0),
    *numbers(3_000, 4_000),
    Out("a", window(0, 10_000, [3_000, 4_000]), 0),
    *numbers(5_000),
    END,
)
def count_trigger_that_purges(parts: Parts) -> None:
    collected(parts, PurgingTrigger(CountTrigger(2)))


@pytest.mark.rows("PF-G13", "PF-G15")
@program(
    "p10-count-trigger",
    *numbers(1_000, 2_000),
    Out("a", window(0, 10_000, [1_000, 2_000]), 0),
    *numbers(3_000, 4_000),
    Out("a", window(0, 10_000, [1_000, 2_000, 3_000, 4_000]), 0),
    *numbers(5_000),
    END,
)
def count_trigger(parts: Parts) -> None:
    collected(parts, CountTrigger(2))


@pytest.mark.rows("PF-G15")
@program(
    "p11-early-results",
    *numbers(1_000, 6_000),
    Out("a", window(0, 15_000, [1_000, 6_000]), 0),
    *numbers(11_000),
    Out("a", window(0, 15_000, [1_000, 6_000, 11_000]), 0),
    *numbers(16_000),
    Out("a", window(0, 15_000, [1_000, 6_000, 11_000]), 0),
    END,
    # At 20,000, at 25,000, and at the end of the window.
    *[Out("a", window(15_000, 30_000, [16_000]), 15_000)] * 3,
)
def early_results(parts: Parts) -> None:
    windows = parts.frame().tumbling_window(15_000).collect()
    parts.put_out(windows.trigger(ContinuousEventTimeTrigger(timedelta(seconds=5)), closing_strategy=parts.clock))


@program(
    "p12-late-for-some",
    *numbers(7_000, 12_000),
    Out("a", window(0, 10_000, [7_000]), 0),
    # Late for the first window only.
    *numbers(8_000, 16_000),
    Out("a", window(5_000, 15_000, [7_000, 12_000, 8_000]), 5_000),
    *numbers(9_000),
    Out("a", 9_000, 9_000, "late"),
    END,
    Out("a", window(10_000, 20_000, [12_000, 16_000]), 10_000),
    Out("a", window(15_000, 25_000, [16_000]), 15_000),
)
def late_for_some(parts: Parts) -> None:
    windows = parts.frame().hopping_window(10_000, 5_000).collect()
    frame = windows.trigger(EventTimeTrigger(), closing_strategy=parts.clock)
    parts.put_out(frame)
    parts.put_out(frame.side_output("late"), "late")


# -- 16: a sequence of numbers -----------------------------------------------------------------------------------------


@program(
    "p16-number-sequence",
    *(In("all", number, number) for number in range(1, 6)),
    END,
    Out("all", window(0, 10, 15), 0),
    has_source=True,
)
def number_sequence(parts: Parts) -> None:
    # Windows need a key, so the sequence has one.
    source = NumberSequenceSource(
        1, 5, parts.name("numbers"), key=lambda number: "all", timestamp=lambda number: number
    )
    parts.put_out(parts.frame(source=source).tumbling_window(10).sum().final(closing_strategy=parts.clock))
