"""Whether cost stays flat as an application grows.

    closing        one record closes a window of each of so many keys: duration of the longest unit of work, and memory
    slow           a function of 300 ms per record over twelve partitions: progress of each, and waiting time of a record
                   in a partition that is otherwise idle; duration of a stop
    keys           a count in state, by the number of keys
    subtopologies  a count of one topic behind so many groupings, and of so many topics, in one application
    sizes          JSON of 100 bytes to 100 kB
    partitions     64 and 200 partitions on two slots beside 2: cost, memory, start, restore
    rebalance      the pause of partitions that stay and of those that move while an instance joins and leaves
    cluster        two executors of a standalone Spark cluster beside Spark in this process

Costs of records are processor time of all processes but the broker's, so that other programs disturb them little. Each
case runs in one processing mode; `processes[2]` as the master is resident mode without Spark.

    python -m bench.scale closing --keys 1000000 --mode resident --master "processes[2]"
    python -m bench.scale slow --seconds 30
    python -m bench.scale keys --keys 1000 100000 --runs 3
    python -m bench.scale rebalance --partitions 200 --master "processes[2]"
"""

import argparse
import sys
from collections.abc import Callable

from bench import common
from bench.scale import bounded, cluster, partitions, rebalance, records

CASES: dict[str, Callable[[str, argparse.Namespace], bool]] = {
    "closing": bounded.closing,
    "slow": bounded.slow,
    "keys": records.keys,
    "subtopologies": records.subtopologies,
    "sizes": records.sizes,
    "partitions": partitions.cost,
    "rebalance": rebalance.pauses,
    "cluster": cluster.cost,
}
# Members of the protocol `consumer` hear of changes with heartbeats, whose interval brokers say.
BROKER = {"group.consumer.heartbeat.interval.ms": 500, "group.consumer.min.heartbeat.interval.ms": 500}


def main() -> int:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("case", nargs="?", choices=CASES, help="only this case")
    options.add_argument("--master", default=common.MASTER, help="Spark's master, or processes[2]")
    options.add_argument("--runs", type=int, default=1, help="runs of which medians are shown")
    options.add_argument("--keys", type=int, nargs="+", help="closing, keys: only with so many keys")
    options.add_argument("--partitions", type=int, nargs="+", help="partitions, rebalance, slow: only with so many")
    options.add_argument("--subtopologies", type=int, nargs="+", default=[1, 5, 20], help="subtopologies: how many")
    options.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000], help="sizes: in bytes")
    options.add_argument("--records", type=int, help="records that are measured")
    options.add_argument("--seconds", type=float, default=60.0, help="slow: length of the run")
    options.add_argument("--pause", type=int, default=300, help="slow: milliseconds for each record")
    options.add_argument("--rate", type=float, default=10.0, help="rebalance: records per second in each partition")
    options.add_argument("--settle", type=float, default=15.0, help="rebalance: seconds for an instance to come up")
    options.add_argument("--guarantee", choices=common.GUARANTEES, default=common.GUARANTEES[0])
    common.add_mode(options)
    chosen = options.parse_args()
    if chosen.master.startswith("processes"):
        chosen.mode = "resident"
    with common.broker(BROKER) as address:
        results = [CASES[name](address, chosen) for name in ([chosen.case] if chosen.case else CASES)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
