"""Full changes of tables with a primary key: old rows, positions, compaction, and what is taken back and read again."""

import signal
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import ArgumentValueError, SerializationError, StaleTokenError
from streamrt.records import TopicPartition
from streamrt.schema import Schema
from streamrt.tables.access.positions import Start
from streamrt.tables.reading import old_rows
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.rows.rows import ChangeType, ScanRecord
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import _Partition
from tests.keyed_tables import CompactingLinks, by_key, customer, keyed_table, put
from tests.table_home import created_again


def poll_all(stream: TableStream, table: Table, most: int | None = None) -> list[ScanRecord]:
    """Return all changes up to the end of the table."""
    found: list[ScanRecord] = []
    while not stream.position.covers(table.offsets()):
        found += stream.poll(0.01, most)
    return found


def shown(records: Iterable[ScanRecord]) -> list[tuple[str, Any, Any]]:
    """Return changes in short."""
    return [(record.change_type.short, record.row["id"], record.row["name"]) for record in records]


def fold(rows: dict[Any, dict[str, Any]], records: Iterable[ScanRecord]) -> dict[Any, dict[str, Any]]:
    """Return rows with changes, of which each must fit what is there, unless compaction has hidden something."""
    rows = dict(rows)
    for record in records:
        key = (record.row["country"], record.row["id"])
        if record.change_type in (ChangeType.INSERT, ChangeType.UPDATE_AFTER):
            rows[key] = record.row
        else:
            rows.pop(key, None)
    return rows


@pytest.mark.rows("FL-160", "FL-161", "FL-162", "FL-163", "FL-164", "FL-175", "FE-080", "FE-087")
def test_inserts_updates_and_deletes_with_old_rows() -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"), customer("FR", 2, "b"), customer("FR", 1, "c"), customer("FR", 1, "c"))
    put(customers, customer("FR", 2), customer("FR", 9), deletes=True)
    put(customers, customer("FR", 2, "d"))
    expected = [("+I", 1, "a"), ("+I", 2, "b"), ("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b"), ("+I", 2, "d")]
    with customers.subscribe(start="earliest", changes="full") as stream:
        records = poll_all(stream, customers)
    assert shown(records) == expected
    assert [record.offset for record in records] == [0, 1, 2, 2, 4, 6]
    assert {record.key for record in records} == {b'["FR",1]', b'["FR",2]'}
    with customers.subscribe(start="earliest", changes="full", updates="all") as stream:
        same = poll_all(stream, customers)
        assert shown(same) == [*expected[:4], ("-U", 1, "c"), ("+U", 1, "c"), *expected[4:]]
    with customers.subscribe(start="earliest", changes="full", metadata=True) as stream:
        table = stream.poll_arrow(1.0)
        assert list(zip(table["_change_type"].to_pylist(), table["id"].to_pylist(), strict=True)) == [
            each[:2] for each in expected
        ]
        assert table["_offset"].to_pylist() == [0, 1, 2, 2, 4, 6]
        assert stream.poll(0.01).partitions() == []
        assert stream.position == customers.offsets()


@pytest.mark.rows("FL-173", "FE-080", "FE-081", "FE-137")
@pytest.mark.parametrize("start", ["latest", "offsets", "text"])
def test_a_snapshot_and_what_follows(start: str) -> None:
    customers = keyed_table(2)
    put(customers, customer("FR", 1, "a"), customer("FR", 2, "b"), customer("FR", 3, "c"))
    snapshot = customers.snapshot()
    place: Start = {"latest": "latest", "offsets": snapshot.offsets, "text": str(snapshot.offsets)}[start]  # type: ignore[assignment]
    with customers.subscribe(start=place, changes="full") as stream:
        put(customers, customer("FR", 1, "x"), customer("FR", 4, "y"))
        put(customers, customer("FR", 2), deletes=True)
        records = poll_all(stream, customers)
    assert sorted(shown(records), key=lambda each: (each[1], each[0] == "+U")) == [
        ("-U", 1, "a"),
        ("+U", 1, "x"),
        ("-D", 2, "b"),
        ("+I", 4, "y"),
    ]
    assert fold(by_key(snapshot.arrow.to_pylist()), records) == by_key(customers.scan())


