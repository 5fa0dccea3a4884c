"""Checks of arguments that connectors share."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from streamrt.connectors.argument_checks import (
    checked_count,
    checked_function,
    checked_seconds,
    checked_text,
    checked_type,
)
from streamrt.errors import ArgumentTypeError, ArgumentValueError


@pytest.mark.parametrize(
    ("value", "types", "settings"),
    [
        (1, int, {}),
        (1, int | float, {"valid": lambda number: number > 0}),
        (True, bool, {}),
        (True, bool | str, {}),
        (None, str, {"optional": True, "valid": len}),
        ("a", str, {"valid": re.compile("[a-z]").fullmatch}),
    ],
)
def test_allowed_arguments_are_returned(value: Any, types: Any, settings: dict[str, Any]) -> None:
    assert checked_type("Sink", "option", value, types, "right", **settings) is value


@pytest.mark.parametrize(
    ("value", "types", "settings", "error", "got"),
    [
        # A bool is an int of Python, and a mistake where a number is asked for.
        (True, int, {}, ArgumentTypeError, "True"),
        (True, int | str, {}, ArgumentTypeError, "True"),
        (None, str, {}, ArgumentTypeError, "None"),
        (b"secret", str, {}, ArgumentTypeError, "a bytes"),
        ("secret", Mapping, {"hidden": True}, ArgumentTypeError, "a str"),
        (float("nan"), float, {"valid": lambda number: number > 0}, ArgumentValueError, "nan"),
        ("", str, {"valid": len}, ArgumentValueError, "''"),
        ("x" * 80, str, {"valid": str.isdigit}, ArgumentValueError, "a str of 80 characters"),
    ],
)
def test_other_arguments_are_refused(
    value: Any, types: Any, settings: dict[str, Any], error: type[Exception], got: str
) -> None:
    with pytest.raises(error, match=rf"^Sink\(option=\.\.\.\) must be right, got {re.escape(got)}$"):
        checked_type("Sink", "option", value, types, "right", **settings)


@pytest.mark.parametrize(
    ("check", "error", "words"),
    [
        (lambda: checked_text("Sink", "host", ""), ArgumentValueError, "a non-empty str, got ''"),
        (lambda: checked_text("Sink", "host", "a\0"), ArgumentValueError, "without zero characters"),
        (
            lambda: checked_count("Sink", "port", 70_000, 1, 65_535),
            ArgumentValueError,
            "an int, from 1 to 65535, got 70000",
        ),
        (lambda: checked_count("Sink", "port", 1.0), ArgumentTypeError, "an int, 1 or more, got 1.0"),  # type: ignore[arg-type]
        (lambda: checked_seconds("Sink", "wait", float("inf")), ArgumentValueError, "seconds, more than 0, got inf"),
        (lambda: checked_seconds("Sink", "wait", -1, least=0), ArgumentValueError, "seconds, 0 or more, got -1"),
        (lambda: checked_function("Sink", "key", None), ArgumentTypeError, "a function, got a NoneType"),
    ],
)
def test_what_texts_counts_and_times_must_be(check: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        check()
