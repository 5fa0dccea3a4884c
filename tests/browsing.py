"""Debian's Chromium, driven through Playwright, for tests of the dashboard."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.servers import program

__all__ = ["NARROW", "WIDE", "chromium", "opened"]

NARROW: Final = ViewportSize(width=340, height=700)
WIDE: Final = ViewportSize(width=1_300, height=900)
_TIMEOUT_MS: Final = 120_000
"""How long a page may take on a busy machine: to load, to show what is expected, to take a click."""

expect.set_options(timeout=_TIMEOUT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium. It refuses its sandbox to root, as whom tests run in containers."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program("chromium"), args=arguments)
        yield started
        started.close()


@contextmanager
def opened(browser: Browser, url: object, *refused: str, **settings: Any) -> Iterator[Page]:
    """Show a page; no error may be logged but those that begin with a text in `refused`."""
    context = browser.new_context(**{"viewport": WIDE, **settings})
    page = context.new_page()
    page.set_default_timeout(_TIMEOUT_MS)
    errors: list[str] = []
    # The browser logs what it cannot load.
    usual = ("Failed to load resource: ", *refused)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type in ("error", "warning") else None)
    page.goto(str(url))
    yield page
    context.close()
    assert [error for error in errors if not error.startswith(usual)] == []
