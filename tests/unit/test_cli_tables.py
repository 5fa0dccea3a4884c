"""`streamrt table` and `streamrt catalog`, over a catalogue in files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamrt.cli import app
from streamrt.errors import StreamRTError
from streamrt.tables import Catalog, FileCatalog

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command over the catalogue in the directory of the test, and return what it prints."""
    monkeypatch.setenv("STREAMRT_CATALOG_DIR", str(tmp_path / "catalog"))
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)

    def call(*arguments: str, input: str | None = None) -> str:  # noqa: A002 - as CliRunner has it
        done = CliRunner().invoke(app, list(arguments), input=input)
        if isinstance(done.exception, StreamRTError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return call


def test_a_table_from_its_creation_to_its_end(run: Run, tmp_path: Path) -> None:
    assert run("table", "create", "orders", "id BIGINT", "--dry-run") == (
        "would create default.orders: topic default.orders\n"
    )
    created = run(
        *("table", "create", "shop.orders", "id BIGINT NOT NULL, customer STRING, at TIMESTAMP", "--create-database"),
        *("--key", "customer", "--time", "at", "--partitions", "4", "--set", "retention.ms=60000", "--comment", "paid"),
    )
    assert created == "created shop.orders: topic shop.orders\n"
    assert run("table", "alter", "shop.orders", "--add", "n INT COMMENT 'PII'") == (
        "shop.orders has version 2, with schema version 2\n"
    )
    with Catalog(store=FileCatalog(tmp_path / "catalog")) as catalog:
        catalog.record_usage("late", reads=["shop.orders"], writes=["shop.late"])
    listed = run("table", "list", "shop").splitlines()
    assert listed[0].split() == ["TABLE", "KIND", "TOPIC", "PARTITIONS", "FORMAT", "COMMENT"]
    assert listed[1].split() == ["shop.orders", "log", "shop.orders", "4", "json", "paid"]
    shown = run("table", "show", "shop.orders")
    for part in ("customer", "NOT NULL", "TIMESTAMP", "PII", "late", "reads"):
        assert part in shown
    document = json.loads(run("table", "show", "shop.orders", "--json"))
    assert document["usages"][0]["application"] == "late"
    assert [column["name"] for column in document["schema"]["columns"]] == ["id", "customer", "at", "n"]
    assert json.loads(run("table", "list", "--json"))["tables"][0]["config"] == {"retention.ms": "60000"}
    assert '[("shop.late (not in the catalogue)")]' in run("catalog", "lineage")
    assert {edge["to"]["name"] for edge in json.loads(run("catalog", "lineage", "--json"))["edges"]} == {
        "late",
        "shop.late",
    }
    with pytest.raises(StreamRTError, match=r"application 'late' reads table 'shop.orders', .* may be running"):
        run("table", "drop", "shop.orders")
    assert run("catalog", "forget", "late") == "forgot late\n"
    assert run("catalog", "forget", "late") == "the catalogue knows no application late\n"
    assert run("table", "drop", "shop.orders") == "dropped shop.orders\n"
    assert run("table", "drop", "shop.orders", "--if-exists") == "there is no table shop.orders\n"


def test_changes_are_told_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "catalog.json").write_text(run("catalog", "export"))
    assert json.loads(run("table", "create", "orders", "id BIGINT", "--dry-run", "--json"))["dry_run"] is True
    made = json.loads(run("table", "create", "orders", "id BIGINT", "--json"))
    assert (made["name"], made["topic"], made["dry_run"]) == ("default.orders", "default.orders", False)
    altered = json.loads(run("table", "alter", "orders", "--add", "n INT", "--json"))
    assert (altered["version"], altered["schema_version"]) == (2, 2)
    dropped = {"table": "orders", "dropped": True, "deleted_data": False}
    assert json.loads(run("table", "drop", "orders", "--json")) == dropped
    assert json.loads(run("table", "drop", "orders", "--if-exists", "--json")) == {**dropped, "dropped": False}
    imported = run("catalog", "import", str(tmp_path / "catalog.json"), "--if-exists", "ignore", "--json")
    assert json.loads(imported) == {"imported": []}
    assert json.loads(run("catalog", "forget", "late", "--json")) == {"application": "late", "forgotten": False}


def test_a_catalogue_moves_through_a_file(run: Run, tmp_path: Path) -> None:
    run("table", "create", "shop.orders", "id BIGINT", "--create-database")
    exported = run("catalog", "export")
    (tmp_path / "catalog.json").write_text(exported)
    other = str(tmp_path / "other")
    assert run("catalog", "import", str(tmp_path / "catalog.json"), "--catalog", other) == "imported 2 objects\n"
    assert run("catalog", "export", "--catalog", other) == exported
    with pytest.raises(StreamRTError, match="nothing was imported"):
        run("catalog", "import", "-", "--catalog", other, input=exported)
    assert run("catalog", "import", "-", "--catalog", other, "--if-exists", "ignore", input=exported) == (
        "imported 0 objects\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "show", "nowhere"), r"there is no table 'default.nowhere'"),
        (("table", "list", "nowhere"), r"there is no database 'nowhere'"),
        (("table", "create", "t", "id FOO"), r"the schema 'id FOO' is no list of columns"),
        (("table", "drop", "nowhere", "--delete-data", "--yes"), "the address of a broker is missing"),
        (("catalog", "import", "/nowhere.json"), "cannot be read: No such file"),
        (("table", "create", "t", "id INT", "--format", "csv"), "there is no format 'csv' of rows"),
    ],
)
def test_what_fails_is_one_sentence(run: Run, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(StreamRTError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "create", "t", "--set", "x"),
        ("table", "alter", "t", "--widen", "x"),
        ("table", "create", "t", "--if-exists", "maybe"),
    ],
)
def test_wrong_options_are_refused(run: Run, arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(arguments)).exit_code == 2
