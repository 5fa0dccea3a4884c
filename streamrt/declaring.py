"""What an application reads: topics, tables and sources. `Application` derives from `DeclaringApplication`."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from typing_extensions import override

from streamrt.collecting import CollectingApplication
from streamrt.connectors import BaseSource, Instances, source_topic
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import Branch
from streamrt.errors import ArgumentTypeError, ConsumerError, InvalidOperationError
from streamrt.runtime.driver.reset import ResetReport, ResetTo
from streamrt.runtime.driver.schema_changes import schema_change
from streamrt.runtime.driver.table_usage import TableUsage
from streamrt.topics import Topic
from streamrt.topology import SourceOperator

if TYPE_CHECKING:
    from streamrt.tables import Catalog, Table

__all__ = ["DeclaringApplication"]

logger = logging.getLogger("streamrt")

_LAST_WAIT_S = 5.0
"""How long the end of a run waits for the catalogue."""


class DeclaringApplication(CollectingApplication):
    """Adds dataframes of topics and tables, and sources.

    Args:
        catalog: the catalogue of tables; None for that of the application's brokers.
    """

    def __init__(self, catalog: Catalog | None = None) -> None:
        super().__init__()
        self._catalog = catalog

    @property
    def catalog(self) -> Catalog:
        """The catalogue of tables: the one that was given, or that of the application's brokers.

        Example:
            ```python
            app.catalog.create_table("shop.orders", "id BIGINT, total DOUBLE", if_exists="ignore")
            ```
        """
        if self._catalog is None:
            # Most applications have no tables.
            from streamrt.tables import Catalog

            self._catalog = Catalog(self._environment.connection, timeout=self._definition.config.request_timeout)
        return self._catalog

    def dataframe(
        self, topic: Topic | Table | str | None = None, source: BaseSource | None = None
    ) -> StreamingDataFrame:
        """Make a dataframe that reads a topic or a table.

        The values of a table are checked rows, its keys those of its key columns, and timestamps those of its time column, if
        it has these. The rows of an external table arrive by a source, which the application gets, too.

        Args:
            topic: the input topic; or a table, as an object or by its name in the catalogue, such as `"shop.orders"`.
            source: a source that produces to the topic or table while the application runs; `topic` is then optional.

        Raises:
            InvalidOperationError: if the topic already has a dataframe, or the table cannot be read or written in this way.
            ConfigurationError: if no topic is given.
            TableNotFoundError: if there is no table of this name.
            SchemaError: if the table has no schema.

        Example:
            ```python
            sdf = app.dataframe(app.topic("flights"))
            orders = app.dataframe("shop.orders")
            ```
        """
        if source is not None:
            topic = self.add_source(source, topic)
        elif _names_table(topic):
            topic = self._input_topic(self._table(topic))
        if not isinstance(topic, Topic):
            raise ArgumentTypeError(
                "dataframe() needs a topic made by Application.topic(), a table such as 'shop.orders', or a source, got "
                f"{type(topic).__name__}"
            )
        self._definition.topics.register(topic)
        builder = self._definition.builder
        node = builder.add_source(SourceOperator(topic))
        return StreamingDataFrame(Branch(builder, node, (node,), self._definition.topics, tables=self._table))

    def add_source(
        self, source: BaseSource, topic: Topic | Table | str | None = None, instances: Instances | None = None
    ) -> Topic:
        """Add a source: a separate process that produces to a topic or a table while the application runs.

        Args:
            source: the source.
            topic: the topic to produce to; by default one that the source chooses, with the prefix "source__". Or a table,
                as an object or by its name: its rows are what the source gives as values.
            instances: where it runs if the application runs several times in one consumer group: in "each" instance, or in
                "one", and another one takes over when that one ends. None for the choice of the source: sources with state
                run in one, all others in each.

        Returns:
            The topic, to make a dataframe from.

        Raises:
            ConfigurationError: if `source` is not a source, or cannot run in these instances.
            InvalidOperationError: if this source, or another source for the topic, was added before, or rows cannot be
                appended to the table.

        Example:
            ```python
            prices = app.add_source(CSVSource("prices.csv", name="prices"))
            sdf = app.dataframe(prices)
            ```
        """
        if not isinstance(source, BaseSource):
            raise ArgumentTypeError(f"add_source() needs a source derived from BaseSource, got {type(source).__name__}")
        if _names_table(topic):
            table = self._table(topic)
            if table.kind != "log":
                what = "an external table" if table.kind == "external" else "a table with a primary key"
                raise InvalidOperationError(
                    f"a source into {table.name}, {what}, is not there yet: produce to a topic or to a table without one"
                )
            topic = table.topic
        if topic is not None and not isinstance(topic, Topic):
            raise ArgumentTypeError(f"add_source(topic=...) must be a Topic, got {type(topic).__name__}")
        chosen = self._definition.topics.register(source_topic(source) if topic is None else topic)
        self._definition.sources.register(source, chosen, instances)
        return chosen

    def table(self, table: Table | str, **options: Any) -> NoReturn:
        """Refuse to read a table as rows by key.

        Args:
            table: the table, or its name.
            **options: how.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            f"table({_named(table)}) is not there yet, because applications read tables as streams of rows: dataframe(table) "
            "does that, its state keeps rows by key, and join_asof() and join_lookup() join them"
        )

    def maintain(self, table: Table | str) -> NoReturn:
        """Refuse to merge partial updates into a table.

        Args:
            table: the table, or its name.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            f"maintain({_named(table)}) is not there yet, because tables with a primary key are created and described alone: "
            "merge rows in the state of dataframe(table), and write them by to_table()"
        )

    def sql(self, program: str, args: Mapping[str, Any] | None = None, **frames: StreamingDataFrame) -> NoReturn:
        """Refuse to run a program of SQL.

        Args:
            program: its statements.
            args: values of parameters.
            **frames: dataframes by the names that they have in it.

        Raises:
            InvalidOperationError: always.
        """
        raise InvalidOperationError(
            "sql() is not there yet, because dataframes are defined in Python: see filter, apply, group_by, windows and "
            "joins of StreamingDataFrame; catalog.execute() creates tables"
        )

    def _table(self, table: Table | str) -> Table:
        return self.catalog.table(table) if isinstance(table, str) else table

    @override
    def reset(self, to: ResetTo = "earliest", dry_run: bool = False) -> ResetReport:
        report = super().reset(to, dry_run)
        usage = TableUsage.of(self._definition)
        if not dry_run and (usage.reads or usage.writes):
            self._change_usage("does not forget", lambda group: self.catalog.forget_usage(group))
        return report

    @contextlib.contextmanager
    def _noting_usage(self) -> Iterator[None]:
        """Record in the catalogue which tables the application uses, if it uses any, while it runs."""
        usage = TableUsage.of(self._definition)
        if not (usage.reads or usage.writes):
            yield
            return
        # The catalogue may not answer, for which a run does not wait.
        noting = threading.Thread(
            target=self._change_usage,
            args=(
                "does not learn",
                lambda group: self.catalog.record_usage(group, reads=usage.reads, writes=usage.writes),
            ),
            name="streamrt-usage",
            daemon=True,
        )
        noting.start()
        try:
            yield
        finally:
            noting.join(_LAST_WAIT_S)

    @contextlib.contextmanager
    def _naming_schemas(self) -> Iterator[None]:
        """Say of a record that is no row that its table has another schema by now, if that is so."""
        try:
            yield
        except ConsumerError as error:
            topics = self._definition.topics.topics.values()
            change = schema_change(error, topics, lambda name: self.catalog.load(name))
            if change is None:
                raise
            raise change from error

    def _change_usage(self, failed: str, change: Callable[[str], None]) -> None:
        group = self._definition.config.consumer_group
        try:
            change(group)
        except Exception as error:  # noqa: BLE001 - an application that may not change the catalogue runs nevertheless
            logger.warning("the catalogue %s which tables the application %s uses: %s", failed, group, error)

    def _input_topic(self, table: Table) -> Topic:
        if table.kind != "external":
            return table.topic
        from streamrt.tables.endpoints import endpoint_source, endpoint_topic

        topic = endpoint_topic(table.info, table.home)
        return self.add_source(endpoint_source(table.info, table.home), topic)


def _named(table: object) -> str:
    return repr(table if isinstance(table, str) else getattr(table, "name", table))


def _names_table(given: object) -> TypeGuard[Table | str]:
    if given is None or isinstance(given, Topic):
        return False
    if isinstance(given, str):
        return "." in given
    # With pyarrow, which applications without tables do not wait for.
    from streamrt.tables import Table

    return isinstance(given, Table)
