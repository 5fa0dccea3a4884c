"""Tables of materialized views: their owners, versions that are built next to them, and swaps."""

from dataclasses import replace
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import (
    ArgumentValueError,
    CatalogError,
    ConfigurationError,
    InvalidOperationError,
    SchemaError,
    SQLAnalysisError,
    StaleTokenError,
    TableNotFoundError,
)
from streamrt.schema import Schema
from streamrt.tables import Catalog, MemoryCatalog, Table
from streamrt.tables.access import topic_watch
from streamrt.testing.memory_topics import MemoryLinks

SCHEMA = Schema("customer STRING, total BIGINT, PRIMARY KEY (customer)")
WIDER = Schema("customer STRING, total BIGINT, n BIGINT, PRIMARY KEY (customer)")
ORDERS = (
    "CREATE TABLE IF NOT EXISTS shop.orders (id BIGINT NOT NULL, customer STRING, amount BIGINT, PRIMARY KEY (id));"
)
TOTALS = "MATERIALIZED VIEW shop.totals AS SELECT customer, sum(amount) AS total"
SWAP = "ALTER MATERIALIZED VIEW shop.totals SWAP WITH shop.totals_next"


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(store=MemoryCatalog(), links=MemoryLinks())
    made.create_database("shop")
    return made


def open_both(catalog: Catalog) -> tuple[Table, Table]:
    """Return the table of a view, and that of its next version, each with a row."""
    former = catalog.open_view("shop.totals", SCHEMA, "blue")
    former.upsert([{"customer": "ann", "total": 1}])
    catalog.claim_table("shop.totals", "blue")
    latter = catalog.open_view("shop.totals", WIDER, "green", replaces=True)
    Table(replace(latter.info, maintained_by=None), catalog).upsert([{"customer": "ann", "total": 1, "n": 1}])
    return catalog.table("shop.totals"), catalog.table("shop.totals_next")


def test_the_group_of_a_view_writes_its_rows_alone(catalog: Catalog) -> None:
    table = catalog.open_view("shop.totals", SCHEMA, "blue", comment="sums")
    assert not table.info.is_view
    catalog.claim_table("shop.totals", "blue")
    view = catalog.open_view("shop.totals", SCHEMA, "blue", replaces=True)
    assert view.info.is_view
    assert view.info.as_dict()["maintained_by"] == "blue"
    with pytest.raises(
        InvalidOperationError, match=r"group 'blue', whose materialized view.*OR REPLACE.*table release"
    ):
        catalog.open_view("shop.totals", SCHEMA, "green")
    with pytest.raises(InvalidOperationError, match=r"'green' cannot write its rows as well"):
        catalog.claim_table("shop.totals", "green")
    with pytest.raises(InvalidOperationError, match=r"those of a materialized view of consumer group 'blue'"):
        view.upsert([{"customer": "ann", "total": 1}])
    with pytest.raises(InvalidOperationError, match=r"those of a materialized view of consumer group 'blue'"):
        catalog.execute("INSERT INTO shop.totals VALUES ('ann', 1)")
    app = Application("unused:9092", consumer_group="green", catalog=catalog)
    with pytest.raises(InvalidOperationError, match=r"those of a materialized view of consumer group 'blue'"):
        app.dataframe(app.topic("in")).to_table("shop.totals")
    with pytest.raises(ConfigurationError, match="SWAP WITH gives it those of another view"):
        catalog.alter_table("shop.totals", topic="other")
    catalog.create_table("shop.totals", SCHEMA, comment="more", if_exists="replace")
    assert catalog.table("shop.totals").info.maintained_by == "blue"
    assert catalog.release_table("shop.totals") == "blue"
    catalog.claim_table("shop.totals", "green")
    assert catalog.table("shop.totals").info.maintained_by == "green"


