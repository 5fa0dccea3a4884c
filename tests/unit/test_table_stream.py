"""Subscriptions to tables: positions that survive any break, polls in every form, seeks and pauses."""

import random
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from streamrt import Offsets
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    SerializationError,
)
from streamrt.records import TopicPartition
from streamrt.tables.rows.decoding import RowReader
from streamrt.tables.rows.rows import ChangeType, ScanRecord, ScanRecords
from tests.support import LONG, wait_until
from tests.table_home import CompactedLinks, Home, ids, known_ids, poll_ids, table, write


@pytest.mark.rows("DK-009", "DK-010", "DK-016", "DK-017", "DK-018", "FL-086", "FL-091")
def test_iterator_and_its_state() -> None:
    events = table()
    write(events, ids(4))
    with events.subscribe(start="earliest") as stream:
        assert stream.position == events.offsets("earliest")
        assert next(stream).row == ids(1)[0]
        for record in stream:
            if record.row["id"] == 1:
                break
        state = str(stream.position)
        assert stream.position.partition_map("events") == {0: 2}
    with events.subscribe(["id"], start=state) as again:
        assert next(again) == ScanRecord(2, 3_000, ChangeType.APPEND, {"id": 2}, b"key", 0)
        assert known_ids(again.poll(60)) == [3]
        assert not again.poll(0)
        assert again.position == events.offsets()


def test_latest_returns_what_comes_later() -> None:
    events = table()
    write(events, ids(2))
    with events.subscribe() as stream:
        assert not stream.poll(0.01)
        write(events, ids(2, 2))
        assert known_ids(stream.poll(60)) == [2, 3]


@pytest.mark.rows("FL-092", "FL-093", "FL-094", "FL-095", "FL-096", "FL-097", "FL-098", "FL-099", "FL-100")
def test_records_are_a_sequence_and_a_mapping() -> None:
    events = table(partitions=3)
    write(events, ids(3, 20), 2)
    write(events, ids(2, 0), 0)
    with events.subscribe(start="earliest") as stream:
        records = stream.poll(60)
    zero, two = TopicPartition("events", 0), TopicPartition("events", 2)
    assert known_ids(records) == [0, 1, 20, 21, 22]
    assert known_ids(records[1:4]) == [1, 20, 21]
    assert known_ids(records[::-2]) == [22, 20, 0]
    assert records[9:] == []
    assert (records[0].row["id"], records[-1].row["id"]) == (0, 22)
    with pytest.raises(IndexError):
        records[5]
    assert list(records.keys()) == records.partitions() == [zero, two]
    assert [known_ids(each) for each in records.values()] == [[0, 1], [20, 21, 22]]
    assert {partition: known_ids(each) for partition, each in records.items()} == {zero: [0, 1], two: [20, 21, 22]}
    assert known_ids(records[two]) == known_ids(records.of(2)) == known_ids(records.of(two)) == [20, 21, 22]
    assert records.of(1) == []
    with pytest.raises(KeyError):
        records[TopicPartition("events", 1)]
    parts: Any = (zero, ("events", 1))
    assert [part in records for part in parts] == [True, False]
    assert records[0] in records
    assert len(records) == 5
    assert not ScanRecords("events", {0: []})
    assert records == ScanRecords("events", {2: records.of(2), 0: records.of(0)})
    assert records != ScanRecords("events", {})
    assert repr(records) == "<ScanRecords events[0]: 2, events[2]: 3>"


@pytest.mark.rows("FL-159", "FL-160", "FL-161", "FL-162", "FL-163", "FL-103")
def test_change_types() -> None:
    assert [(each.value, each.short) for each in ChangeType] == [(0, "+A"), (1, "+I"), (2, "-U"), (3, "+U"), (4, "-D")]


