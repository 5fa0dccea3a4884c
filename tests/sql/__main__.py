"""Compares views with the batch queries of DuckDB: `python -m tests.sql tpch|nexmark|logictest`."""

import argparse
import logging
import sys
import time
from collections.abc import Iterator

from tests.sql import logictest, nexmark, tpch
from tests.sql.suites import Outcome, Suite, describe_outcomes, describe_refusals, run_suite


def main() -> int:
    """Run suites; return 1 if rows of any view are wrong, or a view failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, text in (
        ("tpch", "the 22 queries of TPC-H"),
        ("nexmark", "the queries of Nexmark"),
        ("logictest", "SQLite's sqllogictest"),
    ):
        sub = kinds.add_parser(kind, help=text)
        sub.add_argument("--only", action="append", default=[], help="name of a query to run; may be repeated")
        sub.add_argument("--chunks", type=int, default=8, help="in how many chunks the rows come")
        sub.add_argument("--verbose", action="store_true", help="print each query, not only those that do not pass")
        sub.add_argument("--guarantee", choices=("exactly-once", "at-least-once"), default="exactly-once")
        if kind == "tpch":
            sub.add_argument("--scale", type=float, default=0.01)
        elif kind == "nexmark":
            sub.add_argument("--events", type=int, default=100_000)
        else:
            sub.add_argument("--files", action="append", help="regular expression for names of files")
            sub.add_argument(
                "--step", type=int, help="take one of so many queries of each file; by default as SHARES says"
            )
    options = parser.parse_args()
    # Skipped records and rebuilt stores are none of the comparison's business.
    logging.getLogger("streamrt").setLevel(logging.ERROR)
    outcomes: list[Outcome] = []
    started = time.perf_counter()
    for suite in _make_suites(options):
        begun, count = time.perf_counter(), len(outcomes)
        for outcome in run_suite(suite, options.only, options.guarantee):
            outcomes.append(outcome)
            if options.verbose or outcome.kind != "passed":
                print(f"{suite.name} {outcome.query}: {outcome.kind}", _details(outcome), flush=True)
        print(f"{suite.name}: {describe_outcomes(outcomes[count:], time.perf_counter() - begun)}", flush=True)
    print(f"all: {describe_outcomes(outcomes, time.perf_counter() - started)}")
    for line in describe_refusals(outcomes):
        print(f"  {line}")
    return int(any(outcome.kind in ("wrong", "failed") for outcome in outcomes))


def _make_suites(options: argparse.Namespace) -> Iterator[Suite]:
    if options.kind == "tpch":
        yield tpch.make_suite(options.scale, options.chunks)
    elif options.kind == "nexmark":
        yield nexmark.make_suite(options.events, options.chunks)
    else:
        for pattern in options.files or logictest.SHARES:
            step = options.step or logictest.SHARES.get(pattern, 1)
            for name in logictest.file_names(pattern):
                yield logictest.make_suite(name, keep=slice(None, None, step))


def _details(outcome: Outcome) -> str:
    if outcome.kind == "passed":
        return f"{outcome.rows} rows, {outcome.seconds:.1f} s"
    return outcome.detail


if __name__ == "__main__":
    sys.exit(main())
