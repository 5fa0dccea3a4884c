"""Milliseconds from producing a record to receiving its output, at a steady rate.

A process of its own produces and consumes; both timestamps come from its clock.

    python -m bench.latency --rate 100
"""

import json
import subprocess
import sys
import threading
import time

from bench import common
from streamrt import Application
from streamrt.kafka import Consumer, Producer


def probe(address: str, source: str, target: str, rate: float, warmup_s: float, run_s: float, runs: int) -> None:
    """Produce at a steady rate, receive the outputs, and print the latencies of each run as a line of JSON."""
    latencies: list[tuple[float, float]] = []
    stop = threading.Event()

    def consume() -> None:
        with Consumer(address, common.unique("probe"), "earliest", extra_config={"fetch.wait.max.ms": 5}) as consumer:
            consumer.subscribe([target])
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    now = time.time()
                    sent = json.loads(message.value())["sent"]
                    latencies.append((sent, (now - sent) * 1000))

    receiver = threading.Thread(target=consume)
    receiver.start()
    begun = time.time()
    with Producer(address, extra_config={"linger.ms": 0}) as producer:
        number = 0
        while time.time() - begun < warmup_s + run_s * runs:
            producer.produce(source, json.dumps({"sent": time.time()}).encode(), key=b"%d" % number)
            producer.poll(0)
            number += 1
            time.sleep(max(0.0, begun + number / rate - time.time()))
    time.sleep(2)
    stop.set()
    receiver.join()
    for run in range(runs):
        start = begun + warmup_s + run * run_s
        print(json.dumps([latency for sent, latency in latencies if start <= sent < start + run_s]))


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--rate", type=float, default=100.0, help="records per second")
    options.add_argument("--seconds", type=float, default=10.0, help="length of a run")
    options.add_argument("--warmup", type=float, default=40.0, help="seconds before the first run, with the start")
    options.add_argument("--probe", nargs=3, help="used by the benchmark itself")
    chosen = options.parse_args()
    if chosen.probe:
        address, source, target = chosen.probe
        probe(address, source, target, chosen.rate, chosen.warmup, chosen.seconds, chosen.runs)
        return
    source, target = common.unique("in"), common.unique("out")
    with common.broker() as address:
        common.create_topics(address, source, target)
        app = Application(
            address,
            consumer_group=common.unique("bench"),
            auto_offset_reset="earliest",
            spark_master=chosen.master,
            loglevel="WARNING",
        )
        sdf = app.dataframe(app.topic(source))
        sdf["seen"] = True
        sdf.to_topic(app.topic(target))
        flags = ["--rate", chosen.rate, "--seconds", chosen.seconds, "--warmup", chosen.warmup, "--runs", chosen.runs]
        command = [sys.executable, "-m", "bench.latency", "--probe", address, source, target, *map(str, flags)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines: list[str] = []

            def read() -> None:
                lines.extend(process.stdout or [])
                app.stop()

            reader = threading.Thread(target=read)
            reader.start()
            app.run()
            reader.join()
    runs = [json.loads(line) for line in lines]
    rows: list[list[object]] = [
        [number, len(values), common.percentile(values, 0.5), common.percentile(values, 0.99), max(values)]
        for number, values in enumerate(runs, 1)
    ]
    medians = [common.median([float(str(row[column])) for row in rows]) for column in (2, 3, 4)]
    rows.append(["median", "", *medians])
    common.show(f"latency at {chosen.rate:.0f} records/s", ["run", "records", "p50 ms", "p99 ms", "max ms"], rows)


if __name__ == "__main__":
    main()
