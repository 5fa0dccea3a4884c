"""The application that the simulator runs, and a naive model of it: the same functions over a dictionary."""

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import orjson

from streamrt import Application, WatermarkStrategy
from streamrt.app import definition_of
from streamrt.connectors import BatchingSink, SinkBatch, SinkCommit, SinkPosition, TransactionalSink
from streamrt.errors import SinkFencedError
from streamrt.models import TopicPartition
from streamrt.operators import Apply
from streamrt.runtime.metadata import CommitMetadata
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.spec import TaskSpec
from streamrt.state import Stamp, State
from streamrt.state.layout import BYTES_KEY, DATA_SPACE, JSON_KEY, Expiring, decode_value, record_prefix
from streamrt.state.spec import StoreSpec
from streamrt.testing.driver.lookups import bind_lookups
from streamrt.topics import changelog_topic_name
from streamrt.topology.graph import stream_id
from tests.sim.broadcasting import COPIES, Judge, JudgeModel
from tests.sim.broker import TOMBSTONES_KEPT_MS, Entry
from tests.sim.calls import CAPACITY, later
from tests.sim.deriving import (
    RESULT,
    TWO_INPUTS,
    catalog_of_tables,
    declare_derived,
    streams_of,
    topics_of,
)
from tests.sim.maintaining import MAINTAINED
from tests.sim.meeting import FAR, Meet, inputs_of, match
from tests.sim.processing import KEPT_SPACES, Remind, RemindModel, twins
from tests.sim.relating import GROUPS, declare_tables
from tests.sim.viewing import BEGINNING, declare_view, shape_of
from tests.sim.windows import declare_windows

GROUP = "sim"
SOURCE, OTHER, OUT, GROUPED_OUT, AGAIN_OUT, COPY = "in", "other", "out", "grouped", "again", "copy"
REPARTITION, AGAIN = "repartition__sim--in--g", "repartition__sim--repartition.in.g--h"
REPARTITIONS = (REPARTITION, AGAIN)
SECOND = StoreSpec("second")
_SHORT = timedelta(milliseconds=40)


def tally(value: dict[str, Any], key: Any, timestamp: int, headers: Any, state: State) -> dict[str, Any]:
    """Count and sum; what is in the state shows in the output."""
    n, total = state.get("n", 0) + 1, state.get("sum", 0) + value["u"]
    recent, mark = state.get("recent", 0) + 1, state.get("mark")
    state.set("n", n)
    state.set("sum", total)
    state.set("recent", recent, ttl=_SHORT)
    if value["u"] % 3 == 0:
        state.delete("mark")
    else:
        state.set("mark", value["u"])
    # Entries that come and go, so that changelogs have tombstones that compaction forgets.
    state.set(("seen", value["u"]), 1)
    if mark is not None:
        state.delete(("seen", mark))
    return {**value, "n": n, "sum": total, "recent": recent, "mark": mark}


def square(value: dict[str, Any]) -> dict[str, Any]:
    """Do something without state."""
    return {**value, "square": value["u"] ** 2}


def tally_again(value: dict[str, Any], key: Any, timestamp: int, headers: Any, state: State) -> dict[str, Any]:
    """Count every other record in a second store."""
    m = state.get("m", 0)
    if value["u"] % 2:
        m += 1
        state.set("m", m)
    return {**value, "m": m}


