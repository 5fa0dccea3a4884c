"""An application without progress ends its process, also if the thread that runs it hangs."""

import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import NoProgressError
from streamrt.kafka import ConnectionConfig, KafkaRequestError
from streamrt.kafka.cluster.groups import ListedMember
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation import lag
from streamrt.runtime.driver.observation.lag import LagSampler, LoopWatch, ProgressWatch
from tests.support import wait_until

ENDS = """
from streamrt import Application
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation.lag import Lag


def process(*_, **__):
    app._state.control.works()
    for at in (0.0, 500.0):
        lag._watch.observe(at, {TopicPartition("orders", 0): Lag(5, 9)}, ())
    lag.check()


app = Application("unused.invalid:9092", on_no_progress="fail", loglevel=None)
lag = app._execution._lag
app._execution.process = process
app.dataframe(app.topic("orders"))
app.run()
"""

HANGS = """
import threading

from streamrt import Application
from streamrt.kafka import ConnectionConfig
from streamrt.records import TopicPartition
from streamrt.runtime.driver.observation import lag

lag._EVERY_S = lag._LOOK_S = 0.02
ORDERS = TopicPartition("orders", 0)


class Kafka:
    def committed(self, group, partitions, *, require_stable, timeout):
        return dict.fromkeys(partitions, 5)

    def offset_bounds(self, partitions, timeout, *, isolation_level):
        return dict.fromkeys(partitions, (0, 9))

    def close(self):
        pass


def process(*_, **__):
    connection, watch = ConnectionConfig(bootstrap_servers="unused.invalid:9092"), lag.ProgressWatch(0.2)
    sampler = lag.LagSampler(connection, "shop", watch, lambda: {ORDERS: 5}, tuple, fails=True, admin=Kafka)
    with sampler.watching():
        while not sampler.stuck:
            pass
        # A call to Spark that does not return.
        threading.Event().wait()


app = Application("unused.invalid:9092", loglevel=None)
app._execution.process = process
app.dataframe(app.topic("orders"))
app.run()
"""

STUCK = r"NoProgressError: orders\[0\] has 4 unprocessed offsets, and nothing was committed for \d+ s: see the log for "


def ended(tmp_path: Path, text: str) -> tuple[int, str]:
    """Run a program; return its exit code, and what it wrote to the standard error."""
    program = tmp_path / "program.py"
    program.write_text(text)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_process_ends_with_the_sentence_and_an_exit_code(tmp_path: Path) -> None:
    code, shown = ended(tmp_path, ENDS)
    assert code == 1
    assert re.fullmatch(rf"streamrt: {STUCK}.*\nstreamrt explain E507 says more\n", shown)


@pytest.mark.slow
def test_a_process_whose_run_hangs_ends_by_itself(tmp_path: Path) -> None:
    code, shown = ended(tmp_path, HANGS)
    assert code == 1
    sentence, reference = shown.splitlines()[-2:]
    assert re.match(rf"streamrt: {STUCK}", sentence)
    assert sentence.endswith("does not return from a call, to Spark or to Kafka")
    assert reference == "streamrt explain E507 says more"


