"""How a program ends that does not catch our errors: with one sentence, and a line that leads to its paragraph."""

import subprocess
import sys
from pathlib import Path

import pytest


def stderr_of(tmp_path: Path, text: str) -> tuple[int, list[str]]:
    """Run a program; return its exit code and what it wrote to the standard error."""
    program = tmp_path / "program.py"
    program.write_text(text)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("mistake", "line", "words", "error_code"),
    [
        ('Application("127.0.0.1:9", auto_offset_reset="sideways")', 2, "auto_offset_reset", "E102"),
        ('app = Application("127.0.0.1:9")\n\napp.topic(7)', 4, "7", "E103"),
        ('app = Application("127.0.0.1:9")\n(lambda: app.dataframe(app.topic("a")).apply(1))()', 3, "apply", "E103"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_line_of_the_program(
    tmp_path: Path, mistake: str, line: int, words: str, error_code: str
) -> None:
    code, lines = stderr_of(tmp_path, f"from streamrt import Application\n{mistake}\n")
    assert code == 1
    assert lines[1:] == [f"streamrt explain {error_code} says more"]
    assert lines[0].startswith("streamrt: ")
    assert words in lines[0]
    assert lines[0].endswith(f"(program.py:{line})")


def test_an_interruption_is_one_line(tmp_path: Path) -> None:
    _, lines = stderr_of(tmp_path, "from streamrt import Application\nApplication('b:9')\nraise KeyboardInterrupt\n")
    assert lines == ["streamrt: interrupted (program.py:3)"]


def test_an_interruption_of_an_import_is_one_line_too(tmp_path: Path) -> None:
    interrupt = (
        "import importlib\n\ndef interrupt(name):\n    raise KeyboardInterrupt\n\nimportlib.import_module = interrupt\n"
    )
    _, lines = stderr_of(tmp_path, f"import streamrt\n{interrupt}from streamrt import Application\n")
    assert lines == ["streamrt: interrupted"]


def test_errors_of_the_program_itself_are_shown_as_ever(tmp_path: Path) -> None:
    _, lines = stderr_of(tmp_path, "from streamrt import Application\nApplication('b:9')\n1 / 0\n")
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("ZeroDivisionError")


def test_who_debugs_sees_all(tmp_path: Path) -> None:
    _, lines = stderr_of(tmp_path, "from streamrt import Application\nApplication('b:9', loglevel='DEBUG').topic(7)\n")
    assert lines[0].startswith("Traceback")
