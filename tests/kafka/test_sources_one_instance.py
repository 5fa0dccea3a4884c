"""Sources of which one instance runs: others take over from processes that end, are killed or frozen."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from streamrt.connectors import StatefulSource
from streamrt.errors import ConfigurationError
from tests.kafka.sources import Counter, Deaf, Make, Numbers, Three, committed, failure, managers, start, wait_for
from tests.processes import freeze, process_tree, thaw
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def make(kafka: Kafka) -> Iterator[Make]:
    """A function that makes a manager of sources; they are stopped at the end."""
    with managers(kafka) as make:
        yield make


class TestOneInstance:
    def test_one_of_two_runs_and_the_other_one_takes_over(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        first, second = (make((Counter("counter"), topic), group=group) for _ in range(2))
        start(kafka, first)
        wait_for(first, lambda: kafka.end(topic) > 20)
        second.start()
        # It joins, and takes nothing from the first one.
        wait_until(lambda: members(kafka, f"{group}--source-counter") == 2, what="the second instance")
        end = kafka.end(topic)
        wait_for(first, lambda: kafka.end(topic) > end + 40)
        first.stop()
        first.check()
        end = kafka.end(topic)
        wait_for(second, lambda: kafka.end(topic) > end + 20)
        second.stop()
        numbers = committed(kafka, topic)
        assert numbers == list(range(len(numbers)))

    @pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
    def test_it_takes_over_from_one_that_is(self, how: int, exactly_once: bool, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        first, second = (make((Counter("counter"), topic), group=group, exactly_once=exactly_once) for _ in range(2))
        start(kafka, first)
        wait_for(first, lambda: kafka.end(topic) > 20)
        second.start()
        wait_until(lambda: members(kafka, f"{group}--source-counter") == 2, what="the second instance")
        pid = first.processes[0].pid or 0
        os.kill(pid, how)
        wait_until(lambda: members(kafka, f"{group}--source-counter") == 1, what="the end of its session")
        end = kafka.end(topic)
        wait_for(second, lambda: kafka.end(topic) > end + 40)
        if how == signal.SIGSTOP:
            thaw(process_tree(pid))
            wait_until(lambda: members(kafka, f"{group}--source-counter") == 2, what="the return of the first one")
            end = kafka.end(topic)
            wait_for(second, lambda: kafka.end(topic) > end + 40)
            first.check()
        second.stop()
        second.check()
        first.stop()
        numbers = committed(kafka, topic)
        if exactly_once:
            assert numbers == list(range(len(numbers)))
        else:
            # What the first one had not flushed when it was ended.
            assert sorted(set(numbers)) == list(range(max(numbers) + 1))
            assert len(numbers) - len(set(numbers)) <= 2 * 10

    def test_without_state_it_runs_once(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        first, second = (make((Three("three"), topic), group=group, instances="one") for _ in range(2))
        start(kafka, first)
        wait_until(lambda: kafka.end(topic) == 3, what="the records")
        second.start()
        wait_until(lambda: members(kafka, f"{group}--source-three") == 2, what="the second instance")
        # It has ended, and keeps the lease.
        assert first.is_alive()
        second.stop()
        first.stop()
        assert kafka.end(topic) == 3
        first.check()

    def test_one_that_does_not_end_is_ended(self, kafka: Kafka, make: Make) -> None:
        topic, group = kafka.topic(), unique("group")
        deaf = Deaf("deaf", shutdown_timeout=0.5)
        first = make((deaf, topic), group=group, instances="one")
        start(kafka, first)
        wait_until(lambda: kafka.end(topic) == 1, what="the record")
        pid = first.processes[0].pid or 0
        second = make((Deaf("deaf", shutdown_timeout=0.5), topic), group=group, instances="one")
        second.start()
        freeze(process_tree(pid))
        wait_until(lambda: kafka.end(topic) == 2, what="the second instance")
        thaw(process_tree(pid))
        assert "did not stop within 0.5 s when another instance" in failure(first)

    def test_a_missing_topic(self, kafka: Kafka, make: Make) -> None:
        manager = make((Counter("counter"), kafka.topic()))
        manager.start()
        assert re.search(r"topic changelog__\S+, which decides on who runs: .*UNKNOWN_TOPIC", failure(manager))

    def test_what_cannot_run_in_one(self, make: Make) -> None:
        class Parts(StatefulSource):
            store_partitions_count = 2

            def run(self) -> None: ...

        assert Parts("parts").instances == "each"
        for source, instances, options, words in [
            (Parts("parts"), "one", {}, "has 2 partitions of state"),
            (Numbers("numbers"), "one", {"use_changelogs": False}, "which an internal topic decides on"),
            (Numbers("numbers"), "all", {}, "give 'one' or 'each'"),
        ]:
            with pytest.raises(ConfigurationError, match=words):
                make((source, "topic"), instances=instances, **options)


def members(kafka: Kafka, group: str) -> int:
    """Return the number of members of a group."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    return len(admin.describe_consumer_groups([group])[group].result().members)
