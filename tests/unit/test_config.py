"""Settings: where they come from, and what is refused with which words."""

import logging
import os
import re
import socket
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from streamrt import Application, ConnectionConfig
from streamrt.app import definition_of
from streamrt.config import ApplicationConfig, configure_logging, count_processes
from streamrt.connectors import CSVSource
from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.runtime.driver.housekeeping.state_directory import StateDirectory
from streamrt.state import RocksDBOptions
from tests.unit.apps import application

DEFAULTS = {
    "broker_address": None,
    "consumer_group": "streamrt-default",
    "group_protocol": "classic",
    "auto_offset_reset": "latest",
    "commit_interval": 5.0,
    "commit_every": 0,
    "state_dir": Path(".streamrt/state"),
    "consumer_poll_timeout": 1.0,
    "producer_poll_timeout": 0.0,
    "loglevel": "INFO",
    "log_format": "text",
    "auto_create_topics": True,
    "request_timeout": 30.0,
    "topic_create_timeout": 60.0,
    "processing_guarantee": "at-least-once",
    "processing_mode": "micro-batch",
    "processing_timeout": None,
    "transaction_interval": None,
    "use_changelog_topics": True,
    "auto_recover_from_source_offset_out_of_range": True,
    "broker_availability_timeout": None,
    "state_snapshots": None,
    "state_cleanup_delay": 604_800.0,
    "standby_replicas": 0,
    "spark_master": "local[*]",
    "control": None,
    "control_sql": None,
    "control_sql_rows": 1_000_000,
    "control_sql_timeout": 60.0,
    "progress_timeout": 300.0,
    "on_no_progress": "report",
}

OTHERS: dict[str, tuple[str, Any]] = {
    "broker_address": ("broker:9092", "broker:9092"),
    "consumer_group": ("shop", "shop"),
    "group_protocol": ("consumer", "consumer"),
    "auto_offset_reset": ("earliest", "earliest"),
    "commit_interval": ("0.5", 0.5),
    "commit_every": ("100", 100),
    "state_dir": ("/var/state", Path("/var/state")),
    "consumer_poll_timeout": ("0.1", 0.1),
    "producer_poll_timeout": ("1", 1.0),
    "loglevel": ("debug", "DEBUG"),
    "log_format": ("json", "json"),
    "auto_create_topics": ("false", False),
    "request_timeout": ("3", 3.0),
    "topic_create_timeout": ("4", 4.0),
    "processing_guarantee": ("exactly-once", "exactly-once"),
    "processing_mode": ("resident", "resident"),
    "processing_timeout": ("2.5", 2.5),
    "use_changelog_topics": ("no", False),
    "auto_recover_from_source_offset_out_of_range": ("0", False),
    "broker_availability_timeout": ("0", 0.0),
    "state_snapshots": ("s3://bucket/prefix?keep=2", "s3://bucket/prefix?keep=2"),
    "state_cleanup_delay": ("60", 60.0),
    "spark_master": ("local[2]", "local[2]"),
    "control": ("0.0.0.0:7070", "0.0.0.0:7070"),
    "control_sql": ("write", "write"),
    "control_sql_rows": ("5000", 5000),
    "control_sql_timeout": ("2.5", 2.5),
}


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DEFAULTS:
        monkeypatch.delenv(f"STREAMRT_{name.upper()}", raising=False)


@pytest.fixture
def logger() -> logging.Logger:
    """The package's logger, as if no one had configured it yet."""
    package = logging.getLogger("streamrt")
    package.handlers[:] = []
    return package


# -- Where settings come from ----------------------------------------------------------------------------------------


@pytest.mark.rows("FE-058", "FE-110", "FE-111", "FE-114", "FE-116", "FE-119", "FE-120", "FE-121")
def test_the_defaults_are_those_of_the_documentation() -> None:
    assert ApplicationConfig.create().model_dump() == DEFAULTS


