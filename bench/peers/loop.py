"""Stateless cases as a loop of consumer and producer: the upper limit of a runtime in Python.

python -m bench.peers.loop stateless localhost:9092 in out group --state-dir unused
"""

import signal
import sys
import time

import orjson
from confluent_kafka import Consumer, Producer

from bench.program_options import peer_options

COMMIT_EVERY = 50_000


def main() -> None:
    """Read, compute, write and commit, at least once, until SIGTERM."""
    print("imported", time.time(), flush=True)
    chosen = peer_options(("stateless", "seen")).parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    consumer = Consumer(
        {
            "bootstrap.servers": chosen.address,
            "group.id": chosen.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    linger_ms = 0 if chosen.low_latency else 5
    producer = Producer({"bootstrap.servers": chosen.address, "enable.idempotence": True, "linger.ms": linger_ms})
    consumer.subscribe([chosen.source])
    done = 0
    while True:
        # A call for many records waits for all of them.
        for message in [*consumer.consume(1, 0.1), *consumer.consume(1_000, 0)]:
            if message.error() is not None:
                continue
            value = orjson.loads(message.value())
            if chosen.case == "stateless":
                value["double"] = value["value"] * 2
                if value["double"] < 0:
                    continue
            else:
                value["seen"] = True
            while True:
                try:
                    producer.produce(
                        chosen.target, orjson.dumps(value), message.key(), timestamp=message.timestamp()[1]
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            done += 1
        producer.poll(0)
        if done >= COMMIT_EVERY:
            producer.flush()
            consumer.commit(asynchronous=False)
            done = 0


if __name__ == "__main__":
    main()
