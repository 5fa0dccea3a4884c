"""Writes the gallery of examples: `python -m tests.gallery`."""

from tests.gallery import PAGE, page_text

PAGE.write_text(page_text(), encoding="utf-8")