@pytest.mark.rows("FE-121")
@pytest.mark.parametrize("name", OTHERS)
def test_a_setting_can_come_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = OTHERS[name]
    monkeypatch.setenv(f"STREAMRT_{name.upper()}", text)
    assert ApplicationConfig.create().model_dump() == {**DEFAULTS, name: value}
    # An application hands over every setting, most of them at their defaults.
    assert getattr(ApplicationConfig.create(**DEFAULTS), name) == value


MAY_BE_NONE = [
    "loglevel",
    "broker_availability_timeout",
    "processing_timeout",
    "state_cleanup_delay",
    "state_snapshots",
    "transaction_interval",
    "control",
    "control_sql",
    "progress_timeout",
]


@pytest.mark.parametrize("name", MAY_BE_NONE)
def test_none_is_a_word_where_none_is_a_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"STREAMRT_{name.upper()}", "None")
    assert getattr(ApplicationConfig.create(), name) is None
    assert ApplicationConfig.parse(name, "none") is None
    # A program can say it where the environment says something else.
    monkeypatch.setenv(f"STREAMRT_{name.upper()}", "9")
    assert getattr(ApplicationConfig.create(**{name: "none"}), name) is None


def test_none_is_no_word_for_other_settings() -> None:
    optional = {
        name for name, field in ApplicationConfig.model_fields.items() if type(None) in get_args(field.annotation)
    }
    assert {"loglevel", *optional} == {"broker_address", *MAY_BE_NONE}
    assert ApplicationConfig.parse("consumer_group", "none") == "none"
    with pytest.raises(ConfigurationError, match="commit_interval"):
        ApplicationConfig.parse("commit_interval", "none")


@pytest.mark.parametrize("name", OTHERS)
def test_a_setting_that_is_given_beats_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = OTHERS[name]
    monkeypatch.setenv(f"STREAMRT_{name.upper()}", "nonsense" if name == "consumer_group" else text)
    assert getattr(ApplicationConfig.create(**{name: value}), name) == value


@pytest.mark.rows("PF-A1", "PF-A19")
def test_an_application_takes_its_settings_from_parameters_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "broker:9092")
    monkeypatch.setenv("STREAMRT_COMMIT_INTERVAL", "7")
    monkeypatch.setenv("STREAMRT_LOGLEVEL", "ERROR")
    config = Application(consumer_group="given", loglevel=None, commit_every=9).config
    assert (config.broker_address, config.commit_interval, config.consumer_group) == ("broker:9092", 7.0, "given")
    assert (config.commit_every, config.loglevel) == (9, None)


@pytest.mark.rows("FE-122")
def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        cast("Any", ApplicationConfig.create()).commit_interval = 1.0


# -- What is refused -------------------------------------------------------------------------------------------------

