"""`Catalog`: databases, tables, their changes and connections, over topics in memory."""

import copy
import datetime
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Catalog
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CatalogConflictError,
    CatalogError,
    ConfigurationError,
    DatabaseExistsError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    InvalidOperationError,
    SchemaError,
    SchemaEvolutionError,
    StreamRTError,
    TableExistsError,
    TableNotFoundError,
    TopicConfigurationError,
    TopicNotFoundError,
)
from streamrt.kafka import TopicConfig
from streamrt.schema import Schema
from streamrt.secret import SecretRef
from streamrt.tables import (
    HTTPSSE,
    AWSConnection,
    FileCatalog,
    KafkaCatalog,
    KafkaTopic,
    MemoryCatalog,
    SourceTable,
    SQSQueue,
)
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.topics import Topic
from tests.table_home import COLUMNS


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def catalog(links: MemoryLinks, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    # For all catalogues of a test.
    monkeypatch.setenv("STREAMRT_TABLES_ALLOW", "env:STREAMRT_* secret:env:STREAMRT_KEY@* connector:KinesisSource")
    made = Catalog(links=links)
    made.create_database("shop", comment="what we sell", properties={"owner": "ann"})
    return made


@pytest.mark.rows("FL-030", "FL-031", "FL-032", "FL-033", "FL-034", "FL-143", "FL-144")
def test_databases(catalog: Catalog) -> None:
    info = catalog.database("shop")
    assert (info.name, info.comment, info.properties, info.version) == ("shop", "what we sell", {"owner": "ann"}, 1)
    assert info.created_at.tzinfo is datetime.timezone.utc
    catalog.create_database("a")
    assert catalog.databases() == ["a", "default", "shop"]
    with pytest.raises(DatabaseExistsError, match="'shop' exists already"):
        catalog.create_database("shop")
    with pytest.raises(DatabaseExistsError):
        catalog.create_database("default")
    assert catalog.create_database("default", if_exists="ignore").name == "default"
    assert catalog.create_database("shop", if_exists="ignore") == info
    replaced = catalog.create_database("shop", comment="new", if_exists="replace")
    assert (replaced.comment, replaced.properties, replaced.version) == ("new", {}, 2)
    assert replaced.created_at == info.created_at
    catalog.drop_database("a")
    catalog.drop_database("a", missing="ignore")
    for fail in (catalog.drop_database, catalog.database, catalog.tables):
        with pytest.raises(DatabaseNotFoundError, match="there is no database 'a'"):
            fail("a")
    with pytest.raises(InvalidOperationError, match="is always there"):
        catalog.drop_database("default")
    catalog.create_table("shop.orders", COLUMNS)
    with pytest.raises(DatabaseNotEmptyError, match=r"has 1 tables, such as 'shop.orders'"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert catalog.tables() == []
    assert catalog.databases() == ["default"]


@pytest.mark.rows(
    "FL-024", "FL-035", "FL-037", "FL-054", "FL-055", "FL-056", "FL-116", "FL-118", "FL-120", "FL-123", "FE-013"
)
@pytest.mark.rows("FL-124", "FL-126", "FL-127", "FL-129", "FL-130", "FL-131", "FL-132", "FL-133", "FL-136", "FL-141")
@pytest.mark.rows("FL-125", "FL-140", "FL-179", "DK-090")
@pytest.mark.rows("DK-001", "DK-003", "DK-004", "DK-031", "DK-032", "DK-033", "DK-034", "DK-036", "DK-080", "DK-081")
def test_a_table_is_what_was_said_of_it(catalog: Catalog, links: MemoryLinks) -> None:
    made = catalog.create_table(
        "shop.orders",
        COLUMNS + ", note STRING COMMENT 'PII'",
        time="at",
        key=["customer"],
        num_partitions=4,
        config={"retention.ms": "60000"},
        comment="paid orders",
        properties={"team": "a"},
    )
    assert links.admin().inspect_topics(["shop.orders"])["shop.orders"] == TopicConfig(4, 1, {"retention.ms": "60000"})
    table = catalog.table("shop.orders")
    assert table.info == made.info
    info = table.info
    assert (table.name, table.kind, info.database, info.table) == ("shop.orders", "log", "shop", "orders")
    assert (info.connector, info.topic, info.num_partitions, info.format) == ("kafka", "shop.orders", 4, "json")
    assert (info.key, info.schema_version, info.version, info.comment) == (("customer",), 1, 1, "paid orders")
    assert (info.config, info.properties) == ({"retention.ms": "60000"}, {"team": "a"})
    assert table.schema == Schema(COLUMNS + ", note STRING COMMENT 'PII'", time="at")
    assert [name for name in table.schema.names if (table.schema.column(name) or {})["comment"] == "PII"] == ["note"]
    assert info.as_dict()["schema"]["columns"][2]["default"] == "0.00"
    assert info.location() == {
        "table": "shop.orders",
        "connector": "kafka",
        "connection": None,
        "topic": "shop.orders",
    }
    # Another one of the same name is another one.
    catalog.drop_table("shop.orders")
    assert catalog.create_table("shop.orders").info.id != info.id


@pytest.mark.rows("FL-036", "FL-038", "FL-039", "DK-030", "DK-040", "DK-041", "DK-043", "DK-093", "DK-094", "FE-002")
def test_tables_are_listed_created_once_and_dropped(catalog: Catalog, links: MemoryLinks) -> None:
    first = catalog.create_table("shop.orders", COLUMNS)
    catalog.create_table("rides")
    assert catalog.tables() == ["default.rides", "shop.orders"]
    assert catalog.tables("shop") == ["shop.orders"]
    assert [info.name for info in catalog.infos()] == ["default.rides", "shop.orders"]
    assert "shop.orders" in catalog
    assert "rides" in catalog
    assert "shop.none" not in catalog
    assert "a.b.c" not in catalog
    with pytest.raises(TableExistsError, match=r"'shop.orders' exists already"):
        catalog.create_table("shop.orders")
    assert catalog.create_table("shop.orders", "x INT", if_exists="ignore").info.id == first.info.id
    replaced = catalog.create_table("shop.orders", "x INT", if_exists="replace")
    assert (replaced.schema.names, replaced.info.id != first.info.id) == (("x",), True)
    with pytest.raises(DatabaseNotFoundError):
        catalog.create_table("nowhere.orders")
    catalog.drop_table("shop.orders")
    assert links.admin().topic_ids(["shop.orders"])["shop.orders"] is not None
    catalog.drop_table("shop.orders", missing="ignore")
    for fail in (catalog.drop_table, catalog.table, catalog.usages, catalog.load):
        with pytest.raises(TableNotFoundError, match=r"there is no table 'shop.orders'"):
            fail("shop.orders")
    with pytest.raises(SchemaError, match="has no schema"):
        _ = catalog.table("rides").schema
    catalog.drop_table("rides", delete_data=True)
    assert links.admin().topic_ids(["default.rides"])["default.rides"] is None


@pytest.mark.rows("DK-091")
def test_a_dry_run_checks_and_creates_nothing(catalog: Catalog, links: MemoryLinks) -> None:
    assert catalog.create_table("shop.orders", COLUMNS, dry_run=True).info.topic == "shop.orders"
    assert catalog.tables() == []
    assert links.admin().topic_ids(["shop.orders"])["shop.orders"] is None
    with pytest.raises(SchemaError):
        catalog.create_table("shop.orders", "id FOO", dry_run=True)


def test_a_primary_key_is_the_key_and_the_topic_is_compacted(catalog: Catalog, links: MemoryLinks) -> None:
    table = catalog.create_table("shop.customers", "region STRING, id BIGINT, n INT, PRIMARY KEY (region, id)")
    assert (table.kind, table.info.key) == ("primary-key", ("region", "id"))
    found = links.admin().inspect_topics(["shop.customers"])["shop.customers"]
    assert found is not None
    assert found.extra_config == {"cleanup.policy": "compact"}
    with pytest.raises(TopicConfigurationError, match=r"cleanup.policy=delete would delete rows"):
        catalog.create_table("shop.x", "id INT, PRIMARY KEY (id)", config={"cleanup.policy": "delete"})
    links.admin().create_topics([Topic("plain", TopicConfig(1, 1))])
    with pytest.raises(TopicConfigurationError, match="would lose rows of the primary-key table"):
        catalog.create_table("shop.x", "id INT, PRIMARY KEY (id)", topic="plain")
    assert catalog.tables("shop") == ["shop.customers"]


def test_deletions_stay_long_enough_to_be_seen(catalog: Catalog, links: MemoryLinks) -> None:
    schema = "id INT, PRIMARY KEY (id)"
    why = r" has delete.retention.ms=59999, so brokers would drop deletions .*: set at least 60000"
    with pytest.raises(TopicConfigurationError, match=rf"^create_table\(config=...\){why}"):
        catalog.create_table("shop.x", schema, config={"delete.retention.ms": "59999"})
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "59999"}
    links.admin().create_topics([Topic("short", TopicConfig(1, 1, settings))])
    with pytest.raises(TopicConfigurationError, match=f"^topic short{why}"):
        catalog.create_table("shop.x", schema, topic="short")
    assert catalog.create_table("shop.x", schema, config={"delete.retention.ms": "60000"}).kind == "primary-key"
    with pytest.raises(TopicConfigurationError, match=f"^the topic of table 'shop.x'{why}"):
        catalog.alter_table("shop.x", config={"delete.retention.ms": "59999"})
    # Log tables have no deletions.
    catalog.create_table("shop.y", "id INT", config={"delete.retention.ms": "1"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"merge": "sum"}, r"create_table\(merge=...\) must be 'last', 'first', Versioned"),
        ({"maintained": True}, "has no primary key, and only a table with a primary key on Kafka is maintained"),
        ({"format": "csv"}, "there is no format 'csv' of rows"),
        ({"format": 5}, "must be a name or a RowFormat"),
        ({"key": ["nothing"]}, "there is no column 'nothing'"),
        ({"key": "id"}, r"must be a list of names, such as \['id'\]"),
        ({"key": ["id"], "schema": None}, "needs a schema"),
        ({"key": ["ok"], "schema": "ok DOUBLE"}, "cannot be in the key"),
        ({"key": ["ok"], "schema": "id INT, ok INT, PRIMARY KEY (id)"}, "the key of a table with a primary key is"),
        ({"time": "customer"}, "cannot be the event time"),
        ({"time": "at", "schema": None}, "needs a schema with this column"),
        ({"topic": "a/b"}, "cannot be the name of a topic"),
        ({"topic": "_streamrt_catalog"}, "cannot be the name of a topic"),
        ({"topic": "${STAGE}.x"}, r"has the variable \$\{STAGE\}: variables are \$\{env:NAME\}"),
        ({"topic": "${env:STREAMRT_NO_SUCH}"}, "the environment variable STREAMRT_NO_SUCH is not set"),
        ({"topic": "x", "connector": KafkaTopic("x")}, "a topic and a connector"),
        ({"connection": "aws"}, "is not there yet for topics"),
        ({"connector": SQSQueue("q", "nowhere")}, "has no connection 'nowhere'"),
        ({"connector": HTTPSSE("https://x/y"), "num_partitions": 2}, "concerns topics"),
        ({"num_partitions": 2**63}, r"num_partitions=\.\.\.\) must be 999,999 or less"),
        ({"connector": HTTPSSE("https://x/y"), "connection": "aws"}, "has no option 'connection'"),
        ({"connector": object()}, "must be a Connector"),
        ({"config": {"retention.ms": 5}}, "must be a mapping of texts to texts"),
        ({"if_exists": "maybe"}, "if_exists must be 'error', 'ignore', 'replace'"),
        ({"schema": "id FOO"}, "cannot be read as columns"),
    ],
)
def test_what_cannot_be_is_refused_by_name(catalog: Catalog, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamRTError, match=message):
        catalog.create_table("shop.orders", **{"schema": COLUMNS, **arguments})
    assert catalog.tables() == []


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a.b.c", "a b", "-a", "ä", "x" * 101, "a/b", "a\n"])
def test_names_are_checked(catalog: Catalog, name: str) -> None:
    with pytest.raises(ArgumentValueError, match="cannot be the name of a"):
        catalog.create_table(name)
    with pytest.raises(ArgumentValueError, match="cannot be the name of a"):
        catalog.create_database(name)


