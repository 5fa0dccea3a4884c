"""`SparkQuery`: a checked query that Spark computes when its rows are asked for."""

import contextlib
import re
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamrt import errors
from streamrt.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
    QueryError,
    ResultTooLargeError,
    SerializationError,
    StreamRTError,
)
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.connection import ConnectionConfig
from streamrt.kafka.java_connection import java_system_properties
from streamrt.kafka.java_options import java_client_options
from streamrt.secret import masked
from streamrt.spark.queries.query_session import QuerySession
from streamrt.spark.sessions.spark_session import SparkEnvironment, application_runs
from streamrt.spark.spark_errors import spark_cause
from streamrt.sql.queries.checked_query import CheckedQuery
from streamrt.sql.queries.duckdb_engine import TimeBudget
from streamrt.sql.queries.query_sources import TableRows
from streamrt.sql.queries.spark_text import to_spark
from streamrt.tables.access.kafka_links import KafkaLinks

__all__ = ["JavaProperties", "SparkQuery"]

JavaProperties = Mapping[str, str]
"""System properties that the Kafka client needs in each JVM."""

_LOOK_S = 0.2
_OURS = re.compile(r"streamrt\.errors\.(\w+): (.+)")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.+?)\s*(?:SQLSTATE: \w+|$)", re.MULTILINE)
_ADVICE = re.compile(r"\. (?:Use|Correct the|If necessary)\b")
"""Begins what Spark advises; settings of Spark are none of a query."""
_LOST = ("Some data may have been lost", "Some data may be lost", "OffsetOutOfRange", "Cannot fetch offset")
_MEMORY = ("OutOfMemoryError", "spark.driver.maxResultSize")
_OF_SPARK = (PySparkException, Py4JError, OSError, EOFError)


class SparkQuery:
    """A query that Spark computes. Nothing of Spark is started before rows are asked for.

    Args:
        query: the query.
        find_environment: returns the Spark.

    Raises:
        SQLNotSupportedError: if something in it is not on the lists of what queries have.
        ConfigurationError: if its tables are not on Kafka.
    """

    def __init__(self, query: CheckedQuery, find_environment: Callable[[JavaProperties], SparkEnvironment]) -> None:
        self._query = query
        self._find_environment = find_environment
        self._connection = _find_connection(query)
        self._prefix = f"q{uuid.uuid4().hex[:12]}_"
        self.schema = query.schema
        columns = {name for source in query.sources.values() for name in source.schema.names}
        self._sql = to_spark(
            query.tree, lambda node: f"{self._prefix}{query.find_name(node)}", query.home.view, columns
        )

    @property
    def tables(self) -> list[str]:
        """Names of the tables that it reads, sorted."""
        return self._query.tables

    @property
    def offsets(self) -> Offsets:
        """The offsets up to which it reads, for all tables; fixed by the first one who asks."""
        return self._query.offsets

    def run(self, started: Callable[[Callable[[], None]], None]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows.

        Args:
            started: gets what cancels the query.
        """
        limits = self._query.limits
        if limits.rows == 0:
            return
        with self._open_session() as session:
            budget = TimeBudget(limits.timeout, session.interrupt)
            started(budget.cancel)
            with _watching(session, limits.check_scanned) as failures, _explaining(budget, failures):
                with budget.spending():
                    self._create_views(session)
                    rows = session.run(self._sql, limits.rows)
                while True:
                    with budget.spending():
                        batch = next(rows, None)
                    budget.check()
                    if batch is None:
                        break
                    yield _fit_batch(batch, self.schema)
                limits.check_scanned(session.scanned)
                self._require_same_topics()

    def explain(self) -> str:
        """Return what it reads, its text for Spark, and Spark's plan. Offsets are fixed, and no record is read."""
        with self._open_session() as session:
            self._create_views(session)
            plan = session.explain(self._sql)
        reads = [self._query.describe_source(name) for name in self._query.sources]
        return "\n".join(
            ["reads:", *(f"  {each}" for each in reads), "query of Spark:", f"  {self._sql}", plan.rstrip()]
        )

    @contextlib.contextmanager
    def _open_session(self) -> Iterator[QuerySession]:
        connection = self._connection
        options = {} if connection is None else java_client_options(connection).java
        properties = {} if connection is None else java_system_properties(connection)
        with application_runs():
            session = QuerySession(self._find_environment(properties), options)
            with contextlib.closing(session):
                yield session

    def _create_views(self, session: QuerySession) -> None:
        _ = self._query.offsets
        for name, source in self._query.sources.items():
            session.create_view(f"{self._prefix}{name}", source, self._query.columns_of(name))

    def _require_same_topics(self) -> None:
        for source in self._query.sources.values():
            if isinstance(source, TableRows) and source.scan is not None:
                source.scan.require_same_topic()


def _find_connection(query: CheckedQuery) -> ConnectionConfig | None:
    """Return how Spark reaches the topics of a query; None if it reads none.

    Raises:
        ConfigurationError: if it cannot.
    """
    found: ConnectionConfig | None = None
    for source in query.sources.values():
        if isinstance(source, TableRows):
            links = source.table.home.links
            if not isinstance(links, KafkaLinks):
                raise ConfigurationError(
                    f'engine="spark" reads topics of Kafka, and that of table {source.name!r} is in memory: use '
                    'engine="duckdb"'
                )
            found = links.connection
    return found


@contextlib.contextmanager
def _watching(session: QuerySession, check: Callable[[int], None]) -> Iterator[list[StreamRTError]]:
    """Interrupt a session whose tasks have read too much, and return what to raise for it."""
    failures: list[StreamRTError] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            try:
                check(session.scanned)
            except StreamRTError as error:
                failures.append(error)
                session.interrupt()
                return

    threading.Thread(target=watch, name="streamrt-query-scan", daemon=True).start()
    try:
        yield failures
    finally:
        is_over.set()


@contextlib.contextmanager
def _explaining(budget: TimeBudget, failures: list[StreamRTError]) -> Iterator[None]:
    """Raise what a limit, or a decoder, says, in place of what Spark makes of it."""
    try:
        yield
    except _OF_SPARK as error:
        if isinstance(error, StreamRTError):
            raise
        if failures:
            raise failures[0] from None
        budget.check()
        raise _translate(error) from None


def _translate(error: Exception) -> StreamRTError:
    text = masked(str(error))
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SerializationError):
            return kind(message)
        return QueryError(message)
    if any(each in text for each in _LOST):
        return OffsetOutOfRangeError(
            "records that the query was to read were deleted while it ran, by retention: run it again"
        )
    if any(each in text for each in _MEMORY):
        return ResultTooLargeError(
            "the query needs more memory than Spark has: give Spark more (spark.driver.memory, spark.driver.maxResultSize), "
            "or aggregate before rows are returned"
        )
    conditions = _CONDITION.findall(text)
    sentence = _ADVICE.split(conditions[-1])[0] if conditions else spark_cause(error)
    return QueryError(f"{sentence[:1].lower()}{sentence[1:]}")


def _fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of Spark with the types that are known of them; a TIMESTAMP may be one in UTC there."""
    columns = [
        values if values.type == field.type else values.cast(field.type)
        for values, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
