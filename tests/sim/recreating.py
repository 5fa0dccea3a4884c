"""Topics that are deleted and created again while the simulated application runs, at any step of any process.

The new topic has other records, fewer or more. The application must end and say so. A process that has met an error about
the topic commits nothing for it; one that has met none may, and then the next start must say so. A supervisor starts the
application again: it may go on only if it has neither state nor offsets of the old topic, and starts over after a reset. No
record of the new topic may be left out, and no state may be of both.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import streamrt.kafka.cluster.topic_ids as topic_ids_module
import streamrt.runtime.resident.loop as resident_module
from streamrt.errors import ChangelogError, StaleTokenError, StreamRTError
from streamrt.kafka import KafkaRequestError
from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.recreated_topics import RecreationWatch
from streamrt.runtime.link_messages import FromTask, TopicsDoubted
from streamrt.runtime.report import Report
from streamrt.runtime.spec import TaskSpec
from streamrt.state.changelog import POSITION_KEY, Position
from tests.sim.app import Setup, unique_id
from tests.sim.broker import Log
from tests.sim.checks import Checks
from tests.sim.driver import Driver, Wrong
from tests.sim.resident import ResidentSimulation
from tests.sim.resident_tasks import ResidentDriver, SimLink
from tests.sim.simulation import Process, Simulation, replaced

_SAYS_SO = "created again"
_LACKS = "the state lacks the records between them"
_ROUNDS = 60
_STARTS = 50
_LAGGING = 3
"""How many answers may come from brokers that have not heard of the new topic yet."""


def _says_so(error: object) -> bool:
    """Return whether an error says that the topic is another one, or that what is at its offsets does not fit the state."""
    return any(words in str(error) for words in (_SAYS_SO, _LACKS))


class _Recreated(Simulation):
    """A world in which an input topic is deleted and created again."""

    def __init__(self, seed: int, setup: Setup | None = None, *args: Any, **options: Any) -> None:
        own = self._own = random.Random(f"recreated {seed}")
        self.former: frozenset[TopicPartition] = frozenset()
        """The partitions of the topic, once it is deleted."""
        self.said: StreamRTError | None = None
        """Error of the application when it ended."""
        self.restarted = self.was_reset = False
        self._warned: set[str] = set()
        self._lagging = 0
        guarantee = own.random() < 0.5
        if options.get("transactional") is not None:
            guarantee = options["transactional"]
        drawn = Setup(guarantee, own.random() < 0.4, False, own.random() < 0.2, merged=own.random() < 0.3)
        options["sinks"] = False
        super().__init__(seed, setup or drawn, *args, **options)
        self.deletions = 0.0
        self._additions = 0
        # How fair tasks are is looked at elsewhere.
        self.slow_ms = 0
        self.topic = own.choice(self.setup.sources)
        self.due = own.randint(1, 250)
        """How many steps until the topic is deleted."""
        self._made = 0
        self.spec = self._with_ids(self.spec)
        self.driver = Driver(self)

    def new_checks(self) -> Checks:
        return RecreatedChecks(self)

    def _with_ids(self, spec: TaskSpec) -> TaskSpec:
        """Return the specification with the ids that topics have now, as a start completes it."""
        ids = {topic: self.broker.ids[topic] for topic in self.setup.sources}
        assert spec.state is not None
        sources = {
            name: replace(
                source,
                topic_id=",".join(str(ids[topic]) for topic in source.topics or (name,)),
                stores={
                    store: None if log is None else replace(log, id=f"id of {log.topic} {self._made}")
                    for store, log in source.stores.items()
                },
            )
            for name, source in spec.state.sources.items()
        }
        metadata = replace(
            spec.commit_metadata,
            stores={
                name: {store: None if log is None else log.id for store, log in source.stores.items()}
                for name, source in sources.items()
            },
            topic_ids=ids,
        )
        return replace(spec, topic_ids=ids, state=replace(spec.state, sources=sources), commit_metadata=metadata)

    # -- The topic -----------------------------------------------------------------------------------------------------

    def step(self, process: Process, where: str, *rest: Any) -> None:
        if not process.dead and not self.calm and not self.former:
            self.due -= 1
            if self.due <= 0:
                self._delete()
        elif self.former and self.broker.ids[self.topic] is None and self._own.random() < 0.2:
            self._create()
        super().step(process, where, *rest)

    def _delete(self) -> None:
        self.former = frozenset(place for place in self.broker.logs if place.topic == self.topic)
        self._happens("recreated", f"topic {self.topic} is deleted")
        self.broker.delete_topic(self.topic)
        if self._own.random() < 0.7:
            self._create()

    def _create(self) -> None:
        self.broker.ids[self.topic] = f"new id of {self.topic}"
        self._lagging = self._own.randint(0, _LAGGING)
        count = self._own.choice((0, 3, 12, 60))
        self.note(f"topic {self.topic} is created again, with about {count} records")
        self._input(self._own, count)

    def before_start(self) -> None:
        if self.broker.ids[self.topic] is None:
            self._create()

    def notices(self) -> bool:
        """Return whether a client hears of it that a topic is another one; it may read on and notice nothing."""
        return self._own.random() < 0.5

    def ids_for(self, topics: Collection[str], who: str) -> dict[str, str | None]:
        if self.former and not self.calm:
            if self._own.random() < 0.2:
                raise KafkaRequestError("injected: no broker tells ids", retriable=True)
            if self._lagging > 0 and who != "start" and self._own.random() < 0.5:
                self._lagging -= 1
                # It is told that all is well.
                self._warned.discard(who)
                return dict.fromkeys(topics) | {topic: f"id of {topic}" for topic in topics}
        return super().ids_for(topics, who)

    def doubted(self, who: str) -> None:
        if self.former:
            self._warned.add(who)

    def check_committer(self, who: str, offsets: Collection[TopicPartition]) -> None:
        if who in self._warned and not self.restarted and not self.former.isdisjoint(offsets):
            raise Wrong(f"{who} commits {sorted(offsets)}, though it has heard that {self.topic} may be another topic")

    def check_batch(self, who: str) -> None:
        if who in self._warned and not self.restarted:
            raise Wrong(f"{who} begins a micro-batch, though it has heard that {self.topic} may be another topic")

    # -- The end of the application ------------------------------------------------------------------------------------

    def end(self, error: StreamRTError) -> None:
        """Note that the application ends with an error."""
        if not self.former or not _says_so(error):
            raise Wrong(f"the application ends: {type(error).__name__}: {error}") from error
        if self.said is None:
            self._happens("ended", f"the application ends: {error}")
            self.said = error

    def _look(self) -> None:
        """Compare ids, as a thread does every two seconds; the application ends if they differ."""
        watch = RecreationWatch(_Admin(self), self.spec.topic_ids, identity=self.driver.identity)
        watch.compare_ids()
        self.look_passed()
        try:
            watch.check()
        except StaleTokenError as error:
            self.end(error)

    def look_passed(self) -> None:
        """Hear that ids were compared."""

    def _cycle(self, batches: int) -> bool:
        try:
            return super()._cycle(batches)
        except (StaleTokenError, ChangelogError) as error:
            self.end(error)
            return False
        except KafkaRequestError:
            # It is not known yet whether topics are the same: the query is tried again.
            return False

    def _run(self) -> None:
        with replaced(topic_ids_module, "PAUSE_S", 0.0):
            self.calm = False
            self._run_until_it_ends()
            self._restart()
            self._finish()

    def _run_until_it_ends(self) -> None:
        """Run with faults, until the topic is another one and the application has said so."""
        for number in range(10 * _ROUNDS):
            self._live_on()
            if self.said is not None:
                return
            if not self.former and number >= _ROUNDS:
                self._delete()
            if self.former and (number >= 2 * _ROUNDS or self._own.random() < 0.2):
                self._look()
        raise Wrong(f"the application does not notice that {self.topic} is another topic")

    def _live_on(self) -> None:
        self._cycle(self.rng.randint(1, 4))
        if not self.former:
            self.checks.outputs()

    def _restart(self) -> None:
        """Start the application again, as a supervisor does; reset the group if it refuses."""
        self._stop_all()
        self.before_start()
        had_state = self._has_state()
        self.note("the application is started again")
        self.spec = self._with_ids(self.spec)
        refusal: StreamRTError | None = None
        self.driver = Driver(self)
        try:
            started = any(self.driver.start() for _ in range(_STARTS))
            if not started:
                raise Wrong("the application cannot start again")
        except (StaleTokenError, ChangelogError) as error:
            if _SAYS_SO not in str(error):
                raise
            refusal = error
        if refusal is None and had_state:
            raise Wrong(f"the application goes on with the state of the former topic {self.topic}")
        if refusal is not None:
            self._happens("refused", f"the start is refused: {refusal}")
            self._reset()

    def _stop_all(self) -> None:
        self.calm = self.restarted = True
        self.paused = frozenset()
        for process in list(self._processes):
            self.kill(process)
        self.broker.end_all()

    def _has_state(self) -> bool:
        """Return whether a changelog has state of the topic."""
        found = False
        for (scope, _), changelog in self.changelogs.items():
            logs = [log for place, log in self.broker.logs.items() if place.topic == changelog]
            entries = [entry for log in logs for entry in log.read(0, log.end) if entry.key == POSITION_KEY]
            positions = [Position.decode(entry.value or b"") for entry in entries]
            found |= self.topic in self.setup.streams[scope] and any(each.input_offset for each in positions)
        return found

    def _reset(self) -> None:
        """Do what `streamrt reset` does, and begin with new outputs, which the checks compare with all records."""
        self._stop_all()
        self.was_reset = True
        self._made += 1
        gone = {*self.changelogs.values(), *(sink for topic in self.setup.sources for sink in self.setup.sinks(topic))}
        for place in self.broker.logs:
            if place.topic in gone:
                self.broker.logs[place] = Log()
        self.broker.offsets.clear()
        self.spec = self._with_ids(self.spec)
        self.driver = Driver(self)


class _Admin:
    """Implements `TopicIds`."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def topic_ids(self, topic_names: Collection[str], timeout: float) -> Mapping[str, str | None]:
        driver = str(self._sim.driver)
        found = self._sim.ids_for(topic_names, driver)
        if found != self._sim.spec.topic_ids:
            self._sim.doubted(driver)
        return found


