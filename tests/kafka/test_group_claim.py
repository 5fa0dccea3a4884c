"""Only one process at a time changes what a consumer group has, and no instance starts meanwhile."""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.errors import InvalidOperationError, StreamRTError
from streamrt.runtime.driver.starting import group_claim
from streamrt.runtime.driver.starting.group_claim import claimed_group
from tests.kafka.test_reset import app_of, changelog_of, worked
from tests.support import Kafka, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


@contextlib.contextmanager
def held(app: Application, topic: str) -> Iterator[None]:
    """Hold the claim of the group of an application."""
    group, environment = app.config.consumer_group, app._environment
    with claimed_group(environment.admin, environment.connection, group, [topic], lambda: None, 30.0):
        yield


@contextlib.contextmanager
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give up at once what another one holds. Whoever gets the claim has all the time that a busy machine takes."""
    with monkeypatch.context() as patched:
        patched.setattr(group_claim, "_ACQUIRE_S", 0.5)
        patched.setattr(group_claim, "_RELEASE_S", 0.3)
        yield


def test_a1_a_group_that_somebody_changes_is_left_alone(
    kafka: Kafka, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command, and a start, alongside one that holds the claim, which may know another topic of the group."""
    world = worked(kafka, stack)
    app, topic, group = app_of(world), world.first.topic, world.group
    saved = app.savepoint("before")
    commands: dict[str, Callable[[], object]] = {
        "reset": app.reset,
        "repartition": lambda: app.repartition(12),
        "forget": lambda: app.forget_store(topic),
        "setup": app.setup_topics,
    }
    with held(app, topic), impatient(monkeypatch):
        for name, command in commands.items():
            with pytest.raises(InvalidOperationError, match=rf"repartitions consumer group '{group}'"):
                command()
            assert world.committed(world.first) == 10, name
    # By another topic.
    with (
        held(app, changelog_of(world)),
        impatient(monkeypatch),
        pytest.raises(InvalidOperationError, match=rf"group '{group}'"),
    ):
        app.reset()
    # The claim of another group is another one.
    other = kafka.app()
    with held(other, topic), impatient(monkeypatch), pytest.raises(InvalidOperationError, match="repartitions"):
        other.restore_savepoint("before", group)
    assert kafka.admin.topic_ids([saved.topic])[saved.topic] is not None
    app.reset()
    assert world.committed(world.first) == 0
    # Nothing is left behind that would refuse a start.
    app.setup_topics()


def test_a1_two_resets_at_once_are_one_after_the_other(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    world = worked(kafka, stack)
    problems: list[StreamRTError] = []

    def reset() -> None:
        try:
            app_of(world).reset()
        except InvalidOperationError as error:
            problems.append(error)

    threads = [threading.Thread(target=reset) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each may have found an instance of the other one on this machine, or its claim; one of them goes through, or neither.
    if len(problems) == 2:
        app_of(world).reset()
    assert world.committed(world.first) == 0
    assert kafka.admin.topic_ids([changelog_of(world)])[changelog_of(world)] is None
    assert not (Path(kafka.state_dir) / world.group / "0").exists()


def test_a1_a_claim_that_gives_up_is_waited_for(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    """Somebody resets a running application: an instance that looks for its offsets just then goes on."""
    world = worked(kafka, stack)
    app = app_of(world)
    admin = app._environment.admin
    claim = held(app, world.first.topic)
    claim.__enter__()
    ended = threading.Thread(target=lambda: claim.__exit__(None, None, None))
    begun = threading.Event()

    class Admin:
        def group_members(self, group: str, timeout: float = 30, *, is_classic: bool = False) -> Collection[object]:
            begun.set()
            return admin.group_members(group, timeout, is_classic=is_classic)

    waiting = threading.Thread(target=lambda: group_claim.refuse_claimed(Admin(), world.group))
    waiting.start()
    wait_until(begun.is_set)
    ended.start()
    waiting.join()
    ended.join()
    assert definition_of(app).config.consumer_group == world.group
