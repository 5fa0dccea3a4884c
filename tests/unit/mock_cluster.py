"""librdkafka's own mock cluster: brokers in this process, which answer a real producer with the errors that a test asks for.

confluent-kafka does not offer it, so its C functions are called.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer as ConfluentProducer

_PRODUCE_REQUEST = 0


class MockCluster:
    """Brokers that librdkafka makes for tests.

    Args:
        owner: the client whose brokers they are.
    """

    def __init__(self, owner: ConfluentProducer) -> None:
        self._owner = owner
        self._library = _library()
        # What confluent-kafka's objects begin with, behind what all objects begin with, is the handle of the client.
        handle = ctypes.c_void_p.from_address(id(owner) + object.__basicsize__)
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_handle_mock_cluster(handle))
        addresses: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.address = addresses.decode()

    def refuse_produce_requests(self, *codes: int) -> None:
        """Answer the next requests to produce with these errors."""
        numbers = [ctypes.c_int(code) for code in codes]
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(_PRODUCE_REQUEST), ctypes.c_size_t(len(codes)), *numbers
        )


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    """Brokers for as long as the context lasts; their topics exist as soon as they are named."""
    yield MockCluster(ConfluentProducer({"test.mock.num.brokers": 1, "log_level": 0}))


def _library() -> ctypes.CDLL:
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "librdkafka" in line))
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
