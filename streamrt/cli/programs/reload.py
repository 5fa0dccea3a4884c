"""`streamrt dev PROGRAM`: runs a program, and restarts it after each change of a file; Spark's JVM stays."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from streamrt.cli.output import echo
from streamrt.config import names_processes
from streamrt.errors import ConfigurationError, StreamRTError
from streamrt.extras import install_command
from streamrt.spark.sessions.lending import LentSpark

_LOOK_MS = 200
_SETTLE_MS = 20
"""Milliseconds without a change after which a file is taken to be written."""
_BUSY_S = 8.0
"""Seconds before the next process is prepared, so that it does not compete with the starting program."""
_BUSY_WITHOUT_SPARK_S = 2.0
_STOP_S = 15.0
"""Seconds that a program has to stop at a boundary before it is killed."""


class Attempt:
    """A process in which a program can run.

    Args:
        environment: environment of the process.
        spark: lends its JVM to the program.
        expected: what runs the tasks of the program, as far as it is known: "spark", "processes" or "".
    """

    def __init__(self, environment: dict[str, str], spark: LentSpark, expected: str) -> None:
        self._spark = spark
        reading, writing = os.pipe()
        asked, asking = os.pipe()
        self._orders: IO[str] = os.fdopen(writing, "w")
        self._requests: IO[str] = os.fdopen(asked)
        self._begun = False
        command = [sys.executable, "-m", "streamrt.cli.programs.program", str(reading), str(asking), expected]
        self.process = subprocess.Popen(command, env=environment, pass_fds=(reading, asking))  # noqa: S603 - our own module
        os.close(reading)
        os.close(asking)
        threading.Thread(target=self._lend_spark, name="streamrt-lend", daemon=True).start()

    def run(self, program: Path, arguments: Sequence[str]) -> None:
        """Run a program in the process. A program that needs the JVM waits until it has booted."""
        self._begun = True
        self._send_document({"program": str(program), "arguments": list(arguments)})

    def stop(self, *, restarts: bool = False) -> None:
        """Stop the program at a boundary; kill it if it does not stop.

        Args:
            restarts: whether it runs again at once, in another process.
        """
        if self._begun:
            if restarts:
                self._send_document({"successor": True})
            # Safe after the end of the process, which `Popen` checks.
            self.process.terminate()
        else:
            self._orders.close()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            self._orders.close()

    def _lend_spark(self) -> None:
        with self._requests:
            for _ in self._requests:
                try:
                    told = dataclasses.asdict(self._spark.jvm())
                except StreamRTError as error:
                    told = {"error": str(error)}
                self._send_document(told)

    def _send_document(self, document: dict[str, Any]) -> None:
        # The process may have ended; the reloader notices this by itself.
        with contextlib.suppress(OSError, ValueError):
            self._orders.write(json.dumps(document) + "\n")
            self._orders.flush()


class Reloader:
    """Runs a program until Ctrl+C, and restarts it after each change.

    Args:
        program: path of the program.
        arguments: arguments of the program in `sys.argv`.
        watched: directories and files to watch for changes.
        environment: environment of the program, `os.environ`.

    Raises:
        ConfigurationError: if the package watchfiles is not installed.
    """

    def __init__(
        self, program: Path, arguments: Sequence[str], watched: Sequence[Path], environment: dict[str, str]
    ) -> None:
        try:
            import watchfiles
        except ImportError as error:
            raise ConfigurationError(f"streamrt dev needs watchfiles: run {install_command('local')}") from error
        self._watch = watchfiles.watch
        self._filter = watchfiles.PythonFilter(extra_extensions=(".toml", ".yaml", ".yml", ".env"))
        self._program = program
        self._arguments = arguments
        self._watched = watched
        self._environment = environment
        self._ends = threading.Event()
        self._next: Attempt | None = None

    def run(self) -> None:
        """Run the program until SIGINT or SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle_end)
        with contextlib.closing(LentSpark(self._environment.get("STREAMRT_PROCESSING_MODE", "micro-batch"))) as spark:
            self._run_attempts(spark)

    def _run_attempts(self, spark: LentSpark) -> None:
        known = "processes" if names_processes(self._environment) else ""
        current = self._begin_attempt(Attempt(self._environment, spark, known), spark)
        begun, told = time.monotonic(), False
        try:
            changes = self._watch(
                *self._watched,
                watch_filter=self._filter,
                stop_event=self._ends,
                step=_SETTLE_MS,
                rust_timeout=_LOOK_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
            )
            for changed in changes:
                if changed:
                    self._print_message(f"{_format_names(changed)} changed: restarting {self._program.name}")
                    spark.mute(True)
                    current.stop(restarts=True)
                    prepared, self._next = self._next, None
                    current = self._begin_attempt(prepared or self._prepare_attempt(spark), spark)
                    begun, told = time.monotonic(), False
                elif not told and current.process.poll() is not None:
                    self._print_message(
                        f"{self._program.name} {_describe_end(current.process.returncode)}; it restarts when a file changes"
                    )
                    told = True
                busy_s = _BUSY_S if spark.is_needed else _BUSY_WITHOUT_SPARK_S
                if self._next is None and (told or time.monotonic() - begun > busy_s):
                    self._next = self._prepare_attempt(spark)
                    spark.prepare_workers()
        finally:
            spark.mute(True)
            current.stop()
            if self._next is not None:
                self._next.stop()

    def _prepare_attempt(self, spark: LentSpark) -> Attempt:
        """Start a process for the next attempt, which is taken to need what the former one needed."""
        return Attempt(self._environment, spark, "spark" if spark.is_needed else "processes")

    def _begin_attempt(self, attempt: Attempt, spark: LentSpark) -> Attempt:
        spark.mute(False)
        attempt.run(self._program, self._arguments)
        return attempt

    def _handle_end(self, _signal: int, _frame: FrameType | None) -> None:
        self._ends.set()

    def _print_message(self, text: str) -> None:
        echo(f"streamrt dev: {text}", err=True)


def _format_names(changed: set[tuple[Any, str]]) -> str:
    names = sorted({Path(path).name for _, path in changed})
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _describe_end(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return "ended" if code == 0 else f"ended with exit code {code}"
