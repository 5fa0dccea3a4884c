"""Copies of the stores of other instances: what they begin with, how far they follow, and what they never do."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamrt.common.file_lock import FileLock
from streamrt.errors import ChangelogError, StateError
from streamrt.runtime.tasks.stores.followed_stores import FollowedStores
from streamrt.runtime.tasks.stores.open_store import RestoreInterrupted
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.state.spec import StoreSpec
from streamrt.topology import TaskStore
from tests.unit.snapshots import ABSENCE_MS, IDENTITY, LOG, TASK, World


class Instance(World):
    """An instance that follows the task of another one, with the same Kafka and object store."""

    def __init__(self, directory: Path, owner: World) -> None:
        super().__init__(directory, owner.remote.as_uri(), transactional=owner.transactional)
        self.owner = owner
        self.clients, self.snapshots, self.epoch = owner.clients, owner.snapshots, 100
        self.begin()

    def begin(self) -> None:
        """Begin a process."""
        self.catalog = self.new_catalog()
        store = TaskStore("orders", StoreSpec())
        self.copies = FollowedStores(self.catalog, [store], TASK, self.clients)

    def follow(self) -> None:
        """Follow to the end."""
        self.clients.read_offsets.clear()
        deadline = time.monotonic() + 60
        while self.copies.catch_up(lambda: True):
            assert time.monotonic() < deadline, "it took too long"
            time.sleep(0.005)

    def take_over(self) -> None:
        """Open the task's stores over the copies."""
        self.copies.close()
        self.owner.close()
        self.open()


@pytest.fixture(params=[True, False], ids=["exactly-once", "at-least-once"])
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    world = World(tmp_path / "owner", transactional=request.param, commits=2, least_replay=5)
    world.open()
    return world


@pytest.fixture
def instance(owner: World, tmp_path: Path) -> Iterator[Instance]:
    found = Instance(tmp_path / "other", owner)
    yield found
    found.copies.close()
    found.close()


def commit(owner: World, count: int) -> None:
    for number in range(count):
        owner.commit(a=number, **{"bcdefgh"[number % 7]: number})
        owner.await_uploads()


def test_a_standby_without_data_begins_with_a_snapshot(owner: World, instance: Instance) -> None:
    commit(owner, 8)
    newest = int(owner.repository.names()[0][:20])
    instance.follow()
    assert instance.clients.read_offsets[0][0] == newest > 0
    state = owner.state()
    instance.take_over()
    assert instance.state() == state
    assert not list((instance.disk / ".snapshots").glob("*/download/*"))


def test_one_that_is_a_little_behind_reads_the_changelog(owner: World, instance: Instance) -> None:
    commit(owner, 1)
    instance.follow()
    commit(owner, 1)
    reached = instance.clients.read_offsets[-1][1]
    instance.follow()
    assert instance.clients.read_offsets == [(reached, reached + (4 if owner.transactional else 3))]
    assert not (instance.disk / ".snapshots").exists()


def test_one_that_is_far_behind_begins_again_with_a_snapshot(owner: World, instance: Instance) -> None:
    commit(owner, 3)
    instance.follow()
    instance.copies.close()
    commit(owner, 9)
    instance.begin()
    instance.follow()
    assert instance.clients.read_offsets[0][0] == int(owner.repository.names()[0][:20])
    state = owner.state()
    instance.take_over()
    assert instance.state() == state


