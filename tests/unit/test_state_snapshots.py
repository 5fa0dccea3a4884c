"""Snapshots of state: restores from them equal those from the changelog, and nothing that is wrong with them is trusted."""

import hashlib
import logging
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import orjson
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.common.file_lock import FileLock
from streamrt.errors import ConfigurationError, StateError
from streamrt.kafka import KafkaRequestError
from streamrt.records import TopicPartition
from streamrt.runtime.tasks.stores.open_store import RestoreInterrupted
from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
from streamrt.secret import collect_secrets, masked
from streamrt.state import RocksDBStore, Stamp
from streamrt.state.snapshots import (
    NewerSnapshotError,
    SnapshotManifest,
    SnapshotRepository,
    StateSnapshots,
    StoredFile,
    UnusableSnapshotError,
)
from streamrt.testing import TopologyTestDriver
from tests.cli_json import run
from tests.command_line import streamrt
from tests.support import LONG
from tests.unit.apps import application
from tests.unit.snapshots import ABSENCE_MS, IDENTITY, World, wait_for


@pytest.fixture(params=[True, False], ids=["exactly-once", "at-least-once"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, transactional=request.param)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def passed_over(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "passed over" in each.message]


# -- Restores --------------------------------------------------------------------------------------------------------


def test_a_lost_disk_costs_the_tail_of_the_changelog(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamrt")
    world.open()
    for number in range(20):
        world.commit(a=number, b="x" * 100)
    taken = world.stamp
    world.snapshots = StateSnapshots(world.snapshots.url, interval_s=10_000, least_replay=1)
    world.close()
    world.open()
    world.commit(a=100, c=1)
    world.commit(b=None)
    end = world.stamp
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 100, "c": 1}
    assert world.stamp.changelog_offset == end.changelog_offset
    assert world.clients.read_offsets == [(taken.changelog_offset, end.changelog_offset)]
    assert world.counted() == {"snapshot restores": 1}
    assert any("from a snapshot of" in each.message for each in caplog.records)
    world.commit(d=4)
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 100, "c": 1, "d": 4}


def test_a_snapshot_has_exactly_what_its_stamp_says(world: World) -> None:
    world.open()
    world.commit(a=1)
    first = world.stamp
    world.work({"a": 2, "b": 2})  # not committed
    name = world.repository.names()[0]
    assert world.repository.read(name).stamp == first
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 1}


def test_a_store_without_changes_has_no_second_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path, commits=3, interval_s=10_000)
    world.open()
    for number in range(7):
        world.commit(a=number)
        world.await_uploads()
    # The first commit of a new store, and each third one after it.
    assert len(world.repository.names()) == 3
    world.close()
    world.open()
    world.commit(a=8)
    world.await_uploads()
    assert len(world.repository.names()) == 3, "the time of the last snapshot outlives the process"


def test_the_last_commit_of_an_idle_task_has_a_snapshot_too(tmp_path: Path) -> None:
    world = World(tmp_path, commits=0, interval_s=0.2)
    world.open()
    world.commit(a=1)
    world.commit(a=2)
    last = world.stamp.changelog_offset

    def is_taken() -> bool:
        assert world.stores is not None
        world.stores.take_due_snapshots()
        return any(world.repository.read(name).stamp.changelog_offset == last for name in world.repository.names())

    wait_for(is_taken)
    world.await_uploads()
    count = len(world.repository.names())
    time.sleep(0.3)
    assert is_taken()
    world.await_uploads()
    assert len(world.repository.names()) == count, "an idle store has no further ones"


def test_the_test_driver_takes_none(tmp_path: Path) -> None:
    app = application(state_snapshots=tmp_path.as_uri())
    sdf = app.dataframe(app.topic("orders"))
    sdf.apply(lambda value, state: state.set("n", value) or value, stateful=True).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", 1, key="a")
    assert not list(tmp_path.iterdir())


