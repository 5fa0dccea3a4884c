"""`streamrt init`: a project that passes its tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import streamrt

FILES = [".gitignore", "README.md", "app.py", "pyproject.toml", "test_app.py"]


@pytest.mark.slow
def test_a_project_passes_its_tests(tmp_path: Path) -> None:
    directory = tmp_path / "Word counts"
    outcome = streamrt("init", directory)
    assert outcome.code == 0, outcome
    assert sorted(path.name for path in directory.iterdir()) == FILES
    assert all(name in outcome.out for name in FILES)
    assert 'name = "word-counts"' in (directory / "pyproject.toml").read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_change_that_getting_started_makes_is_one(tmp_path: Path) -> None:
    """Its effect on a running application is shown with a new project, in tests/spark."""
    page = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()
    assert streamrt("init", tmp_path / "words").code == 0
    [(old, new)] = re.findall(r"\$ sed -i 's/(.+?)/(.+?)/' app\.py", page)
    assert (tmp_path / "words" / "app.py").read_text().count(old) == 1
    assert f'"{old}", "{new}"' in (Path(__file__).parents[1] / "spark" / "test_cli_project.py").read_text()


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not an empty directory, and nothing was created" in streamrt("init", tmp_path).sentence
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "is not an empty directory" in streamrt("init", tmp_path / "notes.txt").sentence


def test_a_name_is_required_where_the_directory_gives_none(tmp_path: Path) -> None:
    directory = tmp_path / "2026"
    assert "'2026' is not a name for a project: pass --name" in streamrt("init", directory).sentence
    assert not directory.exists()
    made = streamrt("init", directory, "--name", "words", "--json").json
    assert (made["name"], made["directory"], sorted(made["files"])) == ("words", str(directory), FILES)
    assert 'consumer_group="words"' in (directory / "app.py").read_text()


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "the project cannot be created" in streamrt("init", tmp_path / "file" / "project").sentence
