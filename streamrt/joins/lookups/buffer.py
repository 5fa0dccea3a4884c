"""`LookupBuffer`: where records wait until their lookup finds something."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from streamrt.errors import ArgumentTypeError, argument_error
from streamrt.operators.durations import milliseconds
from streamrt.state import StoreSpec

__all__ = ["LookupBuffer"]


@dataclass(frozen=True)
class LookupBuffer:
    """Keeps records back whose lookup does not find anything yet. For `join_lookup(..., buffer=...)`.

    A record that is not resolved waits in a store. As soon as a later record of the same key is resolved, those that wait are
    looked up again, in the order in which they came, and go on before it; those that are still not resolved go on waiting.
    What has waited for `grace_ms` of wall clock goes on as it is, with the defaults of its fields, or is dropped with a
    warning.

    Attributes:
        grace_ms: how long a record may wait, in milliseconds of wall clock or as a timedelta.
        is_resolved: takes the record's value after the lookup and tells whether it has found what it should.
        on_timeout: "emit" lets a record that has waited too long go on, "drop" drops it.
        max_buffered_per_key: how many records of a key may wait. Further ones are dropped with a warning.
        store_name: name of the store; two buffers on one dataframe need two.

    Raises:
        ConfigurationError: if a setting cannot be used.

    Example:
        >>> LookupBuffer(grace_ms=timedelta(minutes=5), is_resolved=lambda value: value["customer"] is not None).grace_ms
        300000
    """

    grace_ms: int | timedelta
    is_resolved: Callable[[dict[str, Any]], bool]
    on_timeout: Literal["emit", "drop"] = "emit"
    max_buffered_per_key: int = 10_000
    store_name: str = "lookup-buffer"

    def __post_init__(self) -> None:
        grace = milliseconds("LookupBuffer(grace_ms=...)", self.grace_ms, least=1)
        object.__setattr__(self, "grace_ms", grace)
        if not callable(self.is_resolved):
            raise ArgumentTypeError(
                f"LookupBuffer(is_resolved=...) must be a function of the value, got {type(self.is_resolved).__name__}"
            )
        if self.on_timeout not in ("emit", "drop"):
            raise argument_error(
                f"LookupBuffer(on_timeout=...) must be 'emit' or 'drop', got {self.on_timeout!r}",
                of_type=isinstance(self.on_timeout, str),
            )
        most = self.max_buffered_per_key
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise argument_error(
                f"LookupBuffer(max_buffered_per_key=...) must be 1 or more, got {most!r}",
                of_type=isinstance(most, int) and not isinstance(most, bool),
            )
        StoreSpec(self.store_name)
