"""Sources of tests, their managers, and what tests wait for."""

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from streamrt.connectors import BaseSource, Instances, Source, StatefulSource
from streamrt.errors import SourceError
from streamrt.kafka import ConnectionConfig
from streamrt.runtime.sources.manager import SourceManager
from streamrt.topics import Topic
from tests.support import Kafka, unique, wait_until


class Numbers(Source):
    """Produces numbers until it is stopped."""

    def run(self) -> None:
        number = 0
        while self.running:
            self.produce(self.serialize(value=number).value, b"key")
            number += 1
            self.sleep(0.01)


class Three(Source):
    """Produces three numbers and ends."""

    def run(self) -> None:
        for number in range(3):
            self.produce(self.serialize(value=number).value)


class Deaf(Source):
    """Does not stop."""

    def run(self) -> None:
        self.produce(b"1")
        self.flush()
        threading.Event().wait()


class Counter(StatefulSource):
    """Counts, and remembers up to where with every tenth number."""

    def run(self) -> None:
        while self.running:
            number = self.state.get("number", 0)
            self.produce(json.dumps(number))
            self.state.set("number", number + 1)
            if number % 10 == 9:
                self.flush()
                self.sleep(0.02)


Make = Callable[..., SourceManager]


@contextlib.contextmanager
def managers(kafka: Kafka) -> Iterator[Make]:
    """Yield a function that makes a manager of sources; they are stopped at the end."""
    made: list[SourceManager] = []

    def make(
        *sources: tuple[BaseSource, str], group: str = "", instances: Instances | None = None, **options: Any
    ) -> SourceManager:
        connection = ConnectionConfig(bootstrap_servers=kafka.address)
        manager = SourceManager(connection, group or unique("group"), **options)
        for source, topic in sources:
            manager.register(source, Topic(topic), instances)
        made.append(manager)
        return manager

    try:
        yield make
    finally:
        for manager in made:
            manager.stop()


def failure(*managers: SourceManager) -> str:
    """Wait until a source of any of these managers has failed; return what is said about it."""
    messages: list[str] = []

    def failed() -> bool:
        for manager in managers:
            try:
                manager.check()
            except SourceError as error:
                messages.append(str(error))
        return bool(messages)

    wait_until(failed, what="the failure of a source")
    return messages[0]


def wait_for(manager: SourceManager, condition: Callable[[], Any]) -> None:
    """Wait for a condition while no source fails."""

    def holds() -> Any:
        manager.check()
        return condition()

    wait_until(holds)


def start(kafka: Kafka, manager: SourceManager, *, run: bool = True) -> str:
    """Create the internal topic of a source, and start it; return the name of the topic."""
    (topic,) = manager.changelog_topics()
    kafka.admin.create_topics([topic])
    if run:
        manager.start()
    return topic.name


def committed(kafka: Kafka, topic: str) -> list[int]:
    """Return all committed values of a topic that nothing writes to any more."""
    kafka.produce(topic, [-1])
    values = [
        json.loads(record.value or b"")
        for record in kafka.receive(topic, sys.maxsize, until=lambda one: one.value == b"-1")
    ]
    assert values.pop() == -1
    return values
