"""TPC-H: its 22 queries as views, over rows of its generator that come in chunks and are partly taken back.

The generator, `tpchgen-cli` of PyPI, is fetched for the run, and its tables are kept below `STREAMRT_CACHE_DIR`.
"""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamrt.jvm.archive import cache_directory
from streamrt.schema import Schema
from tests.sql.suites import Query, Suite
from tests.sql.worlds import Change

__all__ = ["make_suite"]

_GENERATOR = "tpchgen-cli==4.0.0"
_KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "customer": ("c_custkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""The tables with their primary keys."""
_SMALL = ("region", "nation", "supplier", "part", "customer", "partsupp")


def make_suite(scale: float, chunks: int, seed: int = 0) -> Suite:
    """Return the suite of a scale.

    Orders come in `chunks`, each with its line items, in any order. The last chunk takes a tenth of the orders back, as the
    refresh functions of TPC-H do, and changes rows of each other table.
    """
    tables, schemas = _read_tables(scale), {}
    for name, data in tables.items():
        columns = {field.name: field.type for field in data.schema}
        schemas[name] = Schema(columns, primary_key=_KEYS[name])
    rows = {name: data.to_pylist() for name, data in tables.items()}
    text = Path(__file__).with_name("tpch.sql").read_text(encoding="utf-8")
    queries = [
        Query(name, query.replace("0.0001", f"{0.0001 / scale:.4f}")) for name, query in read_queries(text).items()
    ]
    return Suite(f"TPC-H, scale {scale}", schemas, queries, [*_make_chunks(rows, chunks, random.Random(seed))])


def read_queries(text: str) -> dict[str, str]:
    """Return the queries of a text by their names, each of which is a comment before it."""
    parts = re.split(r"^-- (q\d+)$", text, flags=re.MULTILINE)[1:]
    return {name: query.strip().removesuffix(";") for name, query in zip(parts[::2], parts[1::2], strict=True)}


def _make_chunks(rows: dict[str, list[dict[str, Any]]], count: int, source: random.Random) -> Iterator[list[Change]]:
    items: dict[int, list[dict[str, Any]]] = {}
    for item in rows["lineitem"]:
        items.setdefault(item["l_orderkey"], []).append(item)
    orders = source.sample(rows["orders"], len(rows["orders"]))
    size = -(-len(orders) // count)
    for start in range(0, len(orders), size):
        changes = [
            _upsert(*change)
            for order in orders[start : start + size]
            for change in (("orders", order), *(("lineitem", item) for item in items.get(order["o_orderkey"], ())))
        ]
        if not start:
            changes += [_upsert(name, row) for name in _SMALL for row in rows[name]]
        source.shuffle(changes)
        yield changes
    gone = source.sample(orders, len(orders) // 10)
    changes = [_delete("orders", order) for order in gone]
    changes += [_delete("lineitem", item) for order in gone for item in items.get(order["o_orderkey"], ())]
    for name in ("supplier", "part", "customer", "partsupp"):
        # Rows exchange what they say, except for their keys.
        changed = source.sample(rows[name], max(2, len(rows[name]) // 20))
        for row, other in zip(changed, [*changed[1:], changed[0]], strict=True):
            changes.append(_upsert(name, other | {column: row[column] for column in _KEYS[name]}))
        changes.append(_delete(name, source.choice(rows[name])))
    source.shuffle(changes)
    yield changes


def _upsert(table: str, row: dict[str, Any]) -> Change:
    return Change(table, _key(table, row), row)


def _delete(table: str, row: dict[str, Any]) -> Change:
    return Change(table, _key(table, row), None)


def _key(table: str, row: dict[str, Any]) -> Any:
    values = tuple(row[column] for column in _KEYS[table])
    return values[0] if len(values) == 1 else values


def _read_tables(scale: float) -> dict[str, Any]:
    directory = cache_directory() / "tpch" / str(scale)
    if not (directory / "lineitem.parquet").exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = [str(_provide_generator()), "parquet", "-s", str(scale), "--output-dir", str(directory)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return {name: pq.read_table(directory / f"{name}.parquet") for name in _KEYS}


def _provide_generator() -> Path:
    target = cache_directory() / "tpchgen"
    program = target / "bin" / "tpchgen-cli"
    if not program.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        command = [*pip, "--only-binary", ":all:", "--target", str(target), _GENERATOR]
        subprocess.run(command, check=True, timeout=300)
    return program