@pytest.mark.rows("FL-087", "FL-088", "FL-101", "FL-102", "FL-104", "FL-105", "FL-106", "FL-107", "FL-108")
def test_polls_of_arrow() -> None:
    events = table(partitions=2, home=Home(CompactedLinks([1])))
    with events.subscribe(["score", "id"], start="earliest", metadata=True, max_records=3) as stream:
        empty = stream.poll_arrow(0)
        assert empty.num_rows == 0
        assert empty.schema.names == ["score", "id", "_change_type", "_offset", "_timestamp", "_partition"]
        assert stream.poll_batches(0) == []
        write(events, ids(3, 10), 1)
        write(events, ids(3), 0)
        (first, second) = stream.poll_batches(60)
        assert (first.partition, first.first_offset, first.last_offset) == (0, 0, 2)
        assert first.batch.column("id").to_pylist() == [0, 2]
        assert (second.partition, second.batch.column("_offset").to_pylist()) == (1, [0])
        rest = stream.poll_arrow(60)
        assert rest.select(["id", "_offset", "_partition"]).to_pylist() == [{"id": 12, "_offset": 2, "_partition": 1}]


@pytest.mark.rows("FL-012")
def test_most_rows_of_a_poll() -> None:
    events = table()
    write(events, ids(10))
    with events.subscribe(start="earliest", max_records=4) as stream:
        assert known_ids(stream.poll(60)) == [0, 1, 2, 3]
        assert known_ids(stream.poll(60, max_records=1)) == [4]
        assert stream.poll_arrow(60, max_records=3)["id"].to_pylist() == [5, 6, 7]
        assert stream.position.partition_map("events") == {0: 8}
    for wrong in (0, True, 1.5):
        with pytest.raises((ArgumentValueError, ArgumentTypeError), match="max_records must be"):
            events.subscribe(max_records=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="changes must be"):
        events.subscribe(changes="some")  # type: ignore[arg-type]


@pytest.mark.rows("FL-080", "FL-081", "FL-084")
def test_seek_pause_and_resume() -> None:
    events = table(partitions=2)
    write(events, ids(4), 0)
    write(events, ids(4, 10), 1)
    with events.subscribe(start="earliest", max_records=2) as stream:
        stream.poll(60)
        stream.pause([0])
        taken: list[int] = []
        while len(taken) < 4 and (records := stream.poll(60)):
            taken += known_ids(records.of(1))
            assert not records.of(0)
        assert taken[-1] == 13
        before = stream.position.partition_map("events")[0]
        stream.resume()
        assert known_ids(stream.poll(60))[0] == before
        stream.seek({1: 2})
        assert stream.position.partition_map("events")[1] == 2
        found = poll_ids(stream, lambda found: 13 in found)
        assert [each for each in found if each >= 10] == [12, 13]
        stream.seek("earliest")
        assert stream.position == events.offsets("earliest")
        stream.seek(events.offsets())
        assert not stream.poll(0)
        for use in (stream.pause, stream.resume):
            with pytest.raises(ArgumentValueError, match="partition 7 of topic 'events' is not read here"):
                use([7])
        with pytest.raises(ArgumentValueError, match="partition 7 of topic 'events' is not read here"):
            stream.seek({7: 0})
        with pytest.raises(OffsetOutOfRangeError):
            stream.seek({1: 99})
        with pytest.raises(ArgumentValueError, match="timeout"):
            stream.poll(-1)


def test_chosen_partitions() -> None:
    events = table(partitions=3)
    for number in range(3):
        write(events, ids(1, number), number)
    with events.subscribe(start={1: 0}) as stream:
        assert stream.partitions == [1]
        assert known_ids(stream.poll(60)) == [1]
        assert not stream.poll(0.05)
    with events.subscribe(start="earliest", partitions=[2, 0]) as stream:
        assert known_ids(stream.poll(60)) == [0, 2]


