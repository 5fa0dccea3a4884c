"""Committed offsets, as `TopicAdmin` reads them: transactions under way, many askers, refusals, and brokers that go away."""

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamrt.kafka import ConnectionConfig, Consumer, KafkaError, KafkaRequestError, Producer, TopicAdmin
from streamrt.kafka.client import partition_offsets
from streamrt.kafka.cluster.committed import CommittedOffset, GroupOffsets
from streamrt.kafka.reading.reader import bounds_of
from streamrt.models import TopicPartition
from streamrt.testing.kafka import EmbeddedKafka
from tests.kafka.brokers import group_state, pending_commit
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOON_S = 50.0
"""Sooner than clients are closed anyway because no one uses them."""
NOBODY = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "nobody",
    "sasl.password": "canary",
}
"""A user of `strict_kafka` who has no rights."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
ASKER = """
import faulthandler, os, sys
from streamrt.kafka import KafkaRequestError, TopicAdmin
from streamrt.models import TopicPartition

faulthandler.enable()
admin = TopicAdmin(sys.argv[1])
parent = os.getppid()
while os.getppid() == parent:
    try:
        for group in ("a", "b", "c"):
            admin.committed_stable(group, [TopicPartition("t", 0)], timeout=1)
        print("answered", flush=True)
    except KafkaRequestError as error:
        if not error.retriable:
            raise
"""


@pytest.fixture
def place(kafka: Kafka) -> TopicPartition:
    return TopicPartition(kafka.topic(partitions=2), 0)


def commit(address: str, group: str, place: TopicPartition, offset: int, metadata: str = "") -> None:
    with Consumer(address, group, "earliest", auto_commit_enable=False) as consumer:
        consumer.commit(offsets=partition_offsets({place: offset}, metadata), asynchronous=False)


def clients() -> set[Path]:
    """Return the clients of librdkafka that this process has: each has one thread of this name."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has ended meanwhile
            if path.read_text().strip() == "rdk:main":
                found.add(path)
    return found


def test_a_pending_commit_holds_stable_offsets_back(kafka: Kafka, place: TopicPartition) -> None:
    group, other = unique("group"), TopicPartition(place.topic, 1)
    commit(kafka.address, group, place, 3, "old")
    with pending_commit(kafka.address, group, {place: 4}, "new") as producer:
        for timeout in (0.5, 1.5):
            started = time.monotonic()
            with pytest.raises(
                KafkaRequestError, match=f"the offsets of group {group} could not be read: .*unstable"
            ) as caught:
                kafka.admin.committed_stable(group, [place, other], timeout=timeout)
            assert timeout / 2 < time.monotonic() - started < timeout + 20
            assert (caught.value.code, caught.value.retriable) == (KafkaError.UNSTABLE_OFFSET_COMMIT, True)
        assert kafka.admin.committed(group, [place, other], require_stable=False, timeout=5) == {place: 3, other: None}
        # What no transaction is about to change is stable.
        assert kafka.admin.committed_stable(group, [other], timeout=5) == {other: CommittedOffset(None)}
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kafka.admin.committed_stable, group, [place], 30)
            # No one waits for the one that waits: neither the one that asks, nor the one that closes.
            assert kafka.admin.committed_stable(group, [other], timeout=5) == {other: CommittedOffset(None)}
            kafka.admin.close()
            assert not waiting.done()
            producer.commit_transaction(30)
            assert waiting.result(300) == {place: CommittedOffset(4, "new")}


def test_what_nobody_committed_is_none(kafka: Kafka, place: TopicPartition) -> None:
    group = unique("group")
    absent, beyond = TopicPartition(unique("absent"), 0), TopicPartition(place.topic, 77)
    assert kafka.admin.committed_stable(group, [place, absent, beyond]) == dict.fromkeys(
        [place, absent, beyond], CommittedOffset(None)
    )
    assert kafka.admin.committed(group, [place], require_stable=False) == {place: None}
    # The client that asks is not a member: the group does not even exist.
    assert group_state(kafka.address, group) is None


def test_offsets_of_a_deleted_topic_are_gone(kafka: Kafka, place: TopicPartition) -> None:
    group = unique("group")
    commit(kafka.address, group, place, 3)
    assert kafka.admin.committed(group, [place]) == {place: 3}
    kafka.admin.delete_topics([place.topic])
    wait_until(lambda: kafka.admin.committed(group, [place]) == {place: None})


def test_fault_5_a_partition_that_was_added_is_found_by_a_client_that_knows_the_topic(kafka: Kafka) -> None:
    topic = kafka.topic("in", 1)
    first, second = (TopicPartition(topic, number) for number in range(2))
    assert kafka.admin.offset_bounds([first]) == {first: (0, 0)}
    with pytest.raises(KafkaRequestError) as caught:
        kafka.admin.offset_bounds([first, second])
    assert not caught.value.retriable, "there is none"
    grower = AdminClient({"bootstrap.servers": kafka.address})
    grower.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
    kafka.produce(topic, [1, 2], partition=1)
    assert kafka.admin.offset_bounds([first, second]) == {first: (0, 0), second: (0, 2)}


def test_many_threads_ask_at_once(kafka: Kafka, place: TopicPartition) -> None:
    groups = [unique("group") for _ in range(3)]
    for number, group in enumerate(groups):
        commit(kafka.address, group, place, number + 5, f"note {number}")
    begin = threading.Barrier(6)
    gc.collect()
    before = clients()

    def ask(thread: int) -> None:
        begin.wait(300)
        for turn in range(10):
            number = (thread + turn) % 3
            found = kafka.admin.committed_stable(groups[number], [place])
            assert found == {place: CommittedOffset(number + 5, f"note {number}")}

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
    wait_until(lambda: 1 <= len(clients() - before) <= 4, SOON_S)


