"""`Application`: topics, dataframes, and the settings that they run with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamrt.common.logs import LogFormat, log_context
from streamrt.config import (
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PROGRESS_TIMEOUT_S,
    DEFAULT_STATE_CLEANUP_DELAY_S,
    DEFAULT_STATE_DIR,
    DEFAULT_TRANSACTION_INTERVAL_S,
    ApplicationConfig,
    AutoOffsetReset,
    LogLevel,
    NoProgress,
    ProcessingGuarantee,
    ProcessingMode,
    configure_logging,
    producer_options,
    refuse_long_transactions,
    refuse_parameters,
    require_amounts,
    require_types,
)
from streamrt.connectors.credentials import Credential
from streamrt.control.controlled import Inside
from streamrt.control.settings import control_server, serving
from streamrt.control.token import ControlToken
from streamrt.dataframe import StreamingDataFrame
from streamrt.dataframe.branch import branch_of
from streamrt.declaring import DeclaringApplication
from streamrt.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    InvalidOperationError,
)
from streamrt.kafka import ConnectionConfig, Consumer, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.connection import connection_of, is_secret_option
from streamrt.kafka.java import java_client_options
from streamrt.runtime.driver.definition import ApplicationDefinition, Environment, MessageProcessedCallback
from streamrt.runtime.driver.directory import clear
from streamrt.runtime.driver.exits import end_readably
from streamrt.runtime.driver.forget import forget_store
from streamrt.runtime.driver.progress import ProgressSnapshot
from streamrt.runtime.driver.restart import RestartPolicy, require_policy
from streamrt.runtime.driver.until import Until, require_until
from streamrt.runtime.report import Output
from streamrt.runtime.spec import ConsumerErrorCallback, ErrorCallbacks, ProcessingErrorCallback, ProducerErrorCallback
from streamrt.secret import conceal, names_secret
from streamrt.serializers import DeserializerType, SerializerType
from streamrt.state import RocksDBOptions
from streamrt.topics import OnError, TimestampExtractor, Topic, TopicManager, WatermarkStrategy
from streamrt.topology import Topology
from streamrt.topology.describe import describe
from streamrt.tracing import Tracing, require_tracing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamrt.tables import Catalog

__all__ = ["Application", "ApplicationConfig", "MessageProcessedCallback"]

logger = logging.getLogger("streamrt")

# Ends of names of Spark's options that say where a secret is, or which class finds it.
_ABOUT_SECRETS = ("provider", "url", "file", "class")


class Application(DeclaringApplication):
    """A stream processing application: reads topics, processes their records with dataframes on Spark, writes topics.

    A setting with its default value is read from the environment variable `STREAMRT_<NAME>` if that is set, such
    as `STREAMRT_BROKER_ADDRESS` or `STREAMRT_CONSUMER_GROUP`.

    Args:
        broker_address: `host:port` of a Kafka broker, or a `ConnectionConfig` for a login or TLS.
        consumer_group: the Kafka consumer group, which holds the committed offsets of the application.
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
            its commit.
        auto_recover_from_source_offset_out_of_range: if the committed offset is no longer in the topic, continue as
            `auto_offset_reset` says and log the loss; False raises `OffsetOutOfRangeError`.
        broker_availability_timeout: seconds to wait for a broker before `KafkaBrokerUnavailableError`; 0 waits forever.
        state_cleanup_delay: seconds until unused store files are deleted if a changelog can restore them; None: never.
        quix_sdk_token: not supported: StreamRT connects to Kafka only.
        quix_config_builder: not supported, for the same reason.
        max_partition_buffer_size: not supported: records of merged topics wait in Kafka.
        state_recovery_offset_reset: only "earliest", which is how state continues after input records were deleted.
        spark_master: Spark master: "local[*]", "local[2]", "spark://host:7077" and so on.
        spark_config: additional Spark settings.
        spark_session: an existing Spark session to use.
        control: `port` or `host:port` of the control server; a port alone is one of 127.0.0.1, and 0 a free one. None, the
            default, starts none.
        control_token: the token that callers of the control server must send, as text, `Secret`, or a function that returns
            it. Required for addresses that other machines reach.
        progress_timeout: seconds without a commit after which a partition with unprocessed records is logged as stuck, and
            makes `/ready` of the control server fail; at least twice `commit_interval` counts. None: never.
        on_no_progress: "fail" ends the application then, with `NoProgressError`; "report", the default, does not.
        tracing: a `Tracing` exports spans of commits and of sampled records by OpenTelemetry; None, the default, none.
        catalog: the catalogue of tables; None, the default, for that of the application's brokers.

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
        transaction_interval: float = DEFAULT_TRANSACTION_INTERVAL_S,
        auto_recover_from_source_offset_out_of_range: bool = True,
        broker_availability_timeout: float = 120.0,
        state_cleanup_delay: float | None = DEFAULT_STATE_CLEANUP_DELAY_S,
        spark_master: str = "local[*]",
        spark_config: Mapping[str, Any] | None = None,
        spark_session: SparkSession | None = None,
        control: str | None = None,
        control_token: ControlToken | None = None,
        progress_timeout: float | None = DEFAULT_PROGRESS_TIMEOUT_S,
        on_no_progress: NoProgress = "report",
        tracing: Tracing | None = None,
        catalog: Catalog | None = None,
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
        )
        require_tracing(tracing)
        if spark_session is not None and spark_config:
            raise ConfigurationError(
                "spark_config has no effect on a given spark_session: set it where that session is made"
            )
        address = broker_address if isinstance(broker_address, str) else None
        super().__init__(catalog)
        self._config = ApplicationConfig.create(
            broker_address=address,
            consumer_group=consumer_group or DEFAULT_CONSUMER_GROUP,
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
            spark_master=spark_master,
            control=control,
            progress_timeout=progress_timeout,
            on_no_progress=on_no_progress,
        )
        configure_logging(self._config.loglevel, log_format=self._config.log_format, group=self._config.consumer_group)
        connection = connection_of(broker_address, self._config.broker_address)
        consumer_options = java_client_options(connection, consumer_extra_config)
        reads_aborted = consumer_options.java.get("isolation.level") == "read_uncommitted"
        if reads_aborted and self._config.processing_guarantee == "exactly-once":
            raise ConfigurationError(
                "consumer_extra_config: isolation.level='read_uncommitted' reads records of aborted transactions, so "
                "it cannot be combined with processing_guarantee='exactly-once'"
            )
        _conceal_options(is_secret_option, consumer_extra_config, producer_extra_config)
        _conceal_options(_is_secret_of_spark, spark_config)
        self._consumer_extra_config = dict(consumer_extra_config or {})
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
        )
        inside = Inside(self._definition, connection, lambda: self._progress, self._lag)
        self._server = control_server(self, inside, control_token)

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
        return describe(self.topology, self._config.consumer_group, changelogs=self._config.use_changelog_topics)

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
        return self._progress.snapshot()

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
        clear(self._config.state_dir.absolute(), self._config.consumer_group)

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
        return forget_store(self._environment.admin, self._config, topic, store)

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
        self._require_runnable()
        with serving(None if self.status.is_active else self._server):
            self._begin_run(until=until)
            outputs = self._execute(timeout, int(count), collect=collect, restart=restart)
            return [output.as_dict(metadata) for output in outputs]

    def _open_control(self) -> None:
        if self._server is not None:
            self._server.open(stays=True)

    def _require_runnable(self) -> None:
        if not self.topology.sources and not self._definition.sources.processes:
            raise InvalidOperationError("there is nothing to run: first make a dataframe with Application.dataframe()")

    def _execute(
        self, timeout: float = 0.0, count: int = 0, *, collect: bool = False, restart: RestartPolicy | None = None
    ) -> list[Output]:
        collected = collect and (timeout > 0 or count > 0 or self._until is not None)
        with self._naming_schemas(), self._noting_usage(), log_context({"group": self._config.consumer_group}):
            if not self.topology.sources:
                self._attempts(restart, self._run_sources)
                return []
            return self._attempts(restart, lambda: self._process(timeout, count, collect=collected)) or []

    def _process(self, timeout: float, count: int, *, collect: bool) -> list[Output]:
        # Imported here so that programs that use streamrt for tests or topics do not wait for pyspark.
        from streamrt.spark.application import ApplicationRun
        from streamrt.spark.settings import StopConditions

        self._progress = self._progress.next_run()
        ends = StopConditions(count, timeout)
        ways = (self._stop, self._discard, self._progress, self._control)
        announced = "" if self._server is None else self._server.announced
        watched = (self._lag, self._queries, announced)
        with self._ending() as end:
            return ApplicationRun(self._definition, self._environment, ends, collect, *ways, *watched, end=end).run()

    def _prepare_topic(self, name: str) -> None:
        """Create a topic of the application, if it is missing, before a producer or consumer uses it."""
        topics, admin = self._definition.topics, self._environment.admin
        topic = topics.topics.get(name)
        if topic is not None and self._config.auto_create_topics:
            admin.wait_for_broker(self._config.broker_availability_timeout)
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


def definition_of(app: Application) -> ApplicationDefinition:
    """Return the definition of an application, for the test driver and for tests."""
    return app._definition


def environment_of(app: Application) -> Environment:
    """Return where an application runs, for commands that look at its cluster."""
    return app._environment


def control_token_of(app: Application) -> Credential | None:
    """Return the token of an application's control server, for commands that must know whether theirs has an effect."""
    return None if app._server is None else app._server.token
