"""Applications on Spark and a real broker, in this process."""

import json
import time
from pathlib import Path

import pytest

from streamrt import message_context
from streamrt.errors import (
    ConsumerError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    ProcessingError,
    ProducerError,
    TopicNotFoundError,
    UnpicklableOperatorError,
)
from streamrt.kafka import Producer
from streamrt.spark.sessions.spark_session import _STARTING, _make_environment, open_session
from tests.support import MASTER, ONE_MODE, Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


@pytest.mark.both_modes
@pytest.mark.rows("PF-A2", "PF-B12", "PF-M13")
def test_records_pass_from_topic_to_topic_with_key_timestamp_and_headers(kafka: Kafka) -> None:
    source, target = kafka.topic("in"), kafka.topic("out")
    big = "ü" * 400_000
    with Producer(kafka.address) as producer:
        producer.produce(source, b'{"n": 1}', key=b"a", timestamp=1_000, headers=[("h", b"1"), ("h", None), ("e", b"")])
        producer.produce(source, b'{"n": 2}', key=None, timestamp=2_000)
        producer.produce(source, b'{"n": 3}', key=b"", timestamp=3_000)
        producer.produce(source, None, key=b"tombstone", timestamp=4_000)
        producer.produce(
            source, json.dumps({"n": big}, ensure_ascii=False).encode(), key="ключ".encode(), timestamp=5_000
        )
    app = kafka.app()
    sdf = app.dataframe(app.topic(source))
    sdf = sdf.apply(lambda value: value if value is None else {**value, "offset": message_context().offset})
    sdf.to_topic(app.topic(target))
    app.run(count=5, timeout=300)
    first, second, third, tombstone, large = kafka.receive(target, 5)
    assert first == (b"a", b'{"n":1,"offset":0}', 1_000, [("h", b"1"), ("h", None), ("e", b"")], 0)
    assert second == (None, b'{"n":2,"offset":1}', 2_000, None, 0)
    assert third.key == b""
    assert tombstone[:3] == (b"tombstone", b"null", 4_000)
    assert large.key == "ключ".encode()
    assert json.loads(large.value or b"") == {"n": big, "offset": 4}


@pytest.mark.only_mode("micro-batch", reason="resident tasks are no queries")
def test_generated_code_waits_for_the_end_of_the_first_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    session = open_session(MASTER).session.newSession()
    # As a default of the cluster may have it.
    for name, value in zip(names, ("false", "CODEGEN_ONLY"), strict=True):
        session.conf.set(name, value)
    environment = _make_environment(session, {}, {}, tmp_path, _STARTING)
    assert [session.conf.get(name) for name in names] == ["false", "NO_CODEGEN"]
    of_query = session.newSession()
    environment.first_batch_done(of_query)
    for each in (session, of_query):
        assert [each.conf.get(name) for name in names] == ["false", "CODEGEN_ONLY"]
    source, target = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, [1])
    app = kafka.app()
    app.dataframe(app.topic(source)).to_topic(app.topic(target))
    app.run(count=1, timeout=300)
    assert [open_session(MASTER).session.conf.get(name) for name in names] == ["true", "FALLBACK"]


@pytest.mark.only_mode("micro-batch", reason="resident tasks do not wait for Spark")
def test_a_wait_for_records_asks_as_often_as_configured(tmp_path: Path) -> None:
    name = "spark.sql.streaming.pollingDelay"
    session = open_session(MASTER).session
    assert session.conf.get(name) == "25ms"
    chosen = _make_environment(session.newSession(), {name: "5ms"}, {}, tmp_path, {})
    assert chosen.session.conf.get(name) == "5ms"


