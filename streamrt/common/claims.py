"""Claim, then read: what a process may act on was read after it took the id that keeps others from changing it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["Claimed", "claim"]


class Holder(Protocol):
    """An object that holds an id, such as a transactional producer or a lease."""

    def close(self) -> object:
        """Give the id back."""


HolderT = TypeVar("HolderT", bound=Holder)
SeenT = TypeVar("SeenT")


@dataclass(frozen=True)
class Claimed(Generic[HolderT, SeenT]):
    """An id, and what was read after it was taken.

    Attributes:
        holder: what holds the id.
        seen: what was read. It stays true until another process takes the id; then the holder's next commit fails.
    """

    holder: HolderT
    seen: SeenT


def claim(take: Callable[[], HolderT], read: Callable[[HolderT], SeenT]) -> Claimed[HolderT, SeenT]:
    """Take an id, then read what only its holder may change.

    The order matters: of two processes that first read and then take the id, both act on the same, and the second one
    does again what the first one did meanwhile. So functions that act take a `Claimed`, and nothing that was read before.

    Args:
        take: takes the id; the brokers refuse the commits of its previous holder.
        read: reads with the id taken. The holder is closed if it fails.

    Example:
        >>> class Lock:
        ...     def close(self) -> None:
        ...         print("closed")
        >>> claim(Lock, lambda lock: 17).seen
        17
    """
    holder = take()
    try:
        return Claimed(holder, read(holder))
    except BaseException:
        holder.close()
        raise
