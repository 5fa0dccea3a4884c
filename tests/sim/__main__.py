"""Runs the simulator: `python -m tests.sim --seed 7` replays one seed, `python -m tests.sim --count 1000` runs many."""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping

from tests.sim.app import Setup
from tests.sim.deployments import DeploymentSimulation
from tests.sim.deriving import DERIVED
from tests.sim.ending import EndingSimulation
from tests.sim.meeting import KINDS
from tests.sim.recreating import RecreatedSimulation, ResidentRecreatedSimulation
from tests.sim.relating import KINDS as HOWS
from tests.sim.resident import ResidentSimulation
from tests.sim.simulation import Simulation, Violation
from tests.sim.standbys import StandbySimulation
from tests.sim.tokens import ResidentTokenSimulation, TokenSimulation
from tests.sim.viewing import QUERIES
from tests.sim.windowing import WindowSimulation

MODES: Mapping[str, type[Simulation]] = {
    kind.mode: kind
    for kind in (Simulation, ResidentSimulation, DeploymentSimulation, TokenSimulation, ResidentTokenSimulation)
}
ALL_MODES: Mapping[str, type[Simulation]] = {
    **MODES,
    **{
        kind.mode: kind
        for kind in (
            EndingSimulation,
            WindowSimulation,
            RecreatedSimulation,
            ResidentRecreatedSimulation,
            StandbySimulation,
        )
    },
}
"""With those that have an application of their own."""
GUARANTEES = ("exactly-once", "at-least-once")


def simulate(mode: str, seed: int, setup: Setup | None = None) -> Simulation:
    """Run one seed.

    Args:
        mode: how the tasks are run.
        seed: decides all else.
        setup: what the application has; decided by the seed if it is not given.

    Raises:
        Violation: if something was wrong.
    """
    simulation = ALL_MODES[mode](seed, setup)
    simulation.run_to_end()
    return simulation


def main() -> int:
    """Run what the command line asks for; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--mode", choices=ALL_MODES, default="micro-batch", help="how the tasks are run")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--count", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--base", type=int, help="the first seed; by default a random one")
    parser.add_argument("--processing", choices=GUARANTEES, help="with a process function; not with all modes")
    parser.add_argument("--expanding", action="store_true", help="with records that become two above it")
    parser.add_argument("--asynchronous", choices=GUARANTEES, help="with asynchronous calls; not with all modes")
    parser.add_argument("--broadcasting", choices=GUARANTEES, help="with broadcast state; not with all modes")
    meetings = [f"{kind}-{guarantee}" for kind in KINDS for guarantee in GUARANTEES]
    parser.add_argument("--joining", choices=meetings, help="where frames meet behind exchanges; not with all modes")
    relations = [f"{how}-{guarantee}" for how in HOWS for guarantee in GUARANTEES]
    parser.add_argument("--relating", choices=relations, help="with tables that are joined; not with all modes")
    derived = [f"{kind}-{guarantee}" for kind in DERIVED for guarantee in GUARANTEES]
    parser.add_argument(
        "--deriving", choices=derived, help="with a table that is derived from others; not with all modes"
    )
    views = [f"{kind}-{guarantee}" for kind in QUERIES for guarantee in GUARANTEES]
    parser.add_argument("--viewing", choices=views, help="with a view in SQL; not with all modes")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    setup = None
    if options.processing is not None:
        transactional = options.processing == "exactly-once"
        setup = Setup(transactional, True, False, False, processing=True, expanding=options.expanding)
    if options.asynchronous is not None:
        setup = Setup(options.asynchronous == "exactly-once", True, False, False, asynchronous=True)
    if options.joining is not None:
        kind, _, guarantee = options.joining.partition("-")
        setup = Setup(guarantee == "exactly-once", True, False, False, joining=kind)
    if options.relating is not None:
        how, _, guarantee = options.relating.partition("-")
        setup = Setup(guarantee == "exactly-once", True, False, False, relating=how)
    if options.deriving is not None:
        kind = options.deriving.removesuffix("-exactly-once").removesuffix("-at-least-once")
        transactional = options.deriving.endswith("-exactly-once")
        setup = Setup(transactional, True, False, False, expanding=options.expanding, deriving=kind)
    if options.viewing is not None:
        kind, _, guarantee = options.viewing.partition("-")
        setup = Setup(guarantee == "exactly-once", True, False, False, viewing=kind)
    if options.broadcasting is not None:
        setup = Setup(options.broadcasting == "exactly-once", True, False, False, broadcasting=True)
    if options.seed is not None:
        simulation = simulate(options.mode, options.seed, setup)
        print(f"seed {options.seed} is right: {simulation.setup}, {simulation.counts}")
        return 0
    base = random.SystemRandom().randrange(1 << 32) if options.base is None else options.base
    print(f"base seed {base}", flush=True)
    begun, events, failed, attempts = time.monotonic(), Counter[str](), 0, 0
    for seed in range(base, base + options.count):
        simulation = ALL_MODES[options.mode](seed, setup)
        try:
            simulation.run_to_end()
        except Violation as violation:
            failed += 1
            print(violation if failed == 1 else str(violation).partition("\n")[0], flush=True)
            if not options.keep_going:
                break
        events.update(simulation.counts.events)
        attempts += simulation.counts.attempts
    seconds = time.monotonic() - begun
    print(f"{options.count} seeds, {failed} wrong, {attempts} attempts in {seconds:.1f} s; faults: {dict(events)}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
