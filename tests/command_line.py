"""Runs the command `streamrt` in this process."""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner

from streamrt.cli import app
from streamrt.errors import StreamRTError, reference_of

__all__ = ["CliRunner", "Outcome", "every_command", "streamrt"]

# It takes 70 ms to make the tree of commands, and typer makes it for each call.
vars(typer.testing)["_get_command"] = make_commands = functools.cache(get_command)


class Outcome(NamedTuple):
    """Outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        assert self.code == 0, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its output as JSON lines."""
        assert self.code == 0, self
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def sentence(self) -> str:
        """The sentence with which it failed, without the line that leads to the paragraph of the error."""
        assert self.code == 1, self
        *_, last = (line for line in self.err.splitlines() if not line.startswith("streamrt explain "))
        assert "Traceback" not in self.err
        return last


def streamrt(*arguments: object, stdin: str | bytes | None = None) -> Outcome:
    """Run a command, with errors as `main` prints them."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    error = result.exception
    if isinstance(error, StreamRTError):
        shown = f"{result.stderr}streamrt: {error}" + reference_of(error, "\n")
        return Outcome(1, result.stdout, f"{shown}\n")
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Outcome(result.exit_code, result.stdout, result.stderr)


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the words and the definition of each command, without those that only hold others."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield words, command
            return
        for name, each in command.commands.items():
            yield from below(f"{words} {name}".strip(), each)

    return below("", make_commands(app))
