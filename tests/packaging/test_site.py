"""The documentation site: it is built strictly, as `make docs` does."""

import importlib
import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browsing import chromium, opened

ROOT = Path(__file__).parents[2]
# Packages whose names are all listed with others.
REEXPORTS = (
    "streamrt.connectors.sinks",
    "streamrt.connectors.sources",
    "streamrt.context",
    "streamrt.dataframe",
    "streamrt.process",
    "streamrt.testing.driver",
    "streamrt.testing.kafka",
)


COMMAND = "--quiet --fail-on-warning --keep-going --conf-dir docs"
"""In one process, which takes less processor time than two."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", *COMMAND.split(), ".", str(made)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (0, [])
    return made


@pytest.mark.slow
def test_every_page_is_behind_a_door_and_every_link_leads_somewhere(site: Path) -> None:
    built = {str(page.relative_to(site).with_suffix("")) for page in site.glob("docs/**/*.html")}
    pages = {str(page.relative_to(ROOT).with_suffix("")) for page in ROOT.glob("docs/**/*.md")}
    assert pages - built == {"docs/feldera-rows", "docs/process-rows", "docs/table-rows"}
    assert "state_dir" in (site / "docs" / "api" / "application.html").read_text()


@pytest.mark.slow
def test_the_navigation_marks_the_page_and_leads_to_the_others(site: Path) -> None:
    doors = [
        f"{page}.html" for page in ("docs/windows", "docs/api/windows", "docs/decisions/0003-time-slices", "CHANGELOG")
    ]
    for page in doors:
        text = (site / page).read_text()
        assert re.findall(r'<li class="toctree-l1 [^>]*><a [^>]*', text) == [
            '<li class="toctree-l1 current current-page"><a class="current reference internal" href="#"'
        ]
        links = re.findall(r'<li class="toctree-l1"><a class="reference internal" href="([^"]*)"', text)
        assert {posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for link in links} >= {*doors} - {
            page
        }


@pytest.mark.slow
def test_the_search_works_without_a_server_and_leaves_out_decisions(site: Path) -> None:
    text = (site / "searchindex.js").read_text()
    assert len(text) > 100_000
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    hidden = {number for number, page in enumerate(index["docnames"]) if page.startswith("docs/decisions/")}
    assert len(hidden) == len([*ROOT.glob("docs/decisions/*.md")])
    assert {index["titles"][number] for number in hidden} == {""}
    assert index["docnames"][index["alltitles"]["Dead letters"][0][0]] == "docs/dead-letters"
    assert [title for title, places in index["alltitles"].items() if hidden & {number for number, _ in places}] == []
    terms = [*index["terms"].items(), *index["titleterms"].items()]
    assert [term for term, pages in terms if hidden & {*(pages if isinstance(pages, list) else [pages])}] == []


@pytest.mark.slow
def test_the_search_finds_answers_to_questions(site: Path) -> None:
    answers = {
        "how do I close windows when a partition is idle": "window-closing",
        "which argument sets the state directory": "configuration",
        "what happens to a record that fails": "dead-letters",
        "how do I move from 2 to 8 partitions": "more-partitions",
        "how do I write to PostgreSQL exactly once": "guides/write-to-postgresql-exactly-once",
    }
    # A browser does not let a page read the excerpts of others without a server.
    refused = ("Access to fetch at ", "Failed to fetch")
    with chromium() as browser:
        for question, page in answers.items():
            location = f"{(site / 'search.html').as_uri()}?q={quote(question)}"
            with opened(browser, location, *refused) as shown:
                expect(shown.locator(".search-summary")).to_contain_text("found")
                links = [link.get_attribute("href") or "" for link in shown.locator("ul.search > li > a").all()[:3]]
                assert f"docs/{page}.html" in [link.partition("?")[0].partition("#")[0] for link in links], question


@pytest.mark.slow
def test_long_names_in_tables_can_break(site: Path) -> None:
    text = (site / "docs" / "configuration.html").read_text()
    assert '<td><p><code class="docutils literal notranslate"><span class="pre">state_<wbr>dir</span>' in text


@pytest.mark.slow
def test_pages_that_docstrings_name_are_links(site: Path) -> None:
    text = (site / "docs" / "api" / "tables.html").read_text()
    assert 'href="../table-grants.html"' in text.partition("<article")[2]


@pytest.mark.slow
def test_the_files_for_programs_have_every_page_once_and_no_dead_link(site: Path) -> None:
    pages = sorted(str(page.relative_to(site)) for page in [*site.glob("docs/**/*.html"), *site.glob("[A-Z]*.html")])
    listed, full = ((site / name).read_text() for name in ("llms.txt", "llms-full.txt"))
    assert sorted(re.findall(r"^- \[.+?\]\((\S+)\): \S", listed, re.MULTILINE)) == [
        page for page in pages if page != "docs/index.html"
    ]
    assert sorted(re.findall(r"^<!-- (\S+) -->$", full, re.MULTILINE)) == pages
    assert "Application(broker_address" in full
    anchors: dict[str, set[str]] = {}
    for text in (listed, full):
        prose = re.sub(r"^( *)```.*?^\1```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        for file, anchor in re.findall(r"\]\((?!\w+:)([^()\s#]*)#?([^()\s]*)\)", prose):
            assert (site / file).is_file(), file
            if anchor and file not in anchors:
                anchors[file] = set(re.findall(r' id="([^"]+)"', (site / file).read_text()))
            assert not anchor or anchor in anchors[file], f"{file}#{anchor}"


def test_the_commands_of_the_makefile_are_those_of_the_test() -> None:
    [options] = re.findall(r"sphinx-build (.*) \. build/docs", (ROOT / "Makefile").read_text())
    assert options.replace(" --jobs 2", "") == COMMAND


def test_the_pages_of_the_api_list_every_public_name_once() -> None:
    listed: list[tuple[str, str]] = []
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for block in re.findall(r"```{eval-rst}\n(.*?)```", page.read_text(), re.DOTALL):
            [module] = re.findall(r"currentmodule:: (\S+)", block)
            listed += [
                (module, name) for name in re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", block, re.MULTILINE)
            ]
    names = [name for _, name in listed]
    assert sorted(names) == sorted(set(names))
    assert [each for each in listed if each[1] not in importlib.import_module(each[0]).__all__] == []
    # Some have a second name.
    objects = {id(getattr(importlib.import_module(module), name)) for module, name in listed}
    for package in {module for module, _ in listed} | {*REEXPORTS}:
        module = importlib.import_module(package)
        assert [name for name in module.__all__ if id(getattr(module, name)) not in objects] == [], package
