"""Tables: named topics with a schema, which any process can write, scan and follow without an application."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamrt.secret import SecretRef
    from streamrt.tables.catalogue.catalog import Catalog
    from streamrt.tables.catalogue.catalog_store import CatalogStore, FileCatalog, MemoryCatalog
    from streamrt.tables.catalogue.kafka_catalog import KafkaCatalog
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.descriptions.connections import AWSConnection, Connection
    from streamrt.tables.descriptions.connectors import HTTPSSE, Connector, KafkaTopic, SinkTable, SourceTable, SQSQueue
    from streamrt.tables.descriptions.info import DatabaseInfo, TableInfo
    from streamrt.tables.descriptions.maintenance import Aggregate, ListAgg, Maintenance, SequenceGroups, Versioned
    from streamrt.tables.descriptions.usages import ApplicationInfo, Lineage, LineageNode, Usage
    from streamrt.tables.reading.changes import ChangeListener
    from streamrt.tables.reading.detection import Detected
    from streamrt.tables.reading.query_result import QueryResult
    from streamrt.tables.reading.reads import Snapshot
    from streamrt.tables.reading.scan import TableScan
    from streamrt.tables.reading.stream import TableStream
    from streamrt.tables.replicas.replica import TableReplica
    from streamrt.tables.rows.rows import ChangeType, RecordBatch, ScanRecord, ScanRecords
    from streamrt.tables.table import Table
    from streamrt.tables.writing.delivery import BatchResult, RecordPosition, WriteResult
    from streamrt.tables.writing.writer import TableWriter

# Imported on first use: `streamrt.tables.catalogue.catalog` needs them all.
_HOMES = {
    "AWSConnection": "descriptions.connections",
    "Aggregate": "descriptions.maintenance",
    "ApplicationInfo": "descriptions.usages",
    "BatchResult": "writing.delivery",
    "Catalog": "catalogue.catalog",
    "CatalogStore": "catalogue.catalog_store",
    "ChangeListener": "reading.changes",
    "ChangeType": "rows.rows",
    "Connection": "descriptions.connections",
    "Connector": "descriptions.connectors",
    "DatabaseInfo": "descriptions.info",
    "Detected": "reading.detection",
    "Execution": "catalogue.statements",
    "FileCatalog": "catalogue.catalog_store",
    "HTTPSSE": "descriptions.connectors",
    "KafkaCatalog": "catalogue.kafka_catalog",
    "KafkaTopic": "descriptions.connectors",
    "Lineage": "descriptions.usages",
    "LineageNode": "descriptions.usages",
    "ListAgg": "descriptions.maintenance",
    "Maintenance": "descriptions.maintenance",
    "MemoryCatalog": "catalogue.catalog_store",
    "QueryResult": "reading.query_result",
    "RecordBatch": "rows.rows",
    "RecordPosition": "writing.delivery",
    "SQSQueue": "descriptions.connectors",
    "ScanRecord": "rows.rows",
    "ScanRecords": "rows.rows",
    "SecretRef": "descriptions.connectors",
    "SequenceGroups": "descriptions.maintenance",
    "SinkTable": "descriptions.connectors",
    "Snapshot": "reading.reads",
    "SourceTable": "descriptions.connectors",
    "Table": "table",
    "TableInfo": "descriptions.info",
    "TableReplica": "replicas.replica",
    "TableScan": "reading.scan",
    "TableStream": "reading.stream",
    "TableWriter": "writing.writer",
    "Usage": "descriptions.usages",
    "Versioned": "descriptions.maintenance",
    "WriteResult": "writing.delivery",
}

__all__ = [
    "HTTPSSE",
    "AWSConnection",
    "Aggregate",
    "ApplicationInfo",
    "BatchResult",
    "Catalog",
    "CatalogStore",
    "ChangeListener",
    "ChangeType",
    "Connection",
    "Connector",
    "DatabaseInfo",
    "Detected",
    "Execution",
    "FileCatalog",
    "KafkaCatalog",
    "KafkaTopic",
    "Lineage",
    "LineageNode",
    "ListAgg",
    "Maintenance",
    "MemoryCatalog",
    "QueryResult",
    "RecordBatch",
    "RecordPosition",
    "SQSQueue",
    "ScanRecord",
    "ScanRecords",
    "SecretRef",
    "SequenceGroups",
    "SinkTable",
    "Snapshot",
    "SourceTable",
    "Table",
    "TableInfo",
    "TableReplica",
    "TableScan",
    "TableStream",
    "TableWriter",
    "Usage",
    "Versioned",
    "WriteResult",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt.tables' has no attribute {name!r}")
    return getattr(importlib.import_module(f"streamrt.tables.{_HOMES[name]}"), name)
