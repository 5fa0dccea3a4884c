"""Compares StreamRT with PyFlink's mini-cluster: `make oracle`, or `python -m tests.oracle.minicluster --flink PYTHON`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamrt.jvm.java import find_java
from tests.oracle.generate import generate
from tests.oracle.minicluster.ours import run
from tests.oracle.minicluster.recorded import FOLDER, comparable, record
from tests.oracle.minicluster.scripts import SCRIPTS

Case = dict[str, Any]

RANDOM = {"final": 5, "counted": 5, "triggered": 20}
"""How many of the random cases of `tests.oracle` run here as well; those of process functions need processing time."""
TIMEOUT_S = 900


def ask(python: str, cases: list[Case]) -> list[Any]:
    """Return what a mini-cluster puts out for each case.

    Raises:
        RuntimeError: if it does not answer.
    """
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [python, "-m", "tests.oracle.minicluster.flink"],
        input=json.dumps(cases),
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        # Workers start in other directories, and read the functions of the cases from here.
        env={**os.environ, "JAVA_HOME": str(find_java().home), "PYTHONPATH": str(root)},
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(f"PyFlink's mini-cluster ended with {done.returncode}: its messages are above")
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Compare, and write the recorded results; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.minicluster", description=__doc__)
    parser.add_argument("--flink", required=True, metavar="PYTHON", help="the Python of an environment with PyFlink")
    parser.add_argument("--only", metavar="NAME", nargs="*", help="compare these scripted cases alone")
    parser.add_argument("--record", action="store_true", help=f"then write {FOLDER.name}/*.jsonl")
    options = parser.parse_args()
    cases = {name: SCRIPTS[name] for name in options.only or SCRIPTS}
    if not options.only:
        cases |= {f"{kind} {seed}": generate(kind, seed) for kind, count in RANDOM.items() for seed in range(count)}
    results = dict(zip(cases, ask(options.flink, list(cases.values())), strict=True))
    failed = 0
    for name, case in cases.items():
        wanted, found = comparable(case, results[name], run(case))
        if found != wanted:
            failed += 1
            print(f"\n{name}:\n  {json.dumps(case)}")
            for row in wanted:
                print("  PyFlink ", row)
            for row in found:
                print("  StreamRT", row)
    print(f"mini-cluster: {len(cases)} cases with {sum(map(len, results.values()))} results, {failed} differ")
    if options.record and not options.only:
        record({name: results[name] for name in SCRIPTS})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
