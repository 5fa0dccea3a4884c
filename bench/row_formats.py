"""Rows per second of each format of rows, in batches of Arrow, beside a loop over the underlying library in the same run.

Rows have five columns. Both sides run in turn, in one process and without Kafka, and the best of several rounds counts.
Time is processor time, so other programs on the machine have little effect.

    python -m bench.row_formats
"""

import argparse
import datetime
import random
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import orjson
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from streamrt import Schema
from streamrt.serializers.row_formats import row_format

SCHEMA = Schema("id BIGINT NOT NULL, customer STRING, amount DOUBLE, paid BOOLEAN, at TIMESTAMP_LTZ")


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=10_000, help="rows of a batch")
    options.add_argument("--rounds", type=int, default=7, help="rounds, of which the best counts")
    given = options.parse_args()
    rows = _rows(given.rows)
    shown = Table("format", "what", "rows/s", "loop over the library", "ratio")
    for name, loop in (("json", _json_loop), ("avro", _avro_loop), ("protobuf", None)):
        made = row_format(name, SCHEMA)
        values = [made.encode(row, "orders") for row in rows]
        batch = made.decode_batch(values, "orders")
        cases: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
            ("read", lambda: made.decode_batch(values, "orders"), None if loop is None else lambda: loop(values)),  # noqa: B023
            ("read two columns", lambda: made.decode_batch(values, "orders", ["id", "paid"]), None),  # noqa: B023
            ("write", lambda: made.encode_batch(batch, "orders"), None),  # noqa: B023
        ]
        for what, ours, theirs in cases:
            rate = given.rows / _best(ours, given.rounds)
            other = None if theirs is None else given.rows / _best(theirs, given.rounds)
            beside = ("", "") if other is None else (f"{other:,.0f}", f"{rate / other:.1f}")
            shown.add_row(name, what, f"{rate:,.0f}", *beside)
    Console().print(shown)


def _rows(count: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    moment = datetime.datetime(2026, 3, 29, tzinfo=datetime.timezone.utc)
    return [
        {
            "id": number,
            "customer": f"customer-{rng.randrange(1_000)}",
            "amount": rng.random() * 100,
            "paid": bool(number % 2),
            "at": moment + datetime.timedelta(microseconds=rng.randrange(10**12)),
        }
        for number in range(count)
    ]


def _json_loop(values: list[bytes]) -> pa.Table:
    return pa.Table.from_pylist([orjson.loads(value) for value in values])


def _avro_loop(values: list[bytes]) -> list[Any]:
    parsed = fastavro.parse_schema(SCHEMA.to_avro())
    return [fastavro.schemaless_reader(BytesIO(value), parsed, None) for value in values]


def _best(call: Callable[[], Any], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best


if __name__ == "__main__":
    main()
