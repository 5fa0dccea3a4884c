"""Writes docs/table-rows.md: `python -m tests.rows`; with `--check`, says whether it is up to date."""

import sys

from tests.rows import PAGE, page

if "--check" in sys.argv[1:]:
    sys.exit(
        0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE.name} is out of date: run `python -m tests.rows`"
    )
PAGE.write_text(page(), encoding="utf-8")
