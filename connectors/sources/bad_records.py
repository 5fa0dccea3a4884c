"""Handling of records that a source cannot read or produce."""

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from streamrt.arguments import refuse_async
from streamrt.connectors.argument_checks import checked_type
from streamrt.errors import SourceError

__all__ = ["BadRecord", "BadRecords", "OnBadRecord"]

logger = logging.getLogger("streamrt.connectors")


class BadRecord(NamedTuple):
    """A record of a file that cannot be read or produced.

    Attributes:
        file: path of the file below the path of the source.
        position: the position behind the record.
        data: the bytes of a record that cannot be read, or the record that cannot be produced; None if the rest of the file
            cannot be read.
    """

    file: str
    position: int
    data: Any


OnBadRecord = Literal["fail", "skip"] | Callable[[Exception, BadRecord, logging.Logger], bool]
"""Handling of a bad record: see `FileSource`."""


class BadRecords:
    """Decides on bad records, and counts those that are skipped.

    Args:
        owner: the class of the source.
        source: its name.
        policy: "fail", "skip", or a function that returns whether to skip a record.

    Raises:
        ConfigurationError: if the policy is none of these.
    """

    def __init__(self, owner: str, source: str, policy: OnBadRecord) -> None:
        if not callable(policy):
            wanted = '"fail", "skip" or a function of the error, the bad record and a logger'
            checked_type(owner, "on_error", policy, str, wanted, lambda policy: policy in ("fail", "skip"))
        refuse_async(f"{owner}(on_error=...)", policy)
        self._source = source
        self._policy = policy
        self._skipped: dict[str, int] = {}

    def decide(self, failure: SourceError, error: BaseException, record: BadRecord) -> None:
        """Raise the failure, unless the record is to be skipped.

        Args:
            failure: the error that ends the source.
            error: its cause.
            record: the record.

        Raises:
            SourceError: the failure, or the error of the function.
        """
        if callable(self._policy):
            try:
                skips = self._policy(error if isinstance(error, Exception) else failure, record, logger)
            except Exception as raised:
                raise SourceError(
                    f"on_error of the source {self._source} failed with {type(raised).__name__} on a record of {record.file}"
                ) from raised
            if not skips:
                raise failure from error
        elif self._policy == "fail":
            raise failure from error
        elif not self._skipped.get(record.file):
            logger.warning("%s; it is skipped", failure)
        self._skipped[record.file] = self._skipped.get(record.file, 0) + 1

    def report(self, file: str) -> None:
        """Log how many records of a file were skipped, at its end.

        Args:
            file: path of the file below the path of the source.
        """
        count = self._skipped.pop(file, 0)
        if count > 1:
            logger.warning("the source %s has skipped %d records of %s", self._source, count, file)
