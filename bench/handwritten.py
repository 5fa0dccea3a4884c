"""The stateless case of `bench/cases.py` as a loop of the client alone: the limit of any runtime in Python.

python -m bench.handwritten localhost:9092 in out group
"""

import signal
import sys

import orjson
from confluent_kafka import Consumer, Producer


def main(address: str, source: str, target: str, group: str) -> None:
    """Read, compute, write and commit, at least once, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
    consumer.subscribe([source])
    done = 0
    while True:
        for message in consumer.consume(1_000, 0.1):
            if message.error() is not None:
                continue
            value = orjson.loads(message.value())
            value["double"] = value["value"] * 2
            if value["double"] >= 0:
                while True:
                    try:
                        producer.produce(target, orjson.dumps(value), message.key(), timestamp=message.timestamp()[1])
                        break
                    except BufferError:
                        producer.poll(0.1)
            done += 1
        producer.poll(0)
        if done >= 50_000:
            producer.flush()
            consumer.commit(asynchronous=False)
            done = 0


if __name__ == "__main__":
    main(*sys.argv[1:])