@pytest.mark.rows("FE-087")
def test_both_rows_of_an_update_stay_together() -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"), customer("FR", 1, "b"), customer("FR", 1, "c"))
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert shown(stream.poll(1.0, 1)) == [("+I", 1, "a")]
        assert shown(stream.poll(1.0, 1)) == [("-U", 1, "a"), ("+U", 1, "b")]
        assert shown(stream.poll(0, 5)) == [("-U", 1, "b"), ("+U", 1, "c")]
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert [each.batch.num_rows for each in stream.poll_batches(1.0, 2)] == [3]
        assert stream.poll_arrow(0, 1)["name"].to_pylist() == ["b", "c"]
    with customers.subscribe(start="earliest", changes="full") as stream:
        found = [next(stream), next(stream)]
        assert shown(found) == [("+I", 1, "a"), ("-U", 1, "a")]
        # The update is not over.
        assert stream.position.partition_map("customers") == {0: 1}
        with customers.subscribe(start=str(stream.position), changes="full") as other:
            assert shown([next(other), next(other), next(other)]) == [("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b")]
        assert shown([next(stream)]) == [("+U", 1, "b")]
        assert stream.position.partition_map("customers") == {0: 2}


def test_positions_that_move() -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"), customer("FR", 1, "b"), customer("FR", 1, "c"), customer("FR", 1, "d"))
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert shown(stream.poll(1.0, 2)) == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b")]
        # What is fetched again was taken back.
        stream.pause()
        stream.resume()
        assert shown(stream.poll(1.0, 1)) == [("-U", 1, "b"), ("+U", 1, "c")]
        stream.seek({0: 1})
        assert shown(stream.poll(1.0, 1)) == [("-U", 1, "a"), ("+U", 1, "b")]
        stream.seek("earliest")
        assert shown(stream.poll(1.0, 1)) == [("+I", 1, "a")]
        stream.seek({0: 3})
        assert shown(stream.poll(1.0)) == [("-U", 1, "c"), ("+U", 1, "d")]
        next_row = customers.offsets()
        stream.seek(next_row)
        put(customers, customer("FR", 1), deletes=True)
        assert shown(stream.poll(1.0)) == [("-D", 1, "d")]


