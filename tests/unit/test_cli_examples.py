"""`streamrt examples`: the programs of `examples`, listed and copied."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from streamrt.cli.programs.example_programs import find_examples
from tests.command_line import streamrt
from tests.example_programs import EXAMPLES

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def test_all_examples_are_listed_with_a_sentence_each() -> None:
    listed = streamrt("examples", "list", "--json").json["examples"]
    assert [example["name"] for example in listed] == NAMES
    assert all(example["description"].endswith(".") for example in listed)
    printed = streamrt("examples", "list").out
    assert all(example["name"] in printed and example["description"] in printed for example in listed)


def test_examples_name_the_data_files_that_they_need() -> None:
    needed = {example.name: example.files.keys() - {f"{example.name}.py"} for example in find_examples()}
    assert {name: files for name, files in needed.items() if files} == {
        "frost": {"weather.csv"},
        "nexmark": {"nexmark.sql"},
        "weeks": {"weather.csv"},
    }
    known = {path.name for path in EXAMPLES.iterdir() if path.is_file() and path.suffix != ".py"}
    assert set().union(*needed.values()) == known


def test_a_copy_has_what_the_program_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = streamrt("examples", "copy", "frost", tmp_path / "my frost")
    assert outcome.code == 0, outcome
    files = {path.name: path.read_bytes() for path in (tmp_path / "my frost").iterdir()}
    assert files == {name: (EXAMPLES / name).read_bytes() for name in ("frost.py", "weather.csv")}
    commands = outcome.out.partition("next:\n")[2]
    assert commands == f"  cd '{tmp_path}/my frost'\n  STREAMRT_BROKER_ADDRESS=localhost:9092 python frost.py\n"
    monkeypatch.chdir(tmp_path)
    copied = streamrt("examples", "copy", "words.py", "--json").json
    assert copied == {"name": "words", "directory": ".", "files": ["words.py"]}
    assert (tmp_path / "words.py").read_bytes() == (EXAMPLES / "words.py").read_bytes()


def test_files_that_exist_are_kept_without_force(tmp_path: Path) -> None:
    (tmp_path / "weather.csv").write_text("mine")
    refused = streamrt("examples", "copy", "frost", tmp_path)
    assert f"{tmp_path}/weather.csv exists already, and nothing was copied: " in refused.sentence
    assert [path.name for path in tmp_path.iterdir()] == ["weather.csv"]
    assert (tmp_path / "weather.csv").read_text() == "mine"
    assert streamrt("examples", "copy", "frost", tmp_path, "--force").code == 0
    assert (tmp_path / "weather.csv").read_bytes() == (EXAMPLES / "weather.csv").read_bytes()


def test_names_and_places_that_do_not_exist_are_one_sentence(tmp_path: Path) -> None:
    assert "there is no example 'wrods': `streamrt examples list`" in streamrt("examples", "copy", "wrods").sentence
    (tmp_path / "file").write_text("")
    assert "the example cannot be copied: " in streamrt("examples", "copy", "words", tmp_path / "file").sentence


@pytest.mark.slow
def test_a_wheel_has_the_examples(tmp_path: Path) -> None:
    """An installed StreamRT lists and copies them."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in (
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "connectors",
        "examples",
        "serializers",
        "state",
        "streamrt",
    ):
        (tree / name).symlink_to(EXAMPLES.parent / name)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    subprocess.run([*build, "-w", tmp_path, "."], cwd=tree, check=True, capture_output=True, timeout=300)
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    command = "from streamrt.cli import main; main()"
    copy = ["examples", "copy", "weeks", str(tmp_path / "weeks")]
    done = subprocess.run(
        [sys.executable, "-c", command, *copy],
        cwd=installed,
        env={"PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "weeks").iterdir()) == ["weather.csv", "weeks.py"]
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("streamrt/examples/")}
    assert packed == {f"streamrt/examples/{path.name}" for path in EXAMPLES.iterdir() if path.is_file()}
