"""The transactions of a writer with an id: who holds the id, and what is committed."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from streamrt.arguments import checked, type_name
from streamrt.common.claims import claim
from streamrt.config import transaction_timeout_s
from streamrt.errors import ArgumentValueError, TransactionError, WriterFencedError
from streamrt.kafka.completion_token import Offsets
from streamrt.kafka.writing.transactions import transactional_id
from streamrt.tables.access.links import RecordSender, TableLinks
from streamrt.tables.writing.writer_states import WRITERS_TOPIC, Saved, WriterStates

__all__ = ["WriterTransactions", "check_writer_id"]

PREFIX = "streamrt-writer"
"""Prefix of the transactional ids of writers; those of tasks have others."""

_TIMEOUT_MS = "transaction.timeout.ms"
_LONGEST_ID = 200
_LONGEST_STATE = 900_000
"""Bytes of a record with a state: brokers take a megabyte unless they are told otherwise."""


class WriterTransactions:
    """Commits rows together with the state of their writer.

    Args:
        links: how topics are reached.
        table: name of the table.
        topic: topic of its rows.
        writer_id: id of the writer.
        states: where its state is.
        options: producer options of librdkafka.
    """

    def __init__(
        self,
        links: TableLinks,
        table: str,
        topic: str,
        writer_id: str,
        states: WriterStates,
        options: Mapping[str, Any],
    ) -> None:
        self.who = f"writer {writer_id!r} of table {table!r}"
        # As for its state: catalogues may have tables of one name. The part behind the last dot is the partition of tasks.
        self._id = transactional_id(PREFIX, topic, writer_id, 0)
        self._former_id = transactional_id(PREFIX, table, writer_id, 0)
        self._links = links
        self._states = states
        self._options = options
        self.timeout_s = transaction_timeout_s(options)
        self._begun: float | None = None
        self.saved = Saved()

    def begin(self) -> RecordSender:
        """Take the id from the writer that has it, and read what that one committed last.

        Raises:
            TransactionError: if the id was not acquired.
            KafkaRequestError: if the state could not be read.
        """
        claimed = claim(lambda: self._links.sender(self._options, self._id), lambda sender: self._read_checkpoint())
        self.saved = claimed.seen
        return claimed.holder

    def _read_checkpoint(self) -> Saved:
        """Return the last checkpoint, which no other writer can follow any more."""
        saved = self._states.read()
        if not saved.is_former:
            return saved
        # A writer of a former version, which may still run, has another id.
        former = claim(lambda: self._links.sender(self._options, self._former_id), lambda sender: self._states.read())
        with contextlib.closing(former.holder):
            return former.seen

    def renewed(self) -> RecordSender:
        """Take the id again, after a commit with errors of the connection, unless another writer has used it meanwhile.

        Raises:
            WriterFencedError: if another one has committed.
        """
        known = self.saved
        # First without the id, so as not to fence that one.
        if self._states.read().offset != known.offset:
            raise WriterFencedError(self._describe_fenced(), True)
        sender = self.begin()
        if self.saved.offset != known.offset:
            self.saved = known
            sender.close()
            raise WriterFencedError(self._describe_fenced(), True)
        return sender

    def wrote(self) -> None:
        """Note that a row is in the transaction."""
        if self._begun is None:
            self._begun = time.monotonic()

    def state_record(self, state: str, token: Offsets) -> tuple[bytes, bytes]:
        """Return key and value of the record with a state.

        Raises:
            ArgumentTypeError: if the state is not a string.
            ArgumentValueError: if it is too long.
        """
        checked("checkpoint(state)", state, str, "a text", show=type_name)
        try:
            key, value = self._states.record(state, token)
        except UnicodeEncodeError:
            raise ArgumentValueError("checkpoint(state) must be a text that UTF-8 can hold") from None
        if len(value) > _LONGEST_STATE:
            raise ArgumentValueError(
                f"checkpoint(state) must have at most {_LONGEST_STATE:,} bytes, got {len(value):,}: keep what is larger "
                "elsewhere, and its name in the state"
            )
        return key, value

    def commit(self, sender: RecordSender, record: tuple[bytes, bytes], state: str, token: Offsets) -> None:
        """Commit the transaction with the record of the state.

        Raises:
            TransactionError: if it was not committed, or the outcome is unknown.
            ProducerError: if the record is refused.
        """
        found: list[int] = []
        self.wrote()
        if self.saved.is_former:
            # Or it would be found again when the new record is deleted.
            sender.produce(WRITERS_TOPIC, None, self._states.former_key, partition=0)
        sender.produce(
            WRITERS_TOPIC,
            record[1],
            record[0],
            partition=0,
            on_delivery=lambda error, partition, offset, timestamp: None if error else found.append(offset),
        )
        sender.commit()
        # The client calls back before it commits.
        self.saved = Saved(state, token, found[0] if found else -1)
        self._begun = None

    def explained(self, error: TransactionError) -> TransactionError:
        """Return the error that the user sees for one of a transaction."""
        if not error.fenced:
            return TransactionError(
                f"the transaction of {self.who} failed, or its outcome is unknown: {error}; make a new writer with this "
                "id, which has the state that is committed"
            )
        open_s = 0.0 if self._begun is None else time.monotonic() - self._begun
        if open_s < self.timeout_s:
            return WriterFencedError(self._describe_fenced(), True)
        return TransactionError(
            f"the transaction of {self.who} was open for {open_s:.0f} s, so the brokers have aborted it after "
            f"{_TIMEOUT_MS}={self.timeout_s * 1_000:.0f}: checkpoint more often, or raise it in the options of the writer; "
            "rows since the last checkpoint are dropped, and a new writer with this id continues from its state",
            True,
        )

    def interrupted(self) -> TransactionError:
        """Return the error for a commit that was not waited for."""
        return TransactionError(
            f"a checkpoint of {self.who} was interrupted, so its outcome is unknown: make a new writer with this id, which "
            "has the state that is committed"
        )

    def _describe_fenced(self) -> str:
        return (
            f"another {self.who} has taken over (fenced): let one process at a time use an id; rows of this writer since "
            "its last checkpoint are dropped"
        )


def check_writer_id(writer_id: str) -> None:
    """Check the id of a writer.

    Raises:
        ArgumentTypeError: if it is not a string.
        ArgumentValueError: if it is empty or too long.
    """
    checked("writer(id=...)", writer_id, str, "a text", show=type_name)
    if not 0 < len(writer_id) <= _LONGEST_ID or not writer_id.isprintable():
        raise ArgumentValueError(f"writer(id=...) must have 1 to {_LONGEST_ID} printable characters")
