"""Slow functions on many partitions: all of them get on, on Spark and a real broker."""

import contextlib
import json
import logging
import time
from collections import Counter
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ProcessingError, ProcessingTimeoutError
from streamrt.runs import processed_purge
from tests.support import ONE_MODE, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 16
"""Eight for each slot: with the function below, a record of each takes longer than a time slice."""
BACKLOG = 20


def slow(value: object) -> object:
    """Take longer than a sixteenth of a slice, as do all records of this test."""
    time.sleep(0.1)
    return value


@pytest.mark.both_modes
def test_fault_8_all_partitions_get_on_though_their_records_do_not_fit_into_a_slice(kafka: Kafka) -> None:
    source, group = kafka.topic("in", PARTITIONS), unique("group")
    for partition in range(PARTITIONS):
        kafka.produce(source, [{"n": n} for n in range(BACKLOG)], partition=partition)
    done: Counter[int] = Counter()
    app = kafka.app(group, on_message_processed=lambda topic, partition, offset: done.update([partition]))
    app.dataframe(app.topic(source)).apply(slow)
    with running(app):
        wait_until(
            lambda: len(done) == PARTITIONS and min(done.values()) >= 2, what="progress of all", found=lambda: done
        )
        # Long before the end: those that began have not been finished first.
        counted = dict(done)
    assert max(counted.values()) < BACKLOG
    # The stop was heard within a slice, and what was processed is committed.
    for partition in range(PARTITIONS):
        assert kafka.committed(group, source, partition) == done[partition]


def test_fault_9_a_record_of_an_idle_partition_does_not_wait_for_all_polled_records_of_a_busy_one(kafka: Kafka) -> None:
    source, target = kafka.topic("in", 4), kafka.topic("out")
    # The first two partitions are of one slot.
    kafka.produce(source, [{"n": n} for n in range(300)], partition=0, key=b"busy")
    app = kafka.app()
    app.dataframe(app.topic(source)).apply(slow).to_topic(app.topic(target))
    with running(app):
        kafka.receive(target, 1)
        kafka.produce(source, [{"n": 0}], partition=1, key=b"idle")
        before = kafka.receive(target, 300, until=lambda record: record.key == b"idle")
    assert before[-1].key == b"idle"


@pytest.mark.both_modes
def test_fault_11_windows_close_in_portions_and_the_next_run_goes_on_without_a_record(kafka: Kafka) -> None:
    source, target, group, keys = kafka.topic("in"), kafka.topic("out"), unique("group"), 60
    for key in range(keys):
        kafka.produce(source, [key], key=b"%d" % key, timestamp=1_000)
    kafka.produce(source, [0], key=b"late", timestamp=100_000)

    def app() -> Application:
        app = kafka.app(group, processing_guarantee="exactly-once")
        windows = app.dataframe(app.topic(source)).tumbling_window(10_000).count()
        # A window takes a fifth of a time slice of micro-batches, and half of one of resident tasks.
        windows.final(closing_strategy="partition").apply(slow).to_topic(app.topic(target))
        return app

    with running(app()):
        # The record is committed with the first portion.
        kafka.receive(target, 1)
        assert kafka.committed(group, source) == keys + 1
    # Each of the others takes a tenth of a second, so that the stop came before their end.
    assert kafka.end(target) < keys
    with running(app()):
        found = kafka.receive_exactly(target, keys)
    assert sorted(int(record.key or b"") for record in found) == [*range(keys)]


def slow_down(value: dict[str, int]) -> dict[str, int]:
    """Be fast at first, so that slices of a micro-batch have many records, and then slow, so that they have not all."""
    time.sleep(0.004 if value["n"] < 150 else 0.03 if value["n"] % 3 else 0.08)
    return value


@pytest.mark.both_modes
def test_records_behind_a_group_by_are_there_until_all_slices_of_their_micro_batch_have_read_them(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processed_purge, "_PURGE_EVERY_S", 0.0)
    source, target = kafka.topic("in", 2), kafka.topic("out")
    for partition in range(2):
        kafka.produce(source, [{"n": n} for n in range(partition, 300, 2)], partition=partition)
    app = kafka.app(commit_interval=0.1)
    app.dataframe(app.topic(source)).group_by("n").apply(slow_down).to_topic(app.topic(target, key_serializer="json"))
    with caplog.at_level(logging.WARNING, logger="streamrt"):
        app.run(until="end", collect=False)
    assert not [record.getMessage() for record in caplog.records if "gave the query up" in record.getMessage()]
    found = kafka.receive_exactly(target, 300)
    assert sorted(json.loads(record.value or b"")["n"] for record in found) == [*range(300)]


def hang(value: dict[str, str]) -> dict[str, str]:
    """Take for ever over some records: one can be interrupted, the other one catches everything."""
    if value["how"] == "waits":
        time.sleep(600)
    while value["how"] == "stubborn":
        with contextlib.suppress(Exception):
            time.sleep(600)
    return value


def skip(error: Exception, record: Any, logger: logging.Logger) -> bool:
    return isinstance(error, ProcessingTimeoutError)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_records_whose_function_does_not_return_fail_and_callbacks_decide(kafka: Kafka, guarantee: Any) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, [{"how": how} for how in ("a", "waits", "b", "stubborn", "c")])
    app = kafka.app(group, processing_guarantee=guarantee, processing_timeout=0.7, on_processing_error=skip)
    app.dataframe(app.topic(source)).apply(hang).to_topic(app.topic(target))
    with running(app):
        wait_until(lambda: kafka.committed(group, source) == 5, what="all records are committed")
    # At least once, what was not committed when the process of the stubborn one ended is delivered again.
    received = kafka.receive(target, 8, until=lambda record: b"c" in (record.value or b""))
    found = [json.loads(record.value or b"")["how"] for record in received]
    assert sorted({*found}) == ["a", "b", "c"]
    if guarantee == "exactly-once":
        assert found == ["a", "b", "c"]


@ONE_MODE
def test_without_a_callback_such_a_record_ends_the_application(kafka: Kafka) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [{"how": "a"}, {"how": "stubborn"}])
    app = kafka.app(processing_timeout=0.7)
    app.dataframe(app.topic(source)).apply(hang)
    with pytest.raises(ProcessingError) as caught:
        app.run(timeout=120)
    message = str(caught.value)
    assert f"failed on {source}[0] at offset 1" in message
    assert "apply-1 (hang)" in message
    assert "did not return within 0.7 s (processing_timeout)" in message
    assert "in hang, and could not be interrupted, so that its process was ended" in message