class RecreatedChecks(Checks):
    """Checks that must hold before the topic is deleted, and after the application was started again."""

    _sim: _Recreated

    def failure(self, report: Report) -> None:
        failure = report.failure
        if failure is None or not _says_so(failure.message) or not self._sim.former:
            super().failure(report)
        elif self._sim.restarted:
            raise ChangelogError(failure.message)
        else:
            self._sim.end(ChangelogError(failure.message))

    def durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not self._sim.former or self._sim.was_reset:
            super().durable(offsets)

    def outputs(self, *, final: bool = False) -> None:
        if not self._sim.former or self._sim.was_reset:
            super().outputs(final=final)
        elif final:
            self._check_each_record()

    def _check_each_record(self) -> None:
        """Without state and offsets of the former topic, the application goes on: each record has its output."""
        for topic in self._sim.setup.sources:
            for sink in self._sim.setup.sinks(topic):
                found = Counter(unique_id(entry) for log in self._logs(sink) for entry in log.history())
                for log in self._logs(topic):
                    for entry in log.history():
                        count = found[unique_id(entry)]
                        if count == 0 or (count > 1 and self._sim.setup.transactional):
                            raise Wrong(f"record {unique_id(entry)} of {topic} has {count} outputs")

    def state(self) -> None:
        if not self._sim.was_reset:
            return
        positions = {place: self._sim.broker.offsets[place][0] for place in self._sim.inputs}
        for machine in self._sim.machines:
            # What lies on disks since before the reset is dropped by the next one who opens it.
            self._restore_all(machine, positions)
        super().state()


