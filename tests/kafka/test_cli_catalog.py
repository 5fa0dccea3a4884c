"""`streamrt table` and `streamrt catalog` over the catalogue of a cluster, which is the default."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamrt.tables import Catalog
from tests.command_line import Outcome, streamrt
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def run(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command; the catalogue is in the cluster, whose address is in the environment."""
    monkeypatch.delenv("STREAMRT_CATALOG_DIR", raising=False)
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", kafka.address)
    return streamrt


@pytest.fixture
def database() -> str:
    return unique("shop").replace("-", "_")


@pytest.mark.rows("FL-035", "FL-037", "FL-038", "DK-042", "DK-090")
def test_tables_are_in_the_cluster(run: Any, kafka: Kafka, database: str) -> None:
    orders = f"{database}.orders"
    created: Outcome = run(
        *("table", "create", orders, "id BIGINT NOT NULL, customer STRING", "--create-database", "--partitions", 2),
        *("--key", "customer", "--set", "retention.ms=600000", "--property", "owner=ann", "--comment", "paid"),
    )
    assert created.out == f"created {orders}: topic {orders}\n"
    altered = run(
        *("table", "alter", orders, "--add", "n INT", "--topic-config", "retention.ms=1200000", "--property", "owner=")
    )
    assert altered.out == f"{orders} has version 2, with schema version 2\n"
    settings = kafka.admin.inspect_topics([orders])[orders]
    assert settings is not None
    assert (settings.num_partitions, settings.extra_config["retention.ms"]) == (2, "1200000")
    shown = run("table", "show", orders, "--json").json
    assert (shown["version"], shown["properties"], shown["num_partitions"]) == (2, {}, 2)
    # Programs see the same catalogue.
    with Catalog(kafka.address) as catalog:
        assert catalog.table(orders).schema.names == ("id", "customer", "n")
    listed = run("table", "list", database, "--json").json["tables"]
    assert [table["name"] for table in listed] == [orders]
    assert run("table", "write", orders, '{"id": 1, "customer": "ann", "n": 7}').out == f"wrote 1 row to {orders}\n"
    assert run("table", "scan", orders, "--format", "jsonl").lines == [{"id": 1, "customer": "ann", "n": 7}]
    assert "exists already" in run("table", "create", orders, "id INT").sentence
    assert run("table", "drop", orders, "--delete-data", "--yes").out == f"dropped {orders}\n"
    assert kafka.admin.inspect_topics([orders])[orders] is None
    assert "there is no table" in run("table", "show", orders).sentence


@pytest.mark.rows("DK-045")
def test_the_catalogue_is_copied_and_says_who_uses_tables(
    run: Any, kafka: Kafka, database: str, tmp_path: Path
) -> None:
    orders, group = f"{database}.orders", unique("late")
    assert run("table", "create", orders, "id BIGINT", "--create-database", "--partitions", 3).code == 0
    with Catalog(kafka.address) as catalog:
        catalog.record_usage(group, reads=[orders])
    graph = run("catalog", "lineage").out
    assert orders in graph
    assert group in graph
    edges = [(edge["from"]["name"], edge["to"]["name"]) for edge in run("catalog", "lineage", "--json").json["edges"]]
    assert (orders, group) in edges
    document = run("catalog", "export").json
    # Other tests have tables in the same cluster.
    document["objects"] = {name: each for name, each in document["objects"].items() if database in name}
    assert sorted(document["objects"]) == [f"database/{database}", f"table/{orders}"]
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps(document))
    assert "nothing was imported" in run("catalog", "import", file).sentence
    assert run("catalog", "forget", group).out == f"forgot {group}\n"
    assert run("table", "drop", orders, "--delete-data", "--yes").code == 0
    with Catalog(kafka.address) as catalog:
        catalog.drop_database(database)
    assert run("catalog", "import", file).out == "imported 2 objects\n"
    settings = kafka.admin.inspect_topics([orders])[orders]
    assert settings is not None
    assert settings.num_partitions == 3
    assert run("table", "show", orders, "--json").json["id"] == document["objects"][f"table/{orders}"]["id"]