@pytest.mark.rows("DK-005", "DK-006", "DK-042", "DK-044", "DK-083")
def test_schemas_change_by_versions(catalog: Catalog) -> None:
    table = catalog.create_table("shop.orders", "id INT, name STRING", key=["id"])
    info = catalog.alter_table("shop.orders", add="n BIGINT COMMENT 'PII'", drop=["name"])
    assert (info.schema_version, info.version, info.schema_history[1].names) == (2, 2, ("id", "name"))
    assert table.refresh().schema_version == 2
    # A dropped name with another type would read old rows wrongly, although the last schema does not have it.
    with pytest.raises(SchemaEvolutionError, match="column 'name' changes from STRING to INT"):
        catalog.alter_table("shop.orders", add=[{"name": "name", "type": "INT"}])
    with pytest.raises(SchemaEvolutionError, match="column 'id' of the key changes its type"):
        catalog.alter_table("shop.orders", widen={"id": "BIGINT"})
    with pytest.raises(SchemaEvolutionError, match="column 'id' is in the key"):
        catalog.alter_table("shop.orders", drop=["id"], force=True)
    with pytest.raises(SchemaEvolutionError, match="'m' is new, and rows without it"):
        catalog.alter_table("shop.orders", add="m INT NOT NULL")
    with pytest.raises(SchemaEvolutionError, match="cannot add one"):
        catalog.alter_table("shop.orders", schema="id INT, PRIMARY KEY (id)")
    for change in ({"drop": ["nothing"]}, {"widen": {"nothing": "INT"}}, {"add": "id INT"}):
        with pytest.raises(SchemaError):
            catalog.alter_table("shop.orders", **change)
    assert catalog.alter_table("shop.orders").version == 2
    # By the handle, in the forms of other systems.
    table.set_schema({"columns": [{"name": "id", "type": "int"}, {"name": "n", "type": "bigint", "comment": "PII"}]})
    assert table.info.schema_version == 2
    table.set_schema(Schema("id INT, n BIGINT, at TIMESTAMP", time="at"))
    table.set_schema([{"name": "id", "type": "INT"}])
    with pytest.raises(SchemaEvolutionError):
        table.set_schema("id INT, at STRING")
    table.set_schema("id INT, at STRING", force=True)
    # Since then, only what was written afterwards is to be readable.
    assert table.info.readable_from == table.info.schema_version == 5
    table.set_schema("id INT, at STRING, n STRING")
    out = catalog.create_table("shop.copy")
    out.set_schema(table.schema)
    assert (out.schema, out.info.schema_version) == (table.schema, 1)