def test_close_ends_a_wait_and_a_loop() -> None:
    events = table()
    write(events, ids(1))
    stream = events.subscribe(start="earliest")
    seen: list[int] = []
    polled: list[ScanRecords] = []

    def read() -> None:
        for record in stream:
            seen.append(record.row["id"])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wait_until(lambda: seen == [0])
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert stream.closed
    assert stream.position.partition_map("events") == {0: 1}
    for use in (stream.poll, stream.poll_arrow, stream.pause, stream.resume, lambda: stream.seek("latest")):
        with pytest.raises(InvalidOperationError, match="is closed"):
            use()
    assert list(stream) == []
    stream.close()
    other = events.subscribe()
    has_begun, poll = threading.Event(), other._feed.poll

    def polls(timeout_s: float, records: int) -> Any:
        has_begun.set()
        return poll(timeout_s, records)

    other._feed.poll = polls  # type: ignore[method-assign]
    thread = threading.Thread(daemon=True, target=lambda: polled.append(other.poll(None)))
    thread.start()
    assert has_begun.wait(60)
    other.close()
    thread.join(60)
    assert not thread.is_alive()
    assert not any(polled)


def test_records_that_are_no_rows_raise_in_their_turn() -> None:
    events = table()
    write(events, [*ids(2), b"{", *ids(2, 2)])
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0, 1]
        for _ in range(2):
            with pytest.raises(SerializationError, match="events\\[0\\] at offset 2"):
                stream.poll(60)
        with pytest.raises(SerializationError):
            next(stream)
        assert stream.position.partition_map("events") == {0: 2}
        stream.seek({0: 3})
        assert known_ids(stream.poll(60)) == [2, 3]
        stream.seek("earliest")
        assert stream.poll_arrow(60)["id"].to_pylist() == [0, 1]
        with pytest.raises(SerializationError, match="events\\[0\\] at offset 2"):
            stream.poll_arrow(60)
    with events.subscribe(start="earliest", on_error="skip") as stream:
        assert known_ids(stream.poll(60)) == [0, 1, 2, 3]
        assert stream.skipped == 1
        stream.seek("earliest")
        assert stream.poll_arrow(60)["id"].to_pylist() == [0, 1, 2, 3]
        stream.seek({0: 2})
        assert next(stream).row["id"] == 2


def test_interrupt_loses_no_record() -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    write(events, ids(3, 10), 1)
    with events.subscribe(start={0: 2, 1: 0}, max_records=2) as stream:
        poll = stream._feed.poll

        def interrupted(timeout_s: float, records: int) -> Any:
            poll(timeout_s, records)
            raise KeyboardInterrupt

        stream._feed.poll = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        stream._feed.poll = poll  # type: ignore[method-assign]
        found = poll_ids(stream, lambda found: len(found) >= 4)
        assert sorted(found) == [2, 10, 11, 12]


