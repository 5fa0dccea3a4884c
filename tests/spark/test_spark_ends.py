"""How applications end on Spark where something is in the way: brokers that are away, impatient users, too few slots."""

import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext

from streamrt.errors import ConfigurationError
from streamrt.spark.java_group import leave_group
from streamrt.spark.sessions import spark_session
from streamrt.spark.sessions.spark_session import open_session
from tests.support import MASTER, Kafka, Program, forked_end, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., Program]


def test_nobody_waits_for_brokers_that_are_away_to_leave_the_group() -> None:
    session = open_session(MASTER).session
    options = {"default.api.timeout.ms": "3600000"}
    leaving = threading.Thread(
        target=leave_group, args=(session, "127.0.0.1:9", options, "shop", ["shop-0"]), daemon=True
    )
    leaving.start()
    leaving.join(120)
    assert not leaving.is_alive()


def test_a_forked_process_leaves_the_context_to_its_parent() -> None:
    session = open_session(MASTER).session

    def end() -> None:
        # It may start another one.
        assert SparkContext._active_spark_context is None
        spark_session._close_at_exit()

    assert forked_end(end) == 0
    assert session.range(3).count() == 3


def test_after_a_second_interrupt_no_job_goes_on(kafka: Kafka, program: Start, tmp_path: Path) -> None:
    source, begun = kafka.topic("in"), tmp_path / "begun"
    kafka.produce(source, [1])
    text = f"""
        import os, signal, threading, time
        from streamrt import Application
        from streamrt.spark.sessions.spark_session import open_session

        def busy(value):
            open({str(begun)!r}, "w").close()
            time.sleep(3600)

        def interrupt():
            while not os.path.exists({str(begun)!r}):
                time.sleep(0.1)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)

        app = Application({kafka.address!r}, consumer_group={unique("group")!r}, auto_offset_reset="earliest",
                          spark_master={MASTER!r}, state_dir={str(kafka.state_dir)!r}, processing_mode="resident")
        app.dataframe(app.topic({source!r})).apply(busy)
        threading.Thread(target=interrupt).start()
        try:
            app.run()
        except KeyboardInterrupt:
            print("interrupted")
        tracker = open_session({MASTER!r}).session.sparkContext.statusTracker()
        for _ in range(600):
            if not tracker.getActiveJobsIds():
                print("no job is left")
                break
            time.sleep(0.1)
    """
    started = program(textwrap.dedent(text))
    assert started.wait(240) == 0, started.err
    assert started.out == ["interrupted\n", "no job is left\n"]


def test_tasks_that_have_no_slot_hold_up_neither_the_time_out_nor_the_others(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamrt.runs.resident_run._PATIENCE", 0.3)
    source = kafka.topic("in", 2)
    session = open_session(MASTER).session
    held, free = tmp_path / "held", tmp_path / "free"

    def hold(_: object) -> None:
        held.touch()
        wait_until(free.exists, 600)

    holder = threading.Thread(target=lambda: session.sparkContext.parallelize([0], 1).foreach(hold))
    holder.start()
    try:
        wait_until(held.exists, what="a slot that is taken")
        for partition in (0, 1):
            kafka.produce(source, [partition], partition=partition)
        app = kafka.app(processing_mode="resident")
        app.dataframe(app.topic(source))
        outputs = app.run(timeout=0.5)
    finally:
        free.touch()
        holder.join()
    assert sorted(output["_value"] for output in outputs) == [0, 1]


@pytest.mark.usefixtures("processing_mode")
def test_an_application_that_runs_keeps_its_spark(kafka: Kafka) -> None:
    source, group = kafka.topic("in"), unique("group")
    first, second = kafka.app(group), kafka.app(spark_master="local[1]")
    first.dataframe(first.topic(source))
    second.dataframe(second.topic(source))
    with running(first):
        wait_until(lambda: first.progress().positions, what="the start")
        with pytest.raises(ConfigurationError, match="a process has one Spark"):
            second.run(timeout=1)
        kafka.produce(source, [1])
        wait_until(lambda: kafka.committed(group, source) == 1, what="the record")
