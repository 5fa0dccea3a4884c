"""A program that is played by a host behaves as in a process of its own."""

import signal
from collections.abc import Callable

import psutil
import pytest

from tests.hosts import HostedProgram

pytestmark = pytest.mark.slow

Start = Callable[..., HostedProgram]


def test_programs_take_turns_in_one_process(hosted: Start) -> None:
    source = "import os, sys; print('out', __name__); print('err', file=sys.stderr); print(os.environ['A'], end='')"
    first = hosted(source, A="1")
    assert first.wait() == 0
    assert (first.out, first.err) == (["out __main__\n", "1"], ["err\n"])
    second = hosted("import os; print(os.environ.get('A'), 'first' in globals())")
    assert second.wait() == 0
    assert second.out == ["None False\n"]
    assert second.process.pid == first.process.pid


@pytest.mark.parametrize(
    ("source", "code", "last"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('in vain')", 1, "in vain"),
        ("raise SystemExit", 0, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        (
            "import sys; sys.excepthook = lambda kind, *_: print(kind, file=sys.stderr)\n1 / 0",
            1,
            str(ZeroDivisionError),
        ),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0, ""),
    ],
)
def test_exit_codes(hosted: Start, source: str, code: int, last: str) -> None:
    program = hosted(source)
    assert program.wait() == code
    assert "".join(program.err[-1:]).strip() == last
    assert program.out == (["late\n"] if "late" in source else [])


def test_signals_are_for_the_program(hosted: Start) -> None:
    waiting = "import time; print('ready', flush=True); time.sleep(600)"
    handled = hosted("import signal; signal.signal(signal.SIGTERM, lambda *_: exit(7))\n" + waiting)
    handled.wait_for("ready")
    assert handled.end()[0] == 7
    interrupted = hosted(waiting)
    interrupted.wait_for("ready")
    assert interrupted.end(signal.SIGINT)[0] == 1
    assert interrupted.err[-1] == "KeyboardInterrupt\n"
    # After its end, a signal reaches no process.
    interrupted.process.send_signal(signal.SIGTERM)
    ended = hosted(waiting)
    assert ended.process.pid == handled.process.pid
    ended.wait_for("ready")
    assert ended.end()[0] == -signal.SIGTERM


def test_what_is_killed_is_replaced(hosted: Start) -> None:
    waiting = "import time; print('ready', flush=True); time.sleep(600)"
    programs = [hosted(waiting), hosted(waiting)]
    assert len({program.process.pid for program in programs}) == 2
    programs[0].wait_for("ready")
    programs[0].kill()
    assert programs[0].process.poll() == -signal.SIGKILL
    following = hosted("print('here')")
    assert following.wait() == 0
    assert following.process.pid not in {program.process.pid for program in programs}
    assert programs[1].process.poll() is None
    assert psutil.pid_exists(programs[1].process.pid)
