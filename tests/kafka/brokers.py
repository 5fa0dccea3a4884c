"""Requests to brokers from tests themselves, and a broker that answers what real ones answer for a moment only."""

import contextlib
import ctypes
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, ListConsumerGroupsResult

from streamrt.kafka import Consumer, Producer
from streamrt.kafka.client import partition_offsets
from streamrt.records import TopicPartition
from tests.support import unique, wait_until

_API_VERSIONS, _METADATA = 18, 3


def group_state(address: str, group: str) -> ConsumerGroupState | None:
    """Return the state of a consumer group; None if there is no such group."""
    # Not `describe_consumer_groups`, with which librdkafka 2.16 ends the process if the coordinator goes away meanwhile.
    client = AdminClient({"bootstrap.servers": address})

    def ask() -> ListConsumerGroupsResult | None:
        answer = client.list_consumer_groups().result(300)
        # A coordinator may have to load its groups first.
        return None if answer.errors else answer

    listed: ListConsumerGroupsResult = wait_until(ask)
    return next((found.state for found in listed.valid if found.group_id == group), None)


@contextlib.contextmanager
def pending_commit(
    address: str, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> Iterator[Producer]:
    """Leave a commit of offsets pending in the transaction of a producer."""
    producer = Producer(address, extra_config={"transactional.id": unique("pending")}, transactional=True)
    with Consumer(address, group, "earliest", auto_commit_enable=False) as consumer:
        member = consumer.consumer_group_metadata()
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(partition_offsets(offsets, metadata), member, 30)
    yield producer


def produce_headers(address: str, topic: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Produce a record whose headers have any bytes as names, which confluent-kafka does not allow."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    librdkafka = ctypes.CDLL(next(line.split(maxsplit=5)[5] for line in maps if "librdkafka" in line))
    librdkafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    librdkafka.rd_kafka_headers_new.restype = librdkafka.rd_kafka_new.restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    options = ctypes.c_void_p(librdkafka.rd_kafka_conf_new())
    librdkafka.rd_kafka_conf_set(options, b"bootstrap.servers", address.encode(), text, ctypes.c_size_t(512))
    producer = ctypes.c_void_p(librdkafka.rd_kafka_new(0, options, text, ctypes.c_size_t(512)))
    assert producer, text.value
    raw = ctypes.c_void_p(librdkafka.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, value in headers:
        librdkafka.rd_kafka_header_add(raw, name, ctypes.c_ssize_t(len(name)), value, ctypes.c_ssize_t(len(value)))
    # RD_KAFKA_VTYPE_TOPIC, RD_KAFKA_VTYPE_HEADERS, RD_KAFKA_VTYPE_END
    assert librdkafka.rd_kafka_producev(producer, 1, ctypes.c_char_p(topic.encode()), 10, raw, 0) == 0
    assert librdkafka.rd_kafka_flush(producer, 30_000) == 0
    librdkafka.rd_kafka_destroy(producer)


class FakeBroker(socketserver.ThreadingTCPServer):
    """Tells clients about its cluster, and nothing else.

    Attributes:
        started: whether it knows of itself. A broker that has just started, or is about to stop, knows of none.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.started = True

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def reply(self, api: int, version: int) -> bytes:
        """Return what follows the number of a request in the answer to it."""
        if api == _API_VERSIONS:
            # Versions that have neither tags nor compact strings.
            known = [(_API_VERSIONS, 0, 0), (_METADATA, 0, 4)]
            unsupported = 35 if version > 0 else 0
            return struct.pack(">hi", unsupported, len(known)) + b"".join(struct.pack(">hhh", *api) for api in known)
        assert (api, version) == (_METADATA, 4)
        host, port = b"127.0.0.1", self.server_address[1]
        brokers = struct.pack(f">iih{len(host)}sih", 1, 1, len(host), host, port, -1)
        controller = 1 if self.started else -1
        return (
            struct.pack(">i", 0)
            + (brokers if self.started else bytes(4))
            + struct.pack(">h2sii", 2, b"id", controller, 0)
        )


class _Connection(socketserver.StreamRequestHandler):
    server: FakeBroker

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while size := self.rfile.read(4):
                request = self.rfile.read(int.from_bytes(size, "big"))
                api, version, number = struct.unpack_from(">hhi", request)
                answer = struct.pack(">i", number) + self.server.reply(api, version)
                self.wfile.write(struct.pack(">i", len(answer)) + answer)


@contextlib.contextmanager
def fake_broker() -> Iterator[FakeBroker]:
    """Run such a broker."""
    with FakeBroker() as broker:
        thread = threading.Thread(target=broker.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield broker
        finally:
            broker.shutdown()
            thread.join()
