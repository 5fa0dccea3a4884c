"""Deliberate mistakes in writers with an id: the test of their histories must find each."""

import contextlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamrt.tables.writing.writer_transactions as transactions_module
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.tables.access.links import RecordSender
from streamrt.tables.writing.writer import TableWriter
from streamrt.tables.writing.writer_states import WRITERS_TOPIC, Saved
from streamrt.tables.writing.writer_transactions import WriterTransactions
from streamrt.testing.memory_topics import MemoryLinks
from tests.unit.writer_histories import HISTORIES, TRIED, run_history

_ADMIN = type(MemoryLinks().admin())
_REAL_BOUNDS = _ADMIN.offset_bounds
_REAL_FLUSH = TableWriter.flush
_STATES = TopicPartition(WRITERS_TOPIC, 0)

Mutant = Callable[[pytest.MonkeyPatch], None]


def last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    def bounds(admin: Any, partitions: Any, timeout: float = 30, *, isolation_level: str = "read_uncommitted") -> Any:
        level: Any = "read_committed" if _STATES in partitions else isolation_level
        return _REAL_BOUNDS(admin, partitions, timeout, isolation_level=level)

    patch.setattr(_ADMIN, "offset_bounds", bounds)


def id_after_the_state(patch: pytest.MonkeyPatch) -> None:
    def begin(transactions: WriterTransactions) -> RecordSender:
        transactions.saved = transactions._states.read()
        return transactions._links.sender(transactions._options, transactions._id)

    patch.setattr(WriterTransactions, "begin", begin)


def _committing(state_first: bool) -> Mutant:
    def change(patch: pytest.MonkeyPatch) -> None:
        def commit(
            transactions: WriterTransactions,
            sender: RecordSender,
            record: tuple[bytes, bytes],
            state: str,
            token: Offsets,
        ) -> None:
            def keep() -> None:
                with contextlib.closing(transactions._links.sender()) as other:
                    other.produce(WRITERS_TOPIC, record[1], record[0], partition=0)

            if state_first:
                keep()
            sender.commit()
            if not state_first:
                keep()
            transactions.saved = Saved(state, token, -1)

        patch.setattr(WriterTransactions, "commit", commit)

    return change


def closing_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableWriter, "_finish_writes", lambda writer: writer._rows.sender.commit())


def flushing_commits(patch: pytest.MonkeyPatch) -> None:
    def flush(writer: TableWriter, timeout: float = 30.0) -> Offsets:
        token = _REAL_FLUSH(writer, timeout)
        writer._rows.sender.commit()
        return token

    patch.setattr(TableWriter, "flush", flush)


def nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions_module, "transactional_id", lambda *parts: uuid.uuid4().hex)


MUTANTS: Mapping[str, Mutant] = {
    "the state is read up to the last stable offset": last_stable_offset,
    "the state is read before the id is taken": id_after_the_state,
    "rows are committed before the state": _committing(state_first=False),
    "the state is committed before the rows": _committing(state_first=True),
    "closing commits": closing_commits,
    "flushing commits": flushing_commits,
    "former writers are not fenced": nobody_is_fenced,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)

    # As many as the test itself tries; no smaller ones are looked for.
    @settings(
        max_examples=TRIED,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(HISTORIES)
    def tried(actions: list[tuple[str, int]]) -> None:
        run_history(actions)

    with pytest.raises(AssertionError):
        tried()
