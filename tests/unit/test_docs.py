"""The documentation: its code runs, its links lead somewhere, and its lists are complete."""

import dataclasses
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import streamrt
from streamrt import (
    Application,
    RocksDBOptions,
    State,
    StreamingDataFrame,
    StreamingSeries,
    StreamingTable,
    connectors,
    errors,
    windows,
)
from streamrt.cli import app as cli
from streamrt.config import ApplicationConfig
from streamrt.kafka import java_options
from streamrt.runtime.tasks import faults
from streamrt.windows import aggregators
from tests.command_line import CliRunner, every_command
from tests.forks import Forks

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language == "python run"


def blocks(name: str) -> list[Block]:
    found = []
    language, start = None, 0
    lines = (ROOT / name).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if language is None and line.startswith("```"):
            language, start = line[3:].strip(), number
        elif line == "```":
            found.append(Block(language or "", "\n".join(lines[start : number - 1]), start + 1))
            language = None
    assert language is None, f"{name}: the block from line {start} has no end"
    return found


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_python_compiles(name: str) -> None:
    for block in blocks(name):
        if block.language.startswith("python"):
            assert block.language in ("python", "python run")
            # As many lines before it as in the page, so that an error tells the right one.
            compile("\n" * (block.line - 1) + block.text, name, "exec")


@pytest.mark.parametrize("name", [name for name in NAMES if any(block.runs for block in blocks(name))])
def test_python_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "localhost:9092")
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(name):
        if block.runs:
            # Blocks of a page build on each other, as a reader takes them.
            exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)  # the page is our own


def test_most_python_runs() -> None:
    found = [block for name in NAMES for block in blocks(name) if block.language.startswith("python")]
    assert sum(block.runs for block in found) > len(found) / 2


@pytest.mark.parametrize("name", NAMES)
def test_n4_extras_are_installed_from_the_source_tree(name: str) -> None:
    """No package index has StreamRT."""
    assert 'pip install "streamrt' not in (ROOT / name).read_text().replace("\n", " ")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{name} links to {target}"


def table_rows(name: str) -> dict[str, str]:
    """Return the rows of a page's tables by each name in code that their first cells hold."""
    rows: dict[str, str] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("|"):
            for term in re.findall(r"`([^`]+)`", line.split("|")[1]):
                rows.setdefault(term, line)
    return rows


def test_every_parameter_is_explained() -> None:
    rows = table_rows("docs/configuration.md")
    for parameter in inspect.signature(Application).parameters:
        assert parameter in rows, parameter
        from_environment = rows[parameter].split("|")[3].strip() == "yes"
        assert from_environment == (parameter in ApplicationConfig.model_fields), parameter


def test_defaults_are_right() -> None:
    rows = table_rows("docs/configuration.md")
    for name, parameter in inspect.signature(Application).parameters.items():
        told = rows[name].split("|")[2].strip().strip("`")
        assert told == ("none" if parameter.default is None else repr(parameter.default).replace("'", '"')), name


def test_every_option_is_explained() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    named = set(re.findall(r"`([a-z_.]+)`", page[page.index("## Options of consumers") :]))
    assert set(java_options._RULES) <= named


def variables_read() -> set[str]:
    """Return the environment variables that the code reads by name, without those of settings and of commands."""
    found = set()
    for path in (ROOT / "streamrt").rglob("*.py"):
        text = path.read_text()
        constants = dict(re.findall(r'^(\w+) = "(STREAMRT_\w+)"', text, re.MULTILINE))
        for quoted, name in re.findall(r'environ\.(?:get|pop)\((?:"(\w+)"|(\w+))', text):
            if quoted or name in constants:
                found.add(quoted or constants[name])
    return found


def variables_of_commands() -> set[str]:
    found: set[str] = set()
    for _, command in every_command():
        for parameter in command.params:
            variables = parameter.envvar or ()
            found.update([variables] if isinstance(variables, str) else variables)
    return found


def test_every_variable_is_explained() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    settings = {f"STREAMRT_{name.upper()}" for name in ApplicationConfig.model_fields}
    # The address of the process that starts workers is not for users.
    read = variables_read() - {"PATH", "STREAMRT_WORKERS"}
    of_commands = variables_of_commands()
    assert {"STREAMRT_FAULT", "STREAMRT_CLASS_ARCHIVES", "M2_REPO"} <= read
    assert {"STREAMRT_BROKER_ADDRESS", "STREAMRT_CONTROL_URL"} <= of_commands
    for variable in (read | of_commands) - settings:
        assert f"`{variable}`" in page, variable
    # What a page promises is read somewhere.
    for name in (name for name in NAMES if name != "CONTRIBUTING.md"):
        for variable in re.findall(r"\bSTREAMRT_[A-Z_]*[A-Z]\b", (ROOT / name).read_text()):
            assert variable in read | of_commands | settings, f"{name}: {variable}"