def test_an_interrupt_takes_changes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"), customer("FR", 1, "b"), customer("FR", 1, "c"))
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert shown([next(stream)]) == [("+I", 1, "a")]
        take = stream._advance_pending
        calls: list[int] = []

        def interrupt(count: int) -> None:
            take(count)
            calls.append(count)
            if len(calls) == 3:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(stream, "_advance_pending", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stream.poll(1.0)
        assert stream.position.partition_map("customers") == {0: 1}
        assert shown(stream.poll(1.0)) == [("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b"), ("+U", 1, "c")]


def test_a_record_that_is_not_a_row() -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"))
    sender = customers.home.links.sender()
    sender.produce("customers", b"[]", b'["FR",1]', partition=0)
    sender.produce("customers", b"{}", None, partition=0)
    put(customers, customer("FR", 1, "b"))
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert shown(stream.poll(1.0)) == [("+I", 1, "a"), ("-U", 1, "a")]
        for _ in range(2):
            with pytest.raises(SerializationError, match="at offset 1"):
                stream.poll(1.0)
        stream.seek({0: 2})
        with pytest.raises(SerializationError, match="no key"):
            stream.poll(1.0)
    with customers.subscribe(start="earliest", changes="full", on_error="skip") as stream:
        # The row that is not readable is neither old nor new.
        assert shown(poll_all(stream, customers)) == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b")]
        assert stream.skipped == 3


def test_deletes_of_rows_that_compaction_has_hidden() -> None:
    customers = keyed_table()
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    put(customers, customer("FR", 1, "a"), customer("FR", 2, "b"), customer("FR", 3, "c"))
    snapshot = customers.snapshot()
    put(customers, customer("FR", 1), customer("FR", 8), deletes=True)
    put(customers, customer("FR", 2, "x"))
    links.compact("customers")
    with customers.subscribe(start=snapshot.offsets, changes="full") as stream:
        put(customers, customer("FR", 1), customer("FR", 9), deletes=True)
        put(customers, customer("FR", 3), deletes=True)
        put(customers, customer("FR", 3), deletes=True)
        records = poll_all(stream, customers)
        # Of 1 and 8 nothing is known at first; that 9 was never there is.
        assert shown(records) == [("-D", 1, None), ("-D", 8, None), ("+I", 2, "x"), ("-D", 3, "c")]
        assert fold(by_key(snapshot.arrow.to_pylist()), records) == by_key(customers.scan())
        put(customers, customer("FR", 7), deletes=True)
        assert poll_all(stream, customers) == []
        assert None not in stream._old_rows._rows[0].values()  # type: ignore[union-attr]
    with customers.subscribe(start="earliest", changes="full") as stream:
        assert fold({}, poll_all(stream, customers)) == by_key(customers.scan())


def test_a_key_without_a_row_is_deleted_once() -> None:
    customers = keyed_table()
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    put(customers, customer("FR", 1, "a"), customer("FR", 2, "b"))
    offsets = customers.offsets()
    put(customers, customer("FR", 1), customer("FR", 1), deletes=True)
    links.gone.add((TopicPartition("customers", 0), 0))
    with customers.subscribe(start=offsets, changes="full") as stream:
        assert shown(poll_all(stream, customers)) == [("-D", 1, None)]


def test_topics_and_partitions_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a"))
    links = customers.home.links
    with customers.subscribe(start="latest", changes="full") as stream:
        stream._refresh_s = 0
        links._topics["customers"].partitions.append(_Partition())  # type: ignore[attr-defined]
        put(customers, customer("FR", 5, "e"), customer("FR", 5, "f"), partition=1)
        put(customers, customer("FR", 1, "b"), partition=0)
        found: list[ScanRecord] = []
        while len(found) < 5:
            found += stream.poll(1.0)
        assert sorted(shown(found)) == sorted(
            [("+I", 5, "e"), ("-U", 5, "e"), ("+U", 5, "f"), ("-U", 1, "a"), ("+U", 1, "b")]
        )
        created_again(links, customers)
        put(customers, customer("FR", 1, "new"), partition=0)
        with pytest.raises(StaleTokenError):
            stream.poll(1.0)
        stream.seek("earliest")
        assert shown(stream.poll(1.0)) == [("+I", 1, "new")]


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (keyed_table, {"updates": "some"}),
        (keyed_table, {"updates": "all"}),
        (keyed_table, {"changes": "half"}),
    ],
)
def test_options_that_are_refused(table: Any, options: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"updates|changes"):
        table().subscribe(**options)


@pytest.mark.rows("FE-083")
def test_frames_of_changes() -> None:
    customers = keyed_table()
    put(customers, customer("FR", 1, "a", 1.0))
    frames: list[pd.DataFrame] = []
    listener = customers.on_changes(
        lambda frame, number: frames.append(frame.assign(n=number)), max_rows=2, max_delay=0
    )
    with listener:
        put(customers, customer("FR", 1, "b", 2.0), customer("FR", 2, "c"))
        put(customers, customer("FR", 1), deletes=True)
        while not listener.position.covers(customers.offsets()):
            assert listener.error is None
    frame = pd.concat(frames)
    assert frame[["id", "name", "_change_type", "insert_delete"]].values.tolist() == [
        [1, "a", "-U", -1],
        [1, "b", "+U", 1],
        [2, "c", "+I", 1],
        [1, "b", "-D", -1],
    ]
    assert frame["n"].is_monotonic_increasing
    # As a multiset: what was there is taken away, and what is there remains.
    assert frame[frame["name"] != "a"].groupby("name")["insert_delete"].sum().to_dict() == {"b": 0, "c": 1}


