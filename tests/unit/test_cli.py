"""The command line without network, Java or Kafka."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import streamrt
from streamrt.cli import main
from streamrt.jvm.jars import locked_jars


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command line and return its exit code."""

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["streamrt", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0)

    return call


def test_version(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("streamrt ")


def test_the_package_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m streamrt", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(Path(streamrt.__file__).with_name("__main__.py")), run_name="__main__")
    assert capsys.readouterr().out.startswith("streamrt ")


def test_help_names_the_commands(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert "jars" in shown
    assert "dev" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("sing",),
        ("jars", "--set", "flink"),
        ("jars", "--set", "all", "--list"),
        ("jars", "--list", "--json"),
        ("dev", "kafka", "--port", "0"),
        ("dev", "kafka", "--topic", "orders:none"),
        ("dev", "kafka", "--topic", "orders:0"),
        ("dev", "kafka", "--topic", ":3"),
    ],
)
def test_a_wrong_call_is_explained(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert "Usage: streamrt" in shown.err
    assert "Traceback" not in shown.err


def test_what_streamrt_reports_is_one_sentence_and_a_line_that_leads_further(
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jar = locked_jars("spark")[0]
    (tmp_path / jar.file_name).write_bytes(b"not a jar")
    monkeypatch.setenv("STREAMRT_JARS_DIR", str(tmp_path))
    assert run("jars", "--set", "spark") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"streamrt: {tmp_path / jar.file_name}, from STREAMRT_JARS_DIR, is ")
    assert shown.err.splitlines()[1:] == ["streamrt explain E953 says more"]
