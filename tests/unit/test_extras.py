"""Extras that messages tell to install."""

import importlib.metadata
import json
from collections.abc import Iterator

import pytest

from streamrt import extras


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    extras._origin.cache_clear()
    yield
    extras._origin.cache_clear()


class NotedDouble:
    """A distribution that pip has installed."""

    def __init__(self, noted: str | None) -> None:
        self._noted = noted

    def read_text(self, filename: str) -> str | None:
        assert filename == "direct_url.json"
        return self._noted


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        ({"url": "file:///src/stream%20rt", "dir_info": {}}, 'pip install "/src/stream rt[avro]"'),
        ({"url": "file:///src/streamrt", "dir_info": {"editable": True}}, 'pip install -e "/src/streamrt[avro]"'),
        ({"url": "file:///w/streamrt-1.whl", "archive_info": {}}, 'pip install "/w/streamrt-1.whl[avro]"'),
        ({"url": "https://git.example/streamrt", "vcs_info": {}}, 'pip install "streamrt[avro]"'),
        (None, 'pip install "streamrt[avro]"'),
        ("broken", 'pip install "streamrt[avro]"'),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    monkeypatch: pytest.MonkeyPatch, noted: object, command: str
) -> None:
    text = noted if noted is None else "{" if noted == "broken" else json.dumps(noted)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: NotedDouble(text))
    assert extras.install_command("avro") == command


def test_a_package_that_was_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert extras.install_command("avro") == 'pip install "streamrt[avro]"'


@pytest.mark.parametrize(
    ("noted", "needed"),
    [
        ({"url": "file:///src/streamrt", "dir_info": {"editable": True}}, "streamrt[local] @ file:///src/streamrt"),
        (None, f"streamrt[local]>={importlib.metadata.version('streamrt')}"),
    ],
)
def test_n4_a_new_project_requires_streamrt_from_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, noted: object, needed: str
) -> None:
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: NotedDouble(json.dumps(noted) if noted else None)
    )
    monkeypatch.setattr(importlib.metadata, "version", lambda name: needed.partition(">=")[2])
    assert extras.requirement("local") == needed
