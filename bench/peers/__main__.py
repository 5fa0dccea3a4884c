"""StreamRT beside other systems, in turn on one broker: throughput, start and latency, as tables of Markdown.

The cases are in `bench/dataframe_cases.py`; the programs of the peers are in this folder, and name the settings that are
not their defaults. There are 1,000 keys and 2 partitions; records are JSON of about 100 bytes. StreamRT has two slots, and
the others two processes, or two threads in Java. In the names of cases, `-eos` stands for exactly-once.

"aggregate" and "table_join" are tables, of `bench/table_cases.py`: only Kafka Streams has them as well.

- throughput: an application reads a topic that was filled before. The clock begins 6 s after the first output, or after a
  quarter of all, so the start does not count. It ends with the last output, or after `--longest` seconds. Each run has
  a new group and new state.
- start: a keyed count, from the start of the program until its modules are imported, partitions are assigned, and the first
  output is there; `again` is a second start, with the state of the first one. Peers have one process and one thread here.
- latency: of each system one application, measured in as many windows as there are rounds. "probe" is what measures,
  without an application: one of the two trips through the broker that each output makes.

Throughput and start are measured in rounds, in which systems take turns. `--against` adds another version of StreamRT.

    python -m bench.peers
    python -m bench.peers --parts throughput --cases count --systems processes quix --rounds 3
"""

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import common, start
from bench.peers import latency, throughput
from bench.peers.systems import HERE, KAFKA_STREAMS, PEERS
from bench.runners import SYSTEMS, Runner, RunnerError, installed

AT_LEAST_ONCE, EXACTLY_ONCE = common.GUARANTEES
EOS = "-eos"
CASES = ("stateless", "count", "count-eos", "tumbling", "group_by", "aggregate", "table_join")
RATES = (100.0, 10_000.0)
PARTS = ("throughput", "start", "latency")
LABELS = {
    "resident": "StreamRT, Spark slots",
    "processes": "StreamRT, `processes[2]`",
    "micro-batch": "StreamRT, micro-batches",
    "kafka-streams": f"Kafka Streams {KAFKA_STREAMS[0].version}",
    "loop": "loop by hand",
    "quix": "Quix Streams",
    "bytewax": "bytewax",
    "faust": "Faust",
}
NONE = "-"
Measured = dict[tuple[str, str], list[Any]]
"""Figures by case and system."""
Text = Callable[[list[Any]], str]


@dataclass(frozen=True)
class Contestant:
    """A system in the comparison.

    Attributes:
        system: one of `SYSTEMS`.
        checkout: the directory of another version of StreamRT, or None.
    """

    system: str
    checkout: Path | None = None

    def __str__(self) -> str:
        label, pinned = LABELS[self.system], HERE / f"{self.system}.txt"
        if pinned.exists():
            label += " " + pinned.read_text().split()[0].partition("==")[2]
        return f"{label}, before" if self.checkout else label


def turns(contestants: Sequence[Contestant], case: str, **settings: Any) -> Iterator[tuple[Runner, Contestant]]:
    """Yield those that can run a case."""
    guarantee = EXACTLY_ONCE if case.endswith(EOS) else AT_LEAST_ONCE
    for each in contestants:
        runner = Runner(each.system, guarantee, **settings)
        if runner.can(case.removesuffix(EOS)):
            yield runner, each


def compare_throughput(address: str, contestants: Sequence[Contestant], chosen: argparse.Namespace) -> Measured:
    """Measure all cases at saturation."""
    measured: Measured = defaultdict(list)
    source = throughput.fill(address, chosen.records)
    for _ in range(chosen.rounds):
        for case in chosen.cases:
            for runner, each in turns(contestants, case):
                with tolerated(f"{case}, {each}"):
                    figures = throughput.run(
                        runner,
                        case.removesuffix(EOS),
                        address,
                        source,
                        chosen.records,
                        chosen.longest,
                        each.checkout,
                    )
                    measured[case, str(each)].append(figures)
                    progress(f"{case}, {each}: {figures}")
    return measured


def compare_start(address: str, contestants: Sequence[Contestant], chosen: argparse.Namespace) -> Measured:
    """Measure first starts, and starts with state."""
    measured: Measured = defaultdict(list)
    for _ in range(chosen.rounds):
        for runner, each in turns(contestants, "count"):
            # Two processes would be two starts.
            runner = dataclasses.replace(runner, slots=1) if runner.peer else runner
            with tolerated(f"start, {each}"):
                both = start.start_twice(runner, "count", address, settle_s=2.0, checkout=each.checkout)
                for what, found in zip(("first", "again"), both, strict=True):
                    measured[what, str(each)].append(found)
                    progress(f"start, {what}, {each}: {found}")
    return measured


