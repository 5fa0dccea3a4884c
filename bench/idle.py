"""Processor time of an idle application: its whole process tree, Spark's JVM included.

The application processes one record, so that everything has started. The measurement begins after a settling time.

    python -m bench.idle
"""

import sys
import time

from bench import common, dataframe_cases
from bench.runners import SYSTEMS, Runner, RunnerError, Running, installed
from streamrt.kafka import Consumer

TARGET_PERCENT = 3.0
START_S = 120.0


def await_output(address: str, topic: str, running: Running) -> None:
    """Wait for one record of a topic.

    Raises:
        RunnerError: if the application ended, or no record came in time.
    """
    deadline = time.monotonic() + START_S
    with Consumer(address, common.unique("bench"), "earliest") as consumer:
        consumer.subscribe([topic])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return
            running.check()
    raise RunnerError(f"no output came for {START_S:.0f} s")


def main() -> int:
    """Run the benchmark and print the figures."""
    options = common.parser(__doc__ or "", runs=1)
    options.add_argument("--case", choices=dataframe_cases.CASES, default="count")
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument("--settle", type=float, default=20.0, help="seconds after the first output")
    options.add_argument("--seconds", type=float, default=30.0, help="length of a run")
    options.add_argument(
        "--check", action="store_true", help=f"fail if the resident mode takes more than {TARGET_PERCENT:g} %%"
    )
    chosen = options.parse_args()
    wanted = [runner for runner in map(Runner, installed(chosen.systems)) if runner.can(chosen.case)]
    shares: dict[str, float] = {}
    with common.broker() as address:
        for runner in wanted:
            source, target = common.unique("in"), common.unique("out")
            common.create_topics(address, source, target)
            common.fill(address, source, 1)
            measured: list[float] = []
            with Running(runner, chosen.case, address, source, target, master=chosen.master) as running:
                await_output(address, target, running)
                time.sleep(chosen.settle)
                for _ in range(chosen.runs):
                    before, begun = running.cpu_s(), time.monotonic()
                    time.sleep(chosen.seconds)
                    measured.append(100 * (running.cpu_s() - before) / (time.monotonic() - begun))
                running.check()
            shares[runner.system] = common.median(measured)
    targets = {"resident": f"{TARGET_PERCENT:g}"}
    rows = [[name, share, targets.get(name, "")] for name, share in shares.items()]
    common.show("idle", ["system", "% of a core", "target %"], rows)
    if chosen.check and shares.get("resident", 0.0) > TARGET_PERCENT:
        common.console.print(f"the resident mode took {shares['resident']:.1f} % of a core")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
