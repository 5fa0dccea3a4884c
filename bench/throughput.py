"""Records per second, stateless JSON, Kafka to Python to Kafka, at saturation.

Each run reads a topic that was filled before. The rate is taken between the end of the first micro-batch and the end of the
last one, so it is that of a warm application.

    python -m bench.throughput
"""

import threading
import time

from bench import common
from streamrt import Application


def run(address: str, master: str, records: int) -> tuple[float, float]:
    """Process one filled topic; return records per second and seconds until the first micro-batch was done."""
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target)
    common.fill(address, source, records)
    app = Application(
        address,
        consumer_group=common.unique("bench"),
        auto_offset_reset="earliest",
        spark_master=master,
        loglevel="WARNING",
    )
    sdf = app.dataframe(app.topic(source))
    sdf["double"] = sdf["value"] * 2
    sdf = sdf[sdf["double"] >= 0]
    sdf.to_topic(app.topic(target))
    marks: list[tuple[float, int]] = []

    def watch() -> None:
        done = 0
        while done < records:
            time.sleep(0.005)
            current = app.progress().records
            if current != done:
                done = current
                marks.append((time.monotonic(), done))
        app.stop()

    begun = time.monotonic()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    app.run()
    watcher.join()
    (first_at, first), (last_at, last) = marks[0], marks[-1]
    return (last - first) / (last_at - first_at), first_at - begun


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--records", type=int, default=1_500_000, help="records per run")
    chosen = options.parse_args()
    with common.broker() as address:
        results = [run(address, chosen.master, chosen.records) for _ in range(chosen.runs + 1)]
    rates = [rate for rate, _ in results[1:]]
    rows: list[list[object]] = [[number, rate, first] for number, (rate, first) in enumerate(results)]
    rows.append(["median of 1..", common.median(rates), common.median([first for _, first in results[1:]])])
    common.show("stateless JSON, 2 partitions", ["run", "records/s", "first batch after s"], rows)


if __name__ == "__main__":
    main()
