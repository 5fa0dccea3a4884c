"""`streamrt init`: a project that passes its tests."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import streamrt
from tests.forks import Forks

ROOT = Path(__file__).parents[2]
FILES = [
    *(".gitignore", "Dockerfile", "README.md", "app.py", "docker-compose.yml", "pyproject.toml", "test_app.py"),
]
KINDS = {"stream": "app:app", "table": "app:make_app", "sink": "app:make_app"}
"""Where the application of each kind is."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "application"), KINDS.items())
def test_a_project_passes_its_tests_and_its_application_can_be_planned(
    forks: Forks, kind: str, application: str, tmp_path: Path
) -> None:
    def run(*command: str) -> str:
        done = forks.run("-m", *command, directory=directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    directory = tmp_path / "Word counts"
    outcome = streamrt("init", directory, "--kind", kind)
    assert outcome.code == 0, outcome
    files = sorted(path.name for path in directory.iterdir())
    assert files == sorted([*FILES, *(["rows.py"] if kind == "table" else [])])
    assert all(name in outcome.out for name in files)
    assert 'name = "word-counts"' in (directory / "pyproject.toml").read_text()
    assert "2 passed" in run("pytest", "-q", "-p", "no:cacheprovider")
    assert "word-counts at 127.0.0.1:9092: " in (plan := run("streamrt.cli", "plan", application))
    assert ", resident\n" in plan


@pytest.mark.parametrize("kind", KINDS)
def test_the_container_files_of_a_project_refer_to_what_exists(kind: str, tmp_path: Path) -> None:
    made = streamrt("init", tmp_path / "words", "--kind", kind, "--json").json
    assert made["kind"] == kind
    dockerfile = (tmp_path / "words" / "Dockerfile").read_text()
    own = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE)
    assert copied == ["pyproject.toml wheel[s]/*", "*.py"]
    assert 'CMD ["python", "/app/app.py"]' in dockerfile
    assert '"streamrt[control]' in dockerfile
    assert "jars" not in dockerfile
    assert "file:" not in dockerfile
    # Base, user, health check and init process are those of the image of StreamRT.
    for line in re.findall(
        r"^(?:FROM python\S+|USER .+|VOLUME .+|HEALTHCHECK .+|ENTRYPOINT .+|    CMD .+)", own, re.MULTILINE
    ):
        assert line.strip() in dockerfile
    assert set(re.findall(r"STREAMRT_\w+=\S+", own)) >= set(re.findall(r"STREAMRT_\w+=\S+", dockerfile))
    yaml: Any = importlib.import_module("yaml")
    compose, repository = (
        yaml.safe_load(path.read_text())
        for path in (tmp_path / "words/docker-compose.yml", ROOT / "docker-compose.yml")
    )
    assert compose["name"] == "words"
    assert compose["services"]["kafka"] == repository["services"]["kafka"]
    app = compose["services"]["app"]
    assert (tmp_path / "words" / app["build"] / "Dockerfile").is_file()
    assert compose["volumes"].keys() == {"kafka-data", "app-data"}
    wanted = {**repository["services"]["app"], "volumes": ["app-data:/var/lib/streamrt"]}
    # The image has the program.
    del wanted["command"]
    assert app == wanted


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    outcome = streamrt("init", tmp_path / "words", "--kind", "batch")
    assert outcome.code == 2
    # Without the frame and its line breaks.
    assert "'batch' is not one of 'stream', 'table', 'sink'." in " ".join(re.findall(r"[^\s│]+", outcome.err))
    assert not (tmp_path / "words").exists()


@pytest.mark.parametrize("name", ["Größe & Maß!", "it's $$HOME", '"a" {b}', " -x- "])
def test_a_directory_with_odd_characters_gives_a_plain_name(name: str, tmp_path: Path) -> None:
    outcome = streamrt("init", tmp_path / name)
    assert outcome.code == 0, outcome
    assert re.search(r'^name = "[a-z-]+"$', (tmp_path / name / "pyproject.toml").read_text(), re.MULTILINE)
    [line] = [line for line in outcome.out.splitlines() if line.startswith("  cd ")]
    assert shlex.split(line) == ["cd", str(tmp_path / name)]


@pytest.mark.parametrize("name", ["Words", "größe", "a b", 'a"b', "a$$b", "9a", "-a", "a-", "a\nb", "a.b", ""])
def test_a_name_with_odd_characters_is_refused(name: str, tmp_path: Path) -> None:
    outcome = streamrt("init", tmp_path / "9", "--name", name)
    assert "is not a name for a project: pass --name" in outcome.sentence
    assert not (tmp_path / "9").exists()


def test_the_change_that_getting_started_makes_is_one(tmp_path: Path) -> None:
    """Its effect on a running application is shown with a new project, in tests/spark."""
    page = (ROOT / "docs" / "getting-started.md").read_text()
    assert streamrt("init", tmp_path / "words").code == 0
    [(old, new)] = re.findall(r"\$ sed -i 's/(.+?)/(.+?)/' app\.py", page)
    assert (tmp_path / "words" / "app.py").read_text().count(old) == 1
    assert f'"{old}", "{new}"' in (ROOT / "tests" / "spark" / "test_cli_project.py").read_text()


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