def test_clients_go_with_their_owner(kafka: Kafka, place: TopicPartition) -> None:
    gc.collect()
    before = clients()
    admin = TopicAdmin(kafka.address)
    admin.committed("group", [place])
    admin.cluster_id()
    assert clients() - before
    admin.close()
    gc.collect()
    wait_until(lambda: not clients() - before, SOON_S)
    assert admin.committed("group", [place]) == {place: None}
    admin.cluster_id()
    del admin
    gc.collect()
    wait_until(lambda: not clients() - before, SOON_S)


def test_a_question_about_bounds_leaves_no_client(kafka: Kafka, place: TopicPartition) -> None:
    gc.collect()
    before = clients()
    gc.disable()
    try:
        assert bounds_of(ConnectionConfig(bootstrap_servers=kafka.address), place) == (0, 0)
        wait_until(lambda: not clients() - before, SOON_S)
    finally:
        gc.enable()


def test_clients_that_nobody_uses_are_closed(kafka: Kafka, place: TopicPartition) -> None:
    gc.collect()
    before = clients()
    groups = GroupOffsets({"bootstrap.servers": kafka.address})
    began = time.monotonic()
    assert groups.read("group", [place], True, began + 30) == {place: CommittedOffset(None)}
    groups.close_unused(began)
    assert len(clients() - before) == 1
    groups.close_unused(time.monotonic())
    wait_until(lambda: not clients() - before, SOON_S)


def test_refused_requests(strict_kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture) -> None:
    place = TopicPartition("t", 0)
    nobody = TopicAdmin(strict_kafka.address("SASL_PLAINTEXT"), extra_config=NOBODY)
    for stable in (True, False, True):
        started = time.monotonic()
        with pytest.raises(KafkaRequestError, match="Group authorization failed") as caught:
            nobody.committed("group", [place], stable, timeout=120)
        assert (caught.value.code, caught.value.retriable) == (KafkaError.GROUP_AUTHORIZATION_FAILED, False)
        assert time.monotonic() - started < 60
    options = {**NOBODY, "sasl.password": "another canary"}
    with caplog.at_level(logging.DEBUG, "streamrt.kafka"), pytest.raises(KafkaRequestError) as caught:
        TopicAdmin(strict_kafka.address("SASL_PLAINTEXT"), extra_config=options).committed(
            "group", [place], timeout=1.5
        )
    assert caught.value.retriable
    assert "canary" not in caplog.text + str(caught.value)
    assert "Authentication failed" in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 3


def test_asking_while_a_broker_restarts(
    mortal_broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin = TopicAdmin(mortal_broker.bootstrap_servers)
    admin.committed("a", [TopicPartition("t", 0)])
    admin.committed("b", [TopicPartition("t", 0)])
    # In a process of its own: an admin client of librdkafka 2.16 that asks meanwhile ends the whole process.
    answers, errors = tmp_path / "answers", tmp_path / "errors"
    with (
        answers.open("w") as output,
        errors.open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", ASKER, mortal_broker.bootstrap_servers],
            stdout=output,
            stderr=log,
            env=ENVIRONMENT,
        ) as asker,
    ):

        def answered() -> int:
            assert asker.poll() is None, f"the asker ended by {asker.returncode}: {errors.read_text()}"
            return len(answers.read_text().splitlines())

        try:
            wait_until(lambda: answered() > 10)
            mortal_broker.kill()
            mortal_broker.start()
            before = answered()
            wait_until(lambda: answered() > before + 10)
        finally:
            asker.kill()
    # What unused clients have met meanwhile is not news: neither when they answer again, nor when they are closed.
    caplog.clear()
    admin.committed("a", [TopicPartition("t", 0)])
    admin.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_no_answer_is_wrong_when_a_broker_is_killed(mortal_broker: EmbeddedKafka, tmp_path: Path) -> None:
    kafka, group = Kafka(mortal_broker.bootstrap_servers, tmp_path), unique("group")
    topic = kafka.topic(partitions=3)
    places = [TopicPartition(topic, number) for number in range(3)]
    with Producer(kafka.address) as producer:
        for place in places * 5:
            producer.produce(topic, b"x", partition=place.partition)
    for place in places:
        commit(kafka.address, group, place, 4)
    questions: list[tuple[Callable[[TopicAdmin], object], object]] = [
        (lambda admin: admin.offset_bounds(places, 1), dict.fromkeys(places, (0, 5))),
        (lambda admin: admin.bounds(places[0], 1), (0, 5)),
        (lambda admin: admin.committed(group, places, False, 1), dict.fromkeys(places, 4)),
        (lambda admin: admin.committed_stable(group, places, 1), dict.fromkeys(places, CommittedOffset(4))),
    ]
    answers = [0] * len(questions)
    wrong: list[object] = []
    over = threading.Event()

    def ask(number: int) -> None:
        question, right = questions[number]
        with closing(TopicAdmin(kafka.address)) as admin:
            while not over.is_set():
                try:
                    answer = question(admin)
                except KafkaRequestError as error:
                    if error.retriable:
                        continue
                    answer = error
                if answer != right:
                    wrong.append(answer)
                answers[number] += 1

    def wait_for_answers() -> None:
        before = answers.copy()
        wait_until(lambda: all(now > then for now, then in zip(answers, before, strict=True)))

    with ThreadPoolExecutor(len(questions)) as pool:
        asking = [pool.submit(ask, number) for number in range(len(questions))]
        try:
            for _ in range(2):
                wait_for_answers()
                mortal_broker.kill()
                mortal_broker.start()
            wait_for_answers()
        finally:
            over.set()
        for thread in asking:
            thread.result()
    assert not wrong
