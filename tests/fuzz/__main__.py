"""Fuzzes the deserializers in a process with limits: `python -m tests.fuzz --count 1000000`, or `--seed 7` for one input.

With `--of tables`, that is what tables read of others: schemas, statements, records of catalogues, tokens and states. With
`--of hostile`, it is what an application reads that others can write: headers of dead letters, metadata of commits,
manifests, changelogs, stamps, entries of file commits, Parquet, assignments, addresses and paths of requests.

Each input is made from its own seed, so that whatever goes wrong can be replayed. The process may take a few hundred
megabytes and so much processor time; it may open no connection but to its own registry. A signal ends the process: then
the file of `--progress` says which seed it was.
"""

import argparse
import gc
import logging
import mmap
import random
import resource
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from streamrt.errors import IgnoreMessage
from streamrt.serializers import MessageField
from tests.fuzz.hostile_targets import hostile_targets
from tests.fuzz.table_targets import table_targets
from tests.fuzz.targets import Target, start_registry, targets

MEMORY_BYTES = 256 * 2**20
"""How much the process may grow, beyond what it has when the first input comes."""
SLOW_S = 1.0
_SEED = struct.Struct("<Q")


class Wrong(Exception):  # noqa: N818 - it ends the run
    """An input did what it must not do."""


def main(others: list[Target] | None = None) -> int:
    """Run what the command line asks for; return 1 if something was wrong.

    Args:
        others: what to fuzz instead of the deserializers.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--of", choices=("deserializers", "tables", "hostile"), default="deserializers", help="what is fuzzed"
    )
    parser.add_argument("--seed", type=int, help="the first seed; by default a random one")
    parser.add_argument("--count", type=int, help="how many inputs; 1 if a seed is given, else 50,000")
    parser.add_argument("--progress", type=Path, help="file that holds the seed of the input that is being read")
    parser.add_argument("--cpu", type=int, default=3_600, help="how many seconds of processor time it may take")
    parser.add_argument("--describe", action="store_true", help="show the input of the seed instead of reading it")
    options = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    count = options.count or (50_000 if options.seed is None else 1)
    address = start_registry()
    # Some inputs are worth a warning.
    logging.disable()
    chosen = "" if options.of == "deserializers" else f" --of {options.of}"
    if others is None:
        others = {
            "deserializers": lambda: targets(f"http://{address[0]}:{address[1]}"),
            "tables": table_targets,
            "hostile": hostile_targets,
        }[options.of]()
    everything = others
    if options.describe:
        print(_description(first, *_input(first, everything)) + chosen)
        return 0
    bound = {target.name: target.deserializer.bind("topic", MessageField.VALUE) for target in everything}
    _warm_up(everything, bound)
    _limit(options.cpu)
    contacted = _watch_connections(address)
    progress = _progress(options.progress)
    outcomes: Counter[str] = Counter()
    slowest, begun = (0.0, 0), time.process_time()
    print(f"seeds {first} to {first + count - 1}", flush=True)
    for seed in range(first, first + count):
        _SEED.pack_into(progress, 0, seed)
        target, data, headers = _input(seed, everything)
        started = time.process_time()
        try:
            outcome = _read(target, bound[target.name], data, headers)
        except Wrong as wrong:
            print(f"{wrong}\n{_description(seed, target, data, headers)}{chosen}", flush=True)
            return 1
        took = time.process_time() - started
        if took > SLOW_S or contacted:
            what = f"contacted {contacted}" if contacted else f"took {took:.1f} s"
            print(f"{what}\n{_description(seed, target, data, headers)}{chosen}", flush=True)
            return 1
        slowest = max(slowest, (took, seed))
        outcomes[outcome] += 1
    seconds = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{count} inputs in {seconds:.0f} s of processor time: {dict(outcomes)}; the slowest took {slowest[0] * 1000:.0f} ms "
        f"(seed {slowest[1]}), {peak} MiB at most"
    )
    return 0


def _input(seed: int, everything: list[Target]) -> tuple[Target, bytes, Any]:
    rng = random.Random(seed)
    target = rng.choice(everything)
    return target, target.data(rng), target.headers(rng)


def _read(target: Target, load: Any, data: bytes, headers: Any) -> str:
    try:
        value = load(data, headers)
        if target.deserializer.split_values:
            value = list(value)
    except target.errors as error:
        if not str(error) or len(str(error)) > 2_000:
            raise Wrong(f"the message has {len(str(error))} characters") from error
        return "refused"
    except IgnoreMessage:
        return "ignored"
    except BaseException as error:  # what else there is, is what is looked for
        raise Wrong(f"{type(error).__name__}: {str(error)[:500]}") from error
    return "read"


def _description(seed: int, target: Target, data: bytes, headers: Any) -> str:
    shown = data.hex() if len(data) <= 4_000 else f"{data[:4_000].hex()}... ({len(data)} bytes)"
    return (
        f"target {target.name!r}, headers {headers!r}, input (hex): {shown}\n"
        f"replay: python -m tests.fuzz --seed {seed} --count 1"
    )


def _warm_up(everything: list[Target], bound: dict[str, Any]) -> None:
    """Let each target import, compile and connect what it needs; each must read what is said to be valid."""
    for target in everything:
        for data in target.valid:
            tries = (_read(target, bound[target.name], data, target.headers(random.Random(seed))) for seed in range(99))
            if "read" not in tries:
                raise Wrong(f"target {target.name!r} does not read {data!r}")
    gc.collect()


def _limit(cpu_s: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        allowed = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch_connections(allowed: tuple[str, int]) -> list[Any]:
    contacted: list[Any] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect" and tuple(arguments[1][:2]) != allowed:
            contacted.append(arguments[1])
        elif event == "socket.getaddrinfo" and arguments[0] not in (allowed[0], allowed[0].encode()):
            contacted.append(arguments[0])

    sys.addaudithook(hook)
    return contacted


def _progress(path: Path | None) -> Any:
    if path is None:
        return bytearray(_SEED.size)
    path.write_bytes(bytes(_SEED.size))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SEED.size)


if __name__ == "__main__":
    sys.exit(main())
