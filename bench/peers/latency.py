"""Milliseconds from producing a record to receiving its output, at steady rates.

Another process, the probe, produces and consumes, so both timestamps come from its clock. With exactly-once it reads
committed records only. The warm-up begins with the first output.
"""

import argparse
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from bench import common
from bench.runners import Runner, RunnerError, Running
from streamrt.kafka import Consumer, Producer

START_S = 60.0
TICK_S = 0.001
LATE_S = 20.0
"""Time for what has not come at the end."""
KEPT = 0.95
"""Share of the records of a window that must have come for its latencies to count."""


def probe(address: str, source: str, target: str, chosen: argparse.Namespace) -> None:
    """Produce at steady rates, receive the outputs, and print rate, records and latencies of each window as JSON."""
    # Otherwise the thread that sends waits up to 5 ms for the one that receives.
    sys.setswitchinterval(0.0002)
    latencies: list[tuple[float, float]] = []
    first, stop = threading.Event(), threading.Event()

    def consume() -> None:
        extra = {"isolation.level": chosen.isolation}
        with Consumer(address, common.unique("probe"), "earliest", extra_config=extra) as consumer:
            consumer.subscribe([target])
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    now = time.time()
                    begun = orjson.loads(message.value())["sent"]
                    latencies.append((begun, (now - begun) * 1000))
                    first.set()

    receiver = threading.Thread(target=consume)
    receiver.start()
    windows: list[tuple[float, float, int]] = []
    sent = 0
    with Producer(address, extra_config={"linger.ms": 0}) as producer:

        def send(rate: float, end: float, until: threading.Event | None = None) -> int:
            nonlocal sent
            begun, number = time.time(), 0
            while (now := time.time()) < end and not (until and until.is_set()):
                while number < (now - begun) * rate:
                    producer.produce(source, orjson.dumps({"sent": time.time()}), key=b"%d" % (number % 1_000))
                    number += 1
                producer.poll(0)
                time.sleep(max(TICK_S, begun + number / rate - time.time()))
            sent += number
            return number

        send(chosen.rates[0], time.time() + START_S, first)
        for rate in chosen.rates if first.is_set() else ():
            send(rate, time.time() + chosen.warmup)
            for _ in range(chosen.windows):
                start = time.time()
                windows.append((rate, start, send(rate, start + chosen.seconds)))
    deadline = time.monotonic() + LATE_S
    while len(latencies) < sent and time.monotonic() < deadline:
        time.sleep(0.1)
    stop.set()
    receiver.join()
    for rate, start, number in windows:
        found = [latency for begun, latency in latencies if start <= begun < start + chosen.seconds]
        print(orjson.dumps([rate, number, found]).decode())


def run(
    runner: Runner | None,
    guarantee: str,
    address: str,
    rates: Sequence[float],
    windows: int,
    seconds: float,
    warmup_s: float,
    partitions: int,
    checkout: Path | None,
) -> dict[float, list[tuple[float, float]]]:
    """Return p50 and p99 of each window, in milliseconds, by rate; infinite if the outputs did not keep up.

    Args:
        runner: the application; None measures the probe by itself: one of the two trips through the broker.
        guarantee: that of the application.
        address: the broker.
        rates: records per second.
        windows: number of measurements at each rate.
        seconds: length of a measurement.
        warmup_s: seconds before the first measurement at a rate.
        partitions: number of partitions of the topics.
        checkout: another version of StreamRT to run.

    Raises:
        RunnerError: if there was no output.
    """
    source = common.unique("in")
    target = common.unique("out") if runner else source
    common.create_topics(address, *{source, target}, partitions=partitions)
    isolation = "read_committed" if guarantee == common.GUARANTEES[1] else "read_uncommitted"
    command = [sys.executable, "-m", "bench.peers.latency", address, source, target, "--isolation", isolation]
    command += ["--windows", str(windows), "--seconds", str(seconds), "--warmup", str(warmup_s)]
    command += ["--rates", *map(str, rates)]
    with contextlib.ExitStack() as stack:
        running = (
            stack.enter_context(Running(runner, "seen", address, source, target, checkout=checkout)) if runner else None
        )
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                lines, _ = process.communicate(timeout=1)
                break
            if running:
                running.check()
    if not lines:
        raise RunnerError(f"no output came for {START_S:.0f} s")
    measured: dict[float, list[tuple[float, float]]] = {rate: [] for rate in rates}
    for line in lines.splitlines():
        rate, number, values = orjson.loads(line)
        kept_up = len(values) >= KEPT * number
        late = float("inf")
        measured[rate].append(
            (common.percentile(values, 0.5), common.percentile(values, 0.99)) if kept_up else (late, late)
        )
    return measured


def main() -> None:
    """Be the probe."""
    options = argparse.ArgumentParser(description="Measure latencies through a running application.")
    options.add_argument("address", help="the broker")
    options.add_argument("source", help="topic to write")
    options.add_argument("target", help="topic to read")
    options.add_argument("--isolation", required=True)
    options.add_argument("--rates", type=float, nargs="+", required=True)
    options.add_argument("--windows", type=int, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--warmup", type=float, required=True)
    chosen = options.parse_args()
    probe(chosen.address, chosen.source, chosen.target, chosen)


if __name__ == "__main__":
    main()
