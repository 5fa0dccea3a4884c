"""The documentation site: it is built strictly, as `make docs` does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_page_is_behind_a_door_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", "docs"]
    site = tmp_path / "site"
    done = subprocess.run(
        [*command, ".", str(site)], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    built = {str(page.relative_to(site).with_suffix("")) for page in site.glob("docs/**/*.html")}
    pages = {str(page.relative_to(ROOT).with_suffix("")) for page in ROOT.glob("docs/**/*.md")}
    assert pages - built == {"docs/process-rows", "docs/table-rows"}
    # The search works without a server.
    assert (site / "searchindex.js").stat().st_size > 100_000


def test_the_commands_of_the_makefile_are_those_of_the_test() -> None:
    [options] = re.findall(r"sphinx-build (.*) \. build/docs", (ROOT / "Makefile").read_text())
    assert options == "--quiet --fail-on-warning --keep-going --conf-dir docs"
