"""The arguments of programs that run one case of a comparison. Peers import this in environments without StreamRT."""

import argparse
from collections.abc import Iterable
from pathlib import Path

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"


def program_options(cases: Iterable[str], guarantees: Iterable[str] = (AT_LEAST_ONCE,)) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all programs have.

    Args:
        cases: the cases that the program has.
        guarantees: the guarantees that it has.
    """
    options = argparse.ArgumentParser(description="Run one case until SIGTERM comes.")
    options.add_argument("case", choices=tuple(cases))
    options.add_argument("address", help="the broker")
    options.add_argument("source", help="topic to read")
    options.add_argument("target", help="topic to write")
    options.add_argument("group", help="consumer group")
    options.add_argument("--state-dir", type=Path, required=True)
    options.add_argument("--guarantee", choices=tuple(guarantees), default=AT_LEAST_ONCE)
    return options


def peer_options(cases: Iterable[str], guarantees: Iterable[str] = (AT_LEAST_ONCE,)) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all programs of peers have; see `program_options`."""
    options = program_options(cases, guarantees)
    options.add_argument("--low-latency", action="store_true", help="send records at once")
    return options