def test_files_that_are_there_are_not_sent_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a="x" * 100_000)
    sent = world.counted()["snapshot bytes"]
    world.commit(b=1)
    again = world.counted()["snapshot bytes"]
    assert again < sent / 4 or sent < 40_000
    names = {path.name for path in (world.folder / "files").iterdir()}
    world.commit(c=1)
    assert names < {path.name for path in (world.folder / "files").iterdir()}


def test_a_short_tail_needs_no_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path, least_replay=1_000)
    world.open()
    world.commit(a=1)
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 1}
    assert world.counted() == {"changelog restores": 1}


# -- What is wrong with them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [damage, truncate, Path.unlink], ids=["damaged", "truncated", "missing"])
@pytest.mark.parametrize("kind", [".sst", "MANIFEST", "CURRENT", "manifest"])
def test_no_harmed_file_is_trusted(
    harm: Callable[[Path], Any], kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, keep=2)
    world.open()
    world.commit(a=1)
    world.commit(a=2)
    newest, older = world.repository.names()
    files = world.repository.read(newest).files
    before = {file.digest for file in world.repository.read(older).files.values()}
    if kind == "manifest":
        path = world.folder / "manifests" / newest
    else:
        # One that only the newest snapshot has, if there is any.
        of_kind = [file.digest for name, file in files.items() if kind in name]
        path = world.folder / "files" / sorted(of_kind, key=lambda digest: digest in before)[0]
    shared = path.name in before
    harm(path)
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 2}
    first = world.clients.read_offsets[0][0]
    expected = 0 if shared else world.repository.read(older).stamp.changelog_offset
    assert first == expected
    missing_manifest = kind == "manifest" and harm is Path.unlink
    assert len(passed_over(caplog)) == (0 if missing_manifest else 2 if shared else 1)
    # The next upload makes the store whole again.
    world.commit(a=3)
    world.lose_disk()
    caplog.clear()
    world.open()
    assert world.state() == {"a": 3}
    assert world.counted() == {"snapshot restores": 1}
    assert not passed_over(caplog)


def test_a_half_uploaded_snapshot_does_not_exist(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a=1)
    name = world.repository.names()[0]
    (world.folder / "manifests" / name).unlink()
    (world.folder / "manifests" / "half.tmp").write_bytes(b"x")
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 1}
    assert world.counted() == {"changelog restores": 1}


def test_readers_never_see_half_of_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = World(tmp_path), list[Any]()
    write = LocalFileSystem.pipe_file

    def pipe_file(self: LocalFileSystem, path: str, value: bytes) -> None:
        write(self, path, value[:10])
        reader = world.repository
        seen.append([reader.read(name) for name in reader.names()])
        write(self, path, value)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", pipe_file)
    world.open()
    world.commit(a=1)
    world.await_uploads()
    assert seen == [[]]
    assert len(world.repository.names()) == 1


def manifest(**changed: Any) -> bytes:
    stamp = Stamp(IDENTITY, 1, 3, None, 0)
    text = SnapshotManifest(stamp, 5, {"CURRENT": StoredFile(1, "0" * 64)}).encode().partition(b"\n")[2]
    data = orjson.dumps({**orjson.loads(text), **changed})
    return hashlib.blake2b(data, digest_size=32).hexdigest().encode() + b"\n" + data


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"v": 2}, NewerSnapshotError, "newer version"),
        ({"v": "1"}, UnusableSnapshotError, "unreadable"),
        ({"stamp": "{}"}, UnusableSnapshotError, "unreadable"),
        ({"stamp": '{"v":99}'}, NewerSnapshotError, "newer version"),
        ({"files": {}}, UnusableSnapshotError, "does not describe"),
        ({"files": {"../CURRENT": [1, "0" * 64]}}, UnusableSnapshotError, "a file that no store has"),
        ({"files": {"CURRENT": [1, "../" * 8]}}, UnusableSnapshotError, "no size and digest"),
        ({"files": {"CURRENT": [-1, "0" * 64]}}, UnusableSnapshotError, "no size and digest"),
        ({"files": {"CURRENT": 5}}, UnusableSnapshotError, "a file that no store has"),
        ({"created_at": None}, UnusableSnapshotError, "created_at"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SnapshotManifest.decode(manifest(**changed))


@given(st.data())
def test_no_change_of_a_manifest_is_overlooked(data: st.DataObject) -> None:
    whole = bytearray(manifest())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UnusableSnapshotError):
        SnapshotManifest.decode(bytes(whole))
    with pytest.raises(UnusableSnapshotError):
        SnapshotManifest.decode(manifest()[:at])


