"""Tables: named topics with a schema, which any process can write, scan and follow without an application."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamrt.tables.catalog import Catalog
    from streamrt.tables.catalog_store import CatalogStore, FileCatalog, MemoryCatalog
    from streamrt.tables.connections import AWSConnection, Connection
    from streamrt.tables.connectors import HTTPSSE, Connector, KafkaTopic, SourceTable, SQSQueue
    from streamrt.tables.info import DatabaseInfo, TableInfo
    from streamrt.tables.kafka_catalog import KafkaCatalog
    from streamrt.tables.table import Table
    from streamrt.tables.usages import ApplicationInfo, Lineage, LineageNode, Usage

# Imported on first use: `streamrt.tables.catalog` needs them all.
_HOMES = {
    "AWSConnection": "connections",
    "ApplicationInfo": "usages",
    "Catalog": "catalog",
    "CatalogStore": "catalog_store",
    "Connection": "connections",
    "Connector": "connectors",
    "DatabaseInfo": "info",
    "FileCatalog": "catalog_store",
    "HTTPSSE": "connectors",
    "KafkaCatalog": "kafka_catalog",
    "KafkaTopic": "connectors",
    "Lineage": "usages",
    "LineageNode": "usages",
    "MemoryCatalog": "catalog_store",
    "SQSQueue": "connectors",
    "SourceTable": "connectors",
    "Table": "table",
    "TableInfo": "info",
    "Usage": "usages",
}

__all__ = [
    "HTTPSSE",
    "AWSConnection",
    "ApplicationInfo",
    "Catalog",
    "CatalogStore",
    "Connection",
    "Connector",
    "DatabaseInfo",
    "FileCatalog",
    "KafkaCatalog",
    "KafkaTopic",
    "Lineage",
    "LineageNode",
    "MemoryCatalog",
    "SQSQueue",
    "SourceTable",
    "Table",
    "TableInfo",
    "Usage",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt.tables' has no attribute {name!r}")
    return getattr(importlib.import_module(f"streamrt.tables.{_HOMES[name]}"), name)
