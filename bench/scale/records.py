"""The cost of a record by the number of keys, of sub-topologies, and by its size."""

import argparse

from bench import common
from bench.scale.costs import measure_cost, place_of
from streamrt.kafka import Producer

KEYS = (1_000, 100_000, 1_000_000, 10_000_000)
_SIZED_MB = 100


def keys(address: str, chosen: argparse.Namespace) -> bool:
    """Count records of so many keys; all keys exist before the measured records come."""
    rows: list[list[object]] = []
    base = 0.0
    for number in chosen.keys or KEYS:
        source = common.unique("in")
        common.create_topics(address, source)
        measured = chosen.records or 500_000
        common.fill(address, source, number + measured, keys=number)
        # The measurement begins when all keys have come, and when what the start has left is done.
        skip = number + measured // 5
        cost = measure_cost(chosen, "count", address, source, records=number + measured, skip=skip)
        base = base or cost.record_us
        rows.append([f"{number:,}", cost.record_us, f"{cost.record_us / base:.2f}", cost.peak_mb])
    common.show(f"a count in state, {place_of(chosen)}", ["keys", "µs per record", "ratio", "peak MB"], rows)
    return True


def subtopologies(address: str, chosen: argparse.Namespace) -> bool:
    """Count the records of a topic behind so many groupings, and those of so many topics, in one application."""
    rows: list[list[object]] = []
    for case in ("fan", "frames"):
        base = 0.0
        for number in chosen.subtopologies:
            records = (chosen.records or 200_000) // number
            source = common.unique("in")
            sources = [source] if case == "fan" else [f"{source}-{each}" for each in range(number)]
            common.create_topics(address, *sources)
            for name in sources:
                common.fill(address, name, records)
            cost = measure_cost(
                chosen,
                case,
                address,
                source,
                records=records * number,
                skip=records * number // 5,
                number=number,
            )
            base = base or cost.record_us
            rows.append([case, number, cost.start_s, cost.record_us, f"{cost.record_us / base:.2f}", cost.peak_mb])
    columns = ["", "sub-topologies", "start s", "µs per record of each", "ratio", "peak MB"]
    common.show(f"counts, {place_of(chosen)}", columns, rows)
    return True


def sizes(address: str, chosen: argparse.Namespace) -> bool:
    """Read JSON of so many bytes, and write it again."""
    rows: list[list[object]] = []
    for size in chosen.sizes:
        source = common.unique("in")
        common.create_topics(address, source)
        records = chosen.records or min(300_000, _SIZED_MB * 1_000_000 // size)
        with Producer(address, extra_config={"linger.ms": 50}) as producer:
            for number in range(records):
                value = common.payload(number, max(0, size - 50))
                producer.produce(source, value, key=b"%d" % number, partition=number % common.PARTITIONS)
        cost = measure_cost(chosen, "copy", address, source, records=records, skip=records // 5)
        megabytes = size / 1_000_000
        rows.append(
            [
                f"{size:,}",
                f"{records:,}",
                cost.record_us,
                f"{cost.record_us / size * 1_000:,.2f}",
                cost.rate * megabytes,
                1e6 / cost.record_us * megabytes,
                cost.peak_mb,
            ]
        )
    columns = ["bytes", "records", "µs per record", "ns per byte", "MB/s", "MB/s of a processor", "peak MB"]
    common.show(f"JSON, read and written, {place_of(chosen)}", columns, rows)
    return True
