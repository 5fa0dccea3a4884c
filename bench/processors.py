"""What process functions cost, in processor time of one process without Kafka and Spark.

- `apply`: a process function against `apply`: with a state that both read and write, with a handle, and without state. The
  operators run in turn, over stores in memory with a commit for each 10,000 records.
- `map`: one entry of a map state against a dict that is one value, for growing numbers of entries.
- `timers`: keys with a timer each, in RocksDB: to register them, to delete half of them, to fire the rest.
- `async`: calls of `apply_async` that take a millisecond, as `python -m bench.async_calls` measures them.
- `pyflink`: a count in a task beside one in a slot of PyFlink; needs `--flink`, the Python of an environment with
  PyFlink, such as the one of `make oracle`.

Ratios are those of figures of one run, so that the load of the machine counts little.

    python -m bench.processors --case apply
    python -m bench.processors --case pyflink --flink build/oracle/bin/python
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import async_calls, beside_pyflink, common
from streamrt import Application, Context, ProcessFunction, TimerContext
from streamrt.app import definition_of
from streamrt.records import Headers, Tick
from streamrt.state import MemoryStore, RocksDBStore, Stamp, State, Store, StoreIdentity, StorePartition
from streamrt.state.access.keyed_state import KeyedState
from streamrt.state.base import Transaction
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.process_functions import ProcessTransaction
from streamrt.topology import (
    AsyncCalls,
    HeldRecords,
    Node,
    PartitionSender,
    RecordHandler,
    StateAccess,
    TaskAccess,
    compose_stream,
)

CASES = ("apply", "map", "timers", "async")
_IDENTITY = StoreIdentity("bench", "in", 0, "store", None, None, 1)
_COMMIT_EVERY = 10_000


def count_in_state(value: dict[str, Any], state: State) -> int:
    """Count the records of a key."""
    count: int = state.get("n", 0) + 1
    state.set("n", count)
    return count


class CountInState(ProcessFunction):
    """The same as a process function."""

    def process_element(self, value: Any, ctx: Context) -> list[int]:
        """Process a record."""
        state = ctx.state
        count = state.get("n", 0) + 1
        state.set("n", count)
        return [count]


def count_in_handle(value: dict[str, Any], state: State) -> int:
    """Count the records of a key, with a handle."""
    count = state.value("n", default=0)
    new: int = count.value() + 1
    count.update(new)
    return new


class CountInHandle(ProcessFunction):
    """The same as a process function."""

    def process_element(self, value: Any, ctx: Context) -> list[int]:
        """Process a record."""
        count = ctx.state.value("n", default=0)
        new = count.value() + 1
        count.update(new)
        return [new]


def leave_state(value: Any, state: State) -> list[Any]:
    """Return the value alone."""
    return [value]


def pass_on(value: Any) -> list[Any]:
    """Return the value alone."""
    return [value]


def pass_on_lazily(value: Any) -> Iterator[Any]:
    """Yield the value."""
    yield value


class PassOn(ProcessFunction):
    """The same as a process function."""

    def process_element(self, value: Any, ctx: Context) -> list[Any]:
        """Process a record."""
        return [value]


class PassOnLazily(ProcessFunction):
    """The same, with yield."""

    def process_element(self, value: Any, ctx: Context) -> Iterator[Any]:
        """Process a record."""
        yield value


class WakeUp(ProcessFunction):
    """Has timers, which do nothing."""

    def process_element(self, value: Any, ctx: Context) -> None:
        """Set no timer: the benchmark does."""

    def on_timer(self, timestamp: int, ctx: TimerContext) -> None:
        """Do nothing."""


def _nothing(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
    """Take an output."""


class Bench:
    """A dataframe with one operator, over a store that commits; stands in for its task.

    Args:
        add: adds the operator to a dataframe.
        partition: the open store partition.
    """

    def __init__(self, add: Callable[[Any], Any], partition: StorePartition | None = None) -> None:
        app = Application("unused.invalid:9092", consumer_group="bench", loglevel=None)
        add(app.dataframe(app.topic("in")))
        self.partition = partition or MemoryStore("store", "in", Path("unused")).open(0)
        self.ticks: list[Callable[[Tick], None]] = []
        self._followers: list[Callable[[Any], None]] = []
        self.commits = 0
        topology = definition_of(app).topology
        stores = topology.stores("in")
        self._spec = stores[0] if stores else None
        self.transaction: Transaction | None = None
        self.process: RecordHandler = compose_stream(topology, "in", self, _nothing)["in"]
        self.begin()

    def begin(self) -> None:
        """Begin a transaction."""
        self.transaction = None if self._spec is None else self._spec.begin(self.partition)
        for changed in self._followers:
            changed(self.transaction)

    def commit(self) -> None:
        """Commit it."""
        transaction = self.transaction
        if transaction is None:
            return
        transaction.prepare()
        self.commits += 1
        transaction.flush(Stamp(_IDENTITY, self.commits, self.commits, transaction.stream_time, 0))
        self.begin()

    # What the operator asks of its task.

    def store(self, store: StoreSpec) -> Callable[[], Transaction]:
        """Return what returns the transaction, as a task does."""
        return partial(vars(self).__getitem__, "transaction")

    def follow(self, store: StoreSpec, changed: Callable[[Any], None]) -> None:
        """Keep the function."""
        self._followers.append(changed)

    def state(self, store: StoreSpec) -> StateAccess:
        """Return what returns the state, as a task does."""

        def state(key: Any, timestamp: int) -> KeyedState:
            transaction = vars(self)["transaction"]
            found: KeyedState = transaction.state(key, timestamp)
            return found

        return state

    def access(self, store: StoreSpec) -> TaskAccess:
        """Return the access to no task."""
        return TaskAccess.of_test(store.name)

    def on_tick(self, node: Node, callback: Callable[[Tick], None]) -> None:
        """Keep the function."""
        self.ticks.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Nothing ends."""

    def watch(self, kind: str, name: str, total: Callable[[], float]) -> None:
        """Nothing is counted."""

    repeats_records = False

    def when_complete(self, node: Node, work: Callable[[], None]) -> None:
        """Do it at once."""
        work()

    def begin_portion(self, node: Node) -> Callable[[], bool]:
        """Have no time slice."""
        return lambda: False

    def sender(self, topic: Any, copies: int = 0) -> RecordHandler:
        """Drop outputs."""
        return _nothing

    def partition_sender(self, topic: Any) -> tuple[PartitionSender, int]:
        """Drop outputs."""
        return lambda value, key, timestamp, headers, partition: None, 1

    def make_passage(self, topic: Any, node: Node, child: RecordHandler) -> RecordHandler:
        """Pass records on as they are: no measured frame is grouped."""
        return child

    def asynchronous(self, node: Node, calls: AsyncCalls) -> RecordHandler:
        """Drop records."""
        return _nothing

    def hold_records(self, held: HeldRecords, child: RecordHandler) -> None:
        """Let no operator keep records."""

    def sink(self, sink: Any, check: Any = None) -> RecordHandler:
        """Drop outputs."""
        return _nothing

    def show(self, node_id: int, item: Any) -> None:
        """Show nothing."""

    def run(self, records: int, keys: int) -> float:
        """Process records; return the processor time of one, in microseconds."""
        value = {"value": 5}
        names = [b"key-%d" % number for number in range(keys)]
        process = self.process
        gc.collect()
        begun = time.process_time()
        for first in range(0, records, _COMMIT_EVERY):
            for number in range(first, min(first + _COMMIT_EVERY, records)):
                process(value, names[number % keys], number, None)
            self.commit()
        return (time.process_time() - begun) / records * 1e6


