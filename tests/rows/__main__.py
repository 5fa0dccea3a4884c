"""Writes the pages of rows: `python -m tests.rows`; with `--check`, says whether they are up to date."""

import sys

from tests.rows import PAGES

for page in PAGES:
    if "--check" not in sys.argv[1:]:
        page.path.write_text(page.text(), encoding="utf-8")
    elif page.path.read_text(encoding="utf-8") != page.text():
        sys.exit(f"{page.path.name} is out of date: run `python -m tests.rows`")