def test_a_manifest_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a=1)
    world.commit(a=2)
    newest, older = (world.folder / "manifests" / name for name in world.repository.names())
    shutil.copy(older, newest)
    with pytest.raises(UnusableSnapshotError, match="name of another"):
        world.repository.read(newest.name)


def test_snapshots_of_a_changelog_that_was_created_again_are_foreign(tmp_path: Path, caplog: Any) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a=1)
    world.lose_disk()
    # Another cluster, or the same changelog again, has another id. Even under its folder, the stamp says whose it is.
    shutil.copytree(world.folder, world.folder.parents[1] / "another" / "0")
    world.changelog_id = "another"
    world.open()
    assert world.state() == {"a": 1}
    assert world.clients.read_offsets[0][0] == 0
    assert "deleted and created again" in passed_over(caplog)[0]


def test_a_stale_snapshot_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.open()
    world.commit(a=1)
    world.snapshots = StateSnapshots(world.snapshots.url, interval_s=10_000, least_replay=1)
    world.close()
    world.open()
    world.commit(a=None, b=1)
    world.clients.clock_ms += ABSENCE_MS + 1
    world.lose_disk()
    world.open()
    assert world.state() == {"b": 1}
    assert world.clients.read_offsets[0][0] == 0
    assert "tombstones" in passed_over(caplog)[0]


def test_a_snapshot_of_lost_records_is_deleted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.open()
    world.commit(a=1)
    kept = world.stamp
    world.commit(a=2)
    world.commit(a=3)
    world.lose_disk()
    world.clients.truncate(kept.changelog_offset or 0)
    world.clients.offsets.update(dict.fromkeys(world.committed, 1))
    world.clients.clock_ms += 120_000
    world.open()
    assert world.state() == {"a": 1}
    assert len([line for line in passed_over(caplog) if "the brokers have lost its records" in line]) == 2
    assert len(world.repository.names()) == 1


RULES = SnapshotRules(IDENTITY, (10, 50), 12, True, 1_000_000, 60_000, 10)


@pytest.mark.parametrize(
    ("stamp", "words"),
    [
        (Stamp(IDENTITY, 12, 30, None, 990_000), ""),
        (Stamp(IDENTITY, 12, 50, None, 0), ""),
        (Stamp(IDENTITY, 12, 51, None, 0), ""),  # the marker of the last transaction is not written yet
        (Stamp(IDENTITY, 12, 52, None, 0), "ends at 50"),
        (Stamp(IDENTITY, 12, 9, None, 990_000), "begins at 10"),
        (Stamp(IDENTITY, 13, 30, None, 990_000), "ahead of the committed offset"),
        (Stamp(IDENTITY, 12, 30, None, 900_000), "tombstones"),
        (Stamp(IDENTITY, 12, 30, None, 2_000_000), "in the future"),
        (Stamp(IDENTITY, 12, None, None, 990_000), "without a changelog"),
    ],
)
def test_rules(stamp: Stamp, words: str) -> None:
    refusal = RULES.refusal(stamp)
    assert words in refusal
    assert bool(words) == bool(refusal)


def test_only_snapshots_that_were_there_before_prove_a_loss() -> None:
    ahead = Stamp(IDENTITY, 12, 80, None, 0)
    assert RULES.is_of_lost_records(ahead, 900_000)
    assert not RULES.is_of_lost_records(ahead, 999_000)
    assert not RULES.is_of_lost_records(Stamp(IDENTITY, 12, 51, None, 0), 0)


# -- The object store ------------------------------------------------------------------------------------------------


