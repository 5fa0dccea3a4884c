"""`LookupBuffer`: settings for records that wait until their lookup finds something."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from streamrt.arguments import checked, checked_choice, refuse_async
from streamrt.errors import ArgumentTypeError
from streamrt.state.spec import StoreSpec
from streamrt.topics.durations import milliseconds

__all__ = ["LookupBuffer"]


@dataclass(frozen=True)
class LookupBuffer:
    """Holds records back whose lookup finds nothing yet. For `join_lookup(..., buffer=...)`.

    An unresolved record waits in a store. When a later record of the same key is resolved, the waiting records are
    looked up again, in the order of their arrival, and continue before it; those still unresolved wait on. After
    `grace_ms` of wall clock time, a record continues as it is, with the defaults of its fields, or is dropped with a
    warning.

    Attributes:
        grace_ms: maximum wait of a record, in milliseconds of wall clock time or as a timedelta.
        is_resolved: function of the record's value after the lookup; returns whether the lookup found what is needed.
        on_timeout: "emit" passes on a record that has waited too long, "drop" drops it.
        max_buffered_per_key: maximum number of waiting records of a key. Further records are dropped with a warning.
        store_name: name of the store; two buffers on one dataframe need different names.

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
        refuse_async("LookupBuffer(is_resolved=...)", self.is_resolved)
        checked_choice("LookupBuffer(on_timeout=...)", self.on_timeout, ("emit", "drop"))
        most = self.max_buffered_per_key
        checked("LookupBuffer(max_buffered_per_key=...)", most, int, "1 or more", lambda number: number >= 1)
        StoreSpec(self.store_name)