def test_several_dataframes_and_topics_run_in_one_application(kafka: Kafka) -> None:
    left, right, target = kafka.topic("left", 2), kafka.topic("right", 3), kafka.topic("out")
    kafka.produce(left, [{"n": n} for n in range(6)])
    kafka.produce(right, [{"n": n} for n in range(9)])
    app = kafka.app()
    output = app.topic(target)
    app.dataframe(app.topic(left)).apply(lambda value: ["left", value["n"]]).to_topic(output)
    app.dataframe(app.topic(right)).apply(lambda value: ["right", value["n"]]).to_topic(output)
    with running(app):
        values = kafka.values(target, 15)
    assert sorted(values) == [["left", n] for n in range(6)] + [["right", n] for n in range(9)]


@pytest.mark.both_modes
def test_the_group_is_told_how_far_processing_is_and_a_restart_goes_on_there(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")

    def process() -> list[int]:
        app = kafka.app(group)
        sdf = app.dataframe(app.topic(source))
        sdf.to_topic(app.topic(target))
        return [output["n"] for output in app.run(timeout=0.5)]

    kafka.produce(source, [{"n": n} for n in range(10)])
    assert process() == list(range(10))
    assert kafka.committed(group, source) == 10
    kafka.produce(source, [{"n": n} for n in range(10, 15)])
    assert process() == list(range(10, 15))
    assert kafka.committed(group, source) == 15
    assert [value["n"] for value in kafka.values(target, 15)] == list(range(15))


def test_the_lag_of_a_topic_written_by_transactions_goes_to_zero(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    options = {"transactional.id": unique("tx")}
    with Producer(kafka.address, extra_config=options, transactional=True) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.produce(source, b'{"n": %d}' % number)
            producer.flush()
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    seen: list[int] = []
    app = kafka.app(group, on_message_processed=lambda topic, partition, offset: seen.append(offset))
    app.dataframe(app.topic(source))
    # A commit is answered before its marker is written.
    wait_until(lambda: kafka.end(source) == 6, what="three records and three markers")
    end = kafka.end(source)
    with running(app):
        wait_until(lambda: kafka.committed(group, source) == end, what="lag 0")
    assert seen == [0, 4], "the record of the aborted transaction is not seen"


def test_latest_begins_at_the_end_and_keeps_what_comes_while_the_application_is_down(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [{"n": 0}])

    def process() -> list[int]:
        app = kafka.app(group, auto_offset_reset="latest")
        app.dataframe(app.topic(source))
        return [output["n"] for output in app.run(timeout=0.5)]

    assert process() == []
    kafka.produce(source, [{"n": 1}])
    assert process() == [1]


def test_error_as_offset_reset_refuses_a_group_without_offsets(kafka: Kafka) -> None:
    app = kafka.app(auto_offset_reset="error")
    app.dataframe(app.topic(kafka.topic("in")))
    with pytest.raises(OffsetOutOfRangeError, match="has no committed offset"):
        app.run(timeout=1)


@pytest.mark.both_modes
def test_count_stops_after_exactly_so_many_outputs_and_commits_only_their_inputs(kafka: Kafka) -> None:
    source, group = kafka.topic("in", 2), unique("group")
    kafka.produce(source, [{"n": n} for n in range(50)], partition=0)
    kafka.produce(source, [{"n": n} for n in range(50, 100)], partition=1)
    app = kafka.app(group)
    app.dataframe(app.topic(source, key_deserializer="str")).filter(lambda value: value["n"] % 2 == 0)
    first = app.run(count=7, timeout=300, metadata=True)
    assert len(first) == 7
    assert {"_key", "_timestamp", "_headers", "_topic", "_partition", "_offset", "n"} == set(first[0])
    assert first[0]["_key"] == "key"
    rest = kafka.app(group)
    rest.dataframe(rest.topic(source)).filter(lambda value: value["n"] % 2 == 0)
    second = rest.run(count=43, timeout=300)
    assert sorted(row["n"] for row in [*first, *second]) == list(range(0, 100, 2))


@ONE_MODE
def test_collect_off_counts_without_returning(kafka: Kafka) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [{"n": n} for n in range(5)])
    app = kafka.app()
    app.dataframe(app.topic(source))
    assert app.run(count=3, timeout=300, collect=False) == []
    assert app.progress().records == 3


@ONE_MODE
def test_printed_lines_reach_standard_output_in_order(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    source = kafka.topic("in")
    kafka.produce(source, ["a", "b"])
    app = kafka.app()
    sdf = app.dataframe(app.topic(source))
    sdf.update(lambda value: print("user saw", value))
    sdf.print(pretty=False)
    app.run(count=2, timeout=300)
    assert capsys.readouterr().out.splitlines() == ["user saw a", "{'value': 'a'}", "user saw b", "{'value': 'b'}"]


def test_on_message_processed_runs_here_and_may_stop_the_application(kafka: Kafka) -> None:
    source, seen = kafka.topic("in"), []

    def processed(topic: str, partition: int, offset: int) -> None:
        seen.append((topic, partition, offset))
        app.stop()

    kafka.produce(source, [1, 2, 3])
    app = kafka.app(on_message_processed=processed)
    app.dataframe(app.topic(source))
    app.run()
    assert seen == [(source, 0, 0), (source, 0, 1), (source, 0, 2)]


@ONE_MODE
def test_an_on_message_processed_that_raises_ends_the_application(kafka: Kafka) -> None:
    source = kafka.topic("in")

    def broken(topic: str, partition: int, offset: int) -> None:
        raise KeyError("no such counter")

    kafka.produce(source, [1])
    app = kafka.app(on_message_processed=broken)
    app.dataframe(app.topic(source))
    with pytest.raises(ProcessingError, match=rf"on_message_processed failed for {source}\[0\] at offset 0: KeyError"):
        app.run()


@pytest.mark.only_mode("micro-batch", reason="resident tasks read no batches")
def test_small_micro_batches_grow_again_when_functions_are_quick(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, list(range(3_000)))

    def slow_at_first(value: int) -> int:
        if value < 20:
            time.sleep(0.6)
        return value

    # What counts as quick depends on the time slice; also on a busy machine, a batch takes less than an eighth of 8 seconds.
    app = kafka.app(group, commit_interval=8.0)
    app.dataframe(app.topic(source)).apply(slow_at_first)
    assert len(app.run(timeout=1.0)) == 3_000
    assert app.progress().records == 3_000
    assert app.progress().batches < 50


# -- Errors --------------------------------------------------------------------------------------------------------


@pytest.mark.both_modes
def test_an_undecodable_record_stops_the_application_at_its_offset_and_nothing_is_lost(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, [b"1", b"2", b"{broken", b"4"], raw=True)

    def process(**settings: object) -> None:
        app = kafka.app(group, **settings)
        app.dataframe(app.topic(source)).to_topic(app.topic(target))
        app.run(timeout=0.5)

    with pytest.raises(ConsumerError, match=rf"value of {source}\[0\] at offset 2 cannot be deserialized"):
        process()
    assert kafka.committed(group, source) == 2
    with pytest.raises(ConsumerError):
        process()
    process(on_consumer_error=lambda error, record, logger: record.offset() == 2)
    assert kafka.committed(group, source) == 4
    assert kafka.values(target, 3) == [1, 2, 4]
    assert kafka.end(target) == 3


def fail_on_three(value: int) -> int:
    return value // (value - 3)


def test_a_failing_operator_is_named_with_its_record(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [1, 2, 3])
    app = kafka.app(group)
    app.dataframe(app.topic(source)).apply(fail_on_three)
    with pytest.raises(ProcessingError) as caught:
        app.run(timeout=1)
    message = str(caught.value)
    assert f"{source}[0] at offset 2" in message
    assert "apply-1 (fail_on_three) defined at test_run.py" in message
    assert "ZeroDivisionError" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert kafka.committed(group, source) == 2


@ONE_MODE
def test_on_processing_error_may_skip_records(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, [1, 2, 3, 4])
    app = kafka.app(group, on_processing_error=lambda error, record, logger: record.value == 3)
    app.dataframe(app.topic(source)).apply(fail_on_three)
    assert [row["_value"] for row in app.run(timeout=0.5)] == [-1, -2, 4]
    assert kafka.committed(group, source) == 4


@ONE_MODE
def test_an_output_that_is_too_large_stops_or_is_skipped(kafka: Kafka) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    kafka.produce(source, [1, 2_000_000, 3])

    def process(**settings: object) -> None:
        app = kafka.app(group, **settings)
        app.dataframe(app.topic(source)).apply(lambda size: "x" * size).to_topic(app.topic(target))
        app.run(timeout=0.5)

    with pytest.raises(ProducerError, match=r"2,000,00. bytes .* was refused"):
        process()
    assert kafka.committed(group, source) == 1
    process(on_producer_error=lambda error, record, logger: len(record.value) == 2_000_000)
    assert kafka.committed(group, source) == 3
    assert kafka.values(target, 2) == ["x", "xxx"]


@ONE_MODE
def test_a_record_that_only_the_broker_refuses_stops_the_application(kafka: Kafka) -> None:
    source = kafka.topic("in")
    target = kafka.topic("out", config={"max.message.bytes": "1000"})
    group = unique("group")
    kafka.produce(source, [5_000])
    app = kafka.app(group)
    app.dataframe(app.topic(source)).apply(lambda size: "x" * size).to_topic(app.topic(target))
    with pytest.raises(ProducerError, match="was not delivered"):
        app.run(timeout=1)
    assert kafka.committed(group, source) == 0


@ONE_MODE
def test_a_callback_that_raises_is_told_as_such(kafka: Kafka) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [3])

    def broken(error: Exception, record: object, logger: object) -> bool:
        raise KeyError("no such policy")

    app = kafka.app(on_processing_error=broken)
    app.dataframe(app.topic(source)).apply(fail_on_three)
    with pytest.raises(ProcessingError, match="the callback on_processing_error itself failed"):
        app.run(timeout=1)


@ONE_MODE
def test_an_operator_that_cannot_be_pickled_is_refused_before_anything_starts(kafka: Kafka) -> None:
    app = kafka.app()
    sdf = app.dataframe(app.topic(unique("never-created")))
    with Producer(kafka.address) as producer:
        producer.poll(0)
        sdf.apply(lambda value: producer.flush() or value)
        with pytest.raises(
            UnpicklableOperatorError, match=r"operator apply-1 .* defined at test_run.py:\d+ cannot be sent"
        ):
            app.run(timeout=1)


@ONE_MODE
def test_a_missing_topic_is_told_when_creation_is_off(kafka: Kafka) -> None:
    name = unique("missing")
    app = kafka.app(auto_create_topics=False)
    app.dataframe(app.topic(name))
    with pytest.raises(TopicNotFoundError, match=name):
        app.run(timeout=1)


@ONE_MODE
def test_a_negative_timestamp_is_a_processing_error(kafka: Kafka) -> None:
    source = kafka.topic("in")
    kafka.produce(source, [1])
    app = kafka.app()
    app.dataframe(app.topic(source)).set_timestamp(lambda value, key, timestamp, headers: -1)
    with pytest.raises(ProcessingError, match="cannot be negative"):
        app.run(timeout=1)


@ONE_MODE
def test_an_application_runs_once_at_a_time(kafka: Kafka) -> None:
    app = kafka.app()
    app.dataframe(app.topic(kafka.topic("in")))
    with running(app):
        wait_until(lambda: app.progress().positions, what="the start")
        with pytest.raises(InvalidOperationError, match="already running"):
            app.run()


def test_slow_functions_neither_delay_the_commit_nor_the_stop(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    kafka.produce(source, list(range(5_000)))

    def slow(value: int) -> int:
        time.sleep(0.05)
        return value

    app = kafka.app(group, commit_interval=0.5)
    app.dataframe(app.topic(source)).apply(slow)
    with running(app):
        wait_until(lambda: (kafka.committed(group, source) or 0) > 0, what="a commit in the middle of the batch")
    done = kafka.committed(group, source)
    assert done is not None
    assert 0 < done < 5_000
    assert app.progress().records == done
