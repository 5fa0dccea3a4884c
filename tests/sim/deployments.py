"""Deployments in the simulator: versions of the application with other merges and stores follow each other, and roll back.

Processes of former versions may be suspended meanwhile, and go on when the next version works. The outputs tell which store
they were counted in, so what must hold needs no model: exactly once, each counter goes up by one from output to output; at
least once, it is never lower than the number of the records that were committed with it.
"""

import functools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import ChangelogError
from streamrt.models import TopicPartition
from streamrt.operators import Apply
from streamrt.runtime.metadata import CommitMetadata, without_store
from streamrt.runtime.placement import ChangelogSettings, ScopeInfo, StateSettings
from streamrt.runtime.report import Report
from streamrt.runtime.spec import TaskSpec
from streamrt.state import State
from streamrt.topics import changelog_topic_name
from streamrt.topology import TaskId
from tests.sim.app import GROUP, OTHER, OUT, SECOND, SOURCE, Paced, Setup, unique_id, visible_state
from tests.sim.broker import TOMBSTONES_KEPT_MS, Log
from tests.sim.checks import Checks
from tests.sim.driver import Attempt, Driver, Wrong, find_start
from tests.sim.simulation import Faults, Process, Simulation
from tests.sim.stores import Machine

BOTH = f"{SOURCE}--{OTHER}"
Store = tuple[str, str]
"""Scope and name."""


def tally(scope: str, value: dict[str, Any], key: Any, timestamp: int, headers: Any, state: State) -> dict[str, Any]:
    """Count, and tell where."""
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {**value, "counts": {**value.get("counts", {}), f"{scope}/default": n}}


def tally_again(
    scope: str, value: dict[str, Any], key: Any, timestamp: int, headers: Any, state: State
) -> dict[str, Any]:
    """Count in a second store."""
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {**value, "counts": {**value.get("counts", {}), f"{scope}/{SECOND.name}": n}}


@dataclass(frozen=True)
class Version(Setup):
    """One version of the application.

    Attributes:
        topics: what it reads.
    """

    topics: tuple[str, ...] = (SOURCE, OTHER)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.topics

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        return {BOTH: self.topics} if self.merged else {topic: (topic,) for topic in self.topics}

    def sinks(self, topic: str) -> tuple[str, ...]:
        return (OUT,)

    @property
    def stores(self) -> list[Store]:
        """The stores that it has."""
        names = ("default", SECOND.name) if self.second else ("default",)
        return [(stream, name) for stream in self.streams for name in names]


def versions(transactional: bool) -> list[Version]:
    """Return all versions; the first ones read both topics."""
    whole = [
        Version(transactional, True, False, second, merged) for merged in (False, True) for second in (False, True)
    ]
    return [*whole, *(Version(transactional, True, False, False, topics=(topic,)) for topic in (SOURCE, OTHER))]


@functools.cache
def _topology(version: Version) -> TaskSpec:
    guarantee: Any = "exactly-once" if version.transactional else "at-least-once"
    app = Application("unused.invalid:9092", consumer_group=GROUP, processing_guarantee=guarantee, loglevel=None)
    frames = [app.dataframe(app.topic(topic)) for topic in version.topics]
    if version.merged:
        frames = [frames[0].concat(frames[1])]
    for frame, scope in zip(frames, version.streams, strict=True):
        counted = frame.apply(Paced(functools.partial(tally, scope)), stateful=True, metadata=True)
        if version.second:
            counted = counted._add_operator(Apply(functools.partial(tally_again, scope), False, True, SECOND))
        counted.to_topic(app.topic(OUT))
    return definition_of(app).task_spec(count_outputs=True)


