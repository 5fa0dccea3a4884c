"""Common parts of the Kafka clients: how loud they are, and how their errors look."""

import logging
import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamrt.kafka import KafkaRequestError
from streamrt.kafka.client import (
    ClientLogger,
    is_retriable,
    log_error_to,
    partition_offsets,
    partitions_of,
    request_error,
)
from streamrt.models import TopicPartition

LOGGER = logging.getLogger("streamrt.kafka.test")
PATTERN = "%s [%s] %s"


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


@pytest.mark.parametrize(
    ("level", "facility", "logged_at"),
    [
        (logging.ERROR, "FAIL", "DEBUG"),
        (logging.ERROR, "ERROR", "DEBUG"),
        (logging.WARNING, "REQTMOUT", "DEBUG"),
        (logging.WARNING, "MAXPOLL", "WARNING"),
        (logging.CRITICAL, "FATAL", "CRITICAL"),
        (logging.DEBUG, "FAIL", "DEBUG"),
        (logging.INFO, "GROUP", "INFO"),
    ],
)
def test_failed_connections_are_no_errors(
    caplog: pytest.LogCaptureFixture, level: int, facility: str, logged_at: str
) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER.name):
        ClientLogger(LOGGER).log(level, PATTERN, facility, "rdkafka#1", "text")
    assert levels(caplog) == [logged_at]
    assert caplog.messages == [f"{facility} [rdkafka#1] text"]


def test_a_warning_that_repeats_gets_quiet(caplog: pytest.LogCaptureFixture) -> None:
    logger = ClientLogger(LOGGER)
    with caplog.at_level(logging.DEBUG, LOGGER.name):
        for text in ("one", "one", "two"):
            logger.log(logging.WARNING, PATTERN, "MAXPOLL", "rdkafka#1", text)
    assert levels(caplog) == ["WARNING", "DEBUG", "WARNING"]


def test_errors_are_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    on_error = log_error_to(LOGGER)
    with caplog.at_level(logging.DEBUG, LOGGER.name):
        for code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            on_error(KafkaError(code, "because"))
    assert levels(caplog) == ["WARNING", "DEBUG", "ERROR"]


def test_a_broker_that_is_not_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for codes in (
        (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN),
        (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT),
    ):
        on_error = log_error_to(LOGGER)
        with caplog.at_level(logging.DEBUG, LOGGER.name):
            for code in codes:
                on_error(KafkaError(code, "0/2 brokers are down"))
    assert levels(caplog) == ["WARNING", "DEBUG"] * 2
    assert caplog.messages[2] == "Kafka client: no broker can be reached; it keeps trying"


def test_errors_tell_what_failed_and_whether_to_try_again() -> None:
    error = request_error("reading", KafkaException(KafkaError(KafkaError.NOT_COORDINATOR, "moved")))
    assert str(error) == "reading: moved (NOT_COORDINATOR)"
    assert (error.code, error.retriable) == (KafkaError.NOT_COORDINATOR, True)
    assert not is_retriable(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, KafkaRequestError)
    assert (str(copy), copy.code, copy.retriable) == (str(error), error.code, True)


def test_partitions_and_back() -> None:
    offsets = {TopicPartition("a", 0): 1, TopicPartition("b", 2): 3}
    entries = partition_offsets(offsets)
    assert [(entry.topic, entry.partition, entry.offset) for entry in entries] == [("a", 0, 1), ("b", 2, 3)]
    assert partitions_of(entries) == offsets.keys()
