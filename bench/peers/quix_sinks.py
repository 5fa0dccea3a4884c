"""The values of `bench/connectors.py`, and a program that writes them with a sink of Quix Streams, for comparison.

The program runs in the environment of the peer, so this file imports nothing from StreamRT. It reads one JSON object from
standard input, and prints the seconds that the sink took, by the clock and of the processor:

    {"sink": "core.csv.CSVSink", "arguments": {"path": "a.csv"}, "values": 10000}
"""

import importlib
import json
import sys
import time
from typing import Any

BATCH = 10_000
TOPIC = "orders"


def order(number: int) -> dict[str, Any]:
    """Return a value of about 100 bytes."""
    return {
        "id": number,
        "sku": f"sku-{number % 1_000:06}",
        "pieces": number % 7,
        "price": number % 1_000 / 4,
        "note": "leave it at the door, please",
        "paid": number % 3 == 0,
    }


def records(start: int) -> list[tuple[Any, bytes, int, None, int]]:
    """Return value, key, timestamp, headers and offset of each record of a batch."""
    return [
        (order(number), b"key-%d" % (number % 100), 1_700_000_000_000 + number, None, number)
        for number in range(start, start + BATCH)
    ]


def main() -> None:
    """Write the values, and print the seconds without those of the start."""
    asked = json.load(sys.stdin)
    module, _, name = asked["sink"].rpartition(".")
    sink = getattr(importlib.import_module(f"quixstreams.sinks.{module}"), name)(**asked["arguments"])
    sink.start()
    seconds = processor_s = 0.0
    for start in range(0, asked["values"], BATCH):
        batch = records(start)
        begun, processor = time.perf_counter(), time.process_time()
        for value, key, timestamp, headers, offset in batch:
            sink.add(value, key, timestamp, headers, TOPIC, 0, offset)
        sink.flush()
        seconds += time.perf_counter() - begun
        processor_s += time.process_time() - processor
    print(json.dumps([seconds, processor_s]))


if __name__ == "__main__":
    main()
