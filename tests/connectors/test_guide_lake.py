"""The guide to a lake: its programs, its test and its readers, which print what the page shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "load-a-lake.md").read_text()
NAMES = ("payments_to_lake", "read_lake", "test_lake", "payments_to_table", "read_table", "compact")
FEED = """
import json, sys
from importlib import import_module

from streamrt.testing import TopologyTestDriver

with TopologyTestDriver(import_module(sys.argv[1]).app) as driver:
    for key, value in json.loads(sys.argv[2]):
        driver.pipe("payments", value, key=key)
"""
INPUT = [(key, json.loads(value)) for key, value in re.findall(r"^\| `(c\d)` \| `(\{.*\})` \|$", PAGE, re.MULTILINE)]


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    """Write the programs of the page, and return what runs Python next to them."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for name, program in zip(NAMES, programs, strict=True):
        (tmp_path / f"{name}.py").write_text(program)
    (tmp_path / "feed.py").write_text(FEED)
    return Run(tmp_path)


class Run:
    """Runs Python in a directory.

    Args:
        directory: the directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *arguments: str) -> str:
        """Run Python; return what it prints."""
        environment = {**os.environ, "STREAMRT_BROKER_ADDRESS": "localhost:9092", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.directory, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def shown(command: str) -> str:
    """Return what a command prints the first time that the page shows it."""
    pattern = rf"^```console\n\$ {re.escape(command)}\n(.*?)^(?:```|\$)"
    printed: str = re.findall(pattern, PAGE, re.MULTILINE | re.DOTALL)[0]
    return printed


@pytest.mark.slow
def test_the_guide_fills_folders_that_others_read_and_adds_a_column(run: Run) -> None:
    assert len(INPUT) == 4
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lake.py")
    run("feed.py", "payments_to_lake", json.dumps(INPUT))
    assert run("read_lake.py") == shown("python read_lake.py")
    folders = sorted(path.parent.name for path in run.directory.glob("lake/payments/*/*.parquet"))
    assert folders == ["date=2026-11-27", "date=2026-11-28"]
    # A new field, and the column that older files lack.
    program = run.directory / "payments_to_lake.py"
    program.write_text(
        program.read_text()
        .replace('"country":', '"currency": payment["currency"],\n        "country":')
        .replace('consumer_group="payments-to-lake"', 'consumer_group="next"')
    )
    value = {"payment_id": 5, "country": "FR", "currency": "EUR", "euros": 1, "at": "2026-11-28T09:00:00Z"}
    run("feed.py", "payments_to_lake", json.dumps([("c1", value)]))
    query = '\nprint(duckdb.sql("SELECT payment_id, currency FROM payments ORDER BY payment_id").fetchall())'
    (run.directory / "read_lake.py").write_text((run.directory / "read_lake.py").read_text() + query)
    assert run("read_lake.py").endswith("[(1, None), (2, None), (3, None), (5, 'EUR')]\n")


@pytest.mark.slow
def test_the_guide_fills_a_table_and_compacts_it(run: Run) -> None:
    run("feed.py", "payments_to_table", json.dumps(INPUT))
    assert run("read_table.py") == shown("python read_table.py")
    compacted = (run.directory / "read_table.py").read_text() + (run.directory / "compact.py").read_text()
    (run.directory / "compact.py").write_text(f"{compacted}print(len(table.file_uris()))\n")
    assert run("compact.py").splitlines()[-1] == "2"
