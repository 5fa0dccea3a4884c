"""The process in which `streamrt dev` runs a program: it imports common modules, and waits for an order."""

import gc
import json
import os
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamrt.errors import RunnerError, end_readably
from streamrt.slots.fork_client import prepare_fork_server
from streamrt.spark.sessions.lender import LentJvm, accept_lender


def main(orders: Iterator[str], requests: int, expected: str) -> None:
    """Wait for an order, and run a program as Python does.

    Args:
        orders: lines of JSON: the program and its arguments; then the address of Spark's JVM for each request, and whether
            the program runs again after it is stopped. If there is no line, this process is not needed and returns. The end
            of the lines ends the program.
        requests: file descriptor for requests of the JVM, each of which is a line.
        expected: what runs the tasks of the program, as far as it is known: "spark", "processes" or "".
    """
    # Until the order, Ctrl+C is for the program in another process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So that the program need not wait for them.
    if expected == "processes":
        prepare_fork_server()
    import streamrt.app
    import streamrt.application.application_run
    from streamrt.runs.succession import expect_successor

    if expected == "spark":
        import streamrt.spark.runner  # noqa: F401
    # At the end, Python would look through what was imported for garbage, several times, before the next process may begin.
    gc.freeze()

    line = next(orders, None)
    if line is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order = json.loads(line)
    answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for told in map(json.loads, orders):
            if "successor" in told:
                expect_successor()
            else:
                answers.put(told)
        # The parent process, which gave the order, has ended.
        os.kill(os.getpid(), signal.SIGTERM)

    def ask() -> LentJvm:
        os.write(requests, b"\n")
        told = answers.get()
        if "error" in told:
            raise RunnerError(told["error"])
        return LentJvm(**told)

    threading.Thread(target=listen, name="streamrt-orders", daemon=True).start()
    accept_lender(ask)
    run_program(order["program"], order["arguments"])


def run_program(program: str, arguments: list[str]) -> None:
    """Run a program in this process; an exception ends the process as it ends Python.

    Args:
        program: path of the file.
        arguments: arguments of the program in `sys.argv`.
    """
    end_readably()
    sys.argv[:] = [program, *arguments]
    # `python -m` has put the working directory here.
    sys.path[0] = str(Path(program).absolute().parent)
    try:
        runpy.run_path(program, run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it is shown, as Python does
        # The traceback starts at the program's first frame.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != program:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def _read_lines(descriptor: int) -> Iterator[str]:
    """Read lines without a Python file object, which cannot be closed at exit while a thread reads from it."""
    rest = b""
    while data := os.read(descriptor, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in lines)


if __name__ == "__main__":
    main(_read_lines(int(sys.argv[1])), int(sys.argv[2]), sys.argv[3])
