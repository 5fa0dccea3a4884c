"""`Application`: topics, dataframes, and the settings that they run with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from streamrt.application.bounded import BoundedRuns
from streamrt.application.collecting import Collected, Collections
from streamrt.application.declarations import Declarations
from streamrt.application.execution import Execution
from streamrt.application.group_offsets import GroupOffsets
from streamrt.application.maintenance import Maintenance
from streamrt.application.observation import Observation, sample_lag
from streamrt.application.operations import Operations
from streamrt.application.querying import ApplicationQueries
from streamrt.application.run_state import RunState
from streamrt.application.spark_queries import ApplicationSpark
from streamrt.application.sql import ApplicationSQL
from streamrt.application.state_reads import StateReads
from streamrt.application.tables import ApplicationTables
from streamrt.application.view_swaps import ViewSwaps
from streamrt.application.view_verification import ViewVerification
from streamrt.common.logs import LogFormat
from streamrt.config import (
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PROGRESS_TIMEOUT_S,
    DEFAULT_STATE_CLEANUP_DELAY_S,
    DEFAULT_STATE_DIR,
    ApplicationConfig,
    AutoOffsetReset,
    GroupProtocol,
    LogLevel,
    NoProgress,
    ProcessingGuarantee,
    ProcessingMode,
    configure_logging,
    count_processes,
    producer_options,
    refuse_long_transactions,
    refuse_parameters,
    require_amounts,
    require_types,
)
from streamrt.connectors import BaseSource, Instances
from streamrt.connectors.credentials import Credential
from streamrt.control.controlled import Controlled
from streamrt.control.rights import TokenRights
from streamrt.control.settings import control_server, serving
from streamrt.control.token import ControlToken
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import branch_of
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    end_readably,
    suggest_arguments,
)
from streamrt.joins import TableLookup
from streamrt.kafka import ConnectionConfig, Consumer, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.connection import connection_of, is_secret_option
from streamrt.kafka.group_protocol import GROUP_PROTOCOL
from streamrt.kafka.java_options import java_client_options
from streamrt.queries.routing import MOST_ENTRIES
from streamrt.queries.stored_state import StateAnswer, StoreListing, no_state_key
from streamrt.runtime.driver.housekeeping.application_reset import ResetReport, ResetTo
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.restart import RestartPolicy, require_policy
from streamrt.runtime.driver.life.until import Until, require_until
from streamrt.runtime.driver.observation.progress import ProgressSnapshot
from streamrt.runtime.driver.observation.stats import ApplicationStats
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment, MessageProcessedCallback
from streamrt.runtime.spec import ConsumerErrorCallback, ErrorCallbacks, ProcessingErrorCallback, ProducerErrorCallback
from streamrt.savepoints.format import Savepoint
from streamrt.savepoints.repartition import Repartitioned
from streamrt.secret import conceal, names_secret
from streamrt.serializers import DeserializerType, SerializerType
from streamrt.state import RocksDBOptions, Store
from streamrt.state.snapshots import StateSnapshots
from streamrt.topics import OnError, TimestampExtractor, Topic, TopicManager, WatermarkStrategy
from streamrt.topology import Topology
from streamrt.tracing import Tracing, require_tracing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlglot import exp

    from streamrt.schema import Schema
    from streamrt.sql.lowering import View
    from streamrt.sql.verify import Verification
    from streamrt.tables import Catalog, Table, TableInfo
    from streamrt.tables.catalogue.query_engine import Engine
    from streamrt.tables.catalogue.statements import Execution as SQLExecution
    from streamrt.tables.reading.query_result import QueryResult

__all__ = ["Application", "ApplicationConfig", "MessageProcessedCallback"]

logger = logging.getLogger("streamrt")

_ALL = no_state_key()

# Ends of names of Spark's options that say where a secret is, or which class finds it.
_ABOUT_SECRETS = ("provider", "url", "file", "class")


class Application:
    """A stream processing application: reads topics, processes their records with dataframes on Spark, writes topics.

    A setting with its default value is read from the environment variable `STREAMRT_<NAME>` if that is set, such
    as `STREAMRT_BROKER_ADDRESS` or `STREAMRT_CONSUMER_GROUP`.

    Args:
        broker_address: `host:port` of a Kafka broker, or a `ConnectionConfig` for a login or TLS.
        consumer_group: the Kafka consumer group, which holds the committed offsets of the application.
        group_protocol: Kafka's protocol of the group: "classic", or "consumer" (KIP-848) with brokers from 4.0 on, where
            instances go on with the partitions that stay with them when others start or end.
        auto_offset_reset: where to start in partitions without a committed offset: "earliest", "latest", or "error". Topics
            that sources of the application write to start at their first record.
        commit_interval: seconds between two commits of offsets.
        commit_every: number of records after which to commit earlier; 0 leaves commits to `commit_interval`.
        consumer_extra_config: consumer options, with librdkafka's names. They are mapped to Spark's Java client; an
            unsupported option is refused by name.
        producer_extra_config: producer options, with librdkafka's names.
        state_dir: directory for the files of the application on local disk.
        rocksdb_options: options of the state stores; see `RocksDBOptions`.
        on_consumer_error: called with an exception, the raw record and a logger when a record cannot be deserialized; True
            skips the record. Runs in the process of the task, like the next two.
        on_processing_error: called with an exception, the record and a logger when an operator raises.
        on_producer_error: called with an exception, the record and a logger when a record cannot be produced. The record is
            None when a delivery fails after its input was processed.
        on_error: what happens to a record that fails and that no callback skips: "fail", the default, ends the application;
            "skip" logs and skips it; `DeadLetters()` writes it to a topic, with the reason in its headers. A dict gives
            policies by stage: "deserialize", "process", "produce" and "sink".
        on_message_processed: called with topic, partition and offset of each processed record, in the process that called
            `run()`, after the micro-batch of the record, or in resident mode after its commit.
        consumer_poll_timeout: seconds that the group member waits in one poll, 0.05 at most: commits wait for its end.
        producer_poll_timeout: seconds that a producer waits for events in each poll.
        loglevel: level of the `streamrt` logger; None leaves logging unchanged.
        log_format: "text", or "json" for a JSON object in each line, with consumer group, stream, partition and batch.
        auto_create_topics: create missing topics.
        use_changelog_topics: back state by changelog topics, from which it is restored. Without them, state exists only
            in the state directory, partitions cannot move to other machines, and exactly-once is refused for state.
        topic_manager: the object that defines, creates and validates topics.
        request_timeout: time limit of a request to Kafka, in seconds.
        topic_create_timeout: seconds until a new topic must be usable.
        processing_guarantee: "at-least-once" repeats records after a crash, and state may count them twice; "exactly-once"
            commits outputs, state and offsets together in Kafka transactions. It holds for consumers that read with
            `isolation.level=read_committed`. Sinks outside Kafka are written at least once.
        processing_mode: "micro-batch": Spark reads records in micro-batches, each of which takes 100 ms or more;
            "resident": one long-running task in each Spark slot reads records itself, with millisecond latency.
        processing_timeout: maximum seconds that functions may spend on one record. Then the running function gets a
            `ProcessingTimeoutError`, and the record fails. None, the default, sets no limit.
        transaction_interval: for exactly-once in resident mode: maximum seconds from a transaction's first record to
            its commit. None, the default, commits once all records are processed, and after 0.1 s at the latest; if
            commits take more than 0.05 s, after six times that.
        auto_recover_from_source_offset_out_of_range: if the committed offset is no longer in the topic, continue as
            `auto_offset_reset` says and log the loss; False raises `OffsetOutOfRangeError`.
        broker_availability_timeout: seconds to wait for a broker before `KafkaBrokerUnavailableError`; 0 waits forever. None,
            the default: 30 at the start, where the address may be wrong, and 120 once a broker has answered.
        state_cleanup_delay: seconds until unused store files are deleted if a changelog can restore them; None: never.
        quix_sdk_token: not supported: StreamRT connects to Kafka only.
        quix_config_builder: not supported, for the same reason.
        max_partition_buffer_size: not supported: records of merged topics wait in Kafka.
        state_recovery_offset_reset: only "earliest", which is how state continues after input records were deleted.
        standby_replicas: 1 keeps a copy of each task's state in the instance that takes the task over if the owner goes, in
            resident mode; 0, the default, keeps none. See `docs/standby-replicas.md`.
        spark_master: where to run. Spark's masters: "local[*]", "local[2]", "spark://host:7077" and so on. Or
            "processes[2]": two processes of this machine, without Spark and Java, for `processing_mode="resident"`;
            "processes[*]" for one for each processor.
        spark_config: additional Spark settings.
        spark_session: an existing Spark session to use; `create_spark_session` makes one. Not one of Spark Connect.
        control: `port` or `host:port` of the control server; a port without a host is one of 127.0.0.1, and 0 a free one.
            None, the default, starts none.
        control_token: the token that callers of the control server must send, as text, `Secret`, or a function that returns
            it. Required for addresses that other machines reach, and for `control_sql`.
        control_sql: "read" lets callers of the control server ask queries of all tables that the application can read;
            "write" also lets them change rows and tables. None, the default, neither.
        control_rights: further tokens, each for queries and changes of single tables; see `streamrt.control.TokenRights`.
            They need `control_sql`.
        control_sql_rows: most rows of a query over HTTP.
        control_sql_timeout: most seconds that a statement over HTTP may work.
        progress_timeout: seconds without a commit after which a partition with unprocessed records is logged as stuck, and
            makes `/ready` of the control server fail; at least twice `commit_interval` counts. None: never.
        on_no_progress: "fail" then ends the application with `NoProgressError`; "report", the default, does not.
        tracing: a `Tracing` exports spans of commits and of sampled records by OpenTelemetry; None, the default, none.
        catalog: the catalogue of tables; None, the default, for that of the application's brokers.
        state_snapshots: where snapshots of state go, so that a lost disk needs no restore of the whole changelog: a
            `StateSnapshots`, or its URL such as `s3://bucket/prefix?interval_s=300&keep=3`. None, the default: nowhere.

    Raises:
        ConfigurationError: if a setting cannot be used; the message names it.

    Example:
        ```python
        app = Application(broker_address="localhost:9092", consumer_group="late-flights", auto_offset_reset="earliest")
        sdf = app.dataframe(app.topic("flights"))
        sdf = sdf[sdf["dep_delay"].notnull() & (sdf["dep_delay"] > 60)]
        sdf.to_topic(app.topic("late-flights"))

        if __name__ == "__main__":
            app.run()
        ```
    """

    @suggest_arguments
    def __init__(
        self,
        broker_address: str | ConnectionConfig | None = None,
        *,
        quix_sdk_token: str | None = None,
        consumer_group: str = DEFAULT_CONSUMER_GROUP,
        auto_offset_reset: AutoOffsetReset = "latest",
        commit_interval: float = 5.0,
        commit_every: int = 0,
        consumer_extra_config: dict[str, Any] | None = None,
        producer_extra_config: dict[str, Any] | None = None,
        state_dir: str | Path | None = DEFAULT_STATE_DIR,
        rocksdb_options: RocksDBOptions | None = None,
        on_consumer_error: ConsumerErrorCallback | None = None,
        on_processing_error: ProcessingErrorCallback | None = None,
        on_producer_error: ProducerErrorCallback | None = None,
        on_error: OnError = "fail",
        on_message_processed: MessageProcessedCallback | None = None,
        consumer_poll_timeout: float = 1.0,
        producer_poll_timeout: float = 0.0,
        loglevel: int | LogLevel | None = "INFO",
        log_format: LogFormat = "text",
        auto_create_topics: bool = True,
        use_changelog_topics: bool = True,
        quix_config_builder: Any = None,
        max_partition_buffer_size: int | None = None,
        state_recovery_offset_reset: Literal["earliest"] | None = None,
        topic_manager: TopicManager | None = None,
        request_timeout: float = 30.0,
        topic_create_timeout: float = 60.0,
        processing_guarantee: ProcessingGuarantee = "at-least-once",
        processing_mode: ProcessingMode = "micro-batch",
        processing_timeout: float | None = None,
        transaction_interval: float | None = None,
        auto_recover_from_source_offset_out_of_range: bool = True,
        broker_availability_timeout: float | None = None,
        state_cleanup_delay: float | None = DEFAULT_STATE_CLEANUP_DELAY_S,
        standby_replicas: int = 0,
        spark_master: str = "local[*]",
        spark_config: Mapping[str, Any] | None = None,
        spark_session: SparkSession | None = None,
        control: str | None = None,
        control_token: ControlToken | None = None,
        control_sql: Literal["read", "write"] | None = None,
        control_rights: Sequence[TokenRights] | None = None,
        control_sql_rows: int = 1_000_000,
        control_sql_timeout: float = 60.0,
        progress_timeout: float | None = DEFAULT_PROGRESS_TIMEOUT_S,
        on_no_progress: NoProgress = "report",
        tracing: Tracing | None = None,
        catalog: Catalog | None = None,
        group_protocol: GroupProtocol = "classic",
        state_snapshots: StateSnapshots | str | None = None,
    ) -> None:
        end_readably()
        refuse_parameters(
            quix_sdk_token=quix_sdk_token,
            quix_config_builder=quix_config_builder,
            max_partition_buffer_size=max_partition_buffer_size,
            state_recovery_offset_reset=state_recovery_offset_reset,
        )
        require_types(
            broker_address=(broker_address, (str, ConnectionConfig), "a string or a ConnectionConfig"),
            state_dir=(state_dir, (str, Path), "a path"),
            consumer_extra_config=(consumer_extra_config, Mapping, "a dict"),
            producer_extra_config=(producer_extra_config, Mapping, "a dict"),
            spark_config=(spark_config, Mapping, "a dict"),
            rocksdb_options=(rocksdb_options, RocksDBOptions, "a RocksDBOptions"),
            topic_manager=(topic_manager, TopicManager, "a TopicManager"),
            on_consumer_error=(on_consumer_error, Callable, "a function"),
            on_processing_error=(on_processing_error, Callable, "a function"),
            on_producer_error=(on_producer_error, Callable, "a function"),
            on_message_processed=(on_message_processed, Callable, "a function"),
            tracing=(tracing, Tracing, "a Tracing"),
            state_snapshots=(state_snapshots, (StateSnapshots, str), "a StateSnapshots or a URL"),
        )
        require_tracing(tracing)
        if type(spark_session).__module__.startswith("pyspark.sql.connect"):
            raise ConfigurationError(
                "spark_session is a session of Spark Connect, a client without the driver that plans and supervises tasks: "
                "run the application where Spark's driver runs, with SparkSession.builder.master(...) or spark_master"
            )
        if spark_session is not None and spark_config:
            raise ConfigurationError(
                "spark_config has no effect on a given spark_session: set it where that session is made"
            )
        address = broker_address if isinstance(broker_address, str) else None
        self._config = ApplicationConfig.create(
            broker_address=address,
            consumer_group=consumer_group or DEFAULT_CONSUMER_GROUP,
            group_protocol=group_protocol,
            auto_offset_reset=auto_offset_reset,
            commit_interval=commit_interval,
            commit_every=commit_every,
            state_dir=Path(state_dir or DEFAULT_STATE_DIR),
            consumer_poll_timeout=consumer_poll_timeout,
            producer_poll_timeout=producer_poll_timeout,
            loglevel=loglevel,
            log_format=log_format,
            auto_create_topics=auto_create_topics,
            request_timeout=request_timeout,
            topic_create_timeout=topic_create_timeout,
            processing_guarantee=processing_guarantee,
            processing_mode=processing_mode,
            processing_timeout=processing_timeout,
            transaction_interval=transaction_interval,
            use_changelog_topics=use_changelog_topics,
            auto_recover_from_source_offset_out_of_range=auto_recover_from_source_offset_out_of_range,
            broker_availability_timeout=broker_availability_timeout,
            state_cleanup_delay=state_cleanup_delay,
            standby_replicas=standby_replicas,
            spark_master=spark_master,
            control=control,
            control_sql=control_sql,
            control_sql_rows=control_sql_rows,
            control_sql_timeout=control_sql_timeout,
            progress_timeout=progress_timeout,
            on_no_progress=on_no_progress,
            state_snapshots=state_snapshots if isinstance(state_snapshots, str) else None,
        )
        if count_processes(self._config.spark_master) is not None and (spark_config or spark_session is not None):
            raise ConfigurationError(
                f"spark_master={self._config.spark_master!r} starts no Spark, so "
                f"{'spark_config' if spark_config else 'spark_session'} has no effect: remove one of the two"
            )
        configure_logging(self._config.loglevel, log_format=self._config.log_format, group=self._config.consumer_group)
        connection = connection_of(broker_address, self._config.broker_address)
        consumer_options = java_client_options(connection, consumer_extra_config, self._config.group_protocol)
        reads_aborted = consumer_options.java.get("isolation.level") == "read_uncommitted"
        if reads_aborted and self._config.processing_guarantee == "exactly-once":
            raise ConfigurationError(
                "consumer_extra_config: isolation.level='read_uncommitted' reads records of aborted transactions, so "
                "it cannot be combined with processing_guarantee='exactly-once'"
            )
        _conceal_options(is_secret_option, consumer_extra_config, producer_extra_config)
        _conceal_options(_is_secret_of_spark, spark_config)
        self._consumer_extra_config = {**(consumer_extra_config or {}), GROUP_PROTOCOL: self._config.group_protocol}
        producer = producer_options(producer_extra_config)
        refuse_long_transactions(self._config, producer)
        self._environment = Environment(
            connection=connection,
            consumer_options=consumer_options,
            producer_options=producer,
            admin=TopicAdmin(connection, logger=logger),
            spark_config=dict(spark_config or {}),
            spark_session=spark_session,
        )
        self._definition = ApplicationDefinition.create(
            self._config,
            self._environment,
            topic_manager,
            ErrorCallbacks(on_consumer_error, on_processing_error, on_producer_error),
            on_error,
            on_message_processed,
            rocksdb_options,
            tracing,
            self._snapshots(state_snapshots),
        )
        self._put_together(catalog, control_token, control_rights)

    def _snapshots(self, state_snapshots: StateSnapshots | str | None) -> StateSnapshots | None:
        """Return where snapshots go, from the argument or from the configuration."""
        found = state_snapshots if isinstance(state_snapshots, StateSnapshots) else None
        if found is None and self._config.state_snapshots is not None:
            found = StateSnapshots.parse(self._config.state_snapshots)
        if found is not None and not self._config.use_changelog_topics:
            raise ConfigurationError(
                "state_snapshots needs changelog topics, because a snapshot is only the beginning of a restore: keep "
                "use_changelog_topics=True"
            )
        return found

    def _put_together(
        self, catalog: Catalog | None, control_token: ControlToken | None, control_rights: Sequence[TokenRights] | None
    ) -> None:
        """Make the parts of the application."""
        definition, environment = self._definition, self._environment
        self._offsets = GroupOffsets(definition, environment)
        self._state = state = RunState(lambda: definition.topology, self._offsets.committed)
        self._tables = ApplicationTables(definition, environment, catalog)
        self._declarations = Declarations(definition, self._tables)
        self._sql = sql = ApplicationSQL(self._declarations, self._tables)
        self._verification = ViewVerification(
            definition, state, self._offsets, lambda: sql.views, lambda name: self._tables.find(name)
        )
        self._view_swaps = ViewSwaps(definition, self._offsets, lambda: sql.views, self._tables)
        self._states = StateReads(state.require_queried)
        lag = sample_lag(definition, environment, state)
        bounded = BoundedRuns(definition, state, self._offsets)
        self._execution = Execution(
            definition, environment, state, bounded, self._tables, lag, self._states.queries, lambda: self._announced
        )
        self._operations = Operations(definition, state, self._execution, self._open_control)
        self._observation = Observation(definition, state, self._offsets, self._operations.stop)
        self._queries = ApplicationQueries(
            definition,
            self._tables,
            self._states,
            self._offsets,
            self._observation,
            self._sql,
            ApplicationSpark(definition, environment, state),
        )
        self._collections = Collections(definition, state, self._operations, self._declarations)
        self._maintenance = Maintenance(definition, environment, state, self._tables)
        parts = Controlled(
            definition,
            environment.connection,
            state,
            self._operations,
            self._observation,
            self._states,
            self._queries,
            lag,
        )
        self._server = control_server(parts, control_token, control_rights)

    def _open_control(self) -> None:
        """Listen at the control address of the application, if it has one, as long as the process lives."""
        if self._server is not None:
            self._server.open(stays=True)

    @property
    def _announced(self) -> str:
        return "" if self._server is None else self._server.announced

    @property
    def config(self) -> ApplicationConfig:
        """The effective settings."""
        return self._config

    @property
    def topology(self) -> Topology:
        """The operators defined so far, as data."""
        return self._definition.topology

    def describe(self) -> str:
        """Return the topology as text: a tree of operators, and the streams with their stores and internal topics.

        Example:
            >>> app = Application("localhost:9092", consumer_group="shop")
            >>> orders = app.dataframe(app.topic("orders")).apply(lambda order, state: order, stateful=True)
            >>> print(app.describe())
            source-0 (orders)
              apply-1 (<lambda>)
            <BLANKLINE>
            stream orders: a task for each partition of orders
              store default, changelog changelog__shop--orders--default
        """
        return self._definition.describe()

    @property
    def topic_manager(self) -> TopicManager:
        """The object that defines, creates and validates topics."""
        return self._definition.topics

    @property
    def location(self) -> str | None:
        """The URL of the control server; None while there is none."""
        return None if self._server is None else self._server.location

    def progress(self) -> ProgressSnapshot:
        """Return the progress of `run()`; safe to call from another thread."""
        return self._state.progress.snapshot()

    @suggest_arguments
    def topic(
        self,
        name: str,
        value_deserializer: DeserializerType = "json",
        key_deserializer: DeserializerType = "bytes",
        value_serializer: SerializerType = "json",
        key_serializer: SerializerType = "bytes",
        config: TopicConfig | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: AutoOffsetReset | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
    ) -> Topic:
        """Define a topic to read from or to write to.

        `run()` and `setup_topics()` look the topic up, and create it if it is missing.

        Args:
            name: the topic's name.
            value_deserializer: deserializer of values: "json", "str", "bytes", "int", "double" or a `Deserializer`.
            key_deserializer: deserializer of keys.
            value_serializer: serializer of values: one of the same names or a `Serializer`.
            key_serializer: serializer of keys.
            config: partitions, replication factor and settings, for creation and validation.
            timestamp_extractor: function from value, headers, timestamp (ms) and its type to the record's timestamp (ms).
            auto_offset_reset: where to start in partitions of this topic without a committed offset, if not as the
                application says.
            watermark_strategy: event time of windows and process functions below, unless they choose one.

        Raises:
            ConfigurationError: if the topic name is invalid or a serializer is unknown.

        Example:
            ```python
            flights = app.topic("flights", key_deserializer="str")
            ```
        """
        serializers = value_deserializer, key_deserializer, value_serializer, key_serializer
        own = timestamp_extractor, auto_offset_reset, watermark_strategy
        return self._definition.topics.topic(name, *serializers, config, *own)

    # -- Declarations ---------------------------------------------------------------------------------------------------

    def dataframe(
        self, topic: Topic | Table | str | None = None, source: BaseSource | None = None
    ) -> StreamingDataFrame:
        """Make a dataframe that reads a topic or a table.

        The values of a table are checked rows, its keys those of its key columns, and timestamps those of its time column, if
        it has these. The rows of an external table arrive by a source, which is also added to the application.

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
        return self._declarations.dataframe(topic, source)

    def add_source(
        self, source: BaseSource, topic: Topic | Table | str | None = None, instances: Instances | None = None
    ) -> Topic:
        """Add a source: a separate process that produces to a topic or a table while the application runs.

        Args:
            source: the source.
            topic: the topic to produce to; by default one that the source chooses, with the prefix `source__`. Or a table,
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
        return self._declarations.add_source(source, topic, instances)

    @overload
    def table(
        self,
        table: Topic | Table | str,
        *,
        everywhere: Literal[False] = False,
        keep: int | timedelta | None = None,
        store_type: type[Store] | None = None,
    ) -> StreamingTable[StreamingDataFrame]: ...

    @overload
    def table(self, table: Table | str, *, everywhere: Literal[True]) -> TableLookup: ...

    def table(
        self,
        table: Topic | Table | str,
        *,
        everywhere: bool = False,
        keep: int | timedelta | None = None,
        store_type: type[Store] | None = None,
    ) -> StreamingTable[StreamingDataFrame] | TableLookup:
        """Read a table with a primary key, or a topic, as rows by key that change.

        The last record of a key is its present row, and a record without a value deletes it. Each task keeps the rows of its
        partitions in a store. A dataframe of the same topic shares its records.

        With `everywhere`, each process that runs tasks has a copy of all rows in memory instead, in which `join_lookup` finds
        them by any value.

        Args:
            table: a table with a primary key, as an object or by its name in the catalogue; or a topic, by the keys of its
                records.
            everywhere: whether all rows are in each process; for tables of up to a million rows.
            keep: how long `join_asof` with this table keeps former rows, in milliseconds of event time or as a timedelta, to
                find the row as of a record's time; also below filters and functions. By default, `join_asof` says it.
            store_type: `RocksDBStore` (the default), `MemoryStore`, or another subclass of `Store`.

        Returns:
            The table; a second call for the same one returns the same rows. With `everywhere`, a lookup for `join_lookup`.

        Raises:
            InvalidOperationError: if the table has no primary key, its store was chosen before, or `keep` is not positive.
            TableNotFoundError: if there is no table of this name.
            SchemaError: if the table has no schema.

        Example:
            ```python
            customers = app.table("shop.customers")
            adults = customers[customers["age"] >= 18]
            adults.to_table("shop.adults")
            orders.join_asof(app.table("shop.prices", keep=timedelta(days=7)))
            countries = app.table("ref.countries", everywhere=True)
            sdf.join_lookup(countries, {"country": TableField("name")}, on="code")
            ```
        """
        if not everywhere:
            return self._declarations.table(table, store_type, keep)
        if keep is not None:
            raise ArgumentValueError(
                "table(everywhere=True, keep=...): lookups find present rows only; join_asof() with table(keep=...) finds "
                "the row as of a record's time"
            )
        if store_type is not None:
            raise ArgumentValueError("table(everywhere=True, store_type=...): its rows are in memory, and in no store")
        return self._declarations.table_everywhere(table)

    def maintain(
        self, table: Table | str, *, store_type: type[Store] | None = None
    ) -> StreamingTable[StreamingDataFrame]:
        """Maintain a table: merge the requests of its writers into its rows, by the rules of the table, and write these.

        All writes of a maintained table are requests, which wait until an application with this call merges them. One
        application does so; its instances share the partitions. Requests are deleted when they are merged.

        A request that cannot be merged, such as one that would leave a column without a value that must not be null, is an
        error of processing: see `on_processing_error` and `on_error`.

        Args:
            table: the table, as an object or by its name in the catalogue.
            store_type: `RocksDBStore` (the default), `MemoryStore`, or another subclass of `Store`.

        Returns:
            The table of the present rows, to be joined, aggregated or written elsewhere; no assignment is needed.

        Raises:
            InvalidOperationError: if the table is a direct one, or this was called for it before.
            TableNotFoundError: if there is no table of this name.

        Example:
            ```python
            customers = app.maintain("shop.customers")
            customers[customers["city"] == "Lyon"].to_table("shop.customers_in_lyon")
            ```
        """
        return self._declarations.maintain(table, store_type)

    def sql(
        self,
        program: str,
        args: Mapping[str, Any] | None = None,
        *,
        schemas: Mapping[str, Schema | str] | None = None,
        **frames: StreamingDataFrame | StreamingTable[StreamingDataFrame],
    ) -> Any:
        """Add a program in SQL, or one query, to the application. docs/sql.md says what it may have.

        A program has statements in any order: CREATE TABLE, CREATE VIEW, CREATE MATERIALIZED VIEW, which keeps the rows of a
        view in a table of the catalogue, CREATE LOCAL VIEW, which other programs do not see, and INSERT INTO ... SELECT.

        Args:
            program: its text.
            args: values of parameters, such as `:least`, by name.
            schemas: the columns of frames, by name, as a `Schema` or a text such as "id BIGINT, name STRING". Frames that
                read a table need none.
            **frames: dataframes and tables by the names that they have in the text: `FROM {orders}`.

        Returns:
            For one query, a dataframe if its rows are only added, otherwise a table. For other programs, a mapping of these
            by the names of the views.

        Raises:
            SQLSyntaxError: if the text cannot be read.
            SQLAnalysisError: if it names what does not exist, or types do not go together.
            SQLNotSupportedError: if it asks for what is refused.
            InvalidOperationError: if an argument cannot be used.

        Example:
            ```python
            app.sql('''
                CREATE VIEW large AS SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer
                    HAVING sum(amount) > 100;
                INSERT INTO shop.late SELECT * FROM shop.flights WHERE delay > 60;
            ''')
            frame = app.sql("SELECT customer, amount FROM {orders} WHERE amount > :least", {"least": 5}, orders=orders)
            ```
        """
        return self._sql.sql(program, args, schemas, frames)

    def view(self, name: str) -> View:
        """Return a view that a program in SQL has defined.

        Args:
            name: its name.

        Returns:
            The view, with its `name`, `sql`, `schema`, `frame`, and `table` if it is materialized.

        Raises:
            InvalidOperationError: if there is no view of this name.

        Example:
            ```python
            app.view("large").frame.to_table("shop.large")
            ```
        """
        return self._sql.view(name)

    def views(self) -> list[View]:
        """Return the views that programs in SQL have defined, in the order of their definition.

        Example:
            ```python
            materialized = [view.name for view in app.views() if view.table is not None]
            ```
        """
        return [*self._sql.views.values()]

    def verify(self, view: str, *, timeout: float = 60.0, hide: Collection[str] | bool = ()) -> Verification:
        """Compare the rows of a materialized view with those of its query, which DuckDB computes over the same records.

        The records are those before the offsets that the consumer group has committed, at a moment at which none of them is
        in flight. The application may run or be stopped; while it runs, it goes on. The inputs are read into memory.

        Args:
            view: name of the view.
            timeout: seconds to wait for such a moment.
            hide: names of columns whose values are not shown, or True for all.

        Returns:
            The outcome: `equal`, `offsets`, `rows`, and `differences` with the records of which differing rows are made.

        Raises:
            ApplicationTimeoutError: if records were in flight all the time. It says which.
            ArgumentValueError: if there is no such view or column.
            ConfigurationError: if DuckDB is not installed: extra `sql`.
            InvalidOperationError: if the view has no table, or records that it was made of are deleted.
            SQLNotSupportedError: if DuckDB cannot compute the same.

        Example:
            ```python
            verification = app.verify("shop.totals", hide=["customer"])
            assert verification.equal, str(verification)
            ```
        """
        return self._verification.verify(view, timeout, hide)

    def swap_view(self, view: str, *, timeout: float = 600.0) -> TableInfo:
        """Let a materialized view have the rows that this application builds next to it, once it has caught up.

        It waits until the consumer group has processed all records that its inputs have at the call, in this process or in
        others, and then calls `Catalog.swap_views`: readers see the rows of before or the new ones. Nothing restarts. See
        docs/changed-views.md.

        Args:
            view: name of the view, which is CREATE OR REPLACE, and whose table another consumer group has.
            timeout: seconds to wait.

        Returns:
            What is known of the table of the view afterwards.

        Raises:
            ApplicationTimeoutError: if these records are not processed in time; then nothing is swapped.
            ArgumentValueError: if the application has no materialized view of this name.
            InvalidOperationError: if nothing is built next to the view, or it was swapped already.
            CatalogError: if the catalogue cannot be changed.

        Example:
            ```python
            app.start()
            app.swap_view("shop.totals", timeout=3600)
            ```
        """
        return self._view_swaps.swap(view, timeout)

    def explain(
        self,
        program: str,
        args: Mapping[str, Any] | None = None,
        *,
        schemas: Mapping[str, Schema | str] | None = None,
        **frames: StreamingDataFrame | StreamingTable[StreamingDataFrame],
    ) -> str:
        """Say what a text in SQL would become: its operators, their state, and how exact the result is. Nothing is added.

        Args:
            program: the text, as for `sql`.
            args: values of parameters.
            schemas: the columns of frames.
            **frames: dataframes and tables by name.

        Returns:
            Lines: each operator above its inputs. For what is refused, the place, the reason and what to write instead.

        Example:
            ```python
            print(app.explain("SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer"))
            ```
        """
        return self._sql.explain(program, args, schemas, frames)

    def register_function(
        self,
        name: str,
        function: Callable[..., Any],
        returns: str | Any,
        arguments: Sequence[Any] | None = None,
        *,
        kind: Literal["scalar", "aggregate", "table"] = "scalar",
    ) -> None:
        """Give a Python function a name in SQL.

        Args:
            name: its name.
            function: the function. "scalar": takes values, None for NULL, and returns one; "aggregate": takes names of
                columns and returns an `Aggregator`; "table": takes values and returns dicts, for LATERAL VIEW.
            returns: type of its result, as a word such as "BIGINT" or a type of Arrow; for "table", a STRUCT of its columns.
            arguments: types of its arguments, to which values are cast; None for values of any types.
            kind: what it is.

        Raises:
            InvalidOperationError: if the name cannot be used, or SQL has a function of this name.

        Example:
            ```python
            app.register_function("domain", lambda address: address.partition("@")[2], "STRING", ["STRING"])
            app.sql("SELECT domain(email) AS domain FROM {users}", users=users)
            ```
        """
        self._sql.register_function(name, function, returns, arguments, kind)

    # -- Collections ----------------------------------------------------------------------------------------------------

    def from_collection(
        self,
        values: Iterable[Any],
        name: str = "collection",
        *,
        key: Callable[[Any], Any] | None = None,
        timestamp: Callable[[Any], int] | None = None,
        topic: Topic | None = None,
    ) -> StreamingDataFrame:
        """Make a dataframe of the values of a collection: short for `dataframe(source=CollectionSource(...))`.

        Args:
            values: the values, at least one.
            name: name of the source, unique in the application. A restart goes on with the first value that was not produced.
            key: function of a value that returns the record's key; without it, records have no key.
            timestamp: function of a value that returns the record's timestamp in milliseconds since the Unix epoch; without
                it, it is the time of producing.
            topic: the topic to produce to; by default one named after the source.

        Raises:
            ConfigurationError: if there are no values, or an argument cannot be used.
            InvalidOperationError: if the application has a source with this name.

        Example:
            ```python
            orders = app.from_collection([{"id": "a", "total": 5}], "orders", key=lambda order: order["id"])
            print(app.collect(orders.apply(lambda order: order["total"]), limit=1))
            ```
        """
        return self._collections.from_collection(values, name, key=key, timestamp=timestamp, topic=topic)

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: int, metadata: bool = False) -> list[Any]: ...

    @overload
    def collect(self, dataframe: StreamingDataFrame, limit: None = None, metadata: bool = False) -> Collected: ...

    def collect(
        self, dataframe: StreamingDataFrame, limit: int | None = None, metadata: bool = False
    ) -> list[Any] | Collected:
        """Run the application until the end, as `run(until="end")` does, and return the values of a dataframe.

        The values arrive once for each commit, in the order of the offsets within each partition. The dataframe gets a sink
        for them, which stays. All dataframes of the application run.

        Args:
            dataframe: the dataframe.
            limit: number of values after which the application is stopped. By then, it may have processed more records.
            metadata: add `_key`, `_timestamp`, `_headers`, `_topic`, `_partition` and `_offset`, as `ListSink(metadata=True)`
                does.

        Returns:
            With a limit, a list. Without one, an iterator, which must be closed or used in a `with` statement.

        Raises:
            ApplicationStateError: if the application is running.
            InvalidOperationError: if the dataframe is of another application.
            StreamRTError: the error that ended the run.

        Example:
            ```python
            with app.collect(late_flights) as values:
                for value in values:
                    print(value)
            ```
        """
        return self._collections.collect(dataframe, limit, metadata)

    @property
    def catalog(self) -> Catalog:
        """The catalogue of tables: the one that was given, or that of the application's brokers.

        Example:
            ```python
            app.catalog.create_table("shop.orders", "id BIGINT, total DOUBLE", if_exists="ignore")
            ```
        """
        return self._tables.catalog

    def query(
        self,
        sql: str,
        args: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        timeout: float | None = 60.0,
        after: Offsets | str | None = None,
        max_scan_bytes: int = 4 * 1024**3,
        engine: Engine = "duckdb",
    ) -> QueryResult:
        """Return the present rows of a query in Spark's SQL, computed when they are asked for: by DuckDB in this process.

        It reads tables of the catalogue, as `Catalog.query` does, whether the application runs or not. While it runs,
        `streamrt_state.<store>` is its state, and `system.offsets` and `system.lag` are those of its group. Needs the extra
        `sql`. See docs/sql-queries.md.

        Args:
            sql: one SELECT, VALUES or WITH.
            args: values of its parameters, such as `:least`, by name.
            limit: most rows of the result; others are left out.
            timeout: seconds that it may work; None for any time. The time between two reads of rows does not count.
            after: a completion token, or its text. Of tables in the query, rows up to it are seen. If it is of other topics,
                or of inputs, and the query reads what the application makes of them, the application must run, and the
                query waits until it has processed them.
            max_scan_bytes: bytes of records that it may read.
            engine: what computes it: "duckdb", or "spark" for scans and results beyond the memory of this process. Spark is
                that of the application.

        Raises:
            SQLSyntaxError: if it cannot be read; the message has line and column.
            SQLAnalysisError: if names or types do not fit.
            SQLNotSupportedError: if it is not a query, or has what queries do not have.
            TableNotFoundError: if it names a table that does not exist.
            ConfigurationError: if DuckDB is not installed, or the application has no Spark.
            ApplicationStateError: if resident tasks hold all slots of Spark.

        Example:
            ```python
            token = app.catalog.table("shop.orders").append({"order_id": 1, "customer": "ann"})
            print(app.query("SELECT * FROM shop.totals WHERE customer = :name", {"name": "ann"}, after=token).one())
            ```
        """
        return self._queries.query(
            sql, args, limit=limit, timeout=timeout, after=after, max_scan_bytes=max_scan_bytes, engine=engine
        )

    def execute(self, sql: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = 60.0) -> SQLExecution:
        """Do what one statement says, at once: INSERT, UPDATE, DELETE, and statements of the catalogue.

        It is `Catalog.execute`, in which queries may also read the state of this application.

        Args:
            sql: the statement.
            args: values of its parameters, by name.
            timeout: seconds that it may read; None for any time.

        Raises:
            SQLError: if it cannot be read, or asks for what is not possible.
            InvalidOperationError: if UPDATE or DELETE names a table without a primary key. Other errors are those of
                `Catalog.execute`.

        Example:
            ```python
            done = app.execute("UPDATE shop.customers SET age = 36 WHERE id = 3")
            print(done.rows, done.token)
            ```
        """
        return self._queries.execute(sql, args, timeout)

    # -- Clients ---------------------------------------------------------------------------------------------------------

    def get_producer(self, transactional: bool = False) -> Producer:
        """Return a producer with the application's settings, for use outside of dataframes.

        It creates missing topics of the application before it produces the first record to them.

        Args:
            transactional: whether the producer supports transactions; needs `transactional.id` in
                `producer_extra_config`.

        Example:
            ```python
            with app.get_producer() as producer:
                producer.produce("flights", value=b'{"dep_delay": 90}', key=b"UA")
            ```
        """
        return Producer(
            self._environment.connection,
            extra_config=self._environment.producer_options,
            transactional=transactional,
            prepare=self._prepare_topic,
        )

    def get_consumer(self, auto_commit_enable: bool = True) -> Consumer:
        """Return a consumer in the application's group with its settings, for use outside of dataframes.

        It creates missing topics of the application before it subscribes to them.

        Args:
            auto_commit_enable: commit in the background the offsets that `store_offsets()` has stored.

        Example:
            ```python
            with app.get_consumer() as consumer:
                consumer.subscribe(["late-flights"])
                message = consumer.poll(10.0)
            ```
        """
        return Consumer(
            self._environment.connection,
            self._config.consumer_group,
            self._config.auto_offset_reset,
            auto_commit_enable=auto_commit_enable,
            extra_config={"enable.auto.offset.store": False, **self._consumer_extra_config},
            prepare=self._prepare_topic,
        )

    def setup_topics(self) -> None:
        """Create missing topics and compare existing topics with their definitions.

        Raises:
            KafkaBrokerUnavailableError: if no broker answers within `broker_availability_timeout`.
            TopicNotFoundError: if a topic is missing and `auto_create_topics` is False.
            TopicCreationError: if a topic cannot be created.
        """
        self._definition.set_up_topics(self._environment.admin)

    def run(
        self,
        dataframe: StreamingDataFrame | None = None,
        timeout: float = 0.0,
        count: int = 0,
        collect: bool = True,
        metadata: bool = False,
        restart: RestartPolicy | None = None,
        until: Until | None = None,
    ) -> list[dict[str, Any]]:
        """Process records until SIGTERM, SIGINT, `stop()`, `timeout`, `count` or the end stops the application.

        Args:
            dataframe: only checked to be of this application: all its dataframes run.
            timeout: seconds without a new record after which to stop; 0 waits forever.
            count: number of outputs after which to stop, counted at the end of each branch; 0 for no limit.
            collect: return the outputs, if `timeout`, `count` or `until` is given.
            metadata: return the outputs with `_key`, `_timestamp`, `_headers`, `_topic`, `_partition` and `_offset`.
            restart: whether and how the application is started again after a failure; None raises the failure. Not
                together with `timeout` or `count`, and with `until` only if `collect` is False.
            until: "end" ends the run when all sources have ended and everything in the topics is processed; then windows
                close, and timers of event time fire. See docs/bounded-runs.md.

        Returns:
            The collected outputs as dicts; a value that is not a dict is stored under `_value`.

        Raises:
            StreamRTError: one of its subclasses, in one sentence, if the application cannot start or continue.

        Example:
            ```python
            print(app.run(count=10, timeout=30))
            ```
        """
        if dataframe is not None and not isinstance(dataframe, StreamingDataFrame):
            raise ArgumentTypeError(f"run() needs a dataframe of this application, got {type(dataframe).__name__}")
        if dataframe is not None and branch_of(dataframe).builder is not self._definition.builder:
            raise ArgumentValueError("run() got a dataframe of another application")
        require_amounts("run", timeout=timeout, count=count)
        require_policy("run", restart)
        require_until("run", until)
        if restart is not None and (timeout > 0 or count > 0 or (until is not None and collect)):
            raise ArgumentValueError(
                "run() takes restart=... only without timeout and count, with which it ends by itself; and with until='end' "
                "only if collect=False, because the outputs of an attempt that fails are lost"
            )
        self._execution.require_runnable()
        with serving(None if self.status.is_active else self._server):
            self._state.begin(until=until, policy=restart)
            outputs = self._execution.run(timeout, int(count), collect=collect)
            return [output.as_dict(metadata) for output in outputs]

    # -- States --------------------------------------------------------------------------------------------------

    @property
    def status(self) -> ApplicationStatus:
        """The state of the application in this process."""
        return self._state.status

    @property
    def status_since(self) -> datetime:
        """When the current state began, in UTC."""
        return self._state.status_since

    @property
    def desired_status(self) -> ApplicationStatus:
        """The state that callers have asked for last: RUNNING, PAUSED or STOPPED."""
        return self._state.desired_status

    @property
    def error(self) -> BaseException | None:
        """The error that has ended the last run, also before a restart; None if it was stopped, or it runs again."""
        return self._state.life.error

    @property
    def paused_topics(self) -> frozenset[str]:
        """The input topics that are not read, those included that are read together with one that was paused."""
        return self._state.paused_topics

    # -- Start and end, pauses and commits ------------------------------------------------------------------------------

    def start(
        self,
        paused: bool = False,
        timeout: float | None = None,
        restart: RestartPolicy | None = None,
        until: Until | None = None,
    ) -> None:
        """Run the application in another thread; return when it processes records, or is paused.

        In the main thread, signals that come meanwhile stop it, as in `run()`; it is stopped then when this returns.

        Args:
            paused: start paused: partitions are assigned, and nothing is processed before `resume()`.
            timeout: seconds to wait for the start; None waits as long as it takes. The start goes on after a timeout.
            restart: whether and how it is started again after a failure; None ends it with the failure.
            until: "end" lets it end by itself, as `run(until="end")` does; `wait()` returns at that point.

        Raises:
            ApplicationStateError: if it is already running, or will be restarted.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the start.

        Example:
            ```python
            app.start()
            app.checkpoint()
            app.stop(wait=True)
            ```
        """
        self._operations.start(paused, timeout, restart, until)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the application that `start()` has begun has ended. In the main thread, signals stop it as in `run()`.

        A restart by another thread, or by the control server, does not count as an end.

        Args:
            timeout: seconds; None for no limit.

        Returns:
            Whether it has ended.

        Raises:
            StreamRTError: the error that ended it.
        """
        return self._operations.wait(timeout)

    def stop(self, fail: bool = False, wait: bool = False, timeout: float | None = None) -> None:
        """Stop the application at the next boundary, with outputs durable and offsets committed.

        A stop before `run()` ends that run at once. Without `wait`, it returns at once, and handlers of signals may call it.

        Args:
            fail: do not commit; the next run processes all records since the last commit again.
            wait: wait until it has ended, and raise no error that ended it.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationTimeoutError: if it has not ended in time. It is still being stopped.
        """
        self._operations.stop(fail, wait, timeout)

    def restart(self, timeout: float | None = None) -> None:
        """Stop the application, with a commit, and start it in another thread.

        The same topics are paused, the same `RestartPolicy` holds, and who waits for a pause or a checkpoint goes on waiting.
        Of a stop and a restart the later one counts; but a process that a signal stops is not restarted.

        Args:
            timeout: seconds for each of the two; None for no limit.

        Raises:
            ApplicationStateError: if it was stopped meanwhile, or a signal stops it.
            ApplicationTimeoutError: if it has not stopped or started in time. In the first case, it is stopped.
            StreamRTError: the error that ended the start.
        """
        self._operations.restart(timeout)

    def pause(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Stop reading, and return when everything that was read is processed or put back, and committed.

        Partitions are kept, other members of the group take nothing over, and watermarks wait. Sources go on: see
        `pause_source`. A topic that is merged with others, by `concat` or a join, pauses with them, because its order with
        them would be lost.

        Args:
            topic: an input topic; None for all, and for everything below `group_by`.
            timeout: seconds to wait; None for no limit. After a timeout, the pause still comes.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.pause("orders")
            app.resume("orders")
            ```
        """
        self._operations.pause(topic, timeout)

    def resume(self, topic: str | Topic | None = None, timeout: float | None = 30.0) -> None:
        """Read again after a pause. Without a pause, nothing happens.

        Args:
            topic: an input topic; None for all.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
            StreamRTError: the error that ended the application meanwhile.
        """
        self._operations.resume(topic, timeout)

    def pause_source(self, name: str) -> None:
        """Stop a source after it has flushed. If it runs in one instance, another instance may take it over.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
        """
        self._operations.pause_source(name)

    def resume_source(self, name: str) -> None:
        """Start a source again that was paused: one with state goes on where it was, others begin as at a start.

        Args:
            name: name of the source.

        Raises:
            ArgumentValueError: if there is no such source.
            SourceError: if it cannot be started.
        """
        self._operations.resume_source(name)

    def checkpoint(self, wait: bool = True, timeout: float | None = 300.0) -> Checkpoint:
        """Commit everything that was processed, now instead of at the next interval.

        Kafka has the truth about an application: outputs, state and offsets that are committed. So nothing else is to be
        saved.

        Args:
            wait: wait for the commit.
            timeout: seconds to wait; None for no limit.

        Returns:
            The checkpoint. A second call before the first one is done returns the same checkpoint.

        Raises:
            ApplicationStateError: if the application is not running.
            ApplicationTimeoutError: after the timeout.
        """
        return self._operations.checkpoint(wait, timeout)

    def checkpoint_status(self, number: int) -> Checkpoint:
        """Return what is known about a checkpoint of the current or last run.

        Args:
            number: its number.
        """
        return self._operations.checkpoint_status(number)

    # -- Waits and numbers ----------------------------------------------------------------------------------------------

    def wait_for(self, token: Offsets | str, timeout: float | None = 60.0) -> None:
        """Wait until all records below a token are processed and durable, through every `group_by` of the application.

        It counts what all instances of the application have committed. Windows that will close later are not part of it, nor
        are other applications that read the outputs.

        Args:
            token: the next offset of input partitions, such as one above that of a produced record; or its text.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout. It says which partitions are behind, and if they are paused.
            ArgumentValueError: if the token is another text, or has a topic or partition that the application does not read.
            StaleTokenError: if a topic was deleted since the token was made.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.wait_for(Offsets({("orders", 0): message.offset() + 1}))
            ```
        """
        self._observation.wait_for(token, timeout)

    def wait_for_idle(
        self, idle_interval: float = 5.0, timeout: float | None = 600.0, poll_interval: float = 0.2
    ) -> None:
        """Wait until all records are processed and no new ones have come for some time, in all instances.

        Args:
            idle_interval: seconds without a new record.
            timeout: seconds to wait; None for no limit.
            poll_interval: seconds between two looks at the application's counters. Kafka is asked once in an interval without
                new records, and while the last commits are missing.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if an interval is longer than the timeout, or `poll_interval` longer than `idle_interval`.
            StreamRTError: the error that ended the application meanwhile.
        """
        self._observation.wait_for_idle(idle_interval, timeout, poll_interval)

    def wait_for_completion(
        self, until: Offsets | str | None = None, stop: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until the sources have ended, and everything that the input topics have then is processed.

        Topics without a source are processed up to the end that they have at the call.

        Args:
            until: process up to these offsets instead, and do not wait for the end of sources.
            stop: then stop the application, with a commit, and wait until it has ended.
            timeout: seconds to wait; None for no limit.

        Raises:
            ApplicationStateError: if the application does not run, or is stopped meanwhile.
            ApplicationTimeoutError: after the timeout.
            ArgumentValueError: if `until` has a topic or partition that the application does not read.
            StaleTokenError: if a topic was deleted since `until` was made.
            StreamRTError: the error that ended the application meanwhile.

        Example:
            ```python
            app.start()
            app.wait_for_completion(stop=True)
            ```
        """
        self._observation.wait_for_completion(until, stop, timeout)

    def stats(self, timeout: float = 5.0) -> ApplicationStats:
        """Return the state of the application, its counters, its stores and last errors, and the lag of all partitions.

        It asks Kafka for offsets, and counts nothing for each record.

        Args:
            timeout: seconds to wait for each answer of Kafka. Without one, `kafka_error` says why, and offsets are missing.
        """
        return self._observation.stats(timeout)

    # -- State ----------------------------------------------------------------------------------------------------------

    def query_state(
        self,
        store: str,
        key: Any,
        state_key: Any = _ALL,
        *,
        topic: str | Topic | None = None,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int = MOST_ENTRIES,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the committed state of a message key, with the input offsets that it contains.

        It waits while the partition of the key moves. See docs/state-queries.md for what an answer promises.

        Args:
            store: name of the store: "default", or that of a window.
            key: the message key, as operators see it. For keys that are bytes, a str stands for its UTF-8 bytes.
            state_key: one key of the state; by default all of the message key.
            topic: the topic of the store, if stores of several topics have this name.
            partition: the partition; by default that of the key.
            from_ms: for windows: only those that start at this time or later, in milliseconds.
            to_ms: for windows: only those that start before this time.
            limit: maximum number of entries; 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait for the answer.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if there is no such store or partition.
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if the partition still moves, or its state is being restored, after the timeout.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            answer = app.query_state("default", "ann")
            print(answer.get("total"), "after", answer.position)
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
            timeout=timeout,
        )

    def scan_state(
        self,
        store: str,
        partition: int = 0,
        *,
        topic: str | Topic | None = None,
        prefix: str | bytes | None = None,
        start: str | bytes | None = None,
        end: str | bytes | None = None,
        limit: int = 100,
        cursor: str | None = None,
        timeout: float = 10.0,
    ) -> StateAnswer:
        """Return the committed state of several message keys of one partition.

        Entries come in the order of the store: shorter keys before longer ones. An answer may have fewer entries than the
        limit, even none, and a cursor: then go on there. Each answer has its own position.

        Args:
            store: name of the store.
            partition: the partition.
            topic: the topic of the store, if stores of several topics have this name.
            prefix: only keys that begin so: a str or bytes, as the keys are.
            start: only keys from this one on.
            end: only keys before this one.
            limit: maximum number of entries; for windows, of message keys. 1000 at most.
            cursor: the `cursor` of a former answer, to go on there.
            timeout: seconds to wait for the answer.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if there is no such store or partition.
            StateNotOwnedError: if another instance owns the partition.
            StateUnavailableError: if the partition still moves, or its state is being restored, after the timeout.
            StateQueryError: if the store cannot be queried.

        Example:
            ```python
            for entry in app.scan_state("default", 0, prefix="customer-").entries:
                print(entry.key, entry.state_key, entry.value)
            ```
        """
        return self._states.scan_state(
            store,
            partition,
            topic=topic,
            prefix=prefix,
            start=start,
            end=end,
            limit=limit,
            cursor=cursor,
            timeout=timeout,
        )

    def state_stores(self) -> list[StoreListing]:
        """Return the stores of the running application, by name and topic.

        Raises:
            ApplicationStateError: if the application does not run.
            StateUnavailableError: if it is starting or stopping.
        """
        return self._states.state_stores()

    def state_key_of_text(self, store: str, topic: str | None, text: str, form: str = "text") -> Any:
        """Return a message key from text, for `query_state`.

        Args:
            store: name of the store.
            topic: the topic of the store, if stores of several topics have this name.
            text: the text.
            form: "text": what the key deserializer of the topic makes of it; "json"; or "base64" for bytes.

        Raises:
            ApplicationStateError: if the application does not run.
            ArgumentValueError: if the text is not a key of this form, or the store does not exist.
        """
        return self._states.state_key_of_text(store, topic, text, form)

    # -- While it does not run ------------------------------------------------------------------------------------------

    def reset(self, to: ResetTo = "earliest", dry_run: bool = False) -> ResetReport:
        """Let the application start over: without state, and at other offsets of its input topics.

        It deletes the changelogs of stores, the repartition topics, the state on this machine and the committed offsets.
        Input and output topics stay as they are, and so does the state of sources, which belongs to what they have produced.

        Args:
            to: where to begin: "earliest", "latest", a time (without a zone: UTC), or `Offsets` of all input partitions.
            dry_run: only return what would be done.

        Returns:
            What was done.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run; in that case, nothing has changed.
            OffsetOutOfRangeError: if an offset is not in its partition.
            StaleTokenError: if a topic was deleted since the offsets were made.
            KafkaRequestError: if Kafka does not respond, or refuses a request. Call it again: it continues.

        Example:
            ```python
            for line in app.reset(dry_run=True).lines():
                print(line)
            ```
        """
        return self._maintenance.reset(to, dry_run)

    def savepoint(self, name: str) -> Savepoint:
        """Copy everything that the consumer group has committed, under a name; all instances must be stopped.

        Args:
            name: its name: letters, digits, ".", "_" and "-".

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run.
            SavepointError: if the name is taken, nothing was committed, or this is not the version that has run last.
            ChangelogError: if a changelog is missing.
            KafkaRequestError: if Kafka does not respond.

        Example:
            ```python
            app.stop(wait=True)
            app.savepoint("before-2.0")
            ```
        """
        return self._maintenance.savepoint(name)

    def restore_savepoint(self, name: str, group: str | None = None) -> Offsets:
        """Let the consumer group of this application begin at a savepoint, which stays as it is.

        Args:
            name: the name of the savepoint.
            group: the consumer group that it is from; by default that of this application, which must then have been reset.

        Returns:
            The offsets of the inputs at which the application begins.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run, or the group has state or offsets.
            SavepointError: if there is no such savepoint.
            StaleTokenError: if an input topic was deleted since.
            OffsetOutOfRangeError: if records that come next were deleted.
            TopicConfigurationError: if an input with state has another number of partitions now.
            KafkaRequestError: if Kafka does not respond. Call it again: it starts over.

        Example:
            ```python
            app = Application(broker_address="localhost:9092", consumer_group="shop-trial")
            app.restore_savepoint("before-2.0", group="shop")
            ```
        """
        return self._maintenance.restore_savepoint(name, group)

    def repartition(self, partitions: int, dry_run: bool = False) -> Repartitioned:
        """Give all inputs and repartition topics more partitions, and move the state of each key to its new partition.

        All instances must be stopped, everything must be processed, and nothing may be produced to the inputs meanwhile.

        Args:
            partitions: the new number of partitions.
            dry_run: only return what would be done.

        Returns:
            What was done.

        Raises:
            ApplicationStateError: if the application runs in this process.
            InvalidOperationError: if other instances run.
            SavepointError: if records wait, a key is not where its partitioner says, or there is no state.
            TopicConfigurationError: if a topic has more partitions already, or a `group_by` has needed no topic so far.
            KafkaRequestError: if Kafka does not respond. Call it again: it continues.

        Example:
            ```python
            for line in app.repartition(12, dry_run=True).lines():
                print(line)
            ```
        """
        return self._maintenance.repartition(partitions, dry_run)

    def clear_state(self) -> None:
        """Delete the state on this machine. The next run restores what changelog topics hold.

        Raises:
            InvalidOperationError: if an instance of the application is running.

        Example:
            ```python
            app.clear_state()
            app.run()
            ```
        """
        self._maintenance.clear_state()

    def forget_store(self, topic: Topic | str | Sequence[Topic | str], store: str = "default") -> list[str]:
        """Delete one store, so that it starts empty at the committed offsets, as `streamrt state forget` does.

        Args:
            topic: the topic of the store, or the topics that were merged.
            store: the name of the store.

        Returns:
            One line for each deleted item.

        Raises:
            InvalidOperationError: if an instance of the application is running, or the store does not exist.

        Example:
            ```python
            app.forget_store(orders, "tumbling_window_60000_count")
            ```
        """
        return self._maintenance.forget_store(topic, store)

    def _prepare_topic(self, name: str) -> None:
        """Create a topic of the application, if it is missing, before a producer or consumer uses it."""
        topics, admin = self._definition.topics, self._environment.admin
        topic = topics.topics.get(name)
        if topic is not None and self._config.auto_create_topics:
            admin.wait_for_broker(self._config.broker_start_timeout)
            topics.create_topics([topic])

    def __repr__(self) -> str:
        group, brokers = self._config.consumer_group, self._environment.connection.bootstrap_servers
        return f"Application(consumer_group={group!r}, broker_address={brokers!r})"


def _conceal_options(is_secret: Callable[[str], bool], *given: Mapping[str, Any] | None) -> None:
    for options in given:
        for name, value in (options or {}).items():
            if is_secret(name) and isinstance(value, str):
                conceal(value)


def _is_secret_of_spark(option: str) -> bool:
    """Return whether an option of Spark or Hadoop holds a secret, and not where one is, or what finds it."""
    return names_secret(option) and not option.lower().endswith(_ABOUT_SECRETS)


def find_view_query(app: Application, name: str, within: Sequence[str]) -> tuple[exp.Expr, tuple[str, ...]] | None:
    """Return the query of a view of an application that keeps no rows, and the names of its columns; None without one."""
    return app._sql.find_query(name, within)


def definition_of(app: Application) -> ApplicationDefinition:
    """Return the definition of an application, for the test driver and for tests."""
    return app._definition


def environment_of(app: Application) -> Environment:
    """Return where an application runs, for commands that look at its cluster."""
    return app._environment


def control_token_of(app: Application) -> Credential | None:
    """Return the token of an application's control server, for commands that must know whether theirs has an effect."""
    return None if app._server is None else app._server.token
