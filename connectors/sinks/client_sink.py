"""The common bases of sinks that write through a client, which each process opens once."""

import abc
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from streamrt.arguments import type_name
from streamrt.connectors.credentials import Credential
from streamrt.connectors.failures import PassingError
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.base import BatchingSink
from streamrt.connectors.sinks.batch import SinkBatch, SinkItem
from streamrt.connectors.sinks.common import origin
from streamrt.errors import ArgumentTypeError, SinkError
from streamrt.forks import close_with

__all__ = ["ClientHolder", "ClientSink"]


class ClientHolder(BatchingSink):
    """Keeps a client, and closes it with the sink."""

    _client: Any = None
    _close: Callable[[], object] | None = None

    def close(self) -> None:
        """Close the connection; `start` opens another one."""
        self._disconnect()

    def _keep_client(self, client: Any) -> None:
        self._client, self._close = client, close_with(self, client)

    def _disconnect(self) -> None:
        close, self._client, self._close = self._close, None, None
        if close is not None:
            close()


class ClientSink(ClientHolder):
    """Keeps a connected client, repeats requests, and words errors without values.

    The constructor of a subclass sets `_target` and `_password`.
    """

    _owner: ClassVar[str]
    """Name of the sink, for messages."""
    _verb: ClassVar[str] = "write"
    """The verb for writing a value, as in "cannot write ..."."""
    _preposition: ClassVar[str] = "to"
    """The preposition between a value and the target, as in "to"."""
    _target: str
    """The name of the target in messages."""
    _password: Credential | None
    _retries: Retries = Retries()

    def __repr__(self) -> str:
        return f"{self._owner}({self._target})"

    def setup(self) -> None:
        """Connect to the server.

        Raises:
            SinkError: if the server cannot be reached, or refuses the credentials.
        """
        try:
            self._connect_client()
        except PassingError as error:
            raise self._make_unreachable_error(error) from None

    @abc.abstractmethod
    def _connect_client(self) -> Any:
        """Return the client; connect if there is none.

        Raises:
            PassingError: if a later attempt may succeed.
            SinkError: if not.
        """

    @abc.abstractmethod
    def _send_chunk(self, batch: SinkBatch, chunk: Any) -> None:
        """Send a part of a batch; called again after a `PassingError`."""

    def _write_chunks(self, batch: SinkBatch, chunks: Iterable[Any]) -> None:
        for chunk in chunks:
            self._retries.write(
                functools.partial(self._send_chunk, batch, chunk), passing=(PassingError,), what=self._writing(batch)
            )

    def _writing(self, batch: SinkBatch) -> str:
        return f"{self._owner}'s write of {batch.topic}[{batch.partition}] to {self._target}"

    @property
    def _renews_credentials(self) -> bool:
        """Whether a function returns the credentials, so that the next ones may differ."""
        return self._password is not None and self._password.changes

    # -- Errors --------------------------------------------------------------------------------------------------------

    def _make_unsupported_error(self, names: Iterable[str], library: str) -> ArgumentTypeError:
        """Return the error for settings that the client refuses, whose own error would show values."""
        return ArgumentTypeError(
            f"{self._owner} got unsupported settings among {', '.join(names)}: it takes those of {library}"
        )

    def _make_unreachable_error(self, reason: object) -> SinkError:
        return SinkError(f"{self._owner} cannot reach {self._target}: {reason}")

    def _make_unusable_error(self, reason: str) -> SinkError:
        return SinkError(f"{self._owner} cannot use {self._target}: {reason}")

    def _refused_credentials(self) -> Exception:
        refusal = "it refuses the credentials"
        return PassingError(refusal) if self._renews_credentials else self._make_unusable_error(refusal)

    def _make_rejection(
        self,
        batch: SinkBatch,
        item: SinkItem,
        reason: str,
        *,
        part: str = "",
        doing: str = "",
        of_value: bool = True,
    ) -> SinkError:
        """Return the error for an item.

        Args:
            batch: its batch.
            item: the item.
            reason: why it cannot be written, without its value.
            part: the part of it that is the reason, such as "field 'n' of ".
            doing: what cannot be done with it; by default, to write it to the target.
            of_value: whether its value is the reason, so that it may be skipped.
        """
        what = f"{part}{origin(batch, item)}"
        action = f"{doing} {what}" if doing else f"{self._verb} {what} {self._preposition} {self._target}"
        return SinkError(f"{self._owner} cannot {action}: {reason}", batch.record_of(item) if of_value else None)

    def _columns_of(self, batch: SinkBatch, item: SinkItem) -> Mapping[str, Any]:
        """Return the value of an item, which must be a dict."""
        if isinstance(item.value, Mapping):
            return item.value
        reason = f"its value has the type {type_name(item.value)}; make it a dict before the sink"
        raise self._make_rejection(batch, item, reason)
