"""The application's configuration: checked once, then immutable."""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from streamrt.arguments import checked, refuse_async, type_name
from streamrt.common.addresses import parse_address
from streamrt.common.logs import JsonFormatter, LogFormat, line_formatter
from streamrt.errors import ArgumentTypeError, ConfigurationError, argument_error

AutoOffsetReset = Literal["earliest", "latest", "error"]
"""Start position in partitions without a committed offset."""
ProcessingGuarantee = Literal["at-least-once", "exactly-once"]
ProcessingMode = Literal["micro-batch", "resident"]
GroupProtocol = Literal["classic", "consumer"]
"""Kafka's protocols of consumer groups; "consumer" is that of KIP-848."""
NoProgress = Literal["report", "fail"]
LogLevel = Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"]

LOGGER_NAME = "streamrt"
NONE_WORD = "none"
"""None as a text, for the environment and for TOML, which have no such value."""
DEFAULT_CONSUMER_GROUP = "streamrt-default"
DEFAULT_STATE_DIR = ".streamrt/state"
LONGEST_TRANSACTION_S = 0.1
"""Seconds until a transaction of a resident task ends, if `transaction_interval` says nothing else and commits are quick."""
DEFAULT_TRANSACTION_TIMEOUT_S = 60.0
DEFAULT_STATE_CLEANUP_DELAY_S = 7 * 86_400.0
DEFAULT_PROGRESS_TIMEOUT_S = 300.0

_BESIDE: dict[str, dict[str, Any]] = {
    "processing_guarantee": {"consumer_group": DEFAULT_CONSUMER_GROUP},
    "transaction_interval": {"processing_mode": "resident", "processing_guarantee": "exactly-once"},
    "log_format": {"loglevel": "INFO"},
    "on_no_progress": {"progress_timeout": DEFAULT_PROGRESS_TIMEOUT_S},
    "spark_master": {"processing_mode": "resident"},
    "standby_replicas": {"processing_mode": "resident"},
}
"""For each setting that is validated against others: values of these others that accept all its values."""
_MAY_BE_NONE = frozenset(
    {
        "broker_availability_timeout",
        "control",
        "control_sql",
        "loglevel",
        "processing_timeout",
        "progress_timeout",
        "state_cleanup_delay",
        "state_snapshots",
        "transaction_interval",
    }
)
"""The settings of which None is a choice. `broker_address` has it only where it is missing."""

_PROCESSES = re.compile(r"processes(\[(?P<count>[1-9]\d*|\*)\])?")


