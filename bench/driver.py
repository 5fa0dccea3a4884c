"""Records per second of processor time in the test driver: piped one by one, and with one commit for each chunk.

Stateless is a filter from topic to topic; `windows` counts in tumbling windows behind a `group_by`. Values are JSON.

    python -m bench.driver --case windows
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from bench import common
from streamrt import Application
from streamrt.config import ProcessingMode
from streamrt.kafka import TopicConfig
from streamrt.testing import InputRecord, TopologyTestDriver

CASES = ("stateless", "windows")
PARTITIONS = {"stateless": 1, "windows": 2}
STEP_MS = 10


def driver_of(case: str, mode: ProcessingMode, guarantee: str) -> TopologyTestDriver:
    """Return a driver for a case."""
    app = Application(
        "unused:9092",
        consumer_group="bench",
        processing_mode=mode,
        processing_guarantee=guarantee,  # type: ignore[arg-type]
        loglevel="WARNING",
    )
    # With one partition, a group_by needs no repartition topic.
    config = TopicConfig(PARTITIONS[case], 1)
    source = app.topic("in", key_serializer="str", key_deserializer="str", config=config)
    sdf = app.dataframe(source)
    if case == "stateless":
        sdf = sdf[sdf["value"] >= 0].apply(lambda value: {**value, "seen": True})
    else:
        sdf = sdf.group_by("user").tumbling_window(timedelta(seconds=10)).count().final()
    sdf.to_topic(app.topic("out"))
    return TopologyTestDriver(app)


def record(number: int, partitions: int) -> InputRecord:
    """Return a record by its number."""
    value = {"id": number, "user": f"user-{number % 100}", "value": number * 0.5}
    return InputRecord("in", value, key=f"k{number % 1000}", timestamp=number * STEP_MS, partition=number % partitions)


def pipe_each(driver: TopologyTestDriver, records: Iterable[InputRecord]) -> None:
    """Pipe records one by one."""
    for topic, value, key, timestamp, _, partition in records:
        driver.pipe(topic, value, key=key, timestamp=timestamp, partition=partition)


def rate(
    driver: TopologyTestDriver,
    pipe: Callable[[TopologyTestDriver, Iterable[InputRecord]], None],
    partitions: int,
    count: int,
) -> float:
    """Return the records per second of processor time, after a warm-up."""
    warm = count // 10
    pipe(driver, (record(number, partitions) for number in range(warm)))
    # What it costs to make the records is not measured.
    records = [record(number, partitions) for number in range(warm, warm + count)]
    begun = time.process_time()
    pipe(driver, records)
    return count / (time.process_time() - begun)


def main() -> int:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="measured runs, of which medians are shown")
    options.add_argument("--records", type=int, default=50_000, help="records of pipe_many; pipe gets a tenth of them")
    options.add_argument("--case", choices=CASES, help="only one case")
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    chosen = options.parse_args()
    rows: list[list[object]] = []
    for case in (chosen.case,) if chosen.case else CASES:
        for name, pipe, count in (
            ("pipe", pipe_each, max(100, chosen.records // 10)),
            ("pipe_many", TopologyTestDriver.pipe_many, chosen.records),
        ):
            rates = []
            for _ in range(chosen.runs):
                with driver_of(case, chosen.mode, chosen.guarantee) as driver:
                    rates.append(rate(driver, pipe, PARTITIONS[case], count))
            rows.append([case, name, common.median(rates)])
    title = f"test driver, {chosen.mode}, {chosen.guarantee}, median of {chosen.runs}"
    common.show(title, ["case", "call", "records/s of processor time"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
