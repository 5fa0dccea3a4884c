"""StreamRT's side of the kind `maintained`: an application in the test driver merges the requests."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from streamrt import Application
from streamrt.schema import Schema
from streamrt.tables import Aggregate, Catalog, MemoryCatalog, Versioned
from streamrt.tables.descriptions.maintenance import Merge
from streamrt.tables.writing.writer import TableWriter
from streamrt.testing import TopologyTestDriver
from tests.oracle.fluss.values import arrow_schema, decode, encode

__all__ = ["MaintainedSide"]


class MaintainedSide:
    """Steps of the kind `maintained`."""

    def __init__(self, case: dict[str, Any], resources: ExitStack) -> None:
        self.case = case
        self.resources = resources
        catalog = Catalog(store=MemoryCatalog())
        catalog.create_database("oracle")
        catalog.create_table(
            "oracle.t",
            Schema(arrow_schema(case["columns"]), primary_key=case["primary_key"]),
            num_partitions=case["partitions"],
            merge=_read_rule(case),
            deletes=case["deletes"],
            changelog=True,
        )
        app = Application("unused:9092", consumer_group="oracle", catalog=catalog)
        app.maintain("oracle.t")
        self.driver = resources.enter_context(TopologyTestDriver(app))
        self.table = self.driver.table("oracle.t")
        self.writers: dict[str, TableWriter] = {}

    def write(self, columns: Any, op: str, row: Any) -> Any:
        """Upsert or delete, and return the row of the key."""
        values = decode(row)
        name = json.dumps(columns)
        if name not in self.writers:
            self.writers[name] = self.resources.enter_context(self.table.writer(columns=columns))
        writer = self.writers[name]
        (writer.upsert if op == "u" else writer.delete)(values)
        key = {name: values[name] for name in self.case["primary_key"]}
        return encode(self.table.get(key, after=writer.flush()))

    def changes(self) -> dict[str, list[Any]]:
        """Return the changes of each key in order, with the rows."""
        found: dict[str, list[Any]] = {}
        for row in self.driver.table("oracle.t$changelog").scan().to_arrow().to_pylist():
            kind = row.pop("_change_type")
            del row["_at"]
            key = json.dumps([encode(row[name]) for name in self.case["primary_key"]])
            found.setdefault(key, []).append([kind, encode(row)])
        return dict(sorted(found.items()))


def _read_rule(case: dict[str, Any]) -> Merge:
    match case["merge"]:
        case "versioned":
            return Versioned(case["version"])
        case "aggregate":
            return Aggregate(**case["functions"])
        case "first":
            return "first"
        case _:
            return "last"
