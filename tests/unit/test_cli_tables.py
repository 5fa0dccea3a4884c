"""`streamrt table` and `streamrt catalog`, over a catalogue in files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamrt.cli import app
from streamrt.errors import StreamRTError
from streamrt.secret import SecretRef
from streamrt.tables import HTTPSSE, AWSConnection, Catalog, FileCatalog, SourceTable, SQSQueue
from tests.command_line import CliRunner

Run = Callable[..., str]
SOURCE = ("table", "create", "t", "id INT", "--connector", "source", "--connector-option", "source=RateSource")


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


def test_a_maintained_table(run: Run) -> None:
    columns = "id BIGINT, n BIGINT, at TIMESTAMP, PRIMARY KEY (id)"
    rules = ("--merge", "sequence_groups(at: n)", "--deletes", "refuse", "--ttl", "36h", "--changelog")
    run("table", "create", "totals", columns, *rules)
    run("table", "create", "others", columns, "--maintained")
    shown = run("table", "show", "totals")
    for part in ("primary-key, maintained", "sequence_groups(at: n)", "refuse", "36h", "default.totals$changelog"):
        assert part in shown
    assert "default.totals.requests" in shown
    assert json.loads(run("table", "show", "totals", "--json"))["maintenance"] == {
        "merge": {"sequence_groups": {"at": ["n"]}},
        "deletes": "refuse",
        "changelog": True,
        "ttl_ms": 129_600_000,
    }
    assert "_change_type" in run("table", "show", "totals$changelog")
    assert "primary-key, maintained" in run("table", "list")
    with pytest.raises(StreamRTError, match="a rule must be last, first"):
        run("table", "create", "wrong", columns, "--merge", "newest")


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


def test_settings_of_formats_keys_and_properties(run: Run) -> None:
    run(
        *("table", "create", "orders", "id INT, name STRING", "--key", "id", "--key-format", "int"),
        *("--format", "avro", "--format-option", "name=shop.Order", "--format-option", "auto_register=false"),
        *("--property", "owner=ann", "--property", "empty="),
    )
    made = json.loads(run("table", "show", "orders", "--json"))
    assert (made["format"], made["key_format"]) == ("avro", "int")
    assert (made["format_options"]["name"], made["format_options"]["auto_register"]) == ("shop.Order", False)
    assert made["properties"] == {"owner": "ann", "empty": ""}
    assert run("table", "alter", "orders", "--property", "owner=", "--property", "team=b") == (
        "default.orders has version 2, with schema version 1\n"
    )
    assert json.loads(run("table", "show", "orders", "--json"))["properties"] == {"empty": "", "team": "b"}
    run("table", "create", "events", "id INT")
    assert run("table", "alter", "events", "--schema", "id BIGINT, n INT DEFAULT 1") == (
        "default.events has version 2, with schema version 2\n"
    )
    assert str(json.loads(run("table", "show", "events", "--json"))["schema"]["columns"][0]["type"]) == "BIGINT"


def test_tables_of_other_systems(run: Run, tmp_path: Path) -> None:
    with Catalog(store=FileCatalog(tmp_path / "catalog")) as catalog:
        for name in ("one", "two"):
            catalog.add_connection(name, AWSConnection(region=name))
    assert run(
        *("table", "create", "rides", "id INT", "--connector", "http-sse", "--connector-option", "auth=env:TOKEN"),
        *("--connector-option", "url=https://rides.example/x", "--connector-option", "headers.X-Version=5"),
    ) == ("created default.rides: connector http-sse\n")
    run(
        *("table", "create", "jobs", "id INT", "--connector", "sqs", "--connection", "one"),
        *("--connector-option", "name=jobs", "--connector-option", "fifo=true"),
    )
    run("table", "alter", "jobs", "--connection", "two")
    run("table", "alter", "rides", "--url", "https://rides.example/y")
    run(
        *("table", "create", "clicks", "id INT", "--connector", "source", "--connector-option", "source=KinesisSource"),
        *(
            "--connector-option",
            "arguments.stream_name=clicks",
            "--connector-option",
            "arguments.auth.token=file:/run/t",
        ),
        *("--connector-option", "arguments.shards=3", "--connector-option", 'arguments.ids=["a", "b"]'),
    )
    with Catalog(store=FileCatalog(tmp_path / "catalog")) as catalog:
        rides = HTTPSSE("https://rides.example/y", headers={"X-Version": "5"}, auth=SecretRef.env("TOKEN"))
        assert catalog.connector(catalog.load("rides")) == rides
        assert catalog.connector(catalog.load("jobs")) == SQSQueue("jobs", connection="two", fifo=True)
        arguments = {
            "stream_name": "clicks",
            "shards": 3,
            "ids": ["a", "b"],
            "auth": {"token": SecretRef.file("/run/t")},
        }
        assert catalog.connector(catalog.load("clicks")) == SourceTable("KinesisSource", arguments)
    assert "file:/run/t" in run("table", "show", "clicks")


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
        (("table", "create", "t", "id FOO"), r"the schema 'id FOO' cannot be read as columns"),
        (("table", "drop", "nowhere", "--delete-data", "--yes"), "the address of a broker is missing"),
        (("catalog", "import", "/nowhere.json"), "cannot be read: No such file"),
        (("table", "create", "t", "id INT", "--format", "csv"), "there is no format 'csv' of rows"),
        (
            ("table", "create", "t", "id INT", "--connector", "csv"),
            "there is no connector 'csv'; there are kafka, http-sse",
        ),
        (
            (*SOURCE, "--connector-option", "arguments.password=sesame"),
            r"'arguments.password' of 'source' names a secret: a reference to a secret is env:NAME or file:PATH",
        ),
        (
            (*SOURCE, "--connector-option", "arguments.a=1", "--connector-option", "arguments.a.b=1"),
            "a value and a mapping",
        ),
        ((*SOURCE, "--connector-option", "arguments.a..b=1"), "has no name"),
        ((*SOURCE, "--connector-option", "rate.a=1"), r"the connector 'source' has no option 'rate.a'"),
        (("table", "create", "t", "id INT", "--connection", "aws"), "not there yet for topics"),
        (("table", "create", "t", "id INT", "--key-format", "xml", "--key", "id"), "there is no format 'xml' of keys"),
        (("table", "create", "t", "id INT", "--format-option", "x=1"), "the format 'json' has no option 'x'"),
    ],
)
def test_what_fails_is_one_sentence(run: Run, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(StreamRTError, match=message) as error:
        run(*arguments)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "create", "t", "--set", "x"),
        ("table", "alter", "t", "--widen", "x"),
        ("table", "create", "t", "--if-exists", "maybe"),
        ("table", "create", "t", "--connector-option", "url=x"),
        ("table", "create", "t", "--property", "x"),
        ("table", "create", "t", "--set", "x=1", "--set", "x=2"),
        ("table", "alter", "t", "--property", "=x"),
    ],
)
def test_wrong_options_are_refused(run: Run, arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(arguments)).exit_code == 2
