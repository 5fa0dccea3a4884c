"""Two frames that meet behind exchanges: each output tells which records of the other side came before it."""

from collections.abc import Iterator
from typing import Any

import orjson

from streamrt import CoProcessFunction
from streamrt.process import Context

LEFT, RIGHT, FAR = "repartition__sim--in--g", "repartition__sim--other--g", "repartition__sim--other--h"
BEHIND_FAR = "repartition__sim--repartition.other.h--g"
KINDS = ("two", "chain", "mixed", "asof")
"""Two exchanges; two on one side, one after the other; an exchange and an input topic; two in front of an as-of join."""


def inputs_of(kind: str) -> tuple[str, str]:
    """Return the topics that meet: the left and the right one."""
    return ("in" if kind == "mixed" else LEFT), (BEHIND_FAR if kind == "chain" else RIGHT)


class Meet(CoProcessFunction):
    """Keeps the ids of each side by key, and tells those of the other side."""

    def process_element1(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield self._meet(value, ctx, "left", "right")

    def process_element2(self, value: Any, ctx: Context) -> Iterator[Any]:
        yield self._meet(value, ctx, "right", "left")

    def _meet(self, value: Any, ctx: Context, own: str, other: str) -> Any:
        ids = ctx.state.get(own, [])
        if value["u"] not in ids:
            ctx.state.set(own, [*ids, value["u"]])
        return {"u": value["u"], "seen": ctx.state.get(other, [])}


def key_of(kind: str, topic: str, group: str, key: bytes) -> bytes:
    """Return the key with which a record is written; what meets without an exchange has the key of the others."""
    return orjson.dumps(group) if kind == "mixed" and topic == "in" else key


def match(left: Any, right: Any) -> Any:
    """Return what an as-of join emits."""
    return {"u": left["u"], "seen": [] if right is None else [right["u"]]}