def compare_latency(address: str, contestants: Sequence[Contestant], chosen: argparse.Namespace) -> Measured:
    """Measure p50 and p99 with both guarantees at all rates."""
    measured: Measured = defaultdict(list)
    guarantees = [(EOS if each == EXACTLY_ONCE else "", each) for each in chosen.guarantees]
    settings = (address, chosen.rates, chosen.rounds, chosen.seconds, chosen.warmup, chosen.partitions)
    for ending, guarantee in guarantees:
        for runner, each in turns(contestants, f"seen{ending}", low_latency=True):
            with tolerated(f"latency{ending}, {each}"):
                for rate, found in latency.run(runner, guarantee, *settings, each.checkout).items():
                    measured[f"{rate:,.0f}/s{ending}", str(each)] = found
                    progress(f"{rate:,.0f}/s{ending}, {each}: {found}")
    for rate, found in latency.run(None, AT_LEAST_ONCE, *settings, None).items():
        measured[f"{rate:,.0f}/s", "probe"] = found
    return measured


def progress(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def tolerated(what: str) -> Iterator[None]:
    """Print the error of a run that fails, and leave the run out."""
    try:
        yield
    except RunnerError as error:
        progress(f"{what} failed: {error}")


def median_of(name: str, form: str) -> Text:
    """Return a function that formats the median of one figure."""
    return lambda found: cell([getattr(each, name) for each in found], form)


def percentiles(found: list[tuple[float, float]]) -> str:
    """Write the medians of p50 and p99."""
    return " / ".join(dict.fromkeys(cell(values, ",.1f") for values in zip(*found, strict=True)))


def cell(values: Sequence[float], form: str) -> str:
    """Return a median as text."""
    value = common.median(values)
    return "too slow" if math.isinf(value) else NONE if math.isnan(value) else format(value, form)


def table(title: str, measured: Measured, columns: Sequence[tuple[str, str, Text]]) -> None:
    """Print a row for each system. Columns have a name, a case, and what writes a cell."""
    rows = []
    for system in dict.fromkeys(system for _, system in measured):
        figures = [(measured.get((case, system)), text) for _, case, text in columns]
        rows.append([system, *(text(found) if found else NONE for found, text in figures)])
    common.show_markdown(title, ["", *(name for name, _, _ in columns)], rows)


def show(part: str, measured: Measured, rounds: int) -> None:
    """Print the tables of a part."""
    cases = list(dict.fromkeys(case for case, _ in measured))
    if part == "throughput":
        for what, name, form in (
            ("Records/s", "rate", ",.0f"),
            ("Processor time of a record, µs", "cost_us", ",.1f"),
            ("Memory at work, MB", "memory_mb", ",.0f"),
        ):
            table(f"{what}; medians of {rounds}", measured, [(case, case, median_of(name, form)) for case in cases])
    elif part == "start":
        for case in cases:
            columns = [
                ("imports, s", case, median_of("imported_s", ".2f")),
                ("assigned, s", case, median_of("assigned_s", ".2f")),
                ("first output, s", case, median_of("seconds", ".2f")),
                ("processor time until then, s", case, median_of("cpu_s", ".2f")),
                ("memory, MB", case, median_of("memory_mb", ",.0f")),
            ]
            table(f"Start, {case}; medians of {rounds}", measured, columns)
    else:
        title = f"Latency p50 / p99, ms; medians of {rounds} windows"
        table(title, measured, [(case, case, percentiles) for case in cases])


def main() -> None:
    """Run the comparison and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="cases of throughput")
    options.add_argument("--rounds", type=int, default=5, help="measured runs, of which medians are shown")
    options.add_argument("--against", type=Path, help="the directory of another version of StreamRT, as `before`")
    options.add_argument("--records", type=int, default=600_000, help="records of the input for throughput")
    options.add_argument("--longest", type=float, default=3.0, help="seconds of a run for throughput")
    options.add_argument("--guarantees", nargs="+", choices=common.GUARANTEES, default=list(common.GUARANTEES))
    options.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="records per second for latency")
    options.add_argument("--seconds", type=float, default=2.0, help="length of a window for latency")
    options.add_argument("--warmup", type=float, default=4.0, help="seconds before the first window at a rate")
    options.add_argument("--partitions", type=int, default=common.PARTITIONS, help="partitions for latency")
    options.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = options.parse_args()
    contestants = []
    for system in installed(chosen.systems):
        contestants.append(Contestant(system))
        if chosen.against and system not in PEERS:
            contestants.append(Contestant(system, chosen.against.absolute()))
    compare = {"throughput": compare_throughput, "start": compare_start, "latency": compare_latency}
    measured: dict[str, Measured] = {}
    print(common.machine(), end="\n\n")
    for part in chosen.parts:
        with common.broker(throughput.BROKER if part == "throughput" else None) as address:
            measured[part] = compare[part](address, contestants, chosen)
        show(part, measured[part], chosen.rounds)
    if chosen.json:
        figures = [
            {"part": part, "case": case, "system": system, "figures": found}
            for part, by_case in measured.items()
            for (case, system), found in by_case.items()
        ]
        chosen.json.write_text(json.dumps(figures, indent=1, default=dataclasses.asdict))


if __name__ == "__main__":
    main()