class ApplicationConfig(BaseModel):
    """Settings of an application; `streamrt.Application` describes each one.

    A setting that is not passed is read from the environment variable `STREAMRT_<NAME>`, such as
    `STREAMRT_CONSUMER_GROUP`; if that is unset, the default applies. The text "none" is None where a setting may be None.

    Example:
        >>> ApplicationConfig(consumer_group="readings").commit_interval
        5.0
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False, validate_default=True
    )

    broker_address: str | None = Field(default=None, min_length=1)
    consumer_group: str = Field(default=DEFAULT_CONSUMER_GROUP, min_length=1)
    group_protocol: GroupProtocol = "classic"
    auto_offset_reset: AutoOffsetReset = "latest"
    commit_interval: float = Field(default=5.0, ge=0)
    commit_every: int = Field(default=0, ge=0)
    state_dir: Path = Path(DEFAULT_STATE_DIR)
    consumer_poll_timeout: float = Field(default=1.0, gt=0)
    producer_poll_timeout: float = Field(default=0.0, ge=0)
    loglevel: Any = "INFO"
    log_format: LogFormat = "text"
    auto_create_topics: bool = True
    request_timeout: float = Field(default=30.0, gt=0)
    topic_create_timeout: float = Field(default=60.0, gt=0)
    processing_guarantee: ProcessingGuarantee = "at-least-once"
    processing_mode: ProcessingMode = "micro-batch"
    processing_timeout: float | None = Field(default=None, gt=0)
    # After the two settings that it is validated against.
    transaction_interval: float | None = Field(default=None, gt=0)
    use_changelog_topics: bool = True
    auto_recover_from_source_offset_out_of_range: bool = True
    broker_availability_timeout: float | None = Field(default=None, ge=0)
    state_snapshots: str | None = Field(default=None, min_length=1)
    state_cleanup_delay: float | None = Field(default=DEFAULT_STATE_CLEANUP_DELAY_S, ge=0)
    spark_master: str = Field(default="local[*]", min_length=1)
    # After the settings that it is validated against.
    standby_replicas: int = Field(default=0, ge=0, le=1)
    control: str | None = None
    control_sql: Literal["read", "write"] | None = None
    control_sql_rows: int = Field(default=1_000_000, ge=1)
    control_sql_timeout: float = Field(default=60.0, gt=0)
    progress_timeout: float | None = Field(default=DEFAULT_PROGRESS_TIMEOUT_S, gt=0)
    # After the setting that it is validated against.
    on_no_progress: NoProgress = "report"

    @model_validator(mode="before")
    @classmethod
    def _add_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add settings of the environment. The case of names does not matter."""
        names = {cls.variable(name): name for name in cls.model_fields}
        found = {names[each.upper()]: value for each, value in os.environ.items() if each.upper() in names}
        return {**found, **given}

    @property
    def broker_start_timeout(self) -> float:
        """Seconds to wait for the first answer of a broker; 0 for no limit. The address may be wrong."""
        return 30.0 if self.broker_availability_timeout is None else self.broker_availability_timeout

    @property
    def broker_outage_timeout(self) -> float:
        """Seconds to wait for brokers that have answered before; 0 for no limit."""
        return 120.0 if self.broker_availability_timeout is None else self.broker_availability_timeout

    @field_validator(*sorted(_MAY_BE_NONE), mode="before")
    @classmethod
    def _none_as_a_text(cls, value: object) -> object:
        return None if isinstance(value, str) and value.lower() == NONE_WORD else value

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # Python counts True as 1.
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float, float | None):
            raise PydanticCustomError("number_type", "must be a number, not {value}", {"value": str(value)})
        return value

    @field_validator("consumer_group")
    @classmethod
    def _no_end_of_text(cls, value: str) -> str:
        # Clients in C would truncate the name at this character.
        if "\0" in value:
            raise ValueError(f"must not contain the character NUL, got {value!r}")
        return value

    @field_validator("processing_guarantee")
    @classmethod
    def _group_that_transactions_take(cls, value: str, info: ValidationInfo) -> str:
        group = info.data.get("consumer_group", "")
        if value == "exactly-once" and not (group.isascii() and group.isprintable()):
            raise ValueError(
                f"'exactly-once' is not possible with consumer_group={group!r}: in transactions, Kafka's client "
                "accepts only group names of printable ASCII characters; choose another name"
            )
        return value

    @field_validator("transaction_interval")
    @classmethod
    def _only_where_transactions_wait(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None:
            return value
        if info.data.get("processing_mode") == "micro-batch":
            raise ValueError(
                "has no effect with processing_mode='micro-batch', where each micro-batch commits its transactions at once: "
                "remove it, or set processing_mode='resident'"
            )
        if info.data.get("processing_guarantee") == "at-least-once":
            raise ValueError(
                "has no effect with processing_guarantee='at-least-once', which needs no transactions: remove it, set "
                "commit_interval instead, or set processing_guarantee='exactly-once'"
            )
        return value

    @field_validator("standby_replicas")
    @classmethod
    def _only_where_copies_follow(cls, value: int, info: ValidationInfo) -> int:
        if not value:
            return value
        if info.data.get("processing_mode") == "micro-batch":
            raise ValueError(
                "needs processing_mode='resident': between two micro-batches, no process of an instance stays"
            )
        if info.data.get("group_protocol") == "consumer":
            raise ValueError(
                "needs group_protocol='classic', where the next assignment of the group is known before it is made"
            )
        if info.data.get("use_changelog_topics") is False:
            raise ValueError("needs use_changelog_topics=True: copies of stores follow their changelogs")
        return value

    @field_validator("control")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None:
            parse_address(value)
        return value

    @field_validator("spark_master")
    @classmethod
    def _processes_for_resident_tasks(cls, value: str, info: ValidationInfo) -> str:
        if count_processes(value) is not None and info.data.get("processing_mode") == "micro-batch":
            raise ValueError(
                f"{value!r} starts no Spark, which micro-batches need: set processing_mode='resident', or "
                "spark_master='local[*]'"
            )
        return value

    @field_validator("on_no_progress")
    @classmethod
    def _only_with_a_limit(cls, value: NoProgress, info: ValidationInfo) -> NoProgress:
        if value == "fail" and info.data.get("progress_timeout", 0) is None:
            raise ValueError("'fail' has no effect with progress_timeout=None: set a number of seconds")
        return value

    @field_validator("loglevel")
    @classmethod
    def _known_level(cls, value: object) -> object:
        level = value.upper() if isinstance(value, str) else value
        if level is None or level in get_args(LogLevel) or (isinstance(level, int) and not isinstance(level, bool)):
            return level
        if isinstance(level, str) and level.isascii() and level.isdecimal():
            return int(level)
        words = f"must be a number, None, or one of {', '.join(get_args(LogLevel))}"
        raise ValueError(words) if isinstance(level, str) else PydanticCustomError("level_type", words)

    @field_validator("log_format")
    @classmethod
    def _only_where_lines_are_written(cls, value: str, info: ValidationInfo) -> str:
        if value != "text" and info.data.get("loglevel", "INFO") is None:
            raise ValueError(
                "has no effect with loglevel=None, which leaves logging to the program: remove it, or set loglevel"
            )
        return value

    @classmethod
    def create(cls, **settings: Any) -> Self:
        """Build a configuration; settings with default values may come from the environment.

        Raises:
            ConfigurationError: if settings are invalid; the message has one sentence for each of them, with its name.
        """
        defaults = cls._defaults()
        return cls._check_given(
            {name: value for name, value in settings.items() if not _is_same(value, defaults.get(name))}
        )

    @staticmethod
    def variable(name: str) -> str:
        """Return the environment variable of a setting.

        Example:
            >>> ApplicationConfig.variable("commit_interval")
            'STREAMRT_COMMIT_INTERVAL'
        """
        return f"STREAMRT_{name.upper()}"

    @classmethod
    def parse(cls, name: str, value: object) -> Any:
        """Return what one setting becomes, given as a text, as in the environment, or as a value of a file.

        It is checked by itself: whether it fits the others is known only where the application is made.

        Args:
            name: the setting.
            value: the text or the value.

        Raises:
            ConfigurationError: if it is invalid; the message has the name.

        Example:
            >>> ApplicationConfig.parse("commit_interval", "0.5"), ApplicationConfig.parse("auto_create_topics", False)
            (0.5, False)
            >>> ApplicationConfig.parse("progress_timeout", "none") is None
            True
        """
        # All are given, so that nothing comes from the environment.
        given = {**cls._defaults(), **_BESIDE.get(name, {}), name: value}
        try:
            return getattr(cls(**given), name)
        except ValidationError as error:
            raise ConfigurationError(f"{name}: {'; '.join(map(_issue_reason, error.errors()))}") from None

    def copy(self, **settings: Any) -> Self:
        """Return a configuration with changed values for some settings.

        Args:
            settings: the changed settings.

        Raises:
            ConfigurationError: if a setting is unknown or invalid.

        Example:
            >>> ApplicationConfig(consumer_group="readings").copy(commit_every=10).consumer_group
            'readings'
        """
        return self._check_given({**self.model_dump(), **settings})

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: field.default for name, field in cls.model_fields.items()}

    @classmethod
    def _check_given(cls, given: Mapping[str, Any]) -> Self:
        try:
            return cls(**given)
        except ValidationError as error:
            issues = error.errors()
            raise argument_error(
                "; ".join(map(_issue_sentence, issues)), of_type=not all(map(_has_wrong_type, issues))
            ) from None