def test_a_version_is_built_next_to_the_view(catalog: Catalog) -> None:
    config, properties = {"retention.ms": "-1"}, {"team": "x"}
    catalog.create_table("shop.totals", SCHEMA, num_partitions=3, config=config, properties=properties)
    catalog.claim_table("shop.totals", "blue")
    made = catalog.open_view("shop.totals", WIDER, "green", comment="with n", replaces=True)
    info = made.info
    assert (info.name, info.topic, info.maintained_by) == ("shop.totals_next", "shop.totals.2", "green")
    assert (info.num_partitions, info.comment, info.properties) == (3, "with n", {"team": "x"})
    assert info.config["retention.ms"] == "-1"
    # An instance of the same group, or its next start.
    assert catalog.open_view("shop.totals", WIDER, "green", replaces=True).info.id == info.id
    with pytest.raises(InvalidOperationError, match=r"would be 'shop.totals_next'.*consumer group 'green' has it"):
        catalog.open_view("shop.totals", SCHEMA, "red", replaces=True)
    # Without the owner, the view stays where it is built.
    catalog.release_table("shop.totals")
    assert catalog.open_view("shop.totals", WIDER, "green", replaces=True).info.id == info.id


def test_a_topic_with_records_is_not_taken(catalog: Catalog) -> None:
    former, _ = open_both(catalog)
    catalog.drop_table("shop.totals_next")
    with pytest.raises(InvalidOperationError, match=r"topic 'shop.totals.2'.* has records: delete it first"):
        catalog.open_view("shop.totals", SCHEMA, "green", replaces=True)
    catalog.create_table("shop.other", "id BIGINT", topic="shop.totals.2")
    with pytest.raises(InvalidOperationError, match=r"is that of table 'shop.other': delete it first"):
        catalog.open_view("shop.totals", SCHEMA, "green", replaces=True)
    assert former.info.topic == "shop.totals"


def test_two_views_exchange_their_tables(catalog: Catalog) -> None:
    former, latter = open_both(catalog)
    catalog.record_usage("blue", writes=["shop.totals"])
    catalog.record_usage("green", reads=["shop.totals"], writes=["shop.totals_next"])
    done = catalog.execute(SWAP)
    assert (done.statement, done.name, done.changed) == ("ALTER MATERIALIZED VIEW", "shop.totals", True)
    info = catalog.load("shop.totals")
    assert (info.topic, info.maintained_by, info.id) == ("shop.totals.2", "green", latter.info.id)
    assert info.schema == WIDER
    assert info.version > former.info.version
    other = catalog.load("shop.totals_next")
    assert (other.topic, other.maintained_by, other.schema) == ("shop.totals", "blue", SCHEMA)
    uses = {(usage.application, usage.kind) for usage in catalog.usages("shop.totals")}
    assert uses == {("green", "reads"), ("green", "writes")}
    assert catalog.open_view("shop.totals", WIDER, "green", replaces=True).name == "shop.totals"
    assert catalog.open_view("shop.totals", SCHEMA, "blue", replaces=True).name == "shop.totals_next"
    assert catalog.swap_views("shop.totals_next", "shop.totals").name == "shop.totals_next"
    assert catalog.load("shop.totals").id == former.info.id
    catalog.execute(SWAP)
    with pytest.raises(CatalogError, match=r"application 'blue' writes table 'shop.totals_next'"):
        catalog.drop_table("shop.totals_next")
    catalog.drop_table("shop.totals_next", delete_data=True, force=True)
    # The third version does not get the topic of the second one.
    assert catalog.open_view("shop.totals", SCHEMA, "red", replaces=True).info.topic == "shop.totals.3"


