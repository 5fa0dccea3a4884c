"""The examples in docstrings run."""

import doctest
import importlib
import linecache
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Their examples start a broker; tests/kafka does the same and more.
NEED_A_BROKER = {"streamrt.testing.kafka"}


def modules_with_examples() -> list[str]:
    """Return the modules whose text has examples that run; the others need not be imported to know that."""
    names = set()
    for top in ("streamrt", "serializers", "state", "connectors"):
        for folder, _, files in os.walk(ROOT / top):
            for file in sorted(files):
                path = Path(folder, file)
                lines = path.read_text().splitlines() if path.suffix == ".py" else []
                if any(">>> " in line and "+SKIP" not in line for line in lines):
                    parts = path.relative_to(ROOT).with_suffix("").parts
                    named = parts if top == "streamrt" else ("streamrt", *parts)
                    names.add(".".join(named).removesuffix(".__init__"))
    return sorted(names - NEED_A_BROKER)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_give_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # For each docstring, doctest looks whether any file that was ever read for a traceback has changed.
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: None)
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0
