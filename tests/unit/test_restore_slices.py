"""Restores that the driver runs: a slice takes as long for two hundred tasks as for two."""

from collections.abc import Sequence

import pytest

from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report, RestoredPart
from streamrt.spark.restore_job import restore_in_slices
from streamrt.topology import TaskId
from tests.unit.commit_world import OTHER, OTHER_TASK, World
from tests.unit.tasks import PLACE, TASK

TASKS = [TaskId("orders", number) for number in range(200)]
Shares = Sequence[Sequence[TaskId]]


class Slots:
    """Restores with a clock of its own: opening takes some time for each task, and some have records to restore.

    Args:
        seconds: what each task needs.
        slice_s: when a slot stops to begin, or to go on with, tasks.
    """

    def __init__(self, seconds: dict[TaskId, float], slice_s: float = 2.0) -> None:
        self.needs = dict(seconds)
        self.longest = 0.0
        self.begun: list[TaskId] = []
        self.slices: list[Shares] = []
        self.locked: set[TaskId] = set()
        self._slice_s = slice_s

    def run(self, shares: Shares) -> Report:
        report = Report()
        self.slices.append(shares)
        for share in shares:
            spent = 0.0
            for number, task in enumerate(share):
                if number and spent >= self._slice_s:
                    break
                self.begun.append(task)
                if task in self.locked:
                    report.locked[task] = "in use"
                    continue
                done = min(self.needs[task], max(0.1, self._slice_s - spent))
                self.needs[task] -= done
                spent += done
                finished = self.needs[task] <= 1e-9
                report.restores[task, "default"] = RestoredPart(1, 1, 1, finished)
                if not finished:
                    break
                report.restored.add(task)
            self.longest = max(self.longest, spent)
        return report


def restore(slots: Slots, go_on: list[bool] | None = None, count: int = 2) -> Report:
    answers = iter(go_on or [])
    return restore_in_slices(TASKS, count, slots.run, lambda: next(answers, go_on is None), lambda _: None)


@pytest.mark.parametrize("needs", [0.0, 0.05, 3.0], ids=["nothing", "little", "much"])
@pytest.mark.parametrize("count", [2, 4, 300])
def test_fault_17_a_slice_takes_its_time_whatever_the_number_of_tasks(needs: float, count: int) -> None:
    slots = Slots(dict.fromkeys(TASKS, needs))
    report = restore(slots, count=count)
    assert report.complete
    assert report.restored == set(TASKS)
    assert slots.longest <= 2.1
    assert all(len(shares) <= count for shares in slots.slices)
    # Where there is little to do, that is not one job for each handful of tasks.
    assert len(slots.slices) <= max(1, 200 * needs / min(count, 200) / 2 * 1.6)


def test_fault_17_what_is_begun_is_gone_on_with() -> None:
    slots = Slots({task: 5.0 if task.partition in (0, 1, 5) else 0.1 for task in TASKS})
    assert restore(slots).complete
    assert {task for task in TASKS if slots.begun.count(task) > 1} == {TASKS[0], TASKS[1], TASKS[5]}
    assert slots.begun[:5] == [TASKS[0], TASKS[1], TASKS[0], TASKS[1], TASKS[0]]


def test_fault_17_nothing_is_begun_after_a_stop_or_a_revoke() -> None:
    slots = Slots(dict.fromkeys(TASKS, 1.0))
    report = restore(slots, go_on=[True, True, False])
    assert not report.complete
    assert len(slots.slices) == 2
    assert len(slots.begun) == 8


def test_fault_23_locked_stores_do_not_hold_others_up() -> None:
    slots = Slots(dict.fromkeys(TASKS, 0.01))
    slots.locked = set(TASKS[:3])
    report = restore(slots)
    assert report.restored == set(TASKS[3:])
    assert set(report.locked) == slots.locked
    assert not report.complete
    assert all(slots.begun.count(task) == 1 for task in slots.locked), "they wait for their next trial"


@pytest.mark.parametrize("transactional", [True, False])
def test_fault_17_tasks_that_time_is_not_enough_for_are_not_begun(transactional: bool) -> None:
    """Not even opened, where there is nothing to restore: exactly once, that takes the transactional id."""
    world = World(transactional=transactional)
    context = BatchContext({PLACE: 0, OTHER: 0}, time_limit_s=-1.0)
    report = world.tasks.restore([TASK, OTHER_TASK], context)
    assert report.restored == {TASK}
    assert not report.complete
    assert world.clients.calls.count("init") == int(transactional)
    assert world.tasks.restore([TASK, OTHER_TASK], BatchContext({PLACE: 0, OTHER: 0})).restored == {TASK, OTHER_TASK}