def test_what_is_not_swapped(catalog: Catalog) -> None:
    open_both(catalog)
    catalog.create_table("shop.plain", SCHEMA)
    with pytest.raises(InvalidOperationError, match=r"'shop.plain' is not that of a materialized view"):
        catalog.swap_views("shop.totals", "shop.plain")
    with pytest.raises(TableNotFoundError):
        catalog.swap_views("shop.totals", "shop.nothing")
    with pytest.raises(ArgumentValueError, match="needs two views"):
        catalog.swap_views("shop.totals", "shop.totals")
    catalog.claim_table("shop.plain", "blue")
    with pytest.raises(InvalidOperationError, match="are views of one consumer group, 'blue'"):
        catalog.swap_views("shop.totals", "shop.plain")
    for sql in ("ALTER MATERIALIZED VIEW shop.totals SWAP shop.b", "ALTER MATERIALIZED VIEW shop.totals RENAME TO b"):
        with pytest.raises(SchemaError, match="was expected"):
            catalog.execute(sql)


class Failing(MemoryCatalog):
    """A catalogue whose program ends at one of its changes.

    Args:
        left: number of changes that it makes before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        self._count()
        return super().put(key, value, expected)

    def delete(self, key: str, expected: str) -> None:
        self._count()
        super().delete(key, expected)

    def _count(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise CatalogError("the program has ended here")
            self.left -= 1


@pytest.mark.parametrize("left", range(4))
def test_a_swap_that_is_interrupted_has_happened_or_not(left: int) -> None:
    store = Failing()
    catalog = Catalog(store=store, links=MemoryLinks())
    catalog.create_database("shop")
    former, latter = open_both(catalog)
    store.left = left
    with pytest.raises(CatalogError, match="has ended here"):
        catalog.swap_views("shop.totals", "shop.totals_next")
    store.left = None
    has_happened = left >= 2
    assert catalog.load("shop.totals").id == (latter if has_happened else former).info.id
    if left == 2:
        # Both names have the new rows.
        assert catalog.load("shop.totals_next").id == latter.info.id
        catalog.create_table("shop.third", SCHEMA)
        catalog.claim_table("shop.third", "red")
        with pytest.raises(
            InvalidOperationError, match=r"a swap of 'shop.totals_next' and 'shop.totals' was interrupted"
        ):
            catalog.swap_views("shop.totals_next", "shop.third")
    if left < 3:
        catalog.swap_views("shop.totals_next", "shop.totals")
    names = ("shop.totals", "shop.totals_next")
    assert [catalog.load(name).id for name in names] == [latter.info.id, former.info.id]
    assert [catalog.load(name).maintained_by for name in names] == ["green", "blue"]
    catalog.swap_views(*names)
    assert [catalog.load(name).id for name in names] == [former.info.id, latter.info.id]


def test_columns_of_earlier_versions_go_along(catalog: Catalog) -> None:
    open_both(catalog)
    catalog.alter_table("shop.totals", add="note STRING")
    catalog.swap_views("shop.totals", "shop.totals_next")
    other = catalog.load("shop.totals_next")
    assert (other.schema_version, list(other.schema_history)) == (2, [1])
    assert other.schema_history[1] == SCHEMA


def test_readers_follow_or_end(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = open_both(catalog)
    stream = table.subscribe(start="earliest")
    replica = table.replica()
    assert [record.row["total"] for record in stream.poll(10)] == [1]
    assert table.get("ann") == replica.get("ann") == {"customer": "ann", "total": 1}
    catalog.execute(SWAP)
    new = {"customer": "ann", "total": 1, "n": 1}
    assert catalog.query("SELECT * FROM shop.totals").to_arrow().to_pylist() == [new]
    assert table.get("ann", fresh=True) == new
    assert list(catalog.table("shop.totals").scan().rows()) == [new]
    monkeypatch.setattr(topic_watch, "_TABLE_S", 0.0)
    with pytest.raises(StaleTokenError, match=r"'shop.totals' has another topic than 'shop.totals' now"):
        replica.get("ann", fresh=True)
    stream._refreshed_at = float("-inf")
    with pytest.raises(StaleTokenError, match="has another topic"), stream:
        stream.poll(10)
    replica.close()


def test_a_handle_scans_what_the_view_has_now(catalog: Catalog) -> None:
    table, _ = open_both(catalog)
    token = str(table.offsets())
    catalog.execute(SWAP)
    assert [row["n"] for row in table.scan().rows()] == [1]
    with pytest.raises(
        ArgumentValueError, match=r"the token is of topic shop.totals, and table 'shop.totals' has topic"
    ):
        table.scan(start=token)


def define(catalog: Catalog, group: str, view: str, **options: Any) -> Application:
    app = Application("unused:9092", consumer_group=group, catalog=catalog, **options)
    app.sql(f"{ORDERS} CREATE {view} FROM shop.orders GROUP BY customer")
    return app


def test_a_program_builds_its_view_until_the_swap_and_goes_on_with_it(catalog: Catalog) -> None:
    blue = define(catalog, "blue", TOTALS)
    blue._tables.claim_maintained()
    with pytest.raises(InvalidOperationError, match="write CREATE OR REPLACE MATERIALIZED VIEW"):
        define(catalog, "green", TOTALS)
    changed = f"OR REPLACE {TOTALS.replace('sum', 'max')}, count(*) AS n"
    with pytest.raises(
        SQLAnalysisError, match="write CREATE OR REPLACE MATERIALIZED VIEW in an application with another"
    ):
        define(catalog, "blue", changed, auto_offset_reset="earliest")
    with pytest.raises(ConfigurationError, match='auto_offset_reset="earliest"'):
        define(catalog, "green", changed)
    green = define(catalog, "green", changed, auto_offset_reset="earliest")
    green._tables.claim_maintained()
    assert green.view("shop.totals").table.name == "shop.totals_next"
    reader = Application("unused:9092", consumer_group="reader", catalog=catalog)
    reader.table("shop.totals").to_stream().to_topic(reader.topic("out"))
    assert reader._tables.find_moved() is None
    catalog.execute(SWAP)
    again = define(catalog, "green", changed, auto_offset_reset="earliest")
    again._tables.claim_maintained()
    assert again.view("shop.totals").table.name == "shop.totals"
    assert names_of_stores(again) == names_of_stores(green)
    assert define(catalog, "blue", TOTALS).view("shop.totals").table.name == "shop.totals_next"
    with pytest.raises(InvalidOperationError, match="write CREATE OR REPLACE MATERIALIZED VIEW"):
        define(catalog, "red", TOTALS)
    # Processes that run on may restart.
    blue._tables.claim_maintained()
    green._tables.claim_maintained()
    assert [catalog.load(name).maintained_by for name in ("shop.totals", "shop.totals_next")] == ["green", "blue"]
    moved = reader._tables.find_moved()
    assert moved is not None
    assert "table 'shop.totals' has topic 'shop.totals.2' now" in str(moved)
    catalog.drop_table("shop.totals", force=True)
    assert reader._tables.find_moved() is None


def names_of_stores(app: Application) -> set[tuple[str, str]]:
    topology = app._definition.topology
    return {(stream, store.name) for stream in topology.streams for store in topology.stores(stream)}


def test_a_program_neither_inserts_into_its_view_nor_swaps_it(catalog: Catalog) -> None:
    app = Application("unused:9092", consumer_group="blue", catalog=catalog)
    insert = "INSERT INTO shop.totals SELECT customer, amount AS total FROM shop.orders"
    app.sql(f"{ORDERS} CREATE {TOTALS} FROM shop.orders GROUP BY customer")
    with pytest.raises(SQLAnalysisError, match=r"shop.totals is a materialized view.*insert into its inputs"):
        app.sql(insert)
    with pytest.raises(SchemaError, match=r"line 2, column \d+.*would swap the views again"):
        app.sql(f"{ORDERS}\n{SWAP}")
    other = Application("unused:9092", consumer_group="other", catalog=catalog)
    with pytest.raises(SQLAnalysisError, match=r"shop.totals is a materialized view"):
        other.sql(f"{ORDERS} CREATE {TOTALS} FROM shop.orders GROUP BY customer; {insert}")
