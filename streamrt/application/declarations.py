"""Inputs of an application: topics, tables and sources."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

from streamrt.application.tables import ApplicationTables
from streamrt.connectors import BaseSource, Instances, source_topic
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import Branch
from streamrt.dataframe.maintaining import maintain_table
from streamrt.dataframe.streaming_table import StreamingTable, keep_versions
from streamrt.dataframe.tables import require_requests_topic
from streamrt.dataframe.versions import parse_keep
from streamrt.errors import ArgumentTypeError, InvalidOperationError
from streamrt.joins import TableLookup
from streamrt.runtime.driver.starting.definition import ApplicationDefinition
from streamrt.topics import Topic
from streamrt.topology import SourceOperator

if TYPE_CHECKING:
    from streamrt.state import Store
    from streamrt.tables import Table

__all__ = ["Declarations"]


class Declarations:
    """Makes dataframes of topics and tables, and adds sources.

    Args:
        definition: the application.
        tables: its tables.
    """

    def __init__(self, definition: ApplicationDefinition, tables: ApplicationTables) -> None:
        self._definition = definition
        self._tables = tables
        # Topics that have a dataframe, and the rows of topics that are read as tables.
        self._streams: set[str] = set()
        self._rows: dict[str, StreamingTable[StreamingDataFrame]] = {}
        self._maintained: set[str] = set()

    def dataframe(
        self, topic: Topic | Table | str | None = None, source: BaseSource | None = None
    ) -> StreamingDataFrame:
        """See `Application.dataframe`."""
        if source is not None:
            topic = self.add_source(source, topic)
        elif _names_table(topic):
            topic = self._input_topic(self._tables.find(topic))
        if not isinstance(topic, Topic):
            raise ArgumentTypeError(
                "dataframe() needs a topic made by Application.topic(), a table such as 'shop.orders', or a source, got "
                f"{type(topic).__name__}"
            )
        branch = self._read_topic(topic, shares=topic.name not in self._streams)
        self._streams.add(topic.name)
        return StreamingDataFrame(branch)

    def table_everywhere(self, table: Topic | Table | str) -> TableLookup:
        """See `Application.table`."""
        if not _names_table(table):
            raise ArgumentTypeError(
                "table(everywhere=True) needs a table with a primary key, such as 'shop.customers', got "
                f"{type(table).__name__}"
            )
        return TableLookup(self._tables.find(table))

    def table(
        self,
        table: Topic | Table | str,
        store_type: type[Store] | None = None,
        keep: int | timedelta | None = None,
    ) -> StreamingTable[StreamingDataFrame]:
        """See `Application.table`."""
        if _names_table(table):
            found = self._tables.find(table)
            if found.kind != "primary-key":
                raise InvalidOperationError(
                    f"table() needs a table with a primary key, and {found.name} has none: dataframe() reads its rows as a "
                    "stream, and as_table() of a dataframe keeps the last one of each key"
                )
            table = found.topic
        if not isinstance(table, Topic):
            raise ArgumentTypeError(
                "table() needs a table with a primary key, such as 'shop.customers', or a topic made by "
                f"Application.topic(), got {type(table).__name__}"
            )
        keep_ms = parse_keep("table", keep)
        if table.name not in self._rows:
            stream = StreamingDataFrame(self._read_topic(table, shares=True))
            if store_type is not None:
                stream.register_store(store_type)
            self._rows[table.name] = stream.as_table()
            self._definition.tables.add(table.name)
        elif store_type is not None:
            raise InvalidOperationError(
                f"table({_name_of(table)}, store_type=...) was called before: choose the store in the first call"
            )
        return keep_versions(self._rows[table.name], keep_ms)

    def _read_topic(self, topic: Topic, *, shares: bool) -> Branch:
        """Return the position at a topic; a dataframe and a table of it share their source."""
        definition = self._definition
        definition.topics.register(topic)
        source = definition.builder.find_source(topic.name) if shares else None
        if source is None:
            source = definition.builder.add_source(SourceOperator(topic))
        return Branch(definition.builder, source, (source,), definition.topics, tables=self._tables.find)

    def add_source(
        self, source: BaseSource, topic: Topic | Table | str | None = None, instances: Instances | None = None
    ) -> Topic:
        """See `Application.add_source`."""
        if not isinstance(source, BaseSource):
            raise ArgumentTypeError(f"add_source() needs a source derived from BaseSource, got {type(source).__name__}")
        if _names_table(topic):
            table = self._tables.find(topic)
            if table.kind != "log":
                raise InvalidOperationError(_why_no_source_into(table))
            topic = table.topic
        if topic is not None and not isinstance(topic, Topic):
            raise ArgumentTypeError(f"add_source(topic=...) must be a Topic, got {type(topic).__name__}")
        chosen = self._definition.topics.register(source_topic(source) if topic is None else topic)
        self._definition.sources.register(source, chosen, instances)
        return chosen

    def maintain(self, table: Table | str, store_type: type[Store] | None = None) -> StreamingTable[StreamingDataFrame]:
        """See `Application.maintain`."""
        if not isinstance(table, str) and not _names_table(table):
            raise ArgumentTypeError(
                f"maintain() needs a maintained table, such as 'shop.customers', got {type(table).__name__}"
            )
        found = self._tables.find(table)
        if found.name in self._maintained:
            raise InvalidOperationError(
                f"maintain({_name_of(table)}) was called before: use the table that it returned; copy() makes another one"
            )
        topic = require_requests_topic("maintain", found)
        stream = StreamingDataFrame(self._read_topic(topic, shares=False))
        if store_type is not None:
            stream.register_store(store_type)
        changed = maintain_table(stream, found, self._tables.task_links())
        self._maintained.add(found.name)
        return changed

    def _input_topic(self, table: Table) -> Topic:
        if table.kind != "external":
            return table.topic
        from streamrt.tables.endpoints.endpoints import endpoint_source, endpoint_topic

        topic = endpoint_topic(table.info, table.home)
        return self.add_source(endpoint_source(table.info, table.home), topic)


def _name_of(table: object) -> str:
    return repr(table if isinstance(table, str) else getattr(table, "name", table))


def _why_no_source_into(table: Table) -> str:
    if table.kind == "external":
        return f"a source into {table.name}, an external table, is not there yet: produce to a topic or to a log table"
    return (
        f"a source cannot produce to {table.name}, a table with a primary key, which has rows and not their changes: "
        f"dataframe(source=...) reads the source, and its to_table({table.name!r}) writes rows; change_events=True applies "
        "events of PostgresCdcSource and MySQLCdcSource"
    )


def _names_table(given: object) -> TypeGuard[Table | str]:
    if given is None or isinstance(given, Topic):
        return False
    if isinstance(given, str):
        return "." in given
    # With pyarrow, which applications without tables do not wait for.
    from streamrt.tables import Table

    return isinstance(given, Table)