def test_interrupt_before_a_table_is_returned_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    events = table()
    write(events, ids(3))
    with events.subscribe(start="earliest") as stream:

        class Interrupted(pa.Table):  # type: ignore[misc]
            @staticmethod
            def from_batches(*given: Any) -> Any:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(pa, "Table", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.poll_arrow(60)
        assert stream.position == events.offsets("earliest")
        assert stream.poll_arrow(60)["id"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("method", ["poll", "poll_batches", "__next__"])
def test_interrupt_between_rows_that_are_not_returned_loses_none(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    write(events, ids(3, 10), 1)
    with events.subscribe(start="earliest", max_records=10) as stream:
        name = "batch" if method == "poll_batches" else "record"
        decode = getattr(RowReader, name)
        decoded: list[Any] = []

        def interrupted(self: RowReader, *given: Any) -> Any:
            decoded.append(decode(self, *given))
            if len(decoded) == 2 or method == "__next__":
                raise KeyboardInterrupt
            return decoded[-1]

        with monkeypatch.context() as patch:
            patch.setattr(RowReader, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                getattr(stream, method)()
        assert stream.position == events.offsets("earliest")
        found = poll_ids(stream, lambda found: len(found) >= 6)
        assert sorted(found) == [0, 1, 2, 10, 11, 12]


def test_position_passes_markers_of_transactions() -> None:
    events = table()
    write(events, ids(1), transactional=True)
    write(events, ids(3, 10), abort=True)
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0]
        assert stream.position.partition_map("events") == {0: 1}
        wait_until(lambda: not stream.poll(0.01) and stream.position.covers(events.offsets()))


def test_records_that_were_deleted_before_they_were_read() -> None:
    events = table()
    write(events, ids(3))
    with events.subscribe(start="earliest", max_records=1) as stream:
        assert known_ids(stream.poll(60)) == [0]
        # What was fetched is there.
        assert known_ids(stream.poll(60)) == [1]
        assert known_ids(stream.poll(60)) == [2]
        write(events, ids(3))
        events._home.links.admin().delete_records({TopicPartition("events", 0): 5})  # type: ignore[attr-defined]
        with pytest.raises(OffsetOutOfRangeError):
            stream.poll(60)


def test_records_that_were_deleted_hold_up_no_other_partition_that_a_caller_goes_on_with() -> None:
    events = table(partitions=2)
    write(events, ids(3), 0)
    with events.subscribe(start="earliest") as stream:
        assert known_ids(stream.poll(60)) == [0, 1, 2]
        write(events, ids(4, 3), 0)
        events._home.links.admin().delete_records({TopicPartition("events", 0): 5})  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                stream.poll(60)
        stream.pause([0])
        write(events, ids(2, 20), 1)
        assert known_ids(stream.poll(60)) == [20, 21]
        stream.seek({0: events.offsets("earliest")["events", 0]})
        assert not stream.poll(0)
        stream.resume()
        assert known_ids(stream.poll(60)) == [5, 6]
        assert stream.position == events.offsets()


@pytest.mark.rows("DK-018", "FL-086", "FL-091")
@pytest.mark.parametrize("seed", range(300 if LONG else 12))
def test_each_record_once_whatever_is_done(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.choice([1, 3])
    events = table(partitions, home=Home(CompactedLinks(chance.sample(range(40), chance.randint(0, 8)))))
    links: Any = events._home.links
    written: dict[int, list[int]] = {number: [] for number in range(partitions)}
    number = 0

    def produce() -> None:
        nonlocal number
        partition, count = chance.randrange(partitions), chance.randint(0, 6)
        aborted = chance.random() < 0.3
        write(events, ids(count, number), partition, abort=aborted, transactional=chance.random() < 0.5)
        if not aborted:
            written[partition] += range(number, number + count)
        number += count

    for _ in range(4):
        produce()
    got: dict[int, list[int]] = {each: [] for each in written}
    stream = events.subscribe(start="earliest", max_records=chance.randint(1, 7))
    for _ in range(40):
        action = chance.choice(["next", "poll", "arrow", "again", "seek", "pause", "resume", "produce"])
        ready = not stream.position.covers(events.offsets())
        if action == "next" and ready and not stream._paused:
            # Aborted records may be all that is left, so that there is nothing to wait for.
            records = list(stream.poll(0, max_records=1))
        elif action == "poll":
            records = list(stream.poll(0))
        elif action == "arrow":
            for batch in stream.poll_batches(0):
                got[batch.partition] += batch.batch.column("id").to_pylist()
            records = []
        else:
            records = []
            if action == "again":
                state = str(stream.position)
                stream.close()
                stream = events.subscribe(start=state, max_records=chance.randint(1, 7))
            elif action == "seek":
                stream.seek(Offsets.parse(str(stream.position)))
            elif action in ("pause", "resume"):
                getattr(stream, action)(chance.sample(range(partitions), chance.randint(0, partitions)))
            elif action == "produce":
                produce()
        for record in records:
            got[record.partition].append(record.row["id"])
    stream.resume()
    deadline = time.monotonic() + 60
    while not stream.position.covers(events.offsets()) and time.monotonic() < deadline:
        for record in stream.poll(0):
            got[record.partition].append(record.row["id"])
    stream.close()
    expected = {each: [row["id"] for row in events.scan(partitions=[each]).rows()] for each in written}
    assert got == expected
    offsets_gone = links.gone
    assert all(set(expected[each]) <= set(written[each]) for each in written)
    if not offsets_gone:
        assert expected == written