@pytest.mark.rows("DK-084", "DK-085", "DK-086")
def test_other_things_of_a_table_change(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", COLUMNS, properties={"a": "1", "b": "2"})
    info = catalog.alter_table("shop.orders", comment="new", properties={"a": None, "c": "3"})
    assert (info.comment, info.properties, info.version) == ("new", {"b": "2", "c": "3"}, 2)
    assert catalog.alter_table("shop.orders", comment="").comment is None
    with pytest.raises(CatalogConflictError, match="has version 3 and not 1"):
        catalog.alter_table("shop.orders", comment="x", expect=1)
    assert catalog.alter_table("shop.orders", topic="orders-2", expect=3).topic == "orders-2"
    with pytest.raises(ConfigurationError, match="is a topic"):
        catalog.alter_table("shop.orders", url="https://x")
    catalog.create_table("shop.rides", "id INT", connector=HTTPSSE("https://one/x"))
    assert catalog.alter_table("shop.rides", url="https://two/x").options == {"url": "https://two/x"}
    # A connection is that of another system: each cluster of Kafka has a catalogue.
    for name in ("one", "two"):
        catalog.add_connection(name, AWSConnection(region=f"region-{name}"))
    jobs = catalog.create_table("shop.jobs", "id INT", connector=SQSQueue("jobs", connection="one"))
    info = catalog.alter_table("shop.jobs", connection="two")
    assert (info.connection, info.version) == ("two", jobs.info.version + 1)
    assert catalog.connector(catalog.load("shop.jobs")) == SQSQueue("jobs", connection="two")
    catalog.drop_connection("one")
    with pytest.raises(CatalogError, match=r"in use by table 'shop.jobs'"):
        catalog.drop_connection("two")
    with pytest.raises(ConfigurationError, match=r"no connection 'three'"):
        catalog.alter_table("shop.jobs", connection="three")
    with pytest.raises(
        ConfigurationError, match=r"topics are in the cluster of the catalogue: .* another cluster has a Catalog"
    ):
        catalog.alter_table("shop.orders", connection="two")
    with pytest.raises(ConfigurationError, match=r"has no option 'connection'"):
        catalog.alter_table("shop.rides", connection="two")
    with pytest.raises(ConfigurationError, match="has no option 'topic'"):
        catalog.alter_table("shop.rides", topic="x")
    with pytest.raises(TableNotFoundError):
        catalog.alter_table("shop.none", comment="x")


def test_settings_of_a_topic_change(catalog: Catalog, links: MemoryLinks) -> None:
    catalog.create_table("shop.orders", COLUMNS, config={"retention.ms": "60000", "segment.ms": "1000"})
    info = catalog.alter_table("shop.orders", config={"retention.ms": "120000", "segment.ms": None})
    found = links.admin().inspect_topics(["shop.orders"])["shop.orders"]
    assert found is not None
    assert info.config == found.extra_config == {"retention.ms": "120000"}
    wrong: Any = {"retention.ms": 5}
    with pytest.raises(ArgumentTypeError, match="texts as names and values"):
        catalog.alter_table("shop.orders", config=wrong)
    catalog.create_table("shop.keyed", "id INT, PRIMARY KEY (id)")
    with pytest.raises(
        TopicConfigurationError, match=r"needs cleanup\.policy=compact: with delete, it would lose rows"
    ):
        catalog.alter_table("shop.keyed", config={"cleanup.policy": "delete"})
    catalog.create_table("shop.rides", "id INT", connector=HTTPSSE("https://one/x"))
    with pytest.raises(ConfigurationError, match="has no topic of its own"):
        catalog.alter_table("shop.rides", config={"retention.ms": "1"})
    links.admin().delete_topics(["shop.orders"])
    with pytest.raises(TopicNotFoundError, match=r"topic 'shop\.orders' of table 'shop\.orders' does not exist"):
        catalog.alter_table("shop.orders", config={"retention.ms": "1"})


@pytest.mark.rows("DK-084")
def test_changes_at_once_are_all_kept(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", "id INT")
    errors: list[BaseException] = []

    def work(number: int) -> None:
        while True:
            try:
                catalog.alter_table("shop.orders", add=f"c{number} INT")
            except CatalogConflictError:
                continue
            except BaseException as error:
                errors.append(error)
            return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(catalog.table("shop.orders").schema.names) == ["c0", "c1", "c2", "c3", "id"]
    assert catalog.load("shop.orders").version == 5


@pytest.mark.rows("DK-085", "DK-096")
def test_topics_have_variables_and_are_adopted(
    catalog: Catalog, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    links.admin().create_topics([Topic("test.orders", TopicConfig(2, 1))])
    for number in range(10):
        links.sender().produce("test.orders", b"{}", b"same", partition=number % 2)
    monkeypatch.setenv("STREAMRT_STAGE", "test")
    with caplog.at_level(logging.WARNING, "streamrt.tables"):
        table = catalog.create_table(
            "shop.orders", COLUMNS, topic="${env:STREAMRT_STAGE}.orders", key=["customer"], num_partitions=3
        )
    assert (table.info.topic, table.info.num_partitions) == ("test.orders", 2)
    assert table.info.options == {"topic": "${env:STREAMRT_STAGE}.orders"}
    assert "num_partitions declared 3, actual 2" in caplog.text
    assert "5 of 10 records of topic test.orders lie in other partitions" in caplog.text
    # A process without the variable sees it in lists, and cannot use it.
    monkeypatch.delenv("STREAMRT_STAGE")
    assert catalog.infos()[0].topic == "${env:STREAMRT_STAGE}.orders"
    with pytest.raises(ConfigurationError, match="the environment variable STREAMRT_STAGE is not set"):
        catalog.table("shop.orders")


def test_data_that_two_tables_share_is_not_deleted_with_one(catalog: Catalog, links: MemoryLinks) -> None:
    catalog.create_table("shop.a", topic="same")
    catalog.create_table("shop.b", topic="same")
    with pytest.raises(InvalidOperationError, match=r"is the topic of table 'shop.b', too"):
        catalog.drop_table("shop.a", delete_data=True)
    catalog.drop_table("shop.a")
    catalog.drop_table("shop.b", delete_data=True)
    assert links.admin().topic_ids(["same"])["same"] is None


@pytest.mark.rows("DK-002", "DK-033", "DK-035", "DK-082", "DK-092", "DK-095")
def test_tables_of_other_systems(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.add_connection("aws", AWSConnection(region="eu-west-1", secret_access_key=SecretRef.env("STREAMRT_KEY")))
    jobs = catalog.create_table("shop.jobs", "id STRING", connector=SQSQueue("jobs"), connection="aws")
    assert (jobs.kind, jobs.info.connector, jobs.info.connection, jobs.info.topic) == ("external", "sqs", "aws", None)
    assert catalog.connector(catalog.load("shop.jobs")) == SQSQueue("jobs", "aws")
    monkeypatch.setenv("STREAMRT_HOST", "rides.example")
    rides = catalog.create_table(
        "shop.rides", connector=HTTPSSE("https://${env:STREAMRT_HOST}/x", auth=SecretRef.env("STREAMRT_KEY"))
    )
    assert catalog.connector(rides.info) == HTTPSSE("https://rides.example/x", auth=SecretRef.env("STREAMRT_KEY"))
    source = SourceTable("KinesisSource", {"stream_name": "s", "aws_secret_access_key": SecretRef.env("STREAMRT_KEY")})
    clicks = catalog.create_table("shop.clicks", connector=source)
    assert catalog.connector(clicks.info) == source
    assert clicks.info.location()["arguments"]["aws_secret_access_key"] == "env:STREAMRT_KEY"
    with pytest.raises(InvalidOperationError, match="is in another system"):
        _ = jobs.topic
    with pytest.raises(InvalidOperationError, match="are in another system: delete them there"):
        catalog.drop_table("shop.jobs", delete_data=True)

    # Secrets are found by those who use them, and nowhere else.
    connection = catalog.connection("aws")
    with pytest.raises(ConfigurationError, match="STREAMRT_KEY with a secret is not set"):
        connection.resolve()
    monkeypatch.setenv("STREAMRT_KEY", "sesame")
    secret = connection.resolve()["secret_access_key"]
    assert not isinstance(secret, str)
    assert secret.reveal() == "sesame"
    assert rides.info.location()["auth"] == "env:STREAMRT_KEY"
    assert rides.info.location(sensitive=True)["auth"] == "sesame"
    assert "sesame" not in f"{connection!r} {rides.info!r} {catalog.export()!r} {secret!r}"

    assert catalog.connections() == ["aws"]
    with pytest.raises(CatalogError, match=r"in use by table 'shop.jobs'"):
        catalog.drop_connection("aws")
    with pytest.raises(CatalogError, match="exists already"):
        catalog.add_connection("aws", AWSConnection())
    catalog.add_connection("aws", AWSConnection(region="us-east-1"), if_exists="replace")
    assert catalog.connection("aws") == AWSConnection(region="us-east-1")
    catalog.drop_table("shop.jobs")
    catalog.drop_connection("aws")
    assert catalog.connections() == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: HTTPSSE("https://ann:sesame@rides.example/"),
        lambda: HTTPSSE("https://rides.example/?api_key=sesame"),
        lambda: HTTPSSE("https://rides.example/", headers={"Authorization": "Bearer sesame"}),
        lambda: HTTPSSE("https://rides.example/", auth="sesame"),  # type: ignore[arg-type]
        lambda: HTTPSSE("file:///sesame"),
        lambda: AWSConnection(secret_access_key="sesame"),  # type: ignore[arg-type]
        lambda: SourceTable("KinesisSource", {"aws_secret_access_key": "sesame"}).options(),
        lambda: SourceTable("KinesisSource", {"nested": {"password": "sesame"}}).options(),
        lambda: SourceTable("KinesisSource", {"callback": print}).options(),
        lambda: SQSQueue("sesame", wait_time_s=21),
        lambda: SecretRef.parse("sesame"),
    ],
)
def test_secrets_are_refused_and_not_shown(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert "sesame" not in str(caught.value)


@pytest.mark.rows("FL-025", "FL-026")
def test_a_closed_catalogue_says_so(links: MemoryLinks) -> None:
    with Catalog(links=links) as catalog:
        table = catalog.create_table("orders", "id INT")
    catalog.close()
    for use in (catalog.databases, catalog.tables, table.refresh, table.usages, catalog.export, catalog.brokers):
        with pytest.raises(InvalidOperationError, match="the catalogue is closed"):
            use()
    with pytest.raises(ZeroDivisionError), Catalog(links=links):
        _ = 1 / 0


def test_a_catalogue_without_a_broker_describes_tables(tmp_path: Any) -> None:
    with Catalog(store=FileCatalog(tmp_path)) as catalog:
        catalog.create_table("orders", COLUMNS, num_partitions=4)
    with Catalog(store=FileCatalog(tmp_path)) as catalog:
        assert catalog.table("orders").info.num_partitions == 4
        with pytest.raises(InvalidOperationError, match="has no broker"):
            _ = catalog.links
        with pytest.raises(InvalidOperationError, match="has no broker"):
            catalog.drop_table("orders", delete_data=True)
        assert "orders" in catalog
    with pytest.raises(ConfigurationError, match="needs the address of a broker"):
        Catalog()
    with pytest.raises(InvalidOperationError, match="needs the address of a broker"):
        Catalog(store=KafkaCatalog())
    with pytest.raises(ConfigurationError, match="an address of a broker and links"):
        Catalog("localhost:9092", links=KafkaLinks("localhost:9092"))


def test_an_exported_catalogue_is_imported_with_its_topics(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", COLUMNS, num_partitions=3)
    catalog.add_connection("aws", AWSConnection(region="eu-west-1"))
    catalog.alter_table("shop.orders", add="n INT")
    document = catalog.export()
    links = MemoryLinks()
    other = Catalog(links=links, store=MemoryCatalog())
    assert other.import_objects(document) == ["database/shop", "connection/aws", "table/shop.orders"]
    assert other.export() == document
    assert links.admin().inspect_topics(["shop.orders"])["shop.orders"] == TopicConfig(3, 1)
    with pytest.raises(CatalogError, match="nothing was imported"):
        other.import_objects(document)
    assert other.import_objects(document, if_exists="ignore") == []
    assert len(other.import_objects(document, if_exists="replace")) == 3
    damaged: Any
    hostile: Any = copy.deepcopy(document)
    hostile["objects"]["table/shop.orders"]["num_partitions"] = 2**31
    for damaged in ({}, {"v": 1}, {"v": 2, "objects": {}}, {"v": 1, "objects": {"view/x": {}}}, [], hostile):
        with pytest.raises(CatalogError):
            other.import_objects(damaged)


def test_errors_say_whether_the_same_call_may_succeed() -> None:
    assert CatalogConflictError("x").retriable
    assert not TableNotFoundError("x").retriable


class _Racing(MemoryCatalog):
    """A catalogue in which something happens before one kind of change."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], object]] = {}

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        self.before.pop(f"put {key}", lambda: None)()
        return super().put(key, value, expected)

    def delete(self, key: str, expected: str) -> None:
        self.before.pop(f"delete {key}", lambda: None)()
        super().delete(key, expected)


def test_no_table_is_left_without_its_database() -> None:
    store = _Racing()
    catalog = Catalog(store=store)
    catalog.create_database("shop", comment="c")
    store.before = {"delete database/shop": lambda: catalog.create_table("shop.late")}
    with pytest.raises(DatabaseNotEmptyError, match=r"has the new table 'shop.late'"):
        catalog.drop_database("shop")
    assert (catalog.tables("shop"), catalog.database("shop").comment) == (["shop.late"], "c")
    store.before = {"delete database/shop": lambda: catalog.create_table("shop.later")}
    catalog.drop_database("shop", cascade=True)
    assert (catalog.tables(), catalog.databases()) == ([], ["default"])
    catalog.create_database("shop")
    store.before = {"put table/shop.late": lambda: catalog.drop_database("shop")}
    with pytest.raises(DatabaseNotFoundError):
        catalog.create_table("shop.late")
    assert catalog.tables() == []


def test_a_table_that_another_program_changed_is_not_dropped() -> None:
    store = _Racing()
    catalog = Catalog(store=store)
    catalog.create_table("orders", "id INT")
    store.before = {"delete table/default.orders": lambda: catalog.alter_table("orders", comment="new")}
    with pytest.raises(CatalogConflictError, match=r"table 'default.orders' was changed by another program"):
        catalog.drop_table("orders")
    store.before = {"put table/default.rides": lambda: catalog.create_table("rides", if_exists="ignore")}
    with pytest.raises(TableExistsError):
        catalog.create_table("rides")
