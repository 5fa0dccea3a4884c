"""Compares StreamRT's tables with those of Kafka Streams: `make oracle-kafka-streams`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

from tests.oracle.kafka_streams.compare import Difference, differences
from tests.oracle.kafka_streams.driver import KafkaStreams
from tests.oracle.kafka_streams.generate import generate
from tests.oracle.kafka_streams.ours import run
from tests.oracle.kafka_streams.recorded import FOLDER, NUMBERS, record

Case = dict[str, Any]

COUNTS = {"table": 200, "join": 600, "foreign": 600, "group": 600, "aggregate": 300, "lookup": 300, "composed": 600}
"""How many cases of each kind."""


def differ(reference: KafkaStreams, case: Case) -> list[Difference]:
    """Return where the two sides differ."""
    answers = reference.ask(case)
    try:
        ours = run(case)
    except Exception as error:
        return [("all steps", answers, f"{type(error).__name__}: {error}")]
    return differences(case, answers, ours)


def shrink(reference: KafkaStreams, case: Case) -> Case:
    """Return a smaller case that still differs."""
    for place in reversed(range(len(case["steps"]))):
        smaller = {**case, "steps": case["steps"][:place] + case["steps"][place + 1 :]}
        if differ(reference, smaller):
            case = smaller
    return case


def show(case: Case, differing: list[Difference]) -> None:
    """Print a case, and where the two sides differ."""
    print(f"  {json.dumps(case['plan'])}")
    for step in case["steps"]:
        print(f"  {json.dumps(step)}")
    for step, wanted, found in differing:
        print(f"  {json.dumps(step)}\n    expected {json.dumps(wanted)}\n    StreamRT {json.dumps(found)}")


def compare(reference: KafkaStreams, kind: str, seeds: range, most: int) -> int:
    """Compare the cases of a kind, and show the first ones that differ; return how many do."""
    failed = outputs = 0
    for seed in seeds:
        case = generate(kind, seed)
        outputs += sum(map(len, reference.ask(case)))
        if not differ(reference, case):
            continue
        failed += 1
        if failed <= most:
            case = shrink(reference, case)
            print(f"\n{kind} {seed}:")
            show(case, differ(reference, case))
    print(f"{kind}: {len(seeds)} cases with {outputs} outputs, {failed} differ", flush=True)
    return failed


def main() -> int:
    """Compare, and write the recorded cases; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.kafka_streams", description=__doc__)
    parser.add_argument("--kind", choices=COUNTS, action="append", help="compare this kind only")
    parser.add_argument("--count", type=int, help="how many cases of each kind")
    parser.add_argument("--base", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, default=3, help="how many differing cases to show for each kind")
    parser.add_argument("--record", action="store_true", help=f"then write {FOLDER.name}/*.jsonl")
    options = parser.parse_args()
    # Rows without a group, and others that are skipped.
    logging.getLogger("streamrt").setLevel(logging.ERROR)
    failed = 0
    with KafkaStreams() as reference:
        for kind in options.kind or COUNTS:
            count = options.count or COUNTS[kind]
            failed += compare(reference, kind, range(options.base, options.base + count), options.show)
            if options.record:
                cases = [generate(kind, seed) for seed in range(NUMBERS[kind])]
                record(kind, [(case, reference.ask(case)) for case in cases])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