def _is_same(value: object, default: object) -> bool:
    if isinstance(default, Path) and isinstance(value, str | Path):
        return Path(value) == default
    return value == default and isinstance(value, bool) == isinstance(default, bool)


def _has_wrong_type(issue: Any) -> bool:
    # pydantic's `int_type` and the like mean a wrong type; `int_parsing` means a text that is not an int.
    kind: str = issue["type"]
    return kind.endswith("_type") or (kind == "literal_error" and not isinstance(issue["input"], str))


def _issue_sentence(issue: Any) -> str:
    name = ".".join(str(part) for part in issue["loc"][:1])
    return f"parameter {name!r} (environment variable {ApplicationConfig.variable(name)}): {_issue_reason(issue)}"


def _issue_reason(issue: Any) -> str:
    reason: str = issue["msg"]
    return reason.removeprefix("Value error, ")


def configure_logging(
    loglevel: int | str | None,
    name: str = LOGGER_NAME,
    pid: bool = False,
    log_format: LogFormat = "text",
    group: str | None = None,
) -> bool:
    """Add a handler on stderr to the `streamrt` logger, unless it already has one.

    Args:
        loglevel: level as a number or a name; None leaves logging unchanged.
        name: the name in each line; by default that of the logger that wrote the line.
        pid: whether lines of text contain the process id, as those of JSON always do.
        log_format: lines as "text" or as "json".
        group: the consumer group that lines of JSON name.

    Returns:
        Whether logging was changed.

    Example:
        >>> configure_logging(None)
        False
    """
    logger = logging.getLogger(LOGGER_NAME)
    if loglevel is None or logger.handlers:
        for present in logger.handlers:
            if isinstance(present.formatter, JsonFormatter):
                present.formatter.share(group)
        return False
    handler = logging.StreamHandler()
    own = None if name == LOGGER_NAME else name
    handler.setFormatter(line_formatter(log_format, name=own, group=group, pid=pid))
    logger.addHandler(handler)
    logger.setLevel(loglevel)
    logger.propagate = False
    return True


