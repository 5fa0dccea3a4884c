"""`TopologyTestDriver`: an application in this process, without Kafka, Spark or Java.

The driver feeds records to the same tasks that run in production and keeps their output. Only the edges differ:
`pipe` supplies the records, and they are written to memory.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from streamrt.app import Application, definition_of, find_view_query
from streamrt.application.querying import list_state
from streamrt.application.run_state import RunState
from streamrt.application.state_reads import StateReads
from streamrt.application.view_verification import compare_view
from streamrt.errors import (
    ArgumentValueError,
    InvalidOperationError,
)
from streamrt.forks import in_this_process
from streamrt.kafka.completion_token import Offsets
from streamrt.queries.routing import MOST_ENTRIES
from streamrt.queries.stored_state import StateAnswer, no_state_key
from streamrt.records import Headers
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.serializers import BoundSerializer, MessageField
from streamrt.state.store import DEFAULT_STORE
from streamrt.testing.driver.life import DriverOperations
from streamrt.testing.driver.record_processing import DriverExecution, Piped
from streamrt.testing.driver.records import InputRecord, TestRecord, read_record
from streamrt.testing.driver.store_reads import DriverStores
from streamrt.testing.driver.views import StateView
from streamrt.testing.tables import DriverTables
from streamrt.topics import Topic
from streamrt.topics.durations import milliseconds
from streamrt.topology import Measured

if TYPE_CHECKING:
    from streamrt.sql.queries.query_sources import QueryHome
    from streamrt.sql.verify import Verification
    from streamrt.tables.catalogue.statements import Execution
    from streamrt.tables.reading.query_result import QueryResult
    from streamrt.tables.table import Table

_ALL = no_state_key()


class TopologyTestDriver:
    """Runs the dataframes of an application record by record, synchronously.

    Values are serialized and deserialized as in production, and errors go to the application's callbacks. Applications
    that would fail at their start also fail here: the driver runs the same checks on a cluster in memory, which creates
    missing topics. Functions run in this process, so they may append to lists of a test.

    State uses the same transactions, commits and changelogs as in production; RocksDB stores keep their data in memory
    here. Records are fed as in the application's `processing_mode`: in micro-batch mode each piped record is one
    micro-batch; in resident mode a resident task processes it, and its stores stay open between records. In both modes
    all is committed when `pipe` returns. Topics have their declared number of partitions, or 1 if none is declared. The
    rows that a query has without any record, such as `SELECT count(*)` of an empty table, are there after construction.

    Args:
        app: the application; its broker is never contacted.
        start: start of the driver's wall clock, in milliseconds since the Unix epoch. Records that are piped
            without a timestamp get the wall clock. Only `advance` moves it.

    Raises:
        UnpicklableOperatorError: if an operator cannot be pickled for the processes that run tasks.
        InvalidOperationError: if the application has no dataframe.
        TopicConfigurationError: if topics that share state have different numbers of partitions.
        TopicCreationError: if Kafka would refuse to create a topic as it is declared.
        ConfigurationError: if the processing guarantee is not possible.

    Example:
        ```python
        def test_late_flights():
            app = Application(broker_address="unused:9092")
            flights, late = app.topic("flights"), app.topic("late")
            sdf = app.dataframe(flights)
            sdf[sdf["dep_delay"] > 60].to_topic(late)
            driver = TopologyTestDriver(app)
            driver.pipe(flights, {"dep_delay": 90}, key="UA")
            driver.pipe(flights, {"dep_delay": 5}, key="UA")
            assert [record.value for record in driver.read(late)] == [{"dep_delay": 90}]
        ```
    """

    def __init__(self, app: Application, *, start: int = 0) -> None:
        definition = definition_of(app)
        declared = definition.topology
        if not declared.sources:
            raise InvalidOperationError("there is nothing to test: the application has no dataframe")
        self._app = app
        # StreamRT writes nothing there, but users' stores may need a directory.
        directory = tempfile.mkdtemp(prefix="streamrt-test-")
        self._remove_files = weakref.finalize(self, in_this_process(shutil.rmtree), directory, ignore_errors=True)
        self._state = state = RunState(lambda: declared, lambda _: self._execution.offsets.committed_offsets())
        self._execution = DriverExecution(definition, lambda: app.catalog, state, Path(directory), start)
        self._operations = DriverOperations(declared, state, self._execution)
        self._stores = DriverStores(declared, self._execution, self._find_topic)
        self._states = StateReads()
        self._served = self._states.queries.serving(self._stores.target)
        self._served.__enter__()
        self._read: dict[str, int] = {}
        state.begin()
        self._execution.enter_running()
        self._execution.begin_tasks()

    # -- Records and time -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The driver's wall clock, in milliseconds since the Unix epoch."""
        return self._execution.now

    def advance(self, by: timedelta | int) -> None:
        """Advance the wall clock and run what is due.

        Args:
            by: a timedelta or milliseconds; not negative.
        """
        self._execution.elapse(milliseconds("advance(by=...)", by))

    def end(self) -> None:
        """End the inputs, as `Application.run(until="end")` does: windows close and timers fire.

        Stage by stage: what comes out above a `group_by` is processed below it before time ends there. Further records may
        follow, like those of a later run.

        Raises:
            ApplicationStateError: if the application is stopped, or topics are paused.
            ProcessingError: if an operator failed and no callback skipped the error; likewise `ProducerError`.

        Example:
            ```python
            driver.pipe(orders, {"total": 10}, key="ann", timestamp=1_000)
            driver.end()
            assert [record.value["value"] for record in driver.read(totals)] == [10]
            ```
        """
        self._execution.end_inputs()

    def pipe(
        self,
        topic: Topic | str,
        value: Any = None,
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Send one record through the application.

        Args:
            topic: an input topic.
            value: the value, serialized by the topic's value serializer; None sends a tombstone.
            key: the key, serialized by the topic's key serializer.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: partition of the record; by default that of its key, as producers choose it, and 0 without a key.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError` and
                `ProducerError`.
        """
        known = self._find_topic(topic)
        to_value = known.value_serializer.bind(known.name, MessageField.VALUE)
        to_key = known.key_serializer.bind(known.name, MessageField.KEY)
        self.pipe_bytes(
            known,
            None if value is None else to_value(value, headers),
            key=None if key is None else to_key(key, headers),
            timestamp=timestamp,
            headers=headers,
            partition=partition,
        )

    def pipe_bytes(
        self,
        topic: Topic | str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Send one record of raw bytes through the application, to test the handling of invalid input.

        Args:
            topic: an input topic.
            value: the value's bytes; None is a tombstone.
            key: the key's bytes.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers.
            partition: partition of the record; by default that of its key, as producers choose it, and 0 without a key.

        Raises:
            ProcessingError: if an operator failed and no callback skipped the record; likewise `ConsumerError`,
                `ProducerError`, `SinkError` and `StateError`.
            SinkBackpressureError: if a sink pauses the partition; the record is then not accepted.
        """
        input_partition = self._execution.input_partition(topic, partition, key)
        self._execution.accept_records(
            input_partition, self._execution.make_record(input_partition.topic, value, key, timestamp, headers)
        )

    def pipe_all(
        self,
        topic: Topic | str,
        values: Iterable[Any],
        *,
        key: Any = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Send several records through the application at once: in one micro-batch, or as the result of one poll.

        Asynchronous calls are in flight for several of them at the same time. `pipe` waits for the calls of each record.

        Args:
            topic: an input topic.
            values: the values, in the order of their offsets.
            key: the key of all, serialized by the topic's key serializer.
            timestamp: milliseconds since the Unix epoch; the wall clock by default.
            headers: the headers of all.
            partition: partition of the records; by default that of the key, and 0 without a key.

        Raises:
            ProcessingError: as for `pipe`.

        Example:
            ```python
            driver.pipe_all(orders, [{"id": 1}, {"id": 2}, {"id": 3}], key="ann")
            ```
        """
        known = self._find_topic(topic)
        to_value = known.value_serializer.bind(known.name, MessageField.VALUE)
        raw_key = None if key is None else known.key_serializer.bind(known.name, MessageField.KEY)(key, headers)
        data = (None if value is None else to_value(value, headers) for value in values)
        records = [self._execution.make_record(known.name, each, raw_key, timestamp, headers) for each in data]
        self._execution.accept_records(self._execution.input_partition(known, partition, raw_key), *records)

    def pipe_many(self, records: Iterable[InputRecord], *, chunk: int = 1_000) -> None:
        """Send many records through the application, with one commit for each chunk of them.

        Outputs, state, late records, closed windows and timers are those of one `pipe` after the other, at a fraction of
        the time. If anything in a chunk fails, nothing of the chunk is committed, and its records are piped one by one: the
        error names the record, those before it are processed, and those behind it are not. Functions then get the records
        of the chunk before it twice.

        Args:
            records: the records, in their order. They are taken chunk by chunk, so they need not be in memory at once.
            chunk: maximum number of records of one commit; at least 1.

        Raises:
            ArgumentValueError: if `chunk` is below 1, or no dataframe reads a topic.
            ProcessingError: as for `pipe`, with the other errors that are listed there.

        Example:
            ```python
            driver.pipe_many(InputRecord(orders, {"total": 1}, key="ann", timestamp=1_000 * n) for n in range(100_000))
            ```
        """
        if chunk < 1:
            raise ArgumentValueError(f"chunk={chunk}: a chunk has at least one record")
        piped, waiting = self._serialized(records), True
        while waiting:
            gathered: list[Piped] = []
            try:
                gathered.extend(islice(piped, chunk))
                waiting = len(gathered) == chunk
            finally:
                # Also those before an error of the iterable or of a serializer.
                self._execution.accept_chunk(gathered)

    def _serialized(self, records: Iterable[InputRecord]) -> Iterator[Piped]:
        targets: dict[str | int, tuple[Topic, BoundSerializer, BoundSerializer]] = {}
        for name, value, key, timestamp, headers, partition in records:
            # The hash of a topic is one of all its settings.
            target = targets.get(number := name if isinstance(name, str) else id(name))
            if target is None:
                topic = self._find_topic(name)
                target = targets[number] = (
                    topic,
                    topic.value_serializer.bind(topic.name, MessageField.VALUE),
                    topic.key_serializer.bind(topic.name, MessageField.KEY),
                )
            topic, to_value, to_key = target
            value = None if value is None else to_value(value, headers)
            key = None if key is None else to_key(key, headers)
            place = self._execution.input_partition(topic, partition, key)
            yield place, self._execution.make_record(place.topic, value, key, timestamp, headers)

    def read(self, topic: Topic | str) -> list[TestRecord]:
        """Return the records produced to a topic since the last call.

        Args:
            topic: an output topic.
        """
        known = self._find_topic(topic)
        written = self._execution.clients.written(known.name)
        start = self._read.get(known.name, 0)
        self._read[known.name] = len(written)
        return [read_record(known, record) for record in written[start:]]

    def outputs(self) -> list[tuple[Any, Any, int, Any]]:
        """Return value, key, timestamp and headers of the results of all branches since the last call."""
        outputs = self._execution.take_outputs()
        return [(output.value, output.key, output.timestamp, output.headers) for output in outputs]

    def metrics(self, operator: str) -> dict[str, float | Measured]:
        """Return what the metrics of a process function have measured, by name.

        Args:
            operator: name of its store, such as `process_Orders`.

        Returns:
            Counters and, of the highest partition, gauges; for distributions, with `count`, `total`, `least` and `greatest`.

        Example:
            ```python
            assert driver.metrics("process_Orders")["rejected"] == 2
            ```
        """
        return self._execution.functions.of(operator)

    # -- Tables -----------------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> DriverTables:
        """The tables of the application's catalogue, in memory: `driver.catalog.table(name)` is `driver.table(name)`."""
        return self._execution.tables

    def table(self, table: Table | str) -> Table:
        """Return a table in memory, with the methods that tables have everywhere.

        It has the rows that were piped to its topic, and those that the application has appended. Rows that are appended
        through it are processed when their writer is flushed, or commits; an error of the application is raised there.

        Args:
            table: name of the table in the catalogue of the application, or a handle of it.

        Raises:
            TableNotFoundError: if the catalogue has no table of this name.

        Example:
            ```python
            driver.table("shop.orders").append([{"id": 1, "total": 2_000}])
            assert driver.table("shop.large_orders").scan().rows() == [{"id": 1, "total": 2_000}]
            ```
        """
        return self._execution.tables.of(table)

    def verify(self, view: str, *, hide: Collection[str] | bool = ()) -> Verification:
        """Compare the rows of a materialized view with those of its query in DuckDB, as `Application.verify` does.

        Args:
            view: name of the view.
            hide: names of columns whose values are not shown, or True for all.

        Raises:
            ArgumentValueError: if there is no such view or column.
            InvalidOperationError: if the view has no table.
            SQLNotSupportedError: if DuckDB cannot compute the same.

        Example:
            ```python
            assert driver.verify("shop.totals").equal
            ```
        """
        execution = self._execution
        return compare_view(
            view,
            {each.name.lower(): each for each in self._app.views()},
            execution.tables.table,
            (execution.topology, execution.offsets),
            self._state,
            # What was processed is committed, and nothing else was written.
            transactional=True,
            timeout=0.0,
            hide=hide,
        )

    # -- State ------------------------------------------------------------------------------------------------------------

    def state(
        self, topic: Topic | str, key: Any, *, store: str = DEFAULT_STORE, partition: int | None = None
    ) -> StateView:
        """Return a view of a store's values for a key.

        Args:
            topic: the topic whose dataframe has the state. After a `group_by`, that is `sdf.topics[0]` of the grouped
                dataframe, whether or not its records pass through a repartition topic here. After a `concat` or a join,
                it is the `sdf.stream_id` of the new dataframe.
            key: the record's key, as operators see it.
            store: name of the store; names of groupings at its end may be left out.
            partition: the partition; by default that of the key.

        Raises:
            ArgumentValueError: if there is no such store, or more than one.
            SerializationError: if the topic has several partitions, and its key serializer refuses the key.

        Example:
            ```python
            by_customer = app.dataframe(orders).group_by("customer")
            by_customer.apply(add_up, stateful=True)
            driver = TopologyTestDriver(app)
            driver.pipe(orders, {"customer": "ann", "total": 10})
            assert driver.state(by_customer.topics[0], "ann").get("total") == 10
            ```
        """
        return self._stores.view(topic, key, store, partition)

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = _ALL,
        *,
        topic: Topic | str | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
    ) -> StateAnswer:
        """Return the committed state of a message key, as `Application.query_state` does.

        Args:
            store: name of the store.
            key: the message key, as operators see it.
            state_key: one key of the state; by default all of the message key.
            topic: the topic of the store, if stores of several topics have this name.
            partition: the partition; by default that of the key.
            from_ms: for windows: only those that start at this time or later, in milliseconds.
            to_ms: for windows: only those that start before this time.
            limit: maximum number of entries.
            cursor: the `cursor` of a former answer, to go on there.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            driver.pipe(orders, {"total": 10}, key=b"ann")
            assert driver.query_state("default", "ann").get("total") == 10
            ```
        """
        return self._states.query_state(
            store,
            key,
            state_key,
            topic=topic,
            partition=partition,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=limit,
            cursor=cursor,
        )

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: Topic | str | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> StateAnswer:
        """Return the committed state of several message keys of one partition, as `Application.scan_state` does.

        Args:
            store: name of the store.
            partition: the partition.
            topic: the topic of the store, if stores of several topics have this name.
            prefix: only keys that begin so.
            start: only keys from this one on.
            end: only keys before this one.
            limit: maximum number of entries; for windows, of message keys.
            cursor: the `cursor` of a former answer, to go on there.

        Raises:
            ArgumentValueError: if there is no such store or partition.
            StateQueryError: if the store cannot be queried.
        """
        return self._states.scan_state(
            store, partition, topic=topic, prefix=prefix, start=start, end=end, limit=limit, cursor=cursor
        )

    def query(
        self, sql: str, args: Mapping[str, Any] | None = None, *, limit: int | None = None, timeout: float | None = 60.0
    ) -> QueryResult:
        """Return the present rows of a query, as `Application.query` does: over tables in the memory of the driver.

        Args:
            sql: one SELECT, VALUES or WITH.
            args: values of its parameters, by name.
            limit: most rows.
            timeout: seconds that it may work; None for any time.

        Raises:
            SQLError: if it cannot run.
            TableNotFoundError: if it names a table that does not exist.

        Example:
            ```python
            driver.pipe(orders, {"customer": "ann", "total": 10})
            assert driver.query("SELECT sum(total) AS total FROM shop.totals").one() == {"total": 10}
            ```
        """
        from streamrt.sql.queries.ask import ask

        return ask(self._query_home, sql, args, limit=limit, timeout=timeout)

    def execute(self, sql: str, args: Mapping[str, Any] | None = None) -> Execution:
        """Do what INSERT, UPDATE or DELETE says, in the memory of the driver; rows of inputs are processed at once.

        Args:
            sql: the statement.
            args: values of its parameters, by name.

        Raises:
            SQLError: if it cannot be read, or asks for what is not possible.
            InvalidOperationError: if UPDATE or DELETE names a table without a primary key.

        Example:
            ```python
            driver.execute("INSERT INTO shop.customers VALUES (1, 'ann')")
            ```
        """
        from streamrt.sql.queries.change import change_rows

        return change_rows(self._query_home, sql, args)

    @property
    def _query_home(self) -> QueryHome:
        from streamrt.sql.queries.catalog_queries import home_of

        home = home_of(self._app.catalog, self._execution.tables)
        return replace(
            home,
            state=lambda store: list_state(self._states, store),
            view=lambda name, within: find_view_query(self._app, name, within),
        )

    # -- Life -------------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application under test: RUNNING, PAUSED, STOPPED, or FAILED after an error.

        The next record, or the next call that lets time pass, starts it again after an error.
        """
        return self._state.status

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that was asked for last: RUNNING, PAUSED or STOPPED."""
        return self._operations.desired_status

    @property
    def error(self) -> BaseException | None:
        """The error of the last record that failed; None once the application runs again."""
        return self._state.life.error

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are not read, those included that are read together with one that was paused."""
        return self._state.paused_topics

    def start(self, paused: bool = False) -> None:
        """Start the application again after `stop()` or an error, and process the records that still wait.

        Args:
            paused: start paused: nothing is processed before `resume()`. Otherwise nothing stays paused.

        Raises:
            ApplicationStateError: if it runs already.
            StreamRTError: if a record fails.
        """
        self._operations.start(paused)

    def stop(self) -> None:
        """Stop the application. Everything that was processed is committed; further records are refused until `start()`.

        Example:
            ```python
            driver.stop()
            assert driver.status is ApplicationStatus.STOPPED
            driver.start()
            ```
        """
        self._operations.stop()

    def pause(self, topic: str | Topic | None = None) -> None:
        """Stop reading, as `Application.pause` does: records that are piped wait for `resume()`, and so do watermarks.

        Args:
            topic: an input topic, which pauses with those that are merged with it; None for all.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if it does not read the topic.

        Example:
            ```python
            driver.pause("orders")
            driver.pipe("orders", {"total": 10}, key="ann")
            assert driver.read(totals) == []
            driver.resume("orders")
            assert [record.value for record in driver.read(totals)] == [10]
            ```
        """
        self._operations.pause(topic)

    def resume(self, topic: str | Topic | None = None) -> None:
        """Read again after a pause, and process the records that have waited, in the order in which they came.

        Args:
            topic: an input topic; None for all.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if it does not read the topic.
            SinkBackpressureError: if a sink pauses the partition; the record still waits, and the next call goes on with it.
            StreamRTError: if a record fails. The records behind it are processed with the next call.
        """
        self._operations.resume(topic)

    def checkpoint(self) -> Checkpoint:
        """Return a checkpoint with the committed offset of each partition, as `Application.checkpoint` does.

        All that was processed is committed in the driver.

        Raises:
            ApplicationStateError: if the application does not run.

        Example:
            ```python
            driver.pipe("orders", {"total": 10})
            assert driver.checkpoint().offsets["orders", 0] == 1
            ```
        """
        return self._operations.checkpoint()

    def wait_for(self, token: Offsets | str) -> None:
        """Return if all records below a token are processed, through every `group_by`, as `Application.wait_for` does.

        The driver processes a record while it is piped, so there is nothing to wait for: what is missing then does not come.

        Args:
            token: the next offset of input partitions, or its text.

        Raises:
            ApplicationStateError: if the application does not run.
            ApplicationTimeoutError: if records are missing. It says which partitions are behind, and if they are paused.
            ArgumentValueError: if the token is another text, or has a topic or partition that the application does not read.
            StaleTokenError: if the token is one of another driver, or of a cluster.
        """
        self._operations.wait_for(token)

    def close(self) -> None:
        """Stop, print the rest of unfinished tables, close the sinks, export the rest of spans, delete temporary files."""
        self._operations.stop()
        self.catalog.resources.close()
        self._execution.close()
        self._remove_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _find_topic(self, topic: Topic | str) -> Topic:
        if isinstance(topic, Topic):
            return topic
        known = self._app.topic_manager.all_topics.get(topic)
        if known is None:
            raise ArgumentValueError(f"the application has no topic {topic!r}")
        return known
