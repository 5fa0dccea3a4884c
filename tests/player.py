"""Plays Python programs one after another, each as `__main__` of this process: see `tests.hosts`.

An order is a line of JSON on standard input. The end of a program is told on standard output and on standard error, so
that anyone who reads them knows that nothing of it is left. This process ends at once when standard input does.
"""

import json
import logging
import os
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

END = "\0the program has ended: "


def play(path: str, directory: str) -> int:
    """Run a program as the interpreter does, and return its exit code."""
    sys.argv[:] = [path]
    sys.path[0] = str(Path(path).parent)
    sys.excepthook = sys.__excepthook__
    os.chdir(directory)
    code = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    return code


def main() -> None:
    """Play what is asked for."""
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(os.fdopen(os.dup(0)), orders), daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    loggers = [logging.getLogger(), logging.getLogger("streamrt")]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    _ignore_signals()
    while True:
        order = json.loads(orders.get())
        os.environ.clear()
        os.environ.update(order["environment"])
        code = play(order["path"], order["directory"])
        _ignore_signals()
        for logger, handlers, level, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            print(f"{END}{code}", file=stream, flush=True)


def _take(lines: Iterable[str], orders: "queue.SimpleQueue[str]") -> None:
    for line in lines:
        orders.put(line)
    # The process that has asked for the program is gone.
    os.kill(os.getpid(), signal.SIGKILL)


def _ignore_signals() -> None:
    # They are for programs, and there is none.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main()
