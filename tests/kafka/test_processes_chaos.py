"""Processes without Spark, with standbys and snapshots: whatever is killed, frozen or damaged, each record counts once."""

import contextlib
import functools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from streamrt.kafka import Producer
from streamrt.testing import EmbeddedKafka
from tests.chaos import Flow, Outputs, judge, judge_windows, kill_tree, program_source, tasks_of
from tests.processes import freeze, process_tree, thaw
from tests.support import LONG, Kafka, Program, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KINDS = (
    "kill a slot",
    "kill a driver",
    "kill an instance",
    "lose a disk",
    "damage a disk",
    "bring an old disk back",
    "freeze an instance",
    "kill the broker",
    "join and leave",
    "open a transaction",
    "damage snapshots",
)
ORDINARY = ("kill a slot", "open a transaction", "kill the broker", "damage snapshots")
"""The kinds that take the fewest starts."""
SETTINGS = """commit_interval=0.5,
    processing_mode="resident",
    spark_master="processes[2]",
    standby_replicas=1,
    control="0",
    state_snapshots="{url}?interval_s=1&least_replay=50","""


class World:
    """Two instances of an application, its broker and its object store.

    Args:
        kafka: the broker, which may be killed.
        broker: what runs it.
        start_program: starts a program.
        directory: for disks and snapshots.
        seed: decides what happens.
    """

    def __init__(
        self, kafka: Kafka, broker: EmbeddedKafka, start_program: Callable[..., Program], directory: Path, seed: int
    ) -> None:
        self.chance = random.Random(seed)
        self.broker = broker
        self.source, self.target = kafka.topic("in", 4), kafka.topic("out", 2)
        self.flow, self.outputs = Flow(kafka.address, self.source, seed), Outputs(kafka.address, self.target)
        self._kafka = kafka
        self._start_program = start_program
        self._directory = directory
        self._group = unique("group")
        self._apps: dict[int, Program] = {}

    def start(self, number: int) -> Program:
        """Start an instance, and wait until it works."""
        consumer: dict[str, object] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
        text = program_source(
            self._kafka.address, self.source, self.target, self._disk(number), self._group, consumer
        ).replace("commit_interval=1.0,", SETTINGS.format(url=self._remote.as_uri()))
        app = self._apps[number] = self._start_program(text)
        app.wait_for("assigned")
        return app

    def end(self) -> None:
        """Stop all instances, cleanly."""
        for app in self._apps.values():
            code, _ = app.end()
            assert code == 0, "".join(app.err)

    def happen(self, kind: str) -> None:
        """Let something happen, and wait until records are counted again."""
        print(f"{self.outputs.count} outputs: {kind}")
        getattr(self, f"_{kind.replace(' ', '_')}")()
        seen = self.outputs.count
        self.outputs.wait_for(seen + 50)

    @property
    def _remote(self) -> Path:
        return self._directory / "remote"

    def _disk(self, number: int) -> Path:
        return self._directory / f"disk-{number}"

    def _kill_tree(self) -> int:
        number = self.chance.choice(sorted(self._apps))
        kill_tree(self._apps.pop(number))
        return number

    def _kill_a_slot(self) -> None:
        app = self.chance.choice(list(self._apps.values()))
        slots = wait_until(lambda: tasks_of(app), what="a slot")
        with contextlib.suppress(psutil.NoSuchProcess):
            self.chance.choice(slots).kill()

    def _kill_a_driver(self) -> None:
        number = self.chance.choice(sorted(self._apps))
        app = self._apps.pop(number)
        left = process_tree(app.process.pid)[1:]
        app.kill()
        # Its slots end by themselves.
        _, alive = psutil.wait_procs(left, timeout=60)
        assert not alive
        self.start(number)

    def _kill_an_instance(self) -> None:
        number = self._kill_tree()
        seen = self.outputs.count
        # The other one takes over, from its copies.
        self.outputs.wait_for(seen + 50)
        self.start(number)

    def _lose_a_disk(self) -> None:
        number = self._kill_tree()
        shutil.rmtree(self._disk(number))
        self.start(number)

    def _damage_a_disk(self) -> None:
        number = self._kill_tree()
        files = [path for path in self._disk(number).rglob("*.sst") if path.stat().st_size > 100]
        for path in self.chance.sample(files, min(2, len(files))):
            _harm(path, self.chance)
        self.start(number)

    def _bring_an_old_disk_back(self) -> None:
        number = self._kill_tree()
        kept = self._directory / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self._disk(number), kept)
        self.start(number)
        seen = self.outputs.count
        self.outputs.wait_for(seen + 100)
        kill_tree(self._apps.pop(number))
        shutil.rmtree(self._disk(number))
        shutil.copytree(kept, self._disk(number))
        self.start(number)

    def _freeze_an_instance(self) -> None:
        app = self.chance.choice(list(self._apps.values()))
        frozen = process_tree(app.process.pid)
        freeze(frozen)
        seen = self.outputs.count
        # The session is over, and the other one does all the work.
        wait_until(lambda: len(self._kafka.admin.group_members(self._group, 30)) <= 2, what="the end of the session")
        self.outputs.wait_for(seen + 100)
        thaw(frozen)

    def _kill_the_broker(self) -> None:
        self.broker.kill()
        self.broker.restart()

    def _join_and_leave(self) -> None:
        third = self.start(2)
        seen = self.outputs.count
        self.outputs.wait_for(seen + 50)
        del self._apps[2]
        assert third.end()[0] == 0

    def _open_a_transaction(self) -> None:
        """Leave a transaction of another program open in the input, and abort it: its record may not count."""
        options = {"transactional.id": unique("foreign"), "transaction.timeout.ms": 10_000}
        with Producer(self._kafka.address, extra_config=options, transactional=True) as producer:
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(self.source, b'{"id": -1}', key=b"key-1")
            seen = self.flow.count
            wait_until(lambda: self.flow.count > seen + 50, what="more records")
            producer.abort_transaction(30)

    def _damage_snapshots(self) -> None:
        """Damage files and manifests, as a failing disk and half-finished uploads do; then somebody needs a snapshot."""
        wait_until(lambda: list(self._remote.rglob("*.manifest")), what="a snapshot")
        paths = _find_files(self._remote)
        for path in self.chance.sample(paths, len(paths) // 3):
            # Collections delete files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                self.chance.choice((functools.partial(_harm, path, self.chance), path.unlink))()
        self._lose_a_disk()


def _find_files(directory: Path) -> list[Path]:
    """Return the files of more than a few bytes, in a directory whose files come and go."""
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > 10:
                    found.append(path)
    return found


def _harm(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if chance.random() < 0.5:
        data = data[: len(data) // 2]
    else:
        data[chance.randrange(len(data))] ^= 1
    path.write_bytes(bytes(data))


def test_whatever_happens_each_record_counts_once(
    mortal_broker: EmbeddedKafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    kafka = Kafka(mortal_broker.bootstrap_servers, tmp_path / "state")
    world = World(kafka, mortal_broker, program, tmp_path, seed)
    happenings = [*ORDINARY] if not LONG else [*KINDS, *world.chance.choices(KINDS, k=30)]
    world.chance.shuffle(happenings)
    try:
        with world.flow.running(world.outputs, per_step=30, pause_s=0.1):
            world.start(0)
            world.start(1)
            world.outputs.wait_for(200)
            for kind in happenings:
                world.happen(kind)
        world.flow.read_back()
        world.outputs.wait_for(world.flow.count)
        world.end()
        judge(world.flow, world.outputs)
        judge_windows(world.flow, world.outputs)
    finally:
        world.outputs.close()
