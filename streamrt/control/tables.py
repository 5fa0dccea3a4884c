"""The figures of tables on the dashboard."""

from collections.abc import Mapping
from typing import Any

from streamrt.control.controlled import Controlled
from streamrt.joins.lookup import LookupJoin
from streamrt.joins.lookups import TableLookup
from streamrt.relations import (
    ApplyChanges,
    CombineRows,
    Consolidate,
    DistinctRows,
    GroupAggregate,
    JoinRows,
    Materialize,
    NumberRows,
    TableJoin,
    TopRows,
    UpsertChanges,
    UpsertRows,
)
from streamrt.relations.foreign_key_join import ResolveMatches
from streamrt.relations.partial_aggregate import MergeParts
from streamrt.runtime.driver.observation.lag import LagSample
from streamrt.runtime.driver.observation.meters import MetersSnapshot
from streamrt.runtime.driver.observation.stats import StoreStats, store_stats
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topology import Node, SourceOperator, Topology
from streamrt.topology.tallies import (
    TABLE_DELETES,
    TABLE_DELETIONS,
    TABLE_INSERTIONS,
    TABLE_UNCHANGED,
    TABLE_UPDATES,
    TABLE_UPSERTS,
)

__all__ = ["show_tables"]

_KEPT = (
    ApplyChanges,
    CombineRows,
    Consolidate,
    DistinctRows,
    GroupAggregate,
    JoinRows,
    Materialize,
    MergeParts,
    NumberRows,
    ResolveMatches,
    TableJoin,
    TopRows,
)
_WRITTEN = (ApplyChanges, UpsertChanges, UpsertRows)
_COUNTS = {
    "inserted": TABLE_INSERTIONS,
    "updated": TABLE_UPDATES,
    "deleted": TABLE_DELETIONS,
    "unchanged": TABLE_UNCHANGED,
    "upserts": TABLE_UPSERTS,
    "deletes": TABLE_DELETES,
}


def show_tables(app: Controlled, sample: LagSample, counted: MetersSnapshot) -> list[dict[str, Any]]:
    """Return the tables that operators keep, write and look up, in the order of the operators.

    Args:
        app: the application.
        sample: the last known lag.
        counted: the counters.
    """
    topology, stores = app.definition.topology, store_stats(counted)
    counts: dict[str, dict[str, int]] = {}
    kinds = {kind: name for name, kind in _COUNTS.items()}
    for tally, count in counted.tallies.items():
        if tally.kind in kinds:
            own = counts.setdefault(tally.name, dict.fromkeys(_COUNTS, 0))
            own[kinds[tally.kind]] += int(count)
    lags: dict[str, int] = {}
    for partition, lag in sample.lags.items():
        if lag.committed is not None:
            lags[partition.topic] = lags.get(partition.topic, 0) + lag.offsets
    rows = []
    for node in topology.nodes:
        if isinstance(node.operator, (*_KEPT, *_WRITTEN)):
            topics = [
                root.operator.topic.name for root in topology.roots(node) if isinstance(root.operator, SourceOperator)
            ]
            known = [lags[topic] for topic in topics if topic in lags]
            rows.append(
                {
                    "operator": node.label,
                    "table": _describe_table(node),
                    "kind": "kept" if isinstance(node.operator, _KEPT) else "written",
                    "key": _list_key_columns(node, topology),
                    **_read_sizes(node, topology, stores),
                    **counts.get(node.label, dict.fromkeys(_COUNTS, 0)),
                    "lag": sum(known) if known else None,
                }
            )
        elif isinstance(node.operator, LookupJoin) and isinstance(node.operator.lookup, TableLookup):
            rows.append(_show_lookup(node, node.operator.lookup, counted))
    return rows


def _show_lookup(node: Node, lookup: TableLookup, counted: MetersSnapshot) -> dict[str, Any]:
    """Return the copies of a table that processes look rows up in: the highest number of rows, and the highest lag."""
    sizes = [size for (_, table), size in counted.replicas.items() if table == lookup.table.name]
    return {
        "operator": node.label,
        "table": lookup.table.name,
        "kind": "looked up",
        "key": ", ".join(lookup.table.schema.primary_key),
        "rows": max((size.rows for size in sizes if size.rows is not None), default=None),
        "bytes": None,
        **dict.fromkeys(_COUNTS, 0),
        "lag": max((size.lag for size in sizes), default=None),
    }


def _describe_table(node: Node) -> str:
    operator, description = node.operator, node.operator.describe()
    if isinstance(operator, TableJoin | ResolveMatches):
        return f"{description} join"
    if isinstance(operator, JoinRows):
        return f"{operator.how} join on {operator.on[0]} = {operator.on[1]}"
    if isinstance(operator, DistinctRows):
        return "different rows"
    return f"the first {description}" if isinstance(operator, TopRows) else description


def _list_key_columns(node: Node, topology: Topology) -> str:
    operator = node.operator
    if isinstance(operator, GroupAggregate):
        return ", ".join(operator.key_columns)
    if isinstance(operator, Consolidate):
        return ", ".join(operator.columns)
    if isinstance(operator, NumberRows):
        return operator.column
    topic: object = None
    if isinstance(operator, ApplyChanges | UpsertChanges | UpsertRows):
        topic = operator.topic
    elif isinstance(operator, Materialize):
        source = topology.source_of(node).operator
        topic = source.topic if isinstance(source, SourceOperator) else None
    return ", ".join(topic.row_key.columns) if isinstance(topic, TableTopic) and topic.row_key is not None else ""


def _read_sizes(
    node: Node, topology: Topology, stores: Mapping[str, Mapping[str, StoreStats]]
) -> dict[str, int | None]:
    """Return the approximate number of rows, where the store has one key for each, and the size of the store."""
    specs = node.operator.stores()
    if not specs:
        return {"rows": None, "bytes": None}
    name = topology.task_names(node)[specs[0].name]
    found = stores.get(topology.stream_of(node), {}).get(name)
    if found is None or not found.partitions:
        return {"rows": None, "bytes": None}
    operator = node.operator
    by_key = isinstance(operator, Materialize) or (
        isinstance(operator, GroupAggregate) and operator.plan().fold.release is None
    )
    return {"rows": found.rows if by_key else None, "bytes": found.bytes}
