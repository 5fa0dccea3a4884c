"""The guide to another version: its two programs, from a savepoint to the new version and back."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt.cli import app as command_line
from tests.command_line import CliRunner
from tests.hosts import HostedProgram
from tests.support import ROOT, SLOTS, Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PAGE = (ROOT / "docs" / "guides" / "move-state-to-another-version.md").read_text()
RUN = """
import sys
from streamrt.cli import main

# This process may have run it before, for another group.
sys.modules.pop("{version}", None)
sys.argv[1:] = ["run", "{version}:app", "--until", "end"]
main()
"""


def shown(topic: str) -> dict[int, Any]:
    """Return the values that the page shows in a topic, by offset."""
    found = re.findall(rf"^{topic}\[0\]@(\d+)  \S+  key=\w+  (.*)$", PAGE, re.MULTILINE)
    return {int(offset): json.loads(value) for offset, value in found}


def test_a_new_version_goes_on_and_the_old_one_comes_back(
    kafka: Kafka, hosted: Callable[..., HostedProgram], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, group, prefix = kafka.topic("orders"), unique("shop"), f"{unique('out')}-"
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for name, program in zip(("shop_v1", "shop_v2"), programs, strict=True):
        (tmp_path / f"{name}.py").write_text(program.replace('"orders"', json.dumps(orders)))
    renamed = (tmp_path / "shop_v2.py").read_text().replace('group_by("country"', 'group_by("country", name="land"')
    (tmp_path / "shop_renamed.py").write_text(renamed)
    environment = {
        "STREAMRT_BROKER_ADDRESS": kafka.address,
        "STREAMRT_CONSUMER_GROUP": group,
        "STREAMRT_STATE_DIR": str(tmp_path / "state"),
        # Workers of a Spark that has run other programs do not find the modules of this one.
        "STREAMRT_PROCESSING_MODE": "resident",
        "STREAMRT_SPARK_MASTER": SLOTS,
        "SHOP_PREFIX": prefix,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sent = re.findall(r"'(\{\"country.*?\})'", PAGE)
    assert len(sent) == 4

    def run(version: str, *values: str, **other: str) -> None:
        kafka.produce(orders, [json.loads(value) for value in values], key=b"ann")
        program = hosted(RUN.format(version=version), **{**environment, **other})
        assert program.wait(180) == 0, program.err

    def command(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(command_line, list(arguments))
        assert done.exit_code == code, done.output
        return done.stdout

    def values(name: str, count: int) -> list[Any]:
        return [json.loads(record.value or b"") for record in kafka.receive_exactly(name, count, 60)]

    counts = shown("counts")
    run("shop_v1", *sent[:2])
    assert values(f"{prefix}counts", 2) == [counts[0], counts[1]]
    assert values(f"{prefix}countries", 2) == list(shown("countries").values())
    assert "store 'default.country' of" in command("savepoint", "create", "shop_v1:app", "before-v2")
    assert "keep the name 'default.country'" in command("plan", "diff", "shop_renamed:app", code=3)
    assert "0 that lose state, 0 refused" in command("plan", "diff", "shop_v2:app")

    trial = unique("trial")
    command("savepoint", "restore", "before-v2", "--group", group, "--to", trial)
    run("shop_v2", sent[2], STREAMRT_CONSUMER_GROUP=trial, SHOP_PREFIX=f"{prefix}trial-")
    for name in ("counts", "countries", "items"):
        assert values(f"{prefix}trial-{name}", 1) == list(shown(f"trial-{name}").values())

    run("shop_v2")
    assert values(f"{prefix}counts", 3) == [counts[0], counts[1], counts[3]]
    kafka.produce(orders, [json.loads(sent[3])], key=b"ann")
    command("reset", "shop_v1:app", "--yes")
    command("savepoint", "restore", "before-v2", "--group", group, "--to", group)
    run("shop_v1")
    assert values(f"{prefix}counts", 5) == list(counts.values())
