"""Cases with what PyFlink put out, in files of JSON lines: they need no PyFlink to be compared."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "NUMBERS", "load", "record"]

FOLDER = Path(__file__).parent / "cases"
NUMBERS = {"process": 120, "final": 90, "counted": 30, "triggered": 150, "timed": 30}
"""How many cases of each kind are recorded."""

Case = dict[str, Any]
Results = list[list[Any]]


def load(kind: str) -> Iterator[tuple[Case, Results]]:
    """Yield the recorded cases of a kind, with PyFlink's results."""
    with (FOLDER / f"{kind}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            yield case, case.pop("flink")


def record(kind: str, cases: Iterable[tuple[Case, Results]]) -> None:
    """Write the recorded cases of a kind."""
    FOLDER.mkdir(exist_ok=True)
    lines = (json.dumps({**case, "flink": flink}, separators=(",", ":")) + "\n" for case, flink in cases)
    (FOLDER / f"{kind}.jsonl").write_text("".join(lines), encoding="utf-8")
