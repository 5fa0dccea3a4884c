"""The side of StreamRT: tables over topics in memory, with the code that runs over Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pyarrow as pa

from streamrt.errors import StreamRTError
from streamrt.schema import Schema
from streamrt.tables.catalogue.catalog import Catalog
from streamrt.tables.catalogue.catalog_store import MemoryCatalog
from streamrt.tables.reading.stream import TableStream
from streamrt.tables.table import Table
from streamrt.testing.memory_topics import MemoryLinks
from tests.oracle.fluss.maintained_ours import MaintainedSide
from tests.oracle.fluss.values import arrow_schema, decode, encode, type_name

__all__ = ["run"]

DATABASE = "oracle"
POLL_S = 5.0

Case = dict[str, Any]


def run(case: Case) -> list[Any]:
    """Return what StreamRT answers to each step."""
    side: Any
    with ExitStack() as resources:
        catalog = resources.enter_context(Catalog(links=MemoryLinks(), store=MemoryCatalog()))
        match case["kind"]:
            case "admin":
                side = _AdminSide(catalog)
            case "maintained":
                side = MaintainedSide(case, resources)
            case _:
                side = _TableSide(catalog, case, resources)
        return [_answer(getattr(side, word), arguments) for word, *arguments in case["steps"]]


def _answer(method: Callable[..., Any], arguments: list[Any]) -> Any:
    try:
        return method(*arguments)
    except StreamRTError as error:
        return ["error", type(error).__name__]


class _TableSide:
    """Steps of the kinds `log`, `keyed`, `primary` and `types`; `tests.oracle.fluss.reference` says what they mean."""

    def __init__(self, catalog: Catalog, case: Case, resources: ExitStack) -> None:
        self.case = case
        self.resources = resources
        self.arrow = arrow_schema(case["columns"])
        catalog.create_database(DATABASE)
        primary_key = case.get("primary_key", ())
        self.table: Table = catalog.create_table(
            f"{DATABASE}.t",
            Schema(self.arrow, primary_key=primary_key),
            num_partitions=case["partitions"],
            key=None if primary_key else case["key"] or None,
        )
        self.writer = resources.enter_context(self.table.writer())
        self.token = self.writer.flush()
        self.marks: list[datetime] = []
        self.streams: dict[str, TableStream] = {}
        self.paused: set[str] = set()

    def append(self, form: str, row: Any) -> str:
        value = decode(row)
        self.writer.append(tuple(value) if form == "tuple" else value)
        return "ok"

    def upsert(self, form: str, row: Any) -> str:
        value = decode(row)
        self.writer.upsert(tuple(value) if form == "tuple" else value)
        return "ok"

    def delete(self, form: str, key: Any) -> str:
        value = decode(key)
        self.writer.delete(tuple(value) if form == "tuple" else value)
        return "ok"

    def lookup(self, form: str, key: Any) -> Any:
        value = decode(key)
        return encode(self.table.get(tuple(value) if form == "tuple" else value, after=self.token))

    def prefix(self, columns: list[str], key: list[Any]) -> list[Any]:
        rows = self.table.prefix(dict(zip(columns, decode(key), strict=True)), after=self.token)
        return sorted(map(encode, rows), key=json.dumps)

    def changes(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        ends = self.table.offsets("latest")
        with self.table.subscribe(start="earliest", changes="full", updates="all") as stream:
            while not stream.position.covers(ends):
                for record in stream.poll(timeout=POLL_S):
                    key = json.dumps([encode(record.row[name]) for name in self.case["primary_key"]])
                    found.setdefault(key, []).append([record.change_type.short, encode(record.row)])
        return dict(sorted(found.items()))

    def arrow_rows(self, rows: list[Any]) -> str:
        columns = list(zip(*map(decode, rows), strict=True))
        arrays = [pa.array(list(values), field.type) for values, field in zip(columns, self.arrow, strict=True)]
        self.writer.append_arrow(pa.record_batch(arrays, schema=self.arrow))
        return "ok"

    def pandas_rows(self, rows: list[Any]) -> str:
        self.writer.append_pandas(pd.DataFrame(list(map(decode, rows)), columns=self.arrow.names, dtype=object))
        return "ok"

    def flush(self) -> int:
        token = self.token = self.writer.flush()
        ends = self.table.offsets("latest")
        assert ends.covers(token)
        if "primary_key" in self.case:
            return 0
        return sum(ends.values())

    def mark(self) -> str:
        time.sleep(0.002)
        self.marks.append(datetime.now(timezone.utc))
        time.sleep(0.002)
        return "ok"

    def offsets(self, spec: Any) -> dict[str, int]:
        if isinstance(spec, list):
            spec = self.marks[spec[1]]
        elif spec == "future":
            spec = datetime.now(timezone.utc) + timedelta(hours=1)
        found = self.table.offsets(spec)
        return {str(number): offset for number, offset in sorted(found.partition_map(found.topics[0]).items())}

    def scan(self, columns: Any, start: int) -> dict[str, Any]:
        table = self.table.scan(columns, start=self._starts(start)).to_arrow()
        return {
            "columns": table.column_names,
            "types": [type_name(each) for each in table.schema.types],
            "rows": [encode(list(row.values())) for row in table.to_pylist()],
        }

    def pandas(self, columns: Any, start: int) -> list[Any]:
        frame = self.table.scan(columns, start=self._starts(start)).to_pandas()
        return [list(frame.columns), len(frame)]

    def records(self, columns: Any, start: int) -> list[list[Any]]:
        return [_record(each) for each in self.table.scan(columns, start=self._starts(start)).records()]

    def batches(self, start: int) -> dict[str, Any]:
        at, rows, follows = start, 0, True
        for each in self.table.scan(start=self._starts(start)).batches():
            follows &= each.first_offset == at and each.last_offset - each.first_offset + 1 == each.batch.num_rows
            at, rows = each.last_offset + 1, rows + each.batch.num_rows
        return {"first": start, "next": at, "rows": rows, "follows": follows}

    def limit(self, number: int) -> int:
        return int(self.table.scan(limit=number).to_arrow().num_rows)

    def follow(self, name: str, columns: Any, start: int) -> str:
        self.streams[name] = self.resources.enter_context(self.table.subscribe(columns, start=self._starts(start)))
        return "ok"

    def take(self, name: str) -> list[list[Any]]:
        stream = self.streams[name]
        (end,) = self.table.offsets("latest").values()
        found: list[list[Any]] = []
        while name not in self.paused and next(iter(stream.position.values())) < end:
            records = stream.poll(timeout=POLL_S)
            assert records, f"nothing came from {stream.position} on"
            found += map(_record, records)
        return found

    def seek(self, name: str, position: int) -> str:
        # Fluss has no pause: to subscribe again is its way to go on.
        self.resume(name)
        self.streams[name].seek({0: position})
        return "ok"

    def pause(self, name: str) -> str:
        self.streams[name].pause([0])
        self.paused.add(name)
        return "ok"

    def resume(self, name: str) -> str:
        self.streams[name].resume([0])
        self.paused.discard(name)
        return "ok"

    def misuse(self) -> str:
        row = dict.fromkeys(self.arrow.names)
        (self.writer.append if "primary_key" in self.case else self.writer.upsert)(row)
        return "ok"

    def keys(self) -> dict[str, Any]:
        rows: dict[str, list[Any]] = {}
        partitions: dict[str, set[int]] = {}
        offsets: dict[int, list[int]] = {}
        for record in self.table.scan().records():
            key = json.dumps([encode(record.row[name]) for name in self.case["key"]])
            rows.setdefault(key, []).append(encode(list(record.row.values())))
            partitions.setdefault(key, set()).add(record.partition)
            offsets.setdefault(record.partition, []).append(record.offset)
        return {
            "rows": dict(sorted(rows.items())),
            "one_bucket": all(len(each) == 1 for each in partitions.values()),
            "no_gaps": all(each == list(range(len(each))) for each in offsets.values()),
        }

    def _starts(self, start: int) -> dict[int, int]:
        return dict.fromkeys(range(self.case["partitions"]), start)


class _AdminSide:
    """Steps of the kind `admin`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ids: dict[str, str] = {}

    def databases(self) -> list[str]:
        return [name for name in self.catalog.databases() if name != "default"]

    def create_database(self, name: str, comment: Any, properties: dict[str, str], ignore: bool) -> str:
        self.catalog.create_database(name, comment=comment, properties=properties, if_exists=_word(ignore))
        return "ok"

    def drop_database(self, name: str, ignore: bool, cascade: bool) -> str:
        self.catalog.drop_database(name, cascade=cascade, delete_data=True, missing=_word(ignore))
        return "ok"

    def database_exists(self, name: str) -> bool:
        return name in self.catalog.databases()

    def database_info(self, name: str) -> list[Any]:
        found = self.catalog.database(name)
        return [found.name, found.comment, dict(found.properties)]

    def create_table(self, name: str, columns: Any, primary_key: Any, options: Any, ignore: bool) -> str:
        self.catalog.create_table(
            name,
            Schema(arrow_schema(columns), primary_key=primary_key),
            num_partitions=options["partitions"],
            key=options["key"] or None,
            comment=options["comment"],
            properties=options["properties"],
            if_exists=_word(ignore),
        )
        return "ok"

    def drop_table(self, name: str, ignore: bool) -> str:
        self.catalog.drop_table(name, delete_data=True, missing=_word(ignore))
        return "ok"

    def tables(self, database: str) -> list[str]:
        return sorted(name.partition(".")[2] for name in self.catalog.tables(database))

    def table_exists(self, name: str) -> bool:
        return name in self.catalog

    def table_info(self, name: str) -> dict[str, Any]:
        found = self.catalog.table(name).info
        assert found.schema is not None
        earlier, self.ids[name] = self.ids.get(name), found.id
        return {
            "name": found.name,
            "partitions": found.num_partitions,
            "comment": found.comment,
            "properties": dict(found.properties),
            "columns": list(found.schema.names),
            "count": len(found.schema),
            "primary_key": list(found.schema.primary_key),
            "has_primary_key": found.kind == "primary-key",
            "key": list(found.key),
            "ordered": found.created_at <= found.modified_at,
            "other_id": earlier is not None and earlier != found.id,
        }


def _record(record: Any) -> list[Any]:
    return [record.offset, record.change_type.short, encode(record.row)]


def _word(ignore: bool) -> Any:
    return "ignore" if ignore else "error"
