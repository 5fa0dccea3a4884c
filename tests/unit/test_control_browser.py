"""The dashboard in a browser: Chromium, driven through Playwright, shows applications whose runs are played."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from streamrt import ApplicationStatus
from streamrt.connectors import CSVSource
from streamrt.errors import StateNotOwnedError
from tests.browsing import NARROW, chromium, opened
from tests.servers import free_port
from tests.support import wait_until
from tests.unit.crowded import HOSTILE, PARTITIONS, TOPICS, Crowded
from tests.unit.played import Played, close_server, played
from tests.unit.tabled import Tabled
from tests.unit.test_control_state import World

pytestmark = pytest.mark.slow

S = ApplicationStatus
CANARY = "canary-8f41c6"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def state_of(app: Played) -> ApplicationStatus:
    """Return the state of an application now: mypy takes a property for what it was."""
    return app.status


@pytest.fixture(scope="module")
def crowded() -> Iterator[Crowded]:
    """An application with forty operators and two hundred partitions."""
    app = Crowded()
    app.start()
    app.feed(5)
    app.trouble()
    yield app
    app.stop(wait=True)
    close_server(app)


# Milliseconds to show an answer in which every number of a partition has changed: the fewest, as others work as well.
SHOWING = """async () => {
    const { Views } = await import("/page/views.js");
    const answer = async (path) => (await fetch(path)).json();
    const [found, topology] = [await answer("/overview"), await answer("/topology")];
    const views = new Views();
    views.topology(topology);
    views.show(found);
    const spent = [];
    for (let turn = 0; turn < 10; turn += 1) {
        const begun = performance.now();
        found.at += 2;
        for (const row of found.partitions) { row.position += 17; row.committed += 17; row.end += 18; row.lag += 1; }
        views.show(found);
        document.body.getBoundingClientRect();
        spent.push(performance.now() - begun);
    }
    return Math.min(...spent);
}"""


def test_a_crowded_application(browser: Browser, crowded: Crowded) -> None:
    with opened(browser, crowded.location) as page:
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#group")).to_have_text("shop")
        expect(page.locator("#partitions tbody tr")).to_have_count(TOPICS * PARTITIONS)
        assert page.locator(".node.operator").count() >= 40
        expect(page.locator("#restores li")).to_have_count(4)
        expect(page.locator("#troubles tbody tr")).to_have_count(3)
        letter = page.locator("#troubles tbody tr", has_text="dead letter")
        expect(letter).to_contain_text("orders[0] at 97")
        expect(letter).to_contain_text("apply-1")
        expect(page.locator(".tile", has_text="Dead letters").locator("dd")).to_have_text("3")
        expect(page.locator("#stores tbody tr").first).to_contain_text("\u2248 2K11 MiB")
        # Rows stay while their numbers change.
        page.evaluate("window.row = document.querySelector('#partitions tbody tr')")
        crowded.feed(1_000)
        expect(page.locator("#partitions tbody tr").first).to_contain_text("1,005")
        assert page.evaluate("window.row.isConnected")
        expect(page.locator(".live", has_text="/s").first).to_be_visible()
        expect(page.locator(".live.behind").first).to_have_text("lag 9")
        page.locator("#filter").fill("CLICKS-3")
        expect(page.locator("#partitions tbody tr")).to_have_count(2 * PARTITIONS)
        page.locator("#behind").check()
        expect(page.locator("#partitions-sum")).to_have_text(re.compile(r"^6 of 200 partitions\. Kafka was asked"))
        # Showing an answer is far quicker than the time between two.
        spent = page.evaluate(SHOWING)
        assert spent < 250


def test_tables_of_an_application(browser: Browser) -> None:
    app = Tabled()
    app.start()
    try:
        with opened(browser, app.location) as page:
            rows = page.locator("#tables tbody tr")
            expect(rows).to_have_count(4)
            app.feed(2_000)
            users = page.locator("#tables tbody tr", has_text="shop.users")
            expect(users).to_contain_text("kept")
            expect(users).to_contain_text("\u2248 2K")
            expect(users).to_contain_text("2.0 KiB")
            expect(users.locator("td[data-state=behind]")).to_have_text("5")
            expect(page.locator("#tables tbody tr", has_text="shop.names")).to_contain_text("\u2248 249")
            expect(page.locator("#tables tbody tr", has_text="shop.countries")).to_contain_text("written")
            app.feed(1_000_000)
            expect(users.locator("td").nth(5)).to_have_text(re.compile(r"^\d+(\.\d)?[KM]/s$"))
            assert Axe().run(page).response["violations"] == []
            page.set_viewport_size(NARROW)
            wait_until(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
    finally:
        app.stop(wait=True)
        close_server(app)
    with played() as other, opened(browser, other.location) as page:
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#tables-card")).to_be_hidden()


def test_partitions_of_other_instances(browser: Browser, crowded: Crowded) -> None:
    crowded.share()
    try:
        with opened(browser, crowded.location) as page:
            rows = page.locator("#partitions tbody tr")
            expect(rows).to_have_count(TOPICS * PARTITIONS + 6)
            expect(page.locator("#partitions-sum")).to_contain_text(
                "6 partitions belong to other instances of the group."
            )
            page.locator("#filter").fill("shared")
            expect(rows).to_have_count(6)
            expect(rows.nth(0)).to_have_text("shared0\u201371210.0.0.7:70705")
            link = rows.nth(0).locator("a")
            expect(link).to_have_attribute("href", "http://10.0.0.7:7070")
            expect(rows.nth(1)).to_have_text("shared1\u201371210.0.0.85")
            expect(rows.nth(1).locator("a")).to_have_count(0)
            # What is not this instance's counts in none of its figures.
            expect(page.locator("#topics")).not_to_contain_text("shared")
            page.locator("#own").focus()
            page.keyboard.press("Space")
            expect(page.locator("#partitions tbody tr")).to_have_count(0)
            page.locator("#filter").fill("")
            expect(rows).to_have_count(TOPICS * PARTITIONS)
            page.locator("#own").uncheck()
            # Axe looks at each cell, so a few rows do.
            page.locator("#filter").fill("shared")
            page.locator("#partitions tbody a").first.focus()
            assert Axe().run(page).response["violations"] == []
    finally:
        crowded.feed(1)


def test_names_that_are_markup_stay_text(browser: Browser, crowded: Crowded) -> None:
    with opened(browser, crowded.location, "This document requires 'TrustedHTML'") as page:
        expect(page.locator("#troubles")).to_contain_text(f"broker away {HOSTILE}")
        page.locator(".node", has_text="apply-5").first.click()
        expect(page.locator("#chosen")).to_contain_text(HOSTILE)
        assert page.locator("img, b").count() == 0
        # The browser itself refuses what would make markup of text.
        refused = "() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } }"
        assert page.evaluate(refused) == "TypeError"


def test_buttons_move_the_application(browser: Browser) -> None:
    with played() as app, opened(browser, app.location) as page:
        state = page.locator("#state")
        expect(state).to_have_text("running")
        expect(page.locator("#sources")).to_be_hidden()
        app.add_source(CSVSource("none.csv", name=HOSTILE), app.topic("daily"))
        # The process of the source does not run, because the run is played.
        expect(page.locator("#sources tbody tr")).to_have_text(f"{HOSTILE}dailynot running")
        expect(page.locator("#resume")).to_be_disabled()
        page.locator("#pause").click()
        expect(state).to_have_text("paused")
        assert state_of(app) is S.PAUSED
        expect(page.locator("#pause")).to_be_disabled()
        expect(page.locator("#announce")).to_contain_text("paused")
        page.locator("#resume").click()
        expect(state).to_have_text("running")
        page.locator("#checkpoint").click()
        expect(page.locator("#toast")).to_have_text("Checkpoint 1: success.")
        app.obeys.clear()
        page.locator("#pause").click()
        expect(state).to_have_text("running, wanted: paused")
        app.obeys.set()
        expect(state).to_have_text("paused")
        # What callers elsewhere do is seen as well.
        app.resume("orders")
        expect(state).to_have_text("running")
        page.locator("#stop").click()
        page.keyboard.press("Escape")
        expect(page.locator("#confirm")).to_be_hidden()
        assert state_of(app) is S.RUNNING
        page.locator("#stop").click()
        page.locator("#confirm-yes").click()
        expect(state).to_have_text("stopped")
        assert state_of(app) is S.STOPPED
        expect(page.locator("#reasons")).to_have_text("the application is stopped")
        expect(page.locator("#stop")).to_be_disabled()


def test_a_refused_change_is_one_sentence(browser: Browser) -> None:
    with played() as app, opened(browser, app.location) as page:
        expect(page.locator("#pause")).to_be_enabled()
        with page.expect_response("**/overview"):
            pass
        # From now on, the page does not see by itself what happens.
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
        app.stop(wait=True)
        page.locator("#pause").click()
        expect(page.locator("#toast")).to_contain_text(
            "The application is stopped and cannot be paused: start() it first"
        )


def test_nothing_is_shown_without_the_token(browser: Browser) -> None:
    with played(control_token=CANARY) as app, opened(browser, app.location) as page:
        field = page.locator("#token")
        expect(field).to_be_focused()
        expect(page.locator("#content")).to_be_hidden()
        expect(page.locator("#group")).to_have_text("StreamRT")
        for button in ("pause", "resume", "checkpoint", "stop"):
            expect(page.locator(f"#{button}")).to_be_disabled()
        # Even where a script presses them.
        page.evaluate("document.querySelector('#pause').disabled = false")
        page.locator("#pause").click()
        expect(page.locator("#pause")).to_be_disabled()
        assert state_of(app) is S.RUNNING
        for wrong, sentence in (("wrong", "The application refuses this token."), ("grüße", "printable ASCII")):
            field.fill(wrong)
            field.press("Enter")
            expect(page.locator("#notice")).to_contain_text(sentence)
        field.fill(CANARY)
        field.press("Enter")
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#notice")).to_be_hidden()
        page.locator("#pause").click()
        expect(page.locator("#state")).to_have_text("paused")
        assert CANARY not in page.url + page.content() + page.evaluate("JSON.stringify(localStorage) + document.cookie")
        page.reload()
        expect(page.locator("#state")).to_have_text("paused")
        page.locator("#forget").click()
        expect(field).to_be_visible()
        expect(page.locator("#content")).to_be_hidden()
        assert page.evaluate("JSON.stringify(sessionStorage)") == "{}"


def test_a_server_that_goes_away_comes_back(browser: Browser) -> None:
    with played(control=str(free_port())) as app, opened(browser, app.location) as page:
        expect(page.locator("#state")).to_have_text("running")
        close_server(app)
        expect(page.locator("#state")).to_have_text("unreachable")
        expect(page.locator("#notice")).to_have_text(
            "The application does not answer. This page tries again by itself."
        )
        expect(page.locator("#pause")).to_be_disabled()
        assert app._server is not None
        app._server.open(stays=True)
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#notice")).to_be_hidden()
        app.failure = ValueError(HOSTILE)
        expect(page.locator("#state")).to_have_text("failed")
        expect(page.locator("#reasons li").first).to_contain_text(f"ValueError: {HOSTILE}")


def test_a_hidden_page_asks_nothing(browser: Browser, crowded: Crowded) -> None:
    with opened(browser, crowded.location) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.install()
        page.reload()
        expect(page.locator("#state")).to_have_text("running")
        wait_until(lambda: any(url.endswith("/topology") for url in asked))
        visibility = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); "
        visibility += "document.dispatchEvent(new Event('visibilitychange')); }"
        page.evaluate(visibility, True)
        asked.clear()
        page.clock.run_for(60_000)
        assert asked == []
        with page.expect_response("**/overview"):
            page.evaluate(visibility, False)
        assert [url.rsplit("/", 1)[1] for url in asked] == ["overview"]


def test_the_keyboard_is_enough(browser: Browser, crowded: Crowded) -> None:
    with opened(browser, crowded.location) as page:
        expect(page.locator(".node").first).to_be_visible()
        reached = []
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('role')"))
        for wanted in ("pause", "checkpoint", "stop", "theme", "smaller", "larger", "fit", "option", "topics"):
            assert wanted in reached, reached
        assert reached.count("option") == 1
        page.locator(".node[tabindex='0']").focus()
        expect(page.locator("#chosen")).to_have_text("topic orders")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#chosen")).to_contain_text("source-0 · orders · stream orders · reads orders")
        expect(page.locator(".node[aria-selected='true']")).to_have_count(1)
        page.locator("#partitions th button").last.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#partitions th").last).to_have_attribute("aria-sort", "descending")
        expect(page.locator("#partitions tbody tr").first.locator("td").last).to_have_text("3")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes_widths_and_accessibility(browser: Browser, crowded: Crowded, theme: Any) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, crowded.location, color_scheme=theme) as page:
        expect(page.locator(".node").first).to_be_visible()
        chosen = page.evaluate(back)
        assert chosen == {"light": "rgb(244, 246, 248)", "dark": "rgb(14, 18, 23)"}[theme]
        # Axe looks at each cell, so a few rows do.
        page.locator("#filter").fill("clicks-3")
        expect(page.locator("#partitions tbody tr")).to_have_count(2 * PARTITIONS)
        found = Axe().run(page).response
        assert len(found["passes"]) > 10
        assert [
            (each["id"], each["impact"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
        ] == []
        other = {"light": "dark", "dark": "light"}[theme]
        page.locator("#theme").select_option(other)
        assert page.evaluate(back) != chosen
        page.reload()
        assert page.evaluate(back) != chosen
        page.locator("#theme").select_option("")
        assert page.evaluate(back) == chosen
        page.set_viewport_size(NARROW)
        # The drawing goes downwards.
        expect(page.locator(".node").nth(1)).to_be_visible()
        wait_until(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
        for button in ("pause", "resume", "checkpoint", "stop"):
            box = page.locator(f"#{button}").bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= NARROW["width"]


def test_the_form_for_the_token_is_accessible(browser: Browser) -> None:
    with played(control_token=CANARY) as app, opened(browser, app.location, viewport=NARROW) as page:
        expect(page.locator("#token")).to_be_focused()
        assert Axe().run(page).response["violations"] == []


def test_state_is_looked_up(browser: Browser) -> None:
    with played() as app:
        world = World(app)
        with world.driver, world.serving, opened(browser, app.location) as page:
            world.driver.pipe(world.topic, {"total": HOSTILE}, key="ann", timestamp=100)
            page.locator("#lookup-store").select_option(label="default of orders")
            # The topology is that of the application, and the stores are those of the test driver.
            page.evaluate("document.querySelector('#lookup-store').selectedOptions[0].value = '[\"default\",\"in\"]'")
            page.locator("#lookup-key").fill("ann")
            page.keyboard.press("Enter")
            expect(page.locator("#found-sum")).to_have_text("3 entries in partition 0. Position: in[0] at offset 1.")
            expect(page.locator("#found tbody tr").nth(0)).to_contain_text(HOSTILE.replace('"', '\\"'))
            assert Axe().run(page).response["violations"] == []
            page.locator("#lookup-key").fill("nobody")
            page.locator("#lookup button").click()
            expect(page.locator("#found-sum")).to_have_text("No state in partition 0. Position: in[0] at offset 1.")
            expect(page.locator("#found")).to_be_hidden()
            world.refusal = StateNotOwnedError("in[0] belongs to another instance of the application")
            page.locator("#lookup button").click()
            expect(page.locator("#found-sum")).to_contain_text("In[0] belongs to another instance of the application")


LAYOUT = """async () => {
    const { layered } = await import("/page/layout.js");
    let seed = 7;
    const random = (below) => { seed = (seed * 48271) % 2147483647; return seed % below; };
    const faults = [];
    for (let round = 0; round < 200; round += 1) {
        const nodes = Array.from({ length: 1 + random(40) }, (_, index) => `n${index}`);
        const edges = Array.from({ length: random(60) }, () => [nodes[random(nodes.length)], nodes[random(nodes.length)]]);
        const found = layered(nodes, edges);
        const lanes = new Map();
        for (const item of found.items.values()) {
            if (!(item.across >= item.size / 2 - 1e-6 && item.across <= found.across)) faults.push(`${round}: outside`);
            lanes.set(item.layer, [...(lanes.get(item.layer) ?? []), item]);
        }
        for (const items of lanes.values()) {
            items.sort((a, b) => a.across - b.across);
            for (let index = 1; index < items.length; index += 1) {
                const least = (items[index].size + items[index - 1].size) / 2;
                if (items[index].across - items[index - 1].across < least - 1e-6) faults.push(`${round}: overlap`);
            }
        }
        edges.forEach(([from, to], index) => {
            const route = found.routes[index];
            if (route[0].id !== from || route[route.length - 1].id !== to) faults.push(`${round}: ends`);
            const steps = new Set(route.slice(1).map((item, at) => item.layer - route[at].layer));
            if (from !== to && !(steps.size === 1 && Math.abs([...steps][0]) === 1)) faults.push(`${round}: steps`);
        });
    }
    return faults;
}"""


def test_layouts_of_any_graph(browser: Browser, crowded: Played) -> None:
    with opened(browser, crowded.location) as page:
        assert page.evaluate(LAYOUT) == []