def compare(chosen: argparse.Namespace) -> None:
    """Show process functions beside `apply`."""
    pairs: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
        (
            "get and set",
            lambda frame: frame.apply(count_in_state, stateful=True),
            lambda frame: frame.process(CountInState()),
        ),
        (
            "state.value",
            lambda frame: frame.apply(count_in_handle, stateful=True),
            lambda frame: frame.process(CountInHandle()),
        ),
        (
            "a list, with state that is not used",
            lambda frame: frame.apply(leave_state, expand=True, stateful=True),
            lambda frame: frame.process(PassOn()),
        ),
        (
            "a list, without state",
            lambda frame: frame.apply(pass_on, expand=True),
            lambda frame: frame.process(PassOn()),
        ),
        (
            "yield, without state",
            lambda frame: frame.apply(pass_on_lazily, expand=True),
            lambda frame: frame.process(PassOnLazily()),
        ),
    ]
    rows: list[list[object]] = []
    for name, plain, processing in pairs:
        benches = [Bench(plain), Bench(processing)]
        times: list[list[float]] = [[], []]
        for number in range(chosen.runs + 1):
            # In turn, and each of them first as often as the other.
            for index in (0, 1) if number % 2 else (1, 0):
                spent = benches[index].run(chosen.records, chosen.keys)
                if number:
                    times[index].append(spent)
        # What else the machine does makes runs slower, never faster.
        before, after = (min(each) for each in times)
        rows.append([name, f"{before:.2f}", f"{after:.2f}", f"{100 * (after / before - 1):+.0f} %"])
    common.show(f"one record, best of {chosen.runs}", ["function", "apply, µs", "process, µs", "more"], rows)


