"""Time from the start of an application's program to its first result, for a first start and for a restart.

Runners take turns. Each started program finds a record in its input, and at a restart the state of its last run.
The peer's figures are those of one process.

    python -m bench.start
    python -m bench.start --runners resident --against ../streamrt-0.1
"""

import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bench import cases, common, runners
from bench.idle import await_output
from bench.runners import PEER, PROCESSES, Runner, Running

RUNNERS = {
    "micro-batch": Runner("micro-batch"),
    "resident": Runner("resident"),
    "processes": Runner(PROCESSES),
    "peer": Runner(PEER),
}
RECORDS = 1_000


@dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        seconds: from the start of the process to the first record in the output topic.
        cpu_s: processor time until then, of all processes.
        memory_mb: memory of all processes after 1,000 further records; shared pages count once.
    """

    seconds: float
    cpu_s: float
    memory_mb: float


def start(
    runner: Runner, case: str, address: str, topics: tuple[str, str], group: str, directory: Path, options: "Options"
) -> Start:
    """Start an application, wait for its first result, and stop it."""
    source, target = topics
    common.fill(address, source, 1)
    begun = time.monotonic()
    with Running(
        runner,
        case,
        address,
        source,
        target,
        peer_python=options.peer_python,
        master=options.master,
        group=group,
        checkout=options.checkout,
        state_dir=directory,
    ) as running:
        await_output(address, target, running)
        seconds, cpu_s = time.monotonic() - begun, running.cpu_s()
        common.fill(address, source, RECORDS)
        time.sleep(options.settle_s)
        running.check()
        return Start(seconds, cpu_s, running.memory_mb())


@dataclass(frozen=True)
class Options:
    """Settings of all starts.

    Attributes:
        peer_python: the Python environment of the peer.
        master: Spark's master.
        checkout: another version to start; None for this one.
        settle_s: seconds between the first result and the measurement of memory.
    """

    peer_python: str | None
    master: str
    checkout: Path | None
    settle_s: float


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=3)
    options.add_argument("--case", choices=cases.CASES, default="count")
    options.add_argument("--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS))
    options.add_argument(
        "--against", type=Path, help="the directory of another version, to start in turn with this one"
    )
    options.add_argument("--settle", type=float, default=3.0, help="seconds before the memory is looked at")
    runners.add_options(options)
    chosen = options.parse_args()
    wanted = runners.available({name: RUNNERS[name] for name in chosen.runners}, chosen.peer_python)
    measured: dict[tuple[str, str, str], list[Start]] = defaultdict(list)
    with common.broker() as address, common.scratch() as scratch:
        for run in range(chosen.runs):
            for name, runner in wanted.items():
                for version, checkout in (("", None), ("against", chosen.against)):
                    if version and (checkout is None or runner.is_peer):
                        continue
                    each = Options(
                        chosen.peer_python, chosen.master, checkout and checkout.absolute(), float(chosen.settle)
                    )
                    group, directory = common.unique("bench"), scratch / f"{name}{version}{run}"
                    source = common.unique("in")
                    for what in ("first", "again"):
                        target = common.unique("out")
                        common.create_topics(address, *([source, target] if what == "first" else [target]))
                        found = start(runner, chosen.case, address, (source, target), group, directory, each)
                        measured[name, version, what].append(found)
    rows = [
        [
            f"{name} {version}".strip(),
            what,
            common.median([each.seconds for each in found]),
            common.median([each.cpu_s for each in found]),
            common.median([each.memory_mb for each in found]),
        ]
        for (name, version, what), found in measured.items()
    ]
    common.show("start", ["runner", "start", "seconds", "processor s", "MB"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
