"""Tables: named topics with a schema, which any process can write, scan and follow without an application."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamrt.secret import SecretRef
    from streamrt.tables.catalog import Catalog
    from streamrt.tables.catalog_store import CatalogStore, FileCatalog, MemoryCatalog
    from streamrt.tables.changes import ChangeListener
    from streamrt.tables.connections import AWSConnection, Connection
    from streamrt.tables.connectors import HTTPSSE, Connector, KafkaTopic, SinkTable, SourceTable, SQSQueue
    from streamrt.tables.delivery import BatchResult, RecordPosition, WriteResult
    from streamrt.tables.detection import Detected
    from streamrt.tables.info import DatabaseInfo, TableInfo
    from streamrt.tables.kafka_catalog import KafkaCatalog
    from streamrt.tables.rows import ChangeType, RecordBatch, ScanRecord, ScanRecords
    from streamrt.tables.scan import TableScan
    from streamrt.tables.stream import TableStream
    from streamrt.tables.table import Table
    from streamrt.tables.usages import ApplicationInfo, Lineage, LineageNode, Usage
    from streamrt.tables.writer import TableWriter

# Imported on first use: `streamrt.tables.catalog` needs them all.
_HOMES = {
    "AWSConnection": "connections",
    "ApplicationInfo": "usages",
    "BatchResult": "delivery",
    "Catalog": "catalog",
    "CatalogStore": "catalog_store",
    "ChangeListener": "changes",
    "ChangeType": "rows",
    "Connection": "connections",
    "Connector": "connectors",
    "DatabaseInfo": "info",
    "Detected": "detection",
    "FileCatalog": "catalog_store",
    "HTTPSSE": "connectors",
    "KafkaCatalog": "kafka_catalog",
    "KafkaTopic": "connectors",
    "Lineage": "usages",
    "LineageNode": "usages",
    "MemoryCatalog": "catalog_store",
    "RecordBatch": "rows",
    "RecordPosition": "delivery",
    "SQSQueue": "connectors",
    "ScanRecord": "rows",
    "ScanRecords": "rows",
    "SecretRef": "connectors",
    "SinkTable": "connectors",
    "SourceTable": "connectors",
    "Table": "table",
    "TableInfo": "info",
    "TableScan": "scan",
    "TableStream": "stream",
    "TableWriter": "writer",
    "Usage": "usages",
    "WriteResult": "delivery",
}

__all__ = [
    "HTTPSSE",
    "AWSConnection",
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
    "FileCatalog",
    "KafkaCatalog",
    "KafkaTopic",
    "Lineage",
    "LineageNode",
    "MemoryCatalog",
    "RecordBatch",
    "RecordPosition",
    "SQSQueue",
    "ScanRecord",
    "ScanRecords",
    "SecretRef",
    "SinkTable",
    "SourceTable",
    "Table",
    "TableInfo",
    "TableScan",
    "TableStream",
    "TableWriter",
    "Usage",
    "WriteResult",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt.tables' has no attribute {name!r}")
    return getattr(importlib.import_module(f"streamrt.tables.{_HOMES[name]}"), name)
