"""Lookups by key in tables: keys, prefixes, what has been written, and where keys lie."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    LookupTimeoutError,
    SchemaMismatchError,
    SerializationError,
    StaleTokenError,
    TopicNotFoundError,
)
from streamrt.kafka.partitioner import partition_for
from streamrt.kafka.reading.input_reader import InputBatch
from streamrt.schema import Schema
from streamrt.serializers.row_formats import key_format
from streamrt.state import MemoryStore
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.tables.replicas.key_ranges import KeyPrefix
from streamrt.tables.replicas.partition_rows import PartitionRows
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from tests.keyed_tables import CompactingLinks, customer, keyed_table, put
from tests.support import wait_until
from tests.table_home import created_again

ONE = Schema("id BIGINT, name STRING, PRIMARY KEY (id)")


@pytest.fixture
def customers() -> Iterator[Table]:
    table = keyed_table(3)
    put(table, customer("FR", 1, "ann"), customer("FR", 2, "bob"), customer("DE", 1, "eve"), customer("FRA", 1, "x"))
    yield table
    table.home.resources.close()


@pytest.mark.rows("FL-053", "FL-068", "FL-079", "FL-171")
def test_a_key_in_every_form(customers: Table) -> None:
    ann = customer("FR", 1, "ann")
    assert customers.get({"id": 1, "country": "FR"}) == ann
    assert customers.get(("FR", 1)) == customers.get(["FR", 1]) == ann
    assert customers.get(("FR", 9)) is None
    assert customers.get_many([("DE", 1), ("XX", 1), {"country": "FR", "id": 2}]) == [
        customer("DE", 1, "eve"),
        None,
        customer("FR", 2, "bob"),
    ]
    assert customers.get_many([]) == []
    put(customers, customer("FR", 1), deletes=True)
    assert customers.get(("FR", 1), fresh=True) is None


def test_a_key_of_one_column() -> None:
    table = keyed_table(2, ONE)
    put(table, {"id": 7, "name": "ann"})
    assert table.get(7) == table.get({"id": 7}) == table.get((7,)) == {"id": 7, "name": "ann"}
    with pytest.raises(
        SchemaMismatchError, match=r"prefix\(\) of table .*: it has all columns \(id\): get\(\) returns"
    ):
        table.prefix(7)
    table.home.resources.close()


@pytest.mark.rows("FL-079")
@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ({"country": "FR"}, "column 'id' is in the primary key, and is missing"),
        ({"country": "FR", "id": 1, "name": "x"}, "column 'name' is not in the primary key"),
        ({"country": "FR", "id": 1, "nope": "x"}, "column 'nope' is not in the primary key"),
        ({"country": None, "id": 1}, "'country'"),
        (("FR", None), "'id'"),
        (("FR", "one"), "'id'"),
        ("FR", r"a key has 2 columns \(country, id\)"),
        (("FR",), r"a value for each column of the primary key \(country, id\), got 1"),
        (("FR", 1, 2), "got 3"),
    ],
)
def test_keys_that_are_refused(customers: Table, key: Any, fault: str) -> None:
    for lookup in (lambda: customers.get(key), lambda: customers.get_many([key])):
        with pytest.raises((SchemaMismatchError, SerializationError), match=fault):
            lookup()
    assert customers.home.links.feeds == 0  # type: ignore[attr-defined]


@pytest.mark.rows("FL-069")
def test_prefixes(customers: Table) -> None:
    french = [customer("FR", 1, "ann"), customer("FR", 2, "bob")]
    for key in ({"country": "FR"}, ("FR",), ["FR"], "FR"):
        assert sorted(customers.prefix(key), key=lambda row: row["id"]) == french
    assert len(customers.prefix("FR", limit=1)) == 1
    assert customers.prefix("FR", limit=0) == []
    assert customers.prefix("F") == []


@pytest.mark.rows("FL-069")
@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ({"country": "FR", "id": 1}, r"it has all columns \(country, id\): get\(\) returns the row of a key"),
        (("FR", 1), r"it has all columns \(country, id\): get\(\) returns the row of a key"),
        (("FR", 1, 2), "it has 3 values, and the primary key 2 columns"),
        ({"id": 1}, "column 'country' is missing, which comes before 'id'"),
        ({"name": "ann"}, "column 'name' is not in the primary key"),
        ({"nope": 1}, "there is no column 'nope'"),
        ({}, r"it names no column: scan\(\) returns all rows"),
        ({"country": None}, r"column 'country' \(STRING\) must be not null"),
        ({"country": 7}, "column 'country' "),
        (None, r"column 'country' \(STRING\) must be not null"),
    ],
)
def test_prefixes_that_are_refused(customers: Table, key: Any, fault: str) -> None:
    with pytest.raises((SchemaMismatchError, SerializationError), match=fault):
        customers.prefix(key)


TEXTS = st.text(st.sampled_from('a",[]\\é\n\x00'), max_size=3)
TRIPLES = st.lists(st.tuples(TEXTS, st.integers(-12, 12), st.binary(max_size=2)), max_size=12)


@pytest.mark.parametrize("word", ["json", "avro"])
@given(keys=TRIPLES, wanted=st.tuples(TEXTS, st.integers(-12, 12)))
def test_a_prefix_is_what_a_filter_finds(word: str, keys: list[Any], wanted: Any) -> None:
    schema = Schema("v INT, b BINARY, s STRING, i BIGINT, PRIMARY KEY (s, i, b)")
    keys_as = key_format(word, schema, schema.primary_key)
    prefix = KeyPrefix("t", keys_as)
    rows = PartitionRows(MemoryStore("table", "t", Path("unused")), "id", 0)
    encoded = [keys_as.encode(dict(zip("sib", key, strict=True))) for key in keys]
    if keys:
        rows.apply(
            InputBatch([*range(len(keys))], [*encoded], [b"{}"] * len(keys), [0] * len(keys), [1] * len(keys), None)
        )

    def find(given: Any) -> list[Any]:
        found = [keys_as.decode(row.key) for row in rows.scan(*prefix.bounds(given))]
        return [tuple(key[name] for name in "sib") for key in found]

    for s, i in [wanted, *((s, i) for s, i, _ in keys)]:
        assert sorted(find(s)) == sorted({key for key in keys if key[0] == s})
        assert sorted(find((s, i))) == sorted({key for key in keys if key[:2] == (s, i)})


@pytest.mark.rows("FL-079")
def test_what_was_written_is_seen(customers: Table) -> None:
    for number in range(20):
        token = customers.upsert([customer("FR", 1, str(number)), customer("IT", number)])
        row = customers.get(("FR", 1), after=token if number % 2 else str(token))
        assert row is not None
        assert row["name"] == str(number)
        assert len(customers.prefix("IT", after=token)) == number + 1
        put(customers, customer("FR", 2, str(number)))
        assert customers.get_many([("FR", 2)], fresh=True) == [customer("FR", 2, str(number))]
        assert len(customers.prefix("FR", fresh=True)) == 2
    assert customers.get(("FR", 1), after=customers.delete([("FR", 1)])) is None


def test_waits_that_end(customers: Table) -> None:
    # The copy is open.
    assert customers.prefix("FR") != []
    token = customers.offsets() | Offsets({("customers", 0): 99})
    with pytest.raises(LookupTimeoutError, match=r"customers\[0\] is at offset \d, and must reach 99; .* timeout="):
        customers.prefix("FR", after=token, timeout=0.05)
    sender = customers.home.links.sender(transactional_id="open")
    sender.produce("customers", b"{}", b'["ZZ",1]', partition=0)
    with pytest.raises(
        LookupTimeoutError, match=r"prefix\(fresh=True\).*a transaction of a producer is open at offset"
    ) as why:
        customers.prefix("FR", fresh=True, timeout=0.05)
    assert why.value.retriable
    assert customers.prefix("FR") != []
    sender.abort()
    assert len(customers.prefix("FR", fresh=True)) == 2
    for timeout, error in (("1", ArgumentTypeError), (-1, ArgumentValueError), (float("nan"), ArgumentValueError)):
        with pytest.raises(error, match="timeout"):
            customers.get(("FR", 1), timeout=timeout)  # type: ignore[arg-type]


def test_tokens_that_are_refused(customers: Table) -> None:
    with pytest.raises(ArgumentValueError, match="the token is of topic orders"):
        customers.get(("FR", 1), after=Offsets({("orders", 0): 1}))
    with pytest.raises(ArgumentValueError, match="is not a token"):
        customers.get(("FR", 1), after="soon")
    with pytest.raises(ArgumentTypeError, match="a token is Offsets"):
        customers.get(("FR", 1), after=7)  # type: ignore[arg-type]


def test_a_topic_that_is_created_again(customers: Table) -> None:
    token = customers.offsets()
    assert customers.get(("FR", 1)) is not None
    created_again(customers.home.links, customers)
    put(customers, customer("FR", 1, "new"))
    assert customers.get(("FR", 1), fresh=True) == customer("FR", 1, "new")
    with pytest.raises(StaleTokenError):
        customers.get(("FR", 1), after=token)
    created_again(customers.home.links, customers)
    put(customers, customer("FR", 1, "newer"))
    assert customers.get(("FR", 1), after=customers.offsets()) == customer("FR", 1, "newer")
    customers.home.links.admin().delete_topics(["customers"])
    with pytest.raises(TopicNotFoundError):
        customers.get(("FR", 1), fresh=True)


def test_only_the_partition_of_a_key_is_read() -> None:
    table = keyed_table(4, ONE)
    put(table, *({"id": number, "name": None} for number in range(200)))
    assert table.get(7) is not None
    follower = table._lookups("get")._shared_follower()
    assert len(follower.partitions) == 1
    # So many keys lie where their hash says that another one would lie there as well.
    assert table.get(next(key for key in range(1_000, 9_999) if _lies_with(table, key, 7))) is None
    assert len(follower.partitions) == 1
    assert len(table.get_many(list(range(200)))) == 200
    assert follower.partitions == [0, 1, 2, 3]
    table.home.resources.close()


def _lies_with(table: Table, one: int, other: int) -> bool:
    keys_as = table.home.key_format(table.info)
    assert keys_as is not None
    return len({partition_for(keys_as.encode({"id": key}), 4) for key in (one, other)}) == 1


@pytest.mark.parametrize("known", [4, 3])
def test_keys_that_lie_elsewhere_are_found(known: int) -> None:
    """Other producers hash otherwise, and partitions that were added move keys."""
    table = keyed_table(4, ONE, num_partitions=known)
    for number in range(60):
        put(table, {"id": number, "name": None}, partition=number % 4 if known == 4 else None)
    if known == 3:
        put(table, {"id": 99, "name": None}, partition=2 if _lies_with(table, 99, 0) else 3)
    assert table.get_many(list(range(60))).count(None) == 0
    assert (table.get(99) is None) == (known == 4)
    table.home.resources.close()


def test_a_copy_is_shared_and_ends_with_the_catalogue() -> None:
    links = CompactingLinks()
    # Other tests may have left copies open.
    others = set(threading.enumerate())
    with Catalog(store=MemoryCatalog(), links=links) as catalog:
        catalog.create_table("c", "id BIGINT, name STRING, PRIMARY KEY (id)", num_partitions=1)
        token = catalog.table("c").upsert({"id": 1, "name": "ann"})
        before = links.feeds
        for _ in range(5):
            assert catalog.table("c").get(1, after=token) == {"id": 1, "name": "ann"}
        assert links.feeds == before + 1
        threads = [each for each in threading.enumerate() if each.name == "streamrt-replica" and each not in others]
        assert threads
        table = catalog.table("c")
    assert not any(each.is_alive() for each in threads)
    with pytest.raises(InvalidOperationError, match="the catalogue is closed"):
        table.get(1)


def test_rows_are_decoded_by_the_schema_of_the_handle() -> None:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        former = catalog.create_table("c", "id BIGINT, name STRING, PRIMARY KEY (id)", num_partitions=1)
        token = former.upsert({"id": 1, "name": "ann"})
        assert former.get(1, after=token) == {"id": 1, "name": "ann"}
        catalog.alter_table("c", add="age INT DEFAULT 7")
        table = catalog.table("c")
        assert table.get(1) == {"id": 1, "name": "ann", "age": 7}
        assert former.get(1) == {"id": 1, "name": "ann"}
        former.refresh()
        token = table.upsert({"id": 2, "name": "bob", "age": 8})
        assert former.get(2, after=token) == {"id": 2, "name": "bob", "age": 8}


def test_a_record_that_is_not_a_row() -> None:
    table = keyed_table(1, ONE)
    table.home.links.sender().produce("customers", b"[]", b"1", partition=0)
    table.home.links.sender().produce("customers", b"{}", None, partition=0)
    with pytest.raises(
        SerializationError, match=r"a record of customers at offset 0 is not a row of table 'shop.customers'"
    ):
        table.get(1)
    assert table.get(2) is None
    # Rows can be found before what is skipped with them is counted.
    wait_until(lambda: table._lookups("get")._shared_follower().skipped == 1, what="the count")
    table.home.resources.close()
