"""Requests of the admin client, without a broker."""

import gc
import logging
import threading
import time
import weakref
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamrt.kafka.cluster.requests import AdminRequests, retry


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


def test_an_attempt_that_failed_keeps_no_client() -> None:
    class Client:
        pass

    clients: list[weakref.ref[Client]] = []

    def ask() -> int:
        client, answers = Client(), [Future[int]()]
        clients.append(weakref.ref(client))
        if len(clients) == 1:
            answers[0].set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
        else:
            answers[0].set_result(7)
        try:
            return answers[0].result()
        except KafkaException:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)) from None

    gc.disable()
    try:
        assert retry("it failed", ask, time.monotonic() + 300) == 7
        assert [client() for client in clients] == [None, None]
    finally:
        gc.enable()
