"""Cases with what Kafka Streams put out, in files of JSON lines: they need no Java to be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "NUMBERS", "load", "record"]

FOLDER = Path(__file__).parent / "cases"
NUMBERS = {"table": 15, "join": 30, "foreign": 30, "group": 30, "aggregate": 20, "lookup": 15, "composed": 30}
"""How many cases of each kind are recorded."""

Case = dict[str, Any]


def load(kind: str) -> Iterator[tuple[Case, list[Any]]]:
    """Yield the recorded cases of a kind, with Kafka Streams' outputs."""
    with (FOLDER / f"{kind}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            yield case, case.pop("kafka-streams")


def record(kind: str, cases: Iterable[tuple[Case, list[Any]]]) -> None:
    """Write the recorded cases of a kind."""
    FOLDER.mkdir(exist_ok=True)
    lines = (json.dumps({**case, "kafka-streams": found}, separators=(",", ":")) + "\n" for case, found in cases)
    (FOLDER / f"{kind}.jsonl").write_text("".join(lines), encoding="utf-8")