KEYS = st.tuples(st.sampled_from(["", "FR"]), st.integers(0, 2))
WRITES = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 2)),
    st.tuples(st.just("delete"), KEYS, st.none()),
    st.tuples(st.just("abort"), KEYS, st.integers(0, 2)),
)
STEPS = st.lists(
    st.one_of(
        WRITES,
        WRITES,
        st.tuples(st.just("compact"), st.none(), st.lists(st.integers(0, 100), max_size=4)),
        st.tuples(st.sampled_from(["poll", "one", "again", "seek", "pause"]), st.none(), st.integers(1, 4)),
    ),
    max_size=40,
)


@given(partitions=st.integers(1, 2), before=st.lists(WRITES, max_size=12), steps=STEPS, compacts=st.booleans())
def test_changes_after_a_snapshot_give_the_table(
    partitions: int, before: list[Any], steps: list[Any], compacts: bool
) -> None:
    """Whatever is written, compacted and read again: the rows of the snapshot with all changes are those of the table."""
    customers = keyed_table(partitions)
    links = customers.home.links
    assert isinstance(links, CompactingLinks)
    model: dict[Any, dict[str, Any]] = {}

    def write(what: str, key: Any, more: Any) -> None:
        country, number = key
        row = customer(country, number, None if more is None else str(more))
        put(customers, row, deletes=what == "delete", abort=what == "abort")
        if what == "put":
            model[key] = row
        elif what == "delete":
            model.pop(key, None)

    for step in before:
        write(*step)
    rows, offsets = customers.snapshot()
    folded = by_key(rows.to_pylist())
    assert folded == model
    stream = customers.subscribe(start=offsets, changes="full")

    def take(records: Iterable[ScanRecord]) -> None:
        for record in records:
            key = (record.row["country"], record.row["id"])
            if not compacts and (key in folded or record.row["name"] is not None):
                # Each change is one of what is there; offsets of aborted rows look like those of compacted ones.
                is_known = key in folded
                assert is_known == (record.change_type not in (ChangeType.INSERT, ChangeType.UPDATE_AFTER))
                assert not is_known or folded[key] == record.row
            folded.update(fold(folded, [record]))
            if record.change_type in (ChangeType.DELETE, ChangeType.UPDATE_BEFORE):
                folded.pop(key, None)

    for what, key, more in [*steps, ("poll", None, 1_000)]:
        if what == "compact":
            links.compact("customers", more if compacts else [])
        elif what == "poll":
            take(stream.poll(0, more))
        elif what == "one":
            # As a whole: a half of an update is returned again by another stream.
            take(stream.poll(0, 1))
        elif what == "again":
            saved = str(stream.position)
            stream.close()
            stream = customers.subscribe(start=saved, changes="full")
        elif what == "seek":
            stream.seek(stream.position)
        elif what == "pause":
            stream.pause()
            stream.resume()
        else:
            write(what, key, more)
    take(poll_all(stream, customers))
    stream.close()
    assert folded == model == by_key(customers.scan())


def test_old_rows_are_forgotten_when_they_are_settled() -> None:
    schema = Schema("id BIGINT, v INT, PRIMARY KEY (id)")
    table = keyed_table(schema=schema)
    with table.subscribe(changes="full") as stream:
        for number in range(5):
            put(table, {"id": 1, "v": number})
            assert len(stream.poll(1.0)) == (1 if number == 0 else 2)
        stream.poll(0)
        assert isinstance(stream._old_rows, old_rows.OldRows)
        assert len(stream._old_rows._journal[0]) == 0
