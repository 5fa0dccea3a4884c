"""Ctrl+C ends the input of a command, and interrupts nothing that is done with an item."""

import itertools
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from streamrt.cli.interrupts import UntilInterrupted


def test_it_waits_for_what_is_done_with_an_item() -> None:
    items, done = UntilInterrupted([1, 2, 3]), []
    for item in items:
        if item == 2:
            signal.raise_signal(signal.SIGINT)
        done.append(item)
    assert (done, items.interrupted) == ([1, 2], True)


def test_it_ends_the_wait_for_an_item() -> None:
    def waits() -> Iterator[int]:
        yield 1
        signal.raise_signal(signal.SIGINT)
        yield 2

    items = UntilInterrupted(waits())
    assert (list(items), items.interrupted) == ([1], True)


def test_pressed_again_it_interrupts_everything() -> None:
    for _ in UntilInterrupted([1]):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_without_it_all_items_come_and_it_works_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    items = UntilInterrupted([1, 2])
    assert (list(items), items.interrupted) == ([1, 2], False)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_it_is_ignored_it_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        items = UntilInterrupted([1, 2])
        for _ in items:
            signal.raise_signal(signal.SIGINT)
        assert not items.interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_any_line_ends_the_items() -> None:
    """Python may handle a signal later than it came."""

    def take_items(moment: int) -> bool:
        """Press Ctrl+C before a line of the code; return whether it was reached."""
        lines = itertools.count()
        reached = False

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal reached
            if frame.f_code is not UntilInterrupted.__iter__.__code__:
                return None
            ours = getattr(signal.getsignal(signal.SIGINT), "__func__", None) is UntilInterrupted._handle_signal
            if event == "line" and ours and next(lines) == moment:
                reached = True
                signal.raise_signal(signal.SIGINT)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            taken = list(UntilInterrupted([1, 2]))
        finally:
            sys.settrace(before)
        assert taken == [1, 2][: len(taken)]
        return reached

    assert sum(itertools.takewhile(bool, map(take_items, itertools.count()))) >= 12
