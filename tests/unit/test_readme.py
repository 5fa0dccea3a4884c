"""The front page does what it says."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application
from streamrt.testing import TopologyTestDriver
from tests import pictures
from tests.command_line import streamrt

PAGE = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str) -> str:
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(block("python run"), namespace)  # the page is our own
    found = namespace["app"]
    assert isinstance(found, Application)
    return found


def test_the_program_gives_the_records_that_are_shown(app: Application) -> None:
    [produced] = re.findall(r"^\$ streamrt produce flights (.*)$", PAGE, re.MULTILINE)
    [shown] = re.findall(
        r"^\$ streamrt consume late-flights --values --until never --max 2\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    with TopologyTestDriver(app) as driver:
        for value in shlex.split(produced):
            driver.pipe("flights", json.loads(value))
        assert [record.value for record in driver.read("late-flights")] == [*map(json.loads, shown.splitlines())]


def test_the_drawing_is_that_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late", raising=False)
    (tmp_path / "late.py").write_text(block("python run"))
    [command] = re.findall(r"^`streamrt (plan .*)` draws", PAGE, re.MULTILINE)
    assert streamrt(*command.split()).out.strip() == block("mermaid").strip()


def test_the_picture_is_that_of_the_dashboard() -> None:
    root = Path(__file__).parents[2]
    assert f"]({pictures.DASHBOARD.relative_to(root)})" in PAGE
    assert pictures.DASHBOARD.stat().st_size < 150_000
    made_of = pictures.SOURCES.read_text().strip()
    assert made_of == pictures.digest_dashboard(), "the dashboard has changed: run `python -m tests.pictures`"