def refuse_parameters(**parameters: Any) -> None:
    """Refuse parameters of similar libraries that have no meaning here.

    Raises:
        ConfigurationError: if one of them is not None.
    """
    reasons = {
        "quix_sdk_token": "StreamRT connects to Kafka directly: set broker_address",
        "quix_config_builder": "StreamRT connects to Kafka directly: set broker_address",
        "max_partition_buffer_size": "records of merged topics wait in Kafka, not in a buffer per partition: limit the "
        "size of a fetch with max.partition.fetch.bytes in consumer_extra_config",
        "state_recovery_offset_reset": "if input records were deleted, state is kept and processing continues with the "
        "first available record, as with 'earliest': remove the parameter, or set "
        "auto_recover_from_source_offset_out_of_range=False",
    }
    for name, value in parameters.items():
        if value is not None and (name, value) != ("state_recovery_offset_reset", "earliest"):
            raise ConfigurationError(f"{name} is not supported: {reasons[name]}")


def require_types(**parameters: tuple[Any, Any, str]) -> None:
    """Refuse parameters of a wrong type; each is passed with its required type and a description of that type.

    Raises:
        ConfigurationError: if one of them is neither None nor of its type, or is asynchronous.
    """
    for name, (value, kind, words) in parameters.items():
        checked(name, value, kind, words, optional=True, show=type_name)
        if kind is Callable:
            refuse_async(f"{name}=...", value)