WRONG = [
    ("broker_address", ""),
    ("consumer_group", 5),
    ("auto_offset_reset", "none"),
    ("auto_offset_reset", None),
    ("commit_interval", "soon"),
    ("commit_interval", -0.1),
    ("commit_interval", float("nan")),
    ("commit_interval", float("inf")),
    ("commit_interval", None),
    ("commit_every", 1.5),
    ("commit_every", -5),
    ("commit_every", "often"),
    ("consumer_poll_timeout", 0),
    ("producer_poll_timeout", -1),
    ("auto_create_topics", "maybe"),
    ("request_timeout", 0),
    ("request_timeout", [1]),
    ("topic_create_timeout", -1),
    ("processing_guarantee", "at-most-once"),
    ("processing_guarantee", None),
    ("processing_mode", "streaming"),
    ("processing_mode", None),
    ("processing_timeout", 0),
    ("processing_timeout", "never"),
    ("transaction_interval", 0),
    ("transaction_interval", "soon"),
    ("transaction_interval", True),
    ("use_changelog_topics", "maybe"),
    ("auto_recover_from_source_offset_out_of_range", 7),
    ("broker_availability_timeout", -1),
    ("state_cleanup_delay", -1),
    ("state_cleanup_delay", True),
    ("spark_master", ""),
    ("spark_master", 5),
    ("spark_master", "processes[0]"),
    ("spark_master", "processes[two]"),
    # Micro-batches are the default.
    ("spark_master", "processes[2]"),
    ("control", "nowhere"),
    ("control", 7070),
    ("control_sql", "all"),
    ("control_sql_rows", 0),
    ("control_sql_timeout", 0),
    ("progress_timeout", 0),
    ("progress_timeout", True),
    ("on_no_progress", "restart"),
    ("standby_replicas", -1),
    ("standby_replicas", 2),
    ("standby_replicas", True),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_setting_gives_one_sentence_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        application(**{name: value}) if name != "broker_address" else Application(value)
    message = str(caught.value)
    assert message.startswith(f"parameter {name!r} (environment variable STREAMRT_{name.upper()}): ")
    assert message.count("parameter") == 1
    assert "\n" not in message
    assert "pydantic" not in message
    assert caught.value.__cause__ is None


def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_COMMIT_INTERVAL", "soon")
    with pytest.raises(ConfigurationError, match="environment variable STREAMRT_COMMIT_INTERVAL"):
        application()


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        application(commit_interval="soon", request_timeout=0)
    assert re.findall(r"parameter '(\w+)'", str(caught.value)) == ["commit_interval", "request_timeout"]


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="parameter 'comit_interval'"):
        ApplicationConfig.create(comit_interval=1)
    with pytest.raises(TypeError, match="comit_interval"):
        application(comit_interval=1)


TRANSACTIONS = {"processing_mode": "resident", "processing_guarantee": "exactly-once"}


def test_the_transaction_interval_can_be_set_where_there_are_such_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert application(**TRANSACTIONS, transaction_interval=0.02).config.transaction_interval == 0.02
    assert application(transaction_interval=None).config.transaction_interval is None
    for name, value in {**TRANSACTIONS, "transaction_interval": "0.5"}.items():
        monkeypatch.setenv(f"STREAMRT_{name.upper()}", value)
    assert application().config.transaction_interval == 0.5


@pytest.mark.parametrize(
    ("name", "value"), [("processing_mode", "micro-batch"), ("processing_guarantee", "at-least-once")]
)
def test_a_transaction_interval_without_effect_is_refused_with_the_reason(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        application(**{**TRANSACTIONS, name: value}, transaction_interval=0.5)
    assert str(caught.value).startswith("parameter 'transaction_interval' (environment variable ")
    assert f"has no effect with {name}={value!r}" in str(caught.value)


@pytest.mark.rows("PF-L3")
def test_transactions_must_end_before_the_brokers_abort_them() -> None:
    limit = {"transaction.timeout.ms": 3_000}
    with pytest.raises(ConfigurationError, match=r"open for 2 s .*transaction\.timeout\.ms=3000.*half of it"):
        application(**TRANSACTIONS, transaction_interval=2, producer_extra_config=limit)
    with pytest.raises(ConfigurationError, match=r"open for 40 s .*transaction\.timeout\.ms=60000"):
        application(**TRANSACTIONS, transaction_interval=100, commit_interval=40)
    application(**TRANSACTIONS, transaction_interval=1.5, producer_extra_config=limit)
    application(**TRANSACTIONS, transaction_interval=100, commit_interval=1, producer_extra_config=limit)


@pytest.mark.parametrize("level", ["loud", 5.5, [1]])
def test_a_wrong_loglevel_gives_one_sentence(level: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        application(loglevel=level)
    assert str(caught.value).count("parameter 'loglevel'") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quix_sdk_token", "sdk-hunter2"),
        ("quix_config_builder", object()),
    ],
)
def test_parameters_that_are_not_supported_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is not supported: ") as caught:
        application(**{name: value})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["on_consumer_error", "on_processing_error", "on_producer_error", "on_message_processed"]
)
def test_callbacks_must_be_callable(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a function, got int"):
        application(**{name: 5})


def test_a_broker_address_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"broker_address is missing: .*STREAMRT_BROKER_ADDRESS"):
        Application(loglevel=None)


