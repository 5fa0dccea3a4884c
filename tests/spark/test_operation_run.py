"""Applications that are started, paused, committed and stopped by their own program, in both modes."""

import logging
import shutil
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest

from streamrt import Application, Offsets, RestartPolicy, State
from streamrt.connectors import Source
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentValueError, ProcessingError
from streamrt.models import TopicPartition
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from tests.support import ONE_MODE, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("processing_mode")]

S = ApplicationStatus


def states(app: Application) -> tuple[ApplicationStatus, ApplicationStatus]:
    """Return the state of an application, and the one that is wanted."""
    return app.status, app.desired_status


def paused_s(app: Application) -> float:
    """Return for how many seconds an application has been paused."""
    assert app.status is S.PAUSED
    return (datetime.now(timezone.utc) - app.status_since).total_seconds()


class Writer(threading.Thread):
    """Produces numbers until it is ended."""

    def __init__(self, kafka: Kafka, *topics: str) -> None:
        super().__init__()
        self._kafka = kafka
        self._topics = topics
        self._over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._over.wait(0.02):
            for topic in self._topics:
                self._kafka.produce(topic, list(range(self.count, self.count + 20)))
            self.count += 20

    def end(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.rows("FE-018", "FE-020", "FE-063", "FE-067")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_pause_under_load(kafka: Kafka, guarantee: str) -> None:
    source, out = kafka.topic("in"), kafka.topic("out")
    app = kafka.app(processing_guarantee=guarantee, commit_interval=60)
    sdf = app.dataframe(app.topic(source))

    def number(value: int, state: object) -> int:
        return value

    sdf.apply(number, stateful=True).to_topic(app.topic(out))
    assert states(app) == (S.STOPPED, S.STOPPED)
    app.start(timeout=180)
    writer = Writer(kafka, source)
    writer.start()
    try:
        assert states(app) == (S.RUNNING, S.RUNNING)
        with pytest.raises(ApplicationStateError, match="already running"):
            app.start()
        for seconds in (3.0, 0.0):
            before = app.progress().records
            wait_until(lambda: app.progress().records > before + 100, what="records")  # noqa: B023
            app.pause()
            app.pause()
            assert states(app) == (S.PAUSED, S.PAUSED)
            records, committed, end = (
                app.progress().records,
                kafka.committed(app.config.consumer_group, source),
                kafka.end(out),
            )
            # Everything that was processed is committed, although the interval is a minute.
            assert committed == app.progress().positions[next(iter(app.progress().positions))]
            written = writer.count
            wait_until(lambda: writer.count > written + 500, what="more records")  # noqa: B023
            wait_until(lambda: paused_s(app) >= seconds, what="a long pause")  # noqa: B023
            assert app.progress().records == records
            assert kafka.committed(app.config.consumer_group, source) == committed
            assert kafka.end(out) == end
            app.resume()
            app.resume()
            assert states(app) == (S.RUNNING, S.RUNNING)
    finally:
        writer.end()
    wait_until(lambda: app.progress().records >= writer.count, what="the rest")
    checkpoint = app.checkpoint()
    assert checkpoint.status == "success"
    assert kafka.committed(app.config.consumer_group, source) in checkpoint.offsets.values()
    assert app.checkpoint_status(checkpoint.number) == checkpoint
    assert app.checkpoint_status(99).status == "unknown"
    app.stop(wait=True, timeout=60)
    assert states(app)[0] == S.STOPPED
    assert app.error is None
    assert app.wait()
    # Nothing is lost, and nothing repeats.
    assert kafka.values(out, writer.count) == list(range(writer.count))
    with pytest.raises(ApplicationStateError, match="is stopped and cannot be paused"):
        app.pause()


@pytest.mark.rows("FE-064", "FE-065", "FE-066")
def test_one_topic_is_paused(kafka: Kafka) -> None:
    first, second, third, out = (kafka.topic(name) for name in ("first", "second", "third", "out"))
    app = kafka.app()
    frames = [
        app.dataframe(app.topic(name)).apply(lambda value, name=name: [name, value]) for name in (first, second, third)
    ]
    frames[0].to_topic(app.topic(out))
    frames[1].concat(frames[2]).to_topic(app.topic(out))
    app.start(timeout=180)
    try:
        with pytest.raises(ArgumentValueError, match="which the application does not read; it reads"):
            app.pause("other")
        app.pause(second)
        assert states(app)[0] == S.RUNNING
        assert app.paused_topics == {second, third}
        for name in (second, third, first):
            kafka.produce(name, [1])
        assert kafka.values(out, 1) == [[first, 1]]
        wait_until(lambda: (kafka.committed(app.config.consumer_group, first) or 0) == 1, what="the commit")
        app.checkpoint()
        assert kafka.end(out) == 1
        app.resume(second)
        assert Counter(map(str, kafka.values(out, 3))) == Counter(map(str, [[first, 1], [second, 1], [third, 1]]))
    finally:
        app.stop(wait=True)


@pytest.mark.both_modes
@pytest.mark.rows("FE-015", "FE-024", "FE-036", "FE-041")
def test_a5_a_start_that_is_paused_and_a_restart(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    failed = tmp_path / "failed"

    def count(value: int, state: State) -> list[int]:
        if value == 3 and not failed.exists():
            failed.touch()
            raise ValueError("once")
        number = state.get("n", 0) + 1
        state.set("n", number)
        return [value, number]

    source, out = kafka.topic("in"), kafka.topic("out")
    kafka.produce(source, [0])
    app = kafka.app(auto_offset_reset="latest")
    app.dataframe(app.topic(source)).apply(count, stateful=True).to_topic(app.topic(out))
    try:
        app.start(paused=True, timeout=180, restart=RestartPolicy(initial_delay=0.1))
        assert states(app) == (S.PAUSED, S.PAUSED)
        # It is known by now where it begins: records that come from now on are not skipped.
        assert kafka.committed(app.config.consumer_group, source) == 1
        kafka.produce(source, [1, 2])
        with pytest.raises(ApplicationStateError, match=r"it is paused: resume\(\) continues it"):
            app.start()
        app.restart(timeout=180)
        assert states(app)[0] == S.PAUSED
        assert app.progress().records == 0
        app.resume()
        assert kafka.values(out, 2) == [[1, 1], [2, 2]]
        app.restart(timeout=180)
        assert states(app)[0] == S.RUNNING
        # The policy outlives restarts.
        kafka.produce(source, [3])
        assert kafka.values(out, 3) == [[1, 1], [2, 2], [3, 3]]
        assert failed.exists()
        wait_until(lambda: states(app)[0] is S.RUNNING, what="the start after the failure")
        # A stop that comes during a restart counts.
        refused: list[Exception] = []

        def restart() -> None:
            try:
                app.restart(timeout=180)
            except ApplicationStateError as error:
                refused.append(error)

        restarting = threading.Thread(target=restart)
        restarting.start()
        wait_until(lambda: states(app)[0] is not S.RUNNING, what="the stop of the restart")
        app.stop(wait=True)
        restarting.join()
        assert states(app) == (S.STOPPED, S.STOPPED)
        assert len(refused) <= 1
        # The state on this machine is gone: it is restored before the application counts as paused.
        shutil.rmtree(kafka.state_dir)
        kafka.produce(source, [4])
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "streamrt"):
            app.start(paused=True, timeout=180)
        passed = [text.removeprefix("the application is ") for text in caplog.messages if "application is " in text]
        if app.config.processing_mode == "resident" and "restoring" not in passed:
            # So few records are restored before the driver looks.
            passed.insert(1, "restoring")
        assert passed == ["starting", "restoring", "paused"]
        assert states(app)[0] == S.PAUSED
        assert sum(app._state.progress.meters.snapshot().restores.values()) == 1
        assert app.progress().records == 0
        assert app.progress().positions == {TopicPartition(source, 0): 4}
        app.resume()
        assert kafka.values(out, 4)[3:] == [[4, 4]]
    finally:
        app.stop(wait=True)


@pytest.mark.rows("FE-026", "FE-028", "FE-037", "FE-042")
@ONE_MODE
def test_a_failure_is_kept_and_raised(kafka: Kafka) -> None:
    source = kafka.topic("in")
    app = kafka.app()
    app.dataframe(app.topic(source)).apply(lambda value: 1 // value)
    app.start(timeout=180)
    kafka.produce(source, [0])
    with pytest.raises(ProcessingError, match="ZeroDivisionError"):
        app.wait(60)
    assert states(app)[0] == S.FAILED
    assert states(app)[1] == S.STOPPED
    assert isinstance(app.error, ProcessingError)
    with pytest.raises(ApplicationStateError, match="is failed and cannot checkpoint"):
        app.checkpoint()

    def start_and_wait() -> None:
        app.start(timeout=180)
        app.wait(60)

    # It may start again, and fails again, before its start is over or after that.
    with pytest.raises(ProcessingError):
        start_and_wait()


@pytest.mark.rows("PF-A3", "PF-A4", "PF-A14")
def test_it_is_restarted_after_a_failure_that_passes(kafka: Kafka, tmp_path: Path) -> None:
    source, out, mended = kafka.topic("in"), kafka.topic("out"), tmp_path / "mended"

    def divide(value: int) -> int:
        if value == 2 and not mended.exists():
            mended.touch()
            raise OSError("away for a moment")
        return value

    app = kafka.app()
    app.dataframe(app.topic(source)).apply(divide).to_topic(app.topic(out))
    app.start(timeout=180, restart=RestartPolicy(max_failures=1))
    try:
        kafka.produce(source, [0, 1, 2, 3])
        # The wait goes on over the restart.
        app.wait_for(Offsets({(source, 0): 4}), timeout=120)
        assert app.stats().restarts == 1
        assert states(app) == (S.RUNNING, S.RUNNING)
        assert app.error is None
        assert set(kafka.values(out, kafka.end(out))) == {0, 1, 2, 3}
    finally:
        app.stop(wait=True, timeout=60)


def test_a_stop_while_it_starts(kafka: Kafka) -> None:
    app = kafka.app()
    app.dataframe(app.topic(kafka.topic("in")))
    thread = threading.Timer(0.5, app.stop)
    thread.start()
    app.start(timeout=180)
    assert app.wait(60)
    assert states(app)[0] == S.STOPPED
    thread.join()


@pytest.mark.rows("FE-064", "FE-065")
@ONE_MODE
def test_sources_are_paused(kafka: Kafka) -> None:
    class Ticks(Source):
        def run(self) -> None:
            number = 0
            while self.running:
                self.produce(self.serialize(value=number).value)
                number += 1
                self.sleep(0.02)

    name = unique("ticks")
    app = kafka.app()
    topic = app.add_source(Ticks(name))
    app.dataframe(topic)
    app.start(timeout=180)
    try:
        wait_until(lambda: app.progress().records > 5, what="ticks")
        app.pause_source(name)
        end = kafka.end(topic.name)
        wait_until(lambda: app.progress().records == end, what="all ticks")
        time.sleep(0.2)
        assert kafka.end(topic.name) == end
        app.resume_source(name)
        wait_until(lambda: kafka.end(topic.name) > end + 5, what="more ticks")
        with pytest.raises(ArgumentValueError, match=f"there is no source 'other'; .*: {name}"):
            app.pause_source("other")
    finally:
        app.stop(wait=True)


@ONE_MODE
def test_what_is_run_by_the_program_itself(kafka: Kafka) -> None:
    source = kafka.topic("in")
    app = kafka.app()
    app.dataframe(app.topic(source))
    thread = threading.Thread(target=app.run)
    thread.start()
    wait_until(lambda: states(app)[0] == S.RUNNING, what="the start")
    app.pause()
    assert states(app)[0] == S.PAUSED
    app.stop(wait=True, timeout=60)
    thread.join()


@pytest.mark.rows("FE-057", "FE-100", "FE-101", "FE-102", "FE-103", "FE-106")
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_waits_numbers_and_a_fresh_start(kafka: Kafka, guarantee: str) -> None:
    def count(value: int, state: State) -> list[int]:
        number = state.get("n", 0) + 1
        state.set("n", number)
        return [value, number]

    source, out = kafka.topic("in", 2), kafka.topic("out")
    # No wait is as long as the interval of commits.
    app = kafka.app(processing_guarantee=guarantee, commit_interval=600)
    grouped = app.dataframe(app.topic(source)).group_by(lambda value: value % 5, name="a")
    counted = grouped.group_by(lambda value: value % 3, name="b").apply(count, stateful=True)
    counted.to_topic(app.topic(out, key_serializer="int"))

    def produce(count: int) -> Offsets:
        for number in (0, 1):
            kafka.produce(source, list(range(count)), partition=number)
        return Offsets({TopicPartition(source, number): kafka.end(source) // 2 for number in (0, 1)})

    token = produce(20)
    try:
        app.start(timeout=180)
        app.wait_for(str(token), timeout=60)
        # At once: nothing is on its way any more.
        assert kafka.end(out) >= 40
        stats = app.stats()
        assert (stats.status, stats.records, stats.outputs, stats.restarts, stats.error) == (S.RUNNING, 120, 120, 0, "")
        assert len(stats.partitions) == 6
        assert all((each.committed or 0) + 2 >= (each.end or 0) for each in stats.partitions.values())
        app.pause()
        token |= produce(10)
        with pytest.raises(ApplicationTimeoutError, match=r"is committed up to 20 of 30.*it is paused: resume\(\) it"):
            app.wait_for(token, timeout=0.5)
        app.resume()
        app.wait_for_idle(idle_interval=0.5, timeout=60, poll_interval=0.1)
        assert kafka.end(out) >= 60
        produce(10)
        app.wait_for_completion(stop=True, timeout=60)
        assert states(app)[0] == S.STOPPED
        assert app.stats().uptime == 0
        first = Counter(map(str, kafka.values(out, 80)))
        assert first[str([0, 1])] + first[str([3, 1])] + first[str([6, 1])] + first[str([9, 1])] == 1
        report = app.reset()
        assert len(report.repartition_topics) == 2
        app.start(timeout=180)
        app.wait_for_completion(timeout=60, stop=True)
        # Counted from nothing, the numbers are the same once more.
        both = Counter(str(value[1]) for value in kafka.values(out, 160))
        assert both == Counter({number: 2 * count for number, count in Counter(_numbers(first)).items()})
    finally:
        app.stop(wait=True, timeout=60)


def _numbers(counted: Counter[str]) -> list[str]:
    return [text.strip("[]").split(", ")[1] for text, count in counted.items() for _ in range(count)]