def test_an_object_store_that_fails_stops_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.remote.write_text("a file instead of a folder")
    world.open()
    for number in range(3):
        world.commit(a=number)
    wait_for(lambda: world.counted().get("snapshot failures", 0) >= 1)
    lines = [each for each in caplog.records if "no snapshot of" in each.message and each.levelno == logging.WARNING]
    assert len(lines) == 1
    world.lose_disk()
    world.open()
    assert world.state() == {"a": 2}
    world.remote.unlink()
    world.commit(a=4)
    assert len(world.repository.names()) == 1


def test_a_restore_goes_on_with_its_download(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a="x" * 1_000)
    world.lose_disk()
    world.open()
    assert world.catalog.snapshots is not None
    folder = world.catalog.snapshots._folder(IDENTITY) / "download"
    world.lose_disk()
    folder.mkdir(parents=True)
    # Another Python worker downloads it.
    with FileLock.acquire(folder, os.O_RDONLY | os.O_DIRECTORY), pytest.raises(RestoreInterrupted):
        world.open(deadline=time.monotonic() + 0.1)
    assert world.stores is None
    world.open()
    assert world.state() == {"a": "x" * 1_000}
    assert world.counted() == {"snapshot restores": 1}
    assert not list((world.disk / ".snapshots").glob("*/download/*"))


def test_brokers_that_fail_after_a_snapshot_leave_no_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a=1)
    world.lose_disk()
    bounds, calls = world.clients.bounds, 0

    def fail_once(partition: TopicPartition) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KafkaRequestError("away", retriable=True)
        return bounds(partition)

    monkeypatch.setattr(world.clients, "bounds", fail_once)
    catalog = world.new_catalog()
    # The next attempt is that of the same process.
    monkeypatch.setattr(world, "new_catalog", lambda: catalog)
    with pytest.raises(KafkaRequestError):
        world.open()
    world.open()
    assert world.state() == {"a": 1}


def test_leftovers_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.commit(a=1)
    left = world.disk / ".snapshots" / "f" / "upload" / "checkpoint"
    left.mkdir(parents=True)
    (left / "000001.sst").write_bytes(b"x")
    world.close()
    world.open()
    world.commit(a=2)
    assert not left.exists()


# -- The collection --------------------------------------------------------------------------------------------------


