"""Compares StreamRT with PyFlink over random cases: `make oracle`, or `python -m tests.oracle --flink PYTHON`."""

import argparse
import json
import subprocess
import sys
from types import TracebackType
from typing import Any

from tests.oracle.compare import expected, plain
from tests.oracle.generate import KINDS, generate
from tests.oracle.ours import run
from tests.oracle.recorded import FOLDER, NUMBERS, record

Case = dict[str, Any]

COUNTS = {"process": 2_500, "final": 2_500, "counted": 1_000, "triggered": 3_000, "timed": 500}
"""How many cases of each kind."""


class Flink:
    """A process with PyFlink that answers cases."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "tests.oracle.flink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Flink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, case: Case) -> Any:
        """Return what PyFlink puts out.

        Raises:
            RuntimeError: if the case fails there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or "null")
        if not isinstance(answer, list):
            raise RuntimeError(f"PyFlink failed with {answer}: {json.dumps(case)}")
        return answer


def differs(flink: Flink, case: Case) -> tuple[Any, Any] | None:
    """Return the results of PyFlink and StreamRT if they differ."""
    wanted = expected(case, flink.ask(case))
    try:
        found: Any = plain(case, json.loads(json.dumps(run(case))))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return None if found == wanted else (wanted, found)


def shrink(flink: Flink, case: Case) -> Case:
    """Return a smaller case that still differs."""
    places = list(range(len(case["steps"])))
    for place in reversed(places):
        smaller = {**case, "steps": case["steps"][:place] + case["steps"][place + 1 :]}
        if differs(flink, smaller) is not None:
            case = smaller
    return case


def show(case: Case, wanted: Any, found: Any) -> None:
    """Print a case with the results of both sides."""
    print(json.dumps({name: value for name, value in case.items() if name != "steps"}))
    if isinstance(found, str):
        print(f"  StreamRT: {found}")
        return
    for step, one, other in zip(case["steps"], wanted, found, strict=True):
        print(f"  {json.dumps(step)}\n    PyFlink  {one}" + ("" if one == other else f"\n    StreamRT {other}"))


def compare(flink: Flink, kind: str, seeds: range, most: int) -> int:
    """Compare the cases of a kind; return how many differ, and show the first ones."""
    failed = results = 0
    for seed in seeds:
        case = generate(kind, seed)
        difference = differs(flink, case)
        results += sum(map(len, flink.ask(case)))
        if difference is None:
            continue
        failed += 1
        if failed <= most:
            print(f"\n{kind} {seed}:")
            case = shrink(flink, case)
            show(case, *(differs(flink, case) or difference))
    print(f"{kind}: {len(seeds)} cases with {results} results, {failed} differ", flush=True)
    return failed


def main() -> int:
    """Compare, and write the recorded cases; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--flink", required=True, metavar="PYTHON", help="the Python of an environment with PyFlink")
    parser.add_argument("--kind", choices=KINDS, action="append", help="compare this kind alone")
    parser.add_argument("--count", type=int, help="how many cases of each kind")
    parser.add_argument("--base", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differences to show for each kind")
    parser.add_argument("--record", action="store_true", help=f"then write {FOLDER.name}/*.jsonl")
    options = parser.parse_args()
    with Flink(options.flink) as flink:
        failed = 0
        for kind in options.kind or COUNTS:
            count = options.count or COUNTS[kind]
            failed += compare(flink, kind, range(options.base, options.base + count), options.show)
            if options.record:
                cases = [generate(kind, seed) for seed in range(NUMBERS[kind])]
                record(kind, [(case, flink.ask(case)) for case in cases])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
