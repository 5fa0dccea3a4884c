"""Comparing what a test suite has found with what it expects."""

import reprlib
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["check_same"]


def check_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Fail at the first item in which two sequences differ.

    Where `CI` is set, pytest explains `assert found == expected` with a full comparison. With ten thousand items, or one of a
    megabyte, that takes hours.

    Args:
        found: what there is.
        expected: what there should be.

    Raises:
        pytest.fail.Exception: if they differ.
    """
    for place, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one is not other and one != other:
            pytest.fail(f"item {place} is {reprlib.repr(one)}, not {reprlib.repr(other)}")
    if len(found) != len(expected):
        pytest.fail(f"there are {len(found)} items, not {len(expected)}")
