"""A browser shows a real application under load, and moves it."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import expect

from streamrt import Application, ApplicationStatus
from streamrt.control import Client
from streamrt.state import State
from tests.browsing import chromium, opened
from tests.support import LONG, Kafka
from tests.unit.played import close_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

TOKEN = "sesame-of-the-dashboard"
MODES = ["resident", "micro-batch"] if LONG else ["resident"]
NUMBER = re.compile(r"^[\d,]+$")


@contextmanager
def load(kafka: Kafka, topic: str) -> Iterator[None]:
    """Produce records without a pause; one in forty fails."""
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.1):
            kafka.produce(topic, [*range(1, 40), 0], key=b"k3")

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def total(value: int, state: State) -> float:
    state.set("sum", state.get("sum", 0) + value)
    return 12 / value


def status_of(app: Application) -> ApplicationStatus:
    """Return the state of an application now: mypy takes a property for what it was."""
    return app.status


@pytest.mark.parametrize("mode", MODES)
def test_a_browser_moves_an_application_under_load(kafka: Kafka, mode: Any) -> None:
    source, out = kafka.topic("in"), kafka.topic("out")
    app = kafka.app(
        control="0", control_token=TOKEN, commit_interval=1, on_processing_error=lambda *_: True, processing_mode=mode
    )
    app.dataframe(app.topic(source, key_deserializer="str")).apply(total, stateful=True).to_topic(app.topic(out))
    app.start(timeout=180)
    try:
        with load(kafka, source), chromium() as browser, opened(browser, app.location) as page:
            state, partition = page.locator("#state"), page.locator("#partitions tbody tr", has_text=source)
            page.locator("#token").fill(TOKEN)
            page.locator("#token").press("Enter")
            expect(state).to_have_text("running")
            rate = page.locator(".tile", has_text="Records per second").locator("dd")
            expect(rate).to_have_text(re.compile(r"[1-9]"))
            expect(page.locator("#topics tbody tr", has_text=source)).to_contain_text("/s")
            expect(page.locator(".live", has_text="/s").first).to_be_visible()
            expect(partition).to_contain_text("this instance")
            # A number, and no dash for what is not known.
            expect(partition.locator("td").last).to_have_text(NUMBER)
            trouble = page.locator("#troubles tbody tr", has_text="skipped record").first
            expect(trouble).to_contain_text("ZeroDivisionError")
            expect(trouble).to_contain_text(f"{source}[0] at ")
            page.locator("#pause").click()
            expect(state).to_have_text("paused")
            assert status_of(app) is ApplicationStatus.PAUSED
            # What is written meanwhile is lag.
            expect(partition.locator("td[data-state='behind']")).to_be_visible()
            page.locator("#resume").click()
            expect(state).to_have_text("running")
            page.locator("#checkpoint").click()
            expect(page.locator("#toast")).to_have_text("Checkpoint 1: success.")
            page.locator("#lookup-key").fill("k3")
            page.locator("#lookup button").click()
            expect(page.locator("#found-sum")).to_contain_text(f"Position: {source}[0] at offset ")
            expect(page.locator("#found tbody tr").first).to_contain_text("sum")
            # The sizes of stores are also measured with later commits.
            expect(page.locator("#stores tbody tr")).to_contain_text(re.compile(r"\u2248 [1-9]"))
            with Client(str(app.location), TOKEN) as client:
                numbers, metrics = client.stats(), client.metrics()
            assert numbers.stores[source]["default"].bytes > 0
            assert "ZeroDivisionError" in numbers.errors["topic"][source][0].message
            for name in ("cache_hits_total", "operator_duration_seconds_count", "state_size_bytes"):
                assert re.search(rf"^streamrt_{name}{{.*}} [1-9]", metrics, re.MULTILINE), name
            page.locator("#stop").click()
            page.locator("#confirm-yes").click()
            expect(state).to_have_text("stopped")
            assert status_of(app) is ApplicationStatus.STOPPED
    finally:
        app.stop(wait=True)
        close_server(app)