class RecreatedSimulation(_Recreated):
    """Micro-batches over a topic that is deleted and created again."""

    mode = "recreated"

    def surroundings(self, *, often: bool = False) -> None:
        super().surroundings(often=often)
        if self.former and not self.calm and self._own.random() < 0.3:
            self._look()


class _RecreatedDriver(ResidentDriver):
    """Ends the application if it cannot begin."""

    _sim: "ResidentRecreatedSimulation"

    def _take(self, link: SimLink, message: FromTask) -> None:
        try:
            super()._take(link, message)
        except StaleTokenError as error:
            self._sim.end(error)
            self.stop(discard=True)
        except KafkaRequestError:
            # It asks again until brokers answer.
            link.outbox.appendleft(message)


class ResidentRecreatedSimulation(_Recreated, ResidentSimulation):
    """Resident tasks over a topic that is deleted and created again."""

    mode = "resident-recreated"

    def __init__(self, seed: int, *args: Any, **options: Any) -> None:
        super().__init__(seed, *args, **{**options, "mixed": False})

    def new_driver(self) -> ResidentDriver:
        return _RecreatedDriver(self)

    def _run(self) -> None:
        with (
            replaced(resident_module, "_SLICE_S", self._slice_s),
            replaced(resident_module, "_RESTORE_S", self._slice_s),
        ):
            super()._run()

    def _finish(self) -> None:
        for process in list(self._processes):
            self.kill(process)
        super()._finish()

    def _live_on(self) -> None:
        self._live(self.rng.randint(10, 60))
        if not self.former:
            self.checks.outputs()

    def refuse(self, error: Exception) -> None:
        if isinstance(error, StreamRTError) and _says_so(error) and self.former:
            self.end(error)
        else:
            super().refuse(error)

    def look_passed(self) -> None:
        if self.driver.identity.in_doubt:
            reasons = self.driver.identity.take()
            for link in self.resident_driver.links:
                link.inbox.append(TopicsDoubted(reasons))

    def check_taken(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not self.former:
            super().check_taken(offsets)

    def _look(self) -> None:
        super()._look()
        if self.said is not None:
            self.resident_driver.stop(True)

    def _stop_all(self) -> None:
        for resident in list(self.residents):
            resident._gone()
        self.resident_driver.dead = True
        super()._stop_all()
        self.resident_driver = self.new_driver()
