"""Milliseconds from producing a record to receiving its output, at a steady rate: both modes and guarantees; Quix Streams.

One broker serves all cases, one after the other; each has a separate application and separate topics. Another process,
the probe, produces and consumes, so both timestamps come from its clock. In exactly-once cases it reads committed
records only. The warm-up begins with the first output. "broker" is the probe without an application: one of the two
trips through the broker that each output makes.

The peer also sends each record at once, and in exactly-once cases commits a transaction every 0.1 s. StreamRT has its
defaults.

    python -m bench.latency --peer-python peer/bin/python
    python -m bench.latency --cases resident --rate 1000
"""

import argparse
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from bench import common, runners
from bench.runners import PEER, PROCESSES, Runner, Running
from streamrt.kafka import Consumer, Producer

AT_LEAST_ONCE, EXACTLY_ONCE = common.GUARANTEES
CASES = {
    "micro-batch": Runner("micro-batch"),
    "resident": Runner("resident"),
    "processes": Runner(PROCESSES),
    "resident-eos": Runner("resident", EXACTLY_ONCE),
    "processes-eos": Runner(PROCESSES, EXACTLY_ONCE),
    "peer": Runner(PEER, low_latency=True),
    "peer-eos": Runner(PEER, EXACTLY_ONCE, low_latency=True),
    "micro-batch-eos": Runner("micro-batch", EXACTLY_ONCE),
}
BROKER = "broker"
DEFAULT = (BROKER, "micro-batch", "resident", "resident-eos", "peer", "peer-eos")
TARGETS_MS = {"resident": (2.5, 20.0), "resident-eos": (30.0, 60.0)}
"""Medians of p50 and p99 at 100 records/s."""
START_S = 120.0


def probe(
    address: str, source: str, target: str, guarantee: str, rate: float, warmup_s: float, run_s: float, runs: int
) -> None:
    """Produce at a steady rate, receive the outputs, and print the latencies of each run as a line of JSON."""
    latencies: list[tuple[float, float]] = []
    first, stop = threading.Event(), threading.Event()
    isolation = "read_committed" if guarantee == EXACTLY_ONCE else "read_uncommitted"

    def consume() -> None:
        extra = {"isolation.level": isolation}
        with Consumer(address, common.unique("probe"), "earliest", extra_config=extra) as consumer:
            consumer.subscribe([target])
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    now = time.time()
                    sent = json.loads(message.value())["sent"]
                    latencies.append((sent, (now - sent) * 1000))
                    first.set()

    receiver = threading.Thread(target=consume)
    receiver.start()
    begun = time.time()
    end = begun + START_S
    with Producer(address, extra_config={"linger.ms": 0}) as producer:
        number, warm = 0, 0.0
        while time.time() < end:
            producer.produce(source, json.dumps({"sent": time.time()}).encode(), key=b"%d" % number)
            producer.poll(0)
            number += 1
            if not warm and first.is_set():
                warm = time.time() + warmup_s
                end = warm + run_s * runs
            time.sleep(max(0.0, begun + number / rate - time.time()))
    time.sleep(2)
    stop.set()
    receiver.join()
    for run in range(runs if warm else 0):
        start = warm + run * run_s
        print(json.dumps([latency for sent, latency in latencies if start <= sent < start + run_s]))


def run(case: str, address: str, chosen: argparse.Namespace) -> list[list[float]]:
    """Return the latencies of each run of a case, in milliseconds."""
    source = common.unique("in")
    target = source if case == BROKER else common.unique("out")
    common.create_topics(address, *{source, target})
    runner = CASES.get(case)
    guarantee = runner.guarantee if runner else AT_LEAST_ONCE
    flags = ["--rate", chosen.rate, "--seconds", chosen.seconds, "--warmup", chosen.warmup, "--runs", chosen.runs]
    command = [sys.executable, "-m", "bench.latency", "--probe", address, source, target, guarantee, *map(str, flags)]
    with contextlib.ExitStack() as stack:
        running = None
        if runner:
            running = stack.enter_context(
                Running(runner, "seen", address, source, target, peer_python=chosen.peer_python, master=chosen.master)
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
        raise runners.RunnerError(f"{case}: no output came for {START_S:.0f} s")
    return [json.loads(line) for line in lines.splitlines()]


def rows_of(case: str, results: Sequence[Sequence[float]]) -> list[list[object]]:
    """Return a row for each run of a case, and a row of their medians."""
    figures = [
        [common.percentile(values, 0.5), common.percentile(values, 0.99), max(values)] for values in results if values
    ]
    rows: list[list[object]] = [
        [case, str(number), str(len(values)), *figure]
        for number, (values, figure) in enumerate(zip(results, figures, strict=True), 1)
    ]
    target = "{:g} / {:g}".format(*TARGETS_MS[case]) if case in TARGETS_MS else ""
    return [*rows, [case, "median", "", *map(common.median, zip(*figures, strict=True)), target]]


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--rate", type=float, default=100.0, help="records per second")
    options.add_argument("--seconds", type=float, default=10.0, help="length of a run")
    options.add_argument(
        "--warmup", type=float, default=15.0, help="seconds between the first output and the first run"
    )
    options.add_argument("--cases", nargs="+", choices=(BROKER, *CASES), default=list(DEFAULT))
    options.add_argument("--check", action="store_true", help="fail if the resident mode is slower than its targets")
    options.add_argument("--probe", nargs=4, help="used by the benchmark itself")
    runners.add_options(options)
    chosen = options.parse_args()
    if chosen.probe:
        address, source, target, guarantee = chosen.probe
        probe(address, source, target, guarantee, chosen.rate, chosen.warmup, chosen.seconds, chosen.runs)
        return 0
    wanted = runners.available({name: CASES.get(name) for name in chosen.cases}, chosen.peer_python)
    rows: list[list[object]] = []
    missed: list[str] = []
    with common.broker() as address:
        for case in wanted:
            found = rows_of(case, run(case, address, chosen))
            rows += found
            p50, p99 = (float(str(figure)) for figure in found[-1][3:5])
            common.console.print(f"{case}: p50 {p50:,.1f} ms, p99 {p99:,.1f} ms")
            if case in TARGETS_MS and (p50 > TARGETS_MS[case][0] or p99 > TARGETS_MS[case][1]):
                missed.append(case)
    title = f"latency at {chosen.rate:g} records/s, {chosen.warmup:g} s of warm-up, runs of {chosen.seconds:g} s"
    common.show(title, ["case", "run", "records", "p50 ms", "p99 ms", "max ms", "targets ms"], rows)
    if missed and chosen.check:
        common.console.print(f"slower than its target: {', '.join(missed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