def test_every_option_of_stores_is_explained_with_its_default() -> None:
    rows = table_rows("docs/rocksdb-options.md")
    for field in dataclasses.fields(RocksDBOptions):
        assert field.name in rows, field.name
        told = rows[field.name].split("|")[2].strip().strip("`").replace(",", "")
        if field.name.endswith(("size", "budget", "size_base")):
            assert told == f"{getattr(RocksDBOptions(), field.name) // 1024**2} MiB", field.name
        elif field.name not in ("dumps", "loads", "db_log_dir"):
            assert told.strip('"') == str(field.default), field.name


def test_every_method_of_state_is_explained() -> None:
    rows = table_rows("docs/state.md")
    methods = {term.partition("(")[0] for term in rows if "(" in term}
    assert {name for name in vars(State) if not name.startswith("_")} <= methods


def test_every_connector_is_explained() -> None:
    pages = ("sinks", "own-sinks", "sources", "connectors")
    text = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in pages)
    # The others are types of what connectors are given.
    given = {"Instances", "PositionChange", "SinkItem", "SourceProducer", "SourceState", "SourceStore", "source_topic"}
    for name in set(connectors.__all__) - given:
        assert re.search(rf"\b{name}\b", text), name


def test_every_aggregator_is_exported_and_explained() -> None:
    lines = (ROOT / "docs/windows.md").read_text().splitlines()
    explained = {name for line in lines if line.startswith("|") for name in re.findall(r"`(\w+)`", line.split("|")[2])}
    names = set(aggregators.__all__)
    assert names <= set(windows.__all__)
    assert names - {"Aggregator", "Collector"} <= explained


def test_every_place_for_a_crash_is_named() -> None:
    text = (ROOT / "docs/testing-with-kafka.md").read_text()
    assert all(f"`{point}`" in text for point in faults.POINTS)


def test_every_error_of_state_and_connectors_is_explained() -> None:
    text, explained = ((ROOT / "docs" / page).read_text() for page in ("errors.md", "error-codes.md"))
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, (errors.StateError, errors.TransactionError)) or name.startswith(("Sink", "Source")):
            code = kind.error_code
            assert f"[`{name}`](error-codes.md#{code.lower()}-{name.lower()})" in text or f"- `{name}`" in text, name
            assert f"\n### {code} {name}\n" in explained


@pytest.mark.parametrize("page", ["errors.md", "error-codes.md"])
def test_every_error_of_a_start_exists(page: str) -> None:
    for name in re.findall(r"`(\w+Error)`", (ROOT / "docs" / page).read_text()):
        assert (
            hasattr(errors, name)
            or name in dir(__builtins__)
            or name in ("TypeError", "KeyError", "ValueError", "TimeoutError", "KafkaRequestError")
        ), name


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        (
            "dataframes keys-and-partitions concat outputs windows window-closing joins streaming-tables",
            StreamingDataFrame,
        ),
        ("streaming-tables", StreamingTable),
        ("series", StreamingSeries),
    ],
)
def test_every_method_is_explained(pages: str, kind: type) -> None:
    text = "\n".join((ROOT / "docs" / f"{page}.md").read_text() for page in pages.split())
    internal = {"compose", "compose_returning", "topics", "expression", "frame"}
    for name in vars(kind):
        if not name.startswith("_") and name not in internal:
            assert re.search(rf"\b{name}\b", text), name


def test_getting_started_does_what_it_says(forks: Forks, tmp_path: Path) -> None:
    program, _, test = (block for block in blocks("docs/getting-started.md") if block.language.startswith("python"))
    (tmp_path / "words.py").write_text(program.text)
    (tmp_path / "test_words.py").write_text(test.text)
    done = forks.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_words.py", directory=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_commands_exist() -> None:
    text = "\n".join((ROOT / name).read_text() for name in NAMES)
    for command in {match.split()[0] for match in re.findall(r"`streamrt ([a-z][^`]*)`", text)}:
        done = CliRunner().invoke(cli, [command, "--help"])
        assert done.exit_code == 0, command


def test_change_log_knows_the_version() -> None:
    assert f"## [{streamrt.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


CONCEPTS = sorted((ROOT / "docs" / "concepts").glob("*.md"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_a_concept_has_one_picture_that_says_what_it_shows(page: Path) -> None:
    [(description, name)] = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", page.read_text())
    assert len(description.split()) > 10
    picture = page.parent / name
    assert picture.suffix == ".svg"
    root = ET.fromstring(picture.read_text())
    assert root.tag == f"{SVG}svg"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text
    assert root.findall(f".//{SVG}text")
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ("svg", "title", "style", "marker", "path", "rect", "circle", "text")
        values = [*element.attrib.values(), element.text or ""]
        # Nothing but parts of the picture itself: no script, no link, no font or image from elsewhere.
        assert not [name for name in element.attrib if name.startswith("on") or name.endswith("href")]
        assert all(re.search(r"url\((?!#)|@import|https?:", value) is None for value in values)


def test_each_picture_of_a_concept_is_shown() -> None:
    assert CONCEPTS
    text = "".join(page.read_text() for page in CONCEPTS)
    assert all(f"({picture.name})" in text for picture in (ROOT / "docs" / "concepts").glob("*.svg"))
