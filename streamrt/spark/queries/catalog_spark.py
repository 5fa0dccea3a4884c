"""The Spark that computes queries of a catalogue; `choose_catalog_engine` loads this module when one asks for it."""

from functools import partial

from pyspark.sql import SparkSession

from streamrt.arguments import checked, type_name
from streamrt.spark.queries.spark_query import JavaProperties, SparkQuery
from streamrt.spark.sessions.spark_session import SparkEnvironment, open_environment, open_session
from streamrt.sql.queries.ask import MakeQuery

__all__ = ["use_spark"]

_MASTER = "local[*]"


def use_spark(spark_session: SparkSession | None) -> MakeQuery:
    """Return the engine of a catalogue's queries.

    Args:
        spark_session: a session; None for the Spark of this process, which is started if there is none.

    Raises:
        ArgumentTypeError: if it is something else.
    """
    # That of Spark Connect is another class.
    checked(
        "query(spark_session=...)",
        spark_session,
        SparkSession,
        "a SparkSession that is not one of Spark Connect",
        optional=True,
        show=type_name,
    )

    def find(properties: JavaProperties) -> SparkEnvironment:
        running = open_environment() if spark_session is None else None
        return running or open_session(_MASTER, None, spark_session, properties)

    return partial(SparkQuery, find_environment=find)
