"""The engines that compute queries, and how a catalogue reaches Spark, which is in a layer above."""

import importlib
from typing import Any, Protocol, cast, get_args

from streamrt.arguments import checked_choice
from streamrt.errors import ArgumentValueError
from streamrt.sql.queries.ask import MakeQuery
from streamrt.sql.queries.duckdb_query import DuckDBQuery
from streamrt.tables.catalogue.query_engine import Engine

__all__ = ["check_engine", "choose_engine"]

_SPARK_MODULE = "streamrt.spark.queries.catalog_spark"


class _CatalogSpark(Protocol):
    """The module with the Spark of a catalogue."""

    def use_spark(self, spark_session: Any) -> MakeQuery:
        """Return the engine."""


def choose_engine(engine: Engine, spark_session: Any = None) -> MakeQuery:
    """Return what computes the queries of a catalogue.

    Args:
        engine: the engine.
        spark_session: a session of Spark; None for that of this process.

    Raises:
        ArgumentValueError: if there is no such engine, or a session is given and not used. Types are checked as well.
    """
    check_engine(engine)
    if engine == "spark":
        # Programs that do not ask for Spark do not import it.
        return cast("_CatalogSpark", importlib.import_module(_SPARK_MODULE)).use_spark(spark_session)
    if spark_session is not None:
        raise ArgumentValueError('query(spark_session=...) is for engine="spark": leave it out, or ask for this engine')
    return DuckDBQuery


def check_engine(engine: Engine) -> None:
    """Raise unless there is such an engine.

    Raises:
        ArgumentValueError: if there is none. Types are checked as well.

    Example:
        >>> check_engine("presto")
        Traceback (most recent call last):
        streamrt.errors.ArgumentValueError: query(engine=...) must be 'duckdb' or 'spark', got 'presto'
    """
    checked_choice("query(engine=...)", engine, get_args(Engine))
