"""The catalogue of an application, and what it notes there."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from streamrt.application.foreign_rows import describe_foreign_rows, find_plain_outputs
from streamrt.application.table_partitions import require_direct_tables
from streamrt.errors import ConfigurationError, ConsumerError, StaleTokenError, StreamRTError
from streamrt.runtime.driver.life.moved_tables import find_moved_table
from streamrt.runtime.driver.life.schema_changes import schema_change
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.tables.descriptions.naming import SUCCESSOR_SUFFIX

if TYPE_CHECKING:
    from streamrt.schema import Schema
    from streamrt.tables import Catalog, Table
    from streamrt.tables.access.task_links import TaskLinks

__all__ = ["ApplicationTables"]

logger = logging.getLogger("streamrt")

_LAST_WAIT_S = 5.0
"""How long the end of a run waits for the catalogue."""


class ApplicationTables:
    """The tables of an application.

    Args:
        definition: the application.
        environment: where it runs.
        catalog: the catalogue; None for that of the application's brokers.
    """

    def __init__(self, definition: ApplicationDefinition, environment: Environment, catalog: Catalog | None) -> None:
        self._definition = definition
        self._environment = environment
        self._catalog = catalog
        # Names of the tables of materialized views, and their topics.
        self._views: dict[str, str | None] = {}

    @property
    def catalog(self) -> Catalog:
        """The catalogue."""
        if self._catalog is None:
            # Most applications have no tables.
            from streamrt.tables import Catalog

            self._catalog = Catalog(self._environment.connection, timeout=self._definition.config.request_timeout)
        return self._catalog

    def find(self, table: Table | str) -> Table:
        """Return a table.

        Args:
            table: the table, or its name in the catalogue.

        Raises:
            TableNotFoundError: if there is no table of this name.
        """
        return self.catalog.table(table) if isinstance(table, str) else table

    def open_view(self, name: str, schema: Schema, comment: str | None, replaces: bool) -> Table:
        """Return the table to which this application writes a materialized view.

        Args:
            name: the view.
            schema: its columns.
            comment: what is said of it.
            replaces: whether it is CREATE OR REPLACE.

        Raises:
            ConfigurationError: if it is CREATE OR REPLACE, and inputs would not begin at their first records.
            InvalidOperationError: if another application has the view; see `Catalog.open_view`.
        """
        config = self._definition.config
        if replaces and config.auto_offset_reset != "earliest":
            raise ConfigurationError(
                f"CREATE OR REPLACE MATERIALIZED VIEW {name} builds the view from the first records of its inputs: use "
                'Application(auto_offset_reset="earliest")'
            )
        table = self.catalog.open_view(name, schema, config.consumer_group, comment=comment, replaces=replaces)
        self._views[table.name] = table.info.topic
        return table

    def find_replaced(self, view: str, table: str) -> str | None:
        """Return the name of the table that a view had before another version of it was built; None if none was.

        Args:
            view: name of the view.
            table: name of the table to which this application writes it.
        """
        own = view.rpartition(".")[2].lower()
        return None if table.rpartition(".")[2].lower() == own else table.removesuffix(SUCCESSOR_SUFFIX)

    def task_links(self) -> TaskLinks:
        """Return how tasks reach the topics of tables."""
        from streamrt.tables.access.task_links import TaskLinks

        return TaskLinks(self._environment.connection, self._definition.config.request_timeout)

    @contextlib.contextmanager
    def noting_usage(self) -> Iterator[None]:
        """Record in the catalogue which tables the application uses, and warn of what it writes past their rules."""
        outputs = find_plain_outputs(self._definition)
        usage = TableUsage.of(self._definition)
        if not usage and not outputs:
            yield
            return

        def note() -> None:
            if usage:
                self._change_usage("does not learn", lambda group: self.catalog.record_usage(group, **asdict(usage)))
            self._warn_of_foreign_rows(outputs)

        # Brokers and the catalogue may not answer, for which a run does not wait.
        noting = threading.Thread(target=note, name="streamrt-usage", daemon=True)
        noting.start()
        try:
            yield
        finally:
            noting.join(_LAST_WAIT_S)

    def _warn_of_foreign_rows(self, outputs: Collection[str]) -> None:
        admin, timeout = self._environment.admin, self._definition.config.request_timeout
        try:
            for warning in describe_foreign_rows(outputs, admin, lambda: self.catalog.infos(), timeout):
                logger.warning("%s", warning)
        except Exception as error:  # noqa: BLE001 - an application that may not see topics or tables runs nevertheless
            logger.debug("whether the application writes past the rules of tables is not known: %s", error)

    def claim_maintained(self) -> None:
        """Record in the catalogue that this application maintains its maintained tables and its views, and no other one.

        Raises:
            InvalidOperationError: if another application maintains one of them.
            CatalogError: if the catalogue does not answer.
        """
        for table in sorted({*TableUsage.of(self._definition).maintains, *self._find_unswapped()}):
            self.catalog.claim_table(table, self._definition.config.consumer_group)

    def _find_unswapped(self) -> list[str]:
        """Return the tables of views, without those whose names have changed by a swap: this group has them already."""
        if not self._views:
            return []
        group = self._definition.config.consumer_group
        own = {info.topic: info.name for info in self.catalog.infos() if info.maintained_by == group}
        return [name for name, topic in self._views.items() if own.get(topic, name) == name]

    def find_moved(self) -> StaleTokenError | None:
        """Return the error of a table that this application reads, and that has another topic by now, or None."""
        return find_moved_table(self._definition.topology, lambda name: self.catalog.load(name))

    def require_direct(self, topics: Collection[str]) -> None:
        """Refuse to give topics more partitions that are those of maintained tables.

        Raises:
            TopicConfigurationError: if one of them is.
            StreamRTError: if the catalogue does not answer, and the application uses tables.
        """
        if not topics:
            return
        try:
            infos = self.catalog.infos()
        except StreamRTError as error:
            if TableUsage.of(self._definition):
                raise
            logger.warning("whether %s are topics of tables is not known: %s", ", ".join(sorted(topics)), error)
        else:
            require_direct_tables(topics, infos)

    def forget_usage(self) -> None:
        """Remove from the catalogue which tables the application uses."""
        usage = TableUsage.of(self._definition)
        if usage:
            self._change_usage("does not forget", lambda group: self.catalog.forget_usage(group))

    @contextlib.contextmanager
    def naming_schemas(self) -> Iterator[None]:
        """Say of a record that is not a row that its table has another schema by now, if that is so."""
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