class Place:
    """A repository, and checkpoints to upload to it."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "checkpoint"
        self.now = 0.0
        self.filesystem = fsspec.filesystem("file", auto_mkdir=True)
        self.remote = directory / "remote"
        self.repository = self.another()

    def another(self) -> SnapshotRepository:
        return SnapshotRepository(self.filesystem, str(self.remote), lambda: self.now)

    def upload(self, offset: int, *contents: str, by: SnapshotRepository | None = None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "CURRENT").write_text("MANIFEST-000001\n")
        for content in contents:
            (self.folder / f"{content}.sst").write_text(content)
        (by or self.repository).upload(self.folder, Stamp(IDENTITY, 1, offset, None, 0), offset)

    @property
    def offsets(self) -> list[int]:
        return [self.repository.read(name).stamp.changelog_offset or 0 for name in self.repository.names()]

    @property
    def contents(self) -> set[str]:
        return {path.read_text().strip() for path in (self.remote / "files").iterdir()} - {"MANIFEST-000001"}


def test_the_newest_are_kept_and_files_without_reference_go_after_an_hour(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for offset in (1, 2, 3, 4):
        place.upload(offset, str(offset), str(offset + 1))
    place.repository.collect(2)
    assert place.offsets == [4, 3]
    assert place.contents == {"1", "2", "3", "4", "5"}
    place.now += 3_599
    place.repository.collect(2)
    assert place.contents == {"1", "2", "3", "4", "5"}
    place.now += 1
    place.repository.collect(2)
    assert place.contents == {"3", "4", "5"}


def test_incomplete_and_damaged_snapshots_do_not_count_as_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for offset in (1, 2, 3):
        place.upload(offset, str(offset))
    damage(place.remote / "manifests" / place.repository.names()[0])
    next(path for path in (place.remote / "files").iterdir() if path.read_text() == "2").unlink()
    place.another().collect(1)
    assert len(place.repository.names()) == 3, "the oldest is the only one that is whole"


def test_what_a_newer_version_has_written_ends_the_collection(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for offset in (1, 2, 3):
        place.upload(offset, str(offset))
    name = SnapshotManifest(Stamp(IDENTITY, 1, 9, None, 0), 5, {}).new_name()
    (place.remote / "manifests" / name).write_bytes(manifest(v=2))
    assert place.another().collect(1) == 0


def test_files_of_an_upload_that_is_not_complete_stay(tmp_path: Path) -> None:
    place = Place(tmp_path)
    owner, slow = place.another(), place.another()
    place.upload(1, "1", by=owner)
    real = slow._write

    def stop_before_the_manifest(target: str, write: Any) -> None:
        if "/manifests/" in target:
            # What the slow process has sent has no reference yet.
            owner.collect(1)
            place.now += 3_000
            owner.collect(1)
        real(target, write)

    slow._write = stop_before_the_manifest  # type: ignore[method-assign]
    place.upload(3, "9", by=slow)
    assert place.offsets[0] == 3
    place.now += 3_600
    owner.collect(1)
    assert place.contents == {"1", "9"}
    place.now += 3_600
    owner.collect(1)
    assert place.contents == {"9"}


def test_an_upload_that_counted_on_a_deleted_file_is_withdrawn(tmp_path: Path) -> None:
    place = Place(tmp_path)
    owner, slow = place.another(), place.another()
    place.upload(1, "11", by=owner)
    real = slow._write

    def lose_a_file(target: str, write: Any) -> None:
        if "/manifests/" in target:
            next(path for path in (place.remote / "files").iterdir() if path.read_text() == "11").unlink()
        real(target, write)

    slow._write = lose_a_file  # type: ignore[method-assign]
    with pytest.raises(UnusableSnapshotError, match="deleted a file of it"):
        place.upload(2, "11", "12", by=slow)
    assert place.offsets == [1]


# -- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bucket/prefix", "must be a URL"),
        ("s3://key:secret@bucket", "without credentials"),
        ("file:///x?interval_s=soon", "is not a number"),
        ("file:///x?often=1", "unknown part 'often'"),
        ("file:///x?keep=0", "1 or more"),
        ("file:///x?interval_s=0", "above 0"),
    ],
)
def test_settings_that_cannot_be_used(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        application(state_snapshots=text)
    assert "secret@" not in str(raised.value)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMRT_STATE_SNAPSHOTS", f"{tmp_path.as_uri()}?interval_s=60&keep=5")
    found = application()._definition.snapshots
    assert found == StateSnapshots(tmp_path.as_uri(), interval_s=60, keep=5)
    monkeypatch.setenv("STREAMRT_STATE_SNAPSHOTS", "none")
    assert application()._definition.snapshots is None


def test_snapshots_need_changelogs() -> None:
    with pytest.raises(ConfigurationError, match="needs changelog topics"):
        application(state_snapshots="file:///x", use_changelog_topics=False)


def test_credentials_are_shown_nowhere() -> None:
    options = {"secret": "sesame-open", "client_kwargs": {"endpoint_url": "http://host:9000"}, "anon": False}
    found = StateSnapshots("s3://bucket/prefix", storage_options=options)
    with collect_secrets() as collected:
        data = pickle.dumps(found)
    assert b"sesame" not in data
    assert "sesame-open" in collected.values()
    assert "sesame" not in repr(found)
    assert "sesame" not in masked("the key sesame-open is wrong")
    assert pickle.loads(data).options == options
    assert found.options == options


# -- Everything at random --------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.sampled_from(["abort", "lose", "restart", "damage", "old", "wait"]), st.just(""), st.none()),
    ),
    min_size=3,
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=400 if LONG else 15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, transactional=st.booleans(), choice=st.randoms(use_true_random=False))
def test_whatever_happens_state_is_that_of_the_commits(
    steps: list[tuple[str, str, Any]], transactional: bool, choice: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(tmp_path_factory.mktemp("world"), transactional=transactional, keep=2)
    world.open()
    model: dict[str, Any] = {}
    old: Path | None = None
    for step, key, value in steps:
        if step == "commit":
            world.commit(**{key: value})
            model = {name: kept for name, kept in {**model, key: value}.items() if kept is not None}
        elif step == "abort":
            world.work(dict.fromkeys("abcd", "aborted"))
            world.close()
            world.open()
        elif step in ("lose", "restart"):
            world.lose_disk() if step == "lose" else world.close()
            world.open()
        elif step == "damage" and (files := sorted(world.remote.rglob("*/0/*/*"))):
            path = choice.choice(files)
            choice.choice((damage, truncate, Path.unlink))(path)
        elif step == "old" and world.remote.exists():
            # The object store is set back, or forward, as a whole.
            before, old = old, world.remote.with_name(f"old-{time.monotonic_ns()}")
            shutil.copytree(world.remote, old)
            if before is not None:
                shutil.rmtree(world.remote)
                shutil.copytree(before, world.remote)
        elif step == "wait":
            world.clients.clock_ms += ABSENCE_MS // 2
        assert world.state() == model
    world.lose_disk()
    world.open()
    assert world.state() == model
    world.close()


def test_a_checkpoint_is_adopted_only_by_a_store_without_data(tmp_path: Path) -> None:
    store = RocksDBStore("default", "orders", tmp_path / "a")
    partition = store.open(0)
    partition.write([(b"k", b"v")], Stamp(IDENTITY, 1, 2, None, 0))
    partition.checkpoint(tmp_path / "checkpoint")
    with pytest.raises(StateError, match="has no checkpoint"):
        partition.checkpoint(tmp_path / "checkpoint")
    assert partition.get(b"k") == b"v"
    partition.close()
    with pytest.raises(StateError, match="holds data"):
        store.adopt(0, tmp_path / "checkpoint")
    other = RocksDBStore("default", "orders", tmp_path / "b")
    other.adopt(0, tmp_path / "checkpoint")
    adopted = other.open(0)
    assert adopted.get(b"k") == b"v"
    assert adopted.stamp == Stamp(IDENTITY, 1, 2, None, 0)
    adopted.close()


# -- The command -----------------------------------------------------------------------------------------------------


def test_the_command_lists_what_is_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    for number in range(3):
        world.commit(a=number)
    newest, damaged, half = (world.repository.read(name) for name in world.repository.names())
    (world.folder / "files" / half.files["CURRENT"].digest).touch()
    others = {each.digest for manifest in (newest, half) for each in manifest.files.values()}
    harmed = next(each.digest for each in damaged.files.values() if each.digest not in others)
    damage(world.folder / "files" / harmed)

    def listed(*options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = run("state snapshots", world.remote.as_uri(), *options, code=code)["snapshots"]
        return found

    code = 0
    entries = listed()
    assert [(each["store"], each["partition"], each["fits"], each["reason"]) for each in entries] == [
        ("default", 0, None, None)
    ] * 3
    assert [each["offset"] for each in entries] == [int(name[:20]) for name in world.repository.names()]
    assert entries[0]["size"] == newest.size
    # Sizes do not show this damage, checksums do.
    code = 1
    assert [each["complete"] for each in listed("--verify")] == [True, False, True]
    (world.folder / "files" / harmed).unlink()
    assert [each["reason"] and "is missing" in each["reason"] for each in listed()] == [None, True, None]
    shown = streamrt("state", "snapshots", world.remote.as_uri())
    assert shown.code == 1
    assert "default of orders[0]" in shown.out
    assert "is missing" in shown.err


def test_the_command_needs_a_place(tmp_path: Path) -> None:
    assert run("state snapshots", (tmp_path / "nothing").as_uri()) == {"snapshots": []}
    assert "cannot be listed" in streamrt("state", "snapshots", "nosuch://bucket").sentence
    sentence = streamrt("state", "snapshots", str(tmp_path)).sentence
    assert sentence.endswith(f"give shop:app, or for a directory {tmp_path.as_uri()}")
