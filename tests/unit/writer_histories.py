"""Histories of writers with one id, and what holds after each: readers see the rows up to the state, each once."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from streamrt.errors import InvalidOperationError, TransactionError
from streamrt.kafka.client import KafkaRequestError
from streamrt.tables.access.links import RecordSender
from streamrt.tables.table import Table
from streamrt.tables.writing.writer import TableWriter
from streamrt.testing.memory_topics import MemoryLinks
from tests.support import LONG
from tests.table_home import Home, committed, create, table_info

_ACTIONS = (
    "append",
    "append",
    "frame",
    "flush",
    "flush",
    "checkpoint",
    "takeover",
    "takeover",
    "takeover-late",
    "close",
    "close",
    "lose-before",
    "lose-after",
    "other",
    "other-open",
)
TRIED = 2_000 if LONG else 100
HISTORIES = st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 5)), min_size=10, max_size=30)
"""Actions, and which writer does each of them."""

_TIMEOUT_S = 0.02
"""For which a new writer waits while a transaction of another one is open, which is then ended."""


class _Links(MemoryLinks):
    """Topics in memory; something may happen in the moment before a writer takes its id."""

    def __init__(self) -> None:
        super().__init__()
        self.before_id: Callable[[], None] | None = None

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        happens, self.before_id = self.before_id, None
        if happens is not None:
            happens()
        return super().sender(options, transactional_id)


class _History:
    def __init__(self) -> None:
        self.links = _Links()
        created = create(self.links, table_info("n BIGINT", partitions=2))
        self.home = Home(self.links)
        self.table = Table(created.info, self.home)
        self.number: list[int] = []
        self.writers: list[TableWriter] = []
        # Writes to another table, and has its state in the same topic.
        self.others = create(self.links, table_info("n BIGINT", "shop.others"))
        self.other: TableWriter | None = None
        self.take_over()

    def take_over(self) -> None:
        waits_s = self.home.timeout
        # A transaction that is open may be before what there is to read.
        self.home.timeout = waits_s if self.other is None else _TIMEOUT_S
        try:
            writer = self.table.writer(id="loader")
        except KafkaRequestError:
            assert self.other is not None
            self.end_other()
            self.home.timeout = waits_s
            writer = self.table.writer(id="loader")
        finally:
            self.home.timeout = waits_s
        self.writers.append(writer)
        self.number.append(int(writer.state or 0))

    def end_other(self) -> None:
        if self.other is not None:
            self.other.close(failed=True)
            self.other = None

    def do(self, action: str, which: int) -> None:
        # Half of the work is that of the newest writer.
        chosen = max(0, len(self.writers) - 1 - max(0, which - 2))
        if action == "takeover":
            self.take_over()
        elif action == "takeover-late":
            # While a new writer begins, the former one commits.
            self.links.before_id = lambda: self.work("append-checkpoint", len(self.writers) - 1, which)
            self.take_over()
        elif action == "other":
            self.end_other()
            with self.others.writer(id="loader") as writer:
                writer.append([which])
                writer.checkpoint(f"{which + 1_000}")
        elif action == "other-open":
            self.end_other()
            self.other = self.others.writer(id="loader")
            # As if the process halted between the record of its state and the commit.
            self.other.append([which])
            sender: Any = self.other._rows.sender
            sender.produce("_streamrt_writers", b"{}", b"shop.others/loader", partition=0)
        else:
            self.work(action, chosen, which)

    def work(self, action: str, chosen: int, which: int) -> None:
        writer, number = self.writers[chosen], self.number
        try:
            if action.startswith("append"):
                writer.append([number[chosen]])
                number[chosen] += 1
                if action == "append-checkpoint":
                    writer.checkpoint(str(number[chosen]))
            elif action == "frame":
                writer.append_arrow(pa.table({"n": [number[chosen], number[chosen] + 1]}))
                number[chosen] += 2
            elif action == "flush":
                writer.flush()
            elif action == "close":
                writer.close(failed=bool(which % 2))
            else:
                with pytest.MonkeyPatch.context() as patch:
                    _lose_answer(patch, writer._rows.sender, action)
                    writer.checkpoint(str(number[chosen]))
        except (TransactionError, InvalidOperationError):
            # Of a zombie, of a writer that is closed, or of one that does not know what became of its checkpoint.
            assert chosen < len(self.writers) - 1 or action.startswith("lose") or writer._life.value != "open"


def run_history(actions: Sequence[tuple[str, int]]) -> None:
    """Do what a history says; all writers with the id but the last are zombies that go on, and answers may be lost.

    Raises:
        AssertionError: if rows and state do not agree at the end.
    """
    history = _History()
    with contextlib.ExitStack() as stack:
        stack.callback(history.end_other)
        for action, which in actions:
            history.do(action, which)
        history.take_over()
        state = history.number[-1]
        history.writers[-1].close()
    found = sorted(stored.row["n"] for stored in committed(history.links, history.table))
    assert found == list(range(state))


def _lose_answer(patch: pytest.MonkeyPatch, sender: RecordSender, action: str) -> None:
    """Have the answer to a commit be lost, before or after it has happened."""
    commit = type(sender).commit

    def lost(sender: RecordSender) -> None:
        if action == "lose-after":
            commit(sender)
        raise TransactionError("no answer")

    if action.startswith("lose"):
        patch.setattr(type(sender), "commit", lost)