@pytest.mark.parametrize("address", [5, ["localhost:9092"], b"localhost:9092"])
def test_a_broker_address_of_another_type_is_named(address: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "elsewhere:9092")
    with pytest.raises(ConfigurationError, match="broker_address must be a string or a ConnectionConfig"):
        Application(address, loglevel=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state_dir", 5),
        ("consumer_extra_config", 5),
        ("producer_extra_config", [1]),
        ("spark_config", 5),
        ("rocksdb_options", {"write_buffer_size": 1}),
        ("state_snapshots", 5),
    ],
)
def test_settings_that_app_converts_itself_are_named_too(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        application(**{name: value})


def test_options_of_producers_must_be_able_to_travel() -> None:
    with pytest.raises(ConfigurationError, match="producer_extra_config: on_delivery is not supported"):
        application(producer_extra_config={"on_delivery": print})


def test_spark_settings_and_a_session_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="spark_config has no effect on a given spark_session"):
        application(spark_config={"a": 1}, spark_session=object())


@pytest.mark.parametrize("settings", [{"spark_config": {"a": 1}}, {"spark_session": object()}])
def test_processes_instead_of_spark_take_no_settings_of_spark(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(
        ConfigurationError, match=rf"spark_master='processes\[2\]' starts no Spark, so {name} has no effect"
    ):
        application(spark_master="processes[2]", processing_mode="resident", **settings)


@pytest.mark.rows("FE-110")
@pytest.mark.parametrize("master", ["processes", "processes[*]"])
def test_there_is_a_process_for_each_processor(master: str) -> None:
    assert count_processes(master) == len(os.sched_getaffinity(0))


def test_a_session_of_spark_connect_is_refused() -> None:
    from pyspark.sql.connect.session import SparkSession

    with pytest.raises(ConfigurationError, match=r"Spark Connect.*run the application where Spark's driver runs"):
        application(spark_session=object.__new__(SparkSession))


def test_exactly_once_reads_no_records_of_aborted_transactions() -> None:
    options = {"isolation.level": "read_uncommitted"}
    application(consumer_extra_config=options)
    with pytest.raises(ConfigurationError, match=r"read_uncommitted.* cannot be combined with .*exactly-once"):
        application(consumer_extra_config=options, processing_guarantee="exactly-once")


@pytest.mark.rows("PF-L15", "FE-111", "FE-124")
def test_options_of_stores_are_kept() -> None:
    options = RocksDBOptions(open_max_retries=1)
    assert definition_of(application(rocksdb_options=options)).rocksdb_options is options
    assert definition_of(application()).rocksdb_options is None


# -- Secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_representations_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    login = {
        "bootstrap_servers": "broker:9092",
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "user",
        "sasl_password": "hunter2",
    }
    connection = ConnectionConfig(**cast("Any", login))
    options = {"sasl.password": "hunter2"}
    app = Application(connection, loglevel=None, consumer_extra_config=options, producer_extra_config=options)
    shown = [repr(app), repr(app.config), repr(connection), str(connection), repr(definition_of(app).task_spec())]
    wrong: list[dict[str, Any]] = [{**login, "security_protocol": "none"}, {**login, "sasl_mechanism": ["hunter2"]}]
    for settings in wrong:
        with pytest.raises(ConfigurationError) as caught:
            ConnectionConfig(**settings)
        shown.append(str(caught.value))
    for setting in ("commit_interval", "auto_offset_reset", "auto_create_topics"):
        with pytest.raises(ConfigurationError) as caught:
            application(**{setting: "hunter2"})
        shown.append(str(caught.value))
    monkeypatch.setenv("STREAMRT_COMMIT_EVERY", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        application()
    shown.append(str(caught.value))
    assert [text for text in shown if "hunter2" in text] == []


def test_a_task_specification_holds_no_connection() -> None:
    connection = ConnectionConfig(
        bootstrap_servers="secret-broker:9092",
        security_protocol="sasl_ssl",
        sasl_mechanism="PLAIN",
        sasl_username="user",
        sasl_password=cast("Any", "hunter2"),
    )
    app = Application(connection, loglevel=None)
    app.dataframe(app.topic("in")).apply(lambda value: value)
    data = definition_of(app).task_spec().dumps()
    assert b"hunter2" not in data
    assert b"secret-broker" not in data


# -- Applications without a broker -----------------------------------------------------------------------------------


def test_an_application_is_defined_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the network was used")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    # librdkafka does not ask Python; its clients are seen by their threads, where the system shows them.
    threads = Path("/proc/self/task")
    before = set(threads.iterdir()) if threads.exists() else set()
    app = application()
    sdf = app.dataframe(app.topic("in"))
    sdf.to_topic(app.topic("out"))
    definition_of(app).task_spec().dumps()
    assert list(app.topology.sources) == ["in"]
    assert list(app.topic_manager.topics) == ["in", "out"]
    assert not threads.exists() or set(threads.iterdir()) <= before


def test_dataframes_need_a_topic_or_a_source() -> None:
    app = application()
    for topic in (None, "in", 5):
        with pytest.raises(ConfigurationError, match=r"dataframe\(\) needs a topic made by Application.topic\(\)"):
            app.dataframe(cast("Any", topic))
    for add in (lambda: app.dataframe(source=cast("Any", "in")), lambda: app.add_source(cast("Any", "in"))):
        with pytest.raises(ConfigurationError, match=r"add_source\(\) needs a source derived from BaseSource, got str"):
            add()


@pytest.mark.rows("PF-B2")
def test_a_source_brings_its_topic_unless_it_is_given_one() -> None:
    app = application()
    assert app.dataframe(source=CSVSource("a.csv", "a")).topics[0].name == "source__a"
    given = app.topic("given")
    assert app.add_source(CSVSource("b.csv", "b"), given) is given
    assert list(app.topic_manager.topics) == ["source__a", "given"]


def test_state_is_cleared_for_this_application_alone(tmp_path: Path) -> None:
    app = application(consumer_group="mine", state_dir=tmp_path)
    app.clear_state()
    for group in ("mine", "other"):
        StateDirectory.acquire(tmp_path, group, "cluster").release()
        (tmp_path / group / "0" / "in").mkdir(parents=True)
    app.clear_state()
    assert not (tmp_path / "mine" / "0").exists()
    assert (tmp_path / "other" / "0" / "in").exists()


@pytest.mark.parametrize("limits", [{"timeout": -1}, {"timeout": "5"}, {"count": -1}, {"count": True}, {"count": None}])
def test_run_refuses_wrong_limits_before_anything_starts(limits: dict[str, Any]) -> None:
    app = application()
    app.dataframe(app.topic("in"))
    with pytest.raises(ConfigurationError, match=rf"run\({next(iter(limits))}=...\) must be a non-negative number"):
        app.run(**limits)


def test_run_refuses_an_application_without_dataframes_and_frames_of_another() -> None:
    app, other = application(), application()
    with pytest.raises(InvalidOperationError, match="there is nothing to run"):
        app.run()
    with pytest.raises(InvalidOperationError, match="a dataframe of another application"):
        app.run(other.dataframe(other.topic("in")))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, None, 5])
def test_topic_names_that_kafka_refuses_are_refused_at_once(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid topic name"):
        application().topic(name)


# -- Logging ---------------------------------------------------------------------------------------------------------


def test_logging_is_configured_once(logger: logging.Logger) -> None:
    assert configure_logging("DEBUG")
    assert (logger.level, len(logger.handlers), logger.propagate) == (logging.DEBUG, 1, False)
    assert not configure_logging("ERROR")
    assert (logger.level, len(logger.handlers)) == (logging.DEBUG, 1)


def test_logging_is_left_alone_without_a_level(logger: logging.Logger) -> None:
    Application("unused:9092", loglevel=None)
    assert logger.handlers == []
    Application("unused:9092", loglevel=30)
    assert logger.level == logging.WARNING
