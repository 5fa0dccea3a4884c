"""Requests of the admin client, without a broker."""

import logging
import threading
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaException

from streamrt.kafka.cluster.requests import AdminRequests


def test_a3_a_request_in_flight_does_not_connect_again_after_close() -> None:
    requests = AdminRequests("unused.invalid:9092", logging.getLogger("test"), None)
    assert requests.client is requests.client
    waits = threading.Event()

    class Answer(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            waits.set()
            return super().result(timeout)

    def wait() -> None:
        with pytest.raises(KafkaException):
            requests.wait(Answer(), 0.2)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waits.wait()
    requests.close()
    waiting.join()
    assert requests._inner is None
