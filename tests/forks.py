"""Runs Python programs in forks of a process that has imported what they need: `python -m tests.forks MODULE...`.

A program that imports StreamRT, pytest and libraries takes one to two seconds of processor time until its first line. Tests
of what a program does need none of that new. Those of how an interpreter starts and ends start one.

An order is a line of JSON on standard input: command, directory, environment and files for its output. The answer is its
exit code, or the negative number of the signal that has ended it.
"""

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import ROOT

MODULES = ("pytest", "hypothesis", "streamrt.cli", "streamrt.testing", "tests.fuzz.__main__")
"""What most programs need."""


class Forks:
    """A process that forks itself for each program."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *MODULES],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *command: str | Path, directory: Path = ROOT, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end.

        Args:
            command: `-m`, the name of a module, and arguments; or a file, and arguments.
            directory: where it works.
            environment: additional environment variables.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        arguments = list(map(str, command))
        with tempfile.TemporaryDirectory() as outputs:
            out, err = Path(outputs, "out"), Path(outputs, "err")
            order = {
                "command": arguments,
                "directory": str(directory),
                "environment": {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                "outputs": [str(out), str(err)],
            }
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def play(command: Sequence[str], directory: str, environment: Mapping[str, str], outputs: Sequence[str]) -> None:
    """Run a program in this process, as the interpreter does."""
    for number, path in enumerate([os.devnull, *outputs]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if command[0] == "-m":
        sys.argv[:] = command[1:]
        sys.path[0] = directory
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = command
        sys.path[0] = str(Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")


def exit_code(error: SystemExit) -> int:
    """Return the exit code that the interpreter makes of an exception."""
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def main() -> None:
    """Play what is asked for, each in a fork."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 0
            try:
                play(**json.loads(line))
            except SystemExit as error:
                code = exit_code(error)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