def specification(version: Version, partitions: int, incarnations: Mapping[Store, int]) -> TaskSpec:
    """Return what tasks run, with the changelogs that there are."""
    spec = _topology(version)
    sources = {}
    for scope, members in version.streams.items():
        logs: dict[str, ChangelogSettings | None] = {}
        for store in spec.topology.stores(scope):
            name = changelog_topic_name(GROUP, scope, store.name)
            made = incarnations.get((scope, store.name), 0)
            logs[store.name] = ChangelogSettings(name, f"{name} {made}", TOMBSTONES_KEPT_MS // 2)
        ids = ",".join(f"id of {member}" for member in members)
        sources[scope] = ScopeInfo(ids, partitions, logs, members if len(members) > 1 else ())
    state = StateSettings(GROUP, Path("unused"), None, sources)
    return replace(spec, state=state, commit_metadata=CommitMetadata.of(state, version.streams))


class DeploymentSimulation(Simulation):
    """A world in which versions of the application follow each other."""

    mode = "deployments"

    def __init__(
        self,
        seed: int,
        setup: Setup | None = None,
        faults: Faults | None = None,
        mutant: str = "",
        transactional: bool | None = None,
        sinks: bool = False,
    ) -> None:
        own = random.Random(f"deployments {seed}")
        guarantee = own.random() < 0.6 if transactional is None else transactional
        super().__init__(seed, Setup(guarantee, True, False, False, True), faults, mutant, pauses=False)
        # Versions merge other inputs, see `_retain`.
        self.deletions = 0.0
        if faults is None:
            self.faults.zombies = True
        self.versions = versions(guarantee)
        self.incarnations: Counter[Store] = Counter()
        self.began: dict[Store, dict[TopicPartition, int]] = {}
        """Where the outputs were when a store began."""
        self.credited: dict[Store, Counter[bytes]] = {}
        """At least once, how many records of a key were committed with a store."""
        for version in self.versions:
            for scope, store in version.stores:
                name = changelog_topic_name(GROUP, scope, store)
                self.broker.topics[name] = self.partitions
                for number in range(self.partitions):
                    self.broker.logs.setdefault(TopicPartition(name, number), Log())
                self.credited[scope, store] = Counter()
        self.checks = DeploymentChecks(self)
        self._use(self.rng.choice(self.versions))
        self.driver = Driver(self)

    # -- Versions ------------------------------------------------------------------------------------------------------

    def _use(self, version: Version) -> None:
        self.setup = self.version = version
        self.spec = specification(version, self.partitions, self.incarnations)
        assert self.spec.state is not None
        self.changelogs = {
            (scope, store): log.topic
            for scope, source in self.spec.state.sources.items()
            for store, log in source.stores.items()
            if log is not None
        }
        numbers = range(self.partitions)
        self.inputs = [TopicPartition(topic, number) for topic in version.sources for number in numbers]
        self.tasks = [TaskId(stream, number) for stream in version.streams for number in numbers]
        self._homes.clear()

    def deploy(self, version: Version) -> None:
        """Let a version follow the one that runs. What is suspended goes on later; stores that it lacked begin again."""
        self._happens("deployment", f"{version.streams} with {'two stores' if version.second else 'one store'} begins")
        self._use(version)
        for process in [one for one in self._processes if not one.busy]:
            self.kill(process)
        for _ in version.stores:
            try:
                find_start(self, self.inputs)
            except ChangelogError as refusal:
                self._forget(refusal)
        self.driver = Driver(self)

    def _forget(self, refusal: ChangelogError) -> None:
        """Do what `streamrt state forget` does, while nothing runs."""
        words = str(refusal).partition("`streamrt state forget ")[2].partition("`")[0].split()
        scope, store = (
            "--".join(sorted(words[index + 1] for index, word in enumerate(words) if word == "--topic")),
            words[-1],
        )
        if (scope, store) not in self.changelogs:
            raise Wrong(f"the application ends: {refusal}")
        self._happens("forgotten", f"store {store} of {scope} begins again")
        for process in list(self._processes):
            self.kill(process)
        self.broker.end_all()
        for place, (at, text) in list(self.broker.offsets.items()):
            self.broker.offsets[place] = at, text if text is None else without_store(text, scope, store)
        for number in range(self.partitions):
            self.broker.logs[TopicPartition(self.changelogs[scope, store], number)] = Log()
        self.incarnations[scope, store] += 1
        self.began[scope, store] = {place: log.end for place, log in self.broker.logs.items() if place.topic == OUT}
        self.credited[scope, store].clear()
        self._use(self.version)

    def process(self, task: TaskId) -> Process:
        for process in [one for one in self._processes if not one.busy and one.tasks.spec is not self.spec]:
            self.kill(process)
        return super().process(task)

    def credit(self, offsets: Mapping[TopicPartition, int], former: Mapping[TopicPartition, int]) -> None:
        """Note what was committed at least once."""
        for place, end in offsets.items():
            records = [entry for entry in self.broker.logs[place].history(end) if entry.offset >= former.get(place, 0)]
            for scope, store in self.version.stores:
                if place.topic in self.version.streams[scope]:
                    self.credited[scope, store].update(entry.key or b"" for entry in records)

    # -- The run -------------------------------------------------------------------------------------------------------

    def _cycle(self, batches: int) -> bool:
        if not self.calm and self.rng.random() < 0.25 and len(self._stack) <= 1:
            self.deploy(self.rng.choice(self.versions))
        try:
            return super()._cycle(batches)
        except ChangelogError as refusal:
            if self.setup.transactional:
                raise
            # A version that is over has written to the changelog of a store that had just begun.
            self._forget(refusal)
            self.driver = Driver(self)
            return False

    def _finish(self) -> None:
        self.deploy(self.rng.choice(self.versions[:4]))
        super()._finish()

    def take_over(self, whole: bool) -> None:
        if self.rng.random() < 0.6:
            self.deploy(self.rng.choice(self.versions))
        super().take_over(whole)

    def start_twin(self) -> None:
        attempt: Attempt | None = self._stack[-1][1]
        if attempt is not None and self._stack[-1][0].tasks.spec is self.spec:
            super().start_twin()


class DeploymentChecks(Checks):
    """Checks that must hold whatever versions there were."""

    _sim: DeploymentSimulation

    def failure(self, report: Report) -> None:
        """Let the application forget a store if the restore asks for it. At least once, only the restore can know.

        A process that has lost a partition may have written a later position to the changelog, which the start believes.
        """
        cause = None if report.failure is None else report.failure.cause
        if (
            isinstance(cause, ChangelogError)
            and "`streamrt state forget" in str(cause)
            and not self._sim.setup.transactional
        ):
            raise cause
        super().failure(report)

    def outputs(self, *, final: bool = False) -> None:
        sim = self._sim
        if sim.setup.transactional:
            self._counters()
        if not final:
            return
        found = [unique_id(entry) for log in self._logs(OUT) for entry in log.history()]
        wanted = sorted(unique_id(entry) for place in sim.inputs for entry in sim.broker.logs[place].history())
        if sim.setup.transactional and sorted(found) != wanted:
            raise Wrong(f"the outputs are of {sorted(found)} instead of {wanted}")
        if set(found) != set(wanted):
            raise Wrong(f"there are no outputs of {sorted(set(wanted) - set(found))}")

    def _counters(self) -> dict[str, dict[bytes, int]]:
        """Exactly once, each counter goes up by one; return where they are."""
        last: dict[str, dict[bytes, int]] = {}
        for place in self._places(OUT):
            for entry in self._sim.broker.logs[place].history():
                for name, n in orjson.loads(entry.value or b"")["counts"].items():
                    scope, _, store = name.partition("/")
                    began = self._sim.began.get((scope, store), {}).get(place, 0)
                    counts = last.setdefault(name, {})
                    if entry.offset >= began:
                        if n != counts.get(entry.key or b"", 0) + 1:
                            raise Wrong(f"{name} of {entry.key!r} goes from {counts.get(entry.key or b'', 0)} to {n}")
                        counts[entry.key or b""] = n
        return last

    def state(self) -> None:
        sim = self._sim
        positions = {place: sim.broker.offsets[place][0] for place in sim.inputs}
        expected = self._counters() if sim.setup.transactional else {}
        for machine in (*sim.machines, Machine(len(sim.machines))):
            self._restore_all(machine, positions)
            for scope, store in sim.version.stores:
                found: Counter[bytes] = Counter()
                for name in machine.partitions():
                    entries, stamp = machine.content(name)
                    if name[:2] == (scope, store) and stamp is not None:
                        found.update(_counts(visible_state(entries, stamp)))
                if sim.setup.transactional:
                    wanted = expected.get(f"{scope}/{store}", {})
                    if dict(found) != wanted:
                        raise Wrong(
                            f"{store} of {scope} on machine {machine.number}: {dict(found)} instead of {wanted}"
                        )
                    continue
                for key, number in sim.credited[scope, store].items():
                    if found[key] < number:
                        raise Wrong(
                            f"{store} of {scope} on machine {machine.number}: {found[key]} of {key!r}, not {number}"
                        )


def _counts(state: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Return the counters of the keys of records."""
    return {key[3 : 3 + key[2]]: int(value) for key, value in state.items() if key.endswith(b'"n"')}
