"""The side of Fluss: reads cases from standard input, one as JSON on each line, and writes what Fluss answers.

It runs in an environment with pyfluss, next to a cluster: `python -m tests.oracle.fluss.reference ADDRESS`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import fluss
import pandas as pd
import pyarrow as pa

from tests.oracle.fluss.maintained_reference import create_table
from tests.oracle.fluss.values import arrow_schema, decode, encode, type_name

DATABASE = "oracle"
POLL_MS = 5_000
QUIET_MS = 1_500
LIMIT_S = 30
CODES = {getattr(fluss.ErrorCode, name): name for name in dir(fluss.ErrorCode) if name.isupper()}
FORMS = {"list": list, "tuple": tuple}

Case = dict[str, Any]


class Following:
    """A scanner of records of one bucket, and where it is."""

    def __init__(self, scanner: Any, position: int) -> None:
        self.scanner = scanner
        self.position = position
        self.paused = False
        scanner.subscribe(0, position)

    def pause(self) -> None:
        self.paused = True
        self.scanner.unsubscribe(0)

    async def take(self, end: int) -> list[list[Any]]:
        """Return offset, change and row of all records below an offset."""
        found: list[list[Any]] = []
        while self.position < end and not self.paused:
            records = await self.scanner.poll(POLL_MS)
            found += [[each.offset, each.change_type.short_string(), encode(each.row)] for each in records]
            if not len(records):
                raise RuntimeError(f"nothing came from offset {self.position} on")
            self.position = found[-1][0] + 1
        return found


class TableSide:
    """Steps of the kinds `log`, `keyed`, `primary`, `maintained` and `types`."""

    def __init__(self, connection: Any, case: Case, number: int) -> None:
        self.connection = connection
        self.admin = connection.get_admin()
        self.case = case
        self.path = fluss.TablePath(DATABASE, f"t{os.getpid()}_{number}")
        self.arrow = arrow_schema(case["columns"])
        self.marks: list[int] = []
        self.open_scanners: dict[str, Following] = {}

    async def begin(self) -> None:
        if self.case["kind"] == "maintained":
            await create_table(sys.argv[1], self.path.database_name, self.path.table_name, self.case)
        else:
            await self._create_table()
        # The leaders of buckets are elected after the table is there.
        for _ in range(200):
            try:
                await self._offsets(fluss.OffsetSpec.earliest())
                break
            except fluss.FlussError:
                await asyncio.sleep(0.05)
        self.table = await self.connection.get_table(self.path)
        if "primary_key" in self.case:
            self.writer = self.table.new_upsert().create_writer()
            self.lookuper = self.table.new_lookup().create_lookuper()
        else:
            self.writer = self.table.new_append().create_writer()

    async def _create_table(self) -> None:
        schema = fluss.Schema(self.arrow, **_given(primary_keys=self.case.get("primary_key")))
        descriptor = fluss.TableDescriptor(
            schema, bucket_count=self.case["partitions"], **_given(bucket_keys=self.case["key"])
        )
        await self.admin.create_table(self.path, descriptor)

    async def end(self) -> None:
        await self.admin.drop_table(self.path)

    async def append(self, form: str, row: Any) -> str:
        value = decode(row)
        self.writer.append(FORMS[form](value) if form in FORMS else value)
        return "ok"

    async def upsert(self, form: str, row: Any) -> str:
        value = decode(row)
        self.writer.upsert(FORMS[form](value) if form in FORMS else value)
        return "ok"

    async def delete(self, form: str, key: Any) -> str:
        value = decode(key)
        self.writer.delete(FORMS[form](value) if form in FORMS else value)
        return "ok"

    async def write(self, columns: Any, op: str, row: Any) -> Any:
        """Upsert or delete, and return the row of the key."""
        values = decode(row)
        upsert = self.table.new_upsert()
        if columns is not None:
            upsert = upsert.partial_update_by_name(columns)
        writer = upsert.create_writer()
        written = writer.upsert(values) if op == "u" else writer.delete(values)
        await writer.flush()
        await written.wait()
        return encode(await self.lookuper.lookup({name: values[name] for name in self.case["primary_key"]}))

    async def lookup(self, form: str, key: Any) -> Any:
        value = decode(key)
        return encode(await self.lookuper.lookup(FORMS[form](value) if form in FORMS else value))

    async def prefix(self, columns: list[str], key: list[Any]) -> list[Any]:
        """Rows of a prefix of the key, in any order."""
        lookuper = self.table.new_lookup().lookup_by(columns).create_lookuper()
        return sorted(map(encode, await lookuper.lookup(decode(key))), key=json.dumps)

    async def changes(self) -> dict[str, list[Any]]:
        """Changes of each key in order, with the rows."""
        scanner = await self.table.new_scan().create_log_scanner()
        ends = await self._offsets(fluss.OffsetSpec.latest())
        scanner.subscribe_buckets(self._starts(0))
        found: dict[str, list[Any]] = {}
        # A delete without a row takes an offset, and has no record.
        while any(ends.values()) and (polled := await scanner.poll(QUIET_MS)):
            for bucket, records in polled.items():
                for record in records:
                    if record.offset == ends[bucket.bucket_id] - 1:
                        ends[bucket.bucket_id] = 0
                    key = json.dumps([encode(record.row[name]) for name in self.case["primary_key"]])
                    found.setdefault(key, []).append([record.change_type.short_string(), encode(record.row)])
        return dict(sorted(found.items()))

    async def arrow_rows(self, rows: list[Any]) -> str:
        # Arrow's arrays are made from lists, so that maps may be pairs.
        columns = list(zip(*map(decode, rows), strict=True))
        batch = pa.record_batch(
            [pa.array(list(values), field.type) for values, field in zip(columns, self.arrow, strict=True)],
            schema=self.arrow,
        )
        self.writer.write_arrow_batch(batch)
        return "ok"

    async def pandas_rows(self, rows: list[Any]) -> str:
        self.writer.write_pandas(pd.DataFrame(list(map(decode, rows)), columns=self.arrow.names, dtype=object))
        return "ok"

    async def flush(self) -> int:
        await self.writer.flush()
        if "primary_key" in self.case:
            # Offsets are those of changes, of which StreamRT's topics have fewer.
            return 0
        return sum((await self._offsets(fluss.OffsetSpec.latest())).values())

    async def mark(self) -> str:
        time.sleep(0.02)
        self.marks.append(round(time.time() * 1000))
        time.sleep(0.02)
        return "ok"

    async def offsets(self, spec: Any) -> dict[str, int]:
        if isinstance(spec, list):
            chosen = fluss.OffsetSpec.timestamp(self.marks[spec[1]])
        elif spec == "future":
            chosen = fluss.OffsetSpec.timestamp(round(time.time() * 1000) + 3_600_000)
        else:
            chosen = getattr(fluss.OffsetSpec, spec)()
        return {str(bucket): offset for bucket, offset in sorted((await self._offsets(chosen)).items())}

    async def scan(self, columns: Any, start: int) -> dict[str, Any]:
        scanner = await self._projected(columns).create_record_batch_log_scanner()
        scanner.subscribe_buckets(self._starts(start))
        table = await scanner.to_arrow()
        return {
            "columns": table.column_names,
            "types": [type_name(each) for each in table.schema.types],
            "rows": [encode(list(row.values())) for row in table.to_pylist()],
        }

    async def pandas(self, columns: Any, start: int) -> list[Any]:
        scanner = await self._projected(columns).create_record_batch_log_scanner()
        scanner.subscribe_buckets(self._starts(start))
        frame = await scanner.to_pandas()
        return [list(frame.columns), len(frame)]

    async def records(self, columns: Any, start: int) -> list[list[Any]]:
        return await (await self._following(columns, start)).take(await self._end())

    async def batches(self, start: int) -> dict[str, Any]:
        """Offsets of batches: the first, the last, and whether they follow each other."""
        scanner = await self.table.new_scan().create_record_batch_log_scanner()
        scanner.subscribe(0, start)
        end, at, rows, follows = await self._end(), start, 0, True
        while at < end:
            for each in await scanner.poll_record_batch(POLL_MS):
                follows &= each.base_offset == at and each.last_offset - each.base_offset + 1 == each.batch.num_rows
                at, rows = each.last_offset + 1, rows + each.batch.num_rows
        return {"first": start, "next": at, "rows": rows, "follows": follows}

    async def limit(self, number: int) -> int:
        bucket = fluss.TableBucket(self.table.get_table_info().table_id, 0)
        return int((await self.table.new_scan().limit(number).create_bucket_batch_scanner(bucket).to_arrow()).num_rows)

    async def follow(self, name: str, columns: Any, start: int) -> str:
        self.open_scanners[name] = await self._following(columns, start)
        return "ok"

    async def take(self, name: str) -> list[list[Any]]:
        return await self.open_scanners[name].take(await self._end())

    async def seek(self, name: str, position: int) -> str:
        # A bucket that is subscribed again goes on at the former position if a request is under way.
        self.open_scanners[name] = await self._following(None, position)
        return "ok"

    async def pause(self, name: str) -> str:
        self.open_scanners[name].pause()
        return "ok"

    async def resume(self, name: str) -> str:
        return await self.seek(name, self.open_scanners[name].position)

    async def misuse(self) -> str:
        (self.table.new_append if "primary_key" in self.case else self.table.new_upsert)()
        return "ok"

    async def keys(self) -> dict[str, Any]:
        """Rows of each key in order, whether each key is in one bucket, and whether offsets have no gaps."""
        scanner = await self.table.new_scan().create_log_scanner()
        ends = await self._offsets(fluss.OffsetSpec.latest())
        scanner.subscribe_buckets(self._starts(0))
        rows: dict[str, list[Any]] = {}
        buckets: dict[str, set[int]] = {}
        offsets: dict[int, list[int]] = {bucket: [] for bucket in ends}
        while sum(map(len, offsets.values())) < sum(ends.values()):
            for bucket, records in (await scanner.poll(POLL_MS)).items():
                for record in records:
                    key = json.dumps([encode(record.row[name]) for name in self.case["key"]])
                    rows.setdefault(key, []).append(encode(list(record.row.values())))
                    buckets.setdefault(key, set()).add(bucket.bucket_id)
                    offsets[bucket.bucket_id].append(record.offset)
        return {
            "rows": dict(sorted(rows.items())),
            "one_bucket": all(len(each) == 1 for each in buckets.values()),
            "no_gaps": all(each == list(range(len(each))) for each in offsets.values()),
        }

    def _projected(self, columns: Any) -> Any:
        scan = self.table.new_scan()
        if columns is None:
            return scan
        return scan.project(columns) if isinstance(columns[0], int) else scan.project_by_name(columns)

    async def _following(self, columns: Any, start: int) -> Following:
        return Following(await self._projected(columns).create_log_scanner(), start)

    def _starts(self, start: int) -> dict[int, int]:
        return dict.fromkeys(range(self.case["partitions"]), start)

    async def _offsets(self, spec: Any) -> dict[int, int]:
        found: dict[int, int] = await self.admin.list_offsets(self.path, list(range(self.case["partitions"])), spec)
        return found

    async def _end(self) -> int:
        return sum((await self._offsets(fluss.OffsetSpec.latest())).values())


class AdminSide:
    """Steps of the kind `admin`."""

    def __init__(self, connection: Any) -> None:
        self.admin = connection.get_admin()
        self.ids: dict[str, int] = {}

    async def begin(self) -> None:
        for name in await self.databases():
            await self.admin.drop_database(name)

    async def end(self) -> None:
        await self.begin()

    async def databases(self) -> list[str]:
        return sorted(name for name in await self.admin.list_databases() if name not in ("fluss", DATABASE))

    async def create_database(self, name: str, comment: Any, properties: dict[str, str], ignore: bool) -> str:
        descriptor = fluss.DatabaseDescriptor(comment=comment, custom_properties=properties)
        await self.admin.create_database(name, descriptor, ignore_if_exists=ignore)
        return "ok"

    async def drop_database(self, name: str, ignore: bool, cascade: bool) -> str:
        await self.admin.drop_database(name, ignore_if_not_exists=ignore, cascade=cascade)
        return "ok"

    async def database_exists(self, name: str) -> bool:
        return bool(await self.admin.database_exists(name))

    async def database_info(self, name: str) -> list[Any]:
        found = await self.admin.get_database_info(name)
        described = found.get_database_descriptor()
        return [found.database_name, described.comment, described.get_custom_properties()]

    async def create_table(self, name: str, columns: Any, primary_key: Any, options: Any, ignore: bool) -> str:
        descriptor = fluss.TableDescriptor(
            fluss.Schema(arrow_schema(columns), **_given(primary_keys=primary_key)),
            bucket_count=options["partitions"],
            custom_properties=options["properties"],
            **_given(bucket_keys=options["key"], comment=options["comment"]),
        )
        await self.admin.create_table(self._path(name), descriptor, ignore_if_exists=ignore)
        return "ok"

    async def drop_table(self, name: str, ignore: bool) -> str:
        await self.admin.drop_table(self._path(name), ignore_if_not_exists=ignore)
        return "ok"

    async def tables(self, database: str) -> list[str]:
        return sorted(await self.admin.list_tables(database))

    async def table_exists(self, name: str) -> bool:
        return bool(await self.admin.table_exists(self._path(name)))

    async def table_info(self, name: str) -> dict[str, Any]:
        """Return what is known of a table, and whether its id is another one than at the last look."""
        found = await self.admin.get_table_info(self._path(name))
        earlier, self.ids[name] = self.ids.get(name), found.table_id
        return {
            "name": f"{found.table_path.database_name}.{found.table_path.table_name}",
            "partitions": found.num_buckets,
            "comment": found.comment,
            "properties": found.get_custom_properties(),
            "columns": found.get_column_names(),
            "count": found.get_column_count(),
            "primary_key": found.get_primary_keys(),
            "has_primary_key": found.has_primary_key(),
            "key": found.get_bucket_keys(),
            "ordered": 0 < found.created_time <= found.modified_time,
            "other_id": earlier is not None and earlier != found.table_id,
        }

    def _path(self, name: str) -> Any:
        return fluss.TablePath(*name.split(".", 1))


def _given(**arguments: Any) -> dict[str, Any]:
    # None, which is the default, is refused.
    return {name: value for name, value in arguments.items() if value}


async def answers(connection: Any, case: Case, number: int) -> list[Any]:
    """Return what Fluss answers to each step."""
    side = AdminSide(connection) if case["kind"] == "admin" else TableSide(connection, case, number)
    await side.begin()
    found: list[Any] = []
    for word, *arguments in case["steps"]:
        try:
            found.append(await asyncio.wait_for(getattr(side, word)(*arguments), LIMIT_S))
        except asyncio.TimeoutError as error:
            raise RuntimeError(f"no answer to {[word, *arguments]} within {LIMIT_S} s") from error
        except (fluss.FlussError, OverflowError, KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
            found.append(["error", CODES.get(getattr(error, "error_code", None), type(error).__name__)])
    await side.end()
    return found


async def _connect(address: str) -> Any:
    # Both servers listen before the coordinator knows of the tablet server.
    while True:
        try:
            connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
            nodes = await connection.get_admin().get_server_nodes()
            if any(each.server_type == "TabletServer" for each in nodes):
                return connection
        except fluss.FlussError:
            pass
        await asyncio.sleep(0.2)


async def main() -> None:
    """Answer cases until there are no more."""
    connection = await asyncio.wait_for(_connect(sys.argv[1]), LIMIT_S)
    await connection.get_admin().create_database(DATABASE, ignore_if_exists=True)
    for number, line in enumerate(sys.stdin):
        try:
            result = await answers(connection, json.loads(line), number)
        except Exception as error:  # it is shown with the case
            print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
            # To close the connection would wait for what has not come.
            os._exit(1)
        print(json.dumps(result), flush=True)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
