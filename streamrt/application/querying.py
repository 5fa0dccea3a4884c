"""Queries of an application: over its catalogue, its state, and what its group has committed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.observation import Observation
from streamrt.application.spark_queries import ApplicationSpark
from streamrt.application.sql import ApplicationSQL
from streamrt.application.state_reads import StateReads
from streamrt.application.tables import ApplicationTables
from streamrt.errors import ArgumentValueError, ControlRefusedError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.table_usage import TableUsage
from streamrt.runtime.driver.starting.definition import ApplicationDefinition

if TYPE_CHECKING:
    from streamrt.sql.queries.query_sources import QueryHome, Rights, SystemTable
    from streamrt.tables import Catalog
    from streamrt.tables.catalogue.query_engine import Engine
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["ApplicationQueries", "list_state"]

_PAGE = 1000


@dataclass(frozen=True)
class _ProcessingApplication:
    """The application, as a query with a token sees it; see `QueriedApplication`."""

    observation: Observation
    definition: ApplicationDefinition

    def wait_for(self, token: Offsets, timeout: float | None = 60.0) -> None:
        self.observation.wait_for(token, timeout)

    def input_topics(self) -> Collection[str]:
        return self.definition.topology.outer_topics

    def output_tables(self) -> Collection[str]:
        return TableUsage.of(self.definition).writes


class ApplicationQueries:
    """Asks for present rows, and changes rows of tables; `Application` says what each method does.

    Args:
        definition: its topology.
        tables: its tables.
        states: reads its state.
        offsets: what its group has committed.
        observation: waits for tokens.
        programs: its views.
        spark: its Spark.
    """

    def __init__(
        self,
        definition: ApplicationDefinition,
        tables: ApplicationTables,
        states: StateReads,
        offsets: GroupOffsets,
        observation: Observation,
        programs: ApplicationSQL,
        spark: ApplicationSpark,
    ) -> None:
        self._definition = definition
        self._tables = tables
        self._states = states
        self._offsets = offsets
        self._observation = observation
        self._programs = programs
        self._spark = spark

    def query(
        self,
        sql: str,
        args: Mapping[str, Any] | None,
        *,
        limit: int | None,
        timeout: float | None,
        after: Offsets | str | None,
        max_scan_bytes: int,
        engine: Engine = "duckdb",
        rights: Rights | None = None,
    ) -> QueryResult:
        """See `Application.query`; `rights` are those of a caller who may not read all tables."""
        from streamrt.sql.queries.ask import ask

        return ask(
            self._home(rights),
            sql,
            args,
            limit=limit,
            timeout=timeout,
            after=after,
            max_scan_bytes=max_scan_bytes,
            engine=self._spark.choose_engine(engine),
        )

    def execute(
        self, sql: str, args: Mapping[str, Any] | None, timeout: float | None, rights: Rights | None = None
    ) -> Execution:
        """See `Application.execute`; `rights` are those of a caller who may not use all tables."""
        from streamrt.sql.queries.change import change_rows
        from streamrt.tables.catalogue.statements import changes_rows

        if changes_rows(sql):
            return change_rows(self._home(rights), sql, args, timeout=timeout)
        if rights is not None:
            raise ControlRefusedError("this token may run INSERT, UPDATE and DELETE only")
        return self._tables.catalog.execute(sql, args)

    def _home(self, rights: Rights | None) -> QueryHome:
        from streamrt.sql.queries.catalog_queries import home_of
        from streamrt.sql.queries.restricted import restrict
        from streamrt.sql.queries.system_tables import make_group_tables

        catalog: Catalog = self._tables.catalog
        home = home_of(catalog)
        group = self._definition.config.consumer_group
        made = replace(
            home,
            system={**home.system, **make_group_tables(group, self._read_offsets)},
            state=lambda store: list_state(self._states, store),
            application=_ProcessingApplication(self._observation, self._definition),
            view=self._programs.find_query,
        )
        return made if rights is None else restrict(made, rights)

    def _read_offsets(self) -> Mapping[TopicPartition, tuple[int | None, int | None]]:
        view = self._offsets.view()
        ends, _ = self._offsets.stable_ends(view)
        committed = view.committed(list(ends))
        return {partition: (committed.get(partition), end) for partition, end in ends.items()}


def list_state(states: StateReads, store: str) -> SystemTable:
    """Return the state of a store as a table.

    Args:
        states: reads the state.
        store: name of the store.

    Raises:
        ArgumentValueError: if there is no such store.
    """
    import pyarrow as pa

    from streamrt.sql.queries.query_sources import SystemTable

    listings = [each for each in states.state_stores() if each.store == store]
    if not listings:
        names = ", ".join(sorted({each.store for each in states.state_stores()})) or "none"
        raise ArgumentValueError(f"there is no store {store!r}; the stores are {names}")
    schema = pa.schema(
        [
            *(("topic", pa.string()), ("partition", pa.int32()), ("key", pa.string()), ("state_key", pa.string())),
            *(("value", pa.string()), ("start_ms", pa.int64()), ("end_ms", pa.int64())),
        ]
    )

    def list_rows() -> Iterator[Mapping[str, Any]]:
        for listing in listings:
            for number in range(listing.partitions):
                cursor: str | None = None
                while True:
                    page = states.scan_state(store, number, topic=listing.topic, limit=_PAGE, cursor=cursor)
                    for entry in page.entries:
                        yield {
                            "topic": listing.topic,
                            "partition": number,
                            "key": _as_text(entry.key),
                            "state_key": _as_text(entry.state_key),
                            "value": _as_json(entry.value),
                            "start_ms": entry.start_ms,
                            "end_ms": entry.end_ms,
                        }
                    cursor = page.cursor
                    if cursor is None:
                        break

    return SystemTable(schema, list_rows)


def _as_text(value: Any) -> str | None:
    """Return a key as text: a string as it is, bytes as UTF-8 if they are, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return _as_json(value)


def _as_json(value: Any) -> str:
    import orjson

    def default(other: Any) -> str | None:
        return _as_text(other) if isinstance(other, bytes) else str(other)

    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.dumps(value, default=default, option=options).decode()
