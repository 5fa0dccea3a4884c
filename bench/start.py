"""Time from the start of an application's program to its first result, for a first start and for a restart.

Systems take turns. Each started program finds a record in its input, and at a restart the state of its last run.
The figures of peers are those of one process. "imports" and "assigned" are the seconds until the program has imported its
modules, and until its group has assigned partitions.

    python -m bench.start
    python -m bench.start --systems resident --against ../streamrt-0.1
"""

import contextlib
import math
import sys
import time
from collections import defaultdict
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from bench import common, dataframe_cases
from bench.idle import await_output
from bench.runners import SYSTEMS, Runner, Running, installed
from streamrt.kafka import KafkaRequestError, TopicAdmin

RECORDS = 1_000


@dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        imported_s: from the start of the process until its modules are imported; nan if it does not say when.
        assigned_s: until its group has assigned partitions; nan if it has no group.
        seconds: until the first record is in the output topic.
        cpu_s: processor time until then, of all processes.
        memory_mb: memory of all processes after 1,000 further records; shared pages count once.
    """

    imported_s: float
    assigned_s: float
    seconds: float
    cpu_s: float
    memory_mb: float


class Assignment(common.Watcher):
    """Waits until a group has assigned partitions to a new member: those of an earlier run may still be in it.

    Attributes:
        at: when it had, as seconds since the epoch; nan until then.
    """

    def __init__(self, address: str, group: str) -> None:
        super().__init__(0.02)
        self.at = float("nan")
        self._admin = TopicAdmin(address)
        self._group = group
        self._before = self._assigned()

    def look(self) -> None:
        """Ask the broker."""
        if math.isnan(self.at) and self._assigned() - self._before:
            self.at = time.time()

    def _assigned(self) -> set[str]:
        # The group may not be there yet.
        with contextlib.suppress(KafkaRequestError):
            return {member.member_id for member in self._admin.group_members(self._group) if member.partitions}
        return set()


def start_twice(
    runner: Runner,
    case: str,
    address: str,
    *,
    settle_s: float,
    master: str = common.MASTER,
    checkout: Path | None = None,
) -> tuple[Start, Start]:
    """Measure a first start, and another one with its state.

    Args:
        runner: the application.
        case: one of `dataframe_cases.CASES`.
        address: the broker.
        settle_s: seconds between the first result and the measurement of memory.
        master: Spark's master.
        checkout: another version to start; None for this one.
    """
    source, group = common.unique("in"), common.unique("bench")
    common.create_topics(address, source)

    def start(directory: Path) -> Start:
        target = common.unique("out")
        common.create_topics(address, target)
        common.fill(address, source, 1)
        assignment = Assignment(address, group)
        begun = time.time()
        with (
            Running(
                runner,
                case,
                address,
                source,
                target,
                master=master,
                group=group,
                checkout=checkout,
                state_dir=directory,
            ) as running,
            assignment,
        ):
            await_output(address, target, running)
            seconds, cpu_s = time.time() - begun, running.cpu_s()
            common.fill(address, source, RECORDS)
            time.sleep(settle_s)
            running.check()
            imported_s = running.imported_at() - begun
            return Start(imported_s, assignment.at - begun, seconds, cpu_s, running.memory_mb())

    with common.scratch() as directory:
        return start(directory), start(directory)


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--case", choices=dataframe_cases.CASES, default="count")
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument(
        "--against", type=Path, help="the directory of another version, to start in turn with this one"
    )
    options.add_argument("--settle", type=float, default=3.0, help="seconds before the memory is looked at")
    chosen = options.parse_args()
    wanted = [runner for runner in map(Runner, installed(chosen.systems)) if runner.can(chosen.case)]
    measured: dict[tuple[str, str], list[Start]] = defaultdict(list)
    with common.broker() as address:
        for _ in range(chosen.runs):
            for runner in wanted:
                versions = [("", None), (" against", chosen.against.absolute())] if chosen.against else [("", None)]
                for version, checkout in versions[: 1 if runner.peer else None]:
                    each = replace(runner, slots=1) if runner.peer else runner
                    both = start_twice(
                        each, chosen.case, address, settle_s=chosen.settle, master=chosen.master, checkout=checkout
                    )
                    for what, found in zip(("first", "again"), both, strict=True):
                        measured[runner.system + version, what].append(found)
    rows = [
        [name, what, *(common.median(figures) for figures in zip(*map(astuple, found), strict=True))]
        for (name, what), found in measured.items()
    ]
    common.show("start", ["system", "start", "imports s", "assigned s", "seconds", "processor s", "MB"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
