"""Another application in the consumer group is noticed."""

import pytest

from streamrt.kafka import Consumer
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def test_another_application_in_the_group_is_warned_of(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    source, other, group = kafka.topic("in"), kafka.topic("other"), unique("group")
    with Consumer(kafka.address, group, "earliest", extra_config={"client.id": "bills"}) as stranger:
        stranger.subscribe([source, other])
        app = kafka.app(group)
        app.dataframe(app.topic(source)).print()

        def warned() -> bool:
            # A member that does not poll holds up the others.
            stranger.poll(0.05)
            return any(f"bills on 127.0.0.1 reads {other}" in message for message in caplog.messages)

        with running(app):
            wait_until(warned, what="the warning")
    (warning,) = [message for message in caplog.messages if "has members that read topics" in message]
    assert f"consumer group {group!r}" in warning
