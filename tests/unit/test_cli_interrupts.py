"""Ctrl+C ends the input of a command, and interrupts nothing that is done with an item."""

import signal
from collections.abc import Iterator

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