def test_a_damaged_snapshot_leaves_the_changelog(
    owner: World, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    commit(owner, 8)
    for path in owner.remote.rglob("files/*"):
        path.write_bytes(path.read_bytes()[:-1])
    instance.follow()
    assert instance.clients.read_offsets[0][0] == 0
    assert "is passed over" in caplog.text
    state = owner.state()
    instance.take_over()
    assert instance.state() == state


def test_a_stale_snapshot_is_not_followed(owner: World, instance: Instance) -> None:
    commit(owner, 8)
    owner.clients.clock_ms += ABSENCE_MS + 1
    instance.follow()
    assert instance.clients.read_offsets[0][0] == 0


def test_a_look_does_not_wait_for_a_download(owner: World, instance: Instance) -> None:
    commit(owner, 8)
    assert instance.catalog.snapshots is not None
    folder = instance.catalog.snapshots._folder(IDENTITY) / "download"
    folder.mkdir(parents=True)
    another = replace(IDENTITY, partition=1)
    with FileLock.acquire(folder, os.O_RDONLY | os.O_DIRECTORY):
        # Another process downloads it.
        assert instance.copies.catch_up(lambda: True) == instance.clients.log_end(LOG)
        assert instance.copies.catch_up(lambda: True) == instance.clients.log_end(LOG)
        assert not instance.catalog.snapshots.can_find(another)
        instance.copies.close()
        assert instance.catalog.snapshots.can_find(another)
    instance.follow()
    assert instance.clients.read_offsets[0][0] > 0


def test_a_download_that_a_revoked_task_has_left_holds_up_no_standby(owner: World, instance: Instance) -> None:
    commit(owner, 8)
    snapshots, bounds = instance.catalog.snapshots, instance.clients.bounds(LOG)
    assert snapshots is not None
    another = replace(IDENTITY, partition=1)
    rules = SnapshotRules(another, bounds, 1 << 62, False, instance.clients.now(), ABSENCE_MS, 0)
    folder = snapshots._folder(another) / "download"
    folder.mkdir(parents=True)
    # Without it, the download may end before the test waits for it.
    with FileLock.acquire(folder, os.O_RDONLY | os.O_DIRECTORY), pytest.raises(RestoreInterrupted):
        snapshots.find(another, rules, time.monotonic(), lambda share, offset: None)
    instance.follow()
    assert instance.clients.read_offsets[0][0] > 0


def test_a_copy_behind_the_last_stable_offset_is_left_alone(
    owner: World, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(owner, 3)
    instance.follow()
    instance.copies.close()
    instance.begin()
    end = owner.clients.log_end(LOG)
    # A foreign transaction is open in the changelog.
    monkeypatch.setattr(owner.clients, "log_end", lambda partition: end - 2)
    instance.follow()
    assert instance.clients.read_offsets == []


def test_the_last_copy_of_lost_records_is_kept(owner: World, instance: Instance) -> None:
    commit(owner, 1)
    instance.follow()
    instance.copies.close()
    owner.close()
    owner.clients.truncate(0)
    instance.begin()
    with pytest.raises(ChangelogError, match="the brokers have lost them"):
        instance.copies.catch_up(lambda: True)
    instance.copies.close()
    store = instance.catalog.store("orders", StoreSpec())
    partition = store.open(0)
    assert partition.stamp is not None
    partition.close()


def test_a_damaged_copy_begins_again(owner: World, instance: Instance, caplog: pytest.LogCaptureFixture) -> None:
    commit(owner, 8)
    instance.follow()
    instance.copies.close()
    (file, *_) = sorted(path for path in instance.disk.rglob("*") if path.name.startswith("MANIFEST-"))
    file.write_bytes(b"damaged")
    instance.begin()
    instance.follow()
    assert "the standby begins again" in caplog.text
    state = owner.state()
    instance.take_over()
    assert instance.state() == state


def test_a_copy_that_was_left_alone_for_long_is_not_trusted(owner: World, instance: Instance) -> None:
    """Standbys were switched off, or the instance was away; deleted keys must not come back."""
    commit(owner, 3)
    instance.follow()
    instance.copies.close()
    owner.commit(a=None, b=None)
    owner.await_uploads()
    owner.clients.clock_ms += ABSENCE_MS + 1
    instance.begin()
    instance.follow()
    assert instance.clients.read_offsets[0][0] == 0
    state = owner.state()
    assert "a" not in state
    instance.take_over()
    assert instance.state() == state


def test_copies_leave_space_to_the_own_tasks(owner: World, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(owner, 1)
    instance.follow()
    commit(owner, 1)
    usage = shutil.disk_usage(instance.disk)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000_000))
    with pytest.raises(StateError, match="only 100 MB are free"):
        instance.copies.catch_up(lambda: True)
    monkeypatch.undo()
    instance.follow()
    assert instance.clients.read_offsets
