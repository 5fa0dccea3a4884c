"""Compares StreamRT's tables with Fluss: `make oracle-fluss`, or `python -m tests.oracle.fluss --python PYTHON`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from types import TracebackType
from typing import Any

from tests.oracle.fluss.cluster import cluster
from tests.oracle.fluss.compare import Difference, differences
from tests.oracle.fluss.generate import KINDS, TYPES_CASES, generate
from tests.oracle.fluss.ours import run
from tests.oracle.fluss.recorded import FOLDER, NUMBERS, record

Case = dict[str, Any]

COUNTS = {"log": 100, "keyed": 40, "primary": 100, "maintained": 60, "types": TYPES_CASES, "admin": 100}
"""How many cases of each kind."""
ATTEMPTS = 3


class Fluss:
    """A process with pyfluss that answers cases.

    Args:
        python: the Python of an environment with pyfluss.
        address: address of the cluster.
    """

    def __init__(self, python: str, address: str) -> None:
        self._command = [python, "-m", "tests.oracle.fluss.reference", address]
        self._process = self._start()

    def __enter__(self) -> Fluss:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def ask(self, case: Case) -> list[Any]:
        """Return what Fluss answers.

        Raises:
            RuntimeError: if the case fails there.
        """
        answers: Any = None
        # On a busy machine, a client may wait for ever for the server to take its first rows; another one is served.
        for _ in range(ATTEMPTS):
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
            answers = json.loads(self._process.stdout.readline() or "null")
            if isinstance(answers, list):
                return answers
            self._end()
            self._process = self._start()
        raise RuntimeError(f"Fluss failed with {answers}: {json.dumps(case)}")

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def show(differing: list[Difference]) -> None:
    """Print where the two sides differ."""
    for step, wanted, found in differing:
        print(f"  {json.dumps(step)}\n    expected {json.dumps(wanted)}\n    StreamRT {json.dumps(found)}")


def compare(fluss: Fluss, kind: str, seeds: range, most: int) -> tuple[int, list[tuple[Case, list[Any]]]]:
    """Compare the cases of a kind, and show the first ones that differ; return how many do, and all cases with answers."""
    failed = steps = 0
    asked = []
    for seed in seeds:
        case = generate(kind, seed)
        answers = fluss.ask(case)
        asked.append((case, answers))
        steps += len(answers)
        differing = differences(case, answers, run(case))
        if differing:
            failed += 1
            if failed <= most:
                print(f"\n{kind} {seed}:")
                show(differing)
    print(f"{kind}: {len(seeds)} cases with {steps} steps, {failed} differ", flush=True)
    return failed, asked


def main() -> int:
    """Compare, and write the recorded cases; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.fluss", description=__doc__)
    parser.add_argument("--python", required=True, metavar="PYTHON", help="the Python of an environment with pyfluss")
    parser.add_argument("--kind", choices=KINDS, action="append", help="compare this kind alone")
    parser.add_argument("--count", type=int, help="how many cases of each kind")
    parser.add_argument("--base", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differing cases to show for each kind")
    parser.add_argument("--record", action="store_true", help=f"then write {FOLDER.name}/*.jsonl")
    options = parser.parse_args()
    failed = 0
    with cluster() as address, Fluss(options.python, address) as fluss:
        for kind in options.kind or COUNTS:
            count = options.count or COUNTS[kind]
            differing, asked = compare(fluss, kind, range(options.base, options.base + count), options.show)
            failed += differing
            if options.record:
                record(kind, asked[: NUMBERS[kind]])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
