"""Tasks on clients and stores that note each step, and fail at the one that a test asks for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamrt.app import definition_of
from streamrt.kafka.client import OffsetMetadata
from streamrt.models import Headers, TopicPartition
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.stores.store_catalog import StoreCatalog
from streamrt.runtime.tasks.stores.task_stores import TaskStores
from streamrt.runtime.tasks.task_clients import TransactionalRecordWriter
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.state import MemoryStore, State, Store, StorePartition
from streamrt.state.changelog import POSITION_KEY
from streamrt.state.spec import StoreSpec
from streamrt.state.transactions.keyed import state_of
from streamrt.testing.memory import MemoryClients
from streamrt.topology import TaskId, TaskStore
from tests.unit.apps import application
from tests.unit.tasks import PLACE, TASK, Process

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("in", 1)
OTHER_TASK = TaskId("in", 1)


class Clients(MemoryClients):
    """Writes down what is asked of Kafka, and fails as told."""

    def __init__(self) -> None:
        super().__init__(lambda: 1_000)
        self.calls: list[str] = []
        self.troubles: dict[str, Exception] = {}
        self.lost: list[Exception] = []
        # How many partitions each request for ends was about.
        self.requests: list[int] = []

    def call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.troubles:
            raise self.troubles.pop(name)

    def kept(self, task: TaskId) -> TransactionalRecordWriter | None:
        self.call("reuse")
        return Transaction(self)

    def transactional(self, task: TaskId, owner: TopicPartition) -> TransactionalRecordWriter:
        self.call("init")
        return Transaction(self)

    delivered = True

    def send_pending(self) -> None: ...

    def release(self, task: TaskId) -> None:
        self.call("release")

    def committed(self, place: TopicPartition) -> int | None:
        self.call("committed")
        return super().committed(place)

    def bounds(self, place: TopicPartition) -> tuple[int, int]:
        self.call("bounds")
        return super().bounds(place)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        places = list(places)
        self.requests.append(len(places))
        return super().ends(places)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        self.call("position" if key == POSITION_KEY else topic)
        super().produce(topic, value, key, timestamp, headers, partition)

    def flush(self) -> list[Exception]:
        self.call("flush")
        lost, self.lost = self.lost, []
        return lost


class Transaction:
    """A transaction whose records are written when it is committed."""

    usable = True

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._held: list[tuple[Any, ...]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers | None,
        partition: int = -1,
    ) -> None:
        self._clients.call("position" if key == POSITION_KEY else topic)
        self._held.append((topic, value, key, timestamp, headers, partition))

    def flush(self) -> list[Exception]:
        return []

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: OffsetMetadata = None) -> None:
        self._clients.call("commit")
        for record in self._held:
            MemoryClients.produce(self._clients, *record)
        touched = {LOG} if any(record[0] == "log" for record in self._held) else set()
        self._clients.end_transaction(touched, offsets, metadata)

    def abort(self) -> None:
        self._clients.call("abort")


class Damaged(StorePartition):
    """A store partition that turns out to be damaged, or that cannot be written."""

    def __init__(self, inner: StorePartition, calls: list[str], troubles: dict[str, Exception]) -> None:
        self._inner, self._calls, self._troubles = inner, calls, troubles

    def _call(self, name: str) -> None:
        if name in self._troubles:
            raise self._troubles.pop(name)

    @property
    def stamp(self) -> Any:
        return self._inner.stamp

    def get(self, key: bytes) -> bytes | None:
        self._call("store get")
        return self._inner.get(key)

    def scan(self, start: bytes, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._call("store scan")
        return self._inner.scan(start, end, reverse=reverse)

    def write(self, changes: Any, stamp: Any) -> None:
        self._calls.append("store")
        self._call("store write")
        self._inner.write(changes, stamp)

    def approximate_size(self) -> int:
        return self._inner.approximate_size()

    def close(self) -> None:
        self._inner.close()
        self._call("store close")


class Catalog(StoreCatalog):
    """Gives stores that fail as told."""

    def __init__(self, settings: StateSettings, clients: Clients) -> None:
        super().__init__(settings)
        self.disk = MemoryStore("default", "in", Path("unused"))
        self.destroyed = 0
        outer = self

        class Disk(MemoryStore):
            def open(self, partition: int) -> Any:
                if "store open" in clients.troubles:
                    raise clients.troubles.pop("store open")
                return Damaged(outer.disk.open(partition), clients.calls, clients.troubles)

            def destroy(self, partition: int) -> None:
                outer.destroyed += 1
                outer.disk.destroy(partition)

        self._store = Disk("default", "in", Path("unused"))

    def store(self, topic: str, spec: StoreSpec) -> Store:
        return self._store


def count(value: int, state: State) -> int:
    number: int = state.get("n", 0) + 1
    state.set("n", number)
    return number


class World:
    """An application of one topic, with what its tasks run on."""

    def __init__(
        self, *, transactional: bool = True, stateful: bool = True, changelog: bool = True, **settings: Any
    ) -> None:
        guarantee: Any = "exactly-once" if transactional else "at-least-once"
        app = application(processing_guarantee=guarantee, **settings)
        sdf = app.dataframe(app.topic("in"))
        sdf = sdf.apply(count, stateful=True) if stateful else sdf
        sdf.to_topic(app.topic("out"))
        stores = {"default": ChangelogSettings("log") if changelog else None} if stateful else {}
        state = StateSettings("group", Path("unused"), None, {"in": ScopeInfo(None, 2, stores)})
        spec = definition_of(app).task_spec(count_outputs=True, collect=True)
        self.clients = Clients()
        self.catalog = Catalog(state, self.clients)
        self.tasks = TaskExecutor(replace(spec, state=state), self.clients, self.catalog)
        self._process = Process(self.tasks, app.config.processing_mode)

    def run(self, *chunks: Any, **context: Any) -> Report:
        """Process chunks in one batch, in which each task is opened for the first time."""
        calls = self.clients.calls
        try:
            return self._process.run(chunks, BatchContext(**context))
        finally:
            # What letting go asks for is not a part of the batch.
            self.clients.calls = []
            self._process.let_go()
            self.clients.calls = calls

    @property
    def counted(self) -> int:
        """Count in the state of the key None, which also shows that no one holds the store."""
        spec = self.tasks.spec
        stores = TaskStores(
            self.catalog, {"default": TaskStore("in", StoreSpec())}, TASK, self.clients, transactional=False
        )
        assert spec.state is not None
        stores.open({PLACE: 0}, stateful=())
        try:
            number: int = state_of("default", stores.transaction("default"))(None, 0).get("n", 0)
            return number
        finally:
            stores.close()
