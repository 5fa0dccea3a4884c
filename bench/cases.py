"""A program that runs one case of the comparisons until it gets SIGTERM.

The programs in `bench/peers` have the same cases and take the same arguments.

    python -m bench.cases count localhost:9092 in out group --mode resident --state-dir state
"""

import argparse
import time
from collections.abc import Iterable
from typing import Any

from bench import common, dataframe_cases, table_cases
from bench.dataframe_cases import add
from bench.program_options import program_options
from streamrt import Application, Tracing

CASES = {**dataframe_cases.CASES, **table_cases.CASES}


def case_options(cases: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all programs of StreamRT have."""
    options = program_options(cases, common.GUARANTEES)
    common.add_mode(options)
    options.add_argument("--master", default=common.MASTER)
    return options


def make_app(chosen: argparse.Namespace, **settings: Any) -> Application:
    """Return the application of a program, by its arguments."""
    return common.application(
        chosen.address,
        chosen.state_dir,
        mode=chosen.mode,
        guarantee=chosen.guarantee,
        master=chosen.master,
        consumer_group=chosen.group,
        **settings,
    )


def main() -> None:
    """Run one case until SIGTERM."""
    print("imported", time.time(), flush=True)
    options = case_options(CASES)
    options.add_argument("--control", help="address of the control server")
    options.add_argument("--sample-ratio", type=float, help="share of the records that begin a trace; none by default")
    chosen = options.parse_args()
    tracing = None if chosen.sample_ratio is None else Tracing(chosen.sample_ratio)
    app = make_app(chosen, control=chosen.control, tracing=tracing)
    add(app, chosen.case, chosen.source, chosen.target, CASES)
    app.run()


if __name__ == "__main__":
    main()