def compare_maps(chosen: argparse.Namespace) -> None:
    """Show one entry of a map beside a dict that is one value."""
    rows: list[list[object]] = []
    for entries in (10, 100, 1_000, 10_000):
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(chosen.runs):
            # In turn, and each of them first as often as the other.
            for as_map in (True, False) if number % 2 else (False, True):
                times[as_map].append(_change_entries(entries, as_map=as_map))
        found, whole = min(times[True]), min(times[False])
        rows.append([f"{entries:,}", f"{found:.1f}", f"{whole:.1f}", f"{whole / found:.1f}"])
    columns = ["entries", "state.map, µs", "a dict, µs", "times as much"]
    common.show(f"one change of one entry, with its commit, best of {chosen.runs}", columns, rows)


def _change_entries(entries: int, *, as_map: bool) -> float:
    """Change entries one by one, each in a commit; return the processor time of one change, in microseconds."""
    partition = MemoryStore("store", "in", Path("unused")).open(0)
    rounds = 500 if entries < 10_000 else 50
    begun = 0.0
    for number in range(rounds + 1):
        transaction = StoreTransaction(partition)
        state = transaction.state(b"key", number)
        if number == 0:
            everything = dict.fromkeys(map(str, range(entries)), 1)
            if as_map:
                state.map("m").put_all(everything)
            else:
                state.set("m", everything)
        elif as_map:
            found = state.map("m")
            key = str(number % entries)
            found[key] = found.get(key, 0) + 1
        else:
            whole, key = state.get("m"), str(number % entries)
            whole[key] = whole.get(key, 0) + 1
            state.set("m", whole)
        transaction.prepare()
        transaction.flush(Stamp(_IDENTITY, number + 1, number + 1, 0, 0))
        if number == 0:
            begun = time.process_time()
    return (time.process_time() - begun) / rounds * 1e6


def measure_timers(chosen: argparse.Namespace) -> None:
    """Show how many timers are registered, deleted and fired in a second."""
    kind: type[Store] = RocksDBStore
    names = [b"key-%d" % number for number in range(chosen.timers)]
    spent = dict.fromkeys(("register", "delete", "fire"), 0.0)
    with common.scratch() as folder:
        partition = kind("store", "in", folder).open(0)
        bench = Bench(lambda frame: frame.process(WakeUp(), clock="partition"), partition)

        def change(what: str, keys: list[bytes]) -> None:
            begun = time.process_time()
            for first in range(0, len(keys), _COMMIT_EVERY):
                transaction = bench.transaction
                if not isinstance(transaction, ProcessTransaction):
                    raise TypeError(f"{transaction!r} has no timers")
                timers = transaction.event_timers
                act = timers.register if what == "register" else timers.delete
                for key in keys[first : first + _COMMIT_EVERY]:
                    act(transaction.prefix_of(key), 1_000 + len(key))
                bench.commit()
            spent[what] += time.process_time() - begun

        change("register", names)
        change("delete", names[::2])
        begun = time.process_time()
        bench.process({}, b"late", 1_000_000, None)
        bench.commit()
        spent["fire"] = time.process_time() - begun
        partition.close()
    counts = {"register": len(names), "delete": len(names[::2]), "fire": len(names) - len(names[::2])}
    rows = [[what, counts[what], f"{counts[what] / seconds:,.0f}"] for what, seconds in spent.items()]
    common.show(f"{chosen.timers:,} keys with a timer, RocksDB", ["", "timers", "per second of a processor"], rows)


def main() -> None:
    """Run the benchmark and print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=20, help="measured runs, of which the best are shown")
    options.add_argument("--records", type=int, default=20_000, help="records per run")
    options.add_argument("--keys", type=int, default=1_000, help="different keys")
    options.add_argument("--timers", type=int, default=1_000_000, help="keys with a timer")
    async_calls.add_options(options)
    options.add_argument("--case", choices=(*CASES, "pyflink"), help="only one case")
    options.add_argument("--flink", metavar="PYTHON", help="for pyflink: the Python of an environment with PyFlink")
    options.add_argument("--elements", type=int, default=500_000, help="for pyflink: records of a run")
    options.add_argument("--rounds", type=int, default=3, help="for pyflink: measured runs of each side")
    chosen = options.parse_args()
    if chosen.case == "pyflink" and not chosen.flink:
        options.error("--case pyflink needs --flink, the Python of an environment with PyFlink")
    cases = {
        "apply": compare,
        "map": compare_maps,
        "timers": measure_timers,
        "async": async_calls.compare,
        "pyflink": beside_pyflink.compare,
    }
    for name in (chosen.case,) if chosen.case else CASES:
        cases[name](chosen)


if __name__ == "__main__":
    main()
