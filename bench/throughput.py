"""Records per second from Kafka through Python to Kafka, at saturation: StreamRT in both modes and Quix Streams side by side.

The cases are in `bench/cases.py`, for the peer in `bench/peer.py`: stateless; a count for each key; a count for each
key in tumbling windows of ten seconds of event time, emitted when they close; and `group_by` with a count. There are
1,000 keys and 2 partitions; records are JSON of about 100 bytes. State is in RocksDB with changelogs, and `group_by`
uses a repartition topic, on both sides. StreamRT has two slots; the peer runs as one process, and as two that share the
group. Settings are the defaults.

All runners are timed in the same way, from outside. A topic is filled once for each case. Each run starts the
application with a new group, a new output topic and a new state directory. This process polls the end of the output
topic, and with `group_by` also that of the repartition topic. The clock begins after a tenth of all output of a run and
ends with the last record, so the start does not count. Runners take turns, so that a machine that gets slower or faster
affects all of them.

    python -m bench.throughput --peer-python peer/bin/python
    python -m bench.throughput --cases count --runners resident peer --runs 5
"""

import sys
import time

from bench import cases, common, runners
from bench.runners import PEER, PROCESSES, Runner, RunnerError, Running
from streamrt.kafka import TopicAdmin
from streamrt.models import TopicPartition

RECORDS = {"stateless": 1_000_000, "count": 600_000, "tumbling": 400_000, "group_by": 400_000}
RUNNERS = {
    "micro-batch": Runner("micro-batch"),
    "resident": Runner("resident"),
    "processes": Runner(PROCESSES),
    "peer": Runner(PEER),
    "peer-2": Runner(PEER, processes=2),
}
KEYS = 1_000
START_MS = 1_700_000_000_000
SKIPPED = 0.1
TARGET = 2.0
# Members that join within this time are in the first generation together: two processes share the work from the start.
BROKER = {"group.initial.rebalance.delay.ms": 3_000}


def outputs_of(case: str, records: int) -> int:
    """Return the number of outputs of a case for so many records."""
    if case != "tumbling":
        return records
    # Each key has a record for each second; the last window of each stays open.
    return KEYS * ((records // KEYS - 1) * 1_000 // cases.WINDOW_MS)


class Written:
    """Counts the records that a run has written: its outputs, and those of the repartition topic.

    Args:
        address: the broker.
        target: the topic of the outputs.
        group: the consumer group, which is in the names of repartition topics.
        topics: number of topics in total.
    """

    def __init__(self, address: str, target: str, group: str, topics: int) -> None:
        self._admin = TopicAdmin(address)
        self._group = group
        self._topics = [target]
        self._wanted = topics

    def count(self) -> int:
        """Return the current number of records."""
        if len(self._topics) < self._wanted:
            names = self._admin.list_topics(timeout=30)
            self._topics += [name for name in names if name.startswith("repartition") and self._group in name]
        places = [TopicPartition(topic, number) for topic in self._topics for number in range(common.PARTITIONS)]
        return sum(end for _, end in self._admin.offset_bounds(places).values())


def measure(running: Running, written: Written, wanted: int, timeout_s: float) -> float:
    """Wait until all is written; return the fraction that is written in a second, after the first tenth.

    Args:
        running: the runner.
        written: counts its records.
        wanted: expected number of records.
        timeout_s: longest time without a record.

    Raises:
        RunnerError: if the runner ended, or no record came for too long.
    """
    begin: tuple[float, int] | None = None
    done, moved_at = 0, time.monotonic()
    while done < wanted:
        time.sleep(0.02)
        running.check()
        now, current = time.monotonic(), written.count()
        if current > done:
            done, moved_at = current, now
            if begin is None and done >= wanted * SKIPPED:
                begin = now, done
        elif now - moved_at > timeout_s:
            raise RunnerError(f"{done:,} of {wanted:,} records came, and then none for {timeout_s:.0f} s")
    if done > wanted:
        raise RunnerError(f"{done:,} records came, and not {wanted:,}: some were processed twice")
    if begin is None or begin[1] == done:
        raise RunnerError(f"all {wanted:,} records came at once: measure with more")
    return (done - begin[1]) / wanted / (moved_at - begin[0])


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--records", type=int, help="records per run; by default as many as a case needs")
    options.add_argument("--cases", nargs="+", choices=RECORDS, default=list(RECORDS))
    options.add_argument("--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS))
    options.add_argument("--timeout", type=float, default=120.0, help="seconds without output after which a run fails")
    options.add_argument(
        "--check", action="store_true", help=f"fail if resident is not {TARGET:.0f} times as fast as one peer"
    )
    runners.add_options(options)
    chosen = options.parse_args()
    wanted = runners.available({name: RUNNERS[name] for name in chosen.runners}, chosen.peer_python)
    rows: list[list[object]] = []
    missed: list[str] = []
    with common.broker(BROKER) as address:
        for case in chosen.cases:
            records = chosen.records or RECORDS[case]
            source = common.unique("in")
            common.create_topics(address, source)
            common.fill(address, source, records, keys=KEYS, timestamp=lambda number: START_MS + number * 1_000 // KEYS)
            rates: dict[str, list[float]] = {name: [] for name in wanted}
            for _ in range(chosen.runs):
                for name, runner in wanted.items():
                    target = common.unique("out")
                    common.create_topics(address, target)
                    with Running(
                        runner, case, address, source, target, peer_python=chosen.peer_python, master=chosen.master
                    ) as running:
                        # A group_by writes each record twice.
                        topics = 2 if case == "group_by" else 1
                        written = Written(address, target, running.group, topics)
                        rate = records * measure(running, written, topics * outputs_of(case, records), chosen.timeout)
                    rates[name].append(rate)
                    common.console.print(f"{case}, {name}: {rate:,.0f} records/s")
            medians = {name: common.median(values) for name, values in rates.items()}
            rows.append([case, *(f"{rate:,.0f}" for rate in medians.values()), *ratios(medians)])
            if "resident" in medians and PEER in medians and medians["resident"] < TARGET * medians[PEER]:
                missed.append(case)
    title = f"records/s, median of {chosen.runs}; and how many times as fast the resident mode is"
    columns = ["case", *wanted, "/ peer", "/ best peer", "/ micro"]
    common.show(title, columns, rows)
    if missed and chosen.check:
        common.console.print(f"less than {TARGET:.0f} times as fast as one peer: {', '.join(missed)}")
        return 1
    return 0


def ratios(rates: dict[str, float]) -> list[str]:
    """Return how many times as fast the resident mode is: as one peer, as the better peer, and as micro-batches."""
    own = rates.get("resident")
    peers = [rates[name] for name in (PEER, "peer-2") if name in rates]
    others = [rates.get(PEER), max(peers, default=None), rates.get("micro-batch")]
    return [f"{own / other:.2f}" if own and other else "" for other in others]


if __name__ == "__main__":
    sys.exit(main())
