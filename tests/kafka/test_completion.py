"""Tokens and the offsets of a consumer group, on a real broker."""

import pytest

from streamrt import ConnectionConfig, Offsets
from streamrt.connectors import Source
from streamrt.errors import ApplicationStateError, StaleTokenError
from streamrt.kafka import Producer
from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.completion import Completion, KafkaOffsetView, checked_token
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_markers_at_the_end_of_a_partition_are_no_records(kafka: Kafka) -> None:
    group, place = unique("group"), TopicPartition(kafka.topic("in"), 0)
    app = kafka.app(group)
    app.dataframe(app.topic(place.topic))
    view = KafkaOffsetView(kafka.admin, ConnectionConfig(bootstrap_servers=kafka.address), group, 30)
    options = {"transactional.id": unique("writer")}
    with Producer(kafka.address, extra_config=options, transactional=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(place.topic, b"1")
        producer.commit_transaction()
        # The marker comes a moment after the commit.
        wait_until(lambda: view.stable_ends([place])[place] == 2)
        now = 0.0
        following = Completion(app.topology, {place: 2}, view, lambda: now)
        assert not following.advance()
        now = 9.0
        assert not following.advance(), "nothing is committed"
        kafka.admin.set_committed(group, {place: 1})
        assert not following.advance()
        now = 18.0
        assert following.advance()
        # While a transaction is open, it may have records.
        producer.begin_transaction()
        producer.produce(place.topic, b"2")
        producer.flush()
        assert view.bounds([place]) == {place: (0, 3)}
        assert view.stable_ends([place]) == {place: 2}
        following = Completion(app.topology, {place: 3}, view, lambda: now)
        assert not following.advance()
        now = 27.0
        assert not following.advance()
        producer.abort_transaction()
        wait_until(lambda: view.stable_ends([place])[place] == 4)
        # An aborted record is none.
        assert following.advance()
    assert view.partitions([place.topic, "missing"]) == [place]


def test_a_topic_that_was_created_again_is_noticed(kafka: Kafka) -> None:
    group, topic = unique("group"), kafka.topic("in")
    app = kafka.app(group)
    app.dataframe(app.topic(topic))
    view = KafkaOffsetView(kafka.admin, ConnectionConfig(bootstrap_servers=kafka.address), group, 30)
    token = Offsets({(topic, 0): 0}, view.topic_ids([topic]))
    assert checked_token(str(token), app.topology, view, "wait_for") == token
    kafka.admin.delete_topics([topic])
    wait_until(lambda: kafka.admin.topic_ids([topic])[topic] is None)
    with pytest.raises(StaleTokenError, match="deleted and not created again"):
        checked_token(token, app.topology, view, "wait_for")
    app.setup_topics()
    with pytest.raises(StaleTokenError, match="deleted and created again"):
        checked_token(token, app.topology, view, "wait_for")


def test_an_application_of_sources_is_complete_when_they_have_ended(kafka: Kafka) -> None:
    class Few(Source):
        def run(self) -> None:
            for number in range(3):
                self.produce(self.serialize(value=number).value)

    name = unique("few")
    app = kafka.app()
    topic = app.add_source(Few(name))
    with pytest.raises(ApplicationStateError, match="is stopped and cannot complete"):
        app.wait_for_completion()
    app.start(timeout=60)
    app.wait_for_completion(timeout=60, stop=True)
    assert kafka.end(topic.name) == 3
    source = app.stats().sources[name]
    assert (source.topic, source.alive, source.paused, source.ended, source.error) == (
        topic.name,
        False,
        False,
        True,
        "",
    )
    assert app.wait(300)
    # An application that is stopped before its sources end is not complete.
    stopped = kafka.app()
    stopped.add_source(Endless(unique("endless")))
    stopped.start(timeout=60)
    stopped.stop(wait=True, timeout=60)
    with pytest.raises(ApplicationStateError, match="is stopped and cannot complete"):
        stopped.wait_for_completion()


class Endless(Source):
    """Produces nothing until it is stopped."""

    def run(self) -> None:
        while self.running:
            self.sleep(0.05)
