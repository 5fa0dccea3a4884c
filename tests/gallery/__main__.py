"""Writes the gallery of examples: `python -m tests.gallery`; with `--check`, says whether it is up to date."""

import sys

from tests.gallery import PAGE, page_text

if "--check" not in sys.argv[1:]:
    PAGE.write_text(page_text(), encoding="utf-8")
elif PAGE.read_text(encoding="utf-8") != page_text():
    sys.exit(f"{PAGE.name} is out of date: run `python -m tests.gallery`")