def require_amounts(method: str, **parameters: Any) -> None:
    """Refuse parameters of a method that are not numbers, or negative.

    Raises:
        ArgumentTypeError: if one of them is not a number.
        ArgumentValueError: if one of them is negative.
    """
    for name, number in parameters.items():
        checked(f"{method}({name}=...)", number, int | float, "a non-negative number", lambda amount: not amount < 0)


def producer_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the user's producer options, which are sent to the producing processes.

    Args:
        options: options, named as in librdkafka.

    Raises:
        ConfigurationError: if an option cannot be sent to another process.

    Example:
        >>> producer_options({"linger.ms": 5})
        {'linger.ms': 5}
    """
    chosen = dict(options or {})
    for name, value in chosen.items():
        try:
            json.dumps(value)
        except TypeError:
            raise ArgumentTypeError(
                f"producer_extra_config: {name} is not supported, because a {type(value).__name__} cannot be sent to "
                "the producing processes"
            ) from None
    return chosen


def refuse_long_transactions(config: ApplicationConfig, producer: Mapping[str, Any]) -> None:
    """Refuse settings of resident tasks with which brokers might abort transactions before their commit.

    Args:
        config: the settings of the application.
        producer: the user's producer options, named as in librdkafka.

    Raises:
        ConfigurationError: if transactions stay open for more than half of the transaction timeout.

    Example:
        >>> config = ApplicationConfig(processing_mode="resident", processing_guarantee="exactly-once")
        >>> refuse_long_transactions(config, {"transaction.timeout.ms": 10_000})
    """
    if config.processing_mode != "resident" or config.processing_guarantee != "exactly-once":
        return
    interval_s = min(config.transaction_interval or LONGEST_TRANSACTION_S, config.commit_interval)
    timeout_s = transaction_timeout_s(producer)
    if interval_s * 2 > timeout_s:
        raise ConfigurationError(
            f"transactions stay open for {interval_s:g} s (transaction_interval, or commit_interval if that is less), but "
            f"brokers abort them after transaction.timeout.ms={timeout_s * 1_000:.0f}: set the interval to at most half of it"
        )


def transaction_timeout_s(producer: Mapping[str, Any]) -> float:
    """Return the seconds after which brokers abort a transaction that is open.

    Args:
        producer: the user's producer options, named as in librdkafka. Producers refuse a timeout that is not a number.

    Example:
        >>> transaction_timeout_s({}), transaction_timeout_s({"transaction.timeout.ms": "5000"})
        (60.0, 5.0)
    """
    timeout = str(producer.get("transaction.timeout.ms"))
    return int(timeout) / 1_000 if timeout.isdecimal() else DEFAULT_TRANSACTION_TIMEOUT_S


def count_processes(master: str) -> int | None:
    """Return the number of processes that a `spark_master` wants instead of Spark; None if it names a Spark.

    Args:
        master: "processes[2]" for two, "processes[*]" or "processes" for one for each processor that this process may use.

    Raises:
        ValueError: if the number is missing or 0.

    Example:
        >>> count_processes("processes[2]"), count_processes("local[2]")
        (2, None)
    """
    match = _PROCESSES.fullmatch(master.strip())
    if match is None:
        if master.strip().lower().startswith("process"):
            raise ValueError(
                f"{master!r} is not a number of processes: write 'processes[2]', or 'processes[*]' for all cores"
            )
        return None
    if match["count"] in (None, "*"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match["count"])


def names_processes(environment: Mapping[str, str]) -> bool:
    """Return whether the `spark_master` of an environment names processes, not a Spark.

    Args:
        environment: variables and their values.

    Example:
        >>> names_processes({"STREAMRT_SPARK_MASTER": "processes[2]"}), names_processes({})
        (True, False)
    """
    return _PROCESSES.fullmatch(environment.get("STREAMRT_SPARK_MASTER", "").strip()) is not None
