"""Cases with what Fluss answered, in files of JSON lines: they need no Fluss to be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "NUMBERS", "load", "record"]

FOLDER = Path(__file__).parent / "cases"
NUMBERS = {"log": 30, "keyed": 10, "primary": 15, "maintained": 15, "types": 38, "admin": 30}
"""How many cases of each kind are recorded."""

Case = dict[str, Any]


def load(kind: str) -> Iterator[tuple[Case, list[Any]]]:
    """Yield the recorded cases of a kind, with Fluss's answers."""
    with (FOLDER / f"{kind}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            yield case, case.pop("fluss")


def record(kind: str, cases: Iterable[tuple[Case, list[Any]]]) -> None:
    """Write the recorded cases of a kind."""
    FOLDER.mkdir(exist_ok=True)
    lines = (json.dumps({**case, "fluss": answers}, separators=(",", ":")) + "\n" for case, answers in cases)
    (FOLDER / f"{kind}.jsonl").write_text("".join(lines), encoding="utf-8")
