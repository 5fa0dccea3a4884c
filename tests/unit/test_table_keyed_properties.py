"""A table with a primary key holds the last write of each key: random upserts, deletes, frames and transactions."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamrt.errors import InvalidOperationError, SchemaMismatchError, TransactionError
from streamrt.kafka.partitioner import partition_for
from streamrt.tables.rows import change_encoder
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.rows.row_changes import FrameChanges, parse_frame
from streamrt.tables.rows.row_encoder import EncodedRows
from streamrt.tables.table import Table
from streamrt.tables.writing.writer import TableWriter
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import LONG
from tests.table_home import committed_records, create, table_info

COLUMNS = "n BIGINT DEFAULT 5, id INT, name STRING, day DATE, country STRING, PRIMARY KEY (country, id)"
NAMES = ("n", "id", "name", "day", "country")
PARTITIONS = 3
TRIED = 1_000 if LONG else 40
FOUND_WITHIN = 1_000

Key = tuple[str, int]
Rows = dict[Key, dict[str, Any]]

_KEYS = st.tuples(st.sampled_from(["FR", "DE", 'x"é']), st.integers(0, 4))
_ROWS = st.builds(
    lambda key, n, name, day: dict(zip(NAMES, (n, key[1], name, day, key[0]), strict=True)),
    _KEYS,
    st.none() | st.integers(-5, 5),
    st.none() | st.sampled_from(["a", "", "ü"]),
    st.none() | st.dates(),
)
_CHANGES = st.lists(st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), _ROWS), max_size=20)
_FORMS = st.sampled_from(["one", "list", "many", "frame", "changes", "change-frame"])
_LIBRARIES = st.sampled_from(["table", "batch", "pandas", "polars"])
_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["write"] * 6 + ["wrong", "flush", "checkpoint", "takeover", "drop", "zombie"]),
        _CHANGES,
        _FORMS,
        _LIBRARIES,
    ),
    min_size=3,
    max_size=20,
)


class World:
    """A table, its writer, and what must be in it.

    Args:
        has_id: whether writers have an id, so that rows count from the next checkpoint on.
        key_format: that of the table.
    """

    def __init__(self, *, has_id: bool) -> None:
        self.links = MemoryLinks()
        info = table_info(COLUMNS, key=("country", "id"), kind="primary-key", partitions=PARTITIONS)
        self.table: Table = create(self.links, info)
        self.id = "loader" if has_id else None
        self.committed: Rows = {}
        self.written: Rows = {}
        self.former: TableWriter | None = None
        self.writer = self.table.writer(id=self.id)

    def close(self) -> None:
        """Drop what is not committed."""
        for each in (self.former, self.writer):
            if each is not None:
                each.close(failed=True)

    def do(self, action: str, changes: list[tuple[str, dict[str, Any]]], form: str, library: str) -> None:
        if action == "write":
            self.write(self.writer, changes, form, library)
            apply(self.written, changes)
        elif action == "wrong":
            wrong = ("upsert", {"id": None, "country": "FR"}), ("delete", {"id": "x", "country": "FR"})
            with pytest.raises(SchemaMismatchError):
                self.writer.write([{what: row} for what, row in (*changes, wrong[len(changes) % 2], *changes)])
        elif action == "flush":
            self.writer.flush()
        elif action == "checkpoint" and self.id is not None:
            self.writer.checkpoint("state")
            self.committed = self.written.copy()
        elif action == "takeover" and self.id is not None:
            # The former writer's rows since its checkpoint are dropped.
            if self.former is not None:
                self.former.close(failed=True)
            self.former, self.writer = self.writer, self.table.writer(id=self.id)
            self.written = self.committed.copy()
        elif action == "drop" and self.id is not None:
            self.writer.close(failed=True)
            self.writer = self.table.writer(id=self.id)
            self.written = self.committed.copy()
        elif action == "zombie" and self.former is not None:
            with contextlib.suppress(TransactionError, InvalidOperationError):
                self.write(self.former, changes, form, library)
                self.former.checkpoint("zombie")

    def write(self, writer: TableWriter, changes: list[tuple[str, dict[str, Any]]], form: str, library: str) -> None:
        if form == "changes":
            writer.write([{what: row} for what, row in changes])
        elif form == "change-frame":
            short = {"upsert": "+U", "delete": "-D"}
            given = [(short[what], row) for what, row in changes]
            # A row as it was changes nothing.
            given += [("-U", row) for _, row in changes[:3]]
            writer.write(make_frame([{"_change_type": what, **row} for what, row in given], library))
        else:
            for what, rows in runs(changes):
                if what == "delete":
                    self.delete(writer, rows, form, library)
                elif form == "one":
                    for number, row in enumerate(rows):
                        writer.upsert(row if number % 2 else [row[name] for name in NAMES])
                else:
                    repeated = rows * 8 if form == "many" else rows
                    writer.upsert_rows(make_frame(rows, library) if form == "frame" else repeated)

    def delete(self, writer: TableWriter, rows: list[dict[str, Any]], form: str, library: str) -> None:
        keys: list[Callable[[dict[str, Any]], Any]] = [
            lambda row: (row["country"], row["id"]),
            lambda row: {"id": row["id"], "country": row["country"]},
            lambda row: row,
        ]
        given = [keys[number % 3](row) for number, row in enumerate(rows)]
        if form == "one":
            for key in given:
                writer.delete(key)
        elif form == "frame":
            writer.delete_rows(make_frame(rows if len(rows) % 2 else list(map(keys[1], rows)), library))
        else:
            writer.delete_rows(given)

    def check(self) -> None:
        """Compare the last record of each key with what must be there."""
        self.writer.flush()
        self.writer.close()
        expected = self.written if self.id is None else self.committed
        found: dict[bytes, Any] = {}
        for partition, key, value, _ in committed_records(self.links, self.table):
            assert key is not None
            assert partition == partition_for(key, PARTITIONS)
            found[key] = value
        rows = {tuple(json.loads(key)): json.loads(value) for key, value in found.items() if value is not None}
        as_json = {
            key: {**row, "day": None if row["day"] is None else row["day"].isoformat()} for key, row in expected.items()
        }
        assert rows == as_json
        assert {(row["country"], row["id"]): row for row in self.table.scan().rows()} == expected


def apply(rows: Rows, changes: list[tuple[str, dict[str, Any]]]) -> None:
    for what, row in changes:
        key = row["country"], row["id"]
        rows.pop(key, None)
        if what == "upsert":
            rows[key] = row


def runs(changes: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return changes of one kind that follow each other together."""
    found: list[tuple[str, list[dict[str, Any]]]] = []
    for what, row in changes:
        if not found or found[-1][0] != what:
            found.append((what, []))
        found[-1][1].append(row)
    return found