@pytest.mark.parametrize("fails", [True, False])
def test_the_process_ends_only_with_the_setting(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    monkeypatch.setattr(lag, "_LOOK_S", 0.01)
    connection, watch, ended = (
        ConnectionConfig(bootstrap_servers="unused.invalid:9092"),
        ProgressWatch(0.0),
        list[str](),
    )
    looks = itertools.count()
    seen = threading.Event()

    class Kafka:
        def committed(self, group: str, partitions: Any, *, require_stable: bool, timeout: float) -> Any:
            return dict.fromkeys(partitions, 5)

        def offset_bounds(self, partitions: Any, timeout: float, *, isolation_level: str) -> Any:
            return dict.fromkeys(partitions, (0, 9))

        def group_members(self, group: str, timeout: float) -> tuple[ListedMember, ...]:
            return ()

        def close(self) -> None:
            pass

    def assigned() -> dict[TopicPartition, int]:
        if next(looks) > 5 and watch.stuck:
            seen.set()
        return {TopicPartition("orders", 0): 5}

    sampler = LagSampler(connection, "shop", watch, assigned, tuple, fails=fails, admin=Kafka, end=ended.append)
    with sampler.watching():
        assert seen.wait(60)
    assert bool(ended) is fails


class Shared:
    """A group with another instance, which reads a topic that was deleted: no request with it is answered."""

    def __init__(self) -> None:
        self.deleted = {TopicPartition("deleted", 0)}
        self.asked: list[str] = []

    def committed(self, group: str, partitions: Any, *, require_stable: bool, timeout: float) -> Any:
        return dict.fromkeys(partitions, 5)

    def offset_bounds(self, partitions: Any, timeout: float, *, isolation_level: str) -> Any:
        self.asked += [str(each) for each in partitions]
        if self.deleted & set(partitions):
            raise KafkaRequestError("deleted[0] does not exist")
        return dict.fromkeys(partitions, (0, 9))

    def group_members(self, group: str, timeout: float) -> tuple[ListedMember, ...]:
        return (ListedMember("m-2", "streamrt@:7070", "10.0.0.7", (TopicPartition("deleted", 0),)),)

    def close(self) -> None:
        pass


def test_a_deleted_topic_of_another_instance_does_not_hide_that_an_own_partition_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag, "_LOOK_S", 0.01)
    monkeypatch.setattr(lag, "_EVERY_S", 0.01)
    kafka, connection = Shared(), ConnectionConfig(bootstrap_servers="unused.invalid:9092")
    own = TopicPartition("orders", 0)
    ended = list[str]()
    sampler = LagSampler(
        connection,
        "shop",
        ProgressWatch(0.0),
        lambda: {own: 5},
        tuple,
        fails=True,
        admin=lambda: kafka,
        end=ended.append,
    )
    with sampler.watching():
        wait_until(lambda: kafka.asked)
        # No one has looked at the partitions of other instances.
        assert set(kafka.asked) == {"orders[0]"}
        sampler.take_sample()
        wait_until(lambda: "deleted[0]" in kafka.asked)
        before = len(kafka.asked)
        wait_until(lambda: len(kafka.asked) > before + 5)
        # They are asked for less often.
        assert kafka.asked.count("deleted[0]") == 1
        sample = sampler.take_sample()
        assert (sample.lags[own].offsets, sample.others) == (4, {})
        with pytest.raises(NoProgressError, match=r"orders\[0\] has 4 unprocessed offsets"):
            sampler.check()


def test_partitions_of_others_are_forgotten_when_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_LOOK_S", 0.01)
    kafka, connection = Shared(), ConnectionConfig(bootstrap_servers="unused.invalid:9092")
    kafka.deleted = set()
    own = TopicPartition("orders", 0)
    sampler = LagSampler(connection, "shop", ProgressWatch(None), lambda: {own: 5}, tuple, admin=lambda: kafka)
    with sampler.watching():
        wait_until(lambda: sampler.take_sample().others)
        monkeypatch.setattr(lag, "_OTHERS_SEEN_S", 0.0)
        wait_until(lambda: not sampler.sample.others)


@pytest.mark.parametrize(
    ("moments", "hangs"),
    [
        # Each moment: a time, whether a partition is stuck, and whether the loop has looked before.
        ([(0, True, False), (299, True, False)], False),
        ([(0, True, False), (300, True, False)], True),
        ([(0, False, False), (300, True, False), (599, True, False)], False),
        ([(0, False, False), (300, True, False), (600, True, False)], True),
        ([(0, True, False), (200, True, True), (400, True, False)], False),
        ([(0, True, False), (200, True, True), (400, True, False), (500, True, False)], True),
        ([(0, True, False), (200, False, False), (400, True, False)], False),
        ([(0, False, True), (9_000, False, False)], False),
    ],
)
def test_when_the_thread_of_the_run_hangs(moments: list[tuple[float, bool, bool]], hangs: bool) -> None:
    watch = LoopWatch(300.0)
    found = False
    for at, stuck, looked in moments:
        if looked:
            watch.seen()
        found = watch.hangs(at, stuck=stuck)
    assert found is hangs


def test_without_a_timeout_nothing_hangs() -> None:
    watch = LoopWatch(None)
    assert not any(watch.hangs(at, stuck=True) for at in (0.0, 1e9))
