"""The engines that compute queries, and how a catalogue reaches Spark, which is in a layer above."""

import importlib
from collections.abc import Callable
from typing import Any, Protocol, cast, get_args

from streamrt.arguments import checked_choice
from streamrt.errors import ArgumentValueError
from streamrt.sql.queries.ask import MakeQuery
from streamrt.sql.queries.duckdb_query import DuckDBQuery
from streamrt.tables.catalogue.query_engine import Engine

__all__ = ["choose_catalog_engine", "choose_engine"]

_SPARK_MODULE = "streamrt.spark.queries.catalog_spark"


class _CatalogSpark(Protocol):
    """The module with the Spark of a catalogue."""

    def use_spark(self, spark_session: Any) -> MakeQuery:
        """Return the engine."""


def choose_engine(engine: Engine, use_spark: Callable[[], MakeQuery]) -> MakeQuery:
    """Return what computes queries.

    Args:
        engine: the engine.
        use_spark: returns the Spark that does, if it is chosen.

    Raises:
        ArgumentValueError: if the engine is neither "duckdb" nor "spark". Types are checked as well.

    Example:
        >>> choose_engine("presto", lambda: DuckDBQuery)
        Traceback (most recent call last):
        streamrt.errors.ArgumentValueError: query(engine=...) must be 'duckdb' or 'spark', got 'presto'
    """
    checked_choice("query(engine=...)", engine, get_args(Engine))
    return use_spark() if engine == "spark" else DuckDBQuery


def choose_catalog_engine(engine: Engine, spark_session: Any) -> MakeQuery:
    """Return what computes the queries of a catalogue.

    Args:
        engine: the engine.
        spark_session: a session of Spark; None for that of this process.

    Raises:
        ArgumentValueError: if the engine is neither "duckdb" nor "spark", or a session is given and not used.
    """

    def use_spark() -> MakeQuery:
        # Programs that do not ask for Spark do not import it.
        return cast("_CatalogSpark", importlib.import_module(_SPARK_MODULE)).use_spark(spark_session)

    chosen = choose_engine(engine, use_spark)
    if engine != "spark" and spark_session is not None:
        raise ArgumentValueError('query(spark_session=...) is for engine="spark": leave it out, or ask for this engine')
    return chosen