class Paced:
    """A function of a user that may take its time. The model calls the function itself.

    Args:
        function: what is called.
    """

    pause: ClassVar[Callable[[dict[str, Any]], None] | None] = None
    """Takes the time, given the value of the record."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, value: dict[str, Any], *rest: Any) -> Any:
        if Paced.pause is not None:
            Paced.pause(value)
        return self._function(value, *rest)


class SimSink(BatchingSink):
    """A sink of the first stage. Each process has a copy, which knows the process."""

    step: Callable[[str], None] | None = None
    written: list[tuple[TopicPartition, int]] | None = None

    def write(self, batch: SinkBatch) -> None:
        assert self.step is not None
        assert self.written is not None
        self.step("sink write")
        self.written += [(TopicPartition(batch.topic, batch.partition), item.offset) for item in batch]
        self.step("sink written")


class WholeSimSink(SimSink):
    """One that does not say how to flush the records of only one partition."""

    def flush(self) -> None:
        super().flush()


@dataclass
class SimDatabase:
    """Database that transactional sinks of all processes write to.

    Attributes:
        rows: the values, with the input partition and the offset.
        positions: the positions.
    """

    rows: list[tuple[TopicPartition, int, Any]] = field(default_factory=list)
    positions: dict[tuple[str, str, str, int], SinkPosition] = field(default_factory=dict)


class TransactionalSimSink(TransactionalSink):
    """A sink of the first stage that stores positions with values."""

    destination = "database"
    step: Callable[[str], None] | None = None
    database: SimDatabase | None = None

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:
        assert self.step is not None
        assert self.database is not None
        self.step("sink positions")
        stored = self.database.positions
        found = {each: stored.get((group, self.name, *each)) for each in partitions}
        return {each: position for each, position in found.items() if position is not None}

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:
        assert self.step is not None
        assert self.database is not None
        self.step("sink write")
        for each, change in commit.positions.items():
            if self.fences() and self.database.positions.get((commit.group, self.name, *each)) != change.before:
                raise SinkFencedError(f"{each} is not at {change.before}")
        for batch in batches:
            place = TopicPartition(batch.topic, batch.partition)
            self.database.rows += [(place, item.offset, item.value) for item in batch]
        self.store({(commit.group, self.name, *each): change.after for each, change in commit.positions.items()})
        self.step("sink written")

    def fences(self) -> bool:
        """Return whether positions are compared; a mutant does not."""
        return True

    def store(self, positions: Mapping[tuple[str, str, str, int], SinkPosition]) -> None:
        """Store positions; a mutant does so in another transaction."""
        assert self.database is not None
        self.database.positions.update(positions)


@dataclass(frozen=True)
class Setup:
    """Parts that the application has.

    Attributes:
        transactional: whether commits are exactly-once.
        stateful: whether the first stage has state.
        grouped: whether there is a second stage behind a `group_by`.
        regrouped: whether there is a third stage behind a second `group_by`.
        processing: whether the first stage is a process function, and all there is.
        expanding: whether each record becomes two above it, and each timer, or step of other work, ends a portion.
        asynchronous: whether asynchronous calls are above the first stage.
        joining: how two frames meet behind exchanges, which is all there is; empty if they do not: see `tests.sim.joining`.
        relating: how two tables are joined, which is all there is, with an aggregate of the join; empty if they are not: see
            `tests.sim.relating`.
        deriving: which table is derived behind exchanges, which is all there is; empty if none is: see `tests.sim.deriving`.
        viewing: which view in SQL there is, which is all there is; empty if there is none: see `tests.sim.viewing`.
        broadcasting: whether the records of a second topic are broadcast to a process function, which is all there is.
        windowed: whether there are windows by watermark behind a `group_by`, whose results the application reads again;
            that is all there is.
        held: whether the watermark stands still while all partitions are idle.
        second: whether the first stage has a second store.
        merged: whether the first stage reads two topics; then there is no second one.
        sink: class of the sink of the first stage; None for none.
    """

    transactional: bool
    stateful: bool
    grouped: bool
    second: bool
    merged: bool = False
    sink: type[SimSink] | type[TransactionalSimSink] | None = None
    regrouped: bool = False
    processing: bool = False
    expanding: bool = False
    asynchronous: bool = False
    broadcasting: bool = False
    windowed: bool = False
    held: bool = False
    joining: str = ""
    relating: str = ""
    deriving: str = ""
    viewing: str = ""

    @property
    def timed(self) -> bool:
        """Whether there are timers."""
        return self.processing or self.broadcasting or bool(self.joining or self.deriving or self.viewing)

    @property
    def leaves_work(self) -> bool:
        """Whether tasks have work without a record: what portions leave, or rows that are there before all records."""
        return self.expanding or self.viewing in BEGINNING

    @property
    def has_own_objects(self) -> bool:
        """Whether each process needs a copy of its own of the operators."""
        return self.sink is not None or self.broadcasting or bool(self.joining)

    @property
    def has_several_inputs(self) -> bool:
        """Whether tasks have several inputs."""
        meets = bool(self.joining or self.relating or self.viewing) or self.deriving in TWO_INPUTS
        return self.merged or self.broadcasting or meets

    @property
    def _is_captured(self) -> bool:
        return self.deriving in ("rows", "history", *MAINTAINED)

    @property
    def _by_foreign_key(self) -> bool:
        return self.deriving.startswith("foreign")

    @property
    def sources(self) -> tuple[str, ...]:
        if self.relating:
            return (SOURCE, OTHER, GROUPS)
        if self.deriving:
            return topics_of(self.deriving)
        if self.viewing:
            return shape_of(self.viewing).sources
        if self.broadcasting:
            return (SOURCE, OTHER, COPIES)
        if self.windowed:
            return (SOURCE, REPARTITION, OUT)
        if self.joining:
            far = (FAR,) if self.joining == "chain" else ()
            return tuple(dict.fromkeys((SOURCE, OTHER, *far, *inputs_of(self.joining))))
        if self.regrouped:
            return (SOURCE, REPARTITION, AGAIN)
        return (SOURCE, OTHER) if self.merged else (SOURCE, REPARTITION) if self.grouped else (SOURCE,)

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """The topics of each stream."""
        if self.relating:
            return {f"{SOURCE}--{OTHER}": (SOURCE, OTHER), GROUPS: (GROUPS,)}
        if self.deriving:
            return streams_of(self.deriving)
        if self.viewing:
            return shape_of(self.viewing).streams
        if self.broadcasting:
            return {OTHER: (OTHER,), f"{SOURCE}--{COPIES}": (SOURCE, COPIES)}
        if self.joining:
            merged = tuple(sorted(inputs_of(self.joining)))
            alone = {topic: (topic,) for topic in self.sources if topic not in merged}
            return {**alone, stream_id(merged): merged}
        return {f"{SOURCE}--{OTHER}": self.sources} if self.merged else {topic: (topic,) for topic in self.sources}

    @property
    def scopes(self) -> dict[str, tuple[str, ...]]:
        """The topics of each scope, whose stores have partitions of their own."""
        if self.viewing:
            return shape_of(self.viewing).scopes
        return (
            {SOURCE: (SOURCE,), OTHER: (OTHER,), **self.streams}
            if self.relating or self._by_foreign_key
            else self.streams
        )

    def sinks(self, topic: str) -> tuple[str, ...]:
        """Return the topics that the records of a source or of a stream lead to."""
        if self.relating:
            return (GROUPED_OUT,) if topic == GROUPS else (OUT, GROUPS)
        if self.deriving:
            return (*topics_of(self.deriving)[1:], RESULT, *((f"sim.{self.deriving}",) if self._is_captured else ()))
        if self.viewing:
            return shape_of(self.viewing).sinks
        if topic == AGAIN:
            return (AGAIN_OUT,)
        if self.windowed:
            return {SOURCE: (REPARTITION,), REPARTITION: (OUT,), OUT: (COPY,)}[topic]
        if self.joining:
            return (OUT,)
        if self.broadcasting:
            return (COPIES,) if topic == OTHER else (OUT,)
        if topic == REPARTITION:
            return (GROUPED_OUT, AGAIN) if self.regrouped else (GROUPED_OUT,)
        return (OUT, REPARTITION) if self.grouped else (OUT,)


def _first_stage(sdf: Any, setup: Setup) -> Any:
    sdf = sdf.apply(Paced(tally), stateful=True, metadata=True) if setup.stateful else sdf.apply(Paced(square))
    if setup.stateful and setup.second:
        sdf = sdf._add_operator(Apply(tally_again, False, True, SECOND))
    return sdf


@functools.cache
def specification(setup: Setup, partitions: int) -> TaskSpec:
    """Return what tasks run."""
    guarantee: Any = "exactly-once" if setup.transactional else "at-least-once"
    catalog = catalog_of_tables() if setup.deriving else None
    app = Application(
        "unused.invalid:9092", consumer_group=GROUP, processing_guarantee=guarantee, loglevel=None, catalog=catalog
    )
    if setup.windowed:
        return _spec_of(declare_windows(app, held=setup.held), setup, partitions)
    if setup.joining:
        return _spec_of(_joining(app, setup), setup, partitions)
    if setup.relating:
        return _spec_of(declare_tables(app, setup.relating, rows_in_groups=setup.transactional), setup, partitions)
    if setup.deriving:
        return _spec_of(declare_derived(app, setup.deriving), setup, partitions)
    if setup.viewing:
        return _spec_of(declare_view(app, setup.viewing), setup, partitions)
    sdf = app.dataframe(app.topic(SOURCE))
    sdf = sdf.concat(app.dataframe(app.topic(OTHER))) if setup.merged else sdf
    sdf = sdf.apply_async(later, timeout=60_000, capacity=CAPACITY) if setup.asynchronous else sdf
    if setup.broadcasting:
        rules = app.dataframe(app.topic(OTHER)).broadcast()
        sdf = sdf.connect(rules).process(Judge(), clock="partition")
    else:
        sdf = sdf.apply(twins, expand=True) if setup.expanding else sdf
        sdf = sdf.process(Remind(), clock="partition") if setup.processing else _first_stage(sdf, setup)
    sdf.to_topic(app.topic(OUT))
    if setup.sink is not None:
        sdf.sink(setup.sink())
    if setup.grouped:
        grouped = sdf.group_by("g").apply(Paced(tally), stateful=True, metadata=True)
        grouped.to_topic(app.topic(GROUPED_OUT, key_serializer="json"))
        if setup.regrouped:
            again = grouped.group_by("h").apply(Paced(tally), stateful=True, metadata=True)
            again.to_topic(app.topic(AGAIN_OUT, key_serializer="json"))
    return _spec_of(app, setup, partitions)


def _joining(app: Application, setup: Setup) -> Application:
    """Declare frames that meet. No input counts as idle: nothing else says how slow a simulated task is."""
    never = WatermarkStrategy(idle_timeout=None)
    keys: Any = "json" if setup.joining == "mixed" else "bytes"
    left = app.dataframe(app.topic(SOURCE, key_deserializer=keys, watermark_strategy=never))
    right = app.dataframe(app.topic(OTHER, watermark_strategy=never))
    left = left if setup.joining == "mixed" else left.group_by("g")
    right = right.group_by("h") if setup.joining == "chain" else right
    right = right.group_by("g")
    if setup.joining == "asof":
        met = left.join_asof(right, how="left", on_merge=match)
    else:
        met = left.connect(right).process(Meet(), clock="partition")
    met.to_topic(app.topic(OUT))
    return app


def _spec_of(app: Application, setup: Setup, partitions: int) -> TaskSpec:
    spec = definition_of(app).task_spec(count_outputs=True)
    # Tables have no rows before, and no broker.
    spec = replace(spec, topology=bind_lookups(spec.topology, lambda table: table))
    inputs = [topic for topic in setup.sources if topic not in spec.topology.exchanges]
    if setup.broadcasting or setup.windowed or setup.joining or setup.relating or setup.deriving or setup.viewing:
        spec = replace(spec, topology=spec.topology.resolve(dict.fromkeys(inputs, partitions)))
    sources = {}
    for topic, members in setup.scopes.items():
        if not spec.topology.stores(topic):
            continue
        names = {store.name: changelog_topic_name(GROUP, topic, store.name) for store in spec.topology.stores(topic)}
        changelogs = {
            store: ChangelogSettings(name, f"id of {name}", TOMBSTONES_KEPT_MS // 2) for store, name in names.items()
        }
        ids = ",".join(f"id of {member}" for member in members)
        sources[topic] = ScopeInfo(ids, partitions, changelogs, members if len(members) > 1 else ())
    state = StateSettings(GROUP, Path("unused"), None, sources)
    first_counts = dict.fromkeys(inputs, partitions)
    return replace(spec, state=state, commit_metadata=CommitMetadata.of(state, setup.streams, None, first_counts))


def changelogs(spec: TaskSpec) -> dict[tuple[str, str], str]:
    """Return the names of the changelog topics by source topic, or topics, and store."""
    assert spec.state is not None
    return {
        (topic, store): changelog.topic
        for topic, source in spec.state.sources.items()
        for store, changelog in source.stores.items()
        if changelog is not None
    }


# -- The model -----------------------------------------------------------------------------------------------------


@dataclass
class ModelStore:
    """The state of one partition: payload and expiry by record key and state key, and stream time."""

    entries: dict[tuple[bytes, bytes], tuple[bytes, int | None]] = field(default_factory=dict)
    time: int | None = None

    def dump(self) -> dict[bytes, bytes]:
        """Return what is visible, by key of the store."""
        return {
            prefix + key: payload
            for (prefix, key), (payload, expiry) in self.entries.items()
            if expiry is None or self.time is None or expiry > self.time
        }


class ModelState:
    """A naive `State`, without handles."""

    def __init__(self, store: ModelStore, prefix: bytes, timestamp: int) -> None:
        self._store = store
        self._prefix = prefix
        self._written = store.time = timestamp if store.time is None else max(store.time, timestamp)

    def get(self, key: Any, default: Any = None) -> Any:
        payload = self.get_bytes(key)
        return default if payload is None else orjson.loads(payload)

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        payload, expiry = self._store.entries.get((self._prefix, orjson.dumps(key)), (default, None))
        return default if expiry is not None and expiry <= (self._store.time or 0) else payload

    def set(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        self.set_bytes(key, orjson.dumps(value), ttl)

    def set_bytes(self, key: Any, value: bytes, ttl: timedelta | None = None) -> None:
        expiry = None if ttl is None else self._written + ttl // timedelta(milliseconds=1)
        self._store.entries[self._prefix, orjson.dumps(key)] = (value, expiry)

    def delete(self, key: Any) -> None:
        self._store.entries.pop((self._prefix, orjson.dumps(key)), None)

    def exists(self, key: Any) -> bool:
        return self.get_bytes(key) is not None


class Model:
    """Model of what one task should do.

    Args:
        setup: the application.
        stream: the stream.
        ended: whether time ends after the records.
    """

    def __init__(self, setup: Setup, stream: str, *, ended: bool = False) -> None:
        self._ended = ended
        self._processing: JudgeModel | RemindModel | None = None
        if setup.broadcasting or setup.processing:
            self._processing = JudgeModel() if setup.broadcasting else RemindModel(setup.expanding)
        self._grouped = stream in REPARTITIONS
        self._functions: list[Callable[..., dict[str, Any]]] = [tally]
        if not self._grouped and not setup.stateful:
            self._functions = []
        elif not self._grouped and setup.second:
            self._functions.append(tally_again)
        self._stores = [ModelStore() for _ in self._functions]

    def dump(self, store: str) -> dict[bytes, bytes]:
        """Return what is in a store."""
        if self._processing is not None:
            return self._processing.dump()
        return self._stores[store == SECOND.name].dump()

    def run(self, records: Iterable[Entry]) -> list[tuple[bytes, dict[str, Any]]]:
        """Process records; return keys and values of the outputs."""
        if self._processing is not None:
            found = self._processing.run(records)
            if self._ended and isinstance(self._processing, RemindModel):
                found += self._processing.end()
            return found
        outputs = []
        for record in records:
            value, key = orjson.loads(record.value or b"null"), record.key or b""
            if not self._functions:
                value = square(value)
            prefix = record_prefix(JSON_KEY if self._grouped else BYTES_KEY, key)
            for store, function in zip(self._stores, self._functions, strict=True):
                state = ModelState(store, prefix, record.timestamp)
                value = function(value, key, record.timestamp, None, state)
            outputs.append((key, value))
        return outputs


def merged(histories: Iterable[list[Entry]]) -> list[Entry]:
    """Return the records of several inputs, given in the order of their names, as a task takes them."""
    left = [deque(history) for history in histories]
    result = []
    while any(left):
        # Of equal timestamps, min() takes the first.
        result.append(min((each for each in left if each), key=lambda each: each[0].timestamp).popleft())
    return result


def visible_state(entries: dict[bytes, bytes], stamp: Stamp) -> dict[bytes, bytes]:
    """Return what operators would see of a store partition, by key of the store."""
    found = {}
    for key, data in entries.items():
        if key[0] != DATA_SPACE and key[0] not in KEPT_SPACES:
            continue
        value = decode_value(data)
        if isinstance(value, Expiring):
            if stamp.stream_time is not None and value.expiry <= stamp.stream_time:
                continue
            value = value.payload
        found[key] = value
    return found


def target_key(sink: str, key: bytes, value: Mapping[str, Any]) -> bytes:
    """Return the key of an output, as it is in a topic."""
    return orjson.dumps(value["g" if sink == REPARTITION else "h"]) if sink in REPARTITIONS else key


def unique_id(entry: Entry) -> int:
    """Return the id that tells an input, and what came of it, from all others."""
    return int(orjson.loads(entry.value or b"")["u"])
