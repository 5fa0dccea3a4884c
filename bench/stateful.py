"""Records per second with state: keyed count, group_by with count, both guarantees, and the restore of a store.

Each run reads topics that were filled before; a first run is not counted. Rates are measured between the first and the
last report, so they are those of a warm application. The restore rate is that of one process: it replays the changelog
partition of a store with many keys, from Kafka into RocksDB, as tasks do.

    python -m bench.stateful
"""

import argparse
import time

from bench import common, dataframe_cases
from streamrt.config import ProcessingGuarantee
from streamrt.kafka.connection import as_connection
from streamrt.models import TopicPartition
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.tasks.kafka_clients import KafkaTaskClients
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.topology import TaskId, TaskStore


def run(address: str, case: str, guarantee: ProcessingGuarantee, chosen: argparse.Namespace) -> float:
    """Process one filled topic; return input records per second."""
    source, target = common.unique("in"), common.unique("out")
    common.create_topics(address, source, target)
    common.fill(address, source, chosen.records, keys=chosen.keys)
    with common.scratch() as state_dir:
        app = common.application(address, state_dir, mode=chosen.mode, guarantee=guarantee, master=chosen.master)
        dataframe_cases.add(app, case, source, target)
        # A group_by reads each record a second time.
        rounds = 2 if case == "group_by" else 1
        return common.measure(app, rounds * chosen.records) / rounds


def run_restore(address: str, keys: int) -> float:
    """Fill a changelog and replay it into an empty store; return changelog records per second."""
    changelog = common.unique("changelog")
    common.create_topics(address, changelog, partitions=1)
    with common.scratch() as directory:
        settings = StateSettings(
            "bench", directory, None, {"in": ScopeInfo(None, 1, {"default": ChangelogSettings(changelog)})}
        )
        partition, task = TopicPartition("in", 0), TaskId("in", 0)
        clients = KafkaTaskClients(as_connection(address), "bench")
        own = {"default": TaskStore("in", StoreSpec())}
        stores = TaskStores(StoreCatalog(settings), own, task, clients, transactional=False)
        stores.open({partition: 0}, stateful=())
        state = state_of("default", stores.transaction("default"))
        for number in range(keys):
            state(b"key-%d" % number, 0).set("count", number)
        stores.prepare(clients.writer(), {partition: keys})
        clients.writer().flush()
        # Nothing was flushed to the store: it is as empty as after the loss of a disk.
        stores.close()
        begun = time.monotonic()
        stores = TaskStores(StoreCatalog(settings), own, task, clients, transactional=False)
        stores.open({partition: keys}, stateful={partition})
        seconds = time.monotonic() - begun
        stores.close()
        clients.close()
    return keys / seconds


def main() -> None:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "")
    options.add_argument("--records", type=int, default=1_000_000, help="records per run")
    options.add_argument("--keys", type=int, default=1_000, help="different keys")
    options.add_argument("--case", choices=("count", "group_by", "restore"), help="only one case")
    options.add_argument("--restored", type=int, default=500_000, help="records of the changelog that is restored")
    common.add_mode(options)
    chosen = options.parse_args()
    rows: list[list[object]] = []
    with common.broker() as address:
        for case in (chosen.case,) if chosen.case else ("count", "group_by", "restore"):
            if case == "restore":
                restored = [run_restore(address, chosen.restored) for _ in range(chosen.runs + 1)][1:]
                rows.append([case, common.median(restored), "", ""])
                continue
            rates: dict[ProcessingGuarantee, list[float]] = {guarantee: [] for guarantee in common.GUARANTEES}
            for number in range(chosen.runs + 1):
                for guarantee in common.GUARANTEES:
                    rate = run(address, case, guarantee, chosen)
                    if number:
                        rates[guarantee].append(rate)
            plain, exact = (common.median(rates[guarantee]) for guarantee in common.GUARANTEES)
            rows.append([case, plain, exact, f"{100 * (1 - exact / plain):.0f} %"])
    title = f"with state, {chosen.mode}, {chosen.keys:,} keys, 2 partitions, median of {chosen.runs}"
    common.show(title, ["case", "at-least-once /s", "exactly-once /s", "costs"], rows)


if __name__ == "__main__":
    main()