def make_frame(rows: list[dict[str, Any]], library: str) -> Any:
    types = {"n": pa.int64(), "id": pa.int32(), "day": pa.date32()}
    names = list(rows[0]) if rows else ["_change_type", *NAMES]
    table = pa.Table.from_pylist(rows, pa.schema([(name, types.get(name, pa.string())) for name in names]))
    if library == "batch":
        return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], table.schema))
    return {"table": lambda: table, "pandas": table.to_pandas, "polars": lambda: pl.DataFrame(table)}[library]()


def run(has_id: bool, actions: list[tuple[Any, ...]]) -> None:
    with contextlib.closing(World(has_id=has_id)) as world:
        for action in actions:
            world.do(*action)
        world.check()


@pytest.mark.slow
@settings(max_examples=TRIED)
@given(st.booleans(), _ACTIONS)
def test_a_table_holds_the_last_write_of_each_key(has_id: bool, actions: list[tuple[Any, ...]]) -> None:
    run(has_id, actions)


def _tombstones_first(rows: EncodedRows, written: Any, tombstones: EncodedRows, deleted: Any) -> EncodedRows:
    return tombstones if not written else EncodedRows.joined([tombstones, rows])


def _keys_as_given(encoder: KeyEncoder, key: Any) -> bytes:
    values = [value for name, value in key.items() if name in encoder.columns] if isinstance(key, dict) else list(key)
    encoder._check(values if not isinstance(key, dict) else [key[name] for name in encoder.columns])
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def _before_images_deleted(frame: Any, *arguments: Any, **options: Any) -> FrameChanges:
    parsed = parse_frame(frame, *arguments, **options)
    others = [number for number in range(len(parsed.rows)) if number not in parsed.written]
    return FrameChanges(parsed.rows, parsed.written, others)


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "deletes come before upserts": (change_encoder, "_interleave", _tombstones_first),
    "keys are in the order of the mapping": (KeyEncoder, "_encode", _keys_as_given),
    "a row as it was is deleted": (change_encoder, "parse_frame", _before_images_deleted),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])

    # The same ones each time, up to the first that finds it; no smaller ones are looked for.
    @settings(
        max_examples=FOUND_WITHIN,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.booleans(), _ACTIONS)
    def tried(has_id: bool, actions: list[tuple[Any, ...]]) -> None:
        run(has_id, actions)

    with pytest.raises(AssertionError):
        tried()
