"""Which Spark computes the queries of an application, and when it has none to spare."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from streamrt.application.run_state import RunState
from streamrt.config import count_processes
from streamrt.errors import ApplicationStateError, ConfigurationError
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment

if TYPE_CHECKING:
    from streamrt.spark.queries.spark_query import JavaProperties
    from streamrt.spark.sessions.spark_session import SparkEnvironment
    from streamrt.sql.queries.ask import MakeQuery
    from streamrt.tables.catalogue.query_engine import Engine

__all__ = ["ApplicationSpark"]


class ApplicationSpark:
    """The Spark of an application, for its queries.

    Args:
        definition: the application.
        environment: its settings of Spark.
        state: whether it runs.
    """

    def __init__(self, definition: ApplicationDefinition, environment: Environment, state: RunState) -> None:
        self._config = definition.config
        self._environment = environment
        self._state = state

    def choose_engine(self, engine: Engine) -> MakeQuery:
        """Return what computes a query.

        Raises:
            ArgumentValueError: if it is neither "duckdb" nor "spark".
            ConfigurationError: if the application has no Spark.
            ApplicationStateError: if its resident tasks hold all slots of Spark.
        """
        from streamrt.sql.queries.engines import choose_engine

        return choose_engine(engine, self._use_spark)

    def _use_spark(self) -> MakeQuery:
        self._require_slots()
        from streamrt.spark.queries.spark_query import SparkQuery

        return partial(SparkQuery, find_environment=self._find_environment)

    def _find_environment(self, properties: JavaProperties) -> SparkEnvironment:
        from streamrt.spark.sessions.gateway import archive_kind
        from streamrt.spark.sessions.spark_session import open_session

        # It may have started since the query was checked.
        self._require_slots()
        config, environment = self._config, self._environment
        return open_session(
            config.spark_master,
            environment.spark_config,
            environment.spark_session,
            properties,
            kind=archive_kind(config.processing_mode),
        )

    def _require_slots(self) -> None:
        config = self._config
        if count_processes(config.spark_master) is not None:
            raise ConfigurationError(
                f'query(engine="spark"): spark_master={config.spark_master!r} starts no Spark: ask in another process, by '
                'catalog.query(..., engine="spark") or `streamrt sql --engine spark`'
            )
        if self._state.is_used and config.processing_mode == "resident":
            raise ApplicationStateError(
                'query(engine="spark"): the tasks of this running application hold all slots of its Spark: ask in another '
                'process, by catalog.query(..., engine="spark") or `streamrt sql --engine spark`'
            )
